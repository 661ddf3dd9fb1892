"""The procedures: how the tools of a case take turns, and what is made ready before each of them.

In every round each tool runs once, in an order that turns by one place per round, so that a slow minute of the
machine does not always meet the same tool. Only the commands themselves are timed.
"""

import json
import shutil
import subprocess
import time

import announcing
import casting
import collecting
import following
import jobs
import shims
from crew import CrewLatency, CrewLinks, Mark
from peers import DRIFTLESS, FLOOR, LINE, RSYNC, TOOLS
from places import open_place, run

SLOW_FACTOR = 6  # a tool this much slower than rsync -aHAX sits out the rounds that follow,
FAR_FACTOR = 5  # and so does one this much slower than driftless, unless a target refers to it


class Wrong(Exception):
    """A replica is not equal to its source, or driftless failed."""


class Scene:
    """One case on its place: runs tools and keeps the records."""

    def __init__(self, case, bench, place):
        self.case, self.bench, self.place = case, bench, place
        self.runs = []
        self.round = 0
        self.started = time.monotonic()

    def run(self, tool, src, part="", record=True):
        """Runs one tool from src to the place."""
        bench, place = self.bench, self.place
        bench.runner.scrub = {src: "SRC", place.dst: "DST", bench.work: "WORK", bench.disk: "DISK"}
        named_src, named_dst = place.ends(src) if TOOLS[tool].remote else (src, place.dst)
        sync_dir = place.dst.parent if place.synced and not self.case.name.startswith("unsynced") else None
        with place.at_work(TOOLS[tool]) as (words, values):
            argv = TOOLS[tool].argv(
                src=named_src, dst=named_dst, jobs=place.jobs, ssh=place.ssh, driftless=bench.binary(TOOLS[tool]),
                tools=bench.tools, tmp=bench.tmp, bytes=(bench.trees.facts or {}).get("bytes"), **values)
            done = bench.runner.run([*words, *argv], sync_dir)
        label = f"{tool} {part}".strip()
        bench.say(f"{self.case.name} round {self.round + 1}: {label:24} {done['wall']:9.3f} s"
                  f"  cpu {done['user'] + done['sys']:8.2f} s  peak {done['peak_kib'] // 1024:5} MiB"
                  + (f"  EXIT {done['exit']}: {done['stderr'].strip()}" if done["exit"] else ""))
        if record:
            self.runs.append({"round": self.round, "tool": tool, "part": part} | done)
        return done

    def rounds(self):
        """The tools of each round in turn, as many rounds as the case and its time allow."""
        case, wanted = self.case, self.bench.rounds or self.case.rounds
        tools, took = list(case.tools), 0.0
        for self.round in range(wanted):
            if self.round >= case.rounds_min and self._late(took):
                self.round -= 1
                break
            began = time.monotonic()
            turn = self.round % len(tools)
            yield tools[turn:] + tools[:turn]
            took = time.monotonic() - began
            tools = [tool for tool in tools if not self._too_slow(tool)]
        if not self.bench.quick:
            yield from self._duels(case)

    def _duels(self, case):
        pair = [case.tools[0], duel_reference(case)]
        first, took = self.round + 1, 0.0
        for self.round in range(first, first + case.duels):
            if self._late(took):
                return
            began = time.monotonic()
            yield pair if self.round % 2 else pair[::-1]
            took = time.monotonic() - began

    def _late(self, took):
        """Whether a round like the last one no longer fits into the time of the case, or of the whole."""
        passed = time.monotonic() - self.started
        return passed + took > self.case.budget_seconds or self.bench.hurried()

    def _too_slow(self, tool):
        now = {run["tool"]: run["wall"] for run in self.runs if run["round"] == self.round and not run["part"]}
        slow = now.get(tool, 0) > SLOW_FACTOR * now.get(RSYNC, float("inf"))
        far = now.get(tool, 0) > FAR_FACTOR * now.get(self.case.tools[0], float("inf"))
        return tool != self.case.tools[0] and (slow or (far and tool != duel_reference(self.case)))

    def check(self, src, hidden=()):
        """Compares the replica with the source, but for names in its root that are hidden: every attribute by rsync, but for the
        mark of its root, and every byte by diff."""
        out = ["--filter=-x trusted.driftless.mark", "--filter=-x user.driftless.mark", *(f"--exclude=/{name}" for name in hidden)]
        compare = ["rsync", "-aHAX", *out, "--numeric-ids", "-n", "-i", "--delete", f"{src}/", f"{self.place.dst}/"]
        found = subprocess.run(compare, capture_output=True, text=True, errors="replace", check=False)
        if found.returncode or found.stdout:
            raise Wrong(self.bench.runner.scrubbed("not equal: " + (found.stdout or found.stderr)[:300]))
        diff = ["diff", "-rq", "--no-dereference", *(f"--exclude={name}" for name in hidden), src, self.place.dst]
        if subprocess.run(diff, capture_output=True, check=False).returncode:
            raise Wrong("not equal: contents differ")
        self.bench.say(f"{self.case.name}: the replica is equal to its source")


