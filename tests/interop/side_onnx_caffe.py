"""What onnxruntime and OpenCV 5 compute of each layer type of Caffe's, against the real Caffe: the figures of docs/onnx.md.

    python side_onnx_caffe.py BLOB      (in the environment of onnx.txt; BLOB is the tool)

A case is a net with weights, inputs and Caffe's outputs in tests/data/onnx_graph/caffe.npz. Each becomes a model by `blob convert`,
is proved by `blob verify`, checked by onnx, and run. A figure is the greatest difference of a case, relative to the output's
largest value, in all cases that have a layer of the type.
"""
import collections
import json
import os
import re
import subprocess
import sys
import tempfile

import numpy as np

CASES = os.path.join(os.path.dirname(os.path.abspath(__file__)), "../data/onnx_graph/caffe.npz")


def off(found, wanted, is_boxes):
    """Detections are compared in one order, without the row of -1 that says that there are none."""
    if is_boxes:
        by_score = lambda row: (row[:2], -row[2], row[3:])
        rows = lambda value: sorted((tuple(map(float, row)) for row in value.reshape(-1, 7) if row[1] >= 0), key=by_score)
        found, wanted = np.array(rows(found)), np.array(rows(wanted))
    if found.shape != wanted.shape:
        return "%s, not %s" % (found.shape, wanted.shape)
    return float(np.max(np.abs(found.astype(float) - wanted), initial=0.0) / max(np.max(np.abs(wanted), initial=0.0), 1e-30))


def one(engine, path, case):
    """Runs one engine, in a process of its own: OpenCV may die."""
    import onnx
    arrays, model = np.load(CASES), onnx.load(path)
    side = lambda name: {key[len(name):]: arrays[key] for key in arrays if key.startswith(name)}
    wanted, names = side(case + "/out/"), [value.name for value in model.graph.output]
    inputs = {value.name: side(case + "/in/")[value.name] for value in model.graph.input}
    if engine == "check":
        onnx.checker.check_model(model, full_check=True)
        onnx.shape_inference.infer_shapes(model, check_type=True, strict_mode=True, data_prop=True)
        return 0.0
    if engine == "onnxruntime":
        import onnxruntime
        options = onnxruntime.SessionOptions()
        options.log_severity_level = 4
        found = onnxruntime.InferenceSession(path, options, providers=["CPUExecutionProvider"]).run(names, inputs)
    else:
        import cv2
        net = cv2.dnn.readNetFromONNX(path)
        for name, value in inputs.items():
            net.setInput(value, name)
        found = net.forward(names)
    found = dict(zip(names, found))
    if set(found) != set(wanted):
        return "outputs %s, not %s" % (sorted(found), sorted(wanted))
    every = [off(found[name], wanted[name], case.startswith("detectionoutput")) for name in wanted]
    return next((words for words in every if isinstance(words, str)), None) or max(every)


def told(engine, path, case):
    done = subprocess.run([sys.executable, __file__, engine, path, case], capture_output=True, text=True)
    if done.returncode < 0:
        return "signal %d" % -done.returncode
    return json.loads(done.stdout) if done.returncode == 0 else done.stderr.strip().split("\n")[-1][-160:]


def main(blob):
    arrays, most, count, words = np.load(CASES), collections.defaultdict(dict), collections.Counter(), []
    with tempfile.TemporaryDirectory() as folder:
        for case in sorted({key.split("/")[0] for key in arrays}):
            net, weights, model = (os.path.join(folder, case + end) for end in (".prototxt", ".caffemodel", ".onnx"))
            for path, name in (net, "/prototxt"), (weights, "/weights"):
                with open(path, "wb") as file:
                    file.write(arrays[case + name].tobytes())
            types = sorted(set(re.findall(r'^layer \{ name: "\w+" type: "(\w+)"', open(net).read(), re.M)))
            run = lambda *words: subprocess.run([blob, *words], capture_output=True, text=True)
            done = run("convert", weights, "--net", net, "-o", model)
            if done.returncode:
                words.append("%s: refused: %s" % (case, " ".join(done.stderr.split()).replace(folder, "")[-200:]))
                continue
            done = run("verify", model, "--against", weights, "--net", net)
            if done.returncode:
                words.append("%s: verify: %s" % (case, " ".join((done.stdout + done.stderr).split())[-200:]))
            count.update(types)
            for engine in "check", "onnxruntime", "OpenCV":
                found = told(engine, model, case)
                if isinstance(found, str):
                    words.append("%s: %s: %s" % (case, engine, found))
                    continue
                if found > 1e-5:
                    words.append("%s: %s: %.1e" % (case, engine, found))
                for name in types:
                    most[name][engine] = max(most[name].get(engine, 0.0), found)
    for name in sorted(most):
        print("%-22s %3d  %.1e  %.1e" % (name, count[name], most[name].get("onnxruntime", np.nan), most[name].get("OpenCV", np.nan)))
    print("\n".join(words))


if len(sys.argv) == 4:
    print(json.dumps(one(*sys.argv[1:])))
else:
    main(sys.argv[1])
