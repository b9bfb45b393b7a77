"""`open`, `File`, `Tensor`: what is found in a file, and how it is read."""

from __future__ import annotations

import copy
import ctypes
import gc
import hashlib
import io
import json
import mmap
import os
import pickle
import shutil
import signal
import subprocess
import sys
import tempfile
import threading
import time
import weakref
from collections.abc import Mapping
from pathlib import Path
from types import ModuleType
from typing import Any

import blob_io
import numpy as np
import pytest
from conftest import DATA, caffemodel, resident


def test_the_import_is_of_few_modules() -> None:
    script = "import sys; before = set(sys.modules); import blob_io; print(*sorted(set(sys.modules) - before))"
    loaded = subprocess.run([sys.executable, "-c", script], capture_output=True, check=True).stdout.decode().split()
    parts = ["_blob_io", "_convert", "_errors", "_later", "_methods", "_safetensors"]
    own = {"blob_io", *(f"blob_io.{part}" for part in parts)}
    assert set(loaded) <= own | {"__future__", "_interpreters", "_xxsubinterpreters"}, "the import takes more time"
    script = "import blob_io; names = [getattr(blob_io, name).__name__ for name in blob_io.__all__]; print(len(names))"
    assert int(subprocess.run([sys.executable, "-c", script], capture_output=True, check=True).stdout) > 25
    assert set(blob_io.__all__) <= set(dir(blob_io)) and isinstance(blob_io.Stats, type)
    with pytest.raises(AttributeError, match="nothing"):
        blob_io.nothing  # type: ignore[attr-defined]


def test_a_file_is_a_mapping_in_its_own_order(path: str, weight: np.ndarray) -> None:
    with blob_io.open(path) as f:
        assert isinstance(f, Mapping)
        assert (f.name, f.format, f.dialect) == (path, "caffemodel", "V2 layers")
        assert f.keys() == list(f) == ["conv1/0", "conv1/1"] == f.offset_keys()
        assert len(f) == 2 and "conv1/1" in f and "conv2/0" not in f and 3 not in f
        assert [name for name, _ in f.items()] == f.keys()
        assert [t.shape for t in f.values()] == [(2, 1, 3, 3), (2,)]
        assert f[1].name == f[-1].name == f["#1"].name == "conv1/1"
        assert f.get("conv2/0") is None and f.get("conv2/0", 5) == 5 and f.get("conv1/0") is not None
        assert f.layers == [blob_io.Layer("conv1", "Convolution", ["conv1/0", "conv1/1"])]
        assert f.metadata() == {"name": "net"} and f.receipt is None and f.salvaged is None
        for missing in ["conv2/0", 2, -3, "#2", "#x"]:
            with pytest.raises(KeyError):
                f[missing]
        with pytest.raises(TypeError):
            f[1.5]  # type: ignore[index]
        t = f["conv1/0"]
    assert f.closed
    with pytest.raises(ValueError, match="closed"):
        f.keys()
    assert (t.name, t.shape, t.dtype, t.nbytes, t.ndim, t.size) == ("conv1/0", (2, 1, 3, 3), "f32", 72, 4, 18)
    assert (t.layer, t.layer_type, t.kind, t.is_view, t.diff) == ("conv1", "Convolution", "data", False, None)
    np.testing.assert_array_equal(t.numpy(), weight)
    assert t.tobytes() == weight.tobytes() and len(t) == 2


def test_a_model_is_read_with_the_values_beside_it(tmp_path: Path) -> None:
    truth = json.loads((DATA / "onnx/truth.json").read_bytes())["external/model.onnx"]  # onnx's own reading
    with blob_io.open(DATA / "onnx/external/model.onnx") as f:
        assert set(f) == set(truth)
        for name, (_, shape, digest) in truth.items():
            assert list(f[name].shape) == shape
            assert hashlib.sha256(f[name].tobytes()).hexdigest() == digest, name
    names = ("net.caffemodel", "net.prototxt", "net.onnx", "net.onnx.data")
    net, text, model, values = (tmp_path / name for name in names)
    weights = [np.arange(960, dtype=np.float32).reshape(20, 48), np.ones(20, np.float32)]
    net.write_bytes(caffemodel(("ip", "InnerProduct", weights)))
    text.write_text(
        'layer { name: "ip" type: "InnerProduct" bottom: "data" top: "ip" inner_product_param { num_output: 20 } }'
    )
    given: dict[str, Any] = {"net": text, "input": {"data": (1, 48)}, "if_exists": "replace"}
    blob_io.convert(net, model, external_data=True, **given)
    assert values.read_bytes() == weights[0].tobytes()
    with blob_io.open(model) as f:
        assert (f.format, f.keys()) == ("onnx", ["ip/0", "ip/1"])
        assert (f["ip/0"][3:5, 7] == weights[0][3:5, 7]).all() and (f.get_tensor("ip/1") == 1).all()
    blob_io.convert(net, model, **given)
    assert not values.exists()
    blob_io.convert(net, model, external_data=True, **given)
    values.unlink()
    with blob_io.open(model) as f, pytest.raises(blob_io.BlobError, match="net.onnx.data"):
        f.get_tensor("ip/0")


