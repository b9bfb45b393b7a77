"""Whole files: convert, verify, diff, hash, load, save; the options are those of the tool."""

from __future__ import annotations

import errno
import inspect
import json
import os
import pickle
import re
import shutil
import subprocess
import sys
from pathlib import Path
from typing import Any

import blob_io
import numpy as np
import pytest
from conftest import DATA, tool, tool_json

#: What the tool calls otherwise, and what is no option of a function.
NAMED = {"output": "dst", "force": "if_exists", "from": "from_format"}
OTHERS = {"help", "quiet", "json", "wide", "table", "ascii", "color", "progress", "max_arrays"}


def test_convert_has_every_option_of_the_tool() -> None:
    text = subprocess.run([tool(), "convert", "--help"], capture_output=True, check=True).stdout.decode()
    options = {name.replace("-", "_") for name in re.findall(r"^ +(?:-\w, )?--([a-z0-9-]+)", text, re.M)}
    assert len(options) > 35
    parameters = set(inspect.signature(blob_io.convert).parameters)
    missing = {NAMED.get(name, name) for name in options - OTHERS} - parameters
    assert not missing, missing


def test_a_model_is_the_tools_byte_for_byte(tmp_path: Path) -> None:
    net, text = (DATA / f"caffe/forward/lenet.{kind}" for kind in ("caffemodel", "prototxt"))
    keywords: dict[str, Any] = {"input": {"data": (1, 1, 14, 14)}, "dynamic_batch": True, "opset": 13, "external_data": True}
    blob_io.convert(str(net), tmp_path / "a.onnx", net=text, **keywords)
    options = ["--input", "data=1,1,14,14", "--dynamic-batch", "--opset", "13", "--external-data", "--net", str(text)]
    subprocess.run([tool(), "convert", str(net), "-o", str(tmp_path / "b.onnx"), *options], check=True)
    assert (tmp_path / "a.onnx").read_bytes() == (tmp_path / "b.onnx").read_bytes()
    with pytest.raises(blob_io.BlobError):
        blob_io.convert(str(net), tmp_path / "a.npz", opset=13)


def test_a_model_of_mxnets_net_is_the_tools_byte_for_byte(tmp_path: Path) -> None:
    weights, symbol = (DATA / f"mxnet/forward/block-{kind}" for kind in ("0000.params", "symbol.json"))
    blob_io.convert(str(weights), tmp_path / "a.onnx", symbol=symbol, input={"data": (1, 3, 4, 4)})
    options = ["--input", "data=1,3,4,4", "--symbol", str(symbol)]
    subprocess.run([tool(), "convert", str(weights), "-o", str(tmp_path / "b.onnx"), *options], check=True)
    assert (tmp_path / "a.onnx").read_bytes() == (tmp_path / "b.onnx").read_bytes()


def test_a_conversion_is_the_tools_byte_for_byte(path: str, tmp_path: Path) -> None:
    cases: list[tuple[dict[str, object], list[str]]] = [
        ({}, []),
        ({"names": "torch"}, ["--names", "torch"]),
        ({"dtype": "f16", "only": "conv1/0"}, ["--dtype", "f16", "--only", "conv1/0"]),
        ({"layout": "hwio", "strip_diff": True}, ["--layout", "hwio", "--strip-diff"]),
        ({"rgb": True, "sha256": True}, ["--rgb", "--sha256"]),
        ({"strict": True, "eps": None, "squeeze_legacy": True}, ["--strict", "--squeeze-legacy"]),
        ({"fc_from": (3, 2, 2)}, ["--fc-from", "3,2,2"]),
        ({"fc_from": {"ip": (3, 2, 2)}}, ["--fc-from", "ip=3,2,2"]),
        ({"only_shape": "4x12", "regex": True, "only": "^ip"}, ["--only-shape", "4x12", "--regex", "--only", "^ip"]),
        ({"exclude": ["conv1/1"], "only_dtype": "f32"}, ["--exclude", "conv1/1", "--only-dtype", "f32"]),
    ]
    channels = tmp_path / "rgb.caffemodel"
    from conftest import caffemodel

    rows = np.arange(48, dtype=np.float32).reshape(4, 12)
    conv = [np.ones((2, 3, 3, 3), np.float32), np.ones(2)]
    channels.write_bytes(caffemodel(("conv1", "Convolution", conv), ("ip", "InnerProduct", [rows])))
    for number, (keywords, options) in enumerate(cases):
        ours, theirs = tmp_path / f"{number}.safetensors", tmp_path / f"{number}-tool.safetensors"
        receipt = blob_io.convert(channels, ours, **keywords)  # type: ignore[arg-type]
        status, said = tool_json("convert", channels, "-o", theirs, *options)
        assert status == 0, said
        assert ours.read_bytes() == theirs.read_bytes(), options
        assert receipt["tensors"] == said["tensors"] and receipt.bytes_out == theirs.stat().st_size
        assert dict(receipt) == dict(blob_io.open(ours).receipt or {})


