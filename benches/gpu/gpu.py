"""The cases of `blob-gpu` in torch, CuPy and cuTENSOR, as far as they are installed; `blob-gpu` runs it.
With a file of safetensors and a number of rounds: how long the file takes to the GPU, as `file WHO SECONDS`.

In, on standard input: bytes, rounds, batch and seconds to warm up; then a case a line: name, operation, dtype, extents, what the operation needs.
Out: `time CASE WHO SECONDS LEAST MOST` and `about absent: ...`, with tabs between. Nothing that is missing ends the script.
"""

import ctypes
import statistics
import sys
import time

DTYPES = {"f64": "float64", "f32": "float32", "f16": "float16", "bf16": "bfloat16", "u8": "uint8"}


def say(*fields):
    print(*fields, sep="\t", flush=True)


def absent(who, why):
    say("about", f"absent: {who}: " + " ".join(str(why).split())[:200])


class Case:
    def __init__(self, line):
        self.name, self.op, self.dtype, dims, self.more = line.rstrip("\n").split("\t")
        self.dims = [int(n) for n in dims.split(",")]

    @property
    def order(self):
        return [int(n) for n in self.more.split(",")]

    @property
    def dtype_name(self):
        return DTYPES[self.dtype]


def seconds(run, wait, rounds, batch, warm_up):
    """The median, the least and the most over rounds of one run, waited for after each batch, once it has run for a while."""
    begin = time.perf_counter()
    while True:
        for _ in range(batch):
            run()
        wait()
        if time.perf_counter() - begin >= warm_up:
            break
    times = []
    for _ in range(rounds):
        begin = time.perf_counter()
        for _ in range(batch):
            run()
        wait()
        times.append((time.perf_counter() - begin) / batch)
    return statistics.median(times), min(times), max(times)


class Torch:
    who = "torch"

    def __init__(self):
        import torch

        self.torch = torch
        if not torch.cuda.is_available():
            raise RuntimeError("it finds no GPU")
        self.version = torch.__version__
        self.device = "cuda"

    def wait(self):
        self.torch.cuda.synchronize()

    def free(self):
        self.torch.cuda.empty_cache()

    def tensor(self, case):
        torch = self.torch
        small = torch.randint(0, 127, case.dims, dtype=torch.uint8, device=self.device)
        return small.to(getattr(torch, case.dtype_name))

    def copy(self, count):
        x = self.torch.randint(0, 127, [count], dtype=self.torch.uint8, device=self.device)
        return lambda: x.clone()

    def run(self, case):
        torch, x = self.torch, self.tensor(case)
        if case.op in ("merge", "split"):
            width = case.dims[1] // int(case.more)
            if case.op == "split":
                return lambda: [part.contiguous() for part in torch.split(x, width, 1)]
            parts = [part.contiguous() for part in torch.split(x, width, 1)]
            return lambda: torch.cat(parts, 1, out=x)
        if case.op == "permute":
            turned = x.permute(case.order)
            out = torch.empty(turned.shape, dtype=x.dtype, device=x.device)
            return lambda: out.copy_(turned)
        if case.op == "convert":
            out = torch.empty(x.shape, dtype=getattr(torch, DTYPES[case.more]), device=x.device)
            return lambda: out.copy_(x)
        if case.op == "asum":
            # As ours: the sum is in the host's hands.
            return lambda: torch.linalg.vector_norm(x, 1).item()
        if case.op == "sumsq":
            return lambda: torch.dot(x, x).item()
        y = x.clone()
        return {
            "add": lambda: y.add_(x),
            "axpy": lambda: y.add_(x, alpha=0.5),
            "scale": lambda: y.mul_(0.999),
            "fill": lambda: y.fill_(1),
        }[case.op]


class CuPy:
    who = "CuPy"

    def __init__(self):
        import cupy

        self.cupy = cupy
        cupy.cuda.runtime.getDeviceCount()
        self.version = cupy.__version__

    def wait(self):
        self.cupy.cuda.runtime.deviceSynchronize()

    def free(self):
        self.cupy.get_default_memory_pool().free_all_blocks()

    def run(self, case):
        cupy = self.cupy
        if "bf16" in (case.dtype, case.more):
            return None
        dtype = getattr(cupy, case.dtype_name)
        x = cupy.ones(case.dims, dtype=dtype)
        if case.op in ("merge", "split"):
            parts = cupy.split(x, int(case.more), 1)
            if case.op == "split":
                return lambda: [cupy.ascontiguousarray(part) for part in parts]
            parts = [cupy.ascontiguousarray(part) for part in parts]
            return lambda: cupy.concatenate(parts, 1, out=x)
        if case.op == "permute":
            turned = x.transpose(case.order)
            out = cupy.empty(turned.shape, dtype=dtype)
            return lambda: cupy.copyto(out, turned)
        if case.op == "convert":
            out = cupy.empty(x.shape, dtype=getattr(cupy, DTYPES[case.more]))
            return lambda: cupy.copyto(out, x, casting="unsafe")
        if case.op == "asum":
            # In one pass: `abs(x).sum()` would write a whole tensor.
            magnitude = "fabsf(static_cast<float>(x))"
            total = cupy.ReductionKernel("T x", "float32 y", magnitude, "a + b", "y = a", "0", "asum")
            return lambda: total(x).item()
        if case.op == "sumsq":
            return lambda: cupy.dot(x, x).item()
        y = x.copy()
        axpy = cupy.ElementwiseKernel("T x, T a", "T y", "y += x * a", "axpy")
        return {
            "add": lambda: cupy.add(y, x, out=y),
            "axpy": lambda: axpy(x, dtype(0.5), y),
            "scale": lambda: cupy.multiply(y, dtype(0.999), out=y),
            "fill": lambda: y.fill(1),
        }[case.op]