def test_a_pair_of_onnx_is_verified_and_converted(tmp_path: Path) -> None:
    truth = json.loads((DATA / "onnx/truth.json").read_bytes())["pair/net.onnx"]  # of onnx, which wrote the pair, too
    model, values = (Path(shutil.copy(DATA / "onnx/pair" / name, tmp_path)) for name in ("net.onnx", "net.onnx.data"))
    written = tmp_path / "net.safetensors"
    assert blob_io.verify(model).ok
    receipt = blob_io.convert(model, written)
    assert receipt["tensors"] == len(truth) == 4 and not any(change.is_loss for change in receipt.changes)
    with blob_io.open(written) as f, blob_io.open(model, mmap=True) as pair:
        assert set(f) == set(pair) == set(truth) and not any(t.is_view for t in pair.values())
        for name, (dtype, shape, digest) in truth.items():
            assert (f[name].dtype, list(f[name].shape)) == (pair[name].dtype, list(pair[name].shape)) == (dtype, shape)
            assert all(hashlib.sha256(of[name].tobytes()).hexdigest() == digest for of in (f, pair)), name
            np.testing.assert_array_equal(pair[name].numpy(), f.get_tensor(name))
    assert blob_io.verify(written, against=model).ok and blob_io.diff(model, written).same
    assert blob_io.hash(model) == blob_io.hash(written)
    # Values are put into a model of one file, and a pair is not replaced by half of one.
    with pytest.raises(blob_io.BlobError, match="net.onnx.data"):
        blob_io.convert(written, tmp_path / "other.onnx", into=model)
    assert not (tmp_path / "other.onnx").exists()
    # Values that changed, and values that are cut, are found by their names.
    changed = bytearray(values.read_bytes())
    changed[-1] ^= 1
    values.write_bytes(changed)
    assert [finding.subject for finding in blob_io.verify(written, against=model).findings] == ["fc.bias"]
    values.write_bytes(changed[:-1])
    findings = blob_io.verify(model).findings
    assert findings and all("net.onnx.data" in finding.message for finding in findings)
    with pytest.raises(blob_io.BlobError, match="net.onnx.data"):
        blob_io.convert(model, tmp_path / "net.npz")
    assert not (tmp_path / "net.npz").exists()


def test_an_array_is_written_by_its_owner_alone(path: str, weight: np.ndarray) -> None:
    f = blob_io.open(path)
    one, other = f.get_tensor("conv1/0"), f.get_tensor("conv1/0")
    one[:] = 0
    np.testing.assert_array_equal(other, weight)
    assert one.flags.writeable and one.ctypes.data % 64 == 0
    with pytest.raises(TypeError, match="list of names"):
        f.get_tensors("conv1/0")
    everything = f.get_tensors()
    assert list(everything) == f.keys()
    np.testing.assert_array_equal(everything["conv1/1"], np.array([0.5, -1], np.float32))
    assert list(f.get_tensors(["conv1/1"])) == ["conv1/1"]


class Counting(io.BytesIO):
    """A file object without a descriptor that counts what it is asked."""

    name = "net.caffemodel"

    def __init__(self, content: bytes) -> None:
        super().__init__(content)
        self.asked: list[int] = []

    def read(self, size: int | None = -1, /) -> bytes:
        self.asked.append(size or 0)
        return super().read(size)


class Pipe:
    """A file object that cannot seek."""

    def __init__(self, content: bytes) -> None:
        self.rest = io.BytesIO(content)

    def read(self, size: int = -1) -> bytes:
        return self.rest.read(min(size, 7))


