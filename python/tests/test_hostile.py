"""Capsules of DLPack with odd strides and false facts, buffers whose exporter alone is kept, and interruptions."""

from __future__ import annotations

import gc
from pathlib import Path

import blob_io
import numpy as np
import pytest


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
