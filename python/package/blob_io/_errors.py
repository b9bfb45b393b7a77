"""The exceptions of blob_io, which the compiled half raises."""

from __future__ import annotations


class BlobError(ValueError):
    """A file, an array or a request was refused; the attributes say which, where and why.

    ``reason`` is a stable code, as ``truncated`` or ``limit``; ``help`` a next step, where one is known. Errors of the
    operating system are ``OSError``.
    """

    #: The file concerned, as it was named; bytes of a path that are not UTF-8 are U+FFFD.
    file: str | None
    #: The array or layer concerned, in words.
    subject: str | None
    #: The byte at which the file breaks.
    offset: int | None
    #: Why, as a stable code.
    reason: str | None
    #: What can be done about it.
    help: str | None

    def __init__(
        self,
        message: str = "",
        *,
        file: str | None = None,
        subject: str | None = None,
        offset: int | None = None,
        reason: str | None = None,
        help: str | None = None,
    ) -> None:
        super().__init__(message)
        self.file, self.subject, self.offset, self.reason, self.help = file, subject, offset, reason, help


class Malformed(BlobError):
    """The bytes break the format's rules."""


class LimitExceeded(BlobError):
    """More than a limit allows: ``max_alloc``, ``max_spool``, or a fixed one."""


class NotTensors(BlobError):
    """Not a tensor file that blob reads: a web page, a program, an empty file."""


class Unsupported(BlobError):
    """A sound file or array of a kind that is not read, or cannot be computed on."""


class Misfit(BlobError):
    """Tensors that the output's format cannot hold. Nothing was written."""