def test_bytes_buffers_and_file_objects_are_read(path: str, weight: np.ndarray) -> None:
    content = Path(path).read_bytes()
    counting = Counting(content)
    with tempfile.NamedTemporaryFile(suffix=".caffemodel") as named:
        named.write(content)
        sources = [content, bytearray(content), memoryview(content), counting, Pipe(content), io.BytesIO(content)]
        sources += [Path(path), open(path, "rb"), open(path, "rb", buffering=0), named]
        for source in sources:
            f = blob_io.open(source)  # type: ignore[arg-type]
            np.testing.assert_array_equal(f["conv1/0"].numpy(), weight)
    # The whole file is one block: listing and reading ask for it once.
    assert len(counting.asked) == 1
    with pytest.raises(TypeError, match="text mode"):
        blob_io.open(open(path))  # type: ignore[arg-type]
    with pytest.raises(TypeError, match="not int"):
        blob_io.open(5)  # type: ignore[arg-type]


def others(plain: bytes, other: str) -> dict[str, Any]:
    """File objects that read ``plain``, though each has ``other`` open, in one of the places where wrappers keep it."""

    class Read:
        def begin(self) -> None:
            self.inner = io.BytesIO(plain)

        def read(self, size: int = -1) -> bytes:
            return self.inner.read(size)

        def seek(self, offset: int, whence: int = 0) -> int:
            return self.inner.seek(offset, whence)

        def tell(self) -> int:
            return self.inner.tell()

        def seekable(self) -> bool:
            return True

    class OfRaw(Read, io.RawIOBase):
        pass

    class OfFile(Read, io.FileIO):  # type: ignore[misc]
        pass

    class OfBuffered(Read, io.BufferedReader):  # type: ignore[misc]
        pass

    class OfTemporary(Read, type(tempfile.NamedTemporaryFile())):  # type: ignore[misc]
        pass

    class RawOfOwn(io.FileIO):
        def readinto(self, buffer: Any) -> int:
            memory = memoryview(buffer)
            bytes = plain[self.tell() :][: len(memory)]
            memory[: len(bytes)] = bytes
            self.seek(len(bytes), 1)
            return len(bytes)

    def raw() -> io.FileIO:
        return open(other, "rb", buffering=0)

    found = {"file": Read(), "raw": Read(), "base": OfRaw(), "FileIO": OfFile(other), "buffered": OfBuffered(raw())}
    found["temporary"] = OfTemporary(raw(), other, delete=False)
    for place, file in found.items():
        file.begin()
        if place in ["file", "raw", "base"]:
            setattr(file, "file" if place == "file" else "raw", raw())
    return {**found, "over its own": io.BufferedReader(RawOfOwn(other))}


def test_a_file_object_with_its_own_read_is_read_by_it(tmp_path: Path) -> None:
    # Both of one length: `RawOfOwn` has the file's own end.
    values, paths = np.arange(1000, dtype=np.uint8), [tmp_path / "plain.npz", tmp_path / "other.npz"]
    for path, array in zip(paths, [values, values[::-1]]):
        blob_io.save_file({"w": array}, path)
    for place, file in others(paths[0].read_bytes(), str(paths[1])).items():
        with blob_io.open(file) as f:
            assert (f.get_tensor("w") == values).all(), place
    with open(paths[0], "rb", buffering=0) as own, blob_io.open(own, mmap=True) as f:
        assert f["w"].is_view and (f.get_tensor("w") == values).all()


def test_a_buffer_is_copied_and_a_position_is_kept(path: str, weight: np.ndarray) -> None:
    content = bytearray(Path(path).read_bytes())
    f = blob_io.open(content)
    content[:] = bytes(len(content))
    np.testing.assert_array_equal(f["conv1/0"].numpy(), weight)
    with open(path, "rb") as file:
        file.seek(5)
        assert blob_io.open(file).keys() == ["conv1/0", "conv1/1"]
        assert file.tell() == 5
    bz2 = pytest.importorskip("bz2")
    packed = Path(path + ".bz2")
    packed.write_bytes(bz2.compress(Path(path).read_bytes()))
    with bz2.open(packed) as file:
        assert blob_io.open(file).keys() == ["conv1/0", "conv1/1"]


class Bare:
    """An object that seeks, and is none of `io`'s: nothing says whether it seeks."""

    def __init__(self, content: bytes) -> None:
        self.inner = Counting(content)

    def read(self, size: int = -1) -> Any:
        return memoryview(self.inner.read(size))

    def seek(self, place: int, whence: int = 0) -> int:
        return self.inner.seek(place, whence)

    def tell(self) -> int:
        return self.inner.tell()


