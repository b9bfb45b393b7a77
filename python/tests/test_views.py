"""Views of mapped files, buffers and DLPack."""

from __future__ import annotations

import gc
import os
import subprocess
import sys
import threading
from pathlib import Path

import blob_io
import numpy as np
import pytest
from conftest import resident


def address(array: np.ndarray) -> int:
    return array.ctypes.data


def test_a_view_is_of_the_mapping_and_private(aligned: str) -> None:
    content = Path(aligned).read_bytes()
    f, other = blob_io.open(aligned, mmap=True), blob_io.open(aligned, mmap=True)
    assert f["big"].is_view and not blob_io.open(aligned)["big"].is_view
    one, same, elsewhere = f["big"].numpy(), f.get_tensor("big"), other.get_tensor("big")
    assert address(one) == address(same) != address(elsewhere)
    one[:] = -1
    assert (same == -1).all() and (elsewhere[0, 0] == np.arange(10)).all()
    assert Path(aligned).read_bytes() == content
    # The file's own bytes are read, not the mapping's.
    assert f["big"][0, 0, 1] == 1 and f["big"].stats().max == 479 and f["big"].tobytes() != one.tobytes()
    f.close()
    del f, same
    gc.collect()
    assert (one == -1).all()


def test_no_array_is_handed_out_unaligned(tmp_path: Path) -> None:
    from conftest import caffemodel

    file = tmp_path / "odd.caffemodel"
    values = [np.arange(n, dtype=np.float32) for n in range(1, 40)]
    file.write_bytes(caffemodel(*((f"l{'x' * n}", "t", [v]) for n, v in enumerate(values))))
    f = blob_io.open(file, mmap=True)
    views = [f[place].is_view for place in range(len(f))]
    assert any(views) and not all(views)
    for place, (is_view, value) in enumerate(zip(views, values, strict=True)):
        t = f[place]
        assert is_view == (t.offset % 4 == 0)  # type: ignore[operator]
        array = t.numpy()
        assert address(array) % 4 == 0 and (is_view or address(array) % 64 == 0)
        np.testing.assert_array_equal(array, value)


def test_an_npz_is_a_view_once_its_checksum_was_compared(tmp_path: Path) -> None:
    file = tmp_path / "a.npz"
    blob_io_values = np.arange(64, dtype=np.float32)
    np.savez(file, a=blob_io_values)
    t = blob_io.open(file, mmap=True)["a"]
    if t.is_view:
        np.testing.assert_array_equal(t.numpy(), blob_io_values)
        content = bytearray(file.read_bytes())
        content[t.offset or 0] ^= 1
        file.write_bytes(content)
        with pytest.raises(blob_io.Malformed):
            blob_io.open(file, mmap=True)["a"].numpy()
    np.savez_compressed(file, a=blob_io_values)
    packed = blob_io.open(file, mmap=True)["a"]
    assert not packed.is_view
    np.testing.assert_array_equal(packed.numpy(), blob_io_values)


def test_buffers_and_arrays(aligned: str) -> None:
    for mmap in [False, True]:
        f = blob_io.open(aligned, mmap=mmap)
        t, whole = f["big"], f.get_tensor("big")
        view = memoryview(t)
        assert (view.format, view.shape, view.itemsize, view.readonly) == ("f", (6, 8, 10), 4, False)
        assert view.tobytes() == whole.tobytes() and view.c_contiguous
        np.testing.assert_array_equal(np.asarray(t), whole)
        assert np.asarray(t, dtype=np.float64).dtype == np.float64
        assert np.array(t, copy=True) is not None and bytes(memoryview(f["n"])) == (7).to_bytes(8, "little")
        assert memoryview(f["n"]).shape == () and np.asarray(f["half"]).dtype == np.float16
        copied = np.array(t, copy=True)
        copied[:] = 0
        np.testing.assert_array_equal(t.numpy(), whole)
        if mmap:
            assert address(np.asarray(t, copy=False)) == address(whole)
        else:
            with pytest.raises(ValueError, match="not a view"):
                t.__array__(copy=False)


def test_bf16_has_no_buffer_but_a_dtype_of_ml_dtypes(tmp_path: Path) -> None:
    ml_dtypes = pytest.importorskip("ml_dtypes")
    from safetensors.numpy import save_file

    file = tmp_path / "b.safetensors"
    values = np.array([1.0, -2.5, 3.0], ml_dtypes.bfloat16)
    save_file({"w": values}, file)
    t = blob_io.open(file, mmap=True)["w"]
    assert t.dtype == "bf16"
    array = t.numpy()
    assert array.dtype == ml_dtypes.bfloat16 and (array == values).all()
    with pytest.raises(BufferError, match="bf16"):
        memoryview(t)
    with pytest.raises((BufferError, RuntimeError)):
        np.from_dlpack(t)


