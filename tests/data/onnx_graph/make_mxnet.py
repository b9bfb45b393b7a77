"""Writes mxnet.npz: for each operator and edge a symbol, parameters, inputs, and the outputs of the real MXNet.

    python make_mxnet.py      (Python 3.8, mxnet 1.9.1, numpy 1.23.5)

`CASE/symbol` and `CASE/weights` are files as bytes, as MXNet saves them; `CASE/in/NAME` and `CASE/out/NAME` are arrays. An output is
called as MXNet's `list_outputs` calls it.
"""
import os
import tempfile

os.environ.update(MXNET_MKLDNN_ENABLED="0", MXNET_SUBGRAPH_BACKEND="NONE")  # MXNet's own operators: oneDNN lacks some cases
import mxnet as mx
import numpy as np

S, C = mx.sym, mx.sym.contrib
HERE = os.path.dirname(os.path.abspath(__file__))
random = np.random.default_rng(2015)
arrays, variables = {}, {}


def f(*shape, scale=1.0):
    return (random.standard_normal(shape) * scale).astype(np.float32)


def x(name="data"):
    """The variable of this name; of a case's there is one."""
    return variables.setdefault(name, S.Variable(name))


def value(name, shape):
    """A variance is positive; a weight is small, so that sums stay small."""
    if name.endswith("var"):
        return np.abs(f(*shape)) + 0.3
    return f(*shape, scale=0.5)


def case(name, net, given, old=None, **weights):
    """Weights that are not given are random. `old` replaces words of the symbol: old spellings of operators."""
    given = given if isinstance(given, dict) else {"data": given}
    text = net.tojson()
    for new, word in (old or {}).items():
        assert '"%s"' % new in text, new
        text = text.replace('"%s"' % new, '"%s"' % word)
    net = S.load_json(text)
    fixed = {key: np.asarray(array, np.float32) for key, array in weights.items()}
    shapes = {key: array.shape for key, array in {**given, **fixed}.items()}
    arguments, _, states = net.infer_shape(**shapes)
    # Labels are no inputs of inference: any number does.
    known = {n: given.get(n, fixed.get(n, np.zeros(s, np.float32) if n.endswith("label") else value(n, s)))
             for n, s in zip(net.list_arguments(), arguments)}
    states = {n: value(n, s) for n, s in zip(net.list_auxiliary_states(), states)}
    nd = lambda named: {key: mx.nd.array(array) for key, array in named.items()}
    bound = net.bind(mx.cpu(), nd(known), aux_states=nd(states), grad_req="null")
    found = [output.asnumpy() for output in bound.forward(is_train=False)]
    arrays[name + "/symbol"] = np.frombuffer(text.encode(), np.uint8)
    own = {key: array for key, array in known.items() if key not in given and not key.endswith("label")}
    saved = {**{"arg:" + key: array for key, array in own.items()}, **{"aux:" + key: array for key, array in states.items()}}
    with tempfile.TemporaryDirectory() as folder:
        path = os.path.join(folder, "x.params")
        mx.nd.save(path, nd(saved))
        arrays[name + "/weights"] = np.frombuffer(open(path, "rb").read(), np.uint8)
    for key, array in given.items():
        arrays["%s/in/%s" % (name, key)] = array
    for key, array in zip(net.list_outputs(), found):
        assert np.isfinite(array).all(), name
        arrays["%s/out/%s" % (name, key)] = array


