#!/usr/bin/env python3
"""Runs the test programs of the workspace as `cargo test` does, two at a time, and a third one beside them that mostly waits for servers
and clocks. The longest begin first, so that no lane runs a long one alone at the end.

    run_tests.py CARGO ARGUMENTS [-- ARGUMENTS OF THE PROGRAMS]

DRIFTLESS_TEST_OVER may name several ways, such as "pull push-user": each program runs once for each of them.

`test_seconds.tsv` beside this file has the seconds of each program and says which ones wait. A program that the table lacks begins first.

What a program prints comes when it has ended. All are run, and those that failed are named at the end. A program that exceeds its time is
killed together with its process group, so that a test that hangs costs minutes and names itself.

A few programs that failed run once more, with the machine to themselves. Those that pass then are named as unsteady: the run passes, and
the fault of the test or of the program wants to be found.
"""

import json
import os
import signal
import subprocess
import sys
import tempfile
import time
from collections import deque
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

SECONDS_TABLE = Path(__file__).with_name("test_seconds.tsv")
PROGRAM_SECONDS_MAX = 1500
# More failures than these are no accident, and none of them is tried again.
RUN_AGAIN_MAX = 6

# One folder for each FUSE connection of the kernel (Documentation/filesystems/fuse.rst, "Control filesystem").
FUSE_CONNECTIONS = Path("/sys/fs/fuse/connections")

# The ways by which the tests reach one of their trees (CONTRIBUTING.md, "Tests over ssh"); one that is empty stays on this machine.
WAY = "DRIFTLESS_TEST_OVER"
WAYS = os.environ.get(WAY, "").split() or [""]

# Leaders of the process groups that run now.
RUNNING = set()


def programs(arguments):
    """Builds the programs; returns their paths, the folders of their packages, which they are run in (cargo-test(1)), and each way."""
    argv = ["cargo", "test", "--no-run", "--message-format=json-render-diagnostics", *arguments]
    done = subprocess.run(argv, stdout=subprocess.PIPE, text=True, check=False)
    if done.returncode:
        sys.exit(done.returncode)
    told = (json.loads(line) for line in done.stdout.splitlines() if line.startswith("{"))
    built = (one for one in told if one["reason"] == "compiler-artifact" and one["profile"]["test"] and one["executable"])
    return [(one["executable"], Path(one["manifest_path"]).parent, way) for one in built for way in WAYS]


def name_of(program):
    """Returns the name of a program without the hash that cargo appends."""
    return Path(program).name.rsplit("-", 1)[0]


def table():
    """Reads the table; returns the seconds of each program and whether it mostly waits, by package folder and name."""
    lines = SECONDS_TABLE.read_text().splitlines()
    rows = (line.split("\t") for line in lines[1:] if not line.startswith("#"))
    return {(folder, name): (float(seconds), does == "waits") for folder, name, seconds, does in rows}


def in_order(built, known):
    """Returns the programs that compute, and those that mostly wait: each the longest first, before them those that are not `known`."""
    row = {one: known.get((one[1].name, name_of(one[0])), (float("inf"), False)) for one in built}
    longest_first = sorted(built, key=lambda one: row[one][0], reverse=True)
    return tuple(deque(one for one in longest_first if row[one][1] == waits) for waits in (False, True))


def connections():
    """Returns the names of the FUSE connections; none where the control file system is not mounted."""
    return {one.name for one in FUSE_CONNECTIONS.iterdir()} if FUSE_CONNECTIONS.is_dir() else set()


def end(leader, known):
    """Kills the process group, and aborts FUSE connections that are not `known`: a thread that waits for its own process's file system
    cannot be killed otherwise."""
    os.killpg(leader, signal.SIGKILL)
    for name in connections() - known:
        try:
            (FUSE_CONNECTIONS / name / "abort").write_text("1")
        except OSError as error:
            print(f"FUSE connection {name}: cannot abort: {error}", file=sys.stderr)


def wait(process, known):
    """Returns the exit code; that of a program that exceeded its time is the signal that killed it."""
    try:
        return process.wait(PROGRAM_SECONDS_MAX)
    except subprocess.TimeoutExpired:
        end(process.pid, known)
        return -signal.SIGKILL


def run(program, folder, way, words, known):
    """Runs one of them; returns its name and whether its tests passed. A file takes the output: a process that a program leaves behind
    would hold a pipe open."""
    began = time.monotonic()
    with tempfile.TemporaryFile() as output:
        process = subprocess.Popen([program, *words], cwd=folder, stdin=subprocess.DEVNULL, stdout=output, stderr=subprocess.STDOUT,
                                   start_new_session=True, env={**os.environ, WAY: way} if way else None)
        RUNNING.add(process.pid)
        code = wait(process, known)
        RUNNING.discard(process.pid)
        output.seek(0)
        said = output.read().decode(errors="replace")
    name = f"{name_of(program)} {way}".rstrip()
    print(f"{folder.name}: {name}: exit {code} after {time.monotonic() - began:.1f} s\n{said}", flush=True)
    return name, code == 0


def run_lane(queues, run_one):
    """Runs programs one after the other, each from the first queue that has one; returns those that failed."""
    failed = []
    for queue in queues:
        while queue:
            try:
                one = queue.popleft()
            except IndexError:  # Another lane took the last one.
                break
            if not run_one(one):
                failed.append(one)
    return failed


def run_all(built, words, known):
    """Runs the programs in three lanes, the third for those that mostly wait; returns those that failed."""
    computing, waiting = in_order(built, table())
    lanes = [(computing, waiting), (computing, waiting), (waiting,)]
    with ThreadPoolExecutor(len(lanes)) as pool:
        ends = [pool.submit(run_lane, queues, lambda one: run(*one, words, known)[1]) for queues in lanes]
        try:
            return [one for lane in ends for one in lane.result()]
        except BaseException:
            # The executor waits for its lanes, so none may begin another program.
            computing.clear()
            waiting.clear()
            for leader in list(RUNNING):
                end(leader, known)
            raise


def run_again(failed, words, known):
    """Runs the failed programs once more, one after the other; returns the names of those that failed again."""
    if len(failed) > RUN_AGAIN_MAX:
        return [f"{name_of(program)} {way}".rstrip() for program, _, way in failed]
    ended = [run(*one, words, known) for one in failed]
    unsteady = [name for name, passed in ended if passed]
    if unsteady:
        print(f"unsteady, failed once and passed alone: {', '.join(unsteady)}", file=sys.stderr)
    return [name for name, passed in ended if not passed]


def main():
    """Builds, runs and tells."""
    words = sys.argv[1:]
    cut = words.index("--") if "--" in words else len(words)
    built = programs(words[:cut])
    known = connections()
    try:
        failed = run_all(built, words[cut + 1:], known)
    except KeyboardInterrupt:
        sys.exit(130)
    failed = run_again(failed, words[cut + 1:], known)
    if not built or failed:
        sys.exit(f"failed: {', '.join(failed) or 'there is no test program'}")


if __name__ == "__main__":
    main()
