"""numpy and torch on the cases of our kernel benches: time over the time of a plain copy of the same payload, the two in turn.

    v/bin/python benches/peers/ops.py [--mib N] [--only TEXT] [--rounds N] [--threads N ...] [--list]

The names are those that `cargo xtask peers` and our own benches print. Without torch its columns stay out.
"""
import argparse
import statistics
import time

import numpy as np

try:
    import torch
except (ImportError, OSError, ValueError) as missing:  # The last two: a torch whose CUDA libraries were not installed.
    torch = None
    why_no_torch = missing

SHAPES = {"A": (8, 8, 8, 16, 16, 8, 64), "B": (4, 16, 4, 64, 64, 16, 4)}
PAIRS = [(5, 6), (4, 6), (3, 6), (0, 6), (1, 6), (3, 4), (0, 1), (2, 3), (0, 5), (1, 4)]
IMAGES = [
    ("nchw-nhwc [64,3,224,224]", (64, 3, 224, 224), (0, 2, 3, 1), True),
    ("nhwc-nchw [64,224,224,3]", (64, 224, 224, 3), (0, 3, 1, 2), True),
    ("oihw-hwio [512,512,3,3]", (512, 512, 3, 3), (2, 3, 1, 0), False),
]
SCALE = 1.0001


def all_cases(mib):
    """Name, shape, operation and its arguments; a permutation is given whole: axis i of the result is axis order[i]."""
    def cut(shape):
        return (max(1, shape[0] * mib // 256), *shape[1:])

    def swap(ndim, a, b):
        order = list(range(ndim))
        order[a], order[b] = b, a
        return tuple(order)

    for letter, whole in SHAPES.items():
        shape = cut(whole)
        for axis, length in enumerate(shape):
            parts = 2 if length % 4 else 4
            if length % parts == 0:
                for op in ("merge", "split"):
                    yield f"{op} {letter} d={axis} parts={parts}", shape, op, (axis, parts)
        for pair in PAIRS:
            yield f"transpose {letter} {pair}", shape, "permute", swap(7, *pair)
    for side in (4096, 4000):
        yield f"transpose {side}x{side}", (max(1, mib // 64), side, side), "permute", (0, 2, 1)
    for name, shape, order, scales in IMAGES:
        yield f"permute {name}", cut(shape) if scales else shape, "permute", order
    for op in ("add", "scale", "asum", "sumsq", "fill"):
        yield op, cut(SHAPES["A"]), op, ()


class Numpy:
    """Into warm memory wherever there is an `out`; the magnitudes of a sum are a new array."""

    def merge(self, x, axis, parts):
        pieces = [np.ascontiguousarray(piece) for piece in np.split(x, parts, axis)]
        out = np.empty_like(x)
        return lambda: np.concatenate(pieces, axis, out=out)

    def split(self, x, axis, parts):
        pairs = [(np.empty(view.shape, x.dtype), view) for view in np.split(x, parts, axis)]

        def run():
            for out, view in pairs:
                np.copyto(out, view)
        return run

    def permute(self, x, *order):
        view = x.transpose(order)
        out = np.empty(view.shape, x.dtype)
        return lambda: np.copyto(out, view)

    def add(self, x):
        y = x.copy()
        return lambda: np.add(y, x, out=y)

    def scale(self, x):
        y = x.copy()
        return lambda: np.multiply(y, np.float32(SCALE), out=y)

    def asum(self, x):
        return lambda: np.abs(x).sum()

    def sumsq(self, x):
        flat = x.reshape(-1)
        return lambda: np.dot(flat, flat)

    def fill(self, x):
        y = x.copy()
        return lambda: y.fill(1)


class Torch:
    """The same in torch; how many threads is a setting of the process."""

    def merge(self, x, axis, parts):
        x = torch.from_numpy(x)
        pieces = [piece.contiguous() for piece in x.chunk(parts, axis)]
        out = torch.empty_like(x)
        return lambda: torch.cat(pieces, axis, out=out)

    def split(self, x, axis, parts):
        pairs = [(torch.empty(view.shape), view) for view in torch.from_numpy(x).chunk(parts, axis)]

        def run():
            for out, view in pairs:
                out.copy_(view)
        return run

    def permute(self, x, *order):
        view = torch.from_numpy(x).permute(order)
        out = torch.empty(view.shape)
        return lambda: out.copy_(view)

    def add(self, x):
        x = torch.from_numpy(x)
        y = x.clone()
        return lambda: y.add_(x)

    def scale(self, x):
        y = torch.from_numpy(x).clone()
        return lambda: y.mul_(SCALE)

    def asum(self, x):
        x = torch.from_numpy(x)
        return lambda: x.abs().sum()

    def sumsq(self, x):
        flat = torch.from_numpy(x).reshape(-1)
        return lambda: torch.dot(flat, flat)

    def fill(self, x):
        y = torch.from_numpy(x).clone()
        return lambda: y.fill_(1)


def ratio(work, copy, rounds):
    """Median over the pairs; the first of each is not counted."""
    def seconds(call):
        start = time.perf_counter()
        call()
        return time.perf_counter() - start

    work()
    copy()
    return statistics.median(seconds(work) / seconds(copy) for _ in range(rounds))


def main():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--mib", type=int, default=256)
    parser.add_argument("--only", default="")
    parser.add_argument("--rounds", type=int, default=9)
    parser.add_argument("--threads", type=int, nargs="*", default=[1, 2], help="torch's")
    parser.add_argument("--list", action="store_true", help="the names alone")
    choice = parser.parse_args()
    cases = [case for case in all_cases(choice.mib) if choice.only in case[0]]
    if choice.list:
        print("\n".join(case[0] for case in cases))
        return
    if not torch:
        print(f"no torch: {why_no_torch}")
    threads = choice.threads if torch else []
    heads = ["numpy"] + [f"torch {count}t" for count in threads]
    print(f"{'case':34}" + "".join(f" {head:>12}" for head in heads) + "   (time / memcpy time)")
    for name, shape, op, arguments in cases:
        x = np.random.default_rng(1).standard_normal(shape, dtype=np.float32)
        target = np.empty_like(x)
        copy = lambda: np.copyto(target, x)
        row = [ratio(getattr(Numpy(), op)(x, *arguments), copy, choice.rounds)]
        for count in threads:
            torch.set_num_threads(count)
            row.append(ratio(getattr(Torch(), op)(x, *arguments), copy, choice.rounds))
        print(f"{name:34}" + "".join(f" {figure:12.2f}" for figure in row), flush=True)


if __name__ == "__main__":
    main()