# Layers that slide a window.
case("convolution", S.Convolution(x(), kernel=(3, 3), num_filter=4, pad=(1, 1), stride=(2, 2)), f(2, 3, 6, 5))
case("convolution-groups", S.Convolution(x(), kernel=(3, 2), num_filter=6, num_group=2, no_bias=True, pad=(1, 0), stride=(1, 2)), f(1, 4, 7, 6))
case("convolution-dilate", S.Convolution(x(), kernel=(3, 3), num_filter=2, dilate=(2, 3), pad=(1, 0)), f(1, 2, 9, 9))
case("convolution-depthwise", S.Convolution(x(), kernel=(3, 3), num_filter=3, num_group=3, pad=(1, 1)), f(1, 3, 5, 5))
case("convolution-1d", S.Convolution(x(), kernel=(3,), num_filter=2, stride=(2,)), f(1, 3, 8))
case("convolution-3d", S.Convolution(x(), kernel=(2, 3, 2), num_filter=2, pad=(1, 1, 0)), f(1, 2, 4, 5, 3))
case("deconvolution", S.Deconvolution(x(), kernel=(4, 4), num_filter=2, stride=(2, 2), pad=(1, 1)), f(1, 4, 3, 4))
case("deconvolution-groups", S.Deconvolution(x(), kernel=(3, 3), num_filter=6, num_group=2, stride=(2, 2), no_bias=False), f(1, 4, 3, 3))
case("deconvolution-adj", S.Deconvolution(x(), kernel=(3, 3), num_filter=2, stride=(2, 2), pad=(1, 1), adj=(1, 1)), f(1, 3, 4, 3))
case("deconvolution-target", S.Deconvolution(x(), kernel=(4, 4), num_filter=2, stride=(2, 2), target_shape=(7, 8)), f(1, 3, 4, 4))
case("deconvolution-target-odd", S.Deconvolution(x(), kernel=(5, 5), num_filter=2, stride=(3, 3), target_shape=(10, 12)), f(1, 2, 4, 4))
case("fullyconnected", S.FullyConnected(x(), num_hidden=4), f(2, 3, 2, 2))
case("fullyconnected-bare", S.FullyConnected(x(), num_hidden=4, no_bias=True), f(2, 5))
case("fullyconnected-last", S.FullyConnected(x(), num_hidden=4, flatten=False), f(2, 3, 5))
for kind in ("max", "avg", "sum"):
    pool = lambda **k: S.Pooling(x(), pool_type=kind, **k)
    case("pooling-%s" % kind, pool(kernel=(2, 2), stride=(2, 2)), f(1, 2, 7, 8))
    case("pooling-%s-pad" % kind, pool(kernel=(3, 3), stride=(2, 2), pad=(1, 1)), f(1, 2, 8, 7))
    case("pooling-%s-full" % kind, pool(kernel=(3, 3), stride=(2, 2), pooling_convention="full"), f(1, 2, 6, 8))
    case("pooling-%s-full-pad" % kind, pool(kernel=(3, 2), stride=(2, 3), pad=(1, 1), pooling_convention="full"), f(1, 2, 6, 9))
    case("pooling-%s-global" % kind, pool(kernel=(1, 1), global_pool=True), f(1, 2, 3, 4))
    case("pooling-%s-1d" % kind, pool(kernel=(3,), stride=(2,), pad=(1,)), f(1, 2, 8))
case("pooling-avg-bare", S.Pooling(x(), pool_type="avg", kernel=(3, 3), stride=(2, 2), pad=(1, 1), count_include_pad=False), f(1, 2, 8, 7))
case("pooling-avg-bare-full", S.Pooling(x(), pool_type="avg", kernel=(3, 3), stride=(2, 2), pad=(1, 1), count_include_pad=False, pooling_convention="full"), f(1, 2, 6, 7))
case("pooling-avg-3d", S.Pooling(x(), pool_type="avg", kernel=(2, 2, 2), stride=(1, 2, 1), pooling_convention="full"), f(1, 2, 3, 4, 5))
case("pooling-gap", S.Pooling(x(), pool_type="max", kernel=(1, 1), stride=(2, 2), pooling_convention="full"), f(1, 1, 6, 6))
for size in (1, 2, 3, 4, (2, 5), ()):
    case("adaptive-%s" % str(size).replace(" ", ""), C.AdaptiveAvgPooling2D(x(), output_size=size), f(1, 2, 6, 5))

# Normalisations.
case("batchnorm", S.BatchNorm(x(), fix_gamma=False, eps=1e-5), f(2, 3, 4, 4))
case("batchnorm-fixed", S.BatchNorm(x()), f(2, 3, 4, 4))
case("batchnorm-global", S.BatchNorm(x(), fix_gamma=False, use_global_stats=True, momentum=0.8), f(2, 3))
case("batchnorm-axis", S.BatchNorm(x(), fix_gamma=False, axis=-1), f(2, 3, 4))
case("syncbatchnorm", C.SyncBatchNorm(x(), fix_gamma=False, ndev=1, key="k"), f(2, 3, 4, 4))
case("instancenorm", S.InstanceNorm(x(), eps=1e-2), f(2, 3, 4, 4))
case("layernorm", S.LayerNorm(x()), f(2, 3, 5))
case("layernorm-axis", S.LayerNorm(x(), axis=1, eps=1e-3), f(2, 3, 5))
for mode in ("instance", "channel", "spatial"):
    case("l2-%s" % mode, S.L2Normalization(x(), mode=mode), f(2, 3, 4, 5))
