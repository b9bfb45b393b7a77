"""ONNX models in onnxruntime and OpenCV 5, against what OpenCV 4.14 or MXNet computes of the net, and against each other.

    side_onnx.py read MODEL...      (MODEL.npz beside each; prints the greatest relative difference, or what is wrong, by name)
"""
import json
import os
import sys

import cv2
import numpy as np
import onnx
import onnxruntime

from common import told


def rows(value, is_boxes):
    """Detections in one order, without rows that say that there is none: of -1, and OpenCV 4.14's of zeros up to `keep_top_k`. Caffe's begin
    with the image."""
    if not is_boxes:
        return np.ravel(value)
    width = np.shape(value)[-1]
    found = (tuple(float(x) for x in row[width - 6:]) for row in np.reshape(value, (-1, width)) if row[width - 6] >= 0 and row[width - 5] > 0)
    return np.ravel(sorted(found, key=lambda row: (row[0], -row[1], row[2])))


def off(found, wanted):
    most = 0.0
    for name in wanted:
        is_boxes = name.startswith("detection")
        a, b = rows(found[name], is_boxes), rows(wanted[name], is_boxes)
        if a.size != b.size:
            return "%s has %d values, not %d" % (name, a.size, b.size)
        most = max(most, float(np.max(np.abs(a - b), initial=0.0) / max(np.max(np.abs(b), initial=0.0), 1e-30)))
    return most


def read(path):
    model, arrays = onnx.load(path), np.load(path[:-len(".onnx")] + ".npz")
    onnx.checker.check_model(model, full_check=True)
    onnx.shape_inference.infer_shapes(model, check_type=True, strict_mode=True, data_prop=True)
    side = lambda name: {key[len(name):]: arrays[key] for key in arrays if key.startswith(name)}
    inputs, wanted, names = side("in/"), side("out/"), [value.name for value in model.graph.output]
    options = onnxruntime.SessionOptions()
    options.log_severity_level = 4
    session = onnxruntime.InferenceSession(path, options, providers=["CPUExecutionProvider"])
    first = dict(zip(names, session.run(names, inputs)))
    net = cv2.dnn.readNetFromONNX(path)
    for key, value in inputs.items():
        net.setInput(value, key)
    second = dict(zip(names, net.forward(names)))
    apart = [off(second, first)] + ([off(first, wanted)] if wanted else [])
    words = [found for found in apart if isinstance(found, str)]
    return words[0] if words else max(apart)


print(json.dumps({os.path.basename(path)[:-len(".onnx")]: told(read, path) for path in sys.argv[2:]}))
