"""SSD's detections as ONNX's operators, on random places, scores and settings: against a naive loop, and OpenCV's DetectionOutput.

    python side_onnx_ssd.py BLOB COUNT      (in the environment of onnx.txt; BLOB is the tool)

A model is converted for each of COUNT / 50 random settings, and run on 50 random inputs in onnxruntime and in OpenCV 5; the drop-in
(`--ssd opencv`) is run in OpenCV 5, too. OpenCV gets a fresh net in a child for each input, as its nets do not forget shapes. A third of the inputs has ties: scores of few values, and boxes that are equal. Rows are
compared as sets for each label: the scores bit for bit, the edges to 1e-5. Ties in the score at a limit (top_k, keep_top_k) and
overlaps within 1e-6 of the threshold leave a choice, and are counted apart.
"""
import json
import os
import subprocess
import sys
import tempfile

import cv2
import numpy as np
import onnxruntime

from common import told

F = np.float32
EACH = 50
# The new engine of OpenCV 5.0.0 computes other boxes of CENTER_SIZE by its own layer, and writes beyond its memory.
OPENCV = {"OpenCV": ("a.onnx", cv2.dnn.ENGINE_AUTO), "DetectionOutput": ("b.onnx", cv2.dnn.ENGINE_CLASSIC)}
NET = """input: "loc" input_shape { dim: 1 dim: %(places)d } input: "conf" input_shape { dim: 1 dim: %(scores)d }
input: "prior" input_shape { dim: 1 dim: 2 dim: %(places)d }
layer { name: "det" type: "DetectionOutput" bottom: "loc" bottom: "conf" bottom: "prior" top: "det"
        detection_output_param { num_classes: %(classes)d share_location: true background_label_id: %(background)d
        nms_param { nms_threshold: %(overlap)g top_k: %(top)d } code_type: %(code)s keep_top_k: %(keep)d
        confidence_threshold: %(least)g variance_encoded_in_target: %(encoded)s } }"""


def settings(random):
    priors, classes = int(random.integers(1, 60)), int(random.integers(2, 5))
    return dict(priors=priors, classes=classes, places=4 * priors, scores=classes * priors, background=0,
                overlap=float(random.choice([0.3, 0.45, 0.6])), top=int(random.choice([-1, 5, 20, 400])),
                keep=int(random.choice([-1, 3, 10, 200])), least=float(random.choice([0.01, 0.25, 0.5])),
                code=str(random.choice(["CENTER_SIZE", "CENTER_SIZE", "CORNER"])), encoded=str(random.choice(["false", "false", "true"])))