case("l2-2", S.L2Normalization(x(), eps=1e-3), f(2, 6))
case("lrn", S.LRN(x(), nsize=5, alpha=0.5, beta=0.6, knorm=1.5), f(1, 7, 3, 2))
case("lrn-default", S.LRN(x(), nsize=3), f(1, 7, 3, 2) * 9)

# Values.
for kind in ("relu", "sigmoid", "tanh", "softrelu", "softsign"):
    case("activation-%s" % kind, S.Activation(x(), act_type=kind), f(2, 3, 4) * 3)
for kind in ("leaky", "elu", "selu", "gelu", "rrelu"):
    case("leakyrelu-%s" % kind, S.LeakyReLU(x(), act_type=kind, slope=0.3)[0], f(2, 3, 4) * 2)
case("leakyrelu-prelu", S.LeakyReLU(x(), S.Variable("gamma"), act_type="prelu"), f(2, 3, 4, 2), gamma=[0.1, 0.3, -0.2])
case("leakyrelu-prelu-one", S.LeakyReLU(x(), S.Variable("gamma"), act_type="prelu"), f(2, 3, 4, 2), gamma=[0.2])
for kind in ("relu", "sigmoid", "tanh", "softsign", "exp", "square", "abs", "negative", "floor", "ceil", "erf"):
    case("value-%s" % kind, getattr(S, kind)(x()), f(2, 5))
for kind in ("log", "sqrt", "rsqrt", "reciprocal"):
    case("value-%s" % kind, getattr(S, kind)(x()), np.abs(f(2, 5)) + 0.2)
case("clip", S.clip(x(), a_min=-0.5, a_max=6), f(3, 4) * 5)
case("scalars", ((x() + 1.5) * 2 - 0.25) / 3, f(2, 3))
case("scalars-reversed", 2 - 1.5 / (3 + x() * x()), f(2, 3))
case("scalars-power", (S.abs(x()) + 0.5) ** 1.5 + 2 ** x(), f(2, 3))
case("scalars-most", S.broadcast_add(S._internal._maximum_scalar(x(), scalar=0.1), S._internal._minimum_scalar(x(), scalar=-0.2)), f(2, 3))
case("scalars-nothing", (x() * 1 + 0) / 1, f(2, 3))
case("scalars-compared", S.concat(x() > 0, x() >= 1, x() < 0, x() <= 0.5, dim=1), f(2, 3).round())
case("scalars-old", (x() + 1.5) * 2 - 0.5, f(2, 3), {"_plus_scalar": "_PlusScalar", "_mul_scalar": "_MulScalar", "_minus_scalar": "_MinusScalar"})
two = lambda shape=(2, 3, 4), other=None: {"data": f(*shape), "other": f(*(other or shape))}
case("elemwise", (x() + x("other")) * (x() - x("other")) / (x("other") * x("other") + 2), two())
case("elemwise-old", x() + x("other"), two(), {"elemwise_add": "_Plus"})
case("elemwise-plus", x() * x("other"), two(), {"elemwise_mul": "_mul"})
case("elemwise-most", S.elemwise_add(S._internal._maximum(x(), x("other")), S._internal._minimum(x(), x("other")) * 3), two())
for kind in ("add", "sub", "mul", "div", "maximum", "minimum", "greater", "lesser_equal"):
    case("broadcast-%s" % kind, getattr(S, "broadcast_" + kind)(x(), x("other")), two((2, 3, 4), (2, 1, 1)))
case("broadcast-both", S.broadcast_mul(x(), x("other")), two((2, 1, 4), (1, 3, 1)))
case("broadcast-weight", S.broadcast_mul(x(), S.Variable("scale", shape=(1, 3, 1, 1))), f(2, 3, 4, 2), scale=f(1, 3, 1, 1))
case("add-n", S.add_n(x(), x("other"), x()), two())
case("where", S.where(x() > 0, x(), x("other")), two())
case("like", S.ones_like(x()) * 3 - S.zeros_like(x()), f(2, 3))
case("identity", S.BlockGrad(S.identity(S.Dropout(x(), p=0.3))), f(2, 3))
case("cast", S.FullyConnected(S.cast(x(), dtype="float32"), S.Cast(S.Variable("w"), dtype="float32"), num_hidden=2, no_bias=True), f(2, 3), w=f(2, 3))
case("softmax", S.softmax(x()), f(2, 3, 4))
case("softmax-axis", S.softmax(x(), axis=1, temperature=2.5), f(2, 3, 4))
case("log-softmax", S.log_softmax(x(), axis=1), f(2, 3, 4))
case("softmaxoutput", S.SoftmaxOutput(x(), name="softmax"), f(2, 5))
case("softmaxoutput-image", S.SoftmaxOutput(x(), name="softmax"), f(2, 3, 2, 2))
case("softmaxoutput-multi", S.SoftmaxOutput(x(), multi_output=True, name="softmax", grad_scale=2, use_ignore=True), f(2, 3, 2, 2))
case("softmaxoutput-preserve", S.SoftmaxOutput(x(), preserve_shape=True, name="softmax"), f(2, 3, 4))
case("softmaxactivation", S.SoftmaxActivation(x()), f(2, 3, 2, 2))
case("softmaxactivation-channel", S.SoftmaxActivation(x(), mode="channel"), f(2, 3, 2, 2))
case("regression", S.LogisticRegressionOutput(S.LinearRegressionOutput(x(), name="a"), name="b"), f(2, 3))