def test_other_formats_and_the_way_back(path: str, tmp_path: Path) -> None:
    content = Path(path).read_bytes()
    middle = tmp_path / "middle.npz"
    receipt = blob_io.convert(path, middle)
    assert receipt["source"]["name"] == Path(path).name and receipt.changes is not None
    back = tmp_path / "back.caffemodel"
    other = blob_io.convert(middle, back)
    assert back.read_bytes() == content
    assert other["source"]["format"] == "npz" and other["to"] == "caffemodel" and other["tensors"] == 2
    with pytest.raises(FileExistsError):
        blob_io.convert(path, middle)
    blob_io.convert(path, middle, if_exists="replace", no_receipt=True)
    assert blob_io.open(middle).receipt is None
    folder = tmp_path / "folder"
    blob_io.convert(path, str(folder) + "/")
    assert sorted(blob_io.open(folder).keys()) == ["conv1/0", "conv1/1"]
    shards = blob_io.convert(path, tmp_path / "s.safetensors", shard_size=72)
    assert shards.index and blob_io.open(shards.index).keys() == ["conv1/0", "conv1/1"]
    renamed = tmp_path / "renamed.safetensors"
    blob_io.convert(path, renamed, names={"conv1/0": "w", "conv1/1": "b"})
    assert blob_io.open(renamed).keys() == ["w", "b"]
    half = np.ones((2, 1, 3, 3), np.float32)
    tuned = tmp_path / "tuned.safetensors"
    blob_io.save_file({"conv1/0": half}, tuned)
    blob_io.convert(tuned, tmp_path / "tuned.caffemodel", into=path)
    put = blob_io.open(tmp_path / "tuned.caffemodel")
    assert put.keys() == ["conv1/0", "conv1/1"] and (put.get_tensor("conv1/0") == half).all()
    for wrong in [{"to": "params", "form": "v1"}, {"params_version": 2}, {"to": "onnx"}, {"bn": "x"}]:
        with pytest.raises(ValueError):
            blob_io.convert(path, tmp_path / "wrong.npz", **wrong)  # type: ignore[arg-type]
    with pytest.raises(blob_io.BlobError, match="does not say which format"):
        blob_io.convert(path, tmp_path / "wrong.bin")
    assert not (tmp_path / "wrong.npz").exists()


def test_sources_of_every_kind_and_dry_runs(path: str, tmp_path: Path) -> None:
    content = Path(path).read_bytes()
    for number, source in enumerate([content, bytearray(content), open(path, "rb"), blob_io.open(path)]):
        output = tmp_path / f"{number}.npz"
        receipt = blob_io.convert(source, output, dry_run=True)
        assert not output.exists() and receipt["tensors"] == 2
        blob_io.convert(source, output)
        assert blob_io.diff(path, output).same


def test_recipes_are_read_and_written(path: str, tmp_path: Path) -> None:
    recipe = tmp_path / "recipe.json"
    one = tmp_path / "one.safetensors"
    blob_io.convert(path, one, names="torch", dtype="f16", recipe_out=recipe)
    assert json.loads(recipe.read_text())["target"]["path"] == str(one)
    two, three = tmp_path / "two.safetensors", tmp_path / "three.safetensors"
    blob_io.convert(path, two, recipe=recipe)
    assert two.read_bytes() == one.read_bytes()
    status, _ = tool_json("convert", path, "--recipe", recipe, "-o", three)
    assert status == 0 and three.read_bytes() == one.read_bytes()
    with pytest.raises(ValueError, match="other options"):
        blob_io.convert(path, three, recipe=recipe, rgb=True, if_exists="replace")


