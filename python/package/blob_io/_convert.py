"""Whole files: convert, verify, diff, hash, load, save."""

from __future__ import annotations

import os
from _collections_abc import Mapping  # as collections.abc has it; loaded with the interpreter
from os import PathLike

from . import _blob_io
from . import _later as t
from ._blob_io import File
from ._errors import BlobError

#: The reasons of an error by which a file is broken, and not unread.
_BROKEN = {"checksum", "empty", "html", "lfs-pointer", "truncated", "malformed"}


def _opened(source: t.Source, **options: t.Any) -> File:
    if not isinstance(source, File):
        return _blob_io.open(source, **options)
    given = [name for name, value in options.items() if value is not None and value is not False]
    if given:
        raise ValueError(f"an open file was opened already: give {', '.join(given)} to open()")
    return source


def _listed(values: str | t.Iterable[str] | None) -> list[str]:
    return [] if values is None else [values] if isinstance(values, str) else list(values)


def convert(
    src: t.Source,
    dst: t.Path,
    *,
    to: str | None = None,
    into: t.Path | None = None,
    if_exists: t.Literal["error", "replace", "done"] = "error",
    names: str | PathLike[str] | Mapping[str, str] | None = None,
    dtype: t.Literal["f16", "bf16", "f32", "f64"] | None = None,
    layout: t.Literal["oihw", "hwio", "ohwi"] | None = None,
    bn: t.Literal["fold-factor", "raw"] | None = None,
    fix_gamma: t.Literal["auto", "off"] | None = None,
    eps: float | None = None,
    fold: bool = False,
    net: t.Path | None = None,
    symbol: t.Path | None = None,
    strip_diff: bool = False,
    squeeze_legacy: bool = False,
    rgb: bool = False,
    fc_from: t.Sequence[int] | Mapping[str, t.Sequence[int]] | None = None,
    dense: bool = False,
    shard_size: int | None = None,
    form: str | t.Iterable[str] | None = None,
    anew: bool = False,
    params_version: int | None = None,
    input: Mapping[str, t.Sequence[int]] | None = None,
    dynamic_batch: bool = False,
    ssd: t.Literal["standard", "opencv", "raw"] | None = None,
    opset: int | None = None,
    external_data: bool = False,
    skip_unsupported: bool = False,
    no_receipt: bool = False,
    sha256: bool = False,
    only: str | t.Iterable[str] | None = None,
    exclude: str | t.Iterable[str] | None = None,
    regex: bool = False,
    only_dtype: str | t.Iterable[str] | None = None,
    only_shape: str | t.Iterable[str] | None = None,
    strict: bool = False,
    recipe: t.Path | Mapping[str, t.Any] | None = None,
    recipe_out: t.Path | None = None,
    dry_run: bool = False,
    from_format: str | None = None,
    member: str | None = None,
    salvage: bool = False,
    max_alloc: int | None = None,
    max_spool: int | None = None,
    progress: t.Progress | None = None,
) -> t.Receipt:
    """Converts a file as ``blob convert`` does, with its options under their names; returns the receipt.

    ``src`` is all that :func:`open` takes, or an open :class:`File`. For formats without room for a receipt the result
    has ``source``, ``tensors`` and ``changes`` alone. ``Receipt.changes`` has what a user should know, in words.

    An ONNX model is made of a net of Caffe's or MXNet's; ``input``, ``dynamic_batch``, ``ssd``, ``opset`` and
    ``external_data`` are for it alone: ``input={"data": (1, 3, 224, 224)}`` where the net states no shape. Past 2 GiB, and
    with ``external_data``, the values go into a file beside the model, ``net.onnx.data``.

    With ``if_exists="done"`` an output that an earlier call, with ``"done"`` too, made of the same source by the same
    recipe stays, and ``Receipt.done`` is true; any other, also one of a call without ``"done"``, is an error unless its
    bytes are the new ones. So a job can be run again. Then ``src`` is a path.

    >>> import blob_io
    >>> receipt = blob_io.convert(path, path + ".safetensors", names="torch")
    >>> receipt["tensors"], blob_io.open(path + ".safetensors").keys()
    (2, ['conv1.weight', 'conv1.bias'])
    """
    import json

    steps: list[dict[str, t.Any]] = []

    def step(name: str, settings: Mapping[str, t.Any] | None = None) -> None:
        steps.append({"name": name, "settings": dict(settings or {})})

    selection = _selection(only, exclude, regex, only_dtype, only_shape)
    if selection is not None:
        step("select", selection)
    if strip_diff:
        step("strip-diff")
    if squeeze_legacy:
        step("squeeze-legacy")
    if fold:
        step("fold")
    if _one_of("bn", bn, "fold-factor", "raw") == "fold-factor":
        step("bn")
    if _one_of("fix_gamma", fix_gamma, "auto", "off") == "auto":
        step("fix-gamma")
    if eps is not None:
        step("eps", {"to": eps})
    if rgb:
        step("rgb")
    if fc_from is not None:
        step("fc-from", _fc_from(fc_from))
    if layout is not None:
        step("layout", {"to": _one_of("layout", layout, "oihw", "hwio", "ohwi"), "matrices": True})
    if dtype is not None:
        step("dtype", {"to": _one_of("dtype", dtype, "f16", "bf16", "f32", "f64")})
    if names is not None:
        step("names", _names(names, bn, fix_gamma))
    target: dict[str, t.Any] = {
        "if_exists": "refuse" if _one_of("if_exists", if_exists, "error", "replace", "done") == "error" else if_exists,
        "dense": dense,
        "anew": anew,
        "strict": strict,
        "skip_unsupported": skip_unsupported,
        "sha256": sha256,
        "receipt": not no_receipt,
    }
    optional = {"format": to, "shard_size": shard_size, "params_version": params_version}
    target |= {key: value for key, value in optional.items() if value is not None}
    if form is not None:
        target["form"] = _listed(form)
    onnx = {
        "inputs": {name: list(extents) for name, extents in _mapping("input", input).items()} or None,
        "dynamic_batch": dynamic_batch or None,
        "ssd": _one_of("ssd", ssd, "standard", "opencv", "raw"),
        "opset": opset,
        "external_data": external_data or None,
    }
    if any(value is not None for value in onnx.values()):
        target["onnx"] = {key: value for key, value in onnx.items() if value is not None}
    asked: dict[str, t.Any] = {"schema": "blob.recipe/1", "steps": steps, "target": target}
    if net is not None and symbol is not None:
        raise ValueError("net and symbol both describe the net; name one")
    if net is not None:
        asked["net"] = {"prototxt": _text(net)}
    if symbol is not None:
        asked["net"] = {"symbol": _text(symbol)}
    for path in [None if isinstance(recipe, Mapping) else recipe, recipe_out]:
        if path is not None:
            os.fspath(path)  # refuses a number, which would be a descriptor that is closed in the end
    if recipe is not None:
        asked, into, named = _of_recipe(recipe, asked, into)
        # An open file says itself what it is.
        from_format = from_format or (None if isinstance(src, File) else named)
    if if_exists == "done":
        if not isinstance(src, (str, PathLike)) or member is not None:
            raise ValueError('if_exists="done" needs the path of the source; a member is named behind its archive')
        asked["sources"] = [{"path": _text(src), **({} if from_format is None else {"format": from_format})}]
    options = {"format": from_format, "member": member, "salvage": salvage}
    file = _opened(src, **options, max_alloc=max_alloc, max_spool=max_spool)
    _check_apart(src, dst)
    text = json.dumps(asked, allow_nan=False)
    whole: str | None = None
    if recipe_out is not None:
        name = _text(src) if isinstance(src, (str, PathLike)) and member is None else file.name
        source = {"path": name, **({} if from_format is None else {"format": from_format})}
        whole = _whole_recipe({**asked, "sources": [source]}, dst, into)
        _check_recipe_out(recipe_out, whole, if_exists)
    how: dict[str, t.Any] = {"into": into, "salvage": salvage, "dry_run": dry_run, "progress": progress}
    said = json.loads(_blob_io.run_recipe(file, dst, text, **how))
    is_written = not (dry_run or if_exists == "done" and recipe_out is not None and os.path.lexists(recipe_out))
    if recipe_out is not None and whole is not None and is_written:
        with open(recipe_out, "w" if if_exists == "replace" else "x", encoding="utf-8") as output:
            output.write(whole)
    return _receipt(said)


