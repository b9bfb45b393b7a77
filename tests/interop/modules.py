"""PyTorch's modules in NumPy, in float64, by the names of PyTorch; a module without weights of its own was folded and does nothing."""
import numpy as np


class Modules:
    def __init__(self, path):
        self.arrays = {name: array.astype("float64") for name, array in np.load(path).items()}

    def get(self, name, absent=None):
        return self.arrays.get(name, absent)

    def conv(self, name, x, groups=1):
        w = self.arrays[name + ".weight"]
        x, per = x.astype("float64"), w.shape[1]
        windows = np.lib.stride_tricks.sliding_window_view(x, w.shape[2:], axis=(2, 3))
        parts = [np.einsum("nchwij,ocij->nohw", windows[:, g * per:(g + 1) * per], part) for g, part in enumerate(np.split(w, groups))]
        return np.concatenate(parts, axis=1) + self.get(name + ".bias", np.zeros(len(w)))[None, :, None, None]

    def up(self, name, x, groups=1):
        w = self.arrays[name + ".weight"]
        n, _, rows, columns = x.shape
        parts = []
        for part, inputs in zip(np.split(w, groups), np.split(x, groups, axis=1)):
            out = np.zeros((n, w.shape[1], rows + w.shape[2] - 1, columns + w.shape[3] - 1))
            for a in range(w.shape[2]):
                for b in range(w.shape[3]):
                    out[:, :, a:a + rows, b:b + columns] += np.einsum("nchw,co->nohw", inputs, part[:, :, a, b])
            parts.append(out)
        out = np.concatenate(parts, axis=1)
        return out + self.get(name + ".bias", np.zeros(out.shape[1]))[None, :, None, None]

    def bn(self, name, x, eps):
        mean = self.get(name + ".running_mean")
        if mean is None:
            return x
        spread = lambda values: values.reshape([1, -1] + [1] * (x.ndim - 2))
        ones = np.ones(len(mean))
        scale = self.get(name + ".weight", ones) / np.sqrt(self.arrays[name + ".running_var"] + eps)
        return (x - spread(mean)) * spread(scale) + spread(self.get(name + ".bias", 0 * ones))

    def linear(self, name, x):
        return x.reshape(len(x), -1) @ self.arrays[name + ".weight"].T + self.arrays[name + ".bias"]


def verdict(ours, theirs):
    off = np.abs(ours - theirs).max() / max(np.abs(theirs).max(), 1e-30)
    return "equal" if off <= 1e-5 else "off by %g" % off


def forward(stem, data, groups, eps, theirs):
    """Whether the net of the sides `forward_*` gives what they computed: under PyTorch's names, with its BatchNorms folded, and with PyTorch's eps."""
    found = {}
    for how, eps in (("torch", eps), ("folded", eps), ("eps", (1e-5, 1e-5))):
        w = Modules("%s.%s.npz" % (stem, how))
        x = np.maximum(w.bn("bn1", w.conv("conv", data, groups), eps[0]), 0)
        found[how] = verdict(w.linear("ip", w.bn("bn2", w.up("up", x, groups), eps[1])), theirs)
    return found
