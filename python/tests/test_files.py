"""Every golden and every real file against the tool's own JSON; hostile files raise."""

from __future__ import annotations

import hashlib
from pathlib import Path

import blob_io
import pytest
from conftest import DATA, files, tool_json

#: Longer real files are listed, and some of their tensors read.
WHOLE = 64 << 20


def content_hash(tensors: list[blob_io.Tensor]) -> str:
    """The digest that docs/content-hash.md defines, with SHA-256."""

    def number(n: int) -> bytes:
        return n.to_bytes(8, "little")

    def text(t: str) -> bytes:
        return number(len(t.encode())) + t.encode()

    whole = hashlib.sha256(b"blob.content/1\n")
    for t in sorted(tensors, key=lambda t: t.name.encode()):
        whole.update(text(t.name) + text(t.dtype) + number(t.ndim) + b"".join(map(number, t.shape)))
        whole.update(hashlib.sha256(t.tobytes()).digest())
    return whole.hexdigest()


def rows(f: blob_io.File) -> list[dict[str, object]]:
    return [
        {"name": t.name, "kind": t.kind, "layer_type": t.layer_type, "bytes": t.nbytes, "offset": t.offset}
        for t in f.values()
    ]


def test_every_file_is_what_the_tool_says() -> None:
    read = refused = views = hashed = 0
    for path in files():
        status, listed = tool_json("ls", path)
        if listed is None or listed.get("error"):
            with pytest.raises((blob_io.BlobError, OSError)):
                blob_io.open(path)
            refused += 1
            continue
        f = blob_io.open(path, mmap=True)
        assert (f.format, f.dialect) == (listed["format"], listed["dialect"]), path
        assert rows(f) == [{key: row[key] for key in rows(f)[0]} for row in listed["tensors"]] if len(f) else True, path
        for t, row in zip(f.values(), listed["tensors"], strict=True):
            if row["error"] is None and row["dtype"]:
                assert (t.dtype, list(t.shape)) == (row["dtype"], row["shape"]), (path, t.name)
                assert not t.is_view or t.offset is not None and t.nbytes > 0
                views += t.is_view
            elif row["error"] is not None:
                with pytest.raises((blob_io.BlobError, MemoryError)):
                    t.tobytes()
        assert [w.text for w in f.warnings if w.tensor is None] == [bare(w) for w in listed["warnings"]], path
        read += 1
        if sum(t.nbytes for t in f.values()) > WHOLE:
            for t in list(f.values())[:3]:
                assert len(t.tobytes()) == t.nbytes
            continue
        status, digest = tool_json("hash", "--content", "--sha256", path)
        if status == 0:
            held = [t for t in f.values() if t.kind != "none"]
            assert content_hash(held) == digest["digest"], path
            hashed += 1
    assert read > 400 and refused > 50 and views > 500 and hashed > 350, (read, refused, views, hashed)


def bare(warning: str) -> str:
    """A warning of the tool without its place in front."""
    return warning.split(": ", 1)[1] if warning.startswith("at byte ") else warning


def test_arrays_are_the_bytes_of_their_tensors() -> None:
    arrays = 0
    for path in files():
        if path.stat().st_size > WHOLE:
            continue
        try:
            f = blob_io.open(path, mmap=True)
        except (blob_io.BlobError, OSError):
            continue
        for t in f.values():
            try:
                expected = t.tobytes()
            except (blob_io.BlobError, MemoryError):
                continue
            if 0 in t.shape and t.nbytes == 0 and max(t.shape) > 1 << 32:
                continue  # numpy has no such shape
            array = t.numpy()
            assert array.shape == t.shape and array.tobytes() == expected, (path, t.name)
            assert array.ctypes.data % array.itemsize == 0, (path, t.name)
            arrays += 1
    assert arrays > 3000, arrays


def test_about_as_many_arrays_are_views_as_the_readme_says() -> None:
    readme = (DATA.parents[1] / "python" / "README.md").read_text(encoding="utf-8")
    table = readme.split("| MXNet's lists |", 1)[1].split("\n\n", 1)[0].splitlines()
    counts = [[int(n.replace(",", "")) for n in cell.split(" of ")] for cell in table[2].strip("| ").split(" | ")]
    shares = dict(zip(["params", "hdf5", "safetensors", "npz", "caffemodel", "neoml-net", "neoml"], counts, strict=True))
    found = {name: [0, 0] for name in shares}
    for path in files():
        try:
            f = blob_io.open(path, mmap=True)
        except (blob_io.BlobError, OSError):
            continue
        if f.format in found and "onnx_graph" not in path.parts:  # whose archives are compressed
            held = [t for t in f.values() if t.nbytes > 0 and t.kind != "none"]
            found[f.format][0] += sum(t.is_view for t in held)
            found[f.format][1] += len(held)
    for name, (views, arrays) in shares.items():
        assert abs(views / arrays - found[name][0] / found[name][1]) < 0.15, (name, found[name])
    # With the real files the table is what was counted.
    assert found["neoml"][0] == 0 and found["params"][1] > 10_000, found


def test_a_cut_file_raises_wherever_it_is_cut(path: str) -> None:
    content = Path(path).read_bytes()
    for end in range(len(content)):
        try:
            for t in blob_io.open(content[:end], max_alloc=1 << 20).values():
                t.tobytes()
        except blob_io.BlobError:
            pass


def test_changed_bytes_raise_or_read() -> None:
    small = [path for path in files() if 0 < path.stat().st_size < 4096]
    for path in small[::7]:
        content = path.read_bytes()
        for at in range(0, len(content), max(1, len(content) // 40)):
            changed = bytearray(content)
            changed[at] ^= 0xFF
            try:
                for t in blob_io.open(bytes(changed), salvage=at % 2 == 0, max_alloc=1 << 20).values():
                    t.tobytes()
            except blob_io.BlobError:
                pass