def test_objects_that_are_none_of_ios_are_read_in_place(tmp_path: Path) -> None:
    weight = np.ones((3, 1 << 20), np.float32)
    content = caffemodel(("fc1", "InnerProduct", [weight]), ("fc2", "InnerProduct", [weight * 2]))
    # obstore's reader hands out buffers of its own.
    bare = Bare(content)
    f = blob_io.open(bare)  # type: ignore[arg-type]
    assert f.keys() == ["fc1/0", "fc2/0"] and sum(bare.inner.asked) < 1 << 20, "spooled, or all was read"
    assert f["fc2/0"][2, -1] == 2
    file = tmp_path / "net.caffemodel"
    file.write_bytes(content)
    before = resident()
    with open(file, "rb") as opened, mmap.mmap(opened.fileno(), 0, access=mmap.ACCESS_READ) as mapped:
        f = blob_io.open(mapped)  # type: ignore[arg-type]
        assert f["fc1/0"].shape == (3, 1 << 20) and f["fc2/0"][0, 0] == 2
        assert resident() - before < 8 << 20, "copied as a buffer, of 24 MiB"
        del f
    obstore, store = pytest.importorskip("obstore"), pytest.importorskip("obstore.store").MemoryStore()
    obstore.put(store, "net.caffemodel", content)
    f = blob_io.open(obstore.open_reader(store, "net.caffemodel"))
    assert f.get_tensor("fc2/0").sum() == 2 * weight.size


def test_buffers_of_every_item_are_bytes(path: str) -> None:
    content = Path(path).read_bytes()
    twice = bytes(byte for one in content for byte in (one, 0))
    of_c = (ctypes.c_char * len(content)).from_buffer_copy(content)
    for buffer in [np.frombuffer(content, np.int8), memoryview(content).cast("c"), memoryview(twice)[::2], of_c]:
        assert blob_io.open(buffer).keys() == ["conv1/0", "conv1/1"]  # type: ignore[arg-type]


def test_a_large_array_of_a_file_object_costs_one_request() -> None:
    from conftest import caffemodel

    rows = np.ones((3, 1 << 20), np.float32)
    source = Counting(caffemodel(("fc1", "InnerProduct", [rows]), ("fc2", "InnerProduct", [rows])))
    f = blob_io.open(source)
    assert f.keys() == ["fc1/0", "fc2/0"]
    assert len(source.asked) <= 4 + 2, source.asked
    before = len(source.asked)
    assert f.get_tensor("fc2/0").sum() == rows.size
    assert len(source.asked) - before <= 2, source.asked


def header_regions(f: blob_io.File, length: int) -> int:
    """How many stretches of the file are no values: no reader that skips the values needs fewer requests."""
    spans = sorted((t.offset, t.nbytes) for t in f.values() if t.offset is not None)
    edges = [0, *(edge for offset, nbytes in spans for edge in (offset, offset + nbytes)), length]
    return sum(begin < end for begin, end in zip(edges[::2], edges[1::2], strict=True))


@pytest.mark.parametrize("format", ["safetensors", "npz", "caffemodel", "params", "h5"])
def test_headers_of_large_arrays_cost_the_least_requests(tmp_path: Path, format: str) -> None:
    saved = tmp_path / f"net.{format}"
    blob_io.save_file({f"w{n}/0": np.full(1 << 19, n, np.float32) for n in range(12)}, saved)
    source = Counting(saved.read_bytes())
    f = blob_io.open(source)
    assert len(f.keys()) == 12
    least = header_regions(f, saved.stat().st_size)
    assert least == 1 if format == "safetensors" else least <= 12 + 1
    assert len(source.asked) <= least, source.asked
    asked = sum(source.asked)
    assert asked <= least * (64 << 10) + (8 << 10), "values were read to skip these"
    assert f["w7/0"].numpy().sum() == 7 << 19
    assert sum(source.asked) - asked <= (2 << 20) + (1 << 20), "far more was read than the array"


@pytest.mark.parametrize("format", ["safetensors", "npz", "caffemodel", "params"])
def test_headers_of_small_arrays_cost_few_requests(tmp_path: Path, format: str) -> None:
    saved = tmp_path / f"net.{format}"
    blob_io.save_file({f"w{n}/0": np.full(25_000, n, np.float32) for n in range(400)}, saved)
    source = Counting(saved.read_bytes())
    assert len(blob_io.open(source).keys()) == 400
    # The list of an npz stands at the end, and says where all headers are.
    assert len(source.asked) <= (4 if format == "npz" else 5), source.asked
    assert max(source.asked) <= 33 << 20 and sum(source.asked) <= saved.stat().st_size + (1 << 20)