def _selection(
    only: str | t.Iterable[str] | None,
    exclude: str | t.Iterable[str] | None,
    regex: bool,
    only_dtype: str | t.Iterable[str] | None,
    only_shape: str | t.Iterable[str] | None,
) -> dict[str, t.Any] | None:
    """The settings of a selection; ``None`` where all tensors are meant."""
    lists = {"patterns": only, "exclude": exclude, "dtypes": only_dtype, "shapes": only_shape}
    selection = {key: _listed(value) for key, value in lists.items()}
    return {**selection, "regex": regex} if any(selection.values()) else None


def _one_of(name: str, value: t.Any, *allowed: str) -> t.Any:
    if value is not None and value not in allowed:
        raise ValueError(f"{name} is one of {', '.join(allowed)}, not {value!r}")
    return value


def _mapping(name: str, value: Mapping[str, t.Any] | None) -> Mapping[str, t.Any]:
    if value is not None and not isinstance(value, Mapping):
        raise TypeError(f"{name} is a mapping, not {type(value).__name__}")
    return value or {}


def _fc_from(fc_from: t.Sequence[int] | Mapping[str, t.Sequence[int]]) -> dict[str, t.Any]:
    def extents(three: t.Sequence[int]) -> dict[str, int]:
        channels, height, width = three
        return {"channels": channels, "height": height, "width": width}

    if isinstance(fc_from, Mapping):
        return {"layers": {layer: extents(three) for layer, three in fc_from.items()}}
    return extents(fc_from)


