#!/usr/bin/python3
"""Measures driftless side by side with the tools that people use today, and writes the report.

    bench/run.py                          everything, about 100 minutes
    bench/run.py --quick                  small trees, one round: does the benchmark itself work?
    bench/run.py --cases real-tmpfs,memory   some cases; their results replace the older ones
    bench/run.py --list                   the names of the cases
    bench/run.py --against PATH           beside an earlier binary instead of the peers: what became slower?

Needs root, for mounts. Everything that it mounts, starts or creates is gone when it ends, however it ends.
"""

import argparse
import json
import os
import shutil
import signal
import subprocess
import sys
import tempfile
import time
from pathlib import Path

sys.dont_write_bytecode = True  # leave no caches in the source tree

import before
import machine
from cases import CASES
from measure import Runner
from places import mount_tmpfs, unmount
from scenarios import play
from stats import contender, failures
from trees import QUICK, Sizes, Trees

OUT = machine.ROOT / "bench" / "out"
# Raw results beside the page, so that a run of some cases replaces their rows and keeps all others.
RESULTS = "bench.json"
HURRY_SHARE = 0.75


class Bench:
    """What all cases share: the binary, the helpers, the trees and the place to work in."""

    def __init__(self, options, work, tools, driftless):
        self.work, self.tools, self.driftless = work, tools, driftless
        self.scripts, self.shim = machine.SOURCES, tools / "libdriftless_shim.so"
        self.before = options.against
        self.disk, self.quick, self.long = options.disk, options.quick, options.long
        self.seconds_max = 60 * options.minutes
        self.rounds = options.rounds or (1 if options.quick else None)
        sizes = QUICK if options.quick else Sizes(entries=options.entries, mirror_entries=options.entries)
        self.trees = Trees(work / "mem" / "trees", tools, sizes)
        self.tmp = work / "mem" / "tmp"
        self.tmp.mkdir()
        self.runner = Runner(tools, self.tmp)
        self.started = time.monotonic()

    def binary(self, tool):
        """What is measured under the name of a tool of ours."""
        return self.before if tool.is_before else self.driftless

    def hurried(self):
        """Whether most of the time is gone: from then on each case gets one round."""
        return time.monotonic() - self.started > HURRY_SHARE * self.seconds_max

    def say(self, text):
        """One line of progress, with the minutes since the start."""
        passed = int(time.monotonic() - self.started)
        print(f"[{passed // 60:02}:{passed % 60:02}] {text}", flush=True)


def arguments():
    """The command line."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--quick", action="store_true", help="small trees, one round, no documents")
    parser.add_argument("--cases", default=",".join(CASES), help="names, separated by commas")
    parser.add_argument("--list", action="store_true", help="print the names of the cases and stop")
    parser.add_argument("--long", action="store_true", help="also what takes half an hour: all tasks of jobs-array through one server")
    parser.add_argument("--rounds", type=int, help="rounds of every case instead of its own number")
    parser.add_argument("--minutes", type=int, default=105, help="about how long all may take")
    parser.add_argument("--entries", type=int, default=Sizes.entries, help="size of the generated tree")
    parser.add_argument("--note", default="", help="what a reader must know of these figures, shown beside them")
    parser.add_argument("--driftless", type=Path, help="binary to measure instead of building one")
    parser.add_argument("--against", type=lambda path: Path(path).absolute(), metavar="PATH",
                        help="earlier binary that takes the place of all peers")
    parser.add_argument("--disk", type=Path, default=machine.ROOT / "target" / "bench-disk",
                        help="folder on a disk, for an image file")
    parser.add_argument("--docs", type=Path,
                        help="folder for the report and its raw results (docs; with --quick or --against one below bench/out)")
    options = parser.parse_args()
    folder = OUT / "against" if options.against else OUT / "quick" if options.quick else machine.ROOT / "docs"
    options.docs = options.docs or folder
    options.disk = options.disk.absolute() / "driftless-bench"
    options.cases = [name for name in options.cases.split(",") if name]
    unknown = [name for name in options.cases if name not in CASES]
    if unknown:
        parser.error("no such case: " + ", ".join(unknown))
    return options


def stop_on_signals():
    """Turns signals into an exception, so that everything is cleaned up on the way out."""
    def stop(number, _frame):
        for other in (signal.SIGINT, signal.SIGTERM, signal.SIGHUP):
            signal.signal(other, signal.SIG_IGN)
        raise SystemExit(128 + number)
    for number in (signal.SIGINT, signal.SIGTERM, signal.SIGHUP):
        signal.signal(number, stop)


def save(path, results):
    """Writes the raw results whole or not at all."""
    path.parent.mkdir(parents=True, exist_ok=True)
    fresh = path.with_suffix(".new")
    fresh.write_text(json.dumps(results, indent=1, ensure_ascii=False) + "\n")
    fresh.replace(path)


def measure_all(options, bench):
    """Runs the cases in the order of the table and saves after each; returns whether driftless did well."""
    path = options.docs / RESULTS
    results = json.loads(path.read_text()) if path.exists() else {"cases": {}}
    results |= {"machine": machine.describe(bench.driftless), "quick": bench.quick}
    good = True
    chosen = [name for name in CASES if name in options.cases]
    cases = before.cases(chosen) if options.against else {name: CASES[name] for name in chosen}
    for case in cases.values():
        result = play(case, bench) | {"note": options.note}
        results["cases"][case.name] = result
        good = good and not result["trouble"] and not failures(result, contender(result))
        save(path, results)
    bench.say("measured")
    return good


def work_and_clean_up(options, driftless):
    """Owns the folder in which everything happens."""
    tools = machine.build_c_tools(OUT / "bin")
    if "often" in options.cases:
        machine.build_examples(tools)
    if any(CASES[name].group in ("shim", "calls", "announced") for name in options.cases):
        machine.build_shim(tools)
    work = Path(tempfile.mkdtemp(prefix="driftless-bench-"))
    try:
        mount_tmpfs(work / "mem")
        return measure_all(options, Bench(options, work, tools, driftless))
    finally:
        unmount(work / "mem")
        shutil.rmtree(work, ignore_errors=True)
        for folder in (options.disk, options.disk.parent):
            if folder.is_dir() and not any(folder.iterdir()):
                folder.rmdir()


def report_against(options, good):
    """Writes and prints what became of each case; returns the exit code."""
    page = before.page(json.loads((options.docs / RESULTS).read_text()))
    (options.docs / "against.md").write_text(page)
    print(page)
    return 0 if good else 1


def main():
    """Prepares, measures, reports."""
    options = arguments()
    if options.list:
        print("\n".join(CASES))
        return 0
    if os.geteuid() != 0:
        raise SystemExit("the benchmark mounts file systems and must be run as root")
    stop_on_signals()
    machine.install_missing()
    driftless = (options.driftless or machine.build_driftless()).absolute()
    good = work_and_clean_up(options, driftless)
    if options.against:
        return report_against(options, good)
    report = [Path(__file__).with_name("report.py"), options.docs / RESULTS, options.docs]
    subprocess.run(["/usr/bin/python3", *map(str, report)], check=True)
    return 0 if good else 1


if __name__ == "__main__":
    sys.exit(main())