def test_an_array_of_a_large_npz_costs_little_more_than_its_bytes(tmp_path: Path) -> None:
    saved = tmp_path / "net.npz"
    # More than the bytes that are kept of a file object.
    np.savez(saved, **{f"w{n}": np.full(2_500, n, np.float32) for n in range(8_000)})
    source = Counting(saved.read_bytes())
    f = blob_io.open(source)
    opened = len(source.asked), sum(source.asked)
    assert opened[0] <= 10 and opened[1] <= saved.stat().st_size + (4 << 20), source.asked
    for n in range(3, 8_000, 400):
        assert f[f"w{n}"].numpy()[7] == n
    assert sum(source.asked) - opened[1] <= 20 * (128 << 10), source.asked


def test_a_name_that_is_none_is_not_there(path: str) -> None:
    f = blob_io.open(path)
    assert "conv1/0" in f and "\udc80" not in f and "conv9/0" not in f and 3 not in f
    f.close()
    for name in ("conv1/0", 3):
        with pytest.raises(ValueError, match="closed"):
            assert name in f


def test_what_a_file_object_raises_is_raised() -> None:
    class Broken(io.BytesIO):
        def read(self, size: int | None = -1, /) -> bytes:
            raise ZeroDivisionError("on purpose")

    with pytest.raises(ZeroDivisionError, match="on purpose"):
        blob_io.open(Broken(b"12345678"))


def test_a_file_object_that_reads_its_own_file_is_an_error() -> None:
    from conftest import caffemodel

    class Turning(io.BytesIO):
        file: blob_io.File | None = None

        def read(self, size: int | None = -1, /) -> bytes:
            if self.file is not None:
                self.file["conv1/0"].numpy()
            return super().read(size)

    # Large, so that the array is not among the bytes that opening has read.
    weight = np.ones((1200, 1200), np.float32)
    source = Turning(caffemodel(("conv1", "Convolution", [weight])))
    f = blob_io.open(source)
    source.file = f
    with pytest.raises(OSError, match="reads the file that it is read for"):
        f["conv1/0"].numpy()
    source.file = None
    np.testing.assert_array_equal(f["conv1/0"].numpy(), weight)


def test_errors_say_which_file_and_where(path: str, tmp_path: Path) -> None:
    with pytest.raises(FileNotFoundError) as missing:
        blob_io.open(tmp_path / "none.params")
    assert missing.value.filename == str(tmp_path / "none.params")
    from conftest import caffemodel

    values = np.ones(5, np.float32)
    content = caffemodel(("conv1", "Convolution", [values]), ("conv2", "Convolution", [values]))
    cut = tmp_path / "cut.caffemodel"
    cut.write_bytes(content[:-10])
    with pytest.raises(blob_io.Malformed) as refused:
        blob_io.open(cut)
    error = refused.value
    assert isinstance(error, blob_io.BlobError) and isinstance(error, ValueError)
    assert (error.file, error.reason) == (str(cut), "truncated") and error.offset and error.help and error.subject
    again = pickle.loads(pickle.dumps(error))
    assert (str(again), again.offset, again.reason) == (str(error), error.offset, error.reason)
    salvaged = blob_io.open(cut, salvage=True)
    assert salvaged.keys() == ["conv1/0"] and isinstance(salvaged.salvaged, blob_io.Malformed)
    for content, kind in [(b"<html></html>", "html"), (b"", "empty")]:
        cut.write_bytes(content)
        with pytest.raises(blob_io.NotTensors) as other:
            blob_io.open(cut)
        assert other.value.reason == kind
    with pytest.raises(blob_io.LimitExceeded):
        blob_io.open(Pipe(Path(path).read_bytes()), max_spool=10)  # type: ignore[arg-type]
    with pytest.raises(ValueError, match="no format"):
        blob_io.open(path, format="gguf")


def test_an_open_file_is_not_pickled_but_copied(path: str) -> None:
    f = blob_io.open(path)
    t = f["conv1/0"]
    for thing, help in [(f, "path"), (t, "numpy")]:
        with pytest.raises(TypeError, match=help):
            pickle.dumps(thing)
        assert copy.copy(thing) is thing
    assert copy.deepcopy(f) is f
    seen = weakref.ref(f)
    assert seen() is f
    del f, thing
    gc.collect()
    assert seen() is None


