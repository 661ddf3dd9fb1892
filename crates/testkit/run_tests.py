#!/usr/bin/env python3
"""Runs the test programs of the workspace as `cargo test` does, two at a time: most of them wait more than they compute, and some
have one test that is under way when all others are done.

    run_tests.py CARGO ARGUMENTS [-- ARGUMENTS OF THE PROGRAMS]

What a program prints comes when it has ended. All are run, and those that failed are named at the end.
"""

import json
import subprocess
import sys
import time
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

PROGRAMS_AT_ONCE = 2


def programs(arguments):
    """Builds the programs; returns their paths and the folders of their packages, which they are run in (cargo-test(1))."""
    argv = ["cargo", "test", "--no-run", "--message-format=json-render-diagnostics", *arguments]
    done = subprocess.run(argv, stdout=subprocess.PIPE, text=True, check=False)
    if done.returncode:
        sys.exit(done.returncode)
    told = (json.loads(line) for line in done.stdout.splitlines() if line.startswith("{"))
    built = (one for one in told if one["reason"] == "compiler-artifact" and one["profile"]["test"] and one["executable"])
    return [(one["executable"], Path(one["manifest_path"]).parent) for one in built]


def run(program, folder, words):
    """Runs one of them; returns whether its tests passed."""
    began = time.monotonic()
    done = subprocess.run([program, *words], cwd=folder, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True, errors="replace",
                          check=False)
    name = Path(program).name.rsplit("-", 1)[0]
    print(f"{folder.name}: {name}: exit {done.returncode} after {time.monotonic() - began:.1f} s\n{done.stdout}", flush=True)
    return name, done.returncode == 0


def main():
    """Builds, runs and tells."""
    words = sys.argv[1:]
    cut = words.index("--") if "--" in words else len(words)
    built = programs(words[:cut])
    with ThreadPoolExecutor(PROGRAMS_AT_ONCE) as pool:
        ended = list(pool.map(lambda one: run(*one, words[cut + 1:]), built))
    failed = [name for name, passed in ended if not passed]
    if not ended or failed:
        sys.exit(f"failed: {' '.join(failed) or 'there is no test program'}")


if __name__ == "__main__":
    main()