def test_lost_values_are_told_and_refused(tmp_path: Path) -> None:
    source = tmp_path / "large.npz"
    np.savez(source, w=np.array([1e30, 1.0], np.float32))
    output = tmp_path / "half.safetensors"
    receipt = blob_io.convert(source, output, dtype="f16")
    assert any(change.is_loss and "infinite" in change.text for change in receipt.changes), receipt.changes
    with pytest.raises(blob_io.BlobError):
        blob_io.convert(source, output, dtype="f16", strict=True, if_exists="replace")


def test_progress_and_a_progress_that_raises(tmp_path: Path) -> None:
    source, output = tmp_path / "a.npy", tmp_path / "a.safetensors"
    np.save(source, np.ones(1 << 20, np.float32))
    told: list[tuple[int, int]] = []
    blob_io.convert(source, output, progress=lambda done, total: told.append((done, total)))
    assert told and told[-1][0] == told[-1][1] == source.stat().st_size


def test_verify_diff_and_hash_are_the_tools(path: str, tmp_path: Path) -> None:
    output = tmp_path / "torch.safetensors"
    blob_io.convert(path, output, names="torch", dtype="f16")
    report = blob_io.verify(output, against=path, finite=True)
    assert report.ok and not report.findings and pickle.loads(pickle.dumps(report)) == report
    content = bytearray(output.read_bytes())
    content[blob_io.open(output)[0].offset or 0] ^= 1
    broken = tmp_path / "broken.safetensors"
    broken.write_bytes(content)
    report = blob_io.verify(broken, against=path)
    assert not report.ok and {finding.reason for finding in report.findings} == {"receipt", "differs"}
    cut = tmp_path / "cut.caffemodel"
    cut.write_bytes(Path(path).read_bytes()[:-3])
    assert [finding.reason for finding in blob_io.verify(cut).findings] == ["truncated"]
    with pytest.raises(FileNotFoundError):
        blob_io.verify(tmp_path / "none")
    with pytest.raises(blob_io.NotTensors):
        blob_io.verify(b"%PDF-1.4 text of a document")

    difference = blob_io.diff(path, output)
    assert not difference.same
    assert blob_io.diff(path, path, exact=True).equal == 2
    changed = np.arange(18, dtype=np.float32).reshape(2, 1, 3, 3)
    changed[0, 0, 0, 0] = 0.25
    blob_io.save_file({"conv1/0": changed, "x": np.ones(1)}, tmp_path / "other.npz")
    difference = blob_io.diff(path, tmp_path / "other.npz")
    rows = {row.a or row.b: row for row in difference.rows}
    assert (difference.changed, difference.removed, difference.added) == (1, 1, 1)
    assert rows["conv1/0"].change == "values" and rows["conv1/0"].distance
    assert (rows["conv1/0"].distance.changed, rows["conv1/0"].distance.max_abs) == (1, 0.25)
    assert blob_io.diff(path, tmp_path / "other.npz", atol=0.5).changed == 0
    for wrong in [{"rtol": -1.0}, {"rtol": float("nan")}, {"atol": -0.5}]:
        with pytest.raises(ValueError, match="from 0 on"):
            blob_io.diff(path, path, **wrong)
    with pytest.raises(ValueError, match="one tolerance"):
        blob_io.diff(path, path, rtol=1.0, ulp=1)

    for algorithm, option in [("blake3", []), ("sha256", ["--sha256"])]:
        for is_content, options in [(True, ["--content", *option]), (False, option)]:
            _, said = tool_json("hash", path, *options)
            ours = blob_io.hash(path, content=is_content, algorithm=algorithm)  # type: ignore[arg-type]
            assert ours.rpartition(":")[2] == said["digest"]
            assert ours.startswith("content-1") == is_content


@pytest.mark.parametrize("format", ["safetensors", "params", "h5", "npz"])
def test_verify_refuses_a_file_that_changed_since_it_was_opened(format: str, tmp_path: Path) -> None:
    file = tmp_path / f"net.{format}"
    blob_io.save_file({"w": np.ones((1000, 10), np.float32)}, file)
    other = shutil.copy(file, tmp_path / f"other.{format}")
    f = blob_io.open(file)
    assert blob_io.verify(f).ok and blob_io.verify(other, against=f).ok
    os.truncate(file, 5000)
    with pytest.raises((blob_io.BlobError, OSError), match="while it was read"):
        blob_io.verify(f)
    with pytest.raises((blob_io.BlobError, OSError), match="while it was read"):
        blob_io.verify(other, against=f)


