"""File objects that refer to what was opened of them are collected, and nobody who still reads loses one."""

from __future__ import annotations

import gc
import io
import subprocess
import sys
import weakref
from collections.abc import Callable
from pathlib import Path
from typing import Any

import blob_io
import numpy as np
import pytest


class Mark:
    """Something that goes with the object that refers to it. Bytes have no weak references of their own."""


class Server(io.BytesIO):
    """A file object without a file, which may refer to anything."""


class Raw:
    """One of another library's, as fsspec has them."""

    def __init__(self, content: bytes) -> None:
        self.inner = io.BytesIO(content)
        self.seek, self.tell, self.read = self.inner.seek, self.inner.tell, self.inner.read


class Pipe:
    """A file object that cannot seek."""

    def __init__(self, content: bytes) -> None:
        self.read = io.BytesIO(content).read


class Content(bytes):
    """Bytes that may refer to anything."""


#: What a file object may refer to, of the file that was opened of it.
HELD: dict[str, Callable[[blob_io.File], Any]] = {
    "file": lambda f: f,
    "closed file": lambda f: f.close() or f,  # type: ignore[func-returns-value]
    "tensor": lambda f: f["conv1/0"],
    "all": lambda f: [f, f.__copy__(), *f.values(), *f.items()],
    # An array over the tensor's buffer would hold it unseen: numpy shows the collector no owner of an array's values.
    "shown tensor": lambda f: memoryview(f["conv1/1"]),  # type: ignore[arg-type]
    "array": lambda f: [f.get_tensor("conv1/0"), np.from_dlpack(f["conv1/0"])],  # type: ignore[arg-type]
    "capsule": lambda f: f["conv1/0"].__dlpack__(),
    "slice": lambda f: f.get_slice("conv1/0"),
    "rows": lambda f: iter(f["conv1/0"]),
    "bound": lambda f: [f.get_tensor, f["conv1/0"].numpy],
    "made": lambda f: blob_io.merge([f["conv1/1"], f["conv1/1"]], 0),
}


@pytest.mark.parametrize("held", HELD)
@pytest.mark.parametrize("kind", [Server, Raw, Pipe, Content])
def test_a_file_object_that_holds_its_own_file_is_collected(kind: type, held: str, path: str) -> None:
    gc.collect()
    thing = kind(Path(path).read_bytes())
    thing.held, thing.mark = HELD[held](blob_io.open(thing)), Mark()
    gone = weakref.ref(thing.mark)
    del thing
    gc.collect()
    assert gone() is None


@pytest.mark.parametrize("kind", [Server, Raw])
def test_what_is_still_read_is_not_collected(kind: type, path: str, weight: np.ndarray) -> None:
    thing = kind(Path(path).read_bytes())
    file = thing.held = blob_io.open(thing)
    gone = weakref.ref(thing)
    del thing
    gc.collect()
    np.testing.assert_array_equal(file["conv1/0"].numpy(), weight)
    tensor, slice = file["conv1/0"], file.get_slice("conv1/0")
    file.close()
    del file
    gc.collect()
    np.testing.assert_array_equal(tensor.numpy(), weight)
    del tensor
    gc.collect()
    np.testing.assert_array_equal(slice[0], weight[0])
    assert gone() is not None
    del slice
    gc.collect()
    assert gone() is None


def test_two_files_of_one_object_are_collected(path: str) -> None:
    thing = Server(Path(path).read_bytes())
    thing.first, thing.second = blob_io.open(thing), blob_io.open(thing)["conv1/0"]  # type: ignore[attr-defined]
    gone = weakref.ref(thing)
    kept = thing.second  # type: ignore[attr-defined]
    del thing
    gc.collect()
    assert kept.numpy().shape == (2, 1, 3, 3) and gone() is not None
    del kept
    gc.collect()
    assert gone() is None


def test_a_finalizer_still_reads(path: str) -> None:
    said = []

    class Last(Server):
        def __del__(self) -> None:
            said.append(self.held["conv1/1"].numpy().tolist())  # type: ignore[attr-defined]

    thing = Last(Path(path).read_bytes())
    thing.held = blob_io.open(thing)  # type: ignore[attr-defined]
    del thing
    gc.collect()
    assert said == [[0.5, -1.0]]


def test_an_error_of_a_read_keeps_nothing(path: str) -> None:
    class Failing(Server):
        def read(self, size: int | None = -1, /) -> bytes:
            if self.tell() > 0:
                raise OSError("gone")
            return super().read(size)

    for salvage in [False, True]:
        thing = Failing(Path(path).read_bytes())
        thing.held = []  # type: ignore[attr-defined]
        try:
            thing.held.append(blob_io.open(thing, salvage=salvage))  # type: ignore[attr-defined]
            thing.held[0].get_tensors()  # type: ignore[attr-defined]
        except (OSError, blob_io.BlobError) as error:
            thing.held.append(error)  # type: ignore[attr-defined]
        gone = weakref.ref(thing)
        del thing
        gc.collect()
        assert gone() is None, salvage


@pytest.mark.parametrize("call", ["t.tobytes()", "t.stats()", "blob_io.hash(f)", "f.get_tensor('w')", "t[:, ::2]"])
def test_daemon_threads_in_a_call_do_not_crash_the_end_of_the_interpreter(tmp_path: Path, call: str) -> None:
    blob_io.save_file({"w": np.ones((256, 256), np.float32)}, tmp_path / "w.safetensors")
    child = f"""
import threading, time, numpy, blob_io
f = blob_io.open({str(tmp_path / "w.safetensors")!r})
t = f["w"]
f.get_tensor("w")
def work():
    while True:
        {call}
for _ in range(4):
    threading.Thread(target=work, daemon=True).start()
time.sleep(0.2)
"""
    for _ in range(2):
        assert subprocess.run([sys.executable, "-c", child], capture_output=True, text=True).returncode == 0
