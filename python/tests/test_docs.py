"""The examples of docstrings run."""

from __future__ import annotations

import doctest
import inspect
import re
import typing
from collections.abc import Callable
from importlib.metadata import distribution
from types import FunctionType, ModuleType

import blob_io
import blob_io.torch
import pytest
from blob_io import _convert, _safetensors
from conftest import DATA


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


def functions() -> dict[str, Callable[..., object]]:
    """Every public function and class, and every method and property of these classes, also those with underscores."""
    found: dict[str, Callable[..., object]] = {}
    for module in [blob_io, blob_io.torch]:
        for name in module.__all__:
            thing = getattr(module, name)
            found[f"{module.__name__}.{name}"] = thing
            for key, value in vars(thing).items() if isinstance(thing, type) else []:
                inner = value.fget if isinstance(value, property) else getattr(value, "__func__", value)
                # What a NamedTuple is given knows no globals at all.
                is_given = getattr(inner, "__module__", None) == f"namedtuple_{name}"
                if callable(inner) and not isinstance(inner, type) and not is_given:
                    found[f"{module.__name__}.{name}.{key}"] = inner
    return found


def test_the_types_of_everything_public_can_be_asked_for() -> None:
    written, compiled = [], []
    for name, function in functions().items():
        hints = typing.get_type_hints(function)
        if isinstance(function, type):
            continue
        parameters = inspect.signature(function).parameters
        if isinstance(function, FunctionType):
            assert set(hints) == set(function.__annotations__), name
            written.append(name)
        else:  # whose types the stubs have alone
            assert hints == {}, name
            compiled += [name] if parameters else []
    assert {"blob_io.convert", "blob_io.File.__copy__", "blob_io.torch.load_file"} <= set(written)
    assert {"blob_io.safe_open.__exit__", "blob_io.Report.ok", "blob_io.Receipt.parse"} <= set(written)
    assert {"blob_io.open", "blob_io.File.get_tensors", "blob_io.Tensor.__dlpack__"} <= set(compiled)
    hints = typing.get_type_hints(blob_io.convert)
    assert hints["return"] is blob_io.Receipt and hints["fold"] is bool
    assert hints["bn"] == typing.Literal["fold-factor", "raw"] | None


def test_the_distribution_has_its_licenses_and_its_own_page() -> None:
    root, wheel = DATA.parents[1], distribution("blob-io")
    texts = {file.name: file.locate() for file in wheel.files or [] if "licenses" in file.parts}
    assert set(texts) == {"LICENSE-MIT", "LICENSE-APACHE"}
    for name, place in texts.items():
        text = (root / name).read_bytes()
        assert text == (root / "python" / name).read_bytes() == open(place, "rb").read(), name
    assert wheel.version == blob_io.__version__ and wheel.metadata["License-Expression"] == "MIT OR Apache-2.0"
    assert set(wheel.metadata.get_all("Provides-Extra") or []) == {"numpy", "torch", "jax", "bf16"}
    assert all("extra ==" in need for need in wheel.requires or []), "nothing is needed to install"
    # An index shows the page without the repository around.
    page = (root / "python" / "README.md").read_text(encoding="utf-8")
    links = re.findall(r"\]\(([^)]*)\)", page)
    assert links and all(link.startswith("https://") for link in links), links
    inside = [link.partition("/blob/main/")[2] for link in links if "/blob/main/" in link]
    assert inside and all((root / place).is_file() for place in inside), inside
