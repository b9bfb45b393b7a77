"""Writes ops.npz: for each operator and edge a model of one or a few nodes, its inputs, and what onnxruntime 1.32.0 computes.

    pip install onnx==1.23.2 onnxruntime==1.32.0 && python make_ops.py

`CASE/model` is the file as bytes, `CASE/in/NAME` and `CASE/out/NAME` are arrays.
"""
import os

import numpy as np
import onnx
import onnxruntime as ort
from onnx import TensorProto, helper, numpy_helper

HERE = os.path.dirname(os.path.abspath(__file__))
random = np.random.default_rng(26)
node = helper.make_node
arrays = {}
options = ort.SessionOptions()
options.log_severity_level = 4


def f(*shape):
    return random.standard_normal(shape).astype(np.float32)


def i64(*values):
    return np.array(values, np.int64)


def case(name, nodes, x=None, constants=None, outputs=("y",), opset=17):
    inputs = x if isinstance(x, dict) else {"x": f(1, 4, 5, 6) if x is None else x}
    kinds = {np.dtype(np.float32): TensorProto.FLOAT, np.dtype(np.int64): TensorProto.INT64}
    given = [helper.make_tensor_value_info(k, kinds[v.dtype], v.shape) for k, v in inputs.items()]
    constants = [numpy_helper.from_array(np.asarray(v), k) for k, v in (constants or {}).items()]
    bare = [helper.make_empty_tensor_value_info(output) for output in outputs]
    graph = helper.make_graph(nodes, "g", given, bare, constants)
    model = helper.make_model(graph, opset_imports=[helper.make_opsetid("", opset)], ir_version=8)
    found = ort.InferenceSession(model.SerializeToString(), options, providers=["CPUExecutionProvider"]).run(None, inputs)
    for output, value in zip(model.graph.output, found):
        output.CopyFrom(helper.make_tensor_value_info(output.name, kinds[value.dtype], value.shape))
        arrays["%s/out/%s" % (name, output.name)] = value
    # A window that begins beyond the padding is dropped by onnxruntime and counted by onnx's shape inference.
    onnx.checker.check_model(model, full_check="ceil" not in name)
    arrays[name + "/model"] = np.frombuffer(model.SerializeToString(), np.uint8)
    arrays.update({"%s/in/%s" % (name, k): v for k, v in inputs.items()})


def one(name, kind, x=None, constants=None, **attributes):
    case(name, [node(kind, ["x", *(constants or {})], ["y"], **attributes)], x, constants)


