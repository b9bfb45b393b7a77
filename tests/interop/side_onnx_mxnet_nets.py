"""Well-known nets of MXNet's with few channels: Gluon's, traced, and symbols written from their published architectures.

    side_onnx_mxnet_nets.py write FOLDER [SHAPE STEM ...]   (NAME-symbol.json, NAME.params with seeded weights, NAME.npz; prints the names)

A SHAPE (2,3,32,32) and a STEM are of a net of somebody else's, with its weights: STEM-symbol.json and STEM-0000.params.

NAME.npz has an input and what MXNet computes of it.
"""
import json
import os
import shutil
import sys

# MXNet's own operators: oneDNN's fall over with some of the nets.
os.environ.update(MXNET_MKLDNN_ENABLED="0", MXNET_SUBGRAPH_BACKEND="NONE", MXNET_STORAGE_FALLBACK_LOG_VERBOSE="0")
import mxnet as mx
import numpy as np
from mxnet.gluon.model_zoo import vision

S, C = mx.sym, mx.sym.contrib
NETS = {}


def net(*shape):
    return lambda function: NETS.update({function.__name__: (function, shape)})


def gluon(name, shape, make):
    def traced():
        block = make()
        return block(S.Variable("data"))
    NETS[name] = (traced, shape)


SMALL = [8, 8, 12, 16, 20]
for version, resnet, basic, bottleneck in ((1, vision.ResNetV1, vision.BasicBlockV1, vision.BottleneckV1),
                                           (2, vision.ResNetV2, vision.BasicBlockV2, vision.BottleneckV2)):
    gluon("resnet18_v%d" % version, (2, 3, 64, 64), lambda r=resnet, b=basic: r(b, [2, 2, 2, 2], SMALL, classes=7))
    gluon("resnet50_v%d" % version, (1, 3, 64, 64), lambda r=resnet, b=bottleneck: r(b, [3, 4, 6, 3], SMALL, classes=7))
gluon("vgg13_bn", (1, 3, 64, 64), lambda: vision.VGG([2, 2, 2, 2, 2], [4, 6, 8, 8, 8], classes=7, batch_norm=True))
gluon("mobilenet", (1, 3, 64, 64), lambda: vision.MobileNet(0.125, classes=7))
gluon("mobilenet_v2", (1, 3, 64, 64), lambda: vision.MobileNetV2(0.125, classes=7))
gluon("densenet", (1, 3, 224, 224), lambda: vision.DenseNet(8, 4, [2, 3, 4, 2], classes=7))
gluon("squeezenet1.0", (1, 3, 224, 224), lambda: vision.SqueezeNet("1.0", classes=7))
gluon("squeezenet1.1", (1, 3, 224, 224), lambda: vision.SqueezeNet("1.1", classes=7))


def conv(data, filters, kernel, stride=1, pad=None, **more):
    pad = (kernel - 1) // 2 if pad is None else pad
    return S.Convolution(data, num_filter=filters, kernel=(kernel, kernel), stride=(stride, stride), pad=(pad, pad), **more)


def unit(data, filters, kernel, stride=1, pad=None):
    """Inception-BN's."""
    return S.Activation(S.BatchNorm(conv(data, filters, kernel, stride, pad), fix_gamma=False, eps=1e-10 + 1e-5), act_type="relu")


def pooled(data, kind, kernel, stride, pad=0, full=True):
    return S.Pooling(data, kernel=(kernel, kernel), stride=(stride, stride), pad=(pad, pad), pool_type=kind,
                     pooling_convention="full" if full else "valid")


@net(1, 3, 64, 64)
def inception_bn():
    data = unit(S.Variable("data"), 8, 7, 2)
    data = pooled(data, "max", 3, 2)
    data = unit(unit(data, 8, 1), 12, 3)
    data = pooled(data, "max", 3, 2)
    for kind in ("avg", "max"):
        branches = [unit(data, 4, 1), unit(unit(data, 4, 1), 6, 3), unit(unit(unit(data, 4, 1), 6, 3), 6, 3),
                    unit(pooled(data, kind, 3, 1, 1, False), 4, 1)]
        data = S.Concat(*branches)
    data = S.Concat(unit(unit(data, 4, 1), 6, 3, 2), unit(unit(unit(data, 4, 1), 6, 3), 6, 3, 2), pooled(data, "max", 3, 2, 1, False))
    data = S.Pooling(data, kernel=(7, 7), pool_type="avg", global_pool=True)
    return S.SoftmaxOutput(S.FullyConnected(S.Flatten(data), num_hidden=5, name="fc1"), name="softmax")


