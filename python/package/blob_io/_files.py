"""What is known of a file object before it is read: imported with the first one."""

from __future__ import annotations

import io
import sys

from . import _later as t

#: Python's own classes, whose `read` gives the bytes of the descriptor.
_PLAIN = (io.FileIO, io.BufferedReader, io.BufferedRandom)


def described(file: t.Any) -> tuple[str, t.Any, bool]:
    """The name, which is a hint of the format; the object to be read by its descriptor, if any; whether it can seek."""
    return _name(file), _plain(file), _can_seek(file)


def _name(file: t.Any) -> str:
    for attribute in ["name", "full_name", "path"]:
        try:
            name = getattr(file, attribute)
            if isinstance(name, str):
                return name.encode("utf-8", "surrogateescape").decode("utf-8", "replace")
        except Exception:
            continue
    return "file object"


def _plain(file: t.Any) -> t.Any:
    """The file object of Python's own that this is, or that a temporary file of ``tempfile`` is around, flushed.

    ``None`` for any other: one of a class derived from these, or around one, may read other bytes than the file has.
    """
    tempfile = sys.modules.get("tempfile")
    if tempfile is not None and type(file) is tempfile._TemporaryFileWrapper:
        file = file.file
    if isinstance(file, io.TextIOBase):
        raise TypeError('the file object is in text mode; open it with mode "rb"')
    if type(file) not in _PLAIN or type(getattr(file, "raw", file)) is not io.FileIO:
        return None
    if file.writable():
        file.flush()
    return file


def _can_seek(file: t.Any) -> bool:
    try:
        return bool(file.seekable())
    except Exception:  # objects that are none of `io`'s may seek without saying so, as those of `mmap` before 3.13
        return hasattr(file, "seek") and hasattr(file, "tell")
