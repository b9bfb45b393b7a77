"""What every side says of its files: a manifest, file name to tensor name to [dtype, shape, CRC-32 of the little-endian bytes]."""
import json
import sys
import zlib

import numpy as np


def row(array):
    array = np.asarray(array, order="C")
    return [str(array.dtype), list(array.shape), zlib.crc32(array.tobytes())]


def shape(random, axes):
    return tuple(int(n) for n in random.integers(1, 6, size=axes))


def values(random, dtype, dims):
    """Random bits for integers, and for floats too, but for NaN: a framework may change a NaN's payload."""
    if dtype == "bool":
        return random.integers(0, 2, size=dims).astype(bool)
    made = np.frombuffer(random.bytes(int(np.prod(dims)) * np.dtype(dtype).itemsize), dtype=dtype).reshape(dims).copy()
    return np.where(np.isnan(made), np.zeros((), dtype), made) if np.dtype(dtype).kind == "f" else made


def main(write, read):
    """`SIDE write FOLDER SEED COUNT` makes files and prints what lies in them; `SIDE read FILE...` prints what it finds."""
    verb, *arguments = sys.argv[1:]
    if verb == "write":
        folder, seed, count = arguments
        print(json.dumps(write(folder, np.random.default_rng(int(seed)), int(count))))
    else:
        found = {}
        for path in arguments:
            key = path.rsplit("/", 1)[-1].split(".", 1)[0]
            try:
                found[key] = read(path)
            except Exception as error:  # told as data: one refused file must not hide the others
                found[key] = {"REFUSED": str(error)[:200]}
        print(json.dumps(found))
