"""Tensors of Caffe, MXNet, NeoML, safetensors, npz and HDF5 files, without the frameworks.

>>> import blob_io
>>> with blob_io.open(path) as f:
...     weight = f.get_tensor("conv1/0")
>>> weight.shape, weight.dtype
((2, 1, 3, 3), dtype('float32'))

Files are opened by their headers; values are read when asked for. Errors are :class:`BlobError`, and ``OSError`` for
those of the operating system.
"""

import sys as _sys

if _sys.version_info < (3, 12):
    # Later versions refuse by themselves, since the module does not say that it may be shared.
    import _xxsubinterpreters as _interpreters  # type: ignore[import-not-found, unused-ignore]

    if _interpreters.get_current() != _interpreters.get_main():
        raise ImportError("blob_io does not support loading in subinterpreters")

from . import _methods
from ._blob_io import File, Tensor, open
from ._convert import convert, diff, hash, load_file, merge, permute, save_file, split, verify
from ._errors import BlobError, LimitExceeded, Malformed, Misfit, NotTensors, Unsupported
from ._safetensors import safe_open
from ._slices import Slice
from ._types import Change, Diff, DiffRow, Distance, Finding, Histogram, Layer, Receipt, Report, Stats, Warning_

_methods.add()

__version__ = "0.1.0"

__all__ = [
    "BlobError",
    "Change",
    "Diff",
    "DiffRow",
    "Distance",
    "File",
    "Finding",
    "Histogram",
    "Layer",
    "LimitExceeded",
    "Malformed",
    "Misfit",
    "NotTensors",
    "Receipt",
    "Report",
    "Slice",
    "Stats",
    "Tensor",
    "Unsupported",
    "Warning_",
    "convert",
    "diff",
    "hash",
    "load_file",
    "merge",
    "open",
    "permute",
    "safe_open",
    "save_file",
    "split",
    "verify",
]