@net(1, 1, 28, 28)
def lenet():
    data = S.Activation(conv(S.Variable("data"), 6, 5, pad=0), act_type="tanh")
    data = S.Activation(conv(pooled(data, "max", 2, 2, full=False), 8, 5, pad=0), act_type="tanh")
    data = S.Flatten(pooled(data, "max", 2, 2, full=False))
    data = S.Activation(S.FullyConnected(data, num_hidden=20), act_type="tanh")
    return S.SoftmaxOutput(S.FullyConnected(data, num_hidden=10), name="softmax")


@net(1, 3, 112, 112)
def insightface_r50():
    bn = lambda data, **more: S.BatchNorm(data, fix_gamma=False, eps=2e-5, momentum=0.9, **more)
    prelu = lambda data: S.LeakyReLU(data, act_type="prelu")
    data = (S.identity(S.Variable("data"), name="id") - 127.5) * 0.0078125
    data = prelu(bn(conv(data, 4, 3, no_bias=True)))
    for filters, blocks in ((4, 3), (6, 4), (8, 4), (10, 3)):
        for index in range(blocks):
            stride = 2 if index == 0 else 1
            body = conv(bn(data), filters, 3, no_bias=True)
            body = bn(conv(prelu(bn(body)), filters, 3, stride, no_bias=True))
            squeezed = S.Pooling(body, global_pool=True, kernel=(7, 7), pool_type="avg")
            squeezed = S.Activation(conv(prelu(conv(squeezed, 2, 1)), filters, 1), act_type="sigmoid")
            body = S.broadcast_mul(body, squeezed)
            data = body + (data if index else bn(conv(data, filters, 1, stride, no_bias=True)))
    data = S.Dropout(bn(data), p=0.4)
    data = S.FullyConnected(data, num_hidden=16, name="pre_fc1")
    return S.BatchNorm(data, fix_gamma=True, eps=2e-5, momentum=0.9, name="fc1")


@net(1, 3, 112, 112)
def mobilefacenet():
    act = lambda data: S.LeakyReLU(S.BatchNorm(data, fix_gamma=False, eps=1e-3), act_type="prelu")
    data = act(conv(S.Variable("data"), 8, 3, 2, no_bias=True))
    data = act(conv(data, 8, 3, 1, no_bias=True, num_group=8))
    for _ in range(2):
        body = act(conv(act(conv(data, 16, 1, no_bias=True)), 16, 3, no_bias=True, num_group=16))
        data = data + S.BatchNorm(conv(body, 8, 1, no_bias=True), fix_gamma=False)
    data = S.BatchNorm(S.Convolution(data, num_filter=8, num_group=8, kernel=(56, 56), no_bias=True), fix_gamma=False)
    return S.BatchNorm(S.FullyConnected(data, num_hidden=8, no_bias=True), fix_gamma=True, name="fc1")


@net(1, 3, 64, 96)
def retinaface():
    data, heads, up = S.Variable("data"), [], None
    data = unit(unit(data, 6, 3, 2), 8, 3, 2)
    levels = [unit(data, 8, 3, 2)]
    levels.append(unit(levels[-1], 8, 3, 2))
    for level in reversed(levels):
        level = unit(level, 8, 1)
        if up is not None:
            up = S.Crop(S.UpSampling(up, scale=2, sample_type="nearest", num_args=1), level, num_args=2)
            level = unit(level + up, 8, 3)
        up = level
        scores = S.Reshape(conv(level, 4, 1), shape=(0, 2, -1, 0))
        scores = S.Reshape(S.SoftmaxActivation(scores, mode="channel"), shape=(0, 4, -1, 0))
        heads += [scores, conv(level, 8, 1)]
    return S.Group(heads)


