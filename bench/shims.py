"""The procedures about the shim: what programs take longer while it announces what they write to an agent that listens."""

import json
import shutil
import subprocess

import project
from followers import Agent
from following import record
from peers import BARE, EMPTY, PACES, SHIM

OPENS = 40  # in a burst


def library(scene, tool):
    """What is loaded into the programs of a tool."""
    return {SHIM: scene.bench.shim, EMPTY: scene.bench.tools / "empty", BARE: None}[tool]


def loaded(scene, tool, agent, argv):
    """A command with what its tool loads into it."""
    path = library(scene, tool)
    words = [f"DRIFTLESS_SHIM_MAP={agent.map}", *([f"LD_PRELOAD={path}"] if path else [])]
    return ["env", *words, *map(str, argv)]


def watched(scene):
    """A new folder, and an agent to which changes in it are announced."""
    scene.bench.trees.clear()
    scene.place.fresh()
    tree = scene.place.mount / "tree"
    tree.mkdir()
    return tree, Agent(scene.bench, [tree])


def timed(scene, tool, argv):
    """One command that is timed; it must succeed."""
    bench = scene.bench
    bench.runner.scrub = {scene.place.mount: "TREE", bench.work: "WORK"}
    done = bench.runner.run(argv)
    record(scene, tool, {"seconds": done["wall"]}, "", done)
    if done["exit"]:
        raise RuntimeError(f"{tool}: {done['stderr']}")


def script(scene):
    """A shell script that appends a line at a time, spawning a process each."""
    tree, agent = watched(scene)
    lines = scene.bench.trees.sizes.script_lines
    with agent:
        for tools in scene.rounds():
            for tool in tools:
                (tree / "log").unlink(missing_ok=True)
                timed(scene, tool, loaded(scene, tool, agent, ["sh", scene.bench.scripts / "append.sh", tree / "log", lines]))
                if len((tree / "log").read_text().splitlines()) != lines:
                    raise RuntimeError("lines are missing")
        agent.check_heard(lines * sum(run["tool"] == SHIM for run in scene.runs))


def make(scene):
    """A project in C is built, its objects and its program in the tree that is watched."""
    tree, agent = watched(scene)
    files = scene.bench.trees.sizes.make_files
    with agent:
        for tools in scene.rounds():
            for tool in tools:
                folder = tree / "project"
                shutil.rmtree(folder, ignore_errors=True)
                project.plant(folder, files)
                timed(scene, tool, loaded(scene, tool, agent, ["make", "-s", "-j2", "-C", folder]))
                subprocess.run([folder / "program"], check=True)
        agent.check_heard(files * sum(run["tool"] == SHIM for run in scene.runs))


def calls(scene, tool, agent, *words):
    """What opens and closes take in one process: those of the C library, and plain system calls."""
    argv = loaded(scene, tool, agent, [scene.bench.tools / "calls", *words])
    return json.loads(subprocess.run(argv, capture_output=True, text=True, check=True).stdout)


def closes(scene):
    """Files are made, written and closed, at some paces."""
    tree, agent = watched(scene)
    wanted, heard = scene.bench.trees.sizes.close_calls, 0
    with agent:
        for tools in scene.rounds():
            for tool in tools:
                for part, pace in PACES.items():
                    took = calls(scene, tool, agent, pace.opened, tree, wanted // pace.share // pace.calls, pace.calls, pace.pause_us)
                    figures = {"close": took["close"] - took["close_plain"], "open": took["open"] - took["open_plain"]}
                    record(scene, tool, figures | {"close_plain": took["close_plain"]}, part)
                    heard += took["calls"] if tool == SHIM else 0
        agent.check_heard(heard)


def reads(scene):
    """A file is opened and closed for reading."""
    tree, agent = watched(scene)
    bursts = scene.bench.trees.sizes.read_calls // OPENS
    with agent:
        for tools in scene.rounds():
            for tool in tools:
                took = calls(scene, tool, agent, "read", tree, bursts, OPENS, 0)
                figures = {f"read_{act}": took[act] - took[f"{act}_plain"] for act in ("open", "close")}
                record(scene, tool, figures | {"read_open_plain": took["open_plain"], "read_close_plain": took["close_plain"]})


KINDS = (script, make, closes, reads)