w = lambda *shape: {"w": f(*shape)}
one("conv", "Conv", constants={"w": f(3, 4, 3, 3), "b": f(3)}, kernel_shape=[3, 3])
one("conv-groups-strides-dilations", "Conv", f(2, 4, 9, 8), {"w": f(6, 2, 3, 2), "b": f(6)}, group=2, strides=[2, 1], dilations=[2, 3], pads=[1, 2, 0, 1])
one("conv-depthwise", "Conv", constants=w(8, 1, 3, 3), group=4, pads=[1, 1, 1, 1])
one("conv-3d", "Conv", f(1, 2, 4, 5, 3), {"w": f(2, 2, 3, 2, 2), "b": f(2)}, pads=[1, 0, 1, 0, 1, 0], strides=[2, 1, 1])
one("conv-transpose", "ConvTranspose", f(1, 4, 3, 4), {"w": f(4, 2, 3, 3), "b": f(2)}, strides=[2, 2], pads=[1, 1, 1, 1])
one("conv-transpose-groups", "ConvTranspose", f(1, 4, 3, 4), {"w": f(4, 3, 2, 4), "b": f(6)}, group=2, strides=[2, 3], pads=[0, 1, 1, 2], dilations=[1, 2])
one("conv-transpose-output-padding", "ConvTranspose", f(1, 4, 3, 3), w(4, 1, 3, 3), group=4, strides=[2, 2], output_padding=[1, 1])
both = ("y", "i")
case("max-pool", [node("MaxPool", ["x"], both, kernel_shape=[2, 3], strides=[2, 2], pads=[0, 1, 0, 1])], outputs=both)
case("max-pool-end-pads", [node("MaxPool", ["x"], ["y"], kernel_shape=[3, 3], strides=[2, 2], pads=[0, 0, 1, 1])], f(1, 2, 6, 8))
case("max-pool-ties", [node("MaxPool", ["x"], both, kernel_shape=[2, 2], strides=[1, 1])], np.round(f(2, 2, 4, 4)), outputs=both)
one("max-pool-ceil", "MaxPool", kernel_shape=[2, 2], strides=[3, 4], ceil_mode=1)
one("max-pool-dilations", "MaxPool", f(1, 2, 7, 7), kernel_shape=[2, 2], dilations=[2, 3])
one("max-pool-3d", "MaxPool", f(1, 2, 4, 5, 4), kernel_shape=[2, 2, 3], strides=[2, 2, 1])
one("average-pool", "AveragePool", kernel_shape=[3, 3], strides=[2, 2], pads=[1, 1, 1, 1])
one("average-pool-padding-counts", "AveragePool", kernel_shape=[3, 3], strides=[2, 2], pads=[1, 1, 1, 1], count_include_pad=1)
one("average-pool-ceil", "AveragePool", f(1, 2, 6, 8), kernel_shape=[3, 3], strides=[2, 2], ceil_mode=1, count_include_pad=1)
one("average-pool-ceil-padded", "AveragePool", f(1, 2, 6, 7), kernel_shape=[3, 2], strides=[2, 3], pads=[1, 1, 1, 1], ceil_mode=1, count_include_pad=1)
one("average-pool-ceil-bare", "AveragePool", f(1, 2, 6, 7), kernel_shape=[3, 2], strides=[2, 3], pads=[1, 1, 1, 1], ceil_mode=1)
one("average-pool-ceil-beyond", "AveragePool", f(1, 1, 4, 4), kernel_shape=[2, 2], strides=[3, 3], pads=[0, 0, 1, 1], ceil_mode=1, count_include_pad=1)
one("global-average-pool", "GlobalAveragePool")
one("global-max-pool", "GlobalMaxPool", f(2, 3, 2, 3, 2))
one("lrn", "LRN", f(1, 7, 2, 2), size=5, alpha=0.5, beta=0.75, bias=2.0)
one("gemm", "Gemm", f(3, 4), {"w": f(5, 4), "b": f(5)}, transB=1)
one("gemm-a", "Gemm", f(4, 3), {"w": f(4, 5), "b": f(3, 1)}, transA=1, alpha=0.5, beta=2.0)
one("matmul", "MatMul", f(2, 3, 4), w(4, 5))
one("matmul-batches", "MatMul", f(2, 1, 3, 4), w(3, 4, 2))
one("batch-normalization", "BatchNormalization", constants={"s": f(4), "b": f(4), "m": f(4), "v": abs(f(4)) + 0.1}, epsilon=1e-3)
one("instance-normalization", "InstanceNormalization", f(2, 3, 4, 2), {"s": f(3), "b": f(3)}, epsilon=1e-9)
for kind, attributes in {
    "Relu": {}, "LeakyRelu": {"alpha": 0.1}, "Elu": {"alpha": 1.5}, "Sigmoid": {}, "Tanh": {}, "Abs": {}, "Softplus": {}, "Exp": {}, "Neg": {},
    "HardSigmoid": {"alpha": 0.3}, "Identity": {}, "Floor": {}, "Ceil": {}, "Reciprocal": {},
}.items():
    one(kind.lower(), kind, f(2, 3, 4) * 3, **attributes)
one("log", "Log", abs(f(2, 5)) + 0.1)
one("sqrt", "Sqrt", abs(f(2, 5)))
one("prelu", "PRelu", constants=w(4, 1, 1))
one("clip", "Clip", constants={"a": np.float32(-0.5), "b": np.float32(0.5)})
case("clip-above", [node("Clip", ["x", "", "b"], ["y"])], constants={"b": np.float32(0.5)})
for kind in ("Add", "Sub", "Mul", "Div"):
    one(kind.lower(), kind, constants=w(4, 1, 1))
    one(kind.lower() + "-same", kind, constants=w(1, 4, 5, 6))
