"""Writes caffe.npz: for each layer type and edge a prototxt, weights, inputs, and the output of the real Caffe.

    python make_caffe.py CAFFE_FORWARD      (numpy, opencv-python-headless 4.14.0.94)

CAFFE_FORWARD is `caffe_forward.cc` with the sources of brocolli-caffe 9.0.2 (BVLC/caffe 9b891540 with SSD's layers). Layers
of other forks are computed here, literally by the formulas of their sources; OpenCV's own result is compared and told.

`CASE/prototxt` and `CASE/weights` are files as bytes (the weights as Caffe saves them, if Caffe knows the layers), `CASE/in/NAME`
and `CASE/out/NAME` are arrays.
"""
import os
import re
import struct
import subprocess
import sys
import tempfile

import cv2
import numpy as np

HERE = os.path.dirname(os.path.abspath(__file__))
FORWARD = sys.argv[1]
random = np.random.default_rng(2014)
arrays, told = {}, []


def f(*shape, scale=1.0):
    return (random.standard_normal(shape) * scale).astype(np.float32)


def varint(n):
    out = b""
    while n > 127:
        out, n = out + bytes([n & 127 | 128]), n >> 7
    return out + bytes([n])


def field(number, content):
    return varint(number << 3 | 2) + varint(len(content)) + content


def blob(array):
    array = np.asarray(array, np.float32)
    return field(7, field(7, field(1, b"".join(varint(n) for n in array.shape))) + field(5, struct.pack("<%df" % array.size, *array.ravel())))


def encoded(layers):
    """A NetParameter of layers, each a name, a type, bottoms, tops and weights."""
    model = field(1, b"golden")
    for name, kind, bottoms, tops, weights in layers:
        texts = field(1, name.encode()) + field(2, kind.encode())
        texts += b"".join(field(3, b.encode()) for b in bottoms) + b"".join(field(4, t.encode()) for t in tops)
        model += field(100, texts + b"".join(blob(w) for w in weights))
    return model


def by_caffe(prototxt, weights, saved, inputs):
    for i, value in enumerate(inputs):
        np.asarray(value, np.float32).tofile("in%d" % i)
    done = subprocess.run([FORWARD, prototxt, weights, saved, *("in%d" % i for i in range(len(inputs)))], capture_output=True, text=True)
    assert done.returncode == 0, done.stderr[-400:]
    lines, found = done.stdout.splitlines(), {}
    for head, values in zip(lines[::2], lines[1::2]):
        name, *dims = head.split(" ")
        found[name] = np.array([float(v) for v in values.split()], np.float32).reshape([int(n) for n in dims])
    return found


def by_opencv(text, layers, inputs, expected):
    """The difference of OpenCV's result, or why there is none. OpenCV knows first outputs alone, by their layers."""
    writers = {tops[0]: name for name, _, _, tops, _ in layers if tops}
    expected = {top: value for top, value in expected.items() if top in writers}
    if not expected:
        return "no first output"
    for default in ("share_location: true", "background_label_id: 0"):
        text = text if default.split(":")[0] in text else text.replace("num_classes", default + " num_classes")
    try:
        net = cv2.dnn.readNetFromCaffe(*(np.frombuffer(b, np.uint8) for b in (text.encode(), encoded(layers))))
        net.enableFusion(False)
        for name, value in inputs.items():
            net.setInput(np.asarray(value, np.float32), name)
        found = net.forward([writers[top] for top in expected])
        pairs = [(a, b) for a, b in zip(found, expected.values())]
        if any(a.size != b.size for a, b in pairs):
            return "shapes %s" % [a.shape for a, _ in pairs]
        return "%.0e" % max(float(np.max(np.abs(a.ravel() - b.ravel())) / max(1e-9, np.max(np.abs(b)))) for a, b in pairs)
    except cv2.error as error:
        return str(error).replace("\n", " ")[-60:]


