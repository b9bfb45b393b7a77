"""Compiles the kernels with NVRTC: python nvrtc.py LIBNVRTC FOLDER, for each FOLDER/NAME.cu a FOLDER/ptx/NAME.ptx.

Run by `cargo xtask kernels`, which fetches the library. PTX for compute capability 7.0, of the version that the library
writes; no contraction of a product and a sum, because results have the host's bits.
"""

import ctypes
import pathlib
import sys

# The warnings are about what a template leaves out for one of its parameters.
OPTIONS = [b"--gpu-architecture=compute_70", b"--fmad=false", b"--std=c++14", b"--diag-suppress=128,186"]


def check(status, what):
    if status != 0:
        sys.exit(f"nvrtc: {what} failed with {status}")


def text(program, size_of, get):
    size = ctypes.c_size_t()
    check(size_of(program, ctypes.byref(size)), size_of.__name__)
    buffer = ctypes.create_string_buffer(size.value)
    check(get(program, buffer), get.__name__)
    return buffer.value.decode()


def strings(values):
    return (ctypes.c_char_p * len(values))(*values)


def compile_file(nvrtc, path, headers):
    program = ctypes.c_void_p()
    sources, names = strings([header.read_bytes() for header in headers]), strings([h.name.encode() for h in headers])
    created = nvrtc.nvrtcCreateProgram(
        ctypes.byref(program), path.read_bytes(), path.name.encode(), len(headers), sources, names)
    check(created, "nvrtcCreateProgram")
    status = nvrtc.nvrtcCompileProgram(program, len(OPTIONS), strings(OPTIONS))
    log = text(program, nvrtc.nvrtcGetProgramLogSize, nvrtc.nvrtcGetProgramLog).strip()
    if log:
        print(log, file=sys.stderr)
    check(status, f"compiling {path.name}")
    ptx = text(program, nvrtc.nvrtcGetPTXSize, nvrtc.nvrtcGetPTX)
    (path.parent / "ptx" / path.name).with_suffix(".ptx").write_text(ptx.strip("\n") + "\n")


def main():
    nvrtc, folder = ctypes.CDLL(sys.argv[1]), pathlib.Path(sys.argv[2])
    for path in sorted(folder.glob("*.cu")):
        compile_file(nvrtc, path, sorted(folder.glob("*.cuh")))


main()