# Places.
for number, (codes, shape, more) in enumerate([
        ((0, -1), (2, 3, 4), {}), ((-1,), (2, 3, 4), {}), ((-2,), (2, 3, 4), {}), ((0, -2), (2, 3, 4), {}), ((-3, 0), (2, 3, 4), {}),
        ((0, -3, -2), (2, 3, 4, 2), {}), ((-4, 1, 2, -2), (2, 3, 4), {}), ((0, -4, -1, 2, 0), (2, 6, 3), {}), ((4, -1), (2, 3, 4), {}),
        ((0, 0, -1, 2), (2, 3, 4), {}), ((-1, 0), (2, 3, 4), {"reverse": True}), ((-1, 0, 0), (5, 2, 3, 4), {"reverse": True}), ((-3, -3), (2, 3, 4, 5), {})]):
    case("reshape-%d" % number, S.Reshape(x(), shape=codes, **more), f(*shape))
case("flatten", S.Flatten(x()), f(2, 3, 4, 2))
case("transpose", S.transpose(x(), axes=(0, 2, 1)), f(2, 3, 4))
case("transpose-default", S.transpose(x()), f(2, 3, 4))
case("swapaxis", S.SwapAxis(x(), dim1=1, dim2=2), f(2, 3, 4))
case("expand-dims", S.expand_dims(x(), axis=1), f(2, 3))
case("expand-dims-last", S.expand_dims(x(), axis=-1), f(2, 3))
case("squeeze", S.squeeze(x(), axis=1), f(2, 1, 3, 1))
case("squeeze-all", S.squeeze(x()), f(2, 1, 3, 1))
case("concat", S.Concat(x(), x("other"), x(), dim=1), two((2, 3, 4), (2, 2, 4)))
case("concat-last", S.concat(x(), x("other"), dim=-1), two((2, 3, 4), (2, 3, 1)))
case("stack", S.stack(x(), x("other"), axis=1), two())
case("tile", S.tile(x(), reps=(2, 1, 3)), f(2, 3, 4))
case("tile-few", S.tile(x(), reps=(3,)), f(2, 3))
case("broadcast-axis", S.broadcast_axis(x(), axis=(1, 2), size=(3, 2)), f(2, 1, 1))
case("broadcast-to", S.broadcast_to(x(), shape=(0, 3, 2)), f(2, 1, 1))
case("broadcast-like", S.broadcast_like(x(), x("other")), two((2, 1, 3), (2, 4, 3)))
case("slice-axis", S.slice_axis(x(), axis=1, begin=1, end=3), f(2, 4, 3))
case("slice-axis-none", S.slice_axis(x(), axis=-1, begin=-2, end=None), f(2, 4, 3))
case("slice", S.slice(x(), begin=(None, 1), end=(None, 3)), f(2, 4, 3))
case("slice-negative", S.slice(x(), begin=(0, -3, 0), end=(1, -1, 2)), f(2, 4, 3))
case("slice-like", S.slice_like(x(), x("other"), axes=(1, 2)), two((2, 5, 4), (3, 3, 2)))
case("slice-like-all", S.slice_like(x(), x("other")), two((2, 5, 4), (1, 3, 2)))
case("slicechannel", S.SliceChannel(x(), num_outputs=3, name="s"), f(2, 6, 2))
case("slicechannel-part", S.SliceChannel(x(), num_outputs=3, name="s")[2] * 2, f(2, 6, 2))
case("slicechannel-squeeze", S.split(x(), num_outputs=2, axis=1, squeeze_axis=True, name="s")[1], f(2, 2, 3))
case("crop", S.Crop(x(), offset=(1, 2), h_w=(3, 2)), f(1, 2, 5, 6))
case("crop-like", S.Crop(x(), x("other"), num_args=2, center_crop=True), two((1, 2, 7, 6), (1, 5, 4, 4)))
case("crop-like-offset", S.Crop(x(), x("other"), num_args=2, offset=(2, 1)), two((1, 2, 7, 6), (1, 5, 4, 4)))
pads = (0, 0, 0, 0, 1, 2, 2, 1)
case("pad-constant", S.Pad(x(), mode="constant", pad_width=pads, constant_value=1.5), f(1, 2, 4, 3))
case("pad-edge", S.Pad(x(), mode="edge", pad_width=pads), f(1, 2, 4, 3))
case("pad-reflect", S.Pad(x(), mode="reflect", pad_width=pads), f(1, 2, 4, 3))

