"""What OpenCV computes with a Caffe net, NumPy with the same weights under PyTorch's names and with its BatchNorms folded, and OpenCV with the folded net."""
import os
import re

import cv2
import numpy as np

import common
from modules import forward, verdict

LAYER = 'layer { name: "%s" type: "%s" bottom: "%s" top: "%s" %s }\n'


def write(folder, random, count):
    made = {}
    for index in range(count):
        groups, per, outputs = (int(n) for n in random.integers(1, 4, size=3))
        inputs, filters, has_bias, kernel = groups * per, groups * outputs, bool(random.integers(2)), int(random.integers(1, 4))
        normal = lambda *dims: (random.standard_normal(dims) * 0.5).astype("float32")
        arrays = {"conv/0": normal(filters, per, kernel, kernel), "up/0": normal(filters, outputs, 2, 2), "up/1": normal(filters),
                  "ip/0": normal(5, filters * (9 - kernel) ** 2), "ip/1": normal(5)}
        if has_bias:
            arrays["conv/1"] = normal(filters)
        text = 'input: "data" input_dim: 1 input_dim: %d input_dim: 7 input_dim: 7\n' % inputs
        text += LAYER % ("conv", "Convolution", "data", "conv", "convolution_param { num_output: %d group: %d kernel_size: %d bias_term: %s }"
                         % (filters, groups, kernel, "true" if has_bias else "false"))
        last = "conv"
        for bn, scale in (("bn1", "scale1"), ("bn2", None)):
            factor = np.float32(random.choice([1.0, 999.98, 0.3]))
            arrays.update({bn + "/0": normal(filters) * factor, bn + "/1": (np.abs(normal(filters)) + 0.2) * factor, bn + "/2": np.array([factor])})
            text += LAYER % (bn, "BatchNorm", last, last, "batch_norm_param { eps: %r }" % float(random.choice([1e-5, 1e-2])))
            if scale:
                arrays.update({scale + "/0": normal(filters), scale + "/1": normal(filters)})
                text += LAYER % (scale, "Scale", last, last, "scale_param { bias_term: true }") + LAYER % ("relu", "ReLU", last, last, "")
                text += LAYER % ("up", "Deconvolution", last, "up", "convolution_param { num_output: %d group: %d kernel_size: 2 }" % (filters, groups))
                last = "up"
        text += LAYER % ("ip", "InnerProduct", "up", "ip", "inner_product_param { num_output: 5 }")
        path = os.path.join(folder, "%03d" % index)
        np.savez(path + ".npz", **arrays)
        with open(path + ".prototxt", "w") as file:
            file.write(text)
        made["%03d" % index] = {"torch": "equal", "folded": "equal", "eps": "equal", "caffemodel": "equal"}
    return made


def read(path):
    stem = path.rsplit(".", 1)[0]
    net = cv2.dnn.readNetFromCaffe(stem + ".prototxt", path)
    # OpenCV's own folding of a BatchNorm into a deconvolution in groups is wrong in 4.14.
    net.enableFusion(False)
    text = open(stem + ".prototxt").read()
    groups = int(text.split(" group: ")[1].split()[0])
    eps = [float(part.split("}")[0]) for part in text.split("eps: ")[1:]]
    inputs = int(text.split("input_dim: ")[2])
    data = np.random.default_rng(0).standard_normal((1, inputs, 7, 7)).astype("float32")
    net.setInput(data)
    theirs = net.forward()
    with open(stem + ".folded.prototxt", "w") as file:
        file.write(re.sub(r'layer { name: "(bn|scale)\d".*\n', "", text).replace("bias_term: false", "bias_term: true"))
    net = cv2.dnn.readNetFromCaffe(stem + ".folded.prototxt", stem + ".folded.caffemodel")
    net.enableFusion(False)
    net.setInput(data)
    return {"caffemodel": verdict(net.forward(), theirs), **forward(stem, data, groups, eps, theirs)}


common.main(write, read)
