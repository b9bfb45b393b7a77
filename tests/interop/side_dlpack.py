"""Tensors of torch and arrays of jax, by DLPack both ways: written with `blob_io.save_file`, and read again without a copy where a file has
them aligned. Both kinds of capsule, copies asked for and refused, no values, no axes, bools, bf16, and values that do not lie row after row.

`side_dlpack.py torch|jax FOLDER SEED COUNT` writes COUNT files, and prints files, tensors, and what is wrong, as JSON.
"""
import gc
import json
import os
import sys

import blob_io
import numpy as np

DTYPES = "float32 float64 float16 bfloat16 uint8 int8 int16 int32 int64 bool"
KINDS = [("older", {}), ("versioned", {"max_version": (1, 0)})]
SHAPES = [(), (0,), (3, 0, 2), (1,), (7,), (4, 1, 5), (2, 3, 4, 5)]


class Capsules:
    """The capsules of one tensor, of the older kind alone or of the versioned one."""

    def __init__(self, tensor, **asked):
        self.tensor, self.asked = tensor, asked

    def __dlpack__(self, **_):
        return self.tensor.__dlpack__(**self.asked)

    def __dlpack_device__(self):
        return self.tensor.__dlpack_device__()


class Torch:
    """The words of torch for what is asked here."""

    name = "torch"

    def __init__(self):
        import torch

        self.module, self.from_dlpack = torch, torch.from_dlpack

    def make(self, values, dtype):
        return self.module.from_numpy(values).to(getattr(self.module, dtype))

    def bits(self, tensor):
        flat = self.module.empty(tensor.numel(), dtype=tensor.dtype).copy_(tensor.detach().reshape(-1))
        return flat.view(self.module.uint8).numpy().tobytes()

    def dtype(self, tensor):
        return str(tensor.dtype).removeprefix("torch.")

    def address(self, tensor):
        return tensor.data_ptr()

    def forms(self, tensor):
        """The same values, and others of theirs, as they may lie in memory."""
        yield "plain", tensor
        if tensor.ndim > 1:
            yield "transposed", tensor.transpose(0, -1)
            yield "in steps", tensor[..., ::2]
        if tensor.ndim:
            yield "expanded", tensor[:1].expand(3, *tensor.shape[1:]) if tensor.shape[0] else tensor
        if tensor.dtype.is_floating_point:
            yield "with a gradient", tensor.clone().requires_grad_()


class Jax:
    name = "jax"

    def __init__(self):
        os.environ["JAX_PLATFORMS"], os.environ["JAX_ENABLE_X64"] = "cpu", "1"
        import jax

        self.module, self.from_dlpack = jax, jax.dlpack.from_dlpack

    def make(self, values, dtype):
        return self.module.numpy.asarray(values).astype(dtype)

    def bits(self, array):
        return np.asarray(array).tobytes()

    def dtype(self, array):
        return str(array.dtype)

    def address(self, array):
        return array.unsafe_buffer_pointer()

    def forms(self, array):
        yield "plain", array
        if array.ndim > 1:
            yield "transposed", array.swapaxes(0, -1)
            yield "backwards", array[..., ::-1]


def refuses(work):
    try:
        work()
    except (BufferError, ValueError, RuntimeError):
        return True
    return False