# Reductions.
for kind in ("sum", "mean", "max", "min", "prod"):
    case("reduce-%s" % kind, getattr(S, kind)(x(), axis=(1, 3)), f(2, 3, 2, 4))
    case("reduce-%s-keep" % kind, getattr(S, kind)(x(), axis=-1, keepdims=True), f(2, 3, 4))
case("reduce-all", S.sum(x()), f(2, 3, 4))
case("reduce-exclude", S.mean(x(), axis=(0, 1), exclude=True), f(2, 3, 4))
case("norm", S.norm(x(), axis=1), f(2, 3, 4))
case("norm-1", S.norm(x(), ord=1, axis=(1, 2), keepdims=True), f(2, 3, 4))
case("argmax", S.argmax(x(), axis=1), f(2, 5, 3))
case("argmax-keep", S.argmax(x(), axis=1, keepdims=True), np.round(f(2, 5, 3)))

# Sizes.
case("bilinear", C.BilinearResize2D(x(), height=7, width=8), f(1, 2, 4, 3))
case("bilinear-small", C.BilinearResize2D(x(), height=2, width=3), f(1, 2, 5, 6))
case("bilinear-one", C.BilinearResize2D(x(), height=1, width=4), f(1, 2, 5, 6))
case("bilinear-centres", C.BilinearResize2D(x(), height=8, width=5, align_corners=False), f(1, 2, 4, 3))
case("bilinear-scale", C.BilinearResize2D(x(), scale_height=2.0, scale_width=1.5, mode="size"), f(1, 2, 4, 5))
case("upsampling", S.UpSampling(x(), scale=2, sample_type="nearest", num_args=1), f(1, 2, 3, 4))
case("upsampling-concat", S.UpSampling(x(), x("other"), scale=2, sample_type="nearest", num_args=2), two((1, 2, 4, 4), (1, 3, 2, 2)))
case("upsampling-sum", S.UpSampling(x(), x("other"), scale=2, sample_type="nearest", num_args=2, multi_input_mode="sum"), two((1, 2, 4, 4), (1, 2, 8, 8)))
case("upsampling-bilinear", S.UpSampling(x(), S.Variable("up_weight"), scale=2, sample_type="bilinear", num_filter=3, num_args=2), f(1, 3, 3, 4))
case("upsampling-bilinear-3", S.UpSampling(x(), S.Variable("up_weight"), scale=3, sample_type="bilinear", num_filter=2, num_args=2), f(1, 2, 3, 4))

# Boxes.
prior = lambda **k: C.MultiBoxPrior(x(), **k)
case("multibox-prior", prior(sizes=(0.3, 0.5), ratios=(1, 2, 0.5)), f(1, 2, 3, 4))
case("multibox-prior-steps", prior(sizes=(0.4,), ratios=(4, 0.3), steps=(0.2, 0.1), offsets=(0.3, 0.6)), f(2, 2, 4, 3))
case("multibox-prior-clip", prior(sizes=(0.9,), clip=True), f(1, 1, 3, 3))


def boxes(*shape):
    """Edges of boxes that overlap here and there."""
    low = random.random((*shape, 2)).astype(np.float32)
    return np.concatenate([low * 0.8, low * 0.8 + 0.05 + 0.4 * random.random((*shape, 2))], -1).astype(np.float32)


def scores(*shape):
    """Scores along the second axis, of which no two are near each other."""
    every = (random.permutation(int(np.prod(shape))) + 1.0) / (np.prod(shape) + 1)
    return every.reshape(shape).astype(np.float32)


