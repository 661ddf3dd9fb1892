"""All that is measured, as a table: what is copied where by whom, how often, and what is expected of it."""

from dataclasses import dataclass

from casting import ALL as TO_ALL
from casting import FIRST, KILLS, ONE, SECOND, SLOW_LINK, STOPPED
from figures import NoLess, NoMore, Share
from jobs import DRAINED, SILENT, SMALL, WHOLE
from peers import (
    BARE, BURSTS, CAST, CHAIN, COLLECT, COPYING_PEERS, DRIFTLESS, EMPTY, FAR, FLOOR, FPSYNC_FAR, HASHING_PEERS, JOBS, LSYNCD, LSYNCD_SLOW,
    MIRROR, OFTEN, ONE_SYNC, POOL, PULL, PULL_TASKS, PULL_UNSYNCED, REPEATING_PEERS, RSYNC, RSYNC_DELETE, RSYNC_FAR, SBATCH, SBCAST,
    SCP_ALL, SEND, SERVED, SERVED_CACHED, SHIM, SR3, SUM, TAR_ALL, TAR_FAR, UDPCAST, UFTP, UNSYNCED, VERIFIED, VERIFY)
from targets import Ahead, AtMost, Delayed, Faster, Growth, LineBound, MixedBound, OnTheWire, Peak, PerCall, Within


@dataclass(frozen=True)
class Case:
    """One measurement; `group` names the table it is shown in, `kind` the procedure in scenarios.py."""

    name: str
    group: str
    title: str
    kind: str
    tree: str
    place: str
    tools: tuple
    rounds: int = 3
    rounds_min: int = 1  # so many, however long they take
    duels: int = 0  # more rounds of driftless and its reference only, for a steadier ratio
    budget_seconds: int = 120  # no further round is begun that would end later
    rate: int = 0  # files a second that a source gets
    check: bool = False  # compare the replica with the source, contents included, after the first run
    targets: tuple = ()


ALL = (DRIFTLESS, FLOOR, *COPYING_PEERS)
FEW = (DRIFTLESS, FLOOR, RSYNC, "cp")
PLACES = {
    "tmpfs": "tmpfs", "ext4": "ext4 in memory", "xfs": "xfs in memory", "btrfs": "btrfs in memory",
    "disk": "ext4 on the disk",
}


def tools(wanted, place):
    """On the disk there is no target for the floor, so it is left out."""
    return tuple(tool for tool in wanted if place != "disk" or tool != FLOOR)


def first_copies():
    """Real and generated tree to every place."""
    for place, where in PLACES.items():
        floor = () if place == "disk" else (AtMost(FLOOR, 1.25),)
        yield Case(
            f"real-{place}", "real", where, "first_copy", "real", place, tools(ALL, place), rounds=3,
            duels=0 if place == "disk" else 3, budget_seconds=160, check=place != "disk", targets=(*floor, Ahead()))
    for place, where in PLACES.items():
        floor = () if place == "disk" else (AtMost(FLOOR, 1.25),)
        yield Case(
            f"generated-{place}", "generated", where, "first_copy", "generated", place, tools(FEW, place), rounds=1,
            duels=0 if place == "disk" else 2, budget_seconds=180, check=place == "tmpfs", targets=(*floor, Ahead()))


def unsynced_copies():
    """Without any sync: what is left when nobody waits for the device."""
    for place in ("ext4", "xfs", "btrfs"):
        yield Case(
            f"unsynced-{place}", "unsynced", PLACES[place], "first_copy", "real", place,
            (UNSYNCED, FLOOR, RSYNC, "cp", "tar"), rounds=1, duels=2, budget_seconds=70)


def repeated_copies():
    """A second run over a replica that is equal."""
    for place in ("tmpfs", "ext4"):
        yield Case(
            f"same-{place}", "same", PLACES[place], "no_change", "real", place, (DRIFTLESS, *REPEATING_PEERS),
            rounds=3, duels=2, budget_seconds=80, check=True, targets=(AtMost(RSYNC, 0.22),))


def large_files():
    """One large file: between file systems, within one, and where blocks can be shared."""
    four = (DRIFTLESS, FLOOR, "cp", RSYNC)
    yield Case(
        "one-tmpfs", "large", "one 4 GiB file, tmpfs to another tmpfs", "first_copy", "one", "tmpfs", four,
        rounds=2, duels=2, budget_seconds=90, check=True, targets=(AtMost("cp", 1.0),))
    yield Case(
        "within-tmpfs", "large", "one 4 GiB file, within a tmpfs", "within", "one", "tmpfs", four,
        rounds=2, duels=2, budget_seconds=90, targets=(AtMost("cp", 1.0),))
    for place in ("xfs", "btrfs"):
        yield Case(
            f"reflink-{place}", "large", f"one 4 GiB file, within {place} (reflink)", "within", "one", place,
            (DRIFTLESS, "cp"), rounds=5, budget_seconds=60, check=True, targets=(Within(0.05),))
    yield Case(
        "mixed-tmpfs", "large", "20,000 small files and two of 4 GiB, tmpfs", "mixed", "mixed", "tmpfs",
        (DRIFTLESS, FLOOR, RSYNC, "cp", "tar", "fpsync", "rclone"), rounds=2, duels=4, budget_seconds=240,
        targets=(MixedBound(1.1), Ahead()))