class Checks:
    def __init__(self, side):
        self.side, self.wrong, self.tensors, self.views = side, [], 0, 0
        self.kinds = [(kind, asked) for kind, asked in KINDS if self.takes(asked)]
        self.holds("no older capsule is taken", KINDS[0] in self.kinds)

    def takes(self, asked):
        """Whether the library takes capsules of this kind: jax 0.10 and 0.12 take the older one alone."""
        try:
            self.side.from_dlpack(Capsules(blob_io.merge([np.arange(3.0)], 0), **asked))
        except RuntimeError:
            return False
        return True

    def equal(self, what, found, wanted):
        side = self.side
        facts = lambda tensor: (tuple(tensor.shape), side.dtype(tensor), side.bits(tensor))
        if facts(found) != facts(wanted):
            self.wrong.append("%s: %s" % (what, [facts(tensor)[:2] for tensor in (found, wanted)]))

    def holds(self, what, is_so):
        if not is_so:
            self.wrong.append(what)

    def file(self, path, tensors, mmap):
        """All tensors of a file, each taken in every way."""
        before = open(path, "rb").read()
        f = blob_io.open(path, mmap=mmap)
        for name, wanted in tensors.items():
            what, t = "%s %s mmap=%s" % (os.path.basename(path), name, mmap), f[name]
            self.tensors += 1
            self.equal(what + " get_tensor", f.get_tensor(name, framework=self.side.name), wanted)
            self.equal(what + " from_dlpack", self.side.from_dlpack(t), wanted)
            for kind, asked in self.kinds:
                self.equal("%s %s capsule" % (what, kind), self.side.from_dlpack(Capsules(t, **asked)), wanted)
            self.copies(what, t, wanted)
        taken = f.get_tensors(framework=self.side.name)
        f.close()
        del f, t
        gc.collect()
        for name, wanted in tensors.items():
            self.equal("%s %s after its file" % (path, name), taken[name], wanted)
        self.holds(path + " was changed", open(path, "rb").read() == before)

    def copies(self, what, t, wanted):
        one, other = self.side.from_dlpack(t, copy=True), self.side.from_dlpack(t, copy=True)
        self.equal(what + " copied", one, wanted)
        if t.nbytes and self.side.name == "torch":  # jax 0.12 asks for no copy, and makes none of an aligned array
            self.holds(what + " is copied into one memory", self.side.address(one) != self.side.address(other))
        if not t.is_view:
            self.holds(what + " refuses copy=False", t.nbytes == 0 or refuses(lambda: t.__dlpack__(copy=False)))
            return
        # jax wants views to be aligned to 64 bytes, else it refuses.
        if self.side.name == "jax" and (t.offset or 0) % 64:
            return
        views = [self.side.from_dlpack(t, copy=False) for _ in range(2)]
        self.equal(what + " as a view", views[0], wanted)
        self.holds(what + " is a view of one memory", self.side.address(views[0]) == self.side.address(views[1]))
        self.views += 1


def torch_alone(checks, folder):
    """Writing into a view, a buffer that keeps its exporter alone, and operations on tensors of torch."""
    torch, path = checks.side.module, os.path.join(folder, "alone.safetensors")
    values = torch.arange(60, dtype=torch.float32).reshape(3, 4, 5)
    blob_io.save_file({"w": values}, path)
    f = blob_io.open(path, mmap=True)
    view, again = f["w"].torch(), f["w"].torch()
    view.mul_(2)
    checks.equal("written into", again, values * 2)
    checks.equal("the file", blob_io.open(path)["w"].torch(), values)
    kept = torch.frombuffer(blob_io.open(path)["w"], dtype=torch.float32)
    gc.collect()
    checks.equal("a buffer", kept.reshape(3, 4, 5), values)
    checks.equal("merged", blob_io.merge([values, values.transpose(0, 1).contiguous().transpose(0, 1)], 1).torch(), torch.cat([values, values], 1))
    checks.equal("permuted", blob_io.permute(values, (2, 0, 1)).torch(), values.permute(2, 0, 1))
    parts = blob_io.split(values, 1, [1, 3])
    checks.equal("split", parts[1].torch(), values[:, 1:])
    checks.equal("a part", f.get_slice("w", framework="torch")[::-1, 1:, ::2], torch.flip(values, [0])[:, 1:, ::2])
    checks.equal("a state dict", blob_io.torch.load_file(path, names="raw")["w"], values)


def main(side, folder, seed, count):
    import blob_io.torch  # names no torch before it is asked for one

    random, checks = np.random.default_rng(int(seed)), Checks({"torch": Torch, "jax": Jax}[side]())
    for number in range(int(count)):
        tensors = {}
        for index in range(4):
            shape, dtype = SHAPES[random.integers(len(SHAPES))], str(random.choice(DTYPES.split()))
            values = random.integers(0, 2 if dtype == "bool" else 100, shape).astype(np.float32)
            for form, tensor in checks.side.forms(checks.side.make(np.asarray(values), dtype)):
                tensors["%d %s %s" % (index, dtype, form)] = tensor
        path = os.path.join(folder, "%03d.safetensors" % number)
        blob_io.save_file(tensors, path)
        # The same by capsules of each kind.
        for kind, asked in KINDS:
            given = {name: Capsules(tensor.detach() if side == "torch" else tensor, **asked) for name, tensor in tensors.items()}
            blob_io.save_file(given, path + kind, format="safetensors")
            checks.holds("%s by %s capsules" % (path, kind), open(path + kind, "rb").read() == open(path, "rb").read())
            os.remove(path + kind)
        for mmap in [False, True]:
            checks.file(path, tensors, mmap)
    if side == "torch":
        torch_alone(checks, folder)
    checks.holds("no views were made", checks.views > 0)
    return {"files": int(count), "tensors": checks.tensors, "wrong": checks.wrong, "views": checks.views, "kinds": dict(checks.kinds)}


if __name__ == "__main__":
    print(json.dumps(main(*sys.argv[1:])))
