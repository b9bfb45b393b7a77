"""What onnxruntime and OpenCV 5 compute of each layer type, against the real Caffe or MXNet: the figures of docs/onnx.md.

    python side_onnx_layers.py BLOB caffe|mxnet            (in the environment of onnx.txt; BLOB is the tool)
    python side_onnx_layers.py BLOB caffe|mxnet RUNTIMES   (the same of rten and tract; RUNTIMES is what cargo builds of runtimes/)
    python side_onnx_layers.py BLOB caffe|mxnet check      (the checker alone; writes tests/data/onnx_graph/checked_FRAMEWORK.txt)

A case is a net with weights, inputs and the framework's outputs in tests/data/onnx_graph. Each becomes a model by `blob convert`,
is proved by `blob verify`, checked by onnx, and run. A figure is the greatest difference of a case, relative to the output's
largest value, in all cases that have a layer of the type. The list of checked models is what `cargo test` holds the models to.
"""
import collections
import hashlib
import json
import os
import re
import subprocess
import sys
import tempfile

import cv2
import numpy as np
import onnx
import onnxruntime

from common import told

DATA = os.path.join(os.path.dirname(os.path.abspath(__file__)), "../data/onnx_graph")


def cases(framework):
    return np.load(os.path.join(DATA, framework + ".npz"))


def files(framework, arrays, case, folder):
    """The net and the weights of a case as files, the words by which the tool finds the net, and the types of layers."""
    ends = {"caffe": ("prototxt", ".prototxt", ".caffemodel"), "mxnet": ("symbol", "-symbol.json", ".params")}[framework]
    net, weights = (os.path.join(folder, case + end) for end in ends[1:])
    for path, name in (net, ends[0]), (weights, "weights"):
        with open(path, "wb") as file:
            file.write(arrays["%s/%s" % (case, name)].tobytes())
    if framework == "caffe":
        return weights, ["--net", net], re.findall(r'^layer \{ name: "\w+" type: "(\w+)"', open(net).read(), re.M)
    types = [node["op"] for node in json.load(open(net))["nodes"] if node["op"] != "null"]
    return weights, ["--symbol", net], types


def shapes(arrays, case):
    """The shapes of a case's inputs, as options."""
    own = [key for key in arrays if key.startswith(case + "/in/")]
    return [word for key in own for word in ("--input", "%s=%s" % (key.split("/in/")[1], ",".join(map(str, arrays[key].shape))))]


def off(found, wanted, is_boxes):
    """Detections are compared in one order, without the rows of -1 that say that there is none. Caffe's begin with the image."""
    if is_boxes:
        by_score, first = lambda row: (row[0], -row[1], row[2:]), wanted.shape[-1] - 6
        rows = lambda value: sorted((tuple(map(float, row[first:])) for row in value.reshape(-1, first + 6) if row[first] >= 0), key=by_score)
        found, wanted = np.array(rows(found)), np.array(rows(wanted))
    if found.shape != wanted.shape:
        return "%s, not %s" % (found.shape, wanted.shape)
    return float(np.max(np.abs(found.astype(float) - wanted), initial=0.0) / max(np.max(np.abs(wanted), initial=0.0), 1e-30))


def by_rust(runtimes, engine, path, inputs):
    """The outputs by name of a runtime in Rust."""
    line = lambda name, value: "\t".join([name, ",".join(map(str, value.shape)), ",".join(map(repr, value.astype(float).ravel().tolist()))])
    text = "".join(line(*item) + "\n" for item in inputs.items())
    done = subprocess.run([runtimes, engine, path], input=text, capture_output=True, text=True, timeout=60)
    if done.returncode:
        raise RuntimeError(done.stderr)
    fields = [line.split("\t") for line in done.stdout.splitlines()]
    numbers = lambda text, kind: np.array([kind(one) for one in text.split(",") if one])
    return {name: numbers(values, float).reshape(numbers(dims, int).astype(int)) for name, dims, values in fields}


