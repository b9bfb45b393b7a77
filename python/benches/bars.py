"""The speed of the package and of `blob batch`, against bars: medians of nine, each beside what it is compared with.

Run with the python into which the release wheel is installed, with numpy and safetensors: `python python/benches/bars.py
[FOLDER]`. FOLDER, which is /dev/shm if there is room, gets some 4 GB of files, and loses them again.
"""

from __future__ import annotations

import importlib.util
import itertools
import json
import os
import platform
import shutil
import subprocess
import sys
import sysconfig
import tempfile
import time
from collections.abc import Callable
from pathlib import Path
from statistics import median

import blob_io
import numpy as np
import safetensors
from safetensors.numpy import save_file

sys.path.insert(0, str(Path(__file__).parents[1] / "tests"))
from conftest import caffemodel  # noqa: E402

ROUNDS = 9

#: VGG16: layer, shape of the weights.
VGG16 = [
    *[("conv", (out, into, 3, 3)) for into, out in [(3, 64), (64, 64), (64, 128), (128, 128), (128, 256), (256, 256)]],
    *[("conv", (out, into, 3, 3)) for into, out in [(256, 256), (256, 512), *[(512, 512)] * 5]],
    *[("fc", shape) for shape in [(4096, 25088), (4096, 4096), (1000, 4096)]],
]


def seconds(work: Callable[[], object], rounds: int = ROUNDS) -> float:
    taken = []
    for _ in range(rounds):
        start = time.perf_counter()
        kept = work()
        taken.append(time.perf_counter() - start)
        del kept
    return median(taken)


def ratio(ours: Callable[[], object], base: Callable[[], object], rounds: int = ROUNDS) -> float:
    """Both in turn, so that other work on the machine slows both down."""
    return median(seconds(ours, 1) / seconds(base, 1) for _ in range(rounds))


def row(case: str, measured: float, bar: str, unit: str = "") -> None:
    value = float(bar.split()[1])
    held = measured <= value if bar.startswith("<=") else measured >= value
    print(f"{case:74} {measured:10.3f} {unit:7} {bar:10} {'ok' if held else 'MISSED'}", flush=True)


def child(script: str, *arguments: object) -> float:
    command = [sys.executable, "-c", script, *map(str, arguments)]
    return median(float(subprocess.run(command, check=True, capture_output=True).stdout) for _ in range(ROUNDS))


def imports() -> None:
    script = "import time; t = time.perf_counter(); import blob_io; print((time.perf_counter() - t) * 1e3)"
    row("import blob_io", child(script), "<= 15", "ms")

    def started(code: str) -> float:
        return seconds(lambda: subprocess.run([sys.executable, "-c", code], check=True), 1)

    above = median(started("import blob_io") - started("pass") for _ in range(ROUNDS))
    row("python -c 'import blob_io' above python -c pass", above * 1e3, "<= 15", "ms")


def opens(net: Path) -> None:
    script = "import sys, time, resource, blob_io\nbefore = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss\n"
    script += "t = time.perf_counter(); f = blob_io.open(sys.argv[1]); f.keys(); t = time.perf_counter() - t\n"
    grown = "(resource.getrusage(resource.RUSAGE_SELF).ru_maxrss - before) / 1024"
    row("open and keys of a caffemodel of 553 MB", child(script + "print(t * 1e3)", net), "<= 5", "ms")
    row("the same, memory above the interpreter's", child(script + f"print({grown})", net), "<= 20", "MiB")


def reads(net: Path, params: Path) -> None:
    def read(path: Path) -> Callable[[], object]:
        def whole() -> object:
            out = bytearray(path.stat().st_size)
            with open(path, "rb", buffering=0) as file:
                file.readinto(out)
            return out

        return whole

    row("all tensors of 553 MB as numpy / read()", ratio(lambda: blob_io.load_file(net), read(net)), "<= 1.2")
    views = ratio(lambda: blob_io.open(params, mmap=True).get_tensors(), read(params))
    row("1 GB of .params as views / read()", views, "<= 0.02")
    file = blob_io.open(params, mmap=True)
    name, count = file.keys()[0], 100_000
    assert file[name].is_view

    def views_of_one() -> None:
        for _ in range(count):
            file.get_tensor(name)

    row("get_tensor of a view", seconds(views_of_one, 5) / count * 1e6, "<= 3", "µs")