def test_a_deep_copy_of_a_tensor_has_its_own_memory(aligned: str, weight: np.ndarray) -> None:
    with blob_io.open(aligned) as read, blob_io.open(aligned, mmap=True) as mapped:
        shown = read["big"]
        np.asarray(shown)[0] = 5
        made = blob_io.permute(weight, range(4))
        for tensor, is_shown in [(read["big"], False), (shown, True), (mapped["big"], False), (made, False)]:
            copied = copy.deepcopy([tensor, tensor])
            assert copied[0] is copied[1] is not tensor
            told = [
                (t.name, t.dtype, t.shape, t.nbytes, t.kind, t.layer, t.layer_type, t.offset)
                for t in (tensor, copied[0])
            ]
            assert told[0] == told[1]
            values = np.array(memoryview(tensor))  # type: ignore[arg-type]
            assert (np.asarray(copied[0]) == values).all() and (values[0] == 5).all() == is_shown
            np.asarray(copied[0])[...] = 7
            assert (np.asarray(tensor) == values).all() and (np.asarray(copied[0]) == 7).all()
        assert copy.deepcopy(read["big"]).offset == read["big"].offset and not copy.deepcopy(mapped["big"]).is_view


def test_a_name_that_no_text_has_is_no_hint_of_a_file_object(aligned: str) -> None:
    class Named(io.BytesIO):
        name = "a\ud800.safetensors"

    with open(aligned, "rb") as file:
        assert blob_io.open(Named(file.read())).name == "file object"


def test_a_notebook_shows_a_table(path: str) -> None:
    f = blob_io.open(path)
    assert repr(f) == f"<blob_io.File {path!r} caffemodel, 2 tensors>"
    assert repr(f["conv1/0"]) == "<blob_io.Tensor 'conv1/0' f32 [2×1×3×3]>"
    assert "<td>conv1/0</td><td>f32</td><td>2×1×3×3</td><td>72</td>" in f._repr_html_()
    assert f._ipython_key_completions_() == f.keys()


def test_statistics_are_those_of_numpy(path: str, weight: np.ndarray) -> None:
    stats = blob_io.open(path)["conv1/0"].stats(per_channel=0, histogram=True)
    assert (stats.elements, stats.min, stats.max, stats.zeros, stats.nan, stats.inf) == (18, 0, 17, 1, 0, 0)
    assert stats.mean == weight.mean() and stats.l1 == weight.sum()
    assert stats.std == pytest.approx(weight.astype(float).std()) and stats.l2 == pytest.approx((weight**2).sum() ** 0.5)
    assert stats.histogram and stats.histogram.counts == np.histogram(weight, 64)[0].tolist()
    assert stats.channels and [c.mean for c in stats.channels] == weight.reshape(2, 9).mean(1).tolist()
    assert pickle.loads(pickle.dumps(stats)) == stats


def test_safe_open_is_safetensors_own_by_another_import(aligned: str) -> None:
    import safetensors

    for backend in ["pread", "mmap"]:
        with (
            safetensors.safe_open(aligned, "np") as theirs,
            blob_io.safe_open(aligned, framework="np", backend=backend) as ours,
        ):
            assert sorted(ours.keys()) == sorted(theirs.keys())
            assert ours.metadata() == theirs.metadata()
            for name in theirs.keys():
                np.testing.assert_array_equal(ours.get_tensor(name), theirs.get_tensor(name))
            a, b = ours.get_slice("big"), theirs.get_slice("big")
            assert (a.get_shape(), a.get_dtype()) == (b.get_shape(), b.get_dtype())
            np.testing.assert_array_equal(a[1:3, :, 4:], b[1:3, :, 4:])
    with pytest.raises(ValueError):
        blob_io.safe_open(aligned, "tf")
    assert blob_io.safe_open(aligned, "pytorch").keys() == blob_io.safe_open(aligned, "pt").keys()


