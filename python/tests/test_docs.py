"""The examples of docstrings run."""

from __future__ import annotations

import doctest
import inspect
from types import ModuleType

import blob_io
import pytest
from blob_io import _convert, _safetensors


def examples() -> list[tuple[str, doctest.DocTest]]:
    parser, found = doctest.DocTestParser(), []
    things: list[object] = [blob_io, *(getattr(blob_io, name) for name in blob_io.__all__)]
    for thing in things:
        text = inspect.getdoc(thing)
        name = getattr(thing, "__name__", str(thing))
        if text and ">>>" in text:
            found.append((name, parser.get_doctest(text, {}, name, None, 0)))
    return found


def test_there_are_examples() -> None:
    names = {name for name, _ in examples()}
    assert {"blob_io", "open", "convert", "verify", "diff", "hash", "load_file", "save_file", "merge"} <= names


@pytest.mark.parametrize("example", [test for _, test in examples()], ids=[name for name, _ in examples()])
def test_an_example_runs(example: doctest.DocTest, path: str) -> None:
    example.globs = {"path": path, "numpy": __import__("numpy")}
    runner = doctest.DocTestRunner(optionflags=doctest.NORMALIZE_WHITESPACE)
    assert runner.run(example).failed == 0


def test_everything_public_has_words() -> None:
    modules: list[ModuleType] = [blob_io, _convert, _safetensors]
    assert all(module.__doc__ for module in modules)
    for name in blob_io.__all__:
        assert inspect.getdoc(getattr(blob_io, name)), name