def beside_safetensors(path: Path) -> None:
    frameworks = ["np"]
    for framework, package in [("pt", "torch"), ("flax", "jax")]:
        if importlib.util.find_spec(package) is None:
            print(f"not measured: safe_open for {package}, which is not installed")
        else:
            frameworks.append(framework)
    for framework, backend in itertools.product(frameworks, ["pread", "mmap"]):

        def theirs(framework: str = framework, backend: str = backend) -> object:
            with safetensors.safe_open(path, framework=framework, backend=backend) as file:
                return {name: file.get_tensor(name) for name in file.keys()}  # noqa: SIM118

        def ours(framework: str = framework, backend: str = backend) -> object:
            with blob_io.safe_open(path, framework, backend=backend) as file:
                return file.get_tensors()

        name = f"safe_open of 1 GB, {framework}, {backend} / safetensors {safetensors.__version__}"
        row(name, ratio(ours, theirs), "<= 1")


def merges() -> None:
    arrays = [np.full((1024, 8192), n, np.float32) for n in range(8)]
    for axis in [0, 1]:

        def ours(axis: int = axis) -> object:
            return blob_io.merge(arrays, axis)

        def theirs(axis: int = axis) -> object:
            return np.concatenate(arrays, axis)

        row(f"merge of eight arrays of 32 MiB along axis {axis} / np.concatenate", ratio(ours, theirs), "<= 1")


def batches(folder: Path) -> None:
    count = 10_000
    sources = folder / "sources"
    sources.mkdir()
    values = np.random.default_rng(7).random((8, 3125), np.float32)
    for n in range(count):
        values[0, 0] = n
        blob_io.save_file({f"layer{i}": values[i] for i in range(8)}, sources / f"{n:05}.npz")
    tool = shutil.which("blob", path=sysconfig.get_path("scripts")) or "blob"
    made = [tool, "batch", "-q", "--make", f"{sources}/*", "--to", "safetensors", "-o", folder / "out"]
    jobs = folder / "jobs.ndjson"
    jobs.write_bytes(subprocess.run(made, check=True, capture_output=True).stdout)
    assert len(jobs.read_bytes().splitlines()) == count

    def run(*words: object) -> float:
        start = time.perf_counter()
        subprocess.run(list(map(str, words)), check=True)
        return time.perf_counter() - start

    def whole(*more: str) -> Callable[[], float]:
        return lambda: run(tool, "batch", "-q", jobs, "--jobs", "2", *more)

    def fresh(work: Callable[[], float], target: Path) -> float:
        shutil.rmtree(target, ignore_errors=True)
        return work()

    rounds = range(3)
    copy = median(fresh(lambda: run("cp", "-r", sources, folder / "copy"), folder / "copy") for _ in rounds)
    first = median(fresh(whole(), folder / "out") for _ in rounds)
    row("batch of 10,000 files of 100 KB, two jobs, speed / cp -r", copy / first, ">= 0.8")
    again = median(whole()() for _ in rounds)
    hashed = median(run("sh", "-c", f"find {sources} -type f | xargs {tool} hash > {folder}/sums") for _ in rounds)
    row("the same again, all done / hashing the sources", again / hashed, "<= 2")
    trusted = median(whole("--trust", "mtime")() for _ in rounds)
    row("the same again, --trust mtime, a file", trusted / count * 1e6, "<= 20", "µs")


def main() -> None:
    base = Path(sys.argv[1] if len(sys.argv) > 1 else "/dev/shm" if os.path.isdir("/dev/shm") else tempfile.gettempdir())
    print(f"machine: {os.cpu_count()} cores, {platform.machine()}, Python {platform.python_version()}, numpy {np.__version__}")
    print(json.dumps({"load": os.getloadavg()}))
    with tempfile.TemporaryDirectory(prefix="blob-bars-", dir=base) as name:
        folder = Path(name)
        layers = []
        for n, (kind, shape) in enumerate(VGG16):
            weights = np.full(shape, 0.5, np.float32)
            layers.append((f"{kind}{n}", "Convolution", [weights, np.zeros(shape[0], np.float32)]))
        net, params, tensors = folder / "net.caffemodel", folder / "net.params", folder / "net.safetensors"
        net.write_bytes(caffemodel(*layers))
        del layers
        imports()
        opens(net)
        gigabyte = {f"arg:w{n}": np.full((1000, 25_000), n, np.float32) for n in range(10)}
        blob_io.save_file(gigabyte, params)
        reads(net, params)
        net.unlink()
        params.unlink()
        save_file(gigabyte, tensors)
        del gigabyte
        beside_safetensors(tensors)
        tensors.unlink()
        merges()
        batches(folder)
    print(json.dumps({"load": os.getloadavg()}))


if __name__ == "__main__":
    main()