def test_load_file_with_names(path: str, tmp_path: Path, weight: np.ndarray) -> None:
    for mmap in [False, True]:
        plain = blob_io.load_file(path, mmap=mmap)
        assert list(plain) == ["conv1/0", "conv1/1"]
    torch = blob_io.load_file(path, names="torch")
    assert list(torch) == ["conv1.weight", "conv1.bias"]
    np.testing.assert_array_equal(torch["conv1.weight"], weight)
    assert list(blob_io.load_file(path, names={"conv1/0": "w"})) == ["w", "conv1/1"]
    names = tmp_path / "names.txt"
    names.write_text("conv1/0 w\n")
    assert list(blob_io.load_file(path, names=names)) == ["w", "conv1/1"]


class Legacy:
    """An array that hands out DLPack's older capsule alone."""

    def __init__(self, tensor: blob_io.Tensor) -> None:
        self.tensor = tensor

    def __dlpack__(self, stream: object = None) -> object:
        return self.tensor.__dlpack__()

    def __dlpack_device__(self) -> tuple[int, int]:
        return self.tensor.__dlpack_device__()


class Versioned(Legacy):
    def __dlpack__(self, stream: object = None, max_version: tuple[int, int] | None = None) -> object:
        return self.tensor.__dlpack__(max_version=max_version)


def test_save_file_takes_every_array(path: str, tmp_path: Path, weight: np.ndarray) -> None:
    ml_dtypes = pytest.importorskip("ml_dtypes")
    whole = np.arange(24, dtype=np.int32).reshape(2, 3, 4)
    stored = blob_io.open(path)["conv1/0"]
    tensors = {
        "c": whole,
        "f": np.asfortranarray(whole),
        "back": whole[::-1, :, ::2],
        "bytes": b"123",
        "scalar": np.array(2.5),
        "empty": np.zeros((0, 3), np.float16),
        "bool": np.array([True, False]),
        "stored": stored,
        "legacy": Legacy(stored),
        "versioned": Versioned(stored),
        "bf16": np.array([1.5, -2], ml_dtypes.bfloat16),
    }
    with pytest.raises(blob_io.BlobError, match="npz has no bf16, and \"bf16\" would be read as u16"):
        blob_io.save_file(tensors, tmp_path / "all.npz")
    file = tmp_path / "all.safetensors"
    blob_io.save_file(tensors, file, metadata={"note": "x"})
    read = blob_io.open(file)
    assert read.metadata()["note"] == "x" and read["bf16"].dtype == "bf16"
    for name, value in tensors.items():
        expected = weight if name in {"stored", "legacy", "versioned"} else np.frombuffer(value, "u1") if name == "bytes" else value
        np.testing.assert_array_equal(read.get_tensor(name), expected, err_msg=name)
    with pytest.raises(FileExistsError):
        blob_io.save_file({"a": whole}, file)
    blob_io.save_file({"a": whole}, file, overwrite=True)
    assert blob_io.open(file).keys() == ["a"]
    for refused in [{"a": object()}, {"a": np.array([1j])}, {"a": whole.astype(">i4")}]:
        with pytest.raises((TypeError, BufferError)):
            blob_io.save_file(refused, tmp_path / "none.npz")
    with pytest.raises(ValueError, match="format"):
        blob_io.save_file({"a": whole}, tmp_path / "none.xyz")
    with pytest.raises(blob_io.Misfit):
        blob_io.save_file({"a": whole.astype(np.uint16)}, tmp_path / "none.caffemodel")
    assert not list(tmp_path.glob("none*"))


def test_a_mask_is_not_dropped(tmp_path: Path) -> None:
    masked = np.ma.masked_array(np.ones(3, np.float32), mask=[0, 1, 0])
    with pytest.raises(TypeError, match="array.filled"):
        blob_io.save_file({"a": masked}, tmp_path / "a.npz")
    blob_io.save_file({"a": masked.filled(0)}, tmp_path / "a.npz")


