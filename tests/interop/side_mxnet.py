"""MXNet's own `nd.save` and `nd.load`: dense arrays of every dtype, row_sparse and csr, named."""
import os

import mxnet as mx
import numpy as np

import common

DTYPES = ["float32", "float64", "float16", "uint8", "int8", "int32", "int64", "bool"]

if "NPSHAPE" in os.environ:  # with it MXNet reads and writes records of version 3, without it of version 2; MXNet 2 starts with it
    mx.util.set_np_shape(True) if os.environ["NPSHAPE"] == "1" else mx.npx.reset_np()
SPARSE = os.environ.get("NPSHAPE") != "1"  # version 3 has dense arrays only


def parts(name, array):
    """An array as blob names its parts: a dense one is itself, a sparse one has keys."""
    if array.stype == "default":
        return {name: common.row(array.asnumpy())}
    found = {name + "#values": common.row(array.data.asnumpy()), name + "#indices": common.row(array.indices.asnumpy())}
    if array.stype == "csr":
        found[name + "#indptr"] = common.row(array.indptr.asnumpy())
    return found


def array(random):
    kind = random.integers(0, 6)
    if kind == 0 and SPARSE:
        dense = random.standard_normal((int(random.integers(2, 9)), 5)).astype("float32")
        dense[random.integers(0, 2, size=dense.shape[0]).astype(bool)] = 0
        dense[0, 0] = 1
        return mx.nd.array(dense).tostype(str(random.choice(["row_sparse", "csr"])))
    dtype = str(random.choice(DTYPES))
    made = common.values(random, dtype, common.shape(random, int(random.integers(1, 6))))
    return mx.nd.array(made, dtype=made.dtype)


def write(folder, random, count):
    made = {}
    for index in range(count):
        arrays = {"arg:t%d" % i: array(random) for i in range(int(random.integers(1, 6)))}
        mx.nd.save(os.path.join(folder, "%03d.params" % index), arrays)
        made["%03d" % index] = {key: r for name, a in arrays.items() for key, r in parts(name, a).items()}
    return made


def read(path):
    loaded = mx.nd.load(path)
    named = loaded.items() if isinstance(loaded, dict) else (("@%d" % i, a) for i, a in enumerate(loaded))
    return {key: r for name, a in named for key, r in parts(name, a).items()}


common.main(write, read)