one("mul-widens", "Mul", f(3, 1), w(2, 1, 4))
one("div-integers", "Div", i64(7, -7, 9, -1), {"w": i64(2, 2, -4, 3)})
one("pow", "Pow", abs(f(3, 4)), {"w": np.float32(0.75)})
one("pow-whole", "Pow", f(3, 4), {"w": np.float32(3)})
one("mod", "Mod", i64(7, -7, 9, -1), {"w": i64(4, 4, -4, 5)})
one("mod-floats", "Mod", f(6) * 4, {"w": f(1)}, fmod=1)
one("max", "Max", constants={"v": f(4, 1, 1), "w": f(1)})
one("min", "Min", constants=w(1, 1, 5, 6))
one("sum", "Sum", constants={"v": f(1, 4, 5, 6), "w": f(1, 4, 5, 6)})
one("mean", "Mean", constants={"v": f(1, 4, 5, 6), "w": f(1, 4, 5, 6)})
case("greater-cast", [node("Greater", ["x", "t"], ["g"]), node("Cast", ["g"], ["y"], to=1)], np.round(f(3, 4)), {"t": np.float32(0)})
case("less-not", [node("Less", ["x", "t"], ["g"]), node("Not", ["g"], ["n"]), node("Cast", ["n"], ["y"], to=7)], f(3, 4), {"t": np.float32(0)})
one("cast-truncates", "Cast", f(3, 4) * 3, to=7)
case("where", [node("Greater", ["x", "t"], ["g"]), node("Where", ["g", "x", "t"], ["y"])], constants={"t": f(6)})
one("softmax", "Softmax", axis=1)
one("softmax-last", "Softmax", f(2, 3, 4) * 9)
one("logsoftmax", "LogSoftmax", axis=-2)
case("concat", [node("Concat", ["x", "w", "x"], ["y"], axis=-3)], constants=w(1, 2, 5, 6))
three = ("a", "b", "c")
case("split", [node("Split", ["x", "s"], three, axis=1)], f(2, 6, 3), {"s": i64(1, 2, 3)}, three)
case("split-equal", [node("Split", ["x"], three, axis=-1)], f(2, 6), {}, three)
one("reshape", "Reshape", constants={"s": i64(0, 2, -1)})
one("flatten", "Flatten", axis=2)
one("flatten-negative", "Flatten", axis=-1)
one("transpose", "Transpose", perm=[0, 2, 3, 1])
one("transpose-all", "Transpose")
one("tile", "Tile", f(2, 3), {"r": i64(2, 3)})
one("expand", "Expand", f(3, 1), {"s": i64(2, 1, 4)})
one("slice", "Slice", constants={"a": i64(1, -4), "b": i64(4, 9999), "c": i64(2, -1)})
one("slice-steps", "Slice", constants={"a": i64(0, -1), "b": i64(5, -9999), "c": i64(2, 3), "d": i64(2, -2)})
one("pad", "Pad", constants={"p": i64(0, 0, 1, 2, 0, 1, 0, 1), "v": np.float32(7)})
one("pad-reflect", "Pad", constants={"p": i64(0, 0, 2, 1, 0, 0, 1, 3)}, mode="reflect")
one("pad-edge", "Pad", constants={"p": i64(0, 0, 2, 1, 0, 0, 1, -1)}, mode="edge")
one("depth-to-space", "DepthToSpace", f(1, 8, 2, 3), blocksize=2)
one("depth-to-space-crd", "DepthToSpace", f(1, 8, 2, 3), blocksize=2, mode="CRD")
for name, attributes in {
    "align-corners": {"mode": "linear", "coordinate_transformation_mode": "align_corners"},
    "half-pixel": {"mode": "linear", "coordinate_transformation_mode": "half_pixel"},
    "asymmetric": {"mode": "linear", "coordinate_transformation_mode": "asymmetric"},
    "nearest": {"mode": "nearest", "coordinate_transformation_mode": "asymmetric", "nearest_mode": "floor"},
}.items():
    case("resize-" + name, [node("Resize", ["x", "", "", "s"], ["y"], **attributes)], constants={"s": i64(1, 4, 8, 11)})
    case("resize-smaller-" + name, [node("Resize", ["x", "", "", "s"], ["y"], **attributes)], constants={"s": i64(1, 4, 3, 1)})
case("resize-scales", [node("Resize", ["x", "", "s"], ["y"], mode="nearest", coordinate_transformation_mode="asymmetric", nearest_mode="floor")], constants={"s": np.float32([1, 1, 2, 3])})
for kind in ("ReduceMean", "ReduceL1", "ReduceL2", "ReduceSumSquare", "ReduceMax", "ReduceMin", "ReduceProd"):
    one(kind.lower(), kind, axes=[1, -1], keepdims=0)
    one(kind.lower() + "-kept", kind, axes=[2])
