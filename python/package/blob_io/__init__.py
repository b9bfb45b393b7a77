"""Tensors of Caffe, MXNet, NeoML, safetensors, npz and HDF5 files, without the frameworks.

>>> import blob_io
>>> with blob_io.open(path) as f:
...     weight = f.get_tensor("conv1/0")
>>> weight.shape, weight.dtype
((2, 1, 3, 3), dtype('float32'))

Files are opened by their headers; values are read when asked for. Errors are :class:`BlobError`, and ``OSError`` for
those of the operating system.
"""


def _refuse_subinterpreters() -> None:
    """Refuses before a class is touched: interpreters that share the main one's lock share its classes, too. From 3.12 on
    Python refuses in the others alone, before 3.12 in none."""
    for name in ["_interpreters", "_xxsubinterpreters"]:
        try:
            interpreters = __import__(name)
        except ImportError:
            continue
        if interpreters.get_current() != interpreters.get_main():
            raise ImportError("blob_io does not support loading in subinterpreters")


_refuse_subinterpreters()

from . import _methods
from ._blob_io import File, Tensor, open
from ._convert import convert, diff, hash, load_file, merge, permute, save_file, split, verify
from ._errors import BlobError, LimitExceeded, Malformed, Misfit, NotTensors, Unsupported
from ._safetensors import safe_open

_methods.add()

TYPE_CHECKING = False  # Checkers of types take the name for true; `typing` takes more time than all else here.
if TYPE_CHECKING:
    from ._slices import Slice
    from ._types import Change, Diff, DiffRow, Distance, Finding, Histogram, Layer, Receipt, Report, Stats, Warning_
else:

    def __getattr__(name):
        """The classes of results, whose modules are imported when a class is first named."""
        if name not in __all__:
            raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
        from . import _slices, _types

        found = globals()[name] = getattr(_slices if name == "Slice" else _types, name)
        return found

    def __dir__():
        return sorted(globals().keys() | set(__all__))


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