@net(1, 3, 64, 64)
def fcn():
    data = unit(unit(S.Variable("data"), 6, 3, 2), 8, 3, 2)
    parts = [data]
    for size in (1, 2, 3, 6):
        part = unit(C.AdaptiveAvgPooling2D(data, output_size=size), 3, 1)
        parts.append(C.BilinearResize2D(part, height=16, width=16))
    data = conv(S.Dropout(unit(S.concat(*parts, dim=1), 8, 3), p=0.1), 4, 1)
    return C.BilinearResize2D(data, height=64, width=64)


@net(1, 3, 64, 64)
def fcn_deconvolution():
    data = unit(unit(S.Variable("data"), 6, 3, 2), 8, 3, 2)
    data = S.Deconvolution(conv(data, 5, 1), kernel=(8, 8), stride=(4, 4), num_filter=5, num_group=5, no_bias=True, name="up")
    data = S.Crop(data, S.Variable("data"), num_args=2, center_crop=True)
    return S.SoftmaxOutput(data, multi_output=True, use_ignore=True, ignore_label=255, name="softmax")


@net(1, 3, 64, 64)
def senet():
    data = unit(S.Variable("data"), 8, 3, 2)
    squeezed = S.sigmoid(conv(S.relu(conv(C.AdaptiveAvgPooling2D(data), 2, 1)), 8, 1))
    data = S.relu(S.broadcast_mul(data, squeezed) + data)
    # ShuffleNet's, beside MobileNet V3's activation.
    data = S.Reshape(S.SwapAxis(S.Reshape(data, shape=(0, -4, 2, -1, -2)), dim1=1, dim2=2), shape=(0, -3, -2))
    data = data * (S.clip(data + 3, a_min=0, a_max=6) / 6)
    left = S.slice_axis(data, axis=1, begin=0, end=4)
    right = conv(S.slice_axis(data, axis=1, begin=4, end=None), 4, 3)
    data = S.Pad(S.concat(left, right, dim=1), mode="reflect", pad_width=(0, 0, 0, 0, 1, 1, 1, 1))
    return S.softmax(S.FullyConnected(S.mean(data, axis=(2, 3)), num_hidden=5))


def ssd(**more):
    data = unit(S.Variable("data"), 8, 3, 2)
    first = unit(data, 8, 3, 2)
    normal = S.L2Normalization(first, mode="channel", name="relu4_3_norm")
    normal = S.broadcast_mul(normal, S.Variable("relu4_3_scale", shape=(1, 8, 1, 1)))
    second = unit(first, 8, 3, 2)
    moves, scores, anchors = [], [], []
    for level, sizes, ratios in ((normal, (0.1, 0.141), (1, 2, 0.5)), (second, (0.3, 0.416), (1, 2, 0.5, 3, 1.0 / 3))):
        count = len(sizes) + len(ratios) - 1
        moves.append(S.Flatten(S.transpose(conv(level, 4 * count, 3), axes=(0, 2, 3, 1))))
        scores.append(S.Flatten(S.transpose(conv(level, 4 * count, 3), axes=(0, 2, 3, 1))))
        anchors.append(S.Flatten(C.MultiBoxPrior(level, sizes=sizes, ratios=ratios, clip=False)))
    moves = S.Concat(*moves, dim=1)
    anchors = S.Reshape(S.Concat(*anchors, dim=1), shape=(0, -1, 4))
    scores = S.transpose(S.Reshape(S.Concat(*scores, dim=1), shape=(0, -1, 4)), axes=(0, 2, 1))
    scores = S.SoftmaxActivation(scores, mode="channel")
    return C.MultiBoxDetection(scores, moves, anchors, name="detection", variances=(0.1, 0.1, 0.2, 0.2), **more)


@net(1, 3, 64, 64)
def ssd_symbol():
    return ssd(nms_threshold=0.45, threshold=0.2, nms_topk=100)


@net(1, 3, 64, 64)
def ssd_force():
    return ssd(nms_threshold=0.3, threshold=0.01, force_suppress=True, nms_topk=-1)


