"""Makes order.npz: weights, and what NumPy makes of them in other orders.

    python order.py     with numpy 2.4
"""
import numpy as np

rng = np.random.default_rng(13)
conv = rng.standard_normal((4, 3, 2, 5)).astype(np.float32)
fc = rng.standard_normal((6, 2 * 3 * 4)).astype(np.float32)
np.savez(
    __file__.replace(".py", ".npz"),
    **{
        "conv/0": conv,
        "fc/0": fc,
        "hwio": conv.transpose(2, 3, 1, 0),
        "ohwi": conv.transpose(0, 2, 3, 1),
        "rgb": conv[:, ::-1],
        "rgb.hwio.f16": conv[:, ::-1].transpose(2, 3, 1, 0).astype(np.float16),
        # A layer behind Keras's Flatten of 3×4×2: row i of the kernel belongs to the i-th value of the flattened image.
        "fc-from": np.stack([row.reshape(2, 3, 4).transpose(1, 2, 0).reshape(-1) for row in fc]),
    },
)
