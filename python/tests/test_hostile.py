"""Capsules of DLPack with odd strides and false facts, buffers whose exporter alone is kept, and interruptions."""

from __future__ import annotations

import ctypes
import gc
import signal
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import blob_io
import numpy as np
import pytest


class DLTensor(ctypes.Structure):
    """`DLTensor` of dlpack.h, with its device and its dtype spread out."""

    _fields_ = [
        ("data", ctypes.c_void_p),
        ("device_type", ctypes.c_int32),
        ("device_id", ctypes.c_int32),
        ("ndim", ctypes.c_int32),
        ("code", ctypes.c_uint8),
        ("bits", ctypes.c_uint8),
        ("lanes", ctypes.c_uint16),
        ("shape", ctypes.POINTER(ctypes.c_int64)),
        ("strides", ctypes.POINTER(ctypes.c_int64)),
        ("byte_offset", ctypes.c_uint64),
    ]


class DLManagedTensor(ctypes.Structure):
    _fields_ = [("tensor", DLTensor), ("context", ctypes.c_void_p), ("deleter", ctypes.c_void_p)]


class Producer:
    """An array that states any shape and strides, of the f32 values of `array`, in DLPack's older capsule."""

    def __init__(
        self, array: np.ndarray | None, shape: list[int] | None, strides: list[int] | None = None, **facts: int
    ) -> None:
        self.array = array
        self.lists = [None if n is None else (ctypes.c_int64 * len(n))(*n) for n in (shape, strides)]
        tensor = DLTensor(0 if array is None else array.ctypes.data, 1, 0, len(shape or []), 2, 32, 1)
        for name, values in zip(("shape", "strides"), self.lists, strict=True):
            if values is not None:
                setattr(tensor, name, ctypes.cast(values, ctypes.POINTER(ctypes.c_int64)))
        for name, value in facts.items():
            setattr(tensor, name, value)
        self.managed = DLManagedTensor(tensor)

    def __dlpack_device__(self) -> tuple[int, int]:
        return 1, 0

    def __dlpack__(self) -> object:
        capsule = ctypes.pythonapi.PyCapsule_New
        capsule.restype, capsule.argtypes = ctypes.py_object, [ctypes.c_void_p, ctypes.c_char_p, ctypes.c_void_p]
        return capsule(ctypes.addressof(self.managed), b"dltensor", None)


def taken(producer: Producer) -> np.ndarray:
    """The values, as `merge` of this array alone has them."""
    return np.array(blob_io.merge([producer], 0).numpy())


def churn(size: int) -> list[bytes]:
    """Frees garbage, and writes over freed memory of about this size."""
    gc.collect()
    return [b"\xab" * (size + more) for more in range(0, 96, 8) for _ in range(8)]


def test_an_array_that_keeps_the_exporter_alone_keeps_the_values(tmp_path: Path) -> None:
    for count in [64, 1 << 12, 1 << 20]:
        values = np.arange(count, dtype=np.float32)
        np.save(tmp_path / "a.npy", values)
        for mmap in [False, True]:
            f = blob_io.open(tmp_path / "a.npy", mmap=mmap)
            made = [blob_io.merge([values], 0), f[0], f[0]]
            made[2][:1]
            # numpy takes the address, releases the buffer at once, and keeps the tensor.
            arrays = [np.ndarray(t.shape, "f4", buffer=t) for t in made]  # type: ignore[call-overload]
            arrays += [np.ndarray(t.shape, "f4", buffer=memoryview(t)) for t in (f[0], made[0])]
            again = np.ndarray(values.shape, "f4", buffer=made[1])  # type: ignore[call-overload]
            del f, made
            others = churn(values.nbytes)
            for array in arrays:
                np.testing.assert_array_equal(array, values)
            # All buffers of a tensor are of one memory, and those of two tensors where both are views.
            again[0] = 5
            assert arrays[1][0] == 5 and arrays[2][0] == (5 if mmap else 0) and others