def slow_requests():
    """A file system on which every request takes half a millisecond."""
    yield Case(
        "latency-first", "latency", "first copy", "first_copy", "latency", "latencyfs",
        (DRIFTLESS, *COPYING_PEERS), rounds=2, duels=1, budget_seconds=300,
        targets=(AtMost(RSYNC, 0.05), Ahead(0.3)))
    yield Case(
        "latency-same", "latency", "nothing changed", "no_change", "latency", "latencyfs",
        (DRIFTLESS, *REPEATING_PEERS), rounds=2, budget_seconds=120, targets=(AtMost(RSYNC, 0.03),))
    yield Case(
        "latency-wide-first", "latency", "first copy, a third of it in one directory", "first_copy", "latency_wide",
        "latencyfs", (DRIFTLESS, RSYNC, "rclone"), rounds=1, budget_seconds=120)
    yield Case(
        "latency-wide-same", "latency", "nothing changed, a third of it in one directory", "no_change", "latency_wide",
        "latencyfs", (DRIFTLESS, RSYNC), rounds=1, budget_seconds=100)


def remote_trees():
    """Trees on a host that is reached over ssh: pushed and pulled, and through a line with delay."""
    two = (FAR, RSYNC_FAR)
    yield Case(
        "ssh-first", "ssh", "first copy", "far_first", "real", "ssh", (*two, TAR_FAR), rounds=4, budget_seconds=150, check=True,
        targets=(AtMost(TAR_FAR, 0.95), LineBound(1.35)))
    yield Case(
        "ssh-first-pull", "ssh", "first copy, pulled", "first_copy", "real", "ssh-pull", two, rounds=2,
        budget_seconds=70, check=True)
    yield Case(
        "ssh-same", "ssh", "nothing changed", "no_change", "real", "ssh", two, rounds=3, duels=2, budget_seconds=60,
        check=True, targets=(AtMost(RSYNC_FAR, 0.45),))
    yield Case(
        "ssh-delay-first", "ssh", "first copy, 20 ms each way", "delayed_first", "real", "ssh-delay", two, rounds=2,
        budget_seconds=150, check=True, targets=(Delayed(1.0),))
    yield Case(
        "ssh-delay-same", "ssh", "nothing changed, 20 ms each way", "delayed_same", "real", "ssh-delay", two, rounds=3,
        budget_seconds=60, targets=(Delayed(1.0),))


def remote_files():
    """One large file on a host that is reached over ssh: all of it, and the little that has changed."""
    two = (FAR, RSYNC_FAR)
    yield Case(
        "ssh-one", "ssh", "one 4 GiB file", "first_copy", "one", "ssh", two, rounds=2, duels=2, budget_seconds=120,
        check=True, targets=(AtMost(RSYNC_FAR, 0.8),))
    yield Case(
        "ssh-changed", "ssh", "one 4 GiB file, 1 % of it changed", "changed", "one", "ssh", two, rounds=2, duels=1,
        budget_seconds=150, check=True, targets=(AtMost(RSYNC_FAR, 0.3), OnTheWire(0.02)))
    yield Case(
        "ssh-changed-xfs", "ssh", "the same, where files can share blocks", "changed", "one", "ssh-xfs", two, rounds=2, duels=1,
        budget_seconds=150, check=True, targets=(AtMost(RSYNC_FAR, 0.3), OnTheWire(0.02)))


def movers():
    """Runs that movers on several hosts share."""
    three, two, one = "movers-3", "movers-2", "movers-1"
    yield Case(
        "movers-bandwidth", "movers", "each with a link of 200 Mbit/s", "first_copy", "crew", "crew-links",
        (three, one, two), rounds=3, budget_seconds=260, check=True, targets=(Faster(one, 2.85),))
    yield Case(
        "movers-killed", "movers", "the same links, from when one of three is killed half way", "movers_killed", "crew",
        "crew-links", (three, two), rounds=3, budget_seconds=160, targets=(AtMost(two, 1.1),))
    yield Case(
        "movers-slow", "movers", "5 ms per request, 96 requests at a time in all", "first_copy", "latency", "crew-latency",
        (three, one, FPSYNC_FAR), rounds=3, budget_seconds=240, targets=(AtMost(one, 1.1), AtMost(FPSYNC_FAR, 0.4)))