one("reducesum", "ReduceSum", constants={"a": i64(-2, 1)}, keepdims=0)
one("reducesum-all", "ReduceSum")
one("argmax", "ArgMax", np.round(f(2, 5, 3)), axis=1)
one("argmax-bare", "ArgMax", np.round(f(2, 5, 3)), axis=-1, keepdims=0)
one("argmax-last", "ArgMax", np.round(f(2, 5, 3)), axis=1, select_last_index=1)
case("topk", [node("TopK", ["x", "k"], both, axis=1)], np.round(f(2, 7, 3) * 2), {"k": i64(4)}, both)
case("topk-least", [node("TopK", ["x", "k"], both, largest=0)], f(2, 7), {"k": i64(3)}, both)
one("gather", "Gather", constants={"i": np.array([[3, 0], [-1, 2]], np.int64)}, axis=1)
one("gather-scalar", "Gather", f(3, 4), {"i": np.int64(1)}, axis=0)
one("gather-nd", "GatherND", constants={"i": np.array([[0, 1, 2], [0, -1, 4]], np.int64)})
case("gather-nd-empty", [node("GatherND", ["x", "i"], ["y"])], {"x": f(3, 2), "i": np.zeros((0, 2), np.int64)})
one("scatter-elements", "ScatterElements", f(2, 5), {"i": np.array([[0, 4, 2], [1, -1, 0]], np.int64), "u": f(2, 3)}, axis=1)
one("shape", "Shape")
case("squeeze", [node("Unsqueeze", ["x", "a"], ["t"]), node("Squeeze", ["t", "b"], ["u"]), node("Squeeze", ["u"], ["y"])], f(1, 3, 1), {"a": i64(0, -1), "b": i64(-1)})
case("constant", [node("Constant", [], ["c"], value=numpy_helper.from_array(f(6))), node("Add", ["x", "c"], ["y"])])
boxes = np.float32([[[0, 0, 1, 1], [0, 0.1, 1, 1.1], [1, 1, 0, 0], [0, 10, 1, 11], [0, 0.45, 1, 1.45]]])
scores = np.float32([[[0.9, 0.75, 0.6, 0.95, 0.9], [0.3, 0.2, 0.5, 0.5, 0.1]]])
suppress = {"boxes": boxes, "scores": scores}
names = ["boxes", "scores", "k", "i", "s"]
case("nms", [node("NonMaxSuppression", names, ["y"])], suppress, {"k": i64(10), "i": np.float32([0.5]), "s": np.float32([0.2])})
case("nms-few", [node("NonMaxSuppression", names, ["y"])], suppress, {"k": i64(2), "i": np.float32([0.5]), "s": np.float32([0])})
case("nms-none", [node("NonMaxSuppression", names, ["y"])], suppress, {"k": i64(9), "i": np.float32([0.5]), "s": np.float32([1])})
case("nms-centers", [node("NonMaxSuppression", names, ["y"], center_point_box=1)], {"boxes": abs(f(2, 6, 4)), "scores": f(2, 1, 6)}, {"k": i64(6), "i": np.float32([0.1]), "s": np.float32([-1])})
sequence = ("y", "h", "c")
case("lstm", [node("LSTM", ["x", "w", "r", "b"], sequence, hidden_size=4)], f(5, 2, 3), {"w": f(1, 16, 3), "r": f(1, 16, 4), "b": f(1, 32)}, sequence)
case("lstm-state", [node("LSTM", ["x", "w", "r", "", "", "h0", "c0"], sequence, hidden_size=4)], f(3, 1, 3), {"w": f(1, 16, 3), "r": f(1, 16, 4), "h0": f(1, 1, 4), "c0": f(1, 1, 4)}, sequence)
for opset in (13, 15):
    case("softmax-%d" % opset, [node("Softmax", ["x"], ["y"], axis=1)], opset=opset)
one("erf", "Erf", np.linspace(-5, 5, 41, dtype=np.float32).reshape(1, 41))
rois = {"r": np.float32([[0, 0, 3, 4], [-2, 1, 9, 3], [2, 2, 2.2, 2.1]]), "b": i64(1, 0, 1)}
for mode in ("half_pixel", "output_half_pixel"):
    for ratio in (0, 2):
        attributes = {"output_height": 2, "output_width": 3, "sampling_ratio": ratio, "spatial_scale": 0.75}
        one("roi-align-%s-%d" % (mode, ratio), "RoiAlign", f(2, 2, 5, 6), rois, coordinate_transformation_mode=mode, **attributes)

np.savez_compressed(os.path.join(HERE, "ops.npz"), **arrays)
print(len([name for name in arrays if name.endswith("/model")]), "cases")
