"""Small nets with random weights, and what OpenCV 4.14 computes with them: deploy prototxts, weights encoded by protoc, inputs and outputs.

    python make.py CAFFE_PROTO      (opencv-python-headless 4.14.0.94, numpy; protoc on the path; caffe.proto of BVLC/caffe 9b891540)

What OpenCV does not read (SegNet's BN, LSTM) is computed here by the formulas of the layers' own sources.
"""
import subprocess
import sys

import cv2
import numpy as np

PROTO = sys.argv[1]
random = np.random.default_rng(2014)


def encode(text, path):
    folder, name = PROTO.rsplit("/", 1)
    done = subprocess.run(["protoc", "--proto_path=" + folder, "--encode=caffe.NetParameter", name], input=text.encode(), capture_output=True, check=True)
    open(path, "wb").write(done.stdout)


def blob(array, legacy):
    array = np.asarray(array, "float32")
    if legacy:
        dims = "num: %d channels: %d height: %d width: %d" % tuple([1] * (4 - array.ndim) + list(array.shape))
    else:
        dims = "shape { %s }" % " ".join("dim: %d" % n for n in array.shape)
    return "blobs { %s %s }" % (dims, " ".join("data: %r" % float(x) for x in array.ravel()))


def normal(*shape, scale=0.5):
    return (random.standard_normal(shape) * scale).astype("float32")


def conv(name, bottom, top, i, o, k, more="", bias=True, generation=2):
    weights = [normal(o, i, k, k)] + ([normal(o)] if bias else [])
    what = "num_output: %d kernel_size: %d %s%s" % (o, k, "" if bias else "bias_term: false ", more)
    return layer(name, "Convolution", [bottom], top, "convolution_param { %s }" % what, weights)


def bn(name, blob_name, channels, factor, more=""):
    mean, variance = normal(channels), np.abs(normal(channels)) + 0.3
    stored = 1.0 if factor == 0 else factor
    return layer(name, "BatchNorm", [blob_name], blob_name, more, [mean * stored, variance * stored, np.array([factor])])


def scale(name, blob_name, channels, bias=True):
    weights = [normal(channels) + 1] + ([normal(channels)] if bias else [])
    return layer(name, "Scale", [blob_name], blob_name, "scale_param { bias_term: %s }" % ("true" if bias else "false"), weights)


def layer(name, kind, bottoms, top, param="", weights=()):
    return (name, kind, bottoms, top, param, list(weights))


def write(name, layers, dims, legacy=False, with_text=True):
    head = 'name: "%s"\ninput: "data"\n%s\n' % (name, " ".join("input_dim: %d" % n for n in dims))
    text, model = head, 'name: "%s"\n' % name
    for (own, kind, bottoms, top, param, weights) in layers:
        line = 'layer {\n  name: "%s"\n  type: "%s"\n%s  top: "%s"\n  %s\n' % (own, kind, "".join('  bottom: "%s"\n' % b for b in bottoms), top, param)
        text += line + "}\n"
        model += line + "\n".join(blob(w, legacy) for w in weights) + "}\n"
    open(name + ".prototxt", "w").write(text)
    encode(model, name + ".caffemodel")
    data = normal(*dims, scale=1.0)
    net = cv2.dnn.readNetFromCaffe(name + ".prototxt", name + ".caffemodel")
    net.enableFusion(False)
    net.setInput(data)
    np.savez(name + ".npz", data=data, output=net.forward())


def relu(blob_name):
    return layer("relu_" + blob_name, "ReLU", [blob_name], blob_name)


def pool(name, bottom, top):
    return layer(name, "Pooling", [bottom], top, "pooling_param { pool: MAX kernel_size: 2 stride: 2 }")


def ip(name, bottom, top, i, o):
    return layer(name, "InnerProduct", [bottom], top, "inner_product_param { num_output: %d }" % o, [normal(o, i), normal(o)])


lenet = [conv("conv1", "data", "conv1", 1, 3, 3), pool("pool1", "conv1", "pool1"), conv("conv2", "pool1", "conv2", 3, 4, 3),
         pool("pool2", "conv2", "pool2"), ip("ip1", "pool2", "ip1", 16, 6), relu("ip1"), ip("ip2", "ip1", "ip2", 6, 5)]
write("lenet", lenet, (1, 1, 14, 14), legacy=True)

# The same net in the older generations.
V1 = {"Convolution": "CONVOLUTION", "Pooling": "POOLING", "InnerProduct": "INNER_PRODUCT", "ReLU": "RELU"}
V0 = {"Convolution": "conv", "Pooling": "pool", "InnerProduct": "innerproduct", "ReLU": "relu"}
old = {1: ["", ""], 0: ["", ""]}
for (own, kind, bottoms, top, param, weights) in lenet:
    wires = "".join('  bottom: "%s"\n' % b for b in bottoms) + '  top: "%s"\n' % top
    blobs = "\n".join(blob(w, True) for w in weights)
    inner = param.split("{", 1)[1].rsplit("}", 1)[0].replace("kernel_size", "kernelsize") if param else ""
    for with_blobs in (False, True):
        own_blobs = blobs if with_blobs else ""
        old[1][with_blobs] += 'layers {\n  name: "%s"\n  type: %s\n%s  %s\n%s}\n' % (own, V1[kind], wires, param, own_blobs)
        old[0][with_blobs] += 'layers {\n  layer {\n    name: "%s"\n    type: "%s"\n    %s\n%s  }\n%s}\n' % (own, V0[kind], inner, own_blobs, wires)