def _names(
    names: str | PathLike[str] | Mapping[str, str], bn: str | None, fix_gamma: str | None
) -> dict[str, t.Any]:
    if isinstance(names, Mapping):
        return {"map": dict(names)}
    if names == "torch":
        keep = [step for step, kept in [("bn", bn == "raw"), ("fix-gamma", fix_gamma == "off")] if kept]
        return {"to": "torch", "keep": keep} if keep else {"to": "torch"}
    return {"to": "raw"} if names == "raw" else {"file": _text(names)}


def _text(path: t.Path) -> str:
    """A path for a recipe, whose JSON is text."""
    text = os.fsdecode(path)
    try:
        text.encode()
    except UnicodeEncodeError:
        raise ValueError(f"{text!r} is not UTF-8, and a recipe is") from None
    return text


def _check_apart(src: t.Source, dst: t.Path) -> None:
    """Refuses standard output, which belongs to the program, and an output that is the file of a file object; that of a
    path is refused by the compiled half."""
    if os.fspath(dst) == "-":
        raise ValueError("blob_io writes to files, not to standard output; ./- is a file of this name")
    try:
        same = os.path.samestat(os.fstat(src.fileno()), os.stat(dst))  # type: ignore[union-attr]
    except (AttributeError, OSError, ValueError):
        return
    if same:
        from ._errors import Misfit

        text = f"{os.fspath(dst)}: this is what is read, and a source is never replaced by its copy"
        raise Misfit(text, file=os.fspath(dst), reason="request")


def _of_recipe(
    recipe: t.Path | Mapping[str, t.Any], asked: dict[str, t.Any], into: t.Path | None
) -> tuple[dict[str, t.Any], t.Path | None, str | None]:
    """The recipe of a file or a mapping, to which ``if_exists`` and ``to`` are added, as the tool does; what its tensors
    go into; and the format that it says its source has."""
    import json

    if isinstance(recipe, Mapping):
        given = json.loads(json.dumps(recipe))
    else:
        with open(recipe, encoding="utf-8") as file:
            given = json.load(file)
    plain = {"dense", "anew", "strict", "skip_unsupported", "sha256"}
    others = asked["target"]
    is_other = any(others[key] for key in plain) or not others["receipt"] or into is not None
    if asked["steps"] or "net" in asked or is_other or {"form", "onnx", "params_version", "shard_size"} & set(others):
        raise ValueError("recipe says what is done, and other options say it, too")
    target = given.setdefault("target", {}) if isinstance(given, dict) else None
    if not isinstance(target, dict):
        raise ValueError("recipe is no object with a target")
    for key in ["path", "format"]:
        target.pop(key, None)
    if others["if_exists"] != "refuse":
        target["if_exists"] = others["if_exists"]
    if "format" in others:
        target["format"] = others["format"]
    named: t.Any = None
    match given.get("sources", []):
        case []:
            pass
        case [{"path": _, **more}]:
            named = more.get("format")
        case sources:
            count = len(sources) if isinstance(sources, list) else "no"
            raise ValueError(f"the recipe names {count} sources, and one file is converted")
    given.pop("sources", None)
    return given, target.pop("into", None), named


