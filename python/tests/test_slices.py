"""Parts of tensors: as numpy has them, and without the rest of the bytes."""

from __future__ import annotations

import itertools
import random

import blob_io
import numpy as np
import pytest


def test_every_key_is_numpys(aligned: str) -> None:
    f = blob_io.open(aligned)
    whole = f.get_tensor("big")
    indices = [0, -1, slice(None), slice(1, 4), slice(None, None, 3), slice(None, None, -1), slice(4, 1, -2), slice(2, 2)]
    keys: list[object] = [(), ..., None, (..., 3), (None, 0, ..., None), (1, ...), (..., slice(None, None, 8))]
    keys += list(itertools.product(indices, repeat=3)) + list(itertools.product(indices, repeat=2)) + indices
    for key in keys:
        ours, theirs = f["big"][key], whole[key]  # type: ignore[index]
        assert ours.shape == theirs.shape, key
        np.testing.assert_array_equal(ours, theirs, err_msg=str(key))
    assert f["big"][:: 10**30, 2].shape == (1, 10)
    for place, part in enumerate(f["big"]):
        np.testing.assert_array_equal(part, whole[place])
    with pytest.raises(TypeError, match="without axes"):
        iter(f["n"])
    assert f["n"][()] == 7 and f["n"][...].shape == ()


def test_random_shapes_and_keys_are_numpys(tmp_path: object) -> None:
    from conftest import caffemodel

    rng = random.Random(5)
    for _ in range(200):
        shape = tuple(rng.randint(1, 9) for _ in range(rng.randint(1, 5)))
        whole = np.arange(np.prod(shape), dtype=np.float32).reshape(shape)
        t = blob_io.open(caffemodel(("a", "b", [whole])))["a/0"]
        key = tuple(
            rng.choice(
                [
                    rng.randrange(-n, n),
                    slice(rng.randint(-n - 1, n + 1), rng.randint(-n - 1, n + 1), rng.choice([-3, -1, 1, 2, 5])),
                    slice(None),
                ]
            )
            for n in shape
        )
        np.testing.assert_array_equal(t[key], whole[key], err_msg=f"{shape} {key}")


def test_a_wrong_key_is_numpys_error(aligned: str) -> None:
    t = blob_io.open(aligned)["big"]
    for key in [6, -7, (0, 0, 0, 0), (..., ...)]:
        with pytest.raises(IndexError):
            t[key]  # type: ignore[index]
    for key in [True, [0, 1], "a", 1.0]:
        with pytest.raises(TypeError):
            t[key]  # type: ignore[index]


def test_a_slice_reads_its_bytes_alone() -> None:
    from conftest import caffemodel
    from test_open import Counting

    rows = np.arange(64 * 65536, dtype=np.float32).reshape(64, 65536)
    source = Counting(caffemodel(("a", "b", [rows])))
    t = blob_io.open(source)["a/0"]
    before = sum(source.asked)
    np.testing.assert_array_equal(t[60, :10], rows[60, :10])
    assert sum(source.asked) - before <= 1 << 20, "one block of a file object, of 16 MiB"
