"""The procedures about `driftless cast`: a data set that each node of a cluster receives.

What they measure are figures of several kinds, so each run that they record has `figures` beside the usual fields. Times count
from the start of a command. So they contain the hashing of the source, and the start of the nodes through ssh.
"""

import signal
import subprocess
from contextlib import nullcontext

from cluster import SOURCE, Cluster, Events
from crew import Mark
from following import record
from peers import CAST, TOOLS
from spreaders import SPREADERS

CHAIN_NODES, CHAIN_BITS = 20, 100_000_000
VICTIM = "n10"  # in the middle of the chain
ONE, ALL = "1 node", "20 nodes"
KILLS = {"a node killed at 10 %": 0.1, "a node killed at 50 %": 0.5, "a node killed at 90 %": 0.9}
SLOW_LINK, STOPPED = "a link at a tenth of the rate", "a stopped node"
STOPPED_AT = 0.25  # of the data set
SPREAD_NODES, SPREAD_BITS = 8, 400_000_000
SECOND_NODES, SECOND_BITS = 2, 100_000_000
FIRST, SECOND = "first version", "second version"
RELAY_NODES, RELAY_BITS = 2, 1_000_000_000
GIGABIT_BYTES, CORES = 125_000_000, 4
LIMITED = ("timeout", "300")  # seconds; a tool that hangs must not hold up the others


class Wrong(RuntimeError):
    """A cast failed, or its copies are not equal to the source."""


def cast(scene, cluster, src, nodes=None, hook=lambda event: None, allowed=(0,), **other):
    """Runs one cast to the first so many nodes; returns its events and what it took."""
    bench = scene.bench
    values = cluster.values() | {"src": src, "nodes": ",".join(cluster.nodes[:nodes])} | other
    bench.runner.scrub = {src: "SRC", bench.work: "WORK"}
    with Events(hook) as events:
        done = bench.runner.run([*LIMITED, *cluster.words(SOURCE), *TOOLS[CAST].argv(**values)], out=events.writing)
    if done["exit"] not in allowed:
        raise Wrong(f"the cast ended with {done['exit']}: {done.get('stderr')}")
    return events, done | {"exit": 0}


def check(scene, cluster, src, nodes=None):
    """Compares the copy of each node with the source, contents included."""
    for node in cluster.nodes[:nodes]:
        copy = cluster.to / src.name
        compare = ["rsync", "-aHAX", "--numeric-ids", "-n", "-i", "--delete", f"{src}/", f"{copy}/"]
        for command in (compare, ["diff", "-rq", "--no-dereference", src, copy]):
            found = subprocess.run([*cluster.words(node), *command], capture_output=True, text=True, errors="replace", check=False)
            if found.returncode or found.stdout:
                raise Wrong(f"{node} is not equal: {(found.stdout or found.stderr)[:300]}")
    scene.bench.say(f"{scene.case.name}: the copies are equal to their source")


def chain(scene):
    """Casts to one node and to all; links of a known rate."""
    src = scene.bench.trees.get("cast")
    total = scene.bench.trees.facts["bytes"]
    with Cluster(scene.bench, CHAIN_NODES, CHAIN_BITS) as cluster:
        for _ in scene.rounds():
            for part, nodes in ((ONE, 1), (ALL, CHAIN_NODES)):
                cluster.fresh()
                before = busy_seconds()
                events, done = cast(scene, cluster, src, nodes)
                begun = events.named("started")[0]["at"]
                figures = {"seconds": done["wall"], "sending": max(events.complete().values()) - begun,
                           "link": total * 8 / CHAIN_BITS / done["wall"], "machine": (busy_seconds() - before) / done["wall"]}
                record(scene, CAST, figures, part, done)
                if scene.case.check and scene.round == 0:
                    check(scene, cluster, src, nodes)


def busy_seconds():
    """Returns the processor seconds that this machine has spent on anything, steal and waiting excluded."""
    with open("/proc/stat", encoding="ascii") as lines:
        ticks = list(map(int, lines.readline().split()[1:]))
    user, nice, system, _idle, _waiting, hard, soft = ticks[:7]
    return (user + nice + system + hard + soft) / 100


def killed(scene):
    """A node in the middle of the chain dies: how much later the others have the data set."""
    src = scene.bench.trees.get("cast_half")
    with Cluster(scene.bench, CHAIN_NODES, CHAIN_BITS) as cluster:
        for _ in scene.rounds():
            cluster.fresh()
            events, done = cast(scene, cluster, src)
            plain = others(events, cluster)
            record(scene, CAST, {"others": plain}, ALL, done)
            for part, share in KILLS.items():
                cluster.fresh()
                events, done = disturbed(scene, cluster, src, share, lambda: cluster.kill(VICTIM))
                cluster.revive(VICTIM)
                took = others(events, cluster)
                record(scene, CAST, {"others": took, "more": max(took - plain, 0)}, part, done)