def _whole_recipe(asked: Mapping[str, t.Any], dst: t.Path, into: t.Path | None) -> str:
    """The text of a recipe, with its files."""
    import json

    target = {**asked["target"], "path": _text(dst)}
    if into is not None:
        target["into"] = _text(into)
    return json.dumps({**asked, "target": target}, indent=2) + "\n"


def _check_recipe_out(path: t.Path, text: str, if_exists: str) -> None:
    """Refuses, before anything is written, a recipe in place of one of the conversion's files or of another file."""
    import errno
    import json
    from pathlib import Path

    asked = json.loads(text)
    names = [step["settings"].get("file") for step in asked.get("steps", []) if step.get("settings")]
    target, sources = asked["target"], [source["path"] for source in asked["sources"]]
    others = [*sources, target["path"], target.get("into"), *asked.get("net", {}).values(), *names]
    # A path that goes on behind a file names a member of that archive.
    others += [str(folder) for source in sources for folder in Path(source).parents]
    for other in filter(None, others):
        same = os.path.isfile(other) and os.path.exists(path) and os.path.samefile(path, other)
        if same or os.path.abspath(other) == os.path.abspath(path):
            raise ValueError(f"{os.fspath(path)}: the recipe would replace a file of its conversion")
    if if_exists != "replace" and os.path.lexists(path):
        with open(path, encoding="utf-8", errors="replace") as file:
            is_kept = if_exists == "done" and file.read() == text
        if not is_kept:
            raise FileExistsError(errno.EEXIST, os.strerror(errno.EEXIST), os.fspath(path))


def _receipt(said: Mapping[str, t.Any]) -> t.Receipt:
    from ._types import Change, Receipt

    written = Receipt.parse(said["receipt"]) if said.get("receipt") else None
    fields: Mapping[str, t.Any] = written if written is not None else _fields(said)
    receipt = Receipt(fields)
    receipt.bytes_out = said["bytes_out"]
    receipt.index = said["index"]
    receipt.done = said.get("done", False)
    receipt.changes = [Change(**change) for change in said["changes"]]
    return receipt


def _fields(said: Mapping[str, t.Any]) -> dict[str, t.Any]:
    """What is known of a conversion whose output has no receipt."""
    digests = {key: said[key] for key in ("blake3", "sha256") if said.get(key)}
    source = {key: said[key] for key in ("name", "bytes", "format", "dialect")}
    return {"source": {**digests, **source}, "tensors": said["tensors"], "to": said["to"]}


def verify(
    path: t.Source,
    *,
    against: t.Source | None = None,
    finite: bool = False,
    strict: bool = False,
    net: t.Path | None = None,
    symbol: t.Path | None = None,
    only: str | t.Iterable[str] | None = None,
    exclude: str | t.Iterable[str] | None = None,
    regex: bool = False,
    only_dtype: str | t.Iterable[str] | None = None,
    only_shape: str | t.Iterable[str] | None = None,
    progress: t.Progress | None = None,
) -> t.Report:
    """Checks that a file is whole, as ``blob verify`` does: framing, checksums, sparse parts, the receipt's digests.

    ``against`` compares with another file, whose tensors the receipt's transforms make. With ``strict`` warnings are
    findings. ``only`` and the keywords after it choose tensors as in :func:`convert`. Broken bytes are findings; what
    cannot be read raises.

    >>> import blob_io
    >>> blob_io.verify(path).ok
    True
    """
    import json

    selection = _selection(only, exclude, regex, only_dtype, only_shape)
    try:
        if selection is None:
            file = _opened(path)
        elif isinstance(path, File) or symbol is not None:
            raise ValueError("of an open file, and of a symbol, all tensors are meant: name its path, without symbol")
        else:
            file = _blob_io.open_part(path, json.dumps(selection))
    except BlobError as error:
        if error.reason not in _BROKEN:
            raise
        from ._types import Finding, Report

        return Report([Finding(error.subject, str(error), error.reason or "", error.offset)], [])
    other = None if against is None else _opened(against)
    is_part = selection is not None
    how: dict[str, t.Any] = {"finite": finite, "strict": strict, "is_part": is_part, "net": net, "symbol": symbol}
    return _blob_io.check(file, against=other, progress=progress, **how)


