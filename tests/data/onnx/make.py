"""Writes the ONNX models of this folder, and truth.json: the name, dtype, shape and SHA-256 of the values of each tensor
that onnx itself reads.

    pip install onnx==1.23.2 ml_dtypes==0.6.0 && python make.py
"""
import hashlib
import json
import os

import numpy as np
import onnx
from ml_dtypes import bfloat16
from onnx import TensorProto, helper, numpy_helper

HERE = os.path.dirname(os.path.abspath(__file__))
BITS = {TensorProto.FLOAT16: np.float16, TensorProto.BFLOAT16: bfloat16}
NATIVE = {
    "f32": TensorProto.FLOAT, "f64": TensorProto.DOUBLE, "f16": TensorProto.FLOAT16, "bf16": TensorProto.BFLOAT16,
    "i8": TensorProto.INT8, "i16": TensorProto.INT16, "i32": TensorProto.INT32, "i64": TensorProto.INT64,
    "u8": TensorProto.UINT8, "u16": TensorProto.UINT16, "u32": TensorProto.UINT32, "u64": TensorProto.UINT64,
    "bool": TensorProto.BOOL,
}


def values(kind, shape):
    """Values of both signs, and the least and the greatest where the type has them."""
    dtype = helper.tensor_dtype_to_np_dtype(kind)
    count = int(np.prod(shape))
    if kind == TensorProto.BOOL:
        return (np.arange(count) % 3 == 0).reshape(shape)
    if np.issubdtype(dtype, np.integer):
        least, most = np.iinfo(dtype).min, np.iinfo(dtype).max
        cells = [least, most, 0, 1, 127, most // 3, least // 3][:count]
        return np.array(cells + [7] * (count - len(cells)), dtype).reshape(shape)
    return (np.arange(count) * 0.37 - 1.5).astype(dtype).reshape(shape)


def typed(name, kind, array):
    """The tensor with its values in the typed field: half floats as their bits."""
    cells = array.flatten().tolist() if kind not in BITS else array.flatten().astype(BITS[kind])
    return helper.make_tensor(name, kind, array.shape, cells)


def raw(name, kind, array):
    tensor = numpy_helper.from_array(np.ascontiguousarray(array).reshape(array.shape), name)
    assert tensor.data_type == kind and tensor.HasField("raw_data"), name
    return tensor


def model(initializers, nodes=(), inputs=(), outputs=(), **words):
    graph = helper.make_graph(list(nodes), "g", list(inputs), list(outputs), initializers)
    return helper.make_model(graph, producer_name="blob", opset_imports=[helper.make_opsetid("", 17)], ir_version=8, **words)


def net():
    """A convolution, a ReLU, a Gemm; metadata and descriptions."""
    weights = {
        "conv1.weight": np.arange(54, dtype=np.float32).reshape(2, 3, 3, 3) / 54, "conv1.bias": np.float32([0.5, -0.5]),
        "fc.weight": np.arange(40, dtype=np.float32).reshape(5, 8) / 40, "fc.bias": np.zeros(5, np.float32),
    }
    nodes = [
        helper.make_node("Conv", ["data", "conv1.weight", "conv1.bias"], ["conv1"], "conv1", kernel_shape=[3, 3]),
        helper.make_node("Relu", ["conv1"], ["relu1"], "relu1"),
        helper.make_node("Flatten", ["relu1"], ["flat"], "flat"),
        helper.make_node("Gemm", ["flat", "fc.weight", "fc.bias"], ["prob"], "fc", transB=1),
    ]
    tensors = [raw(name, TensorProto.FLOAT, array) for name, array in weights.items()]
    tensors[0].doc_string = "the filters"
    made = model(
        tensors, nodes,
        [helper.make_tensor_value_info("data", TensorProto.FLOAT, [1, 3, 4, 4])],
        [helper.make_tensor_value_info("prob", TensorProto.FLOAT, [1, 5])],
        doc_string="a small net", producer_version="1.0", domain="org.example", model_version=3,
    )
    helper.set_model_props(made, {"author": "nobody", "license": "CC0"})
    return made


def varint(number):
    number &= (1 << 64) - 1
    out = bytearray()
    while number > 127:
        out.append(number & 127 | 128)
        number >>= 7
    return bytes(out + bytes([number]))


def field(number, content):
    return varint(number << 3 | 2) + varint(len(content)) + content


def unpacked():
    """What protobuf's parsers accept and its writers do not make: every number with a key of its own, the graph before
    the versions, the fields of a tensor from last to first, a graph in two parts."""
    floats = b"".join(varint(4 << 3 | 5) + np.float32(x).tobytes() for x in (1.5, -2.5, 3.5))
    doubles = b"".join(varint(10 << 3 | 1) + np.float64(x).tobytes() for x in (0.25, -8.0))
    ints = b"".join(varint(7 << 3) + varint(x) for x in (1, -1, 300)) + field(7, varint(5) + varint(-7))
    dims = lambda *all: b"".join(varint(1 << 3) + varint(x) for x in all)
    tensors = [
        field(8, b"floats") + floats + varint(2 << 3) + varint(1) + dims(3),
        doubles + field(8, b"doubles") + varint(2 << 3) + varint(11) + field(1, varint(1) + varint(2)),
        ints + dims(5) + varint(2 << 3) + varint(7) + field(8, b"ints"),
    ]
    first, second = [b"".join(field(5, tensor) for tensor in part) for part in (tensors[:2], tensors[2:])]
    return field(7, field(2, b"g") + first) + varint(1 << 3) + varint(8) + field(7, second) + field(8, varint(2 << 3) + varint(17))


def truth(path):
    found = {}
    for tensor in onnx.load(path).graph.initializer:
        array = numpy_helper.to_array(tensor)
        if tensor.data_type == TensorProto.STRING:
            found[tensor.name] = ["STRING", list(tensor.dims), None]
            continue
        kind = {of: name for name, of in NATIVE.items()}.get(tensor.data_type, TensorProto.DataType.Name(tensor.data_type))
        digest = hashlib.sha256(np.ascontiguousarray(array).tobytes()).hexdigest()
        found[tensor.name] = [kind, list(tensor.dims), digest if tensor.data_type in NATIVE.values() else None]
    return found


def main():
    shapes = {"i64": (7,), "bool": (2, 2, 2)}
    arrays = {name: (kind, values(kind, shapes.get(name, (2, 4)))) for name, kind in NATIVE.items()}
    odd = {
        "a scalar": (TensorProto.FLOAT, np.array(2.5, np.float32)), "nothing": (TensorProto.INT64, np.zeros((0, 3), np.int64)),
        "größe/Δ:0": (TensorProto.UINT8, np.arange(6, dtype=np.uint8).reshape(1, 2, 3)),
    }
    all = {**arrays, **odd}
    files = {
        "raw.onnx": model([raw(name, *of) for name, of in all.items()]),
        "typed.onnx": model([typed(name, *of) for name, of in all.items()]),
        "net.onnx": net(),
    }
    foreign = [
        helper.make_tensor("text", TensorProto.STRING, [2], [b"one", b"three"]),
        helper.make_tensor("f8", TensorProto.FLOAT8E4M3FN, [3], [0.5, 1.0, -2.0]),
        helper.make_tensor("i4", TensorProto.INT4, [3], [1, -2, 7]),
        helper.make_tensor("c64", TensorProto.COMPLEX64, [2], [1 + 2j, -1j]),
        raw("weight", TensorProto.FLOAT, np.float32([1, 2])),
    ]
    files["foreign.onnx"] = model(foreign)
    for name, made in files.items():
        onnx.save(made, os.path.join(HERE, name))
    with open(os.path.join(HERE, "unpacked.onnx"), "wb") as out:
        out.write(unpacked())
    outside(all)
    os.makedirs(os.path.join(HERE, "pair"), exist_ok=True)
    # As exporters write a large model: the values of all tensors in one file of the model's name.
    beside = {"save_as_external_data": True, "location": "net.onnx.data", "size_threshold": 0}
    for path in ["net.onnx", "net.onnx.data"]:  # onnx appends to the values that are there
        if os.path.exists(os.path.join(HERE, "pair", path)):
            os.remove(os.path.join(HERE, "pair", path))
    onnx.save_model(net(), os.path.join(HERE, "pair/net.onnx"), **beside)
    others = ["torch.onnx", "unpacked.onnx", "external/model.onnx", "pair/net.onnx"]
    found = {name: truth(os.path.join(HERE, name)) for name in [*files, *others]}
    with open(os.path.join(HERE, "truth.json"), "w") as out:
        json.dump(found, out, indent=1, ensure_ascii=False)
        out.write("\n")


def outside(all):
    """A model whose values lie in two other files, one of them in a folder, by an offset that is no multiple of the
    element; one tensor stays in the model."""
    folder = os.path.join(HERE, "external")
    tensors, files = [], {"weights.bin": b"\7\7\7", "sub/more.bin": b""}
    for place, (name, (kind, array)) in enumerate(all.items()):
        location = ["weights.bin", "./sub/more.bin"][place % 2]
        path = location.removeprefix("./")
        tensor = raw(name, kind, array)
        content = tensor.raw_data
        pairs = {"location": location, "offset": str(len(files[path])), "length": str(len(content))}
        # Both may be missing: the values begin with the file, and end with it.
        if len(files[path]) == 0:
            del pairs["offset"]
        if place >= len(all) - 2:
            del pairs["length"]
        if name == "u16":
            pairs = {}
        else:
            files[path] += content
            tensor.ClearField("raw_data")
            tensor.data_location = TensorProto.EXTERNAL
        for key, value in pairs.items():
            tensor.external_data.add(key=key, value=value)
        tensors.append(tensor)
    with open(os.path.join(folder, "model.onnx"), "wb") as out:
        out.write(model(tensors).SerializeToString())
    for path, content in files.items():
        with open(os.path.join(folder, path), "wb") as out:
            out.write(content)


if __name__ == "__main__":
    main()
