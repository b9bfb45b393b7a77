"""Results: plain values that compare, print and pickle."""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping
from typing import Any, NamedTuple


class Layer(NamedTuple):
    """A layer with tensors."""

    name: str
    #: The type, where the file states types.
    type: str | None
    #: The names of its tensors.
    tensors: list[str]


class Warning_(NamedTuple):
    """Something unusual whose meaning is clear nevertheless."""

    text: str
    #: The tensor concerned; ``None`` for the file as a whole.
    tensor: str | None
    offset: int | None
    #: Whether something of the file is not listed.
    is_loss: bool


class Histogram(NamedTuple):
    """How many finite values lie in each of equal bins from ``min`` to ``max``."""

    min: float
    max: float
    counts: list[int]


class Stats(NamedTuple):
    """Statistics of values, taken in double precision. ``min`` to ``std`` are ``None`` where there is no value."""

    elements: int
    min: float | None
    max: float | None
    mean: float | None
    std: float | None
    #: The sum of magnitudes.
    l1: float
    #: The root of the sum of squares.
    l2: float
    zeros: int
    nan: int
    inf: int
    histogram: Histogram | None
    #: With ``per_channel``, those of each index of the axis.
    channels: list[Stats] | None


class Receipt(Mapping[str, Any]):
    """What a conversion says about itself: the JSON object that docs/receipt.md describes, as a mapping."""

    __slots__ = ("_fields",)

    def __init__(self, fields: Mapping[str, Any]) -> None:
        self._fields = dict(fields)

    @classmethod
    def parse(cls, text: str) -> Receipt | None:
        """A receipt's text; ``None`` where it is no object of JSON."""
        try:
            fields = json.loads(text)
        except ValueError:
            return None
        return cls(fields) if isinstance(fields, dict) else None

    def __getitem__(self, key: str) -> Any:
        return self._fields[key]

    def __iter__(self) -> Iterator[str]:
        return iter(self._fields)

    def __len__(self) -> int:
        return len(self._fields)

    def __repr__(self) -> str:
        source = self._fields.get("source") or {}
        name = source.get("name") if isinstance(source, dict) else None
        return f"<blob_io.Receipt of {name!r}, {self._fields.get('tensors')} tensors>"