def case(name, inputs, layers, oracle=None):
    """Layers are tuples: type, bottoms, tops, parameters, weights. The oracle is Caffe, or a function of the inputs."""
    inputs = inputs if isinstance(inputs, dict) else {"data": inputs}
    text = "".join('input: "%s"\ninput_shape { %s }\n' % (k, " ".join("dim: %d" % n for n in v.shape)) for k, v in inputs.items())
    own = []
    for i, (kind, bottoms, tops, parameters, *weights) in enumerate(layers):
        bottoms, tops = bottoms.split(), tops.split()
        wires = "".join(' bottom: "%s"' % b for b in bottoms) + "".join(' top: "%s"' % t for t in tops)
        text += 'layer { name: "l%d" type: "%s"%s %s }\n' % (i, kind, wires, parameters)
        own.append(("l%d" % i, kind, bottoms, tops, weights))
    open("net.prototxt", "w").write(text)
    open("net.caffemodel", "wb").write(encoded(own))
    if oracle is None:
        expected = by_caffe("net.prototxt", "net.caffemodel", "saved.caffemodel", list(inputs.values()))
        weights = open("saved.caffemodel", "rb").read()
    else:
        expected = {own[-1][3][-1]: np.asarray(oracle(*inputs.values()), np.float32)}
        weights = open("net.caffemodel", "rb").read()
    told.append("%-34s %s" % (name, by_opencv(text, own, inputs, expected)))
    arrays[name + "/prototxt"] = np.frombuffer(text.encode(), np.uint8)
    arrays[name + "/weights"] = np.frombuffer(weights, np.uint8)
    arrays.update({"%s/in/%s" % (name, k): np.asarray(v, np.float32) for k, v in inputs.items()})
    arrays.update({"%s/out/%s" % (name, k): v for k, v in expected.items()})


def one(name, kind, x, parameters="", *weights, oracle=None):
    case(name, x, [(kind, "data", "out", parameters, *weights)], oracle)


# Layers that slide a window.
conv = "convolution_param { num_output: %d %s }"
one("convolution", "Convolution", f(2, 3, 6, 5), conv % (4, "kernel_size: 3 pad: 1 stride: 2"), f(4, 3, 3, 3), f(4))
one("convolution-groups", "Convolution", f(1, 4, 7, 6), conv % (6, "kernel_h: 3 kernel_w: 2 pad_h: 1 pad_w: 2 stride_h: 2 stride_w: 1 group: 2 bias_term: false"), f(6, 2, 3, 2))
one("convolution-dilation", "Convolution", f(1, 2, 9, 9), conv % (3, "kernel_size: 3 dilation: 2 dilation: 3 pad: 1 pad: 0"), f(3, 2, 3, 3), f(3))
one("convolution-3d", "Convolution", f(1, 2, 4, 5, 3), conv % (2, "kernel_size: 2 kernel_size: 3 kernel_size: 2 pad: 1 pad: 1 pad: 0 stride: 1 stride: 2 stride: 1"), f(2, 2, 2, 3, 2), f(2))
one("convolution-1x1-bias-shape", "Convolution", f(1, 3, 2, 2), conv % (2, "kernel_size: 1"), f(2, 3, 1, 1), f(2))
one("deconvolution", "Deconvolution", f(1, 4, 3, 4), conv % (2, "kernel_size: 4 stride: 2 pad: 1"), f(4, 2, 4, 4), f(2))
one("deconvolution-groups", "Deconvolution", f(1, 4, 3, 3), conv % (6, "kernel_size: 3 stride: 2 group: 2"), f(4, 3, 3, 3), f(6))
one("deconvolution-depthwise", "Deconvolution", f(1, 3, 4, 3), conv % (3, "kernel_size: 4 stride: 2 pad: 1 group: 3 bias_term: false"), f(3, 1, 4, 4))
pool = "pooling_param { pool: %s %s }"
one("pooling-max", "Pooling", f(1, 2, 6, 8), pool % ("MAX", "kernel_size: 2 stride: 2"))
one("pooling-max-ceil", "Pooling", f(1, 2, 6, 8), pool % ("MAX", "kernel_size: 3 stride: 2"))
one("pooling-max-pad", "Pooling", f(1, 2, 7, 6), pool % ("MAX", "kernel_size: 3 stride: 2 pad: 1"))
one("pooling-max-clipped", "Pooling", f(1, 2, 7, 7), pool % ("MAX", "kernel_size: 2 stride: 3 pad: 1"))
one("pooling-max-gap", "Pooling", f(1, 1, 6, 6), pool % ("MAX", "kernel_size: 1 stride: 2"))
one("pooling-max-oblong", "Pooling", f(1, 2, 7, 9), pool % ("MAX", "kernel_h: 2 kernel_w: 3 stride_h: 3 stride_w: 2 pad_h: 0 pad_w: 1"))
one("pooling-average", "Pooling", f(1, 2, 6, 8), pool % ("AVE", "kernel_size: 2 stride: 2"))
one("pooling-average-ceil", "Pooling", f(1, 2, 6, 8), pool % ("AVE", "kernel_size: 3 stride: 2"))
one("pooling-average-pad", "Pooling", f(1, 2, 6, 7), pool % ("AVE", "kernel_size: 3 stride: 2 pad: 1"))
one("pooling-average-pad-2", "Pooling", f(1, 2, 8, 9), pool % ("AVE", "kernel_size: 5 stride: 3 pad: 2"))
one("pooling-average-clipped", "Pooling", f(1, 2, 7, 7), pool % ("AVE", "kernel_size: 2 stride: 3 pad: 1"))
one("pooling-average-mixed", "Pooling", f(1, 2, 7, 6), pool % ("AVE", "kernel_h: 2 kernel_w: 3 stride_h: 3 stride_w: 2 pad_h: 1 pad_w: 1"))
one("pooling-global-average", "Pooling", f(1, 2, 3, 4), pool % ("AVE", "global_pooling: true"))
one("pooling-global-max", "Pooling", f(1, 2, 3, 4), pool % ("MAX", "global_pooling: true"))
one("lrn", "LRN", f(1, 7, 3, 2), "lrn_param { local_size: 5 alpha: 0.5 beta: 0.75 k: 2 }")
one("lrn-default", "LRN", f(1, 7, 3, 2) * 9)
one("lrn-within", "LRN", f(1, 3, 6, 5), "lrn_param { local_size: 3 alpha: 0.5 beta: 0.75 norm_region: WITHIN_CHANNEL }")
one("lrn-within-5", "LRN", f(1, 2, 7, 6) * 2, "lrn_param { local_size: 5 alpha: 0.2 beta: 0.5 norm_region: WITHIN_CHANNEL }")