def test_torch_frombuffer_keeps_the_values(tmp_path: Path) -> None:
    torch = pytest.importorskip("torch")
    values = np.arange(1 << 16, dtype=np.float32)
    np.save(tmp_path / "a.npy", values)
    tensor = torch.frombuffer(blob_io.open(tmp_path / "a.npy")[0], dtype=torch.float32)
    others = churn(values.nbytes)
    np.testing.assert_array_equal(tensor.numpy(), values)
    assert others


def test_strided_capsules_are_copied_row_after_row() -> None:
    flat = np.arange(120, dtype=np.float32)
    whole = flat.reshape(2, 3, 4, 5)
    cases = {
        "turned": (whole.transpose(3, 1, 2, 0), 0),
        "some": (whole[:, ::2, :, 1:4], 1),
        "rows": (whole[:, 1:], 20),
        "backwards": (whole[:, :, ::-1], 15),
        "one": (whole[1:, :1, :, 2], 62),
        "expanded": (np.broadcast_to(whole[:, :1], (2, 7, 4, 5)), 0),
    }
    for name, (view, offset) in cases.items():
        strides = [stride // 4 for stride in view.strides]
        producer = Producer(flat, list(view.shape), strides, byte_offset=offset * 4)
        np.testing.assert_array_equal(taken(producer), view, err_msg=name)
    long = np.arange(3 << 20, dtype=np.float32).reshape(3, 1 << 20)
    np.testing.assert_array_equal(taken(Producer(long, [2, 1 << 20], [2 << 20, 1])), long[::2])


def test_a_capsule_larger_than_memory_is_a_memory_error() -> None:
    one = np.zeros(1, np.float32)
    for shape in [[1 << 40], [1 << 20, 1 << 20], [1 << 60]]:
        with pytest.raises(MemoryError):
            taken(Producer(one, shape, [0] * len(shape)))


def test_a_capsule_with_false_facts_is_a_buffer_error() -> None:
    array = np.zeros(6, np.float32)
    highest = (1 << 63) - 1
    wrong = {
        "no shape": Producer(array, None, ndim=2),
        "a negative extent": Producer(array, [2, -3]),
        "a negative number of axes": Producer(array, [2], ndim=-1),
        "too many axes": Producer(array, [2], ndim=1 << 30),
        "no data": Producer(None, [2, 3]),
        "no data, at an offset": Producer(None, [2, 3], byte_offset=64),
        "a product that wraps": Producer(array, [1 << 32, 1 << 32]),
        "a product that wraps to bytes": Producer(array, [1 << 62]),
        "an offset that wraps": Producer(array, [6], byte_offset=(1 << 64) - 4),
        "strides that wrap": Producer(array, [2, 3], [highest, 1]),
        "strides that wrap downwards": Producer(array, [2, 3], [-highest, 1]),
    }
    for name, producer in wrong.items():
        with pytest.raises(BufferError):
            blob_io.merge([producer], 0)
            pytest.fail(name)
    assert taken(Producer(None, [0, 3])).shape == (0, 3)


def test_arrays_without_axes_are_taken(tmp_path: Path) -> None:
    scalars: dict[str, Any] = {
        "n": np.int64(5),
        "x": np.float32(2.5),
        "view": memoryview(np.array(7, np.int16)),
        "yes": np.bool_(True),
        "stored": memoryview(blob_io.merge([np.array([3], np.int32)], 0))[0:1],
    }
    file = tmp_path / "scalars.safetensors"
    blob_io.save_file(scalars, file)
    read = blob_io.open(file).get_tensors()
    assert {name: (array.shape, array.dtype.name) for name, array in read.items()} == {
        "n": ((), "int64"),
        "x": ((), "float32"),
        "view": ((), "int16"),
        "yes": ((), "bool"),
        "stored": ((1,), "int32"),
    }
    assert (read["n"], read["x"], read["view"], read["yes"], read["stored"]) == (5, 2.5, 7, True, 3)
    with pytest.raises(BufferError, match="format"):
        blob_io.save_file({"a": np.complex64(1j)}, tmp_path / "none.npz")
    released = memoryview(b"1")
    released.release()
    with pytest.raises(ValueError, match="released"):
        blob_io.save_file({"a": released}, tmp_path / "none.npz")


def test_arrays_of_ctypes_are_taken(tmp_path: Path) -> None:
    # Their buffers state no strides.
    row = (ctypes.c_float * 3)(1, 2, 3)
    square = ((ctypes.c_int16 * 2) * 3)((1, 2), (3, 4), (5, 6))
    blob_io.save_file({"row": row, "square": square}, tmp_path / "a.npz")
    read = blob_io.open(tmp_path / "a.npz").get_tensors()
    assert (read["row"].dtype, read["row"].tolist()) == (np.float32, [1, 2, 3])
    assert (read["square"].dtype, read["square"].tolist()) == (np.int16, [[1, 2], [3, 4], [5, 6]])
    assert blob_io.permute(square, (1, 0)).numpy().tolist() == [[1, 3, 5], [2, 4, 6]]


class Alarm(Exception):
    """The exception of a signal's handler."""


@contextmanager
def alarm(after: float) -> Iterator[None]:
    def ring(*_: object) -> None:
        raise Alarm

    before = signal.signal(signal.SIGALRM, ring)
    signal.setitimer(signal.ITIMER_REAL, after)
    try:
        yield
    finally:
        signal.setitimer(signal.ITIMER_REAL, 0)
        signal.signal(signal.SIGALRM, before)


def seconds(work: Callable[[], object], raised: type[BaseException] | None = None) -> float:
    begin = time.monotonic()
    if raised is None:
        work()
    else:
        with pytest.raises(raised):
            work()
    return time.monotonic() - begin


def test_a_progress_that_raises_is_heard_though_the_work_is_done(tmp_path: Path) -> None:
    source, output = tmp_path / "a.npy", tmp_path / "a.safetensors"
    np.save(source, np.zeros(16 << 20, np.float32))
    told: list[int] = []

    def progress(done: int, total: int) -> None:
        told.append(done)
        while not output.exists() and len(told) == 1:
            time.sleep(0.001)
        time.sleep(0.3)
        if len(told) == 1:
            raise Alarm

    with pytest.raises(Alarm):
        blob_io.convert(source, output, progress=progress)
    assert len(told) == 1


def test_a_signal_ends_the_reading_of_many_tensors(path: str, tmp_path: Path) -> None:
    f = blob_io.open(path)
    names = ["conv1/0"] * 60_000
    # The first run also waits for fresh memory.
    whole = min(seconds(lambda: f.get_tensors(names)) for _ in range(2))
    with alarm(whole / 8):
        assert seconds(lambda: f.get_tensors(names), Alarm) < whole * 0.75
    column = np.zeros((1 << 9, 1 << 11), np.float32).T
    arrays = {str(n): column for n in range(60)}
    output = tmp_path / "missing" / "a.npz"
    whole = min(seconds(lambda: blob_io.save_file(arrays, output), FileNotFoundError) for _ in range(2))
    with alarm(whole / 8):
        assert seconds(lambda: blob_io.save_file(arrays, output), Alarm) < whole * 0.75


def test_a_signal_ends_the_copy_of_a_strided_capsule() -> None:
    one = np.zeros(1, np.float32)
    with alarm(0.2):
        assert seconds(lambda: blob_io.merge([Producer(one, [1 << 28], [0])], 0), Alarm) < 10


def test_a_made_tensor_has_statistics(weight: np.ndarray, tmp_path: Path) -> None:
    blob_io.save_file({"w": weight}, tmp_path / "w.safetensors")
    stored = blob_io.open(tmp_path / "w.safetensors")["w"]
    made = blob_io.permute(weight, (0, 1, 2, 3))
    expected = stored.stats(per_channel=0, histogram=True)
    assert made.stats(per_channel=0, histogram=True) == expected and expected.elements == 18
    assert made.stats() == stored.stats()
    for part in blob_io.split(weight, 0, [1, 0, 1]):
        assert part.stats().elements == part.size
    ml_dtypes = pytest.importorskip("ml_dtypes")
    half = blob_io.merge([np.array([1.5, -2], ml_dtypes.bfloat16)], 0).stats()
    assert (half.min, half.max) == (-2, 1.5)
