"""MXNet: nets with random parameters, each as `-symbol.json`, `.params`, and an `.npz` of an input and what MXNet computes of it.

`side_mxnet_nets.py write FOLDER SEED COUNT [SYMBOL PARAMS]`: COUNT random nets, and one whose files are given.
"""
import json
import sys

import mxnet as mx
import numpy as np

_, _, folder, seed, count, *real = sys.argv
random = np.random.default_rng(int(seed))


def net():
    """A convolution, a normalisation whose `fix_gamma` is left out or set, a branch, a fully connected layer."""
    norm = lambda x, name: mx.sym.BatchNorm(x, name=name, **random.choice([{}, {"fix_gamma": False}, {"fix_gamma": True, "eps": 2e-5}]))
    x = mx.sym.Convolution(mx.sym.Variable("data"), num_filter=4, kernel=(3, 3), pad=(1, 1), no_bias=bool(random.integers(2)), name="conv0")
    x = mx.sym.Activation(norm(x, "bn0"), act_type="relu", name="relu0")
    y = mx.sym.Convolution(x, num_filter=4, kernel=(1, 1), num_group=int(random.choice([1, 2])), name="conv1")
    x = mx.sym.Pooling(x + norm(y, "bn1"), pool_type="max", kernel=(2, 2), stride=(2, 2), name="pool")
    return mx.sym.FullyConnected(x, num_hidden=5, name="fc")


def compute(symbol, arguments, states, shape, stem):
    data = random.standard_normal(shape).astype("float32")
    bound = symbol.bind(mx.cpu(), {**arguments, "data": mx.nd.array(data)}, aux_states=states, grad_req="null")
    np.savez(stem + ".npz", data=data, output=bound.forward(is_train=False)[0].asnumpy())
    symbol.save(stem + "-symbol.json")


made = []
for index in range(int(count)):
    symbol, stem = net(), "%s/net%03d" % (folder, index)
    shapes, _, states = symbol.infer_shape(data=(2, 3, 8, 8))
    value = lambda name, dims: mx.nd.array(np.abs(random.standard_normal(dims)) + 0.3 if name.endswith("var") else random.standard_normal(dims))
    arguments = {name: value(name, dims) for name, dims in zip(symbol.list_arguments(), shapes) if name != "data"}
    states = {name: value(name, dims) for name, dims in zip(symbol.list_auxiliary_states(), states)}
    compute(symbol, arguments, states, (2, 3, 8, 8), stem)
    mx.nd.save(stem + ".params", {**{"arg:" + k: v for k, v in arguments.items()}, **{"aux:" + k: v for k, v in states.items()}})
    made.append("net%03d" % index)
if real:
    symbol, params = mx.sym.load(real[0]), mx.nd.load(real[1])
    params = {name.split(":", 1)[-1]: value for name, value in params.items()}
    states = {name: params[name] for name in symbol.list_auxiliary_states()}
    arguments = {name: params[name] for name in symbol.list_arguments() if name != "data"}
    compute(symbol, arguments, states, (2, 3, 32, 32), folder + "/real")
    open(folder + "/real.params", "wb").write(open(real[1], "rb").read())
    made.append("real")
print(json.dumps(made))