def inputs(random, own):
    priors, is_tied = own["priors"], random.random() < 1 / 3
    middle, size = random.random((priors, 2)), random.random((priors, 2)) * 0.4 + 0.05
    if is_tied:
        middle[priors // 2:] = middle[: priors - priors // 2]
        size[priors // 2:] = size[: priors - priors // 2]
    boxes = np.concatenate([middle - size / 2, middle + size / 2], 1).astype(F)
    variance = np.tile(np.array([0.1, 0.1, 0.2, 0.2], F), (priors, 1))
    # Edges stay in order: OpenCV 5 takes any two boxes of no area for equal.
    far = 0.3 if own["code"] == "CENTER_SIZE" else 0.005 if own["encoded"] == "true" else 0.05
    moves = (random.standard_normal((priors, 4)) * far).astype(F)
    if is_tied:
        moves[priors // 2:] = moves[: priors - priors // 2]
    scores = random.random((priors, own["classes"]))
    scores = (np.round(scores * 8) / 8 if is_tied else scores).astype(F)
    return {"loc": moves.reshape(1, -1), "conf": scores.reshape(1, -1), "prior": np.stack([boxes.ravel(), variance.ravel()])[None]}


def decoded(own, given):
    """`DecodeBBox` in f64: the box that each place means."""
    boxes, variance = (part.reshape(-1, 4).astype(float) for part in given["prior"][0])
    moves = given["loc"].reshape(-1, 4).astype(float) * (1 if own["encoded"] == "true" else variance)
    if own["code"] == "CORNER":
        return boxes + moves
    size, middle = boxes[:, 2:] - boxes[:, :2], (boxes[:, 2:] + boxes[:, :2]) / 2
    centre, half = moves[:, :2] * size + middle, np.exp(moves[:, 2:]) * size / 2
    return np.concatenate([centre - half, centre + half], 1)


def overlap(one, two):
    sides = np.minimum(one[2:], two[2:]) - np.maximum(one[:2], two[:2])
    area = lambda box: max(box[2] - box[0], 0) * max(box[3] - box[1], 0)
    both = sides[0] * sides[1]
    return both / (area(one) + area(two) - both) if (sides > 0).all() else 0.0


def naive(own, given):
    """The rows of `ApplyNMSFast` for each label, and whether a tie or an overlap leaves a choice."""
    boxes, scores, rows, is_open = decoded(own, given), given["conf"].reshape(own["priors"], -1), [], False
    for label in range(own["classes"]):
        if label == own["background"]:
            continue
        order = [place for place in np.argsort(-scores[:, label], kind="stable") if scores[place, label] > F(own["least"])]
        if 0 <= own["top"] < len(order):
            is_open |= scores[order[own["top"] - 1], label] == scores[order[own["top"]], label]
            order = order[: own["top"]]
        kept = []
        for place in order:
            shared = [overlap(boxes[place], boxes[other]) for other in kept]
            is_open |= any(abs(by - own["overlap"]) < 1e-6 for by in shared)
            if all(by <= own["overlap"] for by in shared):
                kept.append(place)
        # Boxes of one score may be taken in any order, and then others are suppressed.
        tied = [a for a, b in zip(order, order[1:]) if scores[a, label] == scores[b, label]]
        is_open |= any(0 < overlap(boxes[a], boxes[b]) for a in tied for b in order if scores[a, label] == scores[b, label] and a != b)
        rows += [(label, scores[place, label], *boxes[place]) for place in kept]
    rows.sort(key=lambda row: -row[1])
    if 0 <= own["keep"] < len(rows):
        is_open |= rows[own["keep"] - 1][1] == rows[own["keep"]][1]
        rows = rows[: own["keep"]]
    return rows, is_open


def differs(found, wanted):
    """In words, in what two sets of rows differ."""
    order = lambda row: (row[0], -row[1], *(round(edge, 4) for edge in row[2:]))
    found, wanted = sorted(map(tuple, found), key=order), sorted(wanted, key=order)
    if len(found) != len(wanted):
        return "%d rows, not %d" % (len(found), len(wanted))
    if [row[:2] for row in found] != [(float(label), float(score)) for label, score, *_ in wanted]:
        return "other labels or scores"
    worst = max((abs(a - b) for one, two in zip(found, wanted) for a, b in zip(one[2:], two[2:])), default=0.0)
    return "edges by %.1e" % worst if worst > 1e-5 else None


def rows(answer):
    """The rows of an answer; OpenCV's own layer has a row of label 0 and score 0 where it finds nothing."""
    return [tuple(float(value) for value in row[1:]) for row in answer.reshape(-1, 7) if row[2] > 0 and row[0] >= 0]


def opencv(path, mode, given):
    """The rows that OpenCV 5 finds."""
    net = cv2.dnn.readNetFromONNX(path, mode)
    for name, value in given.items():
        net.setInput(value, name)
    return rows(net.forward())


def main(blob, count):
    equal, is_open, wrong = {"onnxruntime": 0, "OpenCV": 0, "DetectionOutput": 0}, 0, []
    options = onnxruntime.SessionOptions()
    options.log_severity_level = 4
    with tempfile.TemporaryDirectory() as folder:
        path = lambda name: os.path.join(folder, name)
        open(path("w.caffemodel"), "wb").write(b"\x0a\x01n\xa2\x06\x09\x0a\x01r\x12\x04ReLU")
        for seed in range(int(count) // EACH):
            random = np.random.default_rng(seed)
            own = settings(random)
            open(path("n.prototxt"), "w").write(NET % own)
            for name, form in ("a.onnx", "standard"), ("b.onnx", "opencv"):
                words = [blob, "convert", path("w.caffemodel"), "--net", path("n.prototxt"), "--ssd", form, "-o", path(name), "--force"]
                done = subprocess.run(words, capture_output=True, text=True)
                if done.returncode:
                    raise SystemExit(done.stderr)
            session = onnxruntime.InferenceSession(path("a.onnx"), options, providers=["CPUExecutionProvider"])
            for at in range(EACH):
                given = inputs(random, own)
                wanted, has_choice = naive(own, given)
                is_open += has_choice
                answers = {"onnxruntime": rows(session.run(None, given)[0])}
                # OpenCV 5 dies where ONNX's operators find nothing.
                answers.update((engine, told(opencv, path(name), mode, given)) for engine, (name, mode) in OPENCV.items() if wanted)
                for engine, answer in answers.items():
                    by = answer if isinstance(answer, str) else differs(answer, wanted)
                    equal[engine] += by is None
                    if by and not has_choice:
                        wrong.append("%s, seed %d, input %d: %s (%s)" % (engine, seed, at, by, own))
    print(json.dumps({"inputs": int(count), "with a choice": int(is_open), "equal": equal, "wrong": wrong}))


main(*sys.argv[1:])