@pytest.mark.skipif(not hasattr(os, "posix_fadvise"), reason="no posix_fadvise")
def test_a_plan_is_read_ahead(aligned: str, monkeypatch: pytest.MonkeyPatch) -> None:
    asked: list[tuple[int, ...]] = []
    monkeypatch.setattr(os, "posix_fadvise", lambda _, *place: asked.append(place))
    with blob_io.safe_open(aligned, "np") as f, blob_io.open(aligned) as plain:
        places = {name: (t.offset, t.nbytes, os.POSIX_FADV_WILLNEED) for name, t in plain.items()}
        f.prefetch({"big": [slice(0, 2)]})
        assert asked == [places["big"]]
        f.prefetch()
        assert asked[1:] == [places[name] for name in f.keys()]
        with pytest.raises(KeyError):
            f.prefetch(["other"])
        monkeypatch.undo()
        f.prefetch(["half"])
        assert f.get_tensor("half").sum() == 15


class Torch:
    """A stand-in for a tensor of torch."""

    def __init__(self, array: np.ndarray, device: str = "cpu") -> None:
        self.array, self.device = array, device

    def to(self, device: str) -> Torch:
        return Torch(self.array, device)

    def flip(self, axes: list[int]) -> Torch:
        return Torch(np.flip(self.array, axes), self.device)


def test_parts_are_of_the_framework_and_on_the_device(aligned: str, monkeypatch: pytest.MonkeyPatch) -> None:
    module = ModuleType("torch")
    module.from_dlpack = lambda t: Torch(np.from_dlpack(t))  # type: ignore[attr-defined]
    monkeypatch.setitem(sys.modules, "torch", module)
    whole = blob_io.open(aligned).get_tensor("big")
    for device in ["cpu", "cuda:1"]:
        with blob_io.safe_open(aligned, "pt", device) as f:
            part = f.get_slice("big")
            assert (part.get_shape(), part.get_dtype()) == ([6, 8, 10], "F32")
            for key in [np.s_[1:3, :, 4:], np.s_[::-1, 2, ::-2], np.s_[0, 0, 0], ...]:
                tensor = part[key]
                assert isinstance(tensor, Torch) and tensor.device == device
                np.testing.assert_array_equal(tensor.array, whole[key])


def test_a_state_dict_is_of_torch_and_on_the_device(path: str, monkeypatch: pytest.MonkeyPatch) -> None:
    from blob_io.torch import load_file

    module = ModuleType("torch")
    module.from_dlpack = lambda t: Torch(np.from_dlpack(t))  # type: ignore[attr-defined]
    monkeypatch.setitem(sys.modules, "torch", module)
    whole = blob_io.load_file(path)
    for device in ["cpu", "cuda:1"]:
        state = load_file(path, device)
        assert {tensor.device for tensor in state.values()} == {device}
        np.testing.assert_array_equal(state["conv1.weight"].array, whole["conv1/0"])
    assert list(load_file(path, names="raw")) == ["conv1/0", "conv1/1"]


def test_progress_is_told_to_a_function_and_to_a_bar(path: str) -> None:
    told: list[tuple[int, int]] = []
    f = blob_io.open(path)
    f.get_tensors(progress=lambda done, total: told.append((done, total)))
    assert told == [(72, 80), (80, 80)]

    class Bar:
        total = None
        n = 0

        def update(self, n: int) -> None:
            self.n += n

    bar = Bar()
    f.get_tensors(progress=bar)
    assert (bar.n, bar.total) == (80, 80)
    tqdm = pytest.importorskip("tqdm").tqdm
    for is_off in [False, True]:
        shown = io.StringIO()
        with tqdm(disable=is_off, file=shown, mininterval=0) as real:
            f.get_tensors(progress=real)
            assert real.total == 80 and real.n == (0 if is_off else 80)
        assert ("80/80" in shown.getvalue()) != is_off
        with tqdm(disable=is_off, file=shown) as real:
            blob_io.convert(path, path + f".{is_off}.npz", progress=real)
            assert real.total == os.path.getsize(path) and real.n == (0 if is_off else real.total)


def test_ctrl_c_ends_a_long_read(tmp_path: Path) -> None:
    file = tmp_path / "long.npy"
    np.save(file, np.zeros(0, np.float32))
    header = file.read_bytes().replace(b"(0,)", b"(8589934592,)")
    file.write_bytes(header[:128].rstrip(b" \n").ljust(127) + b"\n")
    os.truncate(file, 128 + (32 << 30))
    tensor = blob_io.open(file)[0]
    # A process that a shell started in the background ignores the signal.
    signal.signal(signal.SIGINT, signal.default_int_handler)
    timer = threading.Timer(0.3, os.kill, (os.getpid(), signal.SIGINT))
    timer.start()
    begin = time.monotonic()
    with pytest.raises(KeyboardInterrupt):
        tensor.stats()
    assert time.monotonic() - begin < 5


