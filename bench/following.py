"""The procedures about mirrors: a replica that follows its source, and how far it is behind.

What they measure are figures of many kinds, so each run that they record has `figures` beside the usual fields. Lag is
seen from outside by tools/busy.c; what the mirror says of itself stands beside it.
"""

import ctypes
import json
import os
import subprocess
import time
from statistics import median

from followers import Lsyncd, Mirror
from peers import DRIFTLESS, LSYNCD, LSYNCD_SLOW, MIRROR, ONE_SYNC, RSYNC_DELETE, SEND, TOOLS
from places import run

LIVE = 'detect = ["fanotify", "walk"]\n[walk]\nevery = "never"\n'
CYCLES = 'detect = ["btrfs"]\nrpo = "2d"\n[cycle]\nevery = "1d"\n'
SNAPSHOTS = ".driftless-snapshots"
FILE_BYTES = 4096
FOLDERS = 10
BURST_FOLDERS = 100
CHANGES = 1000
CYCLE_ROUNDS = 3
TINY_BYTES = 100
CHURN_RATE = 300
APPEND_RATE = 500
SYNCS = 50
RENAME_SECONDS_MAX = 60
# A mirror that has just come to rest may still write what it knows.
REST_SECONDS = 5
LSYNCD_DELAYS = {LSYNCD: 0, LSYNCD_SLOW: 15}
HOUR_SECONDS = 3600


def record(scene, tool, figures, part="", measured=None):
    """Keeps a run of which these figures are known."""
    done = measured or {"wall": 0, "user": 0, "sys": 0, "peak_kib": 0, "exit": 0}
    scene.runs.append({"round": scene.round, "tool": tool, "part": part, "figures": figures} | done)
    shown = ", ".join(f"{name} {value:.6g}" for name, value in figures.items())
    scene.bench.say(f"{scene.case.name} {part} {TOOLS[tool].label}: {shown}")


def busy(scene, *words):
    """Changes a tree at its pace; returns what was seen meanwhile."""
    done = subprocess.run([scene.bench.tools / "busy", *map(str, words)], capture_output=True, text=True, check=True)
    return json.loads(done.stdout)


def timed(scene, tool, argv, part="", sync_dir=None):
    """One command that is timed; it must succeed."""
    bench, place = scene.bench, scene.place
    bench.runner.scrub = {place.src_mount: "SRC", place.mount: "DST", bench.work: "WORK", bench.disk: "DISK"}
    done = bench.runner.run(argv, sync_dir)
    record(scene, tool, {"seconds": done["wall"]}, part, done)
    if done["exit"]:
        raise RuntimeError(f"{tool}: {done['stderr']}")


def trees(scene, folders=0):
    """New source and replica, with so many folders in each."""
    scene.bench.trees.clear()
    scene.place.fresh()
    source, replica = scene.place.src_mount / "src", scene.place.mount / "dst"
    for number in range(folders):
        for tree in (source, replica):
            (tree / f"d{number}").mkdir(parents=True)
    source.mkdir(exist_ok=True)
    replica.mkdir(exist_ok=True)
    return source, replica


def live(scene):
    """So many new files a second: how long until each is on the replica, for each tool in turn."""
    sizes, rate = scene.bench.trees.sizes, scene.case.rate
    for tool in scene.case.tools:
        both = trees(scene, FOLDERS)
        if tool == ONE_SYNC:
            record(scene, tool, {"p50": one_sync_seconds(both[1])})
            continue
        own = tool == MIRROR
        seconds = sizes.live_seconds if own else sizes.peer_seconds
        follower = Mirror(scene.bench, both, LIVE) if own else Lsyncd(scene.bench, both, LSYNCD_DELAYS[tool])
        with follower:
            seen = busy(scene, "files", *both, rate * seconds, rate, FILE_BYTES, FOLDERS)
            figures = {name: seen[name] for name in ("p50", "p99", "missing", "rate")}
            if own:
                follower.ask("barrier")
                status = follower.status()
                figures |= {"durable_p50": status["lag_p50_seconds"], "durable_p99": status["lag_p99_seconds"]}
                figures["processor"] = follower.processor_seconds() / seconds
            record(scene, tool, figures)