def test_dlpack_both_kinds(aligned: str) -> None:
    for mmap in [False, True]:
        f = blob_io.open(aligned, mmap=mmap)
        for name in f:
            t = f[name]
            assert t.__dlpack_device__() == (1, 0)
            array = np.from_dlpack(t)
            np.testing.assert_array_equal(array, f.get_tensor(name))
            assert array.flags.writeable
            assert '"dltensor_versioned"' in repr(t.__dlpack__(max_version=(1, 0)))
            assert '"dltensor"' in repr(t.__dlpack__()) and '"dltensor"' in repr(t.__dlpack__(max_version=(0, 8)))
            np.from_dlpack(t, copy=True)[...] = 0
            np.testing.assert_array_equal(array, f.get_tensor(name))
            for refused in [{"stream": 1}, {"dl_device": (2, 0)}, *([] if mmap else [{"copy": False}])]:
                with pytest.raises(BufferError):
                    t.__dlpack__(**refused)  # type: ignore[arg-type]
        del f, t
        gc.collect()
        assert array is not None and array.sum() >= 0


def test_odd_shapes_and_dtypes_go_both_ways(tmp_path: Path) -> None:
    dtypes = [np.uint8, np.int8, np.int16, np.uint16, np.int32, np.uint32, np.int64, np.uint64]
    dtypes += [np.float16, np.float32, np.float64, np.bool_]
    for dtype in dtypes:
        for shape in [(), (0,), (3, 0, 2), (1,), (2, 3)]:
            file = tmp_path / "a.npy"
            values = (np.arange(np.prod(shape)) % 2).astype(dtype).reshape(shape)
            np.save(file, values)
            t = blob_io.open(file, mmap=True)[0]
            for array in [t.numpy(), np.asarray(memoryview(t)), np.from_dlpack(t)]:
                assert (array.dtype, array.shape) == (values.dtype, shape)
                np.testing.assert_array_equal(array, values)


def test_eight_threads_read_one_file(aligned: str) -> None:
    for mmap in [False, True]:
        f = blob_io.open(aligned, mmap=mmap)
        sums: list[float] = []

        def work() -> None:
            for _ in range(200):
                sums.append(float(f.get_tensor("big").sum() + f["big"][::2, 1].sum()))

        threads = [threading.Thread(target=work) for _ in range(8)]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
        assert len(sums) == 1600 and len(set(sums)) == 1


@pytest.mark.skipif(not Path("/proc/self/statm").exists(), reason="no /proc")
def test_a_million_tensors_leak_nothing(aligned: str) -> None:
    f = blob_io.open(aligned, mmap=True)
    copies = blob_io.open(aligned)

    def many(count: int) -> None:
        for _ in range(count):
            for _ in range(10):
                f.get_tensor("big")
            np.from_dlpack(copies["half"])
            memoryview(copies["n"])
            f["big"].__dlpack__(max_version=(1, 0))
            f["big"].__dlpack__()

    many(10_000)
    before = resident()
    many(100_000)
    assert resident() - before < 4 << 20


@pytest.mark.skipif(not hasattr(os, "fork"), reason="no fork")
def test_a_child_goes_on_with_an_open_file(aligned: str) -> None:
    code = """
import os, sys, blob_io
plain, mapped = blob_io.open(sys.argv[1]), blob_io.open(sys.argv[1], mmap=True)
view = mapped.get_tensor("big")
pid = os.fork()
assert plain.get_tensor("big").sum() == mapped.get_tensor("big").sum() == view.sum() == plain["big"].stats().l1
if pid:
    assert os.waitpid(pid, 0)[1] == 0
"""
    done = child(code, aligned)
    assert done.returncode == 0, done.stderr


def child(code: str, *arguments: str) -> subprocess.CompletedProcess[bytes]:
    return subprocess.run([sys.executable, "-c", code, *arguments], capture_output=True, timeout=60, check=False)


def test_the_interpreter_ends_with_live_views(aligned: str) -> None:
    code = """
import sys, blob_io, numpy
f = blob_io.open(sys.argv[1], mmap=True)
kept = [f.get_tensor("big"), numpy.from_dlpack(f["big"]), memoryview(f["n"]), f["big"].__dlpack__()]
sys.modules["kept"] = kept
"""
    done = child(code, aligned)
    assert done.returncode == 0, done.stderr


def test_a_file_that_is_cut_under_its_mapping_ends_the_process(tmp_path: Path) -> None:
    file = tmp_path / "big.npy"
    np.save(file, np.zeros(1 << 20, np.float32))
    code = """
import os, sys, blob_io
f = blob_io.open(sys.argv[1], mmap=True)
a = f[0].numpy()
os.truncate(sys.argv[1], 4096)
try:
    f[0].tobytes()
except OSError:
    print("read", flush=True)
a.sum()
print("unreachable", flush=True)
"""
    done = child(code, str(file))
    assert done.stdout == b"read\n" and done.returncode == -7, (done.returncode, done.stdout, done.stderr)


@pytest.mark.parametrize("kind", ["isolated", "legacy"])
def test_a_subinterpreter_refuses(kind: str, aligned: str) -> None:
    code = """
import sys, blob_io
f = blob_io.open(sys.argv[1])
before = repr(f), list(f), f["big"].size
try:
    import _interpreters as interpreters
    made = interpreters.create(sys.argv[2])
except ImportError:
    import _xxsubinterpreters as interpreters
    made = interpreters.create(isolated=sys.argv[2] == "isolated")
try:
    failed = interpreters.run_string(made, "import blob_io")
except Exception as error:
    failed = error
assert failed is not None and "subinterpreter" in str(failed), failed
interpreters.destroy(made)
assert (repr(f), list(f), f["big"].size) == before and not f.closed and "big" in f
"""
    done = child(code, aligned, kind)
    assert done.returncode == 0, done.stderr