decode = lambda **k: C.box_decode(x(), x("anchors"), **k)
case("box-decode", decode(std0=0.1, std1=0.1, std2=0.2, std3=0.2), f(2, 6, 4), anchors=np.abs(f(1, 6, 4)))
case("box-decode-corner", decode(std0=0.1, std1=0.3, std2=0.2, std3=0.4, format="corner", clip=0.1), f(1, 6, 4), anchors=boxes(1, 6))
rows = lambda n, classes: np.concatenate([random.integers(0, classes, (1, n, 1)), scores(1, n, 1), boxes(1, n)], -1).astype(np.float32)
nms = lambda **k: C.box_nms(x(), overlap_thresh=0.3, valid_thresh=0.2, id_index=0, score_index=1, coord_start=2, **k)
case("box-nms", nms(topk=12), rows(20, 3))
case("box-nms-all", nms(), rows(20, 3))
case("box-nms-force", nms(topk=15, force_suppress=True), rows(20, 3))
case("box-nms-none", C.box_nms(x(), valid_thresh=2, id_index=0), rows(6, 3))
detection = lambda **k: C.MultiBoxDetection(x("cls"), x("loc"), x("anchors"), name="d", **k)
detected = lambda n, classes: {"cls": scores(1, classes, n), "loc": f(1, n * 4)}
case("multibox-detection", detection(nms_threshold=0.3, threshold=0.2), detected(24, 4), anchors=boxes(1, 24))
case("multibox-detection-topk", detection(nms_threshold=0.3, nms_topk=9, clip=False, variances=(0.1, 0.2, 0.3, 0.1)), detected(24, 4), anchors=boxes(1, 24))
case("multibox-detection-force", detection(nms_threshold=0.2, force_suppress=True, threshold=0.5), detected(24, 3), anchors=boxes(1, 24))
case("multibox-detection-none", detection(threshold=0.999), detected(8, 3), anchors=boxes(1, 8))


def block(data, channels, stride, name):
    """ResNet's, of the second generation."""
    act = lambda data, own: S.Activation(S.BatchNorm(data, fix_gamma=False, eps=2e-5, name=name + own), act_type="relu", name=name + own + "_relu")
    one = act(data, "_bn1")
    body = S.Convolution(one, kernel=(3, 3), num_filter=channels, stride=stride, pad=(1, 1), no_bias=True, name=name + "_conv1")
    body = S.Convolution(act(body, "_bn2"), kernel=(3, 3), num_filter=channels, pad=(1, 1), no_bias=True, name=name + "_conv2")
    return body + S.Convolution(one, kernel=(1, 1), num_filter=channels, stride=stride, no_bias=True, name=name + "_sc")


net = S.BatchNorm(x(), fix_gamma=True, eps=2e-5, name="bn_data")
net = S.Convolution(net, kernel=(3, 3), num_filter=4, pad=(1, 1), no_bias=True, name="conv0")
net = S.Pooling(net, kernel=(3, 3), stride=(2, 2), pad=(1, 1), pool_type="max")
net = block(block(net, 4, (1, 1), "stage1"), 6, (2, 2), "stage2")
net = S.Pooling(net, global_pool=True, kernel=(7, 7), pool_type="avg", name="pool1")
net = S.SoftmaxOutput(S.FullyConnected(S.Flatten(net), num_hidden=5, name="fc1"), name="softmax")
case("resnet", net, f(2, 3, 12, 12))
inner = net.get_internals()
case("resnet-heads", S.Group([inner["stage1_bn2_relu_output"], net]), f(1, 3, 8, 8))

# Extents of one.
for height, width in ((3, 1), (1, 4)):
    case(f"bilinear-centres-{height}x{width}", C.BilinearResize2D(x(), height=height, width=width, align_corners=False), f(1, 2, 2, 8))

# The background of box_nms is the class -1 unless stated; the first version of pooling takes zeros beyond the image.
of_none = rows(8, 3)
of_none[0, ::2, 0] = -1
case("box-nms-no-class", nms(), of_none)
case("box-nms-background", nms(background_id=1, force_suppress=True), rows(8, 3))
case("box-nms-background-unread", C.box_nms(x(), valid_thresh=0.2, background_id=1), rows(6, 3))
for convention in "valid", "full":
    pooled = S.Pooling_v1(x(), kernel=(3, 3), stride=(2, 2), pad=(1, 1), pool_type="max", pooling_convention=convention)
    case(f"pooling-v1-{convention}", pooled, -np.abs(f(1, 2, 6, 7)))

# GluonCV's: ranks, places, counted numbers, stacks of matrices, samples in boxes.
for kind, more in {"value": {}, "indices": {"axis": 1}, "both": {"is_ascend": True}}.items():
    case(f"topk-{kind}", S.topk(x(), k=3, ret_typ=kind, name="t", **more), f(2, 5, 4))
