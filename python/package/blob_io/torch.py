"""Tensors for PyTorch, with the names of ``safetensors.torch``: :func:`load_file`, :func:`save_file`."""

from __future__ import annotations

from . import _later as t
from ._convert import load_file as _load_file
from ._convert import save_file


__all__ = ["load_file", "save_file"]


def load_file(
    path: t.Source,
    device: str | int = "cpu",
    *,
    names: str | t.PathLike[str] | t.Mapping[str, str] = "torch",
    mmap: bool = False,
    progress: t.Progress | None = None,
) -> dict[str, t.Any]:
    """A state dict: all tensors of a file of any format, under PyTorch's names and with its values, on a device.

    ``names="raw"`` keeps the names and the values of the file.
    """
    tensors = _load_file(path, names=names, framework="torch", mmap=mmap, progress=progress)
    return tensors if device == "cpu" else {name: tensor.to(device) for name, tensor in tensors.items()}
