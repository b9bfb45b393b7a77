"""What annotations name, imported when somebody asks for their types: `typing` takes more time than the package.

Each module says ``t.Path``, and has for ``t`` this module's names, by `_later`.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from os import PathLike
from types import TracebackType
from typing import Any, BinaryIO, Literal

from ._blob_io import File, Tensor
from ._slices import Slice
from ._types import Diff, Receipt, Report

Path = str | PathLike[str]
Source = Path | bytes | bytearray | memoryview | BinaryIO | File
Progress = Callable[[int, int], object] | Any

__all__ = [
    "Any",
    "BinaryIO",
    "Callable",
    "Diff",
    "File",
    "Iterable",
    "Iterator",
    "Literal",
    "Mapping",
    "Path",
    "PathLike",
    "Progress",
    "Receipt",
    "Report",
    "Sequence",
    "Slice",
    "Source",
    "Tensor",
    "TracebackType",
]