def test_what_save_file_writes_is_read_by_the_formats_own_libraries(tmp_path: Path) -> None:
    from safetensors.numpy import load_file

    values = {"a": np.arange(6, dtype=np.float32).reshape(2, 3), "b": np.array([1, 2], np.int64)}
    blob_io.save_file(values, tmp_path / "x.safetensors")
    blob_io.save_file(values, tmp_path / "x.npz")
    blob_io.save_file({"a": values["a"]}, tmp_path / "x.npy")
    for read in [load_file(tmp_path / "x.safetensors"), dict(np.load(tmp_path / "x.npz"))]:
        assert set(read) == set(values)
        for name, value in values.items():
            np.testing.assert_array_equal(read[name], value)
    np.testing.assert_array_equal(np.load(tmp_path / "x.npy"), values["a"])
    for format in ["x.params", "x.h5"]:
        blob_io.save_file(values, tmp_path / format)
        for name, value in values.items():
            np.testing.assert_array_equal(blob_io.open(tmp_path / format).get_tensor(name), value)


def test_merge_split_and_permute_are_numpys(path: str) -> None:
    whole = np.arange(120, dtype=np.float32).reshape(4, 5, 6)
    for axis in [0, 1, 2, -1]:
        sizes = [1, whole.shape[axis] - 2, 0, 1]
        parts = blob_io.split(whole, axis, sizes)
        cuts = np.split(whole, np.cumsum(sizes)[:-1], axis)
        for ours, theirs in zip(parts, cuts, strict=True):
            np.testing.assert_array_equal(ours.numpy(), theirs)
            assert ours.numpy().ctypes.data % 64 == 0
        again = blob_io.merge(parts, axis)
        np.testing.assert_array_equal(again.numpy(), whole)
        np.testing.assert_array_equal(blob_io.merge([whole[::-1], whole], axis)[...], np.concatenate([whole[::-1], whole], axis))
    for order in [(2, 0, 1), (0, 2, 1), (-1, 1, 0)]:
        np.testing.assert_array_equal(np.from_dlpack(blob_io.permute(whole, order)), whole.transpose(order))
    stored = blob_io.open(path)["conv1/0"]
    np.testing.assert_array_equal(blob_io.merge([stored, stored], 1).numpy(), np.concatenate([stored.numpy()] * 2, 1))
    made = blob_io.merge([memoryview(b"12"), b"3"], 0)
    assert (made.name, made.dtype, made.shape, made.kind, made.offset, made.is_view) == ("", "u8", (3,), "data", None, False)
    for wrong in [lambda: blob_io.merge([], 0), lambda: blob_io.merge([whole, whole.astype("f8")], 0)]:
        with pytest.raises(ValueError):
            wrong()
    for wrong in [lambda: blob_io.split(whole, 0, [1]), lambda: blob_io.split(whole, 3, [4]), lambda: blob_io.permute(whole, [0, 0, 1])]:
        with pytest.raises(ValueError):
            wrong()
    ours = [t.numpy() for t in blob_io.split(whole, 0, [2, 2])]
    ours[0][:] = -1
    np.testing.assert_array_equal(ours[1], whole[2:])


def test_a_folded_net_is_the_tools(tmp_path: Path) -> None:
    nets = sorted((DATA / "caffe" / "forward").glob("*.caffemodel"))[:6]
    assert nets
    for number, net in enumerate(nets):
        ours, theirs = tmp_path / f"{number}.safetensors", tmp_path / f"{number}-tool.safetensors"
        status, _ = tool_json("convert", net, "-o", theirs, "--fold", "--names", "torch")
        if status != 0:
            with pytest.raises(blob_io.BlobError):
                blob_io.convert(net, ours, fold=True, names="torch")
            continue
        blob_io.convert(net, ours, fold=True, names="torch")
        assert ours.read_bytes() == theirs.read_bytes(), net
        assert blob_io.verify(ours, against=net).ok, net
    assert os.listdir(tmp_path)