for version in (0, 1):
    open("lenet_v%d.prototxt" % version, "w").write('name: "lenet"\n' + old[version][False])
    encode('name: "lenet"\n' + old[version][True], "lenet_v%d.caffemodel" % version)

write("resnet", [
    conv("conv1", "data", "conv1", 3, 4, 3, "pad: 1", bias=False), bn("bn_conv1", "conv1", 4, 999.98), scale("scale_conv1", "conv1", 4), relu("conv1"),
    conv("res_branch2a", "conv1", "res_branch2a", 4, 4, 3, "pad: 1", bias=False), bn("bn_branch2a", "res_branch2a", 4, 0.25),
    scale("scale_branch2a", "res_branch2a", 4), relu("res_branch2a"),
    conv("res_branch2b", "res_branch2a", "res_branch2b", 4, 4, 1), bn("bn_branch2b", "res_branch2b", 4, 1.0, "batch_norm_param { eps: 0.01 }"),
    scale("scale_branch2b", "res_branch2b", 4, bias=False),
    layer("res", "Eltwise", ["conv1", "res_branch2b"], "res"), relu("res")], (1, 3, 6, 6))

write("mobilenet", [
    conv("conv_dw", "data", "conv_dw", 1, 4, 3, "pad: 1 group: 4", bias=False), bn("conv_dw_bn", "conv_dw", 4, 7.5), scale("conv_dw_scale", "conv_dw", 4),
    relu("conv_dw"), conv("conv_sep", "conv_dw", "conv_sep", 4, 6, 1), bn("conv_sep_bn", "conv_sep", 6, 0), scale("conv_sep_scale", "conv_sep", 6),
    relu("conv_sep")], (1, 4, 5, 5))

branches = []
for name, k, pad in [("1x1", 1, 0), ("3x3", 3, 1), ("5x5", 5, 2)]:
    blob_name = "inception/" + name
    branches += [conv(blob_name, "data", blob_name, 3, 2, k, "pad: %d" % pad), bn(blob_name + "/bn", blob_name, 2, 2.0), scale(blob_name + "/scale", blob_name, 2),
                 relu(blob_name)]
branches += [layer("inception/output", "Concat", ["inception/1x1", "inception/3x3", "inception/5x5"], "inception/output")]
write("inception", branches, (1, 3, 6, 6))

write("upsample", [
    layer("up", "Deconvolution", ["data"], "up", "convolution_param { num_output: 6 kernel_size: 3 group: 2 }", [normal(4, 3, 3, 3), normal(6)]),
    bn("up_bn", "up", 6, 3.0), scale("up_scale", "up", 6),
    layer("prelu", "PReLU", ["up"], "prelu", "", [normal(6)])], (1, 4, 3, 3))

# By the formulas: `lstm_layer.cpp` and `lstm_unit_layer.cpp` of BVLC/caffe, gates i, f, o, g.
def sigmoid(x):
    return 1 / (1 + np.exp(-x))


steps, size, cells = 5, 3, 2
w_x, b, w_h = normal(4 * cells, size), normal(4 * cells), normal(4 * cells, cells)
head = 'name: "lstm"\n'
wires = '  name: "lstm1"\n  type: "LSTM"\n  bottom: "data"\n  bottom: "cont"\n  top: "lstm1"\n  recurrent_param { num_output: %d }\n' % cells
open("lstm.prototxt", "w").write(head + "layer {\n" + wires + "}\n")
encode(head + "layer {\n" + wires + "\n".join(blob(w, False) for w in (w_x, b, w_h)) + "}\n", "lstm.caffemodel")
data, h, c, out = normal(steps, size, scale=1.0), np.zeros(cells), np.zeros(cells), []
for x in data.astype("float64"):
    gates = w_x.astype("float64") @ x + b + w_h.astype("float64") @ h
    i, f, o, g = gates.reshape(4, cells)
    c = sigmoid(f) * c + sigmoid(i) * np.tanh(g)
    h = sigmoid(o) * np.tanh(c)
    out.append(h)
np.savez("lstm.npz", data=data, output=np.array(out, "float32"))

# SegNet's BN for inference: a factor and a summand a channel (`bn_layer.cpp` of caffe-segnet, `bn_mode: INFERENCE`).
w, bias, gain, shift, data = normal(4, 3, 1, 1), normal(4), normal(1, 4, 1, 1), normal(1, 4, 1, 1), normal(1, 3, 4, 4, scale=1.0)
head = 'name: "segnet"\ninput: "data"\ninput_dim: 1 input_dim: 3 input_dim: 4 input_dim: 4\n'
conv_wires = '  name: "conv1_1"\n  type: "Convolution"\n  bottom: "data"\n  top: "conv1_1"\n  convolution_param { num_output: 4 kernel_size: 1 }\n'
bn_wires = '  name: "conv1_1_bn"\n  type: "BN"\n  bottom: "conv1_1"\n  top: "conv1_1"\n'
open("segnet.prototxt", "w").write(head + "layer {\n" + conv_wires + "}\nlayer {\n" + bn_wires + "  bn_param { bn_mode: INFERENCE }\n}\n")
encode(head + "layer {\n" + conv_wires + "\n".join(blob(v, False) for v in (w, bias)) + "}\nlayer {\n" + bn_wires
       + "\n".join(blob(v, False) for v in (gain, shift)) + "}\n", "segnet.caffemodel")
out = np.einsum("nchw,oc->nohw", data.astype("float64"), w[:, :, 0, 0].astype("float64")) + bias[None, :, None, None]
np.savez("segnet.npz", data=data, output=(out * gain + shift).astype("float32"))