def one_sync_seconds(folder):
    """The median time to make one file and have its file system synced: what no lag can do without."""
    libc, took = ctypes.CDLL(None, use_errno=True), []
    fd = os.open(folder, os.O_RDONLY | os.O_DIRECTORY)
    try:
        for number in range(SYNCS):
            began = time.monotonic()
            (folder / f"sync-{number}").write_bytes(bytes(FILE_BYTES))
            if libc.syncfs(fd):
                raise OSError(ctypes.get_errno(), "syncfs")
            took.append(time.monotonic() - began)
    finally:
        os.close(fd)
    return median(took)


def burst(scene):
    """Many files at once, from the last close until all are durable on the replica, beside a sync of the same; then the
    directory above them is renamed."""
    bench, files = scene.bench, scene.bench.trees.sizes.burst_files
    source, replica = trees(scene)
    for tree in (source, replica):
        for number in range(BURST_FOLDERS):
            (tree / "burst" / f"d{number}").mkdir(parents=True)
    with Mirror(bench, (source, replica), LIVE) as mirror:
        seen = busy(scene, "files", source / "burst", replica / "burst", files, 0, FILE_BYTES, BURST_FOLDERS)
        mirror.ask("barrier")
        record(scene, MIRROR, {"seconds": time.monotonic() - seen["closed"], "missing": seen["missing"]}, "burst")
        mirror.wait_until_idle()
        renamed(scene, mirror, source, replica)
    compare(scene, source, replica)
    for number in range(CYCLE_ROUNDS):
        argv = TOOLS[DRIFTLESS].argv(driftless=bench.driftless, src=source, dst=replica.with_name(f"copy-{number}"))
        timed(scene, DRIFTLESS, argv, "burst", replica.parent)


def compare(scene, source, replica):
    """Has every attribute and every byte compared, but for what is the mirror's own."""
    scene.place.dst = replica
    scene.check(source, [SNAPSHOTS, ".driftless-tmp-*", ".driftless-lock*"])


def renamed(scene, mirror, source, replica):
    """A directory with all files below it gets another name."""
    inode = (replica / "burst").stat().st_ino
    began = time.monotonic()
    (source / "burst").rename(source / "renamed")
    while not (replica / "renamed").exists() and time.monotonic() < began + RENAME_SECONDS_MAX:
        time.sleep(0.001)
    seen = time.monotonic() - began
    mirror.ask("barrier")
    figures = {"seen": seen, "seconds": time.monotonic() - began}
    if (replica / "renamed").stat().st_ino != inode:
        raise RuntimeError("it was not renamed, but copied")
    record(scene, MIRROR, figures, "rename")


def restart(scene):
    """A directory with many files is renamed while the mirror does not run; then the mirror is started again."""
    bench, files = scene.bench, scene.bench.trees.sizes.burst_files
    source, replica = trees(scene)
    for number in range(BURST_FOLDERS):
        folder = source / "burst" / f"d{number}"
        folder.mkdir(parents=True)
        for name in range(number, files, BURST_FOLDERS):
            (folder / f"f{name}").write_bytes(bytes(FILE_BYTES))
    mirror = Mirror(bench, (source, replica), LIVE)
    began = time.monotonic()
    with mirror:
        record(scene, MIRROR, {"seconds": time.monotonic() - began}, "first")
        inode = (replica / "burst").stat().st_ino
    (source / "burst").rename(source / "renamed")
    began = time.monotonic()
    with mirror:
        mirror.ask("barrier")
        figures = {"seconds": time.monotonic() - began, "bytes": mirror.status()["bytes_copied"]}
        if (replica / "renamed").stat().st_ino != inode:
            raise RuntimeError("it was not renamed, but copied")
        record(scene, MIRROR, figures, "restart")
    compare(scene, source, replica)


def append(scene):
    """One file to which a line is appended many times."""
    both = trees(scene)
    with Mirror(scene.bench, both, LIVE) as mirror:
        seen = busy(scene, "append", *both, scene.bench.trees.sizes.appends, APPEND_RATE)
        mirror.ask("barrier")
        figures = {"copies": seen["copies"], "missing": seen["missing"], "last": seen["lag"]}
        figures["bytes"] = mirror.status()["bytes_copied"]
        record(scene, MIRROR, figures)


