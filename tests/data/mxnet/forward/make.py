"""Small nets with random weights, and what MXNet 1.9.1 computes with them: checkpoints with their symbols, inputs and outputs.

    python make.py [CIFAR_RESNET20]     (the path of cifar_resnet20_v1 of GluonCV, without -0000.params; its weights are not kept here)
"""
import sys

import mxnet as mx
import numpy as np

np.random.seed(2016)
mx.random.seed(2016)


def run(symbol, arguments, auxiliary, data):
    bound = symbol.bind(mx.cpu(), {**arguments, "data": mx.nd.array(data)}, aux_states=auxiliary)
    return bound.forward(is_train=False)[0].asnumpy()


def save(name, symbol, dims):
    shapes, _, states = symbol.infer_shape(data=dims)
    normal = lambda shape: mx.nd.array(np.random.standard_normal(shape) * 0.5)
    arguments = {n: normal(s) for n, s in zip(symbol.list_arguments(), shapes) if n != "data"}
    auxiliary = {n: normal(s) if "mean" in n else mx.nd.abs(normal(s)) + 0.2 for n, s in zip(symbol.list_auxiliary_states(), states)}
    mx.model.save_checkpoint(name, 0, symbol, arguments, auxiliary)
    data = np.random.standard_normal(dims).astype("float32")
    np.savez(name + ".npz", data=data, output=run(symbol, arguments, auxiliary, data))


data = mx.sym.Variable("data")
net = mx.sym.Convolution(data, name="conv0", kernel=(3, 3), pad=(1, 1), num_filter=4, no_bias=True)
net = mx.sym.BatchNorm(net, name="bn0")
net = mx.sym.Activation(net, name="relu0", act_type="relu")
net = mx.sym.Convolution(net, name="conv1", kernel=(1, 1), num_filter=6, num_group=2)
net = mx.sym.BatchNorm(net, name="bn1", fix_gamma=False, eps=2e-5)
net = mx.sym.LeakyReLU(net, name="act1", act_type="prelu")
net = mx.sym.Deconvolution(net, name="up", kernel=(2, 2), num_filter=4, num_group=2, no_bias=True)
net = mx.sym.BatchNorm(net, name="bn2", fix_gamma=False)
net = mx.sym.FullyConnected(net, name="fc", num_hidden=5)
net = mx.sym.BatchNorm(net, name="bn3", fix_gamma=False)
save("block", net, (1, 3, 4, 4))

lstm = mx.gluon.rnn.LSTM(3, num_layers=1, input_size=2, prefix="lstm0_")
lstm.initialize(mx.init.Normal(0.5))
lstm.collect_params().save("lstm.params")
steps = np.random.standard_normal((5, 1, 2)).astype("float32")
np.savez("lstm.npz", data=steps[:, 0], output=lstm(mx.nd.array(steps)).asnumpy()[:, 0])

if len(sys.argv) > 1:
    symbol, arguments, auxiliary = mx.model.load_checkpoint(sys.argv[1], 0)
    data = np.random.standard_normal((1, 3, 32, 32)).astype("float32")
    np.savez("resnet20.npz", data=data, output=run(symbol, arguments, auxiliary, data))
