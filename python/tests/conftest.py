"""Where files and the tool lie: BLOB_TOOL names the binary, BLOB_REAL_DATA a folder of real files."""

from __future__ import annotations

import json
import os
import shutil
import subprocess
import sysconfig
from pathlib import Path
from typing import Any

import numpy as np
import pytest

DATA = Path(__file__).parents[2] / "tests" / "data"


def files() -> list[Path]:
    """Every golden file, and every real one."""
    found = [path for path in DATA.rglob("*") if path.is_file()]
    real = os.environ.get("BLOB_REAL_DATA")
    if real:
        found += [path for path in Path(real).rglob("*") if path.is_file()]
    return sorted(path for path in found if path.suffix not in {".py", ".md", ".tsv", ".jsonl", ".cpp", ".txt"})


def tool() -> str:
    """The tool: the one that BLOB_TOOL names, else the one that the wheel has installed."""
    named = os.environ.get("BLOB_TOOL") or shutil.which("blob", path=sysconfig.get_path("scripts"))
    assert named, "BLOB_TOOL names no tool, and the wheel has brought none"
    return named


def tool_json(*arguments: str | os.PathLike[str]) -> Any:
    """What the tool prints as JSON, and the exit status."""
    done = subprocess.run([tool(), *arguments, "--json"], capture_output=True, check=False)
    line = done.stdout.decode().splitlines()[:1]
    return done.returncode, json.loads(line[0]) if line else None


def resident() -> int:
    """The bytes of this process that lie in memory."""
    return int(Path("/proc/self/statm").read_text().split()[1]) * os.sysconf("SC_PAGE_SIZE")


def caffemodel(*layers: tuple[str, str, list[np.ndarray]]) -> bytes:
    """A NetParameter of layers: name, type, blobs of float32."""

    def varint(n: int) -> bytes:
        out = b""
        while n > 0x7F:
            out += bytes([n & 0x7F | 0x80])
            n >>= 7
        return out + bytes([n])

    def field(number: int, content: bytes) -> bytes:
        return varint(number << 3 | 2) + varint(len(content)) + content

    net = field(1, b"net")
    for name, kind, blobs in layers:
        layer = field(1, name.encode()) + field(2, kind.encode())
        for blob in blobs:
            shape = field(1, b"".join(varint(n) for n in blob.shape))
            layer += field(7, field(7, shape) + field(5, blob.astype("<f4").tobytes()))
        net += field(100, layer)
    return net


@pytest.fixture
def weight() -> np.ndarray:
    return np.arange(18, dtype=np.float32).reshape(2, 1, 3, 3)


@pytest.fixture
def path(tmp_path: Path, weight: np.ndarray) -> str:
    """A caffemodel of one convolution."""
    file = tmp_path / "net.caffemodel"
    file.write_bytes(caffemodel(("conv1", "Convolution", [weight, np.array([0.5, -1.0])])))
    return str(file)


@pytest.fixture
def aligned(tmp_path: Path) -> str:
    """A safetensors file, whose arrays are aligned."""
    from safetensors.numpy import save_file

    file = tmp_path / "net.safetensors"
    big = np.arange(6 * 8 * 10, dtype=np.float32).reshape(6, 8, 10)
    save_file({"big": big, "half": np.ones((3, 5), np.float16), "n": np.array(7, np.int64)}, file)
    return str(file)
