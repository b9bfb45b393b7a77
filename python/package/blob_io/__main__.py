"""``python -m blob_io`` runs the tool ``blob`` that the wheel has installed."""

from __future__ import annotations

import os
import subprocess
import sys
import sysconfig


def main() -> int:
    """Runs the tool with this process's arguments; on POSIX in place of this process."""
    name = "blob.exe" if os.name == "nt" else "blob"
    schemes = [sysconfig.get_default_scheme(), sysconfig.get_preferred_scheme("user")]
    for scheme in schemes:
        tool = os.path.join(sysconfig.get_path("scripts", scheme), name)
        if os.path.isfile(tool):
            if os.name == "posix":
                os.execv(tool, [tool, *sys.argv[1:]])
            return subprocess.call([tool, *sys.argv[1:]])
    print("blob_io: the tool blob is not installed here: the wheel has it, a build from source has not", file=sys.stderr)
    return 2


if __name__ == "__main__":
    sys.exit(main())
