"""PyTorch: what a net computes with the weights that blob converted with `--names torch`, against what Caffe's and MXNet's own files give.

`side_torch.py read FILE.safetensors...`: beside each lies FILE.npz with `data` and `output`. Caffe's nets are modules of PyTorch's own that
take the file with nothing missing and nothing left over; MXNet's are read from FILE-symbol.json. Prints the largest difference of each.
"""
import json
import sys

import numpy as np
import torch
import torch.nn as nn
import torch.nn.functional as F
from safetensors.torch import load_file


class Net(nn.Module):
    def __init__(self, forward, **modules):
        super().__init__()
        self.run = forward
        for name, module in modules.items():
            self.add_module(name.replace("__", "/"), module)

    def __getitem__(self, name):
        return self._modules[name]

    def forward(self, x):
        return self.run(self, x)


def lenet(net, x):
    x = F.max_pool2d(net["conv1"](x), 2)
    x = F.max_pool2d(net["conv2"](x), 2)
    return net["ip2"](F.relu(net["ip1"](x.flatten(1))))


def resnet(net, x):
    x = F.relu(net["bn_conv1"](net["conv1"](x)))
    y = F.relu(net["bn_branch2a"](net["res_branch2a"](x)))
    return F.relu(x + net["bn_branch2b"](net["res_branch2b"](y)))


def mobilenet(net, x):
    x = F.relu(net["conv_dw_bn"](net["conv_dw"](x)))
    return F.relu(net["conv_sep_bn"](net["conv_sep"](x)))


def inception(net, x):
    names = ["inception/1x1", "inception/3x3", "inception/5x5"]
    return torch.cat([F.relu(net[name + "/bn"](net[name](x))) for name in names], 1)


def upsample(net, x):
    return net["prelu"](net["up_bn"](net["up"](x)))


def segnet(net, x):
    """SegNet's BN scales and shifts; PyTorch has no module of these two alone."""
    parts = net["conv1_1_bn"]
    return net["conv1_1"](x) * parts.weight[None, :, None, None] + parts.bias[None, :, None, None]


def lstm(net, x):
    return net["lstm1"](x[:, None])[0][:, 0]


class Affine(nn.Module):
    def __init__(self, channels):
        super().__init__()
        self.weight, self.bias = nn.Parameter(torch.empty(channels)), nn.Parameter(torch.empty(channels))


def norm(channels, bias=True, eps=1e-5):
    module = nn.BatchNorm2d(channels, eps=eps)
    if not bias:
        module.register_parameter("bias", None)
    return module


