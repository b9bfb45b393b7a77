"""Makes dtype.npz: values of one dtype, and what NumPy (and ml_dtypes, for bf16) makes of them in another.

    python dtype.py     with numpy 2.4 and ml_dtypes 0.6

NumPy rounds f64 to f16 in one step, and so do we; ml_dtypes rounds f64 to bf16 by way of f32, so that pair is left out.
"""
import ml_dtypes
import numpy as np

rng = np.random.default_rng(13)


def around(narrow, wide, count):
    """Values of `wide` at, between and half-way between those of `narrow`."""
    bits = np.unique(np.concatenate([
        rng.integers(0, 0x10000, count), [0, 1, 2, 0x3FF, 0x400, 0x401, 0x7BFF, 0x7F7F, 0x80, 0x7F, 0x3C00, 0x8000],
    ])).astype(np.uint16)
    bits = bits[np.isfinite(bits.view(narrow).astype(wide))]
    values = bits.view(narrow).astype(wide)
    with np.errstate(all="ignore"):
        half = (values + np.nextafter(bits.view(narrow), narrow(np.inf)).astype(wide)) / 2
        up, down = np.nextafter(half, wide(np.inf)), np.nextafter(half, wide(-np.inf))
    return np.concatenate([values, half, up, down])


def special(wide):
    info = np.finfo(wide)
    return np.array([0.0, -0.0, np.inf, -np.inf, np.nan, 65504, 65519.99, 65520, -65520, 65536, 1e-8, 2**-25, 2**-24,
                     2**-149, 2**-150, 3.3895e38, -3.3961e38, info.max, -info.max, info.tiny], dtype=wide)


arrays = {}
with np.errstate(all="ignore"):
    for wide in (np.float32, np.float64):
        values = np.concatenate([special(wide), around(np.float16, wide, 150), around(ml_dtypes.bfloat16, wide, 150)])
        name = {4: "f32", 8: "f64"}[values.itemsize]
        arrays[name] = values.astype(wide)
        arrays[f"{name}.f16"] = values.astype(np.float16)
    arrays["f64.f32"] = arrays["f64"].astype(np.float32)
    arrays["f32.f64"] = arrays["f32"].astype(np.float64)
    arrays["f32.bf16"] = arrays["f32"].astype(ml_dtypes.bfloat16).view(np.uint16)
np.savez(__file__.replace(".py", ".npz"), **arrays)
