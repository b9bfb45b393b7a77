"""NumPy, safetensors and h5py, by the extension of the file. FORMAT and ONLY (dtypes) come from the environment."""
import os

import h5py
import numpy as np
import safetensors.numpy

import common

FORMAT = os.environ.get("FORMAT", "npz")
ONLY = os.environ.get("ONLY", "float32 float64 float16 uint8 int8 int32 int64 bool").split()
NAME = os.environ.get("NAME", "layer%d/0")
AXES = int(os.environ.get("AXES", "0"))
TENSORS = int(os.environ.get("TENSORS", "5"))


def save(path, arrays):
    if FORMAT == "npz":
        np.savez(path, **arrays)
    elif FORMAT == "safetensors":
        safetensors.numpy.save_file(arrays, path)
    else:
        with h5py.File(path, "w") as file:
            for name, array in arrays.items():
                file["data/" + name] = array


def write(folder, random, count):
    made = {}
    for index in range(count):
        arrays = {}
        for i in range(int(random.integers(1, TENSORS + 1))):
            dims = common.shape(random, AXES or int(random.integers(1, 6)))
            arrays[NAME % i if "%" in NAME else NAME] = common.values(random, str(random.choice(ONLY)), dims)
        save(os.path.join(folder, "%03d.%s" % (index, FORMAT)), arrays)
        made["%03d" % index] = {name: common.row(array) for name, array in arrays.items()}
    return made


def read(path):
    if path.endswith(".npz"):
        loaded = dict(np.load(path))
        loaded.pop("__metadata__", None)
    elif path.endswith(".safetensors"):
        loaded = safetensors.numpy.load_file(path)
    else:
        loaded = {}
        with h5py.File(path, "r") as file:
            keep = lambda name, item: loaded.update({name: item[()]}) if isinstance(item, h5py.Dataset) else None
            file.get("data", file).visititems(keep)
    return {name: common.row(array) for name, array in loaded.items()}


common.main(write, read)
