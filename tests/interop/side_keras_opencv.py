"""What OpenCV computes with a Caffe net for BGR, and NumPy as TensorFlow does: RGB, channels last, from weights that the prototxt's order tells."""
import os

import cv2
import numpy as np

import common
from modules import verdict

LAYER = 'layer { name: "%s" type: "%s" bottom: "%s" top: "%s" %s }\n'


def write(folder, random, count):
    made = {}
    for index in range(count):
        channels, kernel, rows, columns = (int(n) for n in random.integers(1, 5, size=4))
        size = (rows + kernel - 1, columns + kernel - 1)
        normal = lambda *dims: (random.standard_normal(dims) * 0.5).astype("float32")
        flat, factor = channels * rows * columns, np.float32(random.choice([1.0, 999.98, 0.3]))
        # The layer that reads the input comes last in the file, and both convolutions take three channels.
        arrays = {"a/0": normal(channels, 3, kernel, kernel), "f/0": normal(5, flat), "f/1": normal(5), "z/0": normal(3, 3, 1, 1)}
        text = 'input: "data" input_dim: 1 input_dim: 3 input_dim: %d input_dim: %d\n' % size
        text += LAYER % ("z", "Convolution", "data", "z", "convolution_param { num_output: 3 kernel_size: 1 bias_term: false }")
        text += LAYER % ("a", "Convolution", "z", "a", "convolution_param { num_output: %d kernel_size: %d bias_term: false }" % (channels, kernel))
        text += LAYER % ("l", "Flatten", "a", "l", "")
        if random.integers(2):
            arrays.update({"b/0": normal(flat) * factor, "b/1": (np.abs(normal(flat)) + 0.2) * factor, "b/2": np.array([factor]), "s/0": normal(flat), "s/1": normal(flat)})
            text += LAYER % ("b", "BatchNorm", "l", "l", "") + LAYER % ("s", "Scale", "l", "l", "scale_param { bias_term: true }")
        text += LAYER % ("f", "InnerProduct", "l", "f", "inner_product_param { num_output: 5 }")
        path = os.path.join(folder, "%03d" % index)
        np.savez(path + ".npz", **arrays)
        with open(path + ".prototxt", "w") as file:
            file.write(text)
        with open(path + ".extents", "w") as file:
            file.write("%d,%d,%d" % (channels, rows, columns))
        made["%03d" % index] = {"keras": "equal"}
    return made


def read(path):
    stem = path.rsplit(".", 1)[0]
    net = cv2.dnn.readNetFromCaffe(stem + ".prototxt", path)
    dims = [int(part.split()[0]) for part in open(stem + ".prototxt").read().split("input_dim: ")[1:5]]
    data = np.random.default_rng(0).standard_normal(dims).astype("float32")
    net.setInput(data)
    theirs = net.forward()
    w = {name: array.astype("float64") for name, array in np.load(stem + ".keras.npz").items()}
    x = data[:, ::-1].transpose(0, 2, 3, 1).astype("float64")
    for name in ("z/0", "a/0"):
        windows = np.lib.stride_tricks.sliding_window_view(x, w[name].shape[:2], axis=(1, 2))
        x = np.einsum("nhwcij,ijco->nhwo", windows, w[name])
    x = x.reshape(1, -1)
    if "b/0" in w:
        x = (x - w["b/0"]) / np.sqrt(w["b/1"] + 1e-5) * w["s/0"] + w["s/1"]
    return {"keras": verdict(x @ w["f/0"] + w["f/1"], theirs)}


common.main(write, read)