# Products.
inner = "inner_product_param { num_output: 4 %s }"
one("innerproduct", "InnerProduct", f(2, 3, 2, 2), inner % "", f(4, 12), f(4))
one("innerproduct-bare", "InnerProduct", f(2, 5), inner % "bias_term: false", f(4, 5))
one("innerproduct-axis-2", "InnerProduct", f(2, 3, 2, 2), inner % "axis: 2", f(4, 4), f(4))
one("innerproduct-axis-last", "InnerProduct", f(2, 3, 5), inner % "axis: -1", f(4, 5), f(4))
one("innerproduct-transpose", "InnerProduct", f(2, 3, 2), inner % "transpose: true", f(6, 4), f(4))
one("innerproduct-axis-transpose", "InnerProduct", f(2, 3, 5), inner % "axis: 2 transpose: true", f(5, 4), f(4))

# Norms and scales.
mean, variance = f(3), abs(f(3)) + 0.2
for name, factor, text in (("batchnorm", 1.0, ""), ("batchnorm-factor", 999.98, "batch_norm_param { eps: 0.001 }"), ("batchnorm-factor-0", 0.0, "")):
    by = factor or 1.0
    one(name, "BatchNorm", f(2, 3, 2, 3), text, mean * by, variance * by, [factor])
case("batchnorm-scale-relu-in-place", f(1, 3, 4, 4), [
    ("Convolution", "data", "conv", conv % (3, "kernel_size: 3 pad: 1 bias_term: false"), f(3, 3, 3, 3)),
    ("BatchNorm", "conv", "conv", "batch_norm_param { use_global_stats: true }", mean * 2, variance * 2, [2.0]),
    ("Scale", "conv", "conv", "scale_param { bias_term: true }", f(3), f(3)), ("ReLU", "conv", "conv", "")])
one("scale", "Scale", f(2, 3, 4, 2), "scale_param { bias_term: true }", f(3), f(3))
one("scale-axis-2", "Scale", f(2, 3, 4, 2), "scale_param { axis: 2 }", f(4))
one("scale-two-axes", "Scale", f(2, 3, 4, 2), "scale_param { axis: 1 num_axes: 2 bias_term: true }", f(3, 4), f(3, 4))
one("scale-rest", "Scale", f(2, 3, 2, 2), "scale_param { axis: 1 num_axes: -1 }", f(3, 2, 2))
one("scale-scalar", "Scale", f(2, 3, 2), "scale_param { num_axes: 0 }", np.float32(1.5))
case("scale-two-bottoms", {"data": f(2, 3, 4, 2), "by": f(2, 3)}, [("Scale", "data by", "out", "scale_param { axis: 0 }")])
case("scale-two-bottoms-axis", {"data": f(2, 3, 4, 2), "by": f(4)}, [("Scale", "data by", "out", "scale_param { axis: -2 bias_term: true }", f(4))])
one("bias", "Bias", f(2, 3, 4), "", f(3))
one("bias-axis", "Bias", f(2, 3, 4), "bias_param { axis: -1 }", f(4))
case("bias-two-bottoms", {"data": f(2, 3, 4), "by": f(2)}, [("Bias", "data by", "out", "bias_param { axis: 0 }")])
one("mvn", "MVN", f(2, 3, 4, 5) * 3)
one("mvn-mean", "MVN", f(2, 3, 4, 5), "mvn_param { normalize_variance: false }")
one("mvn-across", "MVN", f(2, 3, 4, 5), "mvn_param { across_channels: true eps: 0.001 }")
one("mvn-across-mean", "MVN", f(2, 3, 4, 5), "mvn_param { across_channels: true normalize_variance: false }")
norm = "norm_param { across_spatial: %s channel_shared: %s %s }"
one("normalize", "Normalize", f(2, 3, 4, 2), norm % ("false", "false", ""), f(3))
one("normalize-across", "Normalize", f(2, 3, 4, 2), norm % ("true", "false", ""), f(3))
one("normalize-shared", "Normalize", f(2, 3, 4, 2), norm % ("false", "true", "eps: 0.01"), np.float32(1.25))
one("normalize-across-shared", "Normalize", f(2, 3, 4, 2), norm % ("true", "true", ""), np.float32(-2))