def test_some_tensors_are_verified_and_warnings_may_fail(tmp_path: Path) -> None:
    source = tmp_path / "a.npz"
    np.savez(source, good=np.ones(3, np.float32), bad=np.array([1, np.nan], np.float32))
    output = tmp_path / "a.safetensors"
    blob_io.convert(source, output)
    assert not blob_io.verify(source, finite=True).ok
    assert blob_io.verify(source, finite=True, only="good").ok
    assert blob_io.verify(source, finite=True, exclude="b*").ok
    assert not blob_io.verify(source, finite=True, only_shape="2").ok
    assert blob_io.verify(output, against=source, only="good").ok
    np.savez(source, good=np.ones(3, np.float32), bad=np.array([1, 2], np.float32))
    assert not blob_io.verify(output, against=source).ok
    assert blob_io.verify(output, against=source, only="good").ok
    with pytest.raises(blob_io.BlobError, match="no tensor matches"):
        blob_io.verify(source, only="other")
    with pytest.raises(ValueError, match="open file"):
        blob_io.verify(blob_io.open(source), only="good")
    odd = DATA / "caffe/net/mixed_layer_and_layers.caffemodel"
    report = blob_io.verify(odd)
    assert report.ok and report.notes
    assert not blob_io.verify(odd, strict=True).ok


def test_a_file_is_saved_without_being_loaded(tmp_path: Path) -> None:
    source, target = tmp_path / "big.npy", tmp_path / "big.safetensors"
    np.lib.format.open_memmap(source, mode="w+", dtype=np.float32, shape=(32 << 20,))[7] = 1
    script = (
        "import resource, sys, blob_io\n"
        "before = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss\n"
        "blob_io.save_file(blob_io.open(sys.argv[1]), sys.argv[2])\n"
        "print(resource.getrusage(resource.RUSAGE_SELF).ru_maxrss - before)"
    )
    grown = subprocess.run([sys.executable, "-c", script, source, target], check=True, capture_output=True)
    assert int(grown.stdout) < 24 << 10, "KiB, of 128 MiB"
    np.testing.assert_array_equal(blob_io.open(target)[0].numpy(), np.load(source))


def test_a_job_is_done_once(path: str, tmp_path: Path) -> None:
    source = tmp_path / "net.caffemodel"
    source.write_bytes(Path(path).read_bytes())
    output = tmp_path / "net.safetensors"

    def run(**options: Any) -> bool:
        return blob_io.convert(source, output, if_exists="done", **options).done

    assert [run(names="torch"), run(names="torch")] == [False, True]
    written = output.stat().st_mtime_ns
    receipt = blob_io.convert(source, output, if_exists="done", names="torch")
    assert receipt["source"]["name"] == "net.caffemodel" and receipt["tensors"] == 2
    assert output.stat().st_mtime_ns == written
    with pytest.raises(FileExistsError, match="exists with other bytes"):
        run()
    source.write_bytes(source.read_bytes()[:-1] + b"\1")
    with pytest.raises(FileExistsError, match="exists with other bytes"):
        run(names="torch")
    assert not blob_io.convert(source, output, if_exists="replace", names="torch").done
    with pytest.raises(ValueError, match="path of the source"):
        blob_io.convert(source.read_bytes(), output, if_exists="done")
    # Where a format has no receipt, the same bytes are written again.
    plain = tmp_path / "net.params"
    assert [blob_io.convert(source, plain, if_exists="done").done for _ in range(2)] == [False, False]


def test_a_copy_and_a_folded_net_are_done_once(tmp_path: Path) -> None:
    source, output = tmp_path / "a.npz", tmp_path / "out.npz"
    blob_io.save_file({"w": np.arange(6.0)}, source)

    def done() -> bool:
        return blob_io.convert(source, output, if_exists="done").done

    assert [done() for _ in range(2)] == [False, True]
    content = bytearray(output.read_bytes())
    content[blob_io.open(output)["w"].offset or 0] ^= 1
    output.write_bytes(content)
    with pytest.raises(FileExistsError, match="other bytes"):
        done()
    net, folded = tmp_path / "net-0000.params", tmp_path / "out" / "net-0000.params"
    folded.parent.mkdir()
    shutil.copyfile(DATA / "mxnet/forward/block-0000.params", net)
    shutil.copyfile(DATA / "mxnet/forward/block-symbol.json", tmp_path / "net-symbol.json")
    with_receipt, symbol = folded.with_suffix(".safetensors"), folded.with_name("net-symbol.json")

    def fold() -> bool:
        return blob_io.convert(net, with_receipt, fold=True, if_exists="done").done

    assert [fold() for _ in range(2)] == [False, True]
    symbol.unlink()
    assert [fold() for _ in range(2)] == [False, True] and symbol.exists()
    symbol.write_bytes(b"{}")
    with pytest.raises(FileExistsError, match="other bytes"):
        fold()