class CuTensor:
    """Permutations of cuTENSOR 2 through its C functions, on torch's memory, compared with torch's own result."""

    who = "cuTENSOR"
    # cudaDataType_t, and the name of the type that is computed in.
    TYPES = {"f64": (1, "64F"), "f32": (0, "32F"), "f16": (2, "32F")}

    def __init__(self):
        self.peer = Torch()
        self.lib = self.load()
        self.handle = ctypes.c_void_p()
        self.call("cutensorCreate", ctypes.byref(self.handle))
        self.lib.cutensorGetVersion.restype = ctypes.c_size_t
        self.version = self.lib.cutensorGetVersion()

    @staticmethod
    def load():
        names = ["libcutensor.so.2"]
        try:
            import cutensor

            names += [f"{folder}/lib/libcutensor.so.2" for folder in cutensor.__path__]
        except ImportError:
            pass
        for name in names:
            try:
                return ctypes.CDLL(name)
            except OSError as error:
                why = error
        raise why

    def call(self, name, *arguments):
        code = getattr(self.lib, name)(*arguments)
        if code != 0:
            raise RuntimeError(f"{name}: status {code}")

    def wait(self):
        self.peer.wait()

    def free(self):
        self.peer.free()

    def descriptor(self, dims, kind):
        # Its first mode runs fastest where no strides are given.
        extents = (ctypes.c_int64 * len(dims))(*reversed(dims))
        out = ctypes.c_void_p()
        self.call("cutensorCreateTensorDescriptor", self.handle, ctypes.byref(out), ctypes.c_uint32(len(dims)), extents,
                  None, ctypes.c_int(kind), ctypes.c_uint32(256))
        return out

    def run(self, case):
        if case.op != "permute" or case.dtype not in self.TYPES:
            return None
        kind, compute = self.TYPES[case.dtype]
        x = self.peer.tensor(case)
        wanted = x.permute(case.order)
        out = self.peer.torch.empty(wanted.shape, dtype=x.dtype, device=x.device)
        modes = lambda axes: (ctypes.c_int32 * len(axes))(*reversed(axes))
        operation, preference, plan = ctypes.c_void_p(), ctypes.c_void_p(), ctypes.c_void_p()
        identity = ctypes.c_int(1)
        compute = ctypes.c_void_p.in_dll(self.lib, f"CUTENSOR_COMPUTE_DESC_{compute}")
        self.call("cutensorCreatePermutation", self.handle, ctypes.byref(operation), self.descriptor(case.dims, kind),
                  modes(list(range(len(case.dims)))), identity, self.descriptor(list(wanted.shape), kind),
                  modes(case.order), compute)
        self.call("cutensorCreatePlanPreference", self.handle, ctypes.byref(preference), ctypes.c_int(-1), ctypes.c_int(0))
        self.call("cutensorCreatePlan", self.handle, ctypes.byref(plan), operation, preference, ctypes.c_uint64(0))
        one = (ctypes.c_double if case.dtype == "f64" else ctypes.c_float)(1)
        stream = ctypes.c_void_p(self.peer.torch.cuda.current_stream().cuda_stream)
        run = lambda: self.call("cutensorPermute", self.handle, plan, ctypes.byref(one), ctypes.c_void_p(x.data_ptr()),
                                ctypes.c_void_p(out.data_ptr()), stream)
        run()
        self.wait()
        if not self.peer.torch.equal(out, wanted):
            raise RuntimeError("its result is another one than torch's")
        return run


def files(path, rounds):
    """What users do: each tensor by safe_open; and each mapped, copied to pinned memory, and sent from there."""
    try:
        peer = Torch()
        from safetensors import safe_open
        from safetensors.torch import load_file
    except Exception as error:  # whatever a package does where it does not fit the machine
        return absent("safe_open", error)

    def opened():
        with safe_open(path, framework="pt", device="cuda") as file:
            return [file.get_tensor(name) for name in file.keys()]

    def pinned():
        return [tensor.pin_memory().to("cuda", non_blocking=True) for tensor in load_file(path).values()]

    for who, run in (("safe_open", opened), ("torch, pinned", pinned)):
        try:
            say("file", who, seconds(run, peer.wait, rounds, 1, 0)[0])
            peer.free()
        except Exception as error:
            absent(f"{who} of a file", error)


def main():
    if len(sys.argv) > 1:
        return files(sys.argv[1], int(sys.argv[2]))
    *numbers, warm_up = sys.stdin.readline().split("\t")
    (size, rounds, batch), warm_up = (int(n) for n in numbers), float(warm_up)
    cases = [Case(line) for line in sys.stdin if line.strip()]
    for kind in (Torch, CuPy, CuTensor):
        try:
            peer = kind()
        except Exception as error:  # whatever a package does where it does not fit the machine
            absent(kind.who, error)
            continue
        say("about", f"{kind.who} {peer.version}")
        if kind is Torch:
            say("time", "copy", "torch clone", *seconds(peer.copy(size), peer.wait, rounds, batch, warm_up))
        for case in cases:
            small = 20 if case.name == "add, 64 KiB" else 1
            try:
                run = peer.run(case)
                if run is not None:
                    say("time", case.name, peer.who, *seconds(run, peer.wait, rounds, small * batch, warm_up))
                run = None
                peer.free()
            except Exception as error:
                absent(f"{peer.who} for {case.name}", error)


if __name__ == "__main__":
    main()
