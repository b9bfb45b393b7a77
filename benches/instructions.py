#!/usr/bin/env python3
"""The instructions of an access to a memory that has nothing to do, beside those of another commit.

    python3 benches/instructions.py [COMMIT]

Builds the example `walk` of synced-mem, optimised, in this tree and in a checkout of COMMIT (d0f94b8), which gets this tree's
example, and counts with valgrind. Counts do not depend on the machine's load. Exit 1 if a ratio is above its bar.
"""
import os, re, shutil, subprocess, sys, tempfile

ROUNDS = 1000
# The accesses, and the bars on the ratio to the older commit.
BARS = {"nothing_to_do": 0.85, "owned_token": 0.85, "write_borrow": 0.80, "whole_read": 1.0, "read_again": 1.0, "part_read": 1.0, "owned_read": 1.1}
EXAMPLE = "crates/synced-mem/examples/walk.rs"


def program(tree, target):
    build = ["cargo", "build", "-q", "--release", "-p", "synced-mem", "--example", "walk", "--target-dir", target,
             "--config", 'profile.release.strip="debuginfo"']
    subprocess.run(build, cwd=tree, check=True)
    return os.path.join(target, "release/examples/walk")


def instructions(program, access):
    """Of one access, its end included."""
    with tempfile.TemporaryDirectory() as folder:
        out = os.path.join(folder, "out")
        command = ["valgrind", "--tool=callgrind", f"--callgrind-out-file={out}", "--collect-atstart=no"]
        command += [f"--toggle-collect=walk::{access}", program, str(ROUNDS)]
        subprocess.run(command, check=True, capture_output=True)
        return int(re.search(r"^(?:summary|totals): (\d+)", open(out).read(), re.M)[1]) / ROUNDS


root = os.path.dirname(os.path.dirname(os.path.abspath(__file__)))
commit = sys.argv[1] if len(sys.argv) > 1 else "d0f94b8"
target = os.path.join(root, "target/instructions")
older = os.path.join(target, "tree")
subprocess.run(["git", "worktree", "remove", "--force", older], cwd=root, capture_output=True)
subprocess.run(["git", "worktree", "add", "-q", "--detach", older, commit], cwd=root, check=True)
try:
    os.makedirs(os.path.dirname(os.path.join(older, EXAMPLE)), exist_ok=True)
    shutil.copy(os.path.join(root, EXAMPLE), os.path.join(older, EXAMPLE))
    programs = [program(root, target), program(older, os.path.join(target, "older"))]
finally:
    subprocess.run(["git", "worktree", "remove", "--force", older], cwd=root, check=True)
failed = False
for access, bar in BARS.items():
    now, before = (instructions(path, access) for path in programs)
    print(f"{access}: {now:.0f} instructions, {before:.0f} in {commit}: {now / before:.2f} (bar: {bar:.2f})")
    failed |= now / before > bar
sys.exit(failed)