def test_the_tool_and_the_package_agree_on_what_is_done(path: str, tmp_path: Path) -> None:
    made = [tool(), "batch", "--make", path, "--to", "safetensors", "--names", "torch", "-o", str(tmp_path)]
    line = subprocess.run(made, check=True, capture_output=True, text=True).stdout
    job = json.loads(line)
    done = blob_io.convert(path, job["target"]["path"], recipe=job, if_exists="done").done
    assert not done
    jobs = tmp_path / "jobs.ndjson"
    jobs.write_text(line, encoding="utf-8")
    again = subprocess.run([tool(), "batch", "--json", str(jobs)], check=True, capture_output=True, text=True)
    assert json.loads(again.stdout)["state"] == "done"
    assert blob_io.convert(path, job["target"]["path"], names="torch", if_exists="done").done


def test_a_job_says_the_format_of_its_source(tmp_path: Path) -> None:
    source, output = tmp_path / "w.bin", tmp_path / "w.safetensors"
    shutil.copyfile(DATA / "caffe/blobproto/zero_axis_fresh.binaryproto", source)
    made = [tool(), "batch", "--make", str(source), "--from", "binaryproto", "--to", "safetensors", "-o", str(tmp_path)]
    line = subprocess.run(made, check=True, capture_output=True, text=True).stdout
    job = json.loads(line)

    def run(**options: Any) -> bool:
        return blob_io.convert(source, job["target"]["path"], recipe=job, **options).done

    with pytest.raises(blob_io.NotTensors):
        blob_io.convert(source, output)
    assert [run(if_exists="done"), run(if_exists="done")] == [False, True]
    jobs = tmp_path / "jobs.ndjson"
    jobs.write_text(line, encoding="utf-8")
    again = subprocess.run([tool(), "batch", "--json", str(jobs)], check=True, capture_output=True, text=True)
    assert json.loads(again.stdout)["state"] == "done"
    job["sources"] = [{"path": str(source)}, {"path": str(source)}]
    with pytest.raises(ValueError, match="2 sources"):
        run(if_exists="replace")
    written = tmp_path / "recipe.json"
    blob_io.convert(source, output, from_format="binaryproto", recipe_out=written, if_exists="replace")
    assert json.loads(written.read_text())["sources"] == [{"path": str(source), "format": "binaryproto"}]
    assert not blob_io.convert(source, tmp_path / "again.npz", recipe=written).done


def test_options_of_opening_are_not_dropped_with_an_open_file(path: str, tmp_path: Path) -> None:
    f = blob_io.open(path)
    for option in [{"from_format": "npz"}, {"member": "a"}, {"salvage": True}, {"max_alloc": 1}, {"max_spool": 1}]:
        with pytest.raises(ValueError, match="opened already"):
            blob_io.convert(f, tmp_path / "a.npz", **option)  # type: ignore[arg-type]
    with pytest.raises(ValueError, match="opened already"):
        blob_io.load_file(f, mmap=True)
    assert not (tmp_path / "a.npz").exists()


def test_a_recipe_replaces_no_file_of_its_conversion(path: str, tmp_path: Path) -> None:
    names, recipe = tmp_path / "names.txt", tmp_path / "recipe.json"
    names.write_text("conv1/0 w\n")
    content = {file: Path(file).read_bytes() for file in (path, str(names))}
    output = tmp_path / "a.safetensors"
    os.link(path, tmp_path / "link")
    for place in [path, tmp_path / "link", names, output, tmp_path / ".." / tmp_path.name / "a.safetensors"]:
        with pytest.raises(ValueError, match="would replace a file of its conversion"):
            blob_io.convert(path, output, names=names, recipe_out=place, if_exists="replace")
    recipe.write_text("{}")
    # Known before anything is written.
    with pytest.raises(FileExistsError) as exists:
        blob_io.convert(path, output, names=names, recipe_out=recipe)
    assert exists.value.filename == str(recipe) and not output.exists()
    assert {file: Path(file).read_bytes() for file in content} == content
    recipe.unlink()
    blob_io.convert(path, output, names=names, recipe_out=recipe, dry_run=True)
    assert not recipe.exists() and not output.exists()
    for _ in range(2):
        blob_io.convert(path, output, names=names, recipe_out=recipe, if_exists="done")
    with pytest.raises(FileExistsError):
        blob_io.convert(path, tmp_path / "b.safetensors", names="torch", recipe_out=recipe, if_exists="done")
    assert not (tmp_path / "b.safetensors").exists()


