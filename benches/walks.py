#!/usr/bin/env python3
"""How far a reader has to walk: the functions of synced-mem that `SharedMem::device` enters, and their files.

    python3 benches/walks.py

Builds the example `walk` without optimisation, so that nothing is inlined, and counts its calls with valgrind. The bars are 14 files
for a stale range and 8 with nothing to do. Exit 1 if a walk is longer. `-v` names the files, with the lines of each that are no test module.
"""
import collections, os, re, subprocess, sys, tempfile

BARS = {"stale": 14, "nothing_to_do": 8}
SOURCES = "crates/synced-mem/src/"


def calls(path):
    """The called functions with their files, and how often each was entered."""
    names, entered, file, callee = {}, collections.Counter(), "", None
    for line in open(path, encoding="utf-8"):
        position = re.match(r"(fl|fi|fe|cfi|cfl|fn|cfn)=\((\d+)\)(?: (.*))?$", line.rstrip())
        if position:
            key, number, name = position.groups()
            table = "fn" if key.endswith("fn") else "file"
            name = names.setdefault((table, number), name)
            if key in ("fl", "fi", "fe", "cfi", "cfl"):
                file, own = name, key in ("fl", "fi", "fe")
                if own:
                    caller = name
            elif key == "cfn":
                callee = (file, name)
        elif line.startswith("calls="):
            entered[callee] += int(line[6:].split()[0])
            file = caller
    return entered


def lines(text):
    return text.partition("#[cfg(test)]\nmod tests {")[0].count("\n")


target = "target/walks"
plain = ["--target-dir", target, "--config", "profile.dev.package.synced-mem.opt-level=0"]
subprocess.run(["cargo", "build", "-q", "-p", "synced-mem", "--example", "walk"] + plain, check=True)
failed = False
for walk, bar in BARS.items():
    with tempfile.TemporaryDirectory() as folder:
        out = os.path.join(folder, "out")
        # The counters from the entry to the return of the one call. A toggled collection would still count other calls.
        command = ["valgrind", "--tool=callgrind", f"--callgrind-out-file={out}", f"--zero-before=walk::{walk}", f"--dump-after=walk::{walk}"]
        subprocess.run(command + [os.path.join(target, "debug/examples/walk")], check=True, capture_output=True)
        entered = {key: count for key, count in calls(out + ".1").items() if SOURCES in key[0]}
    files = collections.Counter()
    for (file, _), count in entered.items():
        files[file.split(SOURCES)[1]] += count
    print(f"{walk}: {sum(entered.values())} entries of {len(entered)} functions in {len(files)} files (bar: {bar} files)")
    if "-v" in sys.argv:
        for file, count in sorted(files.items()):
            text = open(SOURCES + file, encoding="utf-8").read()
            print(f"  {file:30}{lines(text):5} lines{count:5} entries")
    failed |= len(files) > bar
sys.exit(failed)
