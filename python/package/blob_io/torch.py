"""Tensors for PyTorch, with the names of ``safetensors.torch``: :func:`load_file`, :func:`save_file`."""

from __future__ import annotations

from ._convert import load_file as _load_file
from ._convert import save_file

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Mapping
    from os import PathLike
    from typing import Any

    from ._convert import _Progress, _Source

__all__ = ["load_file", "save_file"]


def load_file(
    path: _Source,
    device: str | int = "cpu",
    *,
    names: str | PathLike[str] | Mapping[str, str] = "torch",
    mmap: bool = False,
    progress: _Progress | None = None,
) -> dict[str, Any]:
    """A state dict: all tensors of a file of any format, under PyTorch's names and with its values, on a device.

    ``names="raw"`` keeps the names and the values of the file.
    """
    tensors = _load_file(path, names=names, framework="torch", mmap=mmap, progress=progress)
    return tensors if device == "cpu" else {name: tensor.to(device) for name, tensor in tensors.items()}