# Values one by one.
x = f(2, 3, 4) * 3
one("relu", "ReLU", x)
one("relu-slope", "ReLU", x, "relu_param { negative_slope: 0.1 }")
one("relu6", "ReLU6", x * 3)
one("prelu", "PReLU", f(2, 3, 2, 2), "", f(3))
one("prelu-shared", "PReLU", f(2, 3, 2, 2), "prelu_param { channel_shared: true }", np.float32(0.3))
one("prelu-flat", "PReLU", f(2, 3), "", f(3))
one("elu", "ELU", x)
one("elu-alpha", "ELU", x, "elu_param { alpha: 0.5 }")
one("sigmoid", "Sigmoid", x)
one("tanh", "TanH", x)
one("absval", "AbsVal", x)
one("bnll", "BNLL", x * 5)
for name, text in {"": "", "-base": "base: 2", "-scaled": "scale: 0.5 shift: 0.3", "-all": "base: 3 scale: -0.5 shift: 1"}.items():
    one("exp" + name, "Exp", x, "exp_param { %s }" % text)
    one("log" + name, "Log", abs(x) + 0.1 if "-0.5" not in text else -abs(x), "log_param { %s }" % text)
for name, text in {"": "", "-scale": "scale: 2 shift: -1", "-square": "power: 2 scale: 0.5 shift: 0.1", "-cube": "power: 3 shift: 1", "-0": "power: 0", "-scale-0": "power: 2 scale: 0 shift: 3"}.items():
    one("power" + name, "Power", x, "power_param { %s }" % text)
one("power-root", "Power", abs(x), "power_param { power: 0.5 scale: 2 shift: 0.1 }")
one("power-inverse", "Power", abs(x), "power_param { power: -1 shift: 1 }")
one("threshold", "Threshold", x, "threshold_param { threshold: 0.5 }")
one("dropout", "Dropout", x, "dropout_param { dropout_ratio: 0.3 }")

# Values against each other.
one("softmax", "Softmax", f(2, 3, 2, 2) * 3)
one("softmax-axis-2", "Softmax", f(2, 3, 4), "softmax_param { axis: 2 }")
one("softmax-axis-last", "Softmax", f(2, 3, 4), "softmax_param { axis: -1 }")
two = {"data": f(2, 3, 4, 2), "more": f(2, 3, 4, 2)}
three = {**two, "last": f(2, 3, 4, 2)}
for operation in ("SUM", "PROD", "MAX"):
    case("eltwise-" + operation.lower(), three, [("Eltwise", "data more last", "out", "eltwise_param { operation: %s }" % operation)])
case("eltwise-default", two, [("Eltwise", "data more", "out", "")])
case("eltwise-coefficients", three, [("Eltwise", "data more last", "out", "eltwise_param { coeff: 1 coeff: -1 coeff: 0.5 }")])
case("eltwise-same", two, [("Eltwise", "data data more", "out", "eltwise_param { coeff: 0.5 coeff: 0.25 coeff: 1 }")])
case("concat", {"data": f(2, 3, 2), "more": f(2, 1, 2)}, [("Concat", "data more", "out", "")])
case("concat-last", {"data": f(2, 3, 2), "more": f(2, 3, 4)}, [("Concat", "data more", "out", "concat_param { axis: -1 }")])
case("concat-dim", {"data": f(2, 3, 2), "more": f(1, 3, 2)}, [("Concat", "data more", "out", "concat_param { concat_dim: 0 }")])
one("concat-one", "Concat", f(2, 3))
case("slice", f(2, 6, 3), [("Slice", "data", "a b c", "slice_param { slice_point: 1 slice_point: 3 }")])
case("slice-equal", f(2, 6, 3), [("Slice", "data", "a b", "")])
case("slice-axis", f(2, 3, 4), [("Slice", "data", "a b", "slice_param { axis: -1 slice_point: 3 }")])
case("slice-dim", f(4, 3, 2), [("Slice", "data", "a b", "slice_param { slice_dim: 0 }")])
case("split", f(2, 3), [("Split", "data", "a b", "")])
case("silence", f(2, 4), [("Slice", "data", "a b", ""), ("Silence", "a", "", ""), ("ReLU", "b", "out", "")])