@net(1, 3, 64, 64)
def ssd_gluon():
    """As GluonCV's SSD, up to the rows of its box_nms."""
    data = unit(unit(S.Variable("data"), 8, 3, 2), 8, 3, 2)
    moves = S.reshape(S.transpose(conv(data, 16, 3), axes=(0, 2, 3, 1)), shape=(0, -1, 4))
    scores = S.softmax(S.reshape(S.transpose(conv(data, 16, 3), axes=(0, 2, 3, 1)), shape=(0, -1, 4)), axis=-1)
    anchors = S.slice_like(S.Variable("anchors", shape=(1, 1, 20, 20, 16)), data, axes=(2, 3))
    anchors = S.Reshape(anchors, shape=(1, -1, 4))
    boxes = C.box_decode(moves, anchors, std0=0.1, std1=0.1, std2=0.2, std3=0.2, format="center")
    scores = S.slice_axis(scores, axis=-1, begin=1, end=None)
    template = S.zeros_like(S.slice_axis(scores, axis=-1, begin=0, end=1))
    ids = S.concat(*[template + i for i in range(3)], dim=-1)
    mask = scores > 0.01
    ids = S.where(mask, ids, S.ones_like(ids) * -1)
    scores = S.where(mask, scores, S.zeros_like(scores))
    rows = []
    for i in range(3):
        own = [S.slice_axis(part, axis=-1, begin=i, end=i + 1) for part in (ids, scores)]
        rows.append(S.concat(*own, boxes, dim=-1))
    return C.box_nms(S.concat(*rows, dim=1), overlap_thresh=0.45, topk=200, valid_thresh=0.01, id_index=0, score_index=1,
                     coord_start=2, force_suppress=False, name="detection")


def value(random, name, shape):
    if name.endswith(("var", "anchors")):
        return np.abs(random.standard_normal(shape)) + 0.5
    if name.endswith(("gamma", "scale")):
        return 1 + 0.2 * random.standard_normal(shape)
    fan = max(1, int(np.prod(shape[1:])))
    return random.standard_normal(shape) / (np.sqrt(fan) if len(shape) > 1 else 10)


def write(folder, name):
    function, shape = NETS[name]
    random = np.random.default_rng(sum(name.encode()))
    with mx.name.NameManager():
        made = function()
    data = random.standard_normal(shape).astype("float32") * (60 if "insightface" in name else 1)
    arguments, _, states = made.infer_shape(data=shape)
    labels = [n for n in made.list_arguments() if n.endswith("label")]
    nd = lambda names, shapes: {n: mx.nd.array(value(random, n, s)) for n, s in zip(names, shapes) if n != "data"}
    arguments, states = nd(made.list_arguments(), arguments), nd(made.list_auxiliary_states(), states)
    path = os.path.join(folder, name)
    saved = {"arg:" + n: a for n, a in arguments.items() if n not in labels}
    mx.nd.save(path + ".params", {**saved, **{"aux:" + n: a for n, a in states.items()}})
    return compute(path, made, arguments, states, data)


def real(folder, shape, stem):
    """A net of somebody else's."""
    made, params = mx.sym.load(stem + "-symbol.json"), mx.nd.load(stem + "-0000.params")
    params, path = {n.split(":", 1)[-1]: a for n, a in params.items()}, os.path.join(folder, os.path.basename(stem))
    shutil.copy(stem + "-0000.params", path + ".params")
    states = {n: params[n] for n in made.list_auxiliary_states()}
    arguments = {n: params[n] for n in made.list_arguments() if n != "data"}
    data = np.random.default_rng(26).standard_normal([int(n) for n in shape.split(",")]).astype("float32")
    return compute(path, made, arguments, states, data)


def compute(path, made, arguments, states, data):
    bound = made.bind(mx.cpu(), {**arguments, "data": mx.nd.array(data)}, aux_states=states, grad_req="null")
    found = [output.asnumpy() for output in bound.forward(is_train=False)]
    made.save(path + "-symbol.json")
    outputs = {"out/" + output: array for output, array in zip(made.list_outputs(), found)}
    np.savez(path + ".npz", **{"in/data": data}, **outputs)
    return {"data": ",".join(map(str, data.shape))}


def main(folder, *others):
    made = {name: write(folder, name) for name in NETS}
    made.update((os.path.basename(stem), real(folder, shape, stem)) for shape, stem in zip(others[::2], others[1::2]))
    print(json.dumps(made))


if __name__ == "__main__":
    main(*sys.argv[2:])