@pytest.mark.parametrize("kind", ["gzip", "stream"])
def test_ctrl_c_ends_an_unpacking(kind: str, tmp_path: Path) -> None:
    import gzip

    class Endless:
        def read(self, size: int) -> bytes:
            return b"\x93NUMPY\x01\x00" * (size // 8)

    file = tmp_path / "long.npy.gz"
    # 4 GiB of a member of 16 MiB, each of which begins as an npy file.
    member = gzip.compress(b"\x93NUMPY\x01\x00" * (2 << 20), 1)
    with open(file, "wb") as packed:
        for _ in range(256):
            packed.write(member)
    signal.signal(signal.SIGINT, signal.default_int_handler)
    threading.Timer(0.3, os.kill, (os.getpid(), signal.SIGINT)).start()
    begin = time.monotonic()
    with pytest.raises(KeyboardInterrupt):
        blob_io.open(file if kind == "gzip" else Endless(), format="npy")  # type: ignore[arg-type]
    assert time.monotonic() - begin < 2


@pytest.mark.skipif(not hasattr(os, "mkfifo"), reason="no pipes with names")
@pytest.mark.parametrize("has_writer", [False, True])
def test_ctrl_c_ends_the_wait_for_a_pipe(has_writer: bool, tmp_path: Path) -> None:
    pipe = tmp_path / "net.npy"
    os.mkfifo(pipe)
    script = """
import blob_io, os, signal, sys, threading
signal.signal(signal.SIGINT, signal.default_int_handler)
writer = os.open(sys.argv[1], os.O_RDWR) if len(sys.argv) > 2 else None
threading.Timer(0.3, os.kill, (os.getpid(), signal.SIGINT)).start()
try:
    blob_io.open(sys.argv[1])
except KeyboardInterrupt:
    print("ended")
"""
    command = [sys.executable, "-c", script, str(pipe), *["writer"] * has_writer]
    assert subprocess.run(command, capture_output=True, timeout=20, check=True).stdout == b"ended\n"


@pytest.mark.skipif(not hasattr(os, "mkfifo"), reason="no pipes with names")
@pytest.mark.filterwarnings("error")
def test_a_pipe_with_a_name_is_read(path: str, tmp_path: Path, weight: np.ndarray) -> None:
    pipe, content = tmp_path / "piped.caffemodel", Path(path).read_bytes()
    os.mkfifo(pipe)

    def opened(written: bytes, **options: Any) -> blob_io.File:
        writer = threading.Thread(target=pipe.write_bytes, args=(written,))
        writer.start()
        try:
            return blob_io.open(pipe, **options)
        finally:
            writer.join()

    with opened(content) as f:
        assert (f.name, f.format) == (str(pipe), "caffemodel")
        np.testing.assert_array_equal(f.get_tensor("conv1/0"), weight)
        assert blob_io.convert(f, tmp_path / "net.npz")["source"]["name"] == pipe.name
    with pytest.raises(blob_io.LimitExceeded) as refused:
        opened(content, max_spool=10)
    assert refused.value.file == str(pipe)
    gc.collect()


def held() -> tuple[int, int]:
    """The descriptors and the mappings of this process."""
    return len(os.listdir("/proc/self/fd")), Path("/proc/self/maps").read_text().count("net.caffemodel")


@pytest.mark.skipif(not os.path.isdir("/proc/self/fd"), reason="no /proc")
def test_ten_thousand_files_leave_nothing(path: str) -> None:
    content = Path(path).read_bytes()

    def many(count: int) -> None:
        for number in range(count):
            with blob_io.open(path, mmap=number % 2 == 0) as f:
                f["conv1/1"]
            kept = blob_io.open(path, mmap=True)["conv1/0"]
            assert kept.is_view == (memoryview(kept).nbytes > 0 and (kept.offset or 0) % 4 == 0)
            blob_io.open(io.BytesIO(content))[0]
            with pytest.raises(FileNotFoundError):
                blob_io.open(path + ".none")
            with pytest.raises(blob_io.Malformed):
                blob_io.open(content[:-1], format="caffemodel")

    many(1000)
    gc.collect()
    before, memory = held(), resident()
    many(10_000)
    gc.collect()
    assert held() == before
    assert resident() - memory < 4 << 20