case("topk-all", S.topk(x(), k=0, axis=0, ret_typ="both", name="t")[1], f(4, 3))
case("argsort", S.argsort(x(), axis=1), f(2, 5))
case("argsort-falling", S.argsort(x(), is_ascend=False, dtype="int32"), f(2, 3, 5))
places = np.float32([[[0, 1, 1], [1, 0, 1]], [[2, 0, 1], [2, 2, 0]]])
case("gather-nd", S.gather_nd(x(), x("places")), {"data": f(2, 3, 4), "places": places})
case("gather-nd-whole", S.gather_nd(x(), x("places")), {"data": f(2, 3), "places": places[:, 0]})
case("reverse", S.reverse(x(), axis=1), f(2, 3, 4))
case("reverse-two", S.flip(x(), axis=(0, 2)), f(2, 3, 4))
case("shape-array", S.broadcast_mul(S.cast(S.shape_array(x()), dtype="float32"), x("other")), {"data": f(2, 3, 4), "other": f(3)})
case("arange", S.broadcast_add(x(), S.arange(3, 11, step=2)), f(2, 4))
case("arange-stop", S.broadcast_add(x(), S.arange(3, repeat=2)), f(2, 6))
case("arange-falling", S.broadcast_mul(x(), S.arange(2, -1.5, step=-1.25)), f(2, 3))
case("repeat", S.repeat(x(), repeats=3, axis=1), f(2, 3, 4))
case("repeat-first", S.repeat(x(), repeats=2, axis=0), f(2, 3))
case("repeat-last", S.repeat(x(), repeats=2, axis=-1), f(2, 3, 2))
case("repeat-all", S.repeat(x(), repeats=2), f(2, 3))
case("reshape-like", S.reshape_like(x(), x("other")), two((2, 6), (3, 4)))
case("reshape-like-part", S.reshape_like(x(), x("other"), lhs_begin=1, lhs_end=None, rhs_begin=-2, rhs_end=None), two((2, 12), (5, 3, 4)))
case("reshape-like-inner", S.reshape_like(x(), x("other"), lhs_begin=1, lhs_end=2, rhs_begin=0, rhs_end=2), two((2, 6, 2), (2, 3, 4)))
for a, b in (False, False), (True, False), (False, True), (True, True):
    given = {"data": f(2, *((4, 3) if a else (3, 4))), "other": f(2, *((5, 4) if b else (4, 5)))}
    case(f"batch-dot-{int(a)}{int(b)}", S.batch_dot(x(), x("other"), transpose_a=a, transpose_b=b), given)
case("broadcast-ranks", S.broadcast_greater(S.broadcast_sub(x("other"), x()), x("other")), two((2, 3, 4), (3, 1)))
case("tile-more", S.tile(x(), reps=(2, 1, 1, 3)), f(2, 3))
whole = lambda name, kind="int64": S.cast(x(name), dtype=kind)
given = {"data": np.float32([7.9, -7.9, 9, -1.5, 12]), "other": np.float32([2, 2.7, -4, 3, 5.5])}
case("integers-div", S.cast(S.broadcast_div(whole("data"), whole("other")), dtype="float32") * 1.5, given)
case("integers-old", S.cast(whole("data", "int32") / whole("other", "int32"), dtype="float32") / 2, given)
case("integers-mod", S.cast(S.broadcast_mod(whole("data"), whole("other")), dtype="float32") + 0.5, given)
case("integers-like", S.gather_nd(x(), S.stack(S.cast(x("places"), dtype="int64"), S.ones_like(whole("places"), dtype="int64"))),
     {"data": f(3, 2), "places": np.float32([2.9, 0, 1])})