def diff(
    a: t.Source,
    b: t.Source,
    *,
    rtol: float = 0.0,
    atol: float = 0.0,
    ulp: int | None = None,
    exact: bool = False,
    progress: t.Progress | None = None,
) -> t.Diff:
    """Compares two files of any formats by value, as ``blob diff`` does.

    >>> import blob_io
    >>> blob_io.diff(path, path).same
    True
    """
    for name, tolerance in [("rtol", rtol), ("atol", atol)]:
        if not tolerance >= 0:
            raise ValueError(f"{name} is a number from 0 on, not {tolerance}")
    return _blob_io.diff(_opened(a), _opened(b), rtol=rtol, atol=atol, ulp=ulp, exact=exact, progress=progress)


def hash(
    path: t.Source,
    *,
    content: bool = True,
    algorithm: t.Literal["blake3", "sha256"] = "blake3",
    progress: t.Progress | None = None,
) -> str:
    """The digest of a file's tensors, the same in every format, or with ``content=False`` of the file's bytes.

    >>> import blob_io
    >>> blob_io.hash(path)[:10]
    'content-1:'
    """
    sha256 = _one_of("algorithm", algorithm, "blake3", "sha256") == "sha256"
    if content:
        digest = _blob_io.content_hash(_opened(path), sha256=sha256, progress=progress)
        return f"content-1-sha256:{digest}" if sha256 else f"content-1:{digest}"
    if not isinstance(path, str | PathLike):
        raise TypeError("content=False hashes the bytes of a path")
    return _blob_io.file_hash(path, sha256=sha256, progress=progress)


def load_file(
    path: t.Source,
    *,
    names: str | PathLike[str] | Mapping[str, str] | None = None,
    framework: t.Literal["numpy", "np", "torch", "pt", "jax", "flax"] = "numpy",
    mmap: bool = False,
    progress: t.Progress | None = None,
) -> dict[str, t.Any]:
    """All tensors of a file by their names.

    With ``names="torch"`` names and values are those of PyTorch, made by a conversion to a temporary file; a mapping
    from old to new names, or a file of them, renames.

    >>> import blob_io
    >>> {name: array.shape for name, array in blob_io.load_file(path, names="torch").items()}
    {'conv1.weight': (2, 1, 3, 3), 'conv1.bias': (2,)}
    """
    if names is None or names == "raw":
        return _opened(path, mmap=mmap).get_tensors(framework=framework, progress=progress)
    import tempfile  # takes more time than all else that is imported

    with tempfile.TemporaryDirectory(prefix="blob-io-") as folder:
        converted = os.path.join(folder, "converted.safetensors")
        convert(path, converted, names=names, no_receipt=True)
        # The mapping outlives the file's name.
        return _blob_io.open(converted, mmap=os.name == "posix").get_tensors(framework=framework, progress=progress)


def save_file(
    tensors: Mapping[str, t.Any],
    path: t.Path,
    *,
    format: str | None = None,
    metadata: Mapping[str, str] | None = None,
    overwrite: bool = False,
) -> None:
    """Writes tensors to a file, whose format is that of its extension or ``format``. It appears whole or not at all.

    Tensors are arrays of numpy, torch, jax, anything with a buffer or DLPack, and tensors of open files. They are not
    copied where their values lie row after row, and must not be written meanwhile.

    >>> import blob_io
    >>> blob_io.save_file({"w": memoryview(b"1234")}, path + ".npz")
    >>> blob_io.open(path + ".npz")["w"].shape
    (4,)
    """
    _blob_io.save(dict(tensors), path, format, list(_mapping("metadata", metadata).items()), overwrite)


def merge(arrays: t.Iterable[t.Any], axis: int) -> t.Tensor:
    """Arrays of one dtype joined along an axis.

    >>> import blob_io
    >>> blob_io.merge([memoryview(b"12"), memoryview(b"345")], 0).tobytes()
    b'12345'
    """
    return _blob_io.merge(list(arrays), axis)


def split(array: t.Any, axis: int, sizes: t.Iterable[int]) -> list[t.Tensor]:
    """An array cut along an axis into parts of these sizes.

    >>> import blob_io
    >>> [part.tobytes() for part in blob_io.split(memoryview(b"12345"), 0, [2, 3])]
    [b'12', b'345']
    """
    return _blob_io.split(array, axis, list(sizes))


def permute(array: t.Any, order: t.Iterable[int]) -> t.Tensor:
    """An array with its axes in another order, as ``numpy.transpose`` has it, row after row.

    >>> import blob_io
    >>> blob_io.permute(blob_io.open(path)["conv1/0"], (2, 3, 1, 0)).shape
    (3, 3, 1, 2)
    """
    return _blob_io.permute(array, list(order))