# Shapes.
for name, text, dims in (
    ("copied", "shape { dim: 0 dim: -1 }", (2, 3, 4)), ("rest", "shape { dim: -1 dim: 2 }", (2, 3, 4)), ("more", "shape { dim: 0 dim: 3 dim: 2 dim: 2 }", (2, 3, 4)),
    ("axis", "shape { dim: 2 dim: -1 } axis: 1 num_axes: 1", (2, 6, 3)), ("axis-last", "shape { dim: 1 } axis: -1 num_axes: 0", (2, 3)),
    ("insert", "shape { dim: 1 } axis: 1 num_axes: 0", (2, 3)), ("remove", "shape { } axis: 1 num_axes: 1", (2, 1, 3)), ("axis-rest", "shape { dim: -1 } axis: 1", (2, 3, 4)),
):
    one("reshape-" + name, "Reshape", f(*dims), "reshape_param { %s }" % text)
one("flatten", "Flatten", f(2, 3, 2, 2))
one("flatten-axes", "Flatten", f(2, 3, 2, 2), "flatten_param { axis: -3 end_axis: -2 }")
one("flatten-zero", "Flatten", f(2, 3, 2), "flatten_param { axis: 0 }")
one("permute", "Permute", f(2, 3, 4, 2), "permute_param { order: 0 order: 2 order: 3 order: 1 }")
one("permute-short", "Permute", f(2, 3, 4), "permute_param { order: 1 }")
one("tile", "Tile", f(2, 3, 2), "tile_param { tiles: 2 }")
one("tile-axis", "Tile", f(2, 3, 2), "tile_param { axis: -1 tiles: 3 }")
crop = {"data": f(2, 3, 6, 7), "like": f(2, 3, 3, 4)}
case("crop", crop, [("Crop", "data like", "out", "")])
case("crop-offset", crop, [("Crop", "data like", "out", "crop_param { offset: 2 }")])
case("crop-offsets", crop, [("Crop", "data like", "out", "crop_param { axis: 2 offset: 1 offset: 3 }")])
case("crop-axis", {"data": f(2, 5, 4), "like": f(1, 2, 3)}, [("Crop", "data like", "out", "crop_param { axis: -2 offset: 3 offset: 0 }")])
for operation in ("SUM", "ASUM", "SUMSQ", "MEAN"):
    one("reduction-" + operation.lower(), "Reduction", f(2, 3, 4), "reduction_param { operation: %s axis: 1 coeff: 0.5 }" % operation)
one("reduction-all", "Reduction", f(2, 3))
one("argmax", "ArgMax", f(2, 5, 2, 1))
one("argmax-ties", "ArgMax", np.round(f(4, 6)), "argmax_param { axis: 1 }")
one("argmax-axis", "ArgMax", f(2, 5, 3), "argmax_param { axis: 1 }")
one("argmax-axis-value", "ArgMax", f(2, 5, 3), "argmax_param { axis: -2 top_k: 2 out_max_val: true }")
one("argmax-top", "ArgMax", f(2, 6), "argmax_param { top_k: 3 }")
one("argmax-value", "ArgMax", f(2, 6), "argmax_param { top_k: 2 out_max_val: true }")

# Layers of forks, by the formulas of their sources.
def depthwise(w, b, pad):
    def out(x):
        padded = np.pad(x.astype(np.float64), ((0, 0), (0, 0), (pad, pad), (pad, pad)))
        h, k = x.shape[2] + 2 * pad - w.shape[2] + 1, w.shape[2]
        return sum(padded[:, :, i:i + h, j:j + h] * w[None, :, 0, i, j, None, None] for i in range(k) for j in range(k)) + b[None, :, None, None]
    return out

for kind in ("ConvolutionDepthwise", "DepthwiseConvolution"):
    w, b = f(4, 1, 3, 3), f(4)
    group = "group: 4" if kind == "DepthwiseConvolution" else ""
    one(kind.lower(), kind, f(1, 4, 5, 5), conv % (4, "kernel_size: 3 pad: 1 " + group), w, b, oracle=depthwise(w, b, 1))
