"""Methods of the compiled classes that need no compiled code: a mapping's own, words for people, copies."""

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


def _is_closed(self: File) -> bool:
    """Whether the file was closed."""
    try:
        len(self)
    except ValueError:
        return True
    return False


def _has(self: File, name: object) -> bool:
    """Whether a tensor has this name."""
    count = len(self)  # of a closed file an error
    try:
        return isinstance(name, str) and count > 0 and self[name] is not None
    except (KeyError, TypeError):  # a name that is no UTF-8 is a TypeError
        return False


def _words_of_file(self: File) -> str:
    if self.closed:
        return "<blob_io.File closed>"
    count = len(self)
    return f"<blob_io.File {self.name!r} {self.format}, {count} tensor{'' if count == 1 else 's'}>"


def _words_of_tensor(self: Tensor) -> str:
    shape, view = "×".join(map(str, self.shape)), " view" if self.is_view else ""
    return f"<blob_io.Tensor {self.name!r} {self.dtype} [{shape}]{view}>"


def _names(self: File) -> t.Iterator[str]:
    """The names, in the order of the file."""
    return iter(self.keys())


def _names_by_offset(self: File) -> list[str]:
    """The tensors' names by where their bytes begin; those without bytes first."""
    tensors = [self[place] for place in range(len(self))]
    tensors.sort(key=lambda tensor: -1 if tensor.offset is None else tensor.offset)
    return [tensor.name for tensor in tensors]


def _exit(self: File, *_exception: object) -> None:
    """Closes the file."""
    self.close()


def _length(self: Tensor) -> int:
    """The extent of the outermost axis."""
    if not self.shape:
        raise TypeError("a tensor without axes has no length")
    return self.shape[0]


def _ndim(self: Tensor) -> int:
    """How many axes there are."""
    return len(self.shape)


def _size(self: Tensor) -> int:
    """How many values there are."""
    count = 1
    for extent in self.shape:
        count *= extent
    return count


def _rows(self: Tensor) -> t.Iterator[t.Any]:
    """The parts of the outermost axis, each read when it is its turn."""
    if not self.shape:
        raise TypeError("iteration over a tensor without axes")
    return (self[place] for place in range(self.shape[0]))


def _itself(self: t.Any) -> t.Any:
    """The same: nothing that a copy could change is kept."""
    return self


def _itself_deep(self: File, _memo: t.Any) -> File:
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
    both: dict[str, t.Any] = {"__copy__": _itself}
    of_file = both | {"__reduce_ex__": _no_pickle_of_file, "__repr__": _words_of_file, "_repr_html_": _table_of_file}
    of_file |= {"__deepcopy__": _itself_deep, "__enter__": _itself, "__exit__": _exit, "__iter__": _names, "offset_keys": _names_by_offset}
    of_file |= {"_ipython_key_completions_": _completions, "__contains__": _has, "closed": property(_is_closed)}
    of_tensor = both | {"__reduce_ex__": _no_pickle_of_tensor, "__repr__": _words_of_tensor}
    of_tensor |= {"_repr_html_": _table_of_tensor, "__len__": _length, "__iter__": _rows}
    of_tensor |= {"ndim": property(_ndim), "size": property(_size)}
    for kind, methods in [(File, of_file), (Tensor, of_tensor)]:
        for name, method in methods.items():
            setattr(kind, name, method)