def slow(scene):
    """A node in the middle of the chain has a slow link, or stops: how much later the others have the data set."""
    src = scene.bench.trees.get("cast_slow")
    with Cluster(scene.bench, CHAIN_NODES, CHAIN_BITS) as cluster:
        for _ in scene.rounds():
            cluster.fresh()
            events, done = cast(scene, cluster, src)
            record(scene, CAST, {"others": others(events, cluster)}, ALL, done)
            cluster.fresh()
            cluster.lab.limit(VICTIM, CHAIN_BITS // 10)
            events, done = disturbed(scene, cluster, src, 0, lambda: None)
            cluster.lab.limit(VICTIM, CHAIN_BITS)
            record(scene, CAST, {"others": others(events, cluster)}, SLOW_LINK, done)
            cluster.fresh()
            events, done = disturbed(scene, cluster, src, STOPPED_AT, lambda: cluster.signal(VICTIM, "node", signal.SIGSTOP))
            cluster.signal(VICTIM, "node", signal.SIGKILL)
            record(scene, CAST, {"others": others(events, cluster)}, STOPPED, done)


def disturbed(scene, cluster, src, share, act):
    """Runs a cast in which something happens to a node once it has this share of the data set, until the others are done."""
    left = set(cluster.nodes) - {VICTIM}

    def end_without_victim(event):
        if event["event"] == "ended":
            left.discard(event["node"])
            if not left:
                cluster.signal(SOURCE, "cast", signal.SIGINT)

    mark = Mark(cluster.seen(VICTIM), share * scene.bench.trees.facts["bytes"], act)
    mark.start()
    try:
        return cast(scene, cluster, src, hook=end_without_victim, allowed=(0, 3, 130))
    finally:
        mark.over.set()
        mark.join()
        when = "never" if mark.at is None else f"after {mark.arrived / 2**20:.0f} MiB"
        scene.bench.say(f"{scene.case.name}: something happened to the node {when}")


def others(events, cluster):
    """Returns the seconds until every node but one had the data set."""
    complete = events.complete()
    lacking = set(cluster.nodes) - {VICTIM} - set(complete)
    if lacking:
        raise Wrong(f"nodes lack the data set: {', '.join(sorted(lacking))}")
    return max(at for node, at in complete.items() if node != VICTIM)


def spread(scene):
    """One tree to all nodes by each tool in turn, through the one link of the source."""
    src = scene.bench.trees.get(scene.case.tree)
    with Cluster(scene.bench, SPREAD_NODES, SPREAD_BITS) as cluster:
        for tools in scene.rounds():
            for tool in tools:
                cluster.fresh()
                if tool == CAST:
                    events, done = cast(scene, cluster, src)
                else:
                    done = by_peer(scene, cluster, src, tool)
                record(scene, tool, {"seconds": done["wall"]}, "", done)
                if scene.round == 0:
                    check_spread(scene, cluster, src, tool)


def by_peer(scene, cluster, src, tool):
    """Runs another tool, and what has to be at work beside it."""
    bench = scene.bench
    bench.runner.scrub = {src: "SRC", bench.work: "WORK"}
    with SPREADERS.get(tool, nothing)(cluster) as more:
        argv = TOOLS[tool].argv(**cluster.values(), **more, src=src, file=src / "big")
        done = bench.runner.run([*LIMITED, *cluster.words(SOURCE), *argv])
    if done["exit"]:
        bench.say(f"{scene.case.name}: {tool} ended with {done['exit']}: {done['stderr'].strip()}")
    return done


def nothing(_cluster):
    """Nothing has to be at work."""
    return nullcontext({})


def check_spread(scene, cluster, src, tool):
    """Compares the copies of a tool: all of a cast, the contents of others."""
    if tool == CAST:
        check(scene, cluster, src)
        return
    for node in cluster.nodes:
        same = subprocess.run([*cluster.words(node), "diff", "-rq", "--no-dereference", src, cluster.to], capture_output=True, check=False)
        if same.returncode:
            scene.bench.say(f"{scene.case.name}: {tool}: the copy of {node} is not equal")
            scene.runs[-1]["exit"] = 1


def second(scene):
    """A data set, and then another version of it."""
    with Cluster(scene.bench, SECOND_NODES, SECOND_BITS) as cluster:
        for _ in scene.rounds():
            scene.bench.trees.clear()
            src = scene.bench.trees.get("cast_second")
            cluster.fresh()
            _, done = cast(scene, cluster, src)
            record(scene, CAST, {"seconds": done["wall"]}, FIRST, done)
            scene.bench.trees.change_files(src)
            events, done = cast(scene, cluster, src)
            sent = max(event["received_bytes"] for event in events.named("ended"))
            record(scene, CAST, {"seconds": done["wall"], "received": sent}, SECOND, done)
            if scene.round == 0:
                check(scene, cluster, src)


def processor(scene):
    """What a node that receives and forwards takes of its processor."""
    src = scene.bench.trees.get("cast_file")
    total, bench = scene.bench.trees.facts["bytes"], scene.bench
    with Cluster(bench, RELAY_NODES, RELAY_BITS) as cluster:
        relay, usage = cluster.nodes[0], "usage"
        agent = f"{bench.tools / 'measure'} {cluster.disk / usage} {bench.driftless}"
        for _ in scene.rounds():
            cluster.fresh()
            events, done = cast(scene, cluster, src, agent=agent)
            _wall, user, system, _peak, _status = map(int, (cluster.seen(relay) / usage).read_text().split())
            sending = events.complete()[relay] - events.named("started")[0]["at"]
            seconds = (user + system) / 1e6
            figures = {"gib": seconds * 2**30 / total, "share": seconds * GIGABIT_BYTES / total / CORES, "gigabits": total * 8 / sending}
            record(scene, CAST, figures, "", done)


KINDS = (chain, killed, slow, spread, second, processor)
