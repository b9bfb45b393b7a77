"""Methods of the compiled classes that need no compiled code: a mapping's own, tables for notebooks, copies."""

from __future__ import annotations

from _collections_abc import Mapping  # as collections.abc has it; loaded with the interpreter

from . import _later as t
from ._blob_io import File, Tensor


#: How many tensors a table of a notebook shows.
_SHOWN = 100


def _row(tensor: Tensor) -> str:
    from html import escape

    shape = "×".join(map(str, tensor.shape))
    cells = [escape(tensor.name), escape(tensor.dtype), shape, str(tensor.nbytes)]
    return "<tr>" + "".join(f"<td>{cell}</td>" for cell in cells) + "</tr>"


def _table_of_tensor(self: Tensor) -> str:
    """A row of a table, for notebooks."""
    return f"<table>{_row(self)}</table>"


def _table_of_file(self: File) -> str:
    """A table of the first tensors, for notebooks."""
    from html import escape

    count = len(self)
    rows = "".join(_row(self[place]) for place in range(min(count, _SHOWN)))
    head = "<tr><th>name</th><th>dtype</th><th>shape</th><th>bytes</th></tr>"
    more = f"<p>and {count - _SHOWN} more</p>" if count > _SHOWN else ""
    return f"<p>{escape(self.name)}: {escape(self.format)}</p><table>{head}{rows}</table>{more}"


def _rows(self: Tensor) -> t.Iterator[t.Any]:
    """The parts of the outermost axis, each read when it is its turn."""
    if not self.shape:
        raise TypeError("iteration over a tensor without axes")
    return (self[place] for place in range(self.shape[0]))


def _itself(self: t.Any) -> t.Any:
    """The same: nothing that a copy could change is kept."""
    return self


def _itself_deep(self: t.Any, _memo: t.Any) -> t.Any:
    """The same, as a copy."""
    return self


def _no_pickle_of_file(self: File, _protocol: t.Any = None) -> t.Any:
    raise TypeError("an open file cannot be pickled: send its path, and open it there")


def _no_pickle_of_tensor(self: Tensor, _protocol: t.Any = None) -> t.Any:
    raise TypeError("a tensor of an open file cannot be pickled: send t.numpy(), or the path and the name")


def _completions(self: File) -> list[str]:
    """The names, for completion in notebooks."""
    return self.keys()


def add() -> None:
    """Gives the classes these methods."""
    Mapping.register(File)
    for name in ("get", "items", "values"):
        setattr(File, name, getattr(Mapping, name))
    setattr(Tensor, "__iter__", _rows)
    setattr(File, "_ipython_key_completions_", _completions)
    classes = [(File, _table_of_file, _no_pickle_of_file), (Tensor, _table_of_tensor, _no_pickle_of_tensor)]
    for kind, table, reduce in classes:
        methods = {"_repr_html_": table, "__copy__": _itself, "__deepcopy__": _itself_deep, "__reduce_ex__": reduce}
        for name, method in methods.items():
            setattr(kind, name, method)