def one(engine, path, case, framework, runtimes):
    """Runs one engine."""
    arrays, model = cases(framework), onnx.load(path)
    side = lambda name: {key[len(name):]: arrays[key] for key in arrays if key.startswith(name)}
    wanted, names = side(case + "/out/"), [value.name for value in model.graph.output]
    inputs = {value.name: side(case + "/in/")[value.name] for value in model.graph.input}
    if engine == "check":
        onnx.checker.check_model(model, full_check=True)
        onnx.shape_inference.infer_shapes(model, check_type=True, strict_mode=True, data_prop=True)
        return 0.0
    if engine == "onnxruntime":
        options = onnxruntime.SessionOptions()
        options.log_severity_level = 4
        found = onnxruntime.InferenceSession(path, options, providers=["CPUExecutionProvider"]).run(names, inputs)
    elif engine == "OpenCV":
        net = cv2.dnn.readNetFromONNX(path)
        for name, value in inputs.items():
            net.setInput(value, name)
        found = net.forward(names)
    else:
        found = by_rust(runtimes, engine, path, inputs).values()
    found = dict(zip(names, found))
    if set(found) != set(wanted):
        return "outputs %s, not %s" % (sorted(found), sorted(wanted))
    every = [off(found[name], wanted[name], "detection" in case) for name in wanted]
    return next((words for words in every if isinstance(words, str)), None) or max(every)


def fields(message):
    """The fields of an encoded message with lengths and varints alone: their numbers and bytes."""
    at = 0

    def varint():
        nonlocal at
        value, shift = 0, 0
        while True:
            byte, at = message[at], at + 1
            value, shift = value | (byte & 127) << shift, shift + 7
            if byte < 128:
                return value
    while at < len(message):
        start, key = at, varint()
        size = varint()
        at += size if key & 7 == 2 else 0
        yield key >> 3, message[start:at]


def digest(path):
    """The first 16 digits of the SHA-256 of a model's versions and graph, as they are encoded."""
    kept = [field for number, field in fields(open(path, "rb").read()) if number in (1, 7, 8)]
    return hashlib.sha256(b"".join(kept)).hexdigest()[:16]


def main(blob, framework, runtimes=None):
    engines, checked = ("rten", "tract") if runtimes else ("onnxruntime", "OpenCV"), []
    if runtimes == "check":
        engines = ()
    arrays, most, count, words = cases(framework), collections.defaultdict(dict), collections.Counter(), []
    with tempfile.TemporaryDirectory() as folder:
        for case in sorted({key.split("/")[0] for key in arrays}):
            weights, net, types = files(framework, arrays, case, folder)
            model, types = os.path.join(folder, case + ".onnx"), sorted(set(types))
            run = lambda *words: subprocess.run([blob, *words], capture_output=True, text=True)
            done = run("convert", weights, *net, *(shapes(arrays, case) if framework == "mxnet" else []), "-o", model)
            if done.returncode:
                words.append("%s: refused: %s" % (case, " ".join(done.stderr.split()).replace(folder, "")[-200:]))
                continue
            done = run("verify", model, "--against", weights, *net)
            if done.returncode:
                words.append("%s: verify: %s" % (case, " ".join((done.stdout + done.stderr).split())[-200:]))
            count.update(types)
            for engine in ("check", *engines):
                found = told(one, engine, model, case, framework, runtimes)
                if isinstance(found, str):
                    words.append("%s: %s: %s" % (case, engine, found))
                    continue
                if engine == "check":
                    checked.append("%s %s\n" % (case, digest(model)))
                if found > 1e-5:
                    words.append("%s: %s: %.1e" % (case, engine, found))
                for name in types:
                    most[name][engine] = max(most[name].get(engine, 0.0), found)
    if runtimes == "check":
        with open(os.path.join(DATA, "checked_%s.txt" % framework), "w") as file:
            file.writelines(checked)
        print("%d models are accepted" % len(checked))
        most.clear()
    for name in sorted(most):
        print("%-22s %3d  %.1e  %.1e" % (name, count[name], *(most[name].get(engine, np.nan) for engine in engines)))
    print("\n".join(words))


main(*sys.argv[1:])