def duel_reference(case):
    """The tool that the first target of a case refers to, or the floor."""
    first = case.targets[0] if case.targets else None
    return getattr(first, "reference", FLOOR)


def first_copy(scene):
    """The replica does not exist."""
    src = scene.place.src(scene.bench.trees.get(scene.case.tree))
    checked = not scene.case.check
    for tools in scene.rounds():
        for tool in tools:
            scene.place.fresh()
            scene.run(tool, src)
            if tool == scene.case.tools[0] and not checked:
                scene.check(src)
                checked = True


def make_equal(scene, src):
    """A replica for runs that find one; made by driftless, and on this host if the others go to another."""
    scene.place.fresh()
    if scene.run(DRIFTLESS, src, "preparing", record=False)["exit"]:
        raise Wrong("the first copy failed")
    if scene.case.check:
        scene.check(src)


def far_first(scene):
    """First copies to another host; in each round also what no copy over a line can do without: the bytes through that
    line, and a copy on this host."""
    src = scene.bench.trees.get(scene.case.tree)
    for tools in scene.rounds():
        for tool in tools:
            scene.place.fresh()
            scene.run(tool, src)
            if tool == scene.case.tools[0] and scene.case.check and scene.round == 0:
                scene.check(src)
        scene.place.fresh()
        scene.run(LINE, src, "line")
        scene.run(DRIFTLESS, src, "near")


def no_change(scene):
    """The replica is equal already; caches are warm, except on latencyfs, which is mounted anew."""
    src = scene.place.src(scene.bench.trees.get(scene.case.tree))
    make_equal(scene, src)
    for tools in scene.rounds():
        for tool in tools:
            scene.place.again()
            scene.run(tool, src)


def within(scene):
    """Source and replica on the same file system, on which large files may share blocks."""
    place, trees = scene.place, scene.bench.trees
    trees.clear()
    place.fresh()
    src = place.mount / "src"
    src.mkdir()
    run(trees.generator, "file", src / "big", trees.sizes.big_bytes)
    run("sync", "-f", src)
    for tools in scene.rounds():
        for tool in tools:
            shutil.rmtree(place.dst, ignore_errors=True)
            run("sync", "-f", src)
            scene.run(tool, src)
            if tool == DRIFTLESS and scene.case.check and scene.round == 0:
                scene.check(src)


def mixed(scene):
    """Small and large files together, and driftless also with one large file and with the small ones alone."""
    src = scene.bench.trees.get(scene.case.tree)
    alone = src.parent / "alone"
    alone.mkdir(exist_ok=True)
    # Memory that a virtual machine has not used yet is slow the first time; nobody shall pay for it alone.
    scene.place.fresh()
    scene.run(DRIFTLESS, src, "preparing", record=False)
    for tools in scene.rounds():
        for tool in tools:
            scene.place.fresh()
            scene.run(tool, src)
        scene.place.fresh()
        scene.run(DRIFTLESS, src / "small", "small")
        (src / "big1").rename(alone / "big1")
        scene.place.fresh()
        scene.run(DRIFTLESS, alone, "one")
        (alone / "big1").rename(src / "big1")


def delayed_first(scene):
    """First copies over a line with delay; in each round driftless once more without it."""
    src = scene.bench.trees.get(scene.case.tree)
    take_turns_and_again_near(scene, src, scene.place.fresh)


def delayed_same(scene):
    """Nothing changed, over a line with delay; in each round driftless once more without it."""
    src = scene.bench.trees.get(scene.case.tree)
    make_equal(scene, src)
    take_turns_and_again_near(scene, src, scene.place.again)


def take_turns_and_again_near(scene, src, prepare):
    """The rounds of a case with delay."""
    own = scene.case.tools[0]
    for tools in scene.rounds():
        for tool in tools:
            prepare()
            scene.run(tool, src)
            if tool == own and scene.case.check and scene.round == 0:
                scene.check(src)
        prepare()
        with scene.place.without_delay():
            scene.run(own, src, "near")