one("shufflechannel", "ShuffleChannel", f(1, 6, 2, 3), "shuffle_channel_param { group: 3 }", oracle=lambda x: x.reshape(1, 3, 2, 2, 3).transpose(0, 2, 1, 3, 4).reshape(1, 6, 2, 3))
case("axpy", {"by": f(2, 3, 1, 1), "data": f(2, 3, 2, 2), "plus": f(2, 3, 2, 2)}, [("Axpy", "by data plus", "out", "")], lambda a, x, y: a * x + y)
slope, shift = f(1, 3, 1, 1), f(1, 3, 1, 1)
one("bn-segnet", "BN", f(2, 3, 2, 2), "bn_param { bn_mode: INFERENCE scale_filler { type: \"constant\" value: 1 } }", slope, shift, oracle=lambda x: x * slope + shift)


def interp(x, h, w):
    """caffe_cpu_interp2: the corners stay."""
    out = np.zeros(x.shape[:2] + (h, w))
    for i in range(h):
        for j in range(w):
            y, z = (i * (x.shape[2] - 1) / (h - 1) if h > 1 else 0.0), (j * (x.shape[3] - 1) / (w - 1) if w > 1 else 0.0)
            a, b = int(y), int(z)
            c, d = min(a + 1, x.shape[2] - 1), min(b + 1, x.shape[3] - 1)
            p, q = y - a, z - b
            out[:, :, i, j] = (1 - p) * ((1 - q) * x[:, :, a, b] + q * x[:, :, a, d]) + p * ((1 - q) * x[:, :, c, b] + q * x[:, :, c, d])
    return out


one("interp", "Interp", f(1, 2, 4, 5), "interp_param { height: 7 width: 9 }", oracle=lambda x: interp(x, 7, 9))
one("interp-zoom", "Interp", f(1, 2, 4, 3), "interp_param { zoom_factor: 2 }", oracle=lambda x: interp(x, 4 + 3 * 1, 3 + 2 * 1))
one("interp-shrink", "Interp", f(1, 2, 9, 7), "interp_param { shrink_factor: 2 }", oracle=lambda x: interp(x, 5, 4))
one("interp-both", "Interp", f(1, 2, 9, 7), "interp_param { shrink_factor: 2 zoom_factor: 3 }", oracle=lambda x: interp(x, 5 + 4 * 2, 4 + 3 * 2))
one("interp-pad", "Interp", f(1, 2, 6, 7), "interp_param { zoom_factor: 2 pad_beg: -1 pad_end: -2 }", oracle=lambda x: interp(x[:, :, 1:-2, 1:-2], 3 + 2, 4 + 3))
one("interp-one", "Interp", f(1, 2, 1, 1), "interp_param { height: 3 width: 4 }", oracle=lambda x: interp(x, 3, 4))


