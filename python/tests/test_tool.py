"""The tool that the wheel has installed."""

from __future__ import annotations

import shutil
import subprocess
import sys
import sysconfig
from pathlib import Path

import blob_io


def installed() -> str | None:
    return shutil.which("blob", path=sysconfig.get_path("scripts"))


def run(*arguments: str) -> subprocess.CompletedProcess[bytes]:
    return subprocess.run([sys.executable, "-m", "blob_io", *arguments], capture_output=True, check=False)


def test_the_module_runs_the_tool(path: str) -> None:
    tool = installed()
    if tool is None:
        refused = run("--version")
        assert refused.returncode == 2 and b"not installed" in refused.stderr
        return
    with open(tool, "rb") as program:
        assert program.read(4) == b"\x7fELF", "the tool itself, not a script"
    # What the wheel has besides: completions and manual pages, in the places of the environment that shells look at.
    share = Path(sysconfig.get_path("data")) / "share"
    for file in ["bash-completion/completions/blob", "zsh/site-functions/_blob", "fish/vendor_completions.d/blob.fish"]:
        assert "blob" in (share / file).read_text(encoding="utf-8"), file
    pages = {page.name for page in (share / "man/man1").glob("blob*")}
    assert {"blob.1", "blob-convert.1", "blob-batch.1"} <= pages, pages
    version = subprocess.run([tool, "--version"], capture_output=True, check=True).stdout
    assert version.split()[1].decode() == blob_io.__version__
    assert run("--version").stdout == version
    listed = run("ls", path)
    assert listed.returncode == 0 and b"conv1/0" in listed.stdout
    assert run("ls", path + ".none").returncode == subprocess.run([tool, "ls", path + ".none"], check=False).returncode