def million(scene):
    """A live mirror of many files: what it costs while nothing happens, and what memory it has needed after a long churn."""
    sizes = scene.bench.trees.sizes
    source, replica = trees(scene)
    grow(scene, source / "all", sizes.mirror_entries)
    with Mirror(scene.bench, (source, replica), LIVE) as mirror:
        mirror.wait_until_idle()
        first = mirror.peak_kib() / 1024
        time.sleep(REST_SECONDS)
        before = mirror.processor_seconds()
        time.sleep(sizes.idle_seconds)
        used = mirror.processor_seconds() - before
        record(scene, MIRROR, {"hourly": used * HOUR_SECONDS / sizes.idle_seconds}, "idle")
        busy(scene, "churn", source, CHURN_RATE, sizes.churn_seconds)
        mirror.ask("barrier")
        status = mirror.status()
        figures = {"peak": mirror.peak_kib() / 1024, "first": first, "durable_p99": status["lag_p99_seconds"]}
        figures["processor"] = (mirror.processor_seconds() - before - used) / sizes.churn_seconds
        record(scene, MIRROR, figures, "churn")
    compare(scene, source, replica)


def grow(scene, folder, entries):
    """A tree of tiny files, which btrfs keeps beside their names."""
    wide = entries // 20
    run(scene.bench.trees.generator, "tree", folder, entries, TINY_BYTES, wide)
    run("sync", "-f", folder)


def cycle(scene):
    """Cycles of snapshots after some changes, in a tree that grows; in its middle size beside rsync of the same."""
    sizes = scene.bench.trees.sizes
    scene.bench.trees.clear()
    scene.place.fresh()
    source, replica = scene.place.src_mount / "src", scene.place.mount / "dst"
    for tree in (source, replica):
        run("btrfs", "subvolume", "create", tree)
    many = sizes.mirror_entries
    entries = 0
    with Mirror(scene.bench, (source, replica), CYCLES) as mirror:
        for part, wanted in (("few", many // 5), ("many", many), ("most", 2 * many)):
            grow(scene, source / part, wanted - entries)
            entries = wanted
            mirror.ask("sync-now", "--wait")
            cycles(scene, mirror, (source, replica), part)
            if part == "few":
                compare(scene, source, replica)


def cycles(scene, mirror, both, part):
    """A few cycles in a tree of one size, each after as many changes."""
    source, replica = both
    copy = replica.with_name(f"copy-{part}")
    run("btrfs", "subvolume", "snapshot", replica, copy)
    # What the growth has left to be written is no part of the first cycle.
    for tree in (source, replica):
        run("sync", "-f", tree)
    for scene.round in range(CYCLE_ROUNDS):
        change(source, scene.bench.trees.chance)
        run("sync", "-f", source)
        timed(scene, MIRROR, mirror.command("sync-now", "--wait"), part)
        older, newer = sorted((source / SNAPSHOTS).iterdir())[-2:]
        timed(scene, SEND, TOOLS[SEND].argv(older=older, newer=newer), part)
        if part == "many":
            argv = TOOLS[RSYNC_DELETE].argv(src=source, dst=copy, hidden=SNAPSHOTS)
            timed(scene, RSYNC_DELETE, argv, part, copy)


def change(source, chance):
    """Changes a thousand files of a tree, wherever they are, in five ways."""
    find = ["find", str(source), "-path", str(source / SNAPSHOTS), "-prune", "-o", "-type", "f", "-print0"]
    listed = subprocess.run(find, capture_output=True, check=True).stdout.split(b"\0")[:-1]
    for number, path in enumerate(chance.sample(listed, CHANGES)):
        CHANGING[number % len(CHANGING)](path)


KINDS = (live, burst, restart, append, million, cycle)


def append_to(path):
    with open(path, "ab") as file:
        file.write(bytes(100))


def write_anew(path):
    with open(path, "wb") as file:
        file.write(os.urandom(200))


def add_beside(path):
    write_anew(path + b".new-%d" % time.monotonic_ns())


CHANGING = (
    append_to, append_to, append_to, write_anew, write_anew, os.unlink, add_beside, add_beside,
    lambda path: os.chmod(path, 0o600), lambda path: os.rename(path, path + b".renamed"))
