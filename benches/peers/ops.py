"""numpy and torch on the cases of our kernel benches: time over memcpy's by one thread, the two in turn, and the time of a run.

    v/bin/python benches/peers/ops.py [--mib N] [--only TEXT] [--rounds N] [--tsv] [--list]

The names are those that `cargo xtask peers` and our own benches print. numpy has one thread, torch one and two. Without
torch its columns stay out. Small work is repeated within a measurement; Python's price of a call, a microsecond or so, is
part of what a user of these packages pays, and counts at 64 KiB. So does that of memcpy's call, so that ratios there are too low.
"""
import argparse
import ctypes
import os
import platform
import statistics
import time

os.environ.setdefault("OPENBLAS_NUM_THREADS", "1")  # numpy's dot; it is read at the import
os.environ.setdefault("THP_MEM_ALLOC_ENABLE", "1")  # torch's memory on huge pages, as numpy's and ours

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
CACHED = (64, 4096)
WORK = 64 << 20  # Bytes that a measurement moves at least, as in the other benches.
PROBE = 256 << 20  # The memory whose pages are looked at.
SMALL = (4, 8, 4, 8, 4, 8, 4)  # Sides of the shapes that are checked.


def sections(mib):
    """Each payload in KiB with its cases."""
    return [(mib << 10, list(large(mib))), *((kib, list(small(kib))) for kib in CACHED)]


