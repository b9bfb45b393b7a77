"""What MXNet computes with a net, and with the folded net and its new symbol; and NumPy with the same weights under PyTorch's names,
and with its BatchNorms folded."""
import os

import mxnet as mx
import numpy as np

import common
from modules import forward, verdict


def write(folder, random, count):
    made = {}
    for index in range(count):
        groups, per, outputs = (int(n) for n in random.integers(1, 4, size=3))
        kernel = int(random.integers(1, 4))
        flags = [{"fix_gamma": False}, {"fix_gamma": True}, {}]
        more = lambda: {**flags[int(random.integers(3))], **({"eps": 2e-5} if random.integers(2) else {})}
        net = mx.sym.Convolution(mx.sym.Variable("data"), name="conv", kernel=(kernel, kernel), num_filter=groups * outputs, num_group=groups, no_bias=bool(random.integers(2)))
        net = mx.sym.Activation(mx.sym.BatchNorm(net, name="bn1", **more()), act_type="relu", name="relu")
        net = mx.sym.Deconvolution(net, name="up", kernel=(2, 2), num_filter=groups * outputs, num_group=groups, no_bias=bool(random.integers(2)))
        net = mx.sym.FullyConnected(mx.sym.BatchNorm(net, name="bn2", **more()), name="ip", num_hidden=5)
        shapes, _, states = net.infer_shape(data=(1, groups * per, 7, 7))
        normal = lambda dims: mx.nd.array(random.standard_normal(dims) * 0.5)
        arguments = {n: normal(s) for n, s in zip(net.list_arguments(), shapes) if n != "data"}
        auxiliary = {n: normal(s) if "mean" in n else mx.nd.abs(normal(s)) + 0.2 for n, s in zip(net.list_auxiliary_states(), states)}
        mx.model.save_checkpoint(os.path.join(folder, "%03d" % index), 0, net, arguments, auxiliary)
        os.rename(os.path.join(folder, "%03d-0000.params" % index), os.path.join(folder, "%03d.params" % index))
        made["%03d" % index] = {"torch": "equal", "folded": "equal", "eps": "equal", "refolded": "equal"}
    return made


def computed(stem, path, data):
    """What MXNet computes with a net."""
    net, stored = mx.sym.load(stem + "-symbol.json"), mx.nd.load(path)
    pick = lambda kind: {name[4:]: array for name, array in stored.items() if name.startswith(kind)}
    assert sorted(pick("arg:")) == sorted(set(net.list_arguments()) - {"data"}), path
    assert sorted(pick("aux:")) == sorted(net.list_auxiliary_states()), path
    bound = net.bind(mx.cpu(), {**pick("arg:"), "data": mx.nd.array(data)}, aux_states=pick("aux:"))
    return bound.forward(is_train=False)[0].asnumpy()


def read(path):
    stem = path.rsplit(".", 1)[0]
    attributes = mx.sym.load(stem + "-symbol.json").attr_dict()
    groups = int(attributes["conv"].get("num_group", 1))
    eps = [float(attributes.get(name, {}).get("eps", 1e-3)) for name in ("bn1", "bn2")]
    inputs = groups * mx.nd.load(path)["arg:conv_weight"].shape[1]
    data = np.random.default_rng(0).standard_normal((1, inputs, 7, 7)).astype("float32")
    theirs = computed(stem, path, data)
    refolded = stem + ".refolded"
    return {"refolded": verdict(computed(refolded, refolded + ".params", data), theirs), **forward(stem, data, groups, eps, theirs)}


common.main(write, read)