ranked = S.topk(S.Reshape(x(), shape=(0, -1)), k=4, ret_typ="both")
height, width = S.SliceChannel(S.shape_array(x()), num_outputs=3, axis=0)[1:]
of_row = S.broadcast_mod(S.cast(ranked[1], dtype="int64"), height * width)
case("integers-places", S.Group([ranked[0], S.cast(S.broadcast_div(of_row, width), dtype="float32"), S.broadcast_mod(of_row, width)]), f(2, 3, 5))
case("value-log2", S.log2(x()), np.abs(f(2, 5)) + 0.2)
case("broadcast-mod", S.broadcast_mod(x(), x("other")), {"data": f(4, 5) * 5, "other": np.float32([[2], [-2], [0], [0.75]])})
case("broadcast-mod-wide", S.broadcast_mod(x(), x("other")), {"data": np.float32([[7], [-7]]), "other": np.float32([[3, -3, 7, 0]])})
rois = np.concatenate([random.integers(0, 2, (5, 1)), np.sort(random.random((5, 2, 2)) * 12, 1).reshape(5, 4)], -1).astype(np.float32)
align = lambda **k: C.ROIAlign(x(), x("rois"), **k)
case("roi-align", align(pooled_size=(3, 2), spatial_scale=0.5, sample_ratio=2), {"data": f(2, 3, 6, 7), "rois": rois})
case("roi-align-all", align(pooled_size=(2, 2), spatial_scale=0.6), {"data": f(2, 1, 6, 7), "rois": rois})
case("roi-align-aligned", align(pooled_size=(2, 3), spatial_scale=0.5, sample_ratio=3, aligned=True), {"data": f(2, 2, 6, 7), "rois": rois})
# Of box n without an image MXNet's CPU writes one value, the n-th of all, so that the case has the first box without one, and
# replaces its values.
none, is_box = rois.copy(), np.ones((5, 1, 2, 2), np.float32)
none[0], is_box[0] = -1, 0
pooled = align(pooled_size=(2, 2), spatial_scale=0.5, sample_ratio=1)
case("roi-align-none", S.where(x("boxes") > 0, pooled, x("boxes")), {"data": f(2, 1, 6, 7), "rois": none, "boxes": is_box})
several = np.concatenate([rows(9, 3), rows(9, 3), rows(9, 3)])
case("box-nms-images", nms(topk=7), several)
case("box-nms-images-split", nms(), several[:2].reshape(1, 2, 9, 6))
case("box-nms-bare", nms(), several[0])
# Divisors without an end, and rests and divisors whose product no float holds.
ends = np.float32([[np.inf], [-np.inf], [3e38], [-3e38]])
case("broadcast-mod-ends", S.clip(S.broadcast_mod(x(), x("other")), -9, 9), {"data": np.float32([[1, -1, 0, 2.5, -7]]), "other": ends})
tiny = {"data": np.float32([[1e-30, -1e-30, 7e-30, 0]]), "other": np.float32([[3e-30], [-3e-30], [1e-30]])}
case("broadcast-mod-tiny", S.broadcast_mod(x(), x("other")) * 1e30, tiny)
# A condition of one axis chooses whole rows.
case("where-rows", S.where(x("rows") > 0, x(), x("other")), {"rows": f(3), **two((3, 2, 4))})
# Numbers without an end, as of TensorFlow's padding before a pooling.
padded = S.Pad(x(), mode="constant", pad_width=(0, 0, 0, 0, 0, 1, 0, 1), constant_value=-np.inf)
case("pad-infinite", S.Pooling(padded, pool_type="max", kernel=(2, 2), stride=(2, 2)), f(1, 2, 5, 7))
case("clip-infinite", S.clip(S.clip(x(), a_min=-np.inf, a_max=0.5), a_min=-0.5, a_max=np.inf), f(2, 5))

# Of equal scores, as detectors give by the hundred, the first box is the better one. MXNet's topk and argsort keep no such order of more
# than 16 values.
tied = rows(60, 3)
tied[..., 1] = np.ceil(tied[..., 1] * 3) / 4
case("box-nms-ties", nms(topk=30), tied)

# Boxes that overlap by exactly the threshold, or not at all where it is 0: box_nms keeps both, MultiBoxDetection one.
halves = np.array([[[0, 0.9, 0, 0, 2, 1], [0, 0.8, 0, 0, 1, 1], [1, 0.7, 4, 4, 5, 5], [0, 0.6, 4, 4, 5, 5]]], np.float32)
for threshold in 0.5, 0.49, 0, 1.5:
    case(f"box-nms-threshold-{threshold}", C.box_nms(x(), overlap_thresh=threshold, id_index=0), halves)
halved = {"cls": np.array([[[0.1, 0.2], [0.9, 0.8]]], np.float32), "loc": np.zeros((1, 8), np.float32)}
halves = np.array([[[0, 0, 0.5, 0.25], [0, 0, 0.25, 0.25]]], np.float32)
for threshold in 0.5, 0.51:
    case(f"multibox-detection-threshold-{threshold}", detection(nms_threshold=threshold), halved, anchors=halves)

np.savez_compressed(os.path.join(HERE, "mxnet.npz"), **arrays)
print(len({key.split("/")[0] for key in arrays}), "cases")