def segnet(x):
    """The largest of each 2 by 2 stays where it stood; the first of equal ones."""
    out = np.zeros_like(x)
    for n, c, i, j in np.ndindex(x.shape[0], x.shape[1], x.shape[2] // 2, x.shape[3] // 2):
        window = x[n, c, 2 * i:2 * i + 2, 2 * j:2 * j + 2]
        a, b = np.unravel_index(window.argmax(), (2, 2))
        out[n, c, 2 * i + a, 2 * j + b] = window.max()
    return out


mask = ("Pooling", "data", "pool mask", pool % ("MAX", "kernel_size: 2 stride: 2"))
case("upsample-mask", f(2, 3, 4, 6), [mask, ("Upsample", "pool mask", "out", "upsample_param { scale: 2 }")], segnet)
case("upsample-mask-size", f(1, 3, 6, 4), [mask, ("Upsample", "pool mask", "out", "upsample_param { scale: 2 upsample_h: 6 upsample_w: 4 }")], segnet)
case("upsample-mask-ties", np.round(f(1, 2, 4, 4)), [mask, ("Upsample", "pool mask", "out", "upsample_param { scale: 2 }")], segnet)

# SSD.
prior = {"data": f(1, 2, 3, 2), "image": f(1, 3, 30, 20)}
for name, text in {
    "": "min_size: 8", "-max": "min_size: 8 max_size: 14", "-ratios": "min_size: 8 max_size: 14 aspect_ratio: 2 aspect_ratio: 3", "-no-flip": "min_size: 8 aspect_ratio: 2 flip: false",
    "-clip": "min_size: 18 max_size: 30 clip: true", "-many": "min_size: 4 min_size: 8 max_size: 6 max_size: 12 aspect_ratio: 2", "-fractions": "min_size: 8.6 max_size: 14.7 aspect_ratio: 1.5", "-step": "min_size: 8 step: 9", "-steps": "min_size: 8 step_h: 9 step_w: 11 offset: 0.25",
    "-size": "min_size: 8 img_size: 40", "-sizes": "min_size: 8 img_h: 40 img_w: 25", "-variance": "min_size: 8 variance: 0.2", "-variances": "min_size: 8 max_size: 11 variance: 0.1 variance: 0.1 variance: 0.2 variance: 0.3", "-double": "min_size: 8 aspect_ratio: 2 aspect_ratio: 2 aspect_ratio: 0.5 aspect_ratio: 1",
}.items():
    # SSD's default of `clip` is false; the package's is true.
    text += "" if "clip:" in text else " clip: false"
    case("priorbox" + name, prior, [("PriorBox", "data image", "out", "prior_box_param { %s }" % text)])


def detection(name, text, classes=3, priors=12, batch=1, share=1, ties=False, scores=None):
    centers, sizes = random.random((priors, 2)), random.random((priors, 2)) * 0.4 + 0.05
    boxes = np.concatenate([centers - sizes / 2, centers + sizes / 2], 1).astype(np.float32).ravel()
    variances = np.tile(np.float32([0.1, 0.1, 0.2, 0.2]), priors)
    confidence = random.random((batch, priors * classes)).astype(np.float32)
    if ties:
        confidence = np.round(confidence * 4).astype(np.float32) / 4
    inputs = {"loc": f(batch, priors * share * 4, scale=0.5), "conf": confidence, "prior": np.stack([boxes, variances])[None]}
    parameters = "detection_output_param { num_classes: %d %s }" % (classes, text)
    case("detectionoutput" + name, inputs, [("DetectionOutput", "loc conf prior", "out", parameters)])


center = "code_type: CENTER_SIZE nms_param { nms_threshold: 0.45 top_k: %d } keep_top_k: %d confidence_threshold: %s"
detection("", center % (8, 10, 0.2))
detection("-few", center % (3, 4, 0.5))
detection("-keep-one", center % (8, 1, 0.1))
detection("-corner", "code_type: CORNER nms_param { nms_threshold: 0.3 top_k: 9 } keep_top_k: 8 confidence_threshold: 0.3")
detection("-corner-size", "code_type: CORNER_SIZE nms_param { nms_threshold: 0.3 top_k: 9 } keep_top_k: 8 confidence_threshold: 0.3")
detection("-encoded", "variance_encoded_in_target: true " + center % (8, 10, 0.2))
detection("-background", "background_label_id: 1 " + center % (8, 10, 0.2))
detection("-no-background", "background_label_id: 3 " + center % (8, 10, 0.2))
detection("-not-shared", "share_location: false " + center % (8, 10, 0.2), share=3)
detection("-batch", center % (8, 10, 0.2), batch=2)
detection("-ties", center % (6, 9, 0.2), ties=True)
detection("-no-limits", "code_type: CENTER_SIZE nms_param { nms_threshold: 0.45 } confidence_threshold: 0.4")
detection("-no-threshold", "code_type: CENTER_SIZE nms_param { nms_threshold: 0.45 top_k: 5 } keep_top_k: 6")
detection("-one-class", center % (8, 5, 0.1), classes=2)
detection("-none", center % (8, 5, 1.5))
detection("-more-than-priors", center % (400, 200, 0.01), priors=5)

# Sequences: the first step begins, the others go on.
steps = {"x": f(4, 2, 3), "cont": np.float32([[0, 0], [1, 1], [1, 1], [1, 1]])}
case("lstm", steps, [("LSTM", "x cont", "out", "recurrent_param { num_output: 4 }", f(16, 3), f(16), f(16, 4))])

# Nets that a file may hold.
case("training-layers", {"data": f(1, 3, 4, 4)}, [
    ("Convolution", "data", "conv", conv % (2, "kernel_size: 3"), f(2, 3, 3, 3), f(2)), ("ReLU", "conv", "conv", ""),
    ("Dropout", "conv", "conv", ""), ("Pooling", "conv", "pool", pool % ("AVE", "global_pooling: true")),
    ("InnerProduct", "pool", "fc", inner % "", f(4, 2), f(4)), ("Softmax", "fc", "prob", "")])
shared = f(4, 3, 1, 1), f(4)
case("shared-weights", {"data": f(1, 3, 2, 2), "more": f(1, 3, 2, 2)}, [
    ("Convolution", "data", "a", 'param { name: "w" } param { name: "b" } ' + conv % (4, "kernel_size: 1"), *shared),
    ("Convolution", "more", "b", 'param { name: "w" } param { name: "b" } ' + conv % (4, "kernel_size: 1"), *shared),
    ("Eltwise", "a b", "out", "eltwise_param { operation: PROD }")])
case("two-readers", f(1, 3, 4, 4), [
    ("Convolution", "data", "a", conv % (3, "kernel_size: 3 pad: 1"), f(3, 3, 3, 3), f(3)), ("ReLU", "a", "b", ""),
    ("Pooling", "a", "c", pool % ("MAX", "kernel_size: 3 stride: 1 pad: 1")), ("Concat", "b c data", "d", ""), ("Eltwise", "a a", "e", "")])

# Losses. Caffe's layer has the plain layer within and tells its loss alone: this Caffe wants a weight of each output, and refuses the
# second, which other versions give. So the probabilities are the plain layer's, if Caffe's loss is the loss of these.
def probabilities(kind, parameters):
    plain = {"SoftmaxWithLoss": "Softmax", "SigmoidCrossEntropyLoss": "Sigmoid"}[kind]
    axis = re.search(r"softmax_param {.*?}", parameters)

    def out(x, label):
        inputs = "".join('input: "%s" input_shape { %s }\n' % (k, " ".join("dim: %d" % n for n in v.shape)) for k, v in (("data", x), ("label", label)))
        layer = 'layer { name: "p" type: "%s" bottom: "data" %s top: "out" %s }'
        for file, text in (("plain", layer % (plain, "", axis.group() if axis else "")), ("loss", layer % (kind, 'bottom: "label"', parameters))):
            open(file + ".prototxt", "w").write(inputs + text)
        p, of_caffe = (by_caffe(file + ".prototxt", "-", "-", [x, label])["out"] for file in ("plain", "loss"))
        if plain == "Softmax":
            by = int(axis.group().split("axis: ")[1].split()[0]) if axis else 1
            wanted = label.astype(int).reshape(np.delete(x.shape, by))
            own = np.take_along_axis(p, np.expand_dims(np.minimum(wanted, x.shape[by] - 1), by), by).squeeze(by)
            terms = -np.log(own.astype(np.float64)[wanted != 255])
            by_hand = terms.sum() / (len(x) if "normalize: false" in parameters else terms.size)
        else:
            q = p.astype(np.float64)
            by_hand = -(label * np.log(q) + (1 - label) * np.log(1 - q)).sum() / len(x)
        assert abs(of_caffe - by_hand) <= 1e-5 * by_hand, (of_caffe, by_hand)
        return p
    return out


def loss(name, kind, x, label, tops, parameters=""):
    label = np.asarray(label, np.float32)
    case(name, {"data": x, "label": label}, [(kind, "data label", tops, parameters)], probabilities(kind, parameters))


classes = lambda *shape: random.integers(0, 3, shape)
loss("softmaxwithloss", "SoftmaxWithLoss", f(2, 3, 2, 4) * 3, classes(2, 1, 2, 4), "loss prob")
loss("softmaxwithloss-axis", "SoftmaxWithLoss", f(2, 4, 3), classes(2, 4), "loss prob", "softmax_param { axis: -1 }")
loss("softmaxwithloss-ignore", "SoftmaxWithLoss", f(3, 4) * 9, [1, 255, 0], "out", "loss_param { ignore_label: 255 normalize: false }")
loss("softmaxwithloss-one-output", "SoftmaxWithLoss", f(2, 3, 5) * 3, classes(2, 5), "out")
loss("sigmoidcrossentropyloss", "SigmoidCrossEntropyLoss", f(2, 3, 4) * 2, random.random((2, 3, 4)), "out")
loss("sigmoidcrossentropyloss-matrix", "SigmoidCrossEntropyLoss", f(3, 6), random.integers(0, 2, (3, 6)), "out")

# Layers that this Caffe does not have: BVLC's of 2018, and LogSoftmax of forks, by their formulas.
wide = lambda function: lambda x: function(x.astype(np.float64))
one("swish", "Swish", f(2, 3, 4) * 3, oracle=wide(lambda x: x / (1 + np.exp(-x))))
one("swish-beta", "Swish", f(2, 3) * 3, "swish_param { beta: -0.5 }", oracle=wide(lambda x: x / (1 + np.exp(0.5 * x))))
one("clip", "Clip", f(2, 3, 4) * 2, "clip_param { min: -1.5 max: 0.25 }", oracle=lambda x: np.clip(x, -1.5, 0.25))
log_softmax = lambda axis: wide(lambda x: (x - x.max(axis, keepdims=True)) - np.log(np.exp(x - x.max(axis, keepdims=True)).sum(axis, keepdims=True)))
one("logsoftmax", "LogSoftmax", f(2, 5, 2, 3) * 3, oracle=log_softmax(1))
one("logsoftmax-axis", "LogSoftmax", f(2, 3, 4) * 20, "softmax_param { axis: -1 }", oracle=log_softmax(-1))

np.savez_compressed(os.path.join(HERE, "caffe.npz"), **arrays)
print("\n".join(told))
print(len(told), "cases; the figures are OpenCV's difference")
