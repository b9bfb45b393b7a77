"""Results: plain values that compare, print and pickle."""

from __future__ import annotations

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

    @classmethod
    def of(
        cls,
        elements: int,
        moments: tuple[float | None, float | None, float | None, float | None, float, float],
        counts: tuple[int, int, int],
        histogram: Histogram | None,
        channels: list[Stats] | None,
    ) -> Stats:
        """The statistics in groups: from ``min`` to ``l2``, from ``zeros`` to ``inf``."""
        return cls(elements, *moments, *counts, histogram, channels)


class Finding(NamedTuple):
    """Something that is wrong."""

    #: The tensor concerned, or the layer; ``None`` for the file as a whole.
    subject: str | None
    message: str
    #: Why, as a stable code.
    reason: str
    offset: int | None


class Report(NamedTuple):
    """What ``verify`` has found."""

    findings: list[Finding]
    #: What is unusual, or was not checked, though nothing is wrong.
    notes: list[str]

    @property
    def ok(self) -> bool:
        """Whether nothing is wrong."""
        return not self.findings


class Distance(NamedTuple):
    """How far the values of two tensors are apart."""

    elements: int
    #: How many differ by more than is tolerated.
    changed: int
    max_abs: float
    max_rel: float
    rms: float


class DiffRow(NamedTuple):
    """What became of one tensor, or a pair."""

    #: The names in the first and in the second file.
    a: str | None
    b: str | None
    #: ``equal``, ``renamed``, ``removed``, ``added``, ``values``, ``dtype``, ``shape`` or ``unread``.
    change: str
    distance: Distance | None
    #: Why the tensor cannot be compared.
    why: str | None


class Diff(NamedTuple):
    """What ``diff`` has found."""

    rows: list[DiffRow]
    notes: list[str]
    equal: int
    renamed: int
    changed: int
    removed: int
    added: int
    unread: int

    @property
    def same(self) -> bool:
        """Whether all tensors are equal, under equal names."""
        return self.changed + self.removed + self.added + self.renamed + self.unread == 0


class Change(NamedTuple):
    """What a conversion changes that a user should know."""

    #: A short name: ``name-lost``.
    change: str
    tensors: list[str]
    text: str
    #: Whether something is lost that no option names.
    is_loss: bool
    #: Whether a reader of the output finds something different.
    is_warned: bool


class Receipt(Mapping[str, Any]):
    """What a conversion says about itself: the JSON object that docs/receipt.md describes, as a mapping."""

    #: Of a conversion just done: what a user should know, the bytes written, and the index of shards.
    changes: list[Change]
    bytes_out: int | None
    index: str | None
    #: Whether an earlier call had done it, with ``if_exists="done"``.
    done: bool

    def __init__(self, fields: Mapping[str, Any]) -> None:
        self._fields = dict(fields)
        self.changes, self.bytes_out, self.index, self.done = [], None, None, False

    @classmethod
    def parse(cls, text: str) -> Receipt | None:
        """A receipt's text; ``None`` where it is no object of JSON."""
        import json

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