def casts():
    """One data set for each node of a cluster."""
    yield Case(
        "cast-chain", "cast", "links of 100 Mbit/s", "chain", "", "tmpfs", (CAST,), rounds=2, budget_seconds=150, check=True,
        targets=(Share("seconds", 1.05, TO_ALL, base=ONE), NoLess("link", 90, ONE)))
    yield Case(
        "cast-killed", "cast", "one of 20 nodes dies", "killed", "", "tmpfs", (CAST,), rounds=1,
        targets=tuple(NoMore("more", 2, part) for part in KILLS))
    yield Case(
        "cast-slow", "cast", "one of 20 nodes is slow", "slow", "", "tmpfs", (CAST,), rounds=1,
        targets=tuple(Share("others", 1.05, part, base=TO_ALL) for part in (SLOW_LINK, STOPPED)))
    yield Case(
        "cast-second", "cast", "512 files, 1 % of their blocks changed", "second", "", "tmpfs", (CAST,), rounds=1,
        targets=(Share("seconds", 0.05, SECOND, base=FIRST),))
    yield Case(
        "cast-processor", "cast", "a node that receives and forwards", "processor", "", "tmpfs", (CAST,), rounds=3, budget_seconds=60,
        targets=(NoMore("share", 5),))
    yield Case(
        "cast-file", "spread", "one file of 1 GiB", "spread", "cast_file", "tmpfs", (CAST, SCP_ALL, SBCAST, UFTP, UDPCAST), rounds=1,
        budget_seconds=420, targets=(AtMost(SCP_ALL, 0.2), Ahead()))
    yield Case(
        "cast-small", "spread", "100,000 small files", "spread", "cast_small", "tmpfs", (CAST, TAR_ALL), rounds=1, budget_seconds=240,
        targets=(AtMost(TAR_ALL, 0.4),))


def batch_jobs():
    """Jobs of a batch system that start where their data has arrived."""
    yield Case(
        "jobs-array", "jobs", "an array that reads a data set, links of 100 Mbit/s", "array", "", "tmpfs", (JOBS, SERVED, SERVED_CACHED),
        rounds=1, targets=(Share("seconds", 0.25, SMALL, SERVED), Share("seconds", 0.25, WHOLE, SERVED_CACHED)))
    yield Case(
        "jobs-start", "jobs", "from a node with the data to its first task", "starts", "", "tmpfs", (JOBS, SBATCH),
        targets=(NoMore("beyond", 1), NoMore("beyond_last", 1)))
    yield Case(
        "jobs-submit", "jobs", "one task, its data on all nodes", "submits", "", "tmpfs", (JOBS, SBATCH),
        targets=(NoMore("command_more", 0.5), NoMore("until_more", 0.5)))
    yield Case(
        "jobs-held", "jobs", "1,000 held jobs", "held", "", "tmpfs", (JOBS,),
        targets=tuple(NoMore("processor", 1, part) for part in (SILENT, DRAINED)))
    yield Case(
        "jobs-results", "jobs", "10,000 small results from eight nodes to a disk", "results", "", "disk",
        (COLLECT, PULL, PULL_UNSYNCED, PULL_TASKS), budget_seconds=300, targets=(Share("seconds", 0.3, "", PULL),))


def sums():
    """Hashing: one large file that all threads share, and many small ones."""
    tools_of_all = (SUM, *HASHING_PEERS)
    yield Case(
        "sum-one", "sum", "one 4 GiB file", "sums", "one", "tmpfs", (SUM, "b3sum", "b3sum-1"), rounds=8,
        budget_seconds=60, targets=(AtMost("b3sum-1", 0.55), AtMost("b3sum", 1.05)))
    yield Case(
        "sum-tree", "sum", "125,000 small files", "sums", "sums", "tmpfs", tools_of_all, rounds=3, duels=3,
        budget_seconds=60, targets=(AtMost("sha256sum", 0.5), AtMost("b3sum", 1.0)))


def verifications():
    """A comparison of metadata beside a run without changes, and copies that are read back beside plain ones."""
    yield Case(
        "verify-meta", "verify", "a million entries, metadata compared", "no_change", "generated", "tmpfs", (VERIFY, DRIFTLESS),
        rounds=6, budget_seconds=80, targets=(AtMost(DRIFTLESS, 1.0),))
    yield Case(
        "verify-disk", "verify", "first copy of a real tree to the disk, read back", "first_copy", "real", "disk",
        (VERIFIED, DRIFTLESS), rounds=3, duels=2, budget_seconds=90, targets=(AtMost(DRIFTLESS, 1.35),))