def test_no_source_is_replaced_by_its_copy(path: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    content = Path(path).read_bytes()
    os.link(path, "link.caffemodel")
    for target in [path, "link.caffemodel"]:
        for source in [path, Path(path), open(path, "rb"), open(path, "r+b", buffering=0)]:
            with pytest.raises(blob_io.Misfit, match="never replaced by its copy") as refused:
                blob_io.convert(source, target, dtype="f64", if_exists="replace")
            assert refused.value.file == target
    # Standard output is the program's.
    with pytest.raises(ValueError, match="standard output"):
        blob_io.convert(path, "-", to="npz")
    blob_io.convert(path, "./-", to="npz")
    assert blob_io.diff(path, "./-").same and Path(path).read_bytes() == content


def test_wrong_options_say_which(path: str, tmp_path: Path) -> None:
    odd = os.fsdecode(b"n\xff.caffemodel")
    shutil.copyfile(path, tmp_path / odd)
    blob_io.convert(tmp_path / odd, tmp_path / "odd.npz")
    cases: list[tuple[dict[str, Any], str]] = [
        ({"dtype": "f8"}, "dtype is one of"),
        ({"eps": float("nan")}, "float"),
        ({"recipe": {"target": 5}}, "no object with a target"),
        ({"recipe": {"sources": "x"}}, "no sources"),
        ({"net": odd}, "not UTF-8"),
        ({"names": odd}, "not UTF-8"),
        ({"recipe_out": tmp_path / "r.json", "into": odd}, "not UTF-8"),
    ]
    for options, words in cases:
        with pytest.raises(ValueError, match=words):
            blob_io.convert(path, tmp_path / "a.npz", **options)
    for options in [{"if_exists": "done"}, {"recipe_out": tmp_path / "r.json"}]:
        with pytest.raises(ValueError, match="not UTF-8"):
            blob_io.convert(tmp_path / odd, tmp_path / "a.npz", **options)
    assert not (tmp_path / "a.npz").exists() and not (tmp_path / "r.json").exists()


def test_a_number_is_no_path_and_no_mapping(path: str, tmp_path: Path) -> None:
    output = tmp_path / "net.npz"
    wrong: list[dict[str, Any]] = [{"input": 5}, {"input": [("data", (1, 2))]}, {"recipe_out": {}}]
    for options in wrong:
        with pytest.raises(TypeError):
            blob_io.convert(path, output, **options)
    for metadata in [5, [("key", "value")]]:
        with pytest.raises(TypeError, match="metadata is a mapping"):
            blob_io.save_file({"w": b"1"}, output, metadata=metadata)  # type: ignore[arg-type]
    for name, text in [("recipe", b'{"schema": "blob.recipe/1", "steps": [], "target": {}}'), ("recipe_out", b"")]:
        file = tmp_path / f"{name}.json"
        file.write_bytes(text)
        number = os.open(file, os.O_RDWR)
        with pytest.raises(TypeError, match="int"):
            blob_io.convert(path, output, **{name: number})  # type: ignore[arg-type]
        os.close(number)  # is open still
        assert file.read_bytes() == text
    assert not output.exists()


def test_a_target_without_a_place_is_an_error_of_the_system(path: str, tmp_path: Path) -> None:
    missing = tmp_path / "none" / "out.npz"
    for write in (lambda: blob_io.convert(path, missing), lambda: blob_io.save_file({"a": b"1"}, missing)):
        with pytest.raises(FileNotFoundError, match="none is missing") as raised:
            write()
        assert raised.value.errno == errno.ENOENT and raised.value.filename == str(missing)
    with pytest.raises(IsADirectoryError, match="end the name with a /") as raised:
        blob_io.save_file({"a": b"1"}, tmp_path, format="npz")
    assert raised.value.errno == errno.EISDIR and raised.value.filename == str(tmp_path)
