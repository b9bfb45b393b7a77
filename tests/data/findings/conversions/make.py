"""What MXNet 1.9.1 and OpenCV 4.8 compute of the nets here: an input and their output, in float32, as NAME.golden.npz."""
import os

import numpy as np

HERE = os.path.dirname(os.path.abspath(__file__))


def save(stem, data, output):
    np.savez(os.path.join(HERE, stem + ".golden.npz"), data=data, output=output)


def mxnet(stem, shape):
    import mxnet as mx

    net = mx.sym.load(os.path.join(HERE, stem + "-symbol.json"))
    arguments, states = {}, {}
    for name, array in mx.nd.load(os.path.join(HERE, stem + "-0000.params")).items():
        kind, name = name.split(":", 1)
        (states if kind == "aux" else arguments)[name] = array
    data = np.random.RandomState(1).uniform(-1, 1, shape).astype("f4")
    needed = {name: arguments[name] for name in net.list_arguments() if name != "data"}
    bound = net.bind(mx.cpu(), dict(needed, data=mx.nd.array(data)), aux_states=states, grad_req="null")
    save(stem, data, bound.forward(is_train=False)[0].asnumpy())


def opencv(stem, shape):
    import cv2

    net = cv2.dnn.readNetFromCaffe(os.path.join(HERE, stem + ".prototxt"), os.path.join(HERE, stem + ".caffemodel"))
    data = np.random.RandomState(1).uniform(-1, 1, shape).astype("f4")
    net.setInput(data)
    save(stem, data, net.forward())


for stem, shape in [("both_prefixes", (1, 2, 3, 3)), ("capitals", (1, 2, 3, 3))]:
    mxnet(stem, shape)
for stem, shape in [("fc_channels", (1, 3, 2, 3)), ("flatten_bn", (2, 3, 3, 4)), ("two_convs", (1, 3, 5, 5)), ("legacy_ip", (1, 2, 4, 4))]:
    opencv(stem, shape)