def changed(scene):
    """Before each run a little of a large file is changed; then each tool runs once more and its bytes are counted."""
    trees, place = scene.bench.trees, scene.place
    src = trees.get(scene.case.tree)
    make_equal(scene, src)
    for tools in scene.rounds():
        for tool in tools:
            change_and_run(scene, tool, src)
            if tool == scene.case.tools[0] and scene.case.check and scene.round == 0:
                scene.check(src)
    for tool in scene.case.tools:
        with place.counted() as relay:
            change_and_run(scene, tool, src, "wire")
            scene.runs[-1]["wire_bytes"] = relay.passed()


def change_and_run(scene, tool, src, part=""):
    """One change, and one run that makes up for it."""
    scene.bench.trees.change(src / "big")
    if scene.run(tool, src, part)["exit"]:
        raise Wrong(f"{tool} failed, so the next run would have more to do")


def sums(scene):
    """Hashing all files of a tree whose content is in the page cache."""
    src = scene.bench.trees.get(scene.case.tree)
    for tools in scene.rounds():
        for tool in tools:
            scene.run(tool, src)


def often(scene):
    """Trees that stay open, and one changed file after the other. The program measures its own calls, since only they count."""
    bench, place = scene.bench, scene.place
    for _ in scene.rounds():
        place.fresh()
        src = bench.tmp / "often"
        shutil.rmtree(src, ignore_errors=True)
        src.mkdir()
        done = subprocess.run([bench.tools / "often", src, place.dst, "10000"], capture_output=True, text=True, check=True)
        told = json.loads(done.stdout)
        wall, processor = told["wall_us"] / 1e6, told["processor_us"] / 1e6
        scene.runs.append({"round": scene.round, "tool": scene.case.tools[0], "part": "", "wall": wall, "user": processor, "sys": 0,
                           "peak_kib": 0, "exit": 0})
        bench.say(f"{scene.case.name} round {scene.round + 1}: {told['wall_us']:.1f} us a call, {told['processor_us']:.1f} of processor time")


def memory(scene):
    """First copy and a run without changes, over few entries and over many."""
    for size, tree in (("few", "few"), ("many", "generated")):
        src = scene.bench.trees.get(tree)
        for tool in scene.case.tools:
            scene.place.fresh()
            scene.run(tool, src, f"{size}-first")
            scene.run(tool, src, f"{size}-same")


def movers_killed(scene):
    """In the middle of a run with movers one is killed. Its time is what passes from then on; beside it, what the movers that
    are left take from the moment on at which as many bytes have arrived, in a run of their own."""
    src = scene.bench.trees.get(scene.case.tree)
    half = scene.bench.trees.facts["bytes"] // 2
    all_of_them, those_left = scene.case.tools
    for _ in scene.rounds():
        arrived = run_from_mark(scene, all_of_them, src, half, lambda: scene.place.movers.kill_one())
        run_from_mark(scene, those_left, src, arrived, lambda: None)


def run_from_mark(scene, tool, src, wanted_bytes, act):
    """One run that counts from when so many bytes have arrived; returns how many exactly had."""
    scene.place.fresh()
    mark = Mark(scene.place.mount, wanted_bytes, act)
    mark.start()
    done = scene.run(tool, src)
    mark.over.set()
    mark.join()
    if done["exit"] or mark.at is None:
        raise Wrong(f"{tool} failed, or ended too soon")
    scene.check(src)
    scene.runs[-1] |= {"whole": done["wall"], "wall": scene.bench.runner.ended - mark.at, "left_bytes": mark.arrived}
    scene.bench.say(f"{scene.case.name}: {scene.runs[-1]['wall']:.3f} s after {mark.arrived / 2**20:.0f} MiB")
    return mark.arrived


KINDS = {kind.__name__: kind for kind in (
    first_copy, far_first, no_change, within, mixed, delayed_first, delayed_same, changed, sums, often, memory,
    movers_killed, *following.KINDS, *shims.KINDS, *announcing.KINDS, *casting.KINDS, *jobs.KINDS,
    *collecting.KINDS)}
CREWS = {"crew-links": CrewLinks, "crew-latency": CrewLatency}


def play(case, bench):
    """Runs a case and returns its raw result; trouble with one case leaves the others alone."""
    place = CREWS[case.place](bench) if case.place in CREWS else open_place(case.place, bench)
    scene = Scene(case, bench, place)
    trouble = None
    try:
        KINDS[case.kind](scene)
    except (Wrong, OSError, RuntimeError, subprocess.CalledProcessError) as error:
        trouble = bench.runner.scrubbed(str(error))
        bench.say(f"{case.name}: TROUBLE: {trouble}")
    finally:
        place.close()
    facts = bench.trees.facts if bench.trees.name else None
    return {"tools": list(case.tools), "runs": scene.runs, "trouble": trouble, "tree": facts,
            "seconds": round(time.monotonic() - scene.started, 1)}
