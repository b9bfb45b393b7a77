"""All nets of Gluon's model zoo, traced to symbols, with random weights: as ONNX in onnxruntime, against MXNet.

    side_onnx_gluon.py write FOLDER                  (Python 3.8, mxnet 1.9.1: NAME-symbol.json, NAME.params, NAME.npz of all nets)
    side_onnx_gluon.py read BLOB FOLDER              (in the environment of onnx.txt: the greatest relative difference by name)

The inputs are as small as the net's last pooling allows.
"""
import json
import os
import sys

import numpy as np

from common import compared

# The side of the input: nets that end with a pooling of all places take less than the 224 and 299 pixels of training.
SIDES = {"densenet": 224, "inception": 299, "squeezenet": 224, "alexnet": 127}


def write(folder):
    os.environ.update(MXNET_MKLDNN_ENABLED="0", MXNET_SUBGRAPH_BACKEND="NONE")
    import mxnet as mx
    from mxnet.gluon.model_zoo import vision
    for name in NAMES:
        random = np.random.default_rng(sum(name.encode()))
        with mx.name.NameManager():
            net = vision.get_model(name, pretrained=False)(mx.sym.Variable("data"))
        side = next((side for start, side in SIDES.items() if name.startswith(start)), 64)
        data = random.standard_normal((1, 3, side, side)).astype("float32")
        shapes, _, states = net.infer_shape(data=data.shape)

        def value(key, shape):
            if key.endswith("var"):
                return np.abs(random.standard_normal(shape)) + 0.5
            if key.endswith("gamma"):
                return random.uniform(0.5, 1.5, shape)
            fan = int(np.prod(shape[1:])) if len(shape) > 1 else 100
            return random.standard_normal(shape) * np.sqrt(2 / fan)

        nd = lambda keys, shapes: {k: mx.nd.array(value(k, s)) for k, s in zip(keys, shapes) if k != "data"}
        weights, states = nd(net.list_arguments(), shapes), nd(net.list_auxiliary_states(), states)
        bound = net.bind(mx.cpu(), {**weights, "data": mx.nd.array(data)}, aux_states=states, grad_req="null")
        out = bound.forward(is_train=False)[0].asnumpy()
        path = os.path.join(folder, name)
        net.save(path + "-symbol.json")
        mx.nd.save(path + ".params", {**{"arg:" + k: v for k, v in weights.items()}, **{"aux:" + k: v for k, v in states.items()}})
        np.savez(path + ".npz", data=data, out0=out)


NAMES = ["alexnet", "densenet121", "densenet161", "densenet169", "densenet201", "inceptionv3", "mobilenet0.25", "mobilenet0.5",
         "mobilenet0.75", "mobilenet1.0", "mobilenetv2_0.25", "mobilenetv2_0.5", "mobilenetv2_0.75", "mobilenetv2_1.0",
         *("resnet%d_v%d" % (depth, version) for depth in (18, 34, 50, 101, 152) for version in (1, 2)),
         "squeezenet1.0", "squeezenet1.1", *("vgg%d%s" % (depth, bn) for depth in (11, 13, 16, 19) for bn in ("", "_bn"))]


def read(blob, folder):
    paths = sorted(os.path.join(folder, file[:-len(".npz")]) for file in os.listdir(folder) if file.endswith(".npz"))
    found = {os.path.basename(path): compared(blob, path) for path in paths}
    print(json.dumps(found, indent=1))
    numbers = [value for value in found.values() if isinstance(value, float)]
    print("%d of %d nets, at most %.1e" % (len(numbers), len(found), max(numbers, default=0.0)))


if __name__ == "__main__":
    write(sys.argv[2]) if sys.argv[1] == "write" else read(*sys.argv[2:])
