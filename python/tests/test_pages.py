"""The pages in docs/python: their lines run, on golden files under the pages' names."""

from __future__ import annotations

import json
import re
import shutil
import subprocess
import sys
import time
from pathlib import Path
from typing import Any

import blob_io
import numpy as np
import pytest
from conftest import DATA, caffemodel

PAGES = DATA.parents[1] / "docs" / "python"

#: The golden files that stand in for a page's ones.
FILES = {
    "mxnet": {"net-0000.params": "mxnet/forward/block-0000.params", "net-symbol.json": "mxnet/forward/block-symbol.json"},
    "caffe": {"net.caffemodel": "caffe/forward/inception.caffemodel"},
    "neoml": {"net.neoml": "neoml/py/blob_1x2x3x4x5x6x7_float.neoml"},
}


#: The page about many files, whose jobs are made here.
BATCH = "batch"

#: The page that says why each class may be shared.
THREADS = "threads"


def code(page: Path, fence: str = "python") -> str:
    return "\n".join(re.findall(rf"^```{fence}\n(.*?)^```", page.read_text(encoding="utf-8"), re.M | re.S))


def test_every_page_is_run() -> None:
    assert {page.stem for page in PAGES.glob("*.md")} == {*FILES, BATCH, THREADS}


def test_every_class_is_on_the_page_of_threads(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    shutil.copyfile(DATA / "caffe/forward/inception.caffemodel", tmp_path / "net.caffemodel")
    monkeypatch.chdir(tmp_path)
    names: dict[str, Any] = {}
    exec(compile(code(PAGES / f"{THREADS}.md"), THREADS, "exec"), names)
    assert list(names["arrays"]) == blob_io.open("net.caffemodel").keys() != []
    text = (PAGES / f"{THREADS}.md").read_text(encoding="utf-8")
    rows = "".join(line for line in text.splitlines() if line.startswith("|"))
    shared = [getattr(blob_io, name) for name in blob_io.__all__]
    classes = {kind for kind in shared if isinstance(kind, type) and not issubclass(kind, Exception)}
    assert len(classes) > 12 and all(f"`{kind.__name__}`" in rows for kind in classes)
    # Tuples, as the page says, and compiled classes without an attribute that can be set.
    assert {kind.__name__ for kind in classes if not issubclass(kind, tuple)} == {"File", "Tensor", "Slice", "safe_open", "Receipt"}
    for thing in [names["f"], names["f"].__copy__()]:
        with pytest.raises(AttributeError):
            thing.name = "other"
    sources = (DATA.parents[1] / "python" / "src").rglob("*.rs")
    compiled = [line for source in sources for line in source.read_text(encoding="utf-8").splitlines() if "#[pyclass" in line]
    assert len(compiled) >= 3 and all("frozen" in line for line in compiled), compiled


@pytest.mark.parametrize("name", sorted(FILES))
def test_a_framework_is_left_in_six_lines(name: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    for file, golden in FILES[name].items():
        shutil.copyfile(DATA / golden, tmp_path / file)
    monkeypatch.chdir(tmp_path)
    lines = code(PAGES / f"{name}.md")
    assert 0 < len([line for line in lines.splitlines() if line.strip()]) <= 6
    before = set(tmp_path.iterdir())
    exec(compile(lines, name, "exec"), {})
    assert set(tmp_path.iterdir()) > before


def test_thousands_of_files_run_again_after_a_kill(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    source, target = str(DATA / "caffe/forward/inception.caffemodel"), {"format": "safetensors"}
    jobs = [{"sources": [{"path": source}], "target": {**target, "path": f"{n}.safetensors"}} for n in range(40)]
    Path("jobs.ndjson").write_text("".join(json.dumps(job) + "\n" for job in jobs), encoding="utf-8")
    lines = code(PAGES / f"{BATCH}.md")
    script = [sys.executable, "-c", lines]
    for wait in [0.05, 0.2, 0.35]:
        with subprocess.Popen(script) as worker:
            time.sleep(wait)
            worker.kill()
    names: dict[str, Any] = {}
    exec(compile(lines, BATCH, "exec"), names)
    first = Path("0.safetensors").read_bytes()
    assert all(Path(f"{n}.safetensors").read_bytes() == first for n in range(40))
    exec(compile(lines, BATCH, "exec"), names)
    assert names["done"] == [True] * 40


def test_the_package_s_readme_runs(path: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    rows = np.arange(64, dtype=np.float32).reshape(4, 16)
    layers: list[tuple[str, str, list[np.ndarray]]] = [
        ("conv1", "Convolution", [np.ones((3, 1, 2, 2), np.float32), np.zeros(3, np.float32)]),
        ("fc6", "InnerProduct", [rows]),
    ]
    Path("net.caffemodel").write_bytes(caffemodel(*layers))
    blob_io.convert("net.caffemodel", "tuned.npz")
    known: dict[str, Any] = {"blob_io": blob_io, "array": rows, "a": np.ones((5, 2, 3, 4)), "b": np.ones((1, 2, 3, 4))}
    text = code(DATA.parents[1] / "python" / "README.md")
    # A net that is made here says nothing of what its layers read, without which nothing is folded.
    text = text.replace(", fold=True", "")
    text = re.sub(r"^(with .*:)\s+#.*$", r"\1", text, flags=re.M)
    exec(compile(text, "python/README", "exec"), known)
    assert {"weight", "part", "receipt"} <= set(known) and Path("w.params").exists()


#: The pages with a way back, each with a file of it.
BACK = {
    "caffe": ("net.caffemodel", "caffe/forward/inception.caffemodel"),
    "neoml": ("net.cnnarch", "neoml/py/net_fc.cnnarch"),
}


@pytest.mark.parametrize("name", sorted(BACK))
def test_tuned_weights_go_back(name: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    file, golden = BACK[name]
    shutil.copyfile(DATA / golden, tmp_path / file)
    monkeypatch.chdir(tmp_path)
    exec(compile(code(PAGES / f"{name}.md", "py"), name, "exec"), {"blob_io": blob_io})
    before, after = blob_io.open(file), blob_io.open("tuned" + Path(file).suffix)
    assert before.keys() == after.keys() != []
    for tensor in before.values():
        np.testing.assert_array_equal(after[tensor.name].numpy(), tensor.numpy() * np.float32(0.5))


def test_the_readme_runs(path: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    readme = (DATA.parents[1] / "README.md").read_text(encoding="utf-8")
    lines = readme.split("## From Python", 1)[1].split("```python\n", 1)[1].split("```", 1)[0]
    monkeypatch.chdir(tmp_path)
    exec(compile(lines, "README", "exec"), {})
    assert (tmp_path / "net.safetensors").exists()