def caffe(name):
    if name.startswith("lenet"):
        return Net(lenet, conv1=nn.Conv2d(1, 3, 3), conv2=nn.Conv2d(3, 4, 3), ip1=nn.Linear(16, 6), ip2=nn.Linear(6, 5))
    if name == "resnet":
        return Net(resnet, conv1=nn.Conv2d(3, 4, 3, padding=1, bias=False), bn_conv1=norm(4), bn_branch2a=norm(4),
                   res_branch2a=nn.Conv2d(4, 4, 3, padding=1, bias=False), res_branch2b=nn.Conv2d(4, 4, 1), bn_branch2b=norm(4, False, 0.01))
    if name == "mobilenet":
        return Net(mobilenet, conv_dw=nn.Conv2d(4, 4, 3, padding=1, groups=4, bias=False), conv_dw_bn=norm(4), conv_sep=nn.Conv2d(4, 6, 1),
                   conv_sep_bn=norm(6))
    if name == "inception":
        modules = {}
        for size, kernel in (("1x1", 1), ("3x3", 3), ("5x5", 5)):
            modules["inception__" + size] = nn.Conv2d(3, 2, kernel, padding=kernel // 2)
            modules["inception__" + size + "__bn"] = norm(2)
        return Net(inception, **modules)
    if name == "upsample":
        return Net(upsample, up=nn.ConvTranspose2d(4, 6, 3, groups=2), up_bn=norm(6), prelu=nn.PReLU(6))
    if name == "segnet":
        return Net(segnet, conv1_1=nn.Conv2d(3, 4, 1), conv1_1_bn=Affine(4))
    if name == "lstm":
        return Net(lstm, lstm1=nn.LSTM(3, 2))
    raise ValueError("no module is known for " + name)


def pair(text, default):
    return tuple(json.loads((text or default).replace("(", "[").replace(")", "]")))


def graph(path, tensors, x):
    """A symbol, node by node; gamma is what the file has, whatever `fix_gamma` says."""
    symbol = json.load(open(path))
    values, used = {}, set()

    def of(node, ending):
        """A parameter of the layer whose weight is its first one: `conv0_weight` is `conv0.weight` in PyTorch's words."""
        key = "%s.%s" % (symbol["nodes"][node["inputs"][1][0]]["name"].rsplit("_", 1)[0], ending)
        used.add(key)
        return tensors[key]

    for index, node in enumerate(symbol["nodes"]):
        op, a = node["op"], node.get("attrs", node.get("param", {}))
        inputs = [values.get(i[0]) for i in node["inputs"]]
        if op == "null":
            values[index] = x if node["name"] == "data" else None
        elif op == "Convolution":
            values[index] = F.conv2d(inputs[0], of(node, "weight"), None if a.get("no_bias") == "True" else of(node, "bias"),
                                     pair(a.get("stride"), "(1,1)"), pair(a.get("pad"), "(0,0)"), groups=int(a.get("num_group", 1)))
        elif op == "BatchNorm":
            values[index] = F.batch_norm(inputs[0], of(node, "running_mean"), of(node, "running_var"), of(node, "weight"), of(node, "bias"),
                                         eps=float(a.get("eps", 1e-3)))
        elif op == "FullyConnected":
            values[index] = F.linear(inputs[0].flatten(1), of(node, "weight"), of(node, "bias"))
        elif op == "Activation":
            values[index] = {"relu": F.relu, "tanh": torch.tanh, "sigmoid": torch.sigmoid}[a["act_type"]](inputs[0])
        elif op == "Pooling":
            pool = F.max_pool2d if a.get("pool_type", "max") == "max" else F.avg_pool2d
            kernel = inputs[0].shape[2:] if a.get("global_pool") in ("True", "1") else pair(a.get("kernel"), "(1,1)")
            values[index] = pool(inputs[0], tuple(kernel), None if a.get("global_pool") in ("True", "1") else pair(a.get("stride"), "(1,1)"))
        elif op == "Flatten":
            values[index] = inputs[0].flatten(1)
        elif op in ("elemwise_add", "_Plus", "broadcast_add"):
            values[index] = inputs[0] + inputs[1]
        elif op == "SoftmaxOutput":
            values[index] = F.softmax(inputs[0], 1)
        else:
            raise ValueError("%s is not known here" % op)
    if set(tensors) - used:
        raise ValueError("left over: %s" % sorted(set(tensors) - used)[:3])
    return values[symbol["heads"][0][0]]


def difference(path):
    stem = path.rsplit(".", 1)[0]
    tensors, pass_ = load_file(path), np.load(stem + ".npz")
    data, wanted = torch.from_numpy(pass_["data"]), pass_["output"]
    with torch.no_grad():
        try:
            symbol = open(stem + "-symbol.json").close() or stem + "-symbol.json"
        except FileNotFoundError:
            net = caffe(stem.rsplit("/", 1)[-1]).eval()
            net.load_state_dict(tensors, strict=True)
            got = net(data).numpy()
        else:
            got = graph(symbol, tensors, data).numpy()
    return float(np.abs(got.ravel() - wanted.ravel()).max() / np.abs(wanted).max())


found = {}
for path in sys.argv[2:]:
    try:
        found[path.rsplit("/", 1)[-1].split(".", 1)[0]] = difference(path)
    except Exception as error:  # told as data: one net that does not fit must not hide the others
        found[path.rsplit("/", 1)[-1].split(".", 1)[0]] = {"REFUSED": str(error)[:300]}
print(json.dumps(found))
