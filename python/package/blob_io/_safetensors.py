"""`safe_open` with safetensors' signature and spellings, for any file that blob reads."""

from __future__ import annotations

from builtins import open as io_open

from . import _later as t
from ._blob_io import open


class _Moved:
    """A tensor to be read in part, whose parts are moved to a device of torch."""

    def __init__(self, part: t.Slice, device: str) -> None:
        self._part, self._device = part, device

    def get_shape(self) -> list[int]:
        return self._part.get_shape()

    def get_dtype(self) -> str:
        return self._part.get_dtype()

    def __getitem__(self, key: t.Any) -> t.Any:
        return self._part[key].to(self._device)


class safe_open:
    """Opens a file as ``safetensors.safe_open`` does: a loader changes its import, and reads every format.

    ``backend`` is ``"pread"`` or ``"mmap"``. ``device`` is ``"cpu"``, or for torch any device, to which tensors are
    moved.

    >>> from blob_io import safe_open
    >>> with safe_open(path, framework="np") as f:
    ...     f.keys(), f.get_slice("conv1/0").get_dtype()
    (['conv1/0', 'conv1/1'], 'F32')
    """

    def __init__(
        self, filename: str | t.PathLike[str], framework: str, device: str = "cpu", *, backend: str = "pread"
    ) -> None:
        names: dict[str, t.Literal["numpy", "torch", "jax"]] = {"numpy": "numpy", "torch": "torch", "jax": "jax"}
        names |= {"np": "numpy", "pt": "torch", "pytorch": "torch", "flax": "jax"}
        if framework not in names:
            raise ValueError(f"framework is numpy, torch or jax, not {framework}")
        if backend not in ("pread", "mmap"):
            raise ValueError(f"backend is pread or mmap, not {backend}")
        self._framework, self._device = names[framework], device
        if device != "cpu" and self._framework != "torch":
            raise ValueError(f"device {device} is for torch alone")
        self._file: t.File = open(filename, mmap=backend == "mmap")

    def keys(self) -> list[str]:
        """The names, in the order of the file."""
        return self._file.keys()

    def offset_keys(self) -> list[str]:
        """The names by where the bytes begin."""
        return self._file.offset_keys()

    def metadata(self) -> dict[str, str] | None:
        """The file's words about itself; ``None`` where there are none."""
        return self._file.metadata() or None

    def get_tensor(self, name: str) -> t.Any:
        """The values of a tensor, on the device."""
        tensor = self._file.get_tensor(name, framework=self._framework)
        return tensor if self._device == "cpu" else tensor.to(self._device)

    def get_tensors(self, names: t.Iterable[str] | None = None) -> dict[str, t.Any]:
        """The values of several tensors, of all where no names are given."""
        return {name: self.get_tensor(name) for name in (self.keys() if names is None else names)}

    def prefetch(self, plan: t.Iterable[str] | None = None) -> None:
        """Asks the system to read the values of these tensors ahead, of all without a plan; as safetensors has it from 0.9
        on. Of a plan with slices the names count. Nothing is read where there is no such system, nor of other than files.
        """
        import os

        advise, name = getattr(os, "posix_fadvise", None), self._file.name
        if advise is None or not os.path.isfile(name):
            return
        with io_open(name, "rb", buffering=0) as file:
            for key in self.keys() if plan is None else plan:
                tensor = self._file[key]
                if tensor.offset is not None:
                    advise(file.fileno(), tensor.offset, tensor.nbytes, os.POSIX_FADV_WILLNEED)

    def get_slice(self, name: str) -> t.Slice | _Moved:
        """A tensor to be read in part, as arrays of the framework on the device."""
        part = self._file.get_slice(name, framework=self._framework)
        return part if self._device == "cpu" else _Moved(part, self._device)

    def __enter__(self) -> safe_open:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: t.TracebackType | None
    ) -> None:
        self._file.close()
