"""Well-known Caffe nets with few channels, written from their published architectures, and what OpenCV 4.14 computes of them.

    side_onnx_nets.py write FOLDER      (NAME.prototxt, NAME.caffemodel with seeded weights, NAME.npz; prints the names)

OpenCV lacks SegNet's layers, and adds the wrong input of SENet's Axpy (it computes a*Y + X): of those nets NAME.npz has inputs alone.
"""
import json
import os
import struct
import sys

import cv2
import numpy as np


def varint(n):
    out = b""
    while n > 127:
        out, n = out + bytes([n & 127 | 128]), n >> 7
    return out + bytes([n])


def field(number, content):
    return varint(number << 3 | 2) + varint(len(content)) + content


class Net:
    """Layers are added at a value, which is the top of the layer before unless another is named. Channels are followed."""

    def __init__(self, name, *dims, inputs=None):
        self.random = np.random.default_rng(sum(name.encode()))
        inputs = inputs or {"data": dims}
        self.text = 'name: "%s"\n' % name
        self.model = field(1, name.encode())
        self.channels, self.inputs = {}, inputs
        for key, shape in inputs.items():
            self.text += 'input: "%s"\ninput_shape { %s }\n' % (key, " ".join("dim: %d" % n for n in shape))
            self.channels[key] = shape[1]
        self.at, self.count = next(iter(inputs)), 0

    def layer(self, kind, bottoms=None, channels=None, param="", weights=(), tops=1, in_place=False):
        bottoms = [self.at] if bottoms is None else bottoms
        self.count += 1
        name = "%s%d" % (kind.lower(), self.count)
        own = [bottoms[0]] if in_place else [name] + ["%s_%d" % (name, i) for i in range(1, tops)]
        wires = "".join(' bottom: "%s"' % b for b in bottoms) + "".join(' top: "%s"' % t for t in own)
        self.text += 'layer { name: "%s" type: "%s"%s %s }\n' % (name, kind, wires, param)
        blobs = b""
        for w in weights:
            w = np.asarray(w, np.float32)
            blobs += field(7, field(7, field(1, b"".join(varint(n) for n in w.shape))) + field(5, struct.pack("<%df" % w.size, *w.ravel())))
        if blobs:
            self.model += field(100, field(1, name.encode()) + field(2, kind.encode()) + blobs)
        for top in own:
            self.channels[top] = self.channels[bottoms[0]] if channels is None else channels
        self.at = own[0]
        return own[0] if tops == 1 else own

    def values(self, *shape):
        return self.random.standard_normal(shape)

    def conv(self, out, k=3, s=1, p=None, at=None, g=1, d=1, bias=True, kind="Convolution", rank=2):
        at = at or self.at
        into = self.channels[at]
        p = (k - 1) // 2 * d if p is None else p
        dims = (into, out // g) if kind == "Deconvolution" else (out, into // g)
        w = self.values(*dims, *[k] * rank) / np.sqrt(max(1, dims[1] * k ** rank))
        sizes = " ".join(["kernel_size: %d stride: %d pad: %d" % (k, s, p)] * (rank if rank > 2 else 1))
        param = "convolution_param { num_output: %d %s%s%s%s }" % (
            out, sizes, " group: %d" % g if g > 1 else "", " dilation: %d" % d if d > 1 else "", "" if bias else " bias_term: false")
        return self.layer(kind, [at], out, param, [w] + ([self.values(out) * 0.1] if bias else []))

    def relu(self, slope=0):
        return self.layer("ReLU", param="relu_param { negative_slope: %g }" % slope if slope else "", in_place=True)

    def prelu(self):
        return self.layer("PReLU", weights=[abs(self.values(self.channels[self.at])) * 0.3], in_place=True)

    def bn(self, scale=True):
        c = self.channels[self.at]
        self.layer("BatchNorm", weights=[self.values(c) * 0.1 * 3, (abs(self.values(c)) + 0.5) * 3, [3.0]], in_place=True)
        if scale:
            self.layer("Scale", param="scale_param { bias_term: true }", weights=[self.values(c) * 0.3 + 1, self.values(c) * 0.1], in_place=True)
        return self.at

    def cr(self, *a, **k):
        self.conv(*a, **k)
        return self.relu()

    def cbr(self, *a, **k):
        self.conv(*a, bias=False, **k)
        self.bn()
        return self.relu()

    def pool(self, k=2, s=2, p=0, kind="MAX", at=None, tops=1):
        return self.layer("Pooling", [at or self.at], None, "pooling_param { pool: %s kernel_size: %d stride: %d pad: %d }" % (kind, k, s, p), tops=tops)

    def mean(self):
        return self.layer("Pooling", param="pooling_param { pool: AVE global_pooling: true }")

    def fc(self, out, size):
        """`size`: how many values an image has here."""
        w = self.values(out, size) / np.sqrt(size)
        return self.layer("InnerProduct", channels=out, param="inner_product_param { num_output: %d }" % out, weights=[w, self.values(out) * 0.1])

    def add(self, *bottoms, param=""):
        return self.layer("Eltwise", list(bottoms), param=param)

    def concat(self, *bottoms, axis=1):
        return self.layer("Concat", list(bottoms), sum(self.channels[b] for b in bottoms), "concat_param { axis: %d }" % axis)

    def lrn(self, **k):
        return self.layer("LRN", param="lrn_param { local_size: 5 alpha: 0.0001 beta: 0.75 %s }" % " ".join("%s: %s" % i for i in k.items()))

    def drop(self):
        return self.layer("Dropout", in_place=True)

    def softmax(self, param=""):
        return self.layer("Softmax", param=param)

    def head(self, classes=10):
        self.mean()
        self.fc(classes, self.channels[self.at])
        return self.softmax()


NETS = {}


def net(*names):
    def add(function):
        for name in names or (function.__name__,):
            NETS[name] = function
        return function
    return add


@net()
def lenet(name):
    n = Net(name, 2, 1, 28, 28)
    n.conv(4, 5, p=0), n.pool(), n.conv(6, 5, p=0), n.pool(), n.fc(20, 6 * 16), n.relu(), n.fc(10, 20), n.softmax()
    return n


@net("cifar10_quick", "cifar10_full")
def cifar(name):
    n = Net(name, 1, 3, 32, 32)
    n.conv(8, 5, p=2), n.pool(3, 2), n.relu()
    if "full" in name:
        n.layer("LRN", param="lrn_param { local_size: 3 alpha: 5e-05 beta: 0.75 norm_region: WITHIN_CHANNEL }")
    n.cr(8, 5, p=2), n.pool(3, 2, kind="AVE"), n.cr(16, 5, p=2), n.pool(3, 2, kind="AVE"), n.fc(10, 16 * 16), n.softmax()
    return n


@net("alexnet", "caffenet", "flickr_style", "rcnn_ilsvrc13", "places_cnn", "hybrid_cnn")
def alexnet(name):
    n = Net(name, 1, 3, 67, 67)
    norm = (lambda: (n.lrn(), n.pool(3, 2))) if name == "alexnet" else (lambda: (n.pool(3, 2), n.lrn()))
    n.cr(8, 11, 4, p=0), norm(), n.cr(16, 5, p=2, g=2), norm(), n.cr(12), n.cr(12, g=2), n.cr(8, g=2), n.pool(3, 2)
    n.fc(16, 8), n.relu(), n.drop(), n.fc(16, 16), n.relu(), n.drop(), n.fc(10, 16)
    if "rcnn" not in name:
        n.softmax()
    return n


@net("age", "gender")
def age(name):
    n = Net(name, 1, 3, 67, 67)
    n.cr(8, 7, 4, p=0), n.pool(3, 2), n.lrn(), n.cr(12, 5, p=2), n.pool(3, 2), n.lrn(), n.cr(12), n.pool(3, 2)
    n.fc(16, 12 * 4), n.relu(), n.drop(), n.fc(8 if name == "age" else 2, 16), n.softmax()
    return n


@net("vgg16", "vgg19", "vgg_face")
def vgg(name):
    n = Net(name, 1, 3, 32, 32)
    vgg_body(n, 4 if "19" in name else 3), n.pool()
    n.fc(16, 16), n.relu(), n.drop(), n.fc(16, 16), n.relu(), n.drop(), n.fc(10, 16), n.softmax()
    return n


def vgg_body(n, deep=3, dilated=False):
    for block, (times, channels) in enumerate(((2, 4), (2, 8), (deep, 12), (deep, 16), (deep, 16))):
        for _ in range(times):
            n.cr(channels, d=2 if dilated and block == 4 else 1)
        if block < 4:
            n.pool(3, 1, 1) if dilated and block == 3 else n.pool()
    return n.at


@net()
def nin(name):
    n = Net(name, 1, 3, 67, 67)
    for out, k, s, p in ((8, 11, 4, 0), (12, 5, 1, 2), (12, 3, 1, 1), (10, 3, 1, 1)):
        n.cr(out, k, s, p), n.cr(out, 1), n.cr(out, 1)
        if k != 3 or out == 12:
            n.pool(3, 2)
    n.drop(), n.mean(), n.softmax()
    return n


def inception(n, at, a, b, c, d, e, f, unit):
    def branch(*convs):
        n.at = at
        return [unit(out, k) for out, k in convs][-1]
    first, second, third = branch((a, 1)), branch((b, 1), (c, 3)), branch((d, 1), (e, 5))
    n.at = at
    n.pool(3, 1, 1)
    return n.concat(first, second, third, unit(f, 1))


@net("googlenet", "googlenet_places", "inception_bn")
def googlenet(name):
    n = Net(name, 1, 3, 64, 64)
    unit = n.cbr if "bn" in name else n.cr
    unit(8, 7, 2), n.pool(3, 2)
    if unit == n.cr:
        n.lrn()
    unit(8, 1), unit(12, 3)
    if unit == n.cr:
        n.lrn()
    n.pool(3, 2)
    for i in range(9):
        inception(n, n.at, 4, 3, 6, 2, 3, 3, unit)
        if i in (1, 6):
            n.pool(3, 2)
    n.drop(), n.head()
    return n


@net("squeezenet_1.0", "squeezenet_1.1")
def squeezenet(name):
    n = Net(name, 1, 3, 63, 63)
    n.cr(8, 7 if "0" in name[-1] else 3, 2, p=0), n.pool(3, 2)
    for i in range(8):
        squeezed = n.cr(3, 1)
        n.concat(n.cr(6, 1, at=squeezed), n.cr(6, 3, at=squeezed))
        if i in ((2, 6) if name.endswith("0") else (1, 3)):
            n.pool(3, 2)
    n.drop(), n.cr(10, 1), n.mean(), n.softmax()
    return n


def bottleneck(n, inner, out, s=1, g=1, se=None, project=False):
    start = n.at
    n.cbr(inner, 1, s), n.cbr(inner, 3, g=g), n.conv(out, 1, bias=False)
    long = n.bn()
    if se:
        n.mean(), n.conv(2, 1), n.relu(), n.conv(out, 1)
        gate = n.layer("Sigmoid")
    if project:
        n.conv(out, 1, s, at=start, bias=False)
        start = n.bn()
    if se == "axpy":
        n.layer("Axpy", [gate, long, start])
    elif se:
        gate = n.layer("Reshape", [gate], param="reshape_param { shape { dim: 0 dim: -1 } }")
        n.add(n.layer("Scale", [long, gate], param="scale_param { axis: 0 }"), start)
    else:
        n.add(start, long)
    n.relu()


@net("resnet50", "resnet101", "resnet152", "resnext50", "resnext101", "se_resnet50", "senet154", "se_resnext50", "open_nsfw")
def resnet(name):
    n = Net(name, 1, 3, 64, 64)
    n.cbr(8, 7, 2), n.pool(3, 2)
    blocks = (3, 4, 23, 3) if "101" in name else (3, 8, 36, 3) if "15" in name else (3, 4, 6, 3)
    se = "axpy" if name in ("se_resnet50", "se_resnext50") else "scale" if name == "senet154" else None
    for stage, times in enumerate(blocks):
        for i in range(times):
            bottleneck(n, 4 + 2 * stage, 8 + 4 * stage, 2 if stage and not i else 1, 2 if "next" in name or se == "scale" else 1, se, not i)
    n.head()
    return n


@net("resnet18", "resnet34", "resnet20_cifar")
def basic_resnet(name):
    n = Net(name, 1, 3, 32, 32)
    n.cbr(8, 3)
    for stage, times in enumerate((2, 2, 2, 2) if "18" in name else (3, 4, 6, 3) if "34" in name else (3, 3, 3)):
        for i in range(times):
            start, out, s = n.at, 6 + 2 * stage, 2 if stage and not i else 1
            n.cbr(out, 3, s), n.conv(out, 3, bias=False)
            long = n.bn()
            if not i:
                n.conv(out, 1, s, at=start, bias=False)
                start = n.bn()
            n.add(start, long), n.relu()
    n.head()
    return n


@net("inception_v3", "inception_v4", "inception_resnet_v2", "xception")
def modern(name):
    n = Net(name, 1, 3, 75, 75)
    n.cbr(6, 3, 2, 0), n.cbr(6, 3, 1, 0), n.cbr(8), n.pool(3, 2), n.cbr(8, 1), n.cbr(12, 3, 1, 0)
    for i in range(4):
        start = n.at
        if name == "xception":
            for _ in range(2):
                n.layer("ReLU")
                c = n.channels[n.at]
                n.conv(c, 3, g=c, bias=False), n.conv(12, 1, bias=False), n.bn()
            n.add(n.at, start)
            continue
        out = inception(n, start, 3, 3, 4, 2, 3, 3, n.cbr)
        if name == "inception_resnet_v2":
            up = n.conv(12, 1)
            n.add(start, up, param="eltwise_param { operation: SUM coeff: 1 coeff: 0.17 }"), n.relu()
        elif i == 1:
            n.concat(n.cbr(6, 3, 2, 0, at=out), n.pool(3, 2, at=out))
    n.head()
    return n


@net("densenet121", "densenet161", "dpn92")
def densenet(name):
    n = Net(name, 1, 3, 64, 64)
    n.cbr(8, 7, 2), n.pool(3, 2, 1)
    for stage, times in enumerate((6, 12, 24, 16) if "121" in name else (4, 4, 4, 4)):
        for _ in range(times):
            start = n.at
            n.layer("BatchNorm", [start], None, "", [n.values(n.channels[start]) * 0.1, abs(n.values(n.channels[start])) + 0.5, [1.0]])
            c = n.channels[start]
            n.layer("Scale", param="scale_param { bias_term: true }", weights=[n.values(c) * 0.3 + 1, n.values(c) * 0.1], in_place=True), n.relu()
            if name == "dpn92":
                n.cbr(4, 1), n.cbr(4, 3, g=2), n.conv(4, 1)
                a, b = n.layer("Slice", param="slice_param { axis: 1 slice_point: 2 }", channels=2, tops=2)
                n.concat(start, a, b)
            else:
                n.cbr(4, 1), n.conv(2, 3, bias=False)
                n.concat(start, n.at)
        if stage < 3:
            n.cbr(n.channels[n.at] // 2, 1), n.pool(2, 2, kind="AVE")
    n.bn(), n.relu(), n.head()
    return n


@net("mobilenet_v1", "mobilenet_v2")
def mobilenet(name):
    n = Net(name, 1, 3, 64, 64)
    n.cbr(8, 3, 2)
    for i in range(10):
        start, c, s = n.at, n.channels[n.at], 2 if i in (1, 4, 7) else 1
        if name.endswith("1"):
            n.cbr(c, 3, s, g=c), n.cbr(8 + i, 1)
            continue
        n.cbr(2 * c, 1), n.cbr(2 * c, 3, s, g=2 * c), n.conv(c if s == 1 else c + 4, 1, bias=False), n.bn()
        if s == 1:
            n.add(start, n.at)
    n.head()
    return n


@net("shufflenet_v1", "shufflenet_v2")
def shufflenet(name):
    n = Net(name, 1, 3, 64, 64)
    n.cbr(12, 3, 2), n.pool(3, 2)
    for i in range(6):
        start, c = n.at, n.channels[n.at]
        if name.endswith("1"):
            n.cbr(c, 1, g=3), n.layer("ShuffleChannel", param="shuffle_channel_param { group: 3 }")
            n.layer(
                "ConvolutionDepthwise", channels=c, param="convolution_param { num_output: %d kernel_size: 3 stride: %d pad: 1 bias_term: false }" % (c, 2 if i % 3 == 2 else 1), weights=[n.values(c, 1, 3, 3) / 3])
            n.bn(), n.conv(c, 1, g=3, bias=False)
            long = n.bn()
            n.concat(n.pool(3, 2, kind="AVE", at=start), long) if i % 3 == 2 else n.add(start, long)
        else:
            a, b = n.layer("Slice", param="slice_param { axis: 1 }", channels=c // 2, tops=2)
            n.at = b
            n.cbr(c // 2, 1), n.conv(c // 2, 3, g=c // 2, bias=False), n.bn(), n.cbr(c // 2, 1)
            n.concat(a, n.at), n.layer("ShuffleChannel", param="shuffle_channel_param { group: 2 }")
        n.relu() if name.endswith("1") else None
    n.head()
    return n


def ssd_heads(n, sources, image, classes=4):
    locs, confs, priors = [], [], []
    for i, source in enumerate(sources):
        for out, into in ((3 * 4, locs), (3 * classes, confs)):
            n.conv(out, 3, at=source), n.layer("Permute", param="permute_param { order: 0 order: 2 order: 3 order: 1 }")
            into.append(n.layer("Flatten", param="flatten_param { axis: 1 }"))
        sizes = "min_size: %d max_size: %d" % (image // 8 * (i + 1), image // 8 * (i + 2))
        priors.append(n.layer("PriorBox", [source, "data"], param="prior_box_param { %s aspect_ratio: 2 flip: false clip: false variance: 0.1 variance: 0.1 variance: 0.2 variance: 0.2 offset: 0.5 }" % sizes))
    loc, conf, prior = n.concat(*locs), n.concat(*confs), n.layer("Concat", priors, param="concat_param { axis: 2 }")
    n.layer("Reshape", [conf], param="reshape_param { shape { dim: 0 dim: -1 dim: %d } }" % classes), n.softmax("softmax_param { axis: 2 }")
    conf = n.layer("Flatten", param="flatten_param { axis: 1 }")
    n.layer("DetectionOutput", [loc, conf, prior], param="detection_output_param { num_classes: %d share_location: true background_label_id: 0 nms_param { nms_threshold: 0.45 top_k: 40 } code_type: CENTER_SIZE keep_top_k: 20 confidence_threshold: 0.1 }" % classes)


@net("ssd300_vgg", "ssd512_vgg", "mobilenet_ssd", "res10_ssd", "wechat_detect", "face_ssd")
def ssd(name):
    size = 96 if "512" in name else 64
    n = Net(name, 1, 3, size, size)
    if "vgg" in name:
        for times, channels in ((2, 4), (2, 8), (3, 12), (3, 16)):
            if channels > 4:
                n.pool()
            for _ in range(times):
                n.cr(channels)
        c = n.channels[n.at]
        first = n.layer("Normalize", param="norm_param { across_spatial: false channel_shared: false }", weights=[abs(n.values(c)) + 10])
        n.pool(), n.cr(16), n.pool(3, 1, 1), n.cr(16, 3, d=6), n.cr(16, 1)
    else:
        n.cbr(8, 7 if name == "res10_ssd" else 3, 2), n.pool(3, 2)
        for i in range(3):
            c = n.channels[n.at]
            n.cbr(c, 3, g=c if "mobile" in name or "wechat" in name else 1), n.cbr(c + 4, 1)
        first = n.at
        n.cbr(16, 3, 2)
    second = n.at
    n.cr(8, 1), n.cr(16, 3, 2)
    ssd_heads(n, [first, second, n.at], size)
    return n


def crop(n, at, like, offset):
    return n.layer("Crop", [at, like], param="crop_param { axis: 2 offset: %d }" % offset)


@net("fcn32s", "fcn16s", "fcn8s")
def fcn(name):
    n = Net(name, 1, 3, 32, 32)
    pools = []
    for i, c in enumerate((4, 4, 8, 8, 12)):
        n.cr(c, 3, p=1 if i else 100)
        pools.append(n.pool())
    n.cr(16, 7, p=0), n.drop(), n.cr(16, 1), n.drop(), n.conv(5, 1, p=0)
    if name != "fcn32s":
        for source, offset in ((3, 5), (2, 9)) if name == "fcn8s" else ((3, 5),):
            up = n.conv(5, 4, 2, 0, bias=False, kind="Deconvolution")
            n.conv(5, 1, at=pools[source]), crop(n, n.at, up, offset), n.add(up, n.at)
    k, offset = {"fcn32s": (64, 19), "fcn16s": (32, 27), "fcn8s": (16, 31)}[name]
    n.conv(5, k, k // 2, 0, bias=False, kind="Deconvolution"), crop(n, n.at, "data", offset)
    return n


@net("segnet", "segnet_basic", "bayesian_segnet")
def segnet(name):
    n = Net(name, 1, 3, 32, 32)
    masks = []
    for c in (4, 6, 8):
        n.conv(c), n.layer("BN", param="bn_param { bn_mode: INFERENCE }", weights=[n.values(1, c, 1, 1) * 0.3 + 1, n.values(1, c, 1, 1)], in_place=True), n.relu()
        pooled, mask = n.pool(tops=2)
        n.at = pooled
        masks.append(mask)
        n.drop() if "bayes" in name else None
    for c, mask in zip((6, 4, 5), reversed(masks)):
        n.layer("Upsample", [n.at, mask], param="upsample_param { scale: 2 }"), n.conv(c)
    n.softmax()
    return n


@net("pspnet", "deeplab_v2", "enet")
def segmentation(name):
    n = Net(name, 1, 3, 65, 65)
    n.cbr(6, 3, 2), n.cbr(8, 3, 2), n.cbr(8, 3, d=2)
    body = n.at
    if name == "pspnet":
        levels = [body]
        for k in (17, 9, 6):
            n.pool(k, k, kind="AVE", at=body), n.cbr(4, 1)
            levels.append(n.layer("Interp", param="interp_param { height: 17 width: 17 }"))
        n.concat(*levels), n.cbr(8), n.drop(), n.conv(5, 1)
    elif name == "deeplab_v2":
        n.add(*(n.conv(5, 3, d=d, at=body) for d in (2, 4, 6)))
    else:
        n.conv(5, 2, 2, 0, kind="Deconvolution"), n.prelu(), n.softmax()
        return n
    n.layer("Interp", param="interp_param { zoom_factor: 4 }"), n.softmax()
    return n


@net()
def hed(name):
    n = Net(name, 1, 3, 32, 32)
    sides = []
    for i, c in enumerate((4, 6, 8)):
        n.cr(c, 3, p=8 if not i else 1), n.cr(c)
        body = n.at
        n.conv(1, 1)
        if i:
            n.conv(1, 2 ** (i + 1), 2 ** i, 0, bias=False, kind="Deconvolution")
        sides.append(crop(n, n.at, "data", 6))
        n.pool(at=body)
    n.concat(*sides), n.conv(1, 1), n.layer("Sigmoid")
    return n


@net("openpose_coco", "openpose_mpi", "openpose_body25", "openpose_hand", "openpose_face")
def openpose(name):
    n = Net(name, 1, 3, 32, 32)
    n.cr(4), n.cr(4), n.pool(), n.cr(8), n.pool(), n.cr(8), n.pool()
    unit = (lambda *a, **k: (n.conv(*a, **k), n.prelu())[1]) if "25" in name else n.cr
    features = unit(8)
    ends = []
    for stage in range(3):
        start, made = n.at, []
        for out in (6, 4) if "hand" not in name and "face" not in name else (5,):
            n.at = start
            for _ in range(3):
                unit(6, 3 if not stage else 7)
            made.append(n.conv(out, 1))
        ends = made + [features]
        if stage < 2:
            n.concat(*ends)
    if len(made) > 1:
        n.concat(*reversed(made))
    return n


@net("mtcnn_pnet", "mtcnn_rnet", "mtcnn_onet", "mtcnn_lnet")
def mtcnn(name):
    size = {"p": 24, "r": 24, "o": 48, "l": 24}[name[6]]
    n = Net(name, 1, 3 if name[6] != "l" else 15, size, size)
    if name[6] == "l":
        points = []
        for part in n.layer("Slice", param="slice_param { slice_point: 3 slice_point: 6 slice_point: 9 slice_point: 12 }", channels=3, tops=5):
            n.at = part
            n.conv(4, 3, p=0), n.prelu(), n.pool(3, 2), n.conv(6, 3, p=0), n.prelu(), n.pool(3, 2)
            points.append(n.at)
        n.concat(*points), n.fc(8, 30 * 16), n.prelu(), n.fc(2, 8)
        return n
    n.conv(4, 3, p=0), n.prelu(), n.pool(3 if name[6] != "p" else 2, 2), n.conv(6, 3, p=0), n.prelu()
    if name[6] == "p":
        body = (n.conv(8, 3, p=0), n.prelu())[1]
        n.conv(4, 1, at=body), n.conv(2, 1, at=body), n.softmax()
        return n
    n.pool(3, 2), n.conv(8, 2, p=0), n.prelu()
    if name[6] == "o":
        n.pool(2, 2), n.conv(8, 2, p=0), n.prelu()
    body = (n.fc(12, 8 * (16 if name[6] == "o" else 9)), n.prelu())[1]
    n.fc(4, 12)
    n.at = body
    n.fc(2, 12), n.softmax("softmax_param { axis: 1 }")
    return n


@net()
def sphereface(name):
    n = Net(name, 1, 3, 28, 24)
    for c in (4, 6, 8):
        start = (n.conv(c, 3, 2), n.prelu())[1]
        n.conv(c), n.prelu(), n.conv(c), n.prelu(), n.add(start, n.at)
    n.fc(16, 8 * 12)
    return n


@net()
def colorization(name):
    n = Net(name, 1, 1, 32, 32)
    n.cr(4), n.cr(4, 3, 2), n.bn(scale=False), n.cr(8, 3, 2), n.bn(scale=False), n.cr(8, 3, d=2), n.bn(scale=False)
    n.conv(6, 4, 2, 1, kind="Deconvolution"), n.relu(), n.conv(9, 1)
    n.layer("Scale", param="scale_param { bias_term: false }", weights=[np.full(9, 2.6)]), n.softmax(), n.conv(2, 1)
    return n


@net()
def goturn(name):
    n = Net(name, inputs={"target": (1, 3, 67, 67), "image": (1, 3, 67, 67)})
    ends = []
    for at in ("target", "image"):
        n.at = at
        n.cr(8, 11, 4, p=0), n.pool(3, 2), n.lrn(), n.cr(8, 5, p=2, g=2), n.pool(3, 2), n.lrn()
        ends.append(n.at)
    n.concat(*ends), n.fc(16, 16 * 9), n.relu(), n.drop(), n.fc(4, 16)
    return n


@net()
def retinaface(name):
    n = Net(name, 1, 3, 64, 64)
    n.cbr(6, 3, 2), n.cbr(8, 3, 2), n.cbr(8, 3, 2)
    low = n.at
    high = n.cbr(8, 3, 2)
    n.conv(8, 2, 2, 0, g=8, bias=False, kind="Deconvolution")
    merged = n.add(crop(n, n.at, low, 0), n.cbr(8, 1, at=low))
    for at in (merged, high):
        n.conv(4, 1, at=at)
        n.layer("Reshape", param="reshape_param { shape { dim: 0 dim: 2 dim: -1 dim: 0 } }"), n.softmax()
        n.conv(8, 1, at=at)
    return n


@net()
def wechat_sr(name):
    n = Net(name, 1, 1, 12, 15)
    start = n.cr(4)
    n.conv(4), n.bn(), n.relu(), n.conv(4), n.add(start, n.at), n.conv(4, 4, 2, 1, g=4, kind="Deconvolution"), n.prelu(), n.conv(1)
    return n


@net()
def c3d(name):
    n = Net(name, 1, 3, 8, 16, 16)
    n.conv(4, 3, rank=3), n.relu(), n.conv(6, 3, rank=3), n.relu(), n.conv(4, 3, 2, rank=3), n.fc(5, 4 * 4 * 8 * 8), n.softmax()
    return n


def compute(path, made):
    """The inputs, and the outputs by the names of their layers, which are their values' names too."""
    random = np.random.default_rng(7)
    arrays = {"in/" + key: random.standard_normal(shape).astype(np.float32) for key, shape in made.inputs.items()}
    if "Upsample" not in made.text and "Axpy" not in made.text:
        net = cv2.dnn.readNetFromCaffe(path + ".prototxt", path + ".caffemodel")
        net.enableFusion(False)
        for key in made.inputs:
            net.setInput(arrays["in/" + key], key)
        names = net.getUnconnectedOutLayersNames()
        arrays.update(zip(["out/" + name for name in names], net.forward(names)))
    np.savez(path + ".npz", **arrays)


def main(folder):
    for name, function in NETS.items():
        made, path = function(name), os.path.join(folder, name)
        with open(path + ".prototxt", "w") as text, open(path + ".caffemodel", "wb") as model:
            text.write(made.text)
            model.write(made.model)
        compute(path, made)
    print(json.dumps(list(NETS)))


if __name__ == "__main__":
    main(sys.argv[2])
