"""What every side says of its files: a manifest, file name to tensor name to [dtype, shape, CRC-32 of the little-endian bytes]."""
import json
import os
import subprocess
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


def told(answer, *arguments):
    """The answer of a child, or words: OpenCV 5 may die, or leave memory in which a later net computes other numbers."""
    reader, writer = os.pipe()
    child = os.fork()
    if child == 0:
        try:
            found = answer(*arguments)
        except Exception as error:  # of any of the libraries
            found = " ".join(str(error).split())[-200:]
        os.write(writer, json.dumps(found).encode())
        os._exit(0)
    os.close(writer)
    with os.fdopen(reader) as file:
        text = file.read()
    status = os.waitpid(child, 0)[1]
    return "signal %d" % os.WTERMSIG(status) if os.WIFSIGNALED(status) else json.loads(text)


def compared(blob, path):
    """The greatest relative difference of a net of MXNet's in onnxruntime from the outputs beside it (NAME.npz), or words."""
    import onnx
    import onnxruntime
    arrays, model = np.load(path + ".npz"), path + ".onnx"
    shape = "data=" + ",".join(map(str, arrays["data"].shape))
    for words in ["convert", path + ".params", "--input", shape, "-o", model, "--force"], ["verify", model, "--against", path + ".params"]:
        done = subprocess.run([blob, *words], capture_output=True, text=True)
        if done.returncode:
            return " ".join((done.stdout + done.stderr).split())[-300:]
    onnx.checker.check_model(model, full_check=True)
    options = onnxruntime.SessionOptions()
    options.log_severity_level = 4
    session = onnxruntime.InferenceSession(model, options, providers=["CPUExecutionProvider"])
    most = 0.0
    for place, found in enumerate(session.run(None, {"data": arrays["data"]})):
        wanted = arrays["out%d" % place]
        if found.shape != wanted.shape:
            return "output %d: %s, not %s" % (place, found.shape, wanted.shape)
        most = max(most, float(np.max(np.abs(found - wanted), initial=0.0) / max(np.max(np.abs(wanted), initial=0.0), 1e-30)))
    return most


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
