"""OpenCV's importer of Caffe: the weights it took from a `.caffemodel`, and its forward pass against NumPy's."""
import os

import cv2
import numpy as np

import common

TEXT = """name: "net" input: "data" input_dim: 1 input_dim: %d input_dim: 7 input_dim: 7
layer { name: "conv" type: "Convolution" bottom: "data" top: "conv" convolution_param { num_output: %d kernel_size: 3 } }
layer { name: "ip" type: "InnerProduct" bottom: "conv" top: "ip" inner_product_param { num_output: %d } }
"""


def write(folder, random, count):
    made = {}
    for index in range(count):
        channels, filters, outputs = (int(n) for n in random.integers(1, 6, size=3))
        shapes = {"conv/0": (filters, channels, 3, 3), "conv/1": (filters,), "ip/0": (outputs, filters * 25), "ip/1": (outputs,)}
        arrays = {name: random.standard_normal(dims).astype("float32") for name, dims in shapes.items()}
        path = os.path.join(folder, "%03d" % index)
        np.savez(path + ".npz", **arrays)
        with open(path + ".prototxt", "w") as file:
            file.write(TEXT % (channels, filters, outputs))
        made["%03d" % index] = {name: common.row(array) for name, array in arrays.items()}
    return made


def forward(arrays, data):
    windows = np.lib.stride_tricks.sliding_window_view(data, (3, 3), axis=(2, 3))
    conv = np.einsum("nchwij,ocij->nohw", windows, arrays["conv/0"]) + arrays["conv/1"][None, :, None, None]
    return conv.reshape(1, -1) @ arrays["ip/0"].T + arrays["ip/1"]


def read(path):
    stem = path.rsplit(".", 1)[0]
    net = cv2.dnn.readNetFromCaffe(stem + ".prototxt", path)
    arrays = dict(np.load(stem + ".npz"))
    data = np.random.default_rng(0).standard_normal((1, arrays["conv/0"].shape[1], 7, 7)).astype("float32")
    net.setInput(data)
    got, wanted = net.forward(), forward(arrays, data)
    if not np.allclose(got, wanted, rtol=1e-4, atol=1e-4):
        raise ValueError("the forward pass is off by %g" % np.abs(got - wanted).max())
    taken = {name: net.getParam(*name.replace("/", " ").split()[:1], int(name[-1])) for name in arrays}
    return {name: common.row(taken[name].reshape(array.shape)) for name, array in arrays.items()}


common.main(write, read)