def small(kib):
    """In the caches."""
    count = kib * 256
    side = int(count ** 0.5)
    plane = int(min(count // 3, 224 * 224) ** 0.5)
    lines, fours = (count // 64, 64), (count // 4, 4)
    for name, shape, op, arguments in [
        ("merge 2 parts at axis 0", lines, "merge", (0, 2)),
        ("merge runs of 64 B", lines, "merge", (1, 4)),
        ("split runs of 64 B", lines, "split", (1, 4)),
        ("merge runs of 4 B", fours, "merge", (1, 4)),
        ("split runs of 4 B", fours, "split", (1, 4)),
        (f"transpose {side}x{side}", (side, side), "permute", (1, 0)),
        ("transpose 127x129", (max(1, count // (127 * 129)), 127, 129), "permute", (0, 2, 1)),
        ("permute nchw-nhwc", (max(1, count // (3 * plane * plane)), 3, plane, plane), "permute", (0, 2, 3, 1)),
        *((op, (count,), op, ()) for op in ("add", "scale", "asum", "sumsq", "fill")),
    ]:
        yield f"{name}, {kib} KiB", shape, op, arguments


def large(mib):
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
            return [out for out, _ in pairs]
        return run

    def permute(self, x, *order):
        view = x.transpose(order)
        out = np.empty(view.shape, x.dtype)

        def run():
            np.copyto(out, view)
            return out
        return run

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

        def run():
            y.fill(1)
            return y
        return run


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
            return [out for out, _ in pairs]
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


class Index:
    """What each must give, by loops over indices."""

    def merge(self, x, axis, parts):
        return x

    def split(self, x, axis, parts):
        length = x.shape[axis] // parts
        return [x.take(range(part * length, (part + 1) * length), axis) for part in range(parts)]

    def permute(self, x, *order):
        out = np.empty([x.shape[axis] for axis in order], x.dtype)
        for index in np.ndindex(out.shape):
            at = dict(zip(order, index))
            out[index] = x[tuple(at[axis] for axis in range(x.ndim))]
        return out

    def add(self, x):
        return x + x

    def scale(self, x):
        return x * np.float32(SCALE)

    def asum(self, x):
        return sum(abs(value) for value in x.ravel().tolist())

    def sumsq(self, x):
        return sum(value * value for value in x.ravel().tolist())

    def fill(self, x):
        return x * 0 + 1


def check(cases, columns):
    """Every result on small shapes; bit for bit but for the sums."""
    for name, shape, op, arguments in cases:
        shape = tuple(map(min, shape, SMALL))
        x = np.arange(np.prod(shape), dtype=np.float32).reshape(shape) - 100
        expected = getattr(Index(), op)(x, *arguments)
        for who, _, package in columns:
            found = getattr(package, op)(x, *arguments)()
            found, wanted = (value if op == "split" else [value] for value in (found, expected))
            same = np.allclose if op in ("asum", "sumsq") else np.array_equal
            alike = len(found) == len(wanted) and all(map(same, map(np.asarray, found), wanted))
            if not alike:
                raise SystemExit(f"wrong result: {who} on {name}")


def seconds(call, runs):
    start = time.perf_counter()
    for _ in range(runs):
        call()
    return time.perf_counter() - start


def memcpy(x):
    """The C library's, of numpy's memory into numpy's."""
    target = x.copy()
    call = (ctypes.c_void_p(target.ctypes.data), ctypes.c_void_p(x.ctypes.data), x.nbytes)
    return lambda keep=(target, x): ctypes.memmove(*call)


def figures(work, copy, nbytes, rounds):
    """Seconds of a run and the ratio to memcpy, medians over the pairs; the first of each is not counted.

    After two seconds three pairs are enough: what is many times slower than memcpy needs no second decimal.
    """
    runs = -(-WORK // nbytes)
    begin, pairs = time.perf_counter(), []
    seconds(work, runs), seconds(copy, runs)
    while len(pairs) < rounds and (len(pairs) < 3 or time.perf_counter() - begin < 2):
        pairs.append((seconds(work, runs), seconds(copy, runs)))
    return statistics.median(pair[0] for pair in pairs) / runs, statistics.median(a / b for a, b in pairs)


def memory(make):
    """Which pages the memory that is made gets, in MiB, as the system counts them; `?` where it does not say."""
    def huge():
        with open("/proc/self/smaps_rollup") as smaps:
            return sum(int(line.split()[1]) >> 10 for line in smaps if line.startswith("AnonHugePages:"))

    try:
        before = huge()
        probe = make(PROBE)
        probe[...] = 1
        return huge() - before
    except OSError:
        return "?"


def machine():
    try:
        with open("/proc/cpuinfo") as lines:
            model = next(line.split(": ")[1].strip() for line in lines if line.startswith("model name"))
    except (OSError, StopIteration):
        model = "unknown CPU"
    return f"{model}, {os.cpu_count()} cores, {platform.system().lower()} {platform.machine()}"


def about(rounds):
    """What holds for the whole run."""
    yield f"machine: {machine()}"
    versions = [f"numpy {np.__version__}"] + ([f"torch {torch.__version__}"] if torch else [])
    yield f"python: {platform.python_version()}, {', '.join(versions)}"
    if not torch:
        yield f"absent: torch: {why_no_torch}"
    yield f"python: medians of {rounds} pairs, of fewer where a package is slow"
    yield "python: the price of a call, a microsecond or so, is part of every figure, memcpy's too"
    pages = f"{memory(lambda size: np.empty(size, np.uint8))} of {PROBE >> 20} MiB of numpy's"
    if torch:
        pages += f", {memory(lambda size: torch.empty(size, dtype=torch.uint8))} of torch's"
    yield f"python's memory: {pages} on huge pages, memcpy's is numpy's"


def shown(figure):
    time_of_run, ratio = figure
    unit = f"{time_of_run * 1e6:.2f} µs" if time_of_run < 1e-3 else f"{time_of_run * 1e3:.2f} ms"
    return f" {ratio:8.2f} {unit:>11}"


def payload(kib):
    return f"{kib} KiB, in cache" if kib in CACHED else f"{kib >> 10} MiB"


def section(kib, cases, columns, rounds, tsv):
    probe = memcpy(np.ones(kib * 256, np.float32))
    rate = 2 * (kib << 10) / figures(probe, probe, kib << 10, rounds)[0] / 1e9
    if tsv:
        print(f"memcpy\tpython\t{payload(kib)}\t1\t{rate}")
    else:
        print(f"\n{payload(kib)}: memcpy by one thread reads and writes {rate:.1f} GB/s")
        heads = "".join(f" {who + f' {threads}t':>20}" for who, threads, _ in columns)
        print(f"{'case':40}{heads}   (time / memcpy by one, time)")
    for name, shape, op, arguments in cases:
        x = np.random.default_rng(1).standard_normal(shape, dtype=np.float32)
        copy, row = memcpy(x), ""
        for who, threads, package in columns:
            if torch:
                torch.set_num_threads(threads)
            figure = figures(getattr(package, op)(x, *arguments), copy, x.nbytes, rounds)
            if tsv:
                print("row", name, who, threads, *figure, sep="\t", flush=True)
            row += shown(figure)
        if not tsv:
            print(f"{name:40}{row}", flush=True)


def main():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--mib", type=int, default=256)
    parser.add_argument("--only", default="")
    parser.add_argument("--rounds", type=int, default=9)
    parser.add_argument("--tsv", action="store_true", help="lines for `cargo xtask record`")
    parser.add_argument("--list", action="store_true", help="the names alone")
    choice = parser.parse_args()
    columns = [("numpy", 1, Numpy())] + ([("torch", count, Torch()) for count in (1, 2)] if torch else [])
    parts = [(kib, [case for case in cases if choice.only in case[0]]) for kib, cases in sections(choice.mib)]
    if choice.list:
        print("\n".join(case[0] for _, cases in parts for case in cases))
        return
    for _, cases in parts:
        check(cases, columns)
    for text in about(choice.rounds):
        print(f"about\t{text}" if choice.tsv else text, flush=True)
    for kib, cases in parts:
        if cases:
            section(kib, cases, columns, choice.rounds, choice.tsv)


if __name__ == "__main__":
    main()
