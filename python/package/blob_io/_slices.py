"""Parts of tensors: a key becomes the indices of each axis, by which the compiled half reads those bytes alone."""

from __future__ import annotations

from operator import index
from types import EllipsisType
from typing import Any

from . import _blob_io

_Index = int | slice | EllipsisType | None
_Key = _Index | tuple[_Index, ...]


def part(tensor: _blob_io.Tensor, key: _Key, framework: str) -> Any:
    """The values of a tensor that a key of integers, slices, ``...`` and ``None`` asks for, as an array."""
    picks, dims, turned = _picked(key if isinstance(key, tuple) else (key,), tensor.shape)
    array = _blob_io.read_part(tensor, picks, dims, framework)
    if array is None:  # a tensor of no file
        return tensor.numpy()[key].copy()
    if not any(turned):
        return array
    if framework in ("torch", "pt"):  # whose slices have no negative steps
        return array.flip([axis for axis, is_turned in enumerate(turned) if is_turned])
    return array[tuple(slice(None, None, -1 if is_turned else None) for is_turned in turned)]


def _picked(
    keys: tuple[_Index, ...], shape: tuple[int, ...]
) -> tuple[list[tuple[int, int, int]], list[int], list[bool]]:
    """The first index, the step and the count of each axis; of the result the extents, and which axes run backwards."""
    dots = sum(key is Ellipsis for key in keys)
    named = sum(key is not None for key in keys) - dots
    if dots > 1:
        raise IndexError("a key has at most one ellipsis")
    if named > len(shape):
        raise IndexError(f"{named} indices for {len(shape)} axes")
    picks: list[tuple[int, int, int]] = []
    dims: list[int] = []
    turned: list[bool] = []
    for key in keys if dots else (*keys, Ellipsis):
        if key is None:
            dims.append(1)
            turned.append(False)
        elif key is Ellipsis:
            whole = shape[len(picks) : len(picks) + len(shape) - named]
            picks += [(0, 1, extent) for extent in whole]
            dims += whole
            turned += [False] * len(whole)
        elif isinstance(key, slice):
            taken = range(*key.indices(shape[len(picks)]))
            picks.append((min(taken[0], taken[-1]) if taken else 0, abs(taken.step) if len(taken) > 1 else 1, len(taken)))
            dims.append(len(taken))
            turned.append(taken.step < 0)
        else:
            picks.append((_place(key, len(picks), shape), 1, 1))
    return picks, dims, turned


def _place(key: Any, axis: int, shape: tuple[int, ...]) -> int:
    try:
        if isinstance(key, bool):
            raise TypeError
        place = index(key)
    except TypeError:
        raise TypeError("a key has integers, slices, ... and None; t.numpy()[key] takes others") from None
    if not -shape[axis] <= place < shape[axis]:
        raise IndexError(f"index {place} of axis {axis}, which has {shape[axis]}")
    return place % shape[axis]


class Slice:
    """A tensor to be read in part, with safetensors' names: ``f.get_slice(name)[:, ::8]``."""

    __slots__ = ("__weakref__", "_framework", "_tensor")

    def __init__(self, tensor: _blob_io.Tensor, framework: str) -> None:
        self._tensor, self._framework = tensor, framework

    def get_shape(self) -> list[int]:
        """The shape, as a list."""
        return list(self._tensor.shape)

    def get_dtype(self) -> str:
        """The dtype, as safetensors spells it: ``F32``."""
        return self._tensor.dtype.upper()

    def __getitem__(self, key: _Key) -> Any:
        return part(self._tensor, key, self._framework)

    def __repr__(self) -> str:
        return f"<blob_io.Slice {self._tensor.name!r}>"