def memory():
    """Peak memory over many and over few entries."""
    limits = tuple(kind(part, mib) for part in ("first", "same") for kind, mib in ((Peak, 100), (Growth, 64)))
    yield Case(
        "memory", "memory", "peak memory", "memory", "generated", "tmpfs", (DRIFTLESS, RSYNC), rounds=1,
        targets=limits)


def often():
    """One changed file after the other, between trees that stay open."""
    yield Case(
        "often", "often", "one changed small file, in a directory of a hundred", "often", "", "tmpfs", (OFTEN,), rounds=5,
        targets=(PerCall(100),))


def mirrors():
    """Replicas that follow their sources, live and in cycles of snapshots."""
    yield Case(
        "mirror-100", "mirror", "100 new files a second", "live", "", "pair-disk", (MIRROR, LSYNCD, LSYNCD_SLOW, ONE_SYNC), rate=100,
        targets=(NoMore("missing", 0), NoMore("p50", 50), NoMore("p99", 500), NoMore("durable_p50", 50), NoMore("durable_p99", 500),
                 Share("p50", 0.1, reference=LSYNCD), Share("p50", 0.1, reference=LSYNCD_SLOW)))
    yield Case(
        "mirror-1000", "mirror", "1,000 new files a second", "live", "", "pair-disk", (MIRROR,), rate=1000,
        targets=(NoMore("missing", 0), NoMore("p50", 300), NoMore("p99", 2000), NoMore("durable_p50", 300), NoMore("durable_p99", 2000)))
    yield Case(
        "mirror-burst", "mirror", "100,000 files at once", "burst", "", "pair-disk", (MIRROR, DRIFTLESS),
        targets=(NoMore("missing", 0, "burst"), Share("seconds", 1.3, "burst", DRIFTLESS), NoMore("seconds", 1, "rename")))
    yield Case(
        "mirror-restart", "mirror", "100,000 files below a directory that is renamed while the mirror is stopped", "restart", "", "pair-disk",
        (MIRROR,), targets=(NoMore("bytes", 0, "restart"),))
    yield Case(
        "mirror-append", "mirror", "one file, appended to 10,000 times", "append", "", "pair-disk", (MIRROR,),
        targets=(NoMore("missing", 0), NoMore("copies", 50)))
    yield Case(
        "mirror-cycle", "mirror", "1,000 changes in a million files on btrfs, one cycle", "cycle", "", "pair-btrfs",
        (MIRROR, RSYNC_DELETE, SEND), targets=(Share("seconds", 0.02, "many", RSYNC_DELETE), Share("seconds", 1.1, "most", base="few")))
    yield Case(
        "mirror-million", "mirror", "a million files", "million", "", "pair-btrfs", (MIRROR,),
        targets=(NoMore("hourly", 2, "idle"), NoMore("peak", 150, "churn")))


def shims():
    """What the library costs that is loaded into programs."""
    three = (SHIM, BARE, EMPTY)
    yield Case(
        "shim-script", "shim", "a script that appends a line at a time, spawning a process each", "script", "", "tmpfs", three, rounds=12,
        budget_seconds=120, targets=(AtMost(BARE, 1.15),))
    yield Case(
        "shim-make", "shim", "`make -j2` of a project in C", "make", "", "tmpfs", three, rounds=9, budget_seconds=150,
        targets=(AtMost(BARE, 1.03),))
    yield Case(
        "shim-close", "calls", "files that are made, written and closed", "closes", "", "tmpfs", (SHIM, BARE), rounds=5,
        budget_seconds=90, targets=tuple(NoMore("close", 3, part) for part in BURSTS))
    yield Case(
        "shim-read", "calls", "a file that is opened and closed for reading", "reads", "", "tmpfs", (SHIM, BARE), rounds=5,
        budget_seconds=60, targets=(NoMore("read_open", 60), NoMore("read_close", 60)))


def announcements():
    """What programs write is announced through a broker, and a mirror that hears of nothing else follows."""
    yield Case(
        "announced", "announced", "100 new files a second", "announced", "", "pair-disk", (CHAIN, SR3), rate=100,
        targets=(NoMore("missing", 0), NoMore("p50", 50), NoMore("p99", 500)))
    yield Case(
        "announced-rate", "announced", "5,500 new files a second", "announced_rate", "", "tmpfs", (POOL, CHAIN), rate=5_500,
        targets=(NoMore("missing", 0), NoLess("arrivals", 5_000)))


# In an order in which cases that share a tree follow each other.
CASES = {
    case.name: case
    for case in (
        *(case for case in first_copies() if case.tree == "real"), *unsynced_copies(), *repeated_copies(),
        *often(), *mirrors(), *shims(), *announcements(), *remote_trees(), *slow_requests(), *large_files(), *remote_files(), *movers(), *casts(), *batch_jobs(), *sums(), *verifications(),
        *(case for case in first_copies() if case.tree == "generated"), *memory(),
    )
}
