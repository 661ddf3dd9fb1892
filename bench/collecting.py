"""The procedure about results of tasks that come home from the disks of eight nodes.

Tasks write to hidden directories, wait for each other, and rename them to their final names: then all results are there at once.
Each time counts from then on until all files are durable at the destination and no node has any.
"""

import os
import time
from contextlib import contextmanager
from pathlib import Path

from batch import SOURCE, BatchSite
from daemons import wait_for
from far import FarHost
from following import record
from peers import COLLECT, PULL, PULL_TASKS, PULL_UNSYNCED
from places import run

NODES = 8
FIRST_TASK = 1000  # no running task has such an index
ARRIVAL_SECONDS_MAX = 3000
RSYNC = {
    PULL: "rsync -a --fsync --remove-source-files", PULL_TASKS: "rsync -a --fsync --remove-source-files",
    PULL_UNSYNCED: "rsync -a --remove-source-files"}

# Makes directories with files: to, first index, directories, files in each, bytes of a file.
FILL = """#!/bin/sh
[ $# -eq 5 ] || set -- "$RESULTS_DIRECTORY" $((SLURM_ARRAY_TASK_ID * {first})) "$2" "$3" "$4" "$1"
cd "$1" && mkdir .new && cd .new || exit 1
head -c "$5" /dev/urandom >../.content
for directory in $(seq "$3"); do
    mkdir $(($2 + directory)) && for file in $(seq "$4"); do cat ../.content >$(($2 + directory))/$file; done
done
rm ../.content
if [ -n "$6" ]; then
    touch "$6/made-$SLURMD_NODENAME"
    while [ ! -e "$6/go" ]; do sleep 0.05; done
fi
mv -- * .. && cd .. && rmdir .new
[ -z "$6" ] || touch "$6/done-$SLURMD_NODENAME"
"""


def results(scene):
    """Results of an array come home by the gateway, and beside it by loops that an administrator writes."""
    sizes = scene.bench.trees.sizes
    shape = (sizes.result_tasks, sizes.result_files, sizes.result_bytes)
    with BatchSite(scene.bench, NODES) as site:
        site.script("fill", FILL.format(first=FIRST_TASK))
        data = scene.bench.trees.root / "small"
        data.mkdir(parents=True, exist_ok=True)
        (data / "big").write_text("data\n")
        with servers(site) as config:
            for tools in scene.rounds():
                for tool in tools:
                    scene.place.fresh()
                    scene.place.mount.chmod(0o1777)
                    if tool == COLLECT:
                        own(scene, site, data, shape)
                    elif tool != PULL_TASKS or scene.round == 0:
                        peer(scene, site, tool, (config, shape))


@contextmanager
def servers(site):
    """Starts an sshd on each node; yields the configuration that reaches all of them."""
    config, started = site.folder / "ssh-config", []
    try:
        for node in site.nodes:
            server = FarHost(site.folder / f"sshd-{node}", site.bench.tools, node, site.words(node), site.lab.addresses[node])
            started.append(server)
        config.write_text("\n".join(server.client() for server in started))
        yield config
    finally:
        for server in started:
            server.close()


def own(scene, site, data, shape):
    """The gateway collects: from the moment at which all results have their names."""
    for path in site.out.iterdir():
        path.unlink()
    pattern = f"{scene.place.mount}/%j/%t"
    job = site.submit(data / "big", f"--array=1-{NODES}", site.folder / "fill", site.out, *shape, options=("--results", pattern))
    wait_for(lambda: len(list(site.out.glob("made-*"))) == NODES, "the tasks", "run", ARRIVAL_SECONDS_MAX)
    (site.out / "go").touch()
    wait_for(lambda: len(list(site.out.glob("done-*"))) == NODES, "the tasks", "end", ARRIVAL_SECONDS_MAX)
    began = time.monotonic()
    wait_for(lambda: all(is_empty(site, node) for node in site.nodes), "the gateway", "collect", ARRIVAL_SECONDS_MAX)
    took = time.monotonic() - began
    check(scene, scene.place.mount / job, shape)
    record(scene, COLLECT, {"seconds": took}, "", wall(took))
    site.wait_until_closed(job)
    site.wait_until_idle()


def is_empty(site, node):
    """Returns whether a node has no result of any job."""
    outbox = site.seen(node) / "store" / "outbox"
    jobs = [path for path in outbox.iterdir() if not path.name.startswith(".")] + list((outbox / ".sealed").iterdir())
    return not any(any(os.scandir(path)) for path in jobs if path.exists())


def peer(scene, site, tool, what):
    """A loop over the nodes, or over the directories of tasks on each of them, with one rsync after the other."""
    config, shape = what
    for number, node in enumerate(site.nodes, 1):
        run(*site.words(node), "mkdir", "-p", site.disk / "results")
        first = number * FIRST_TASK
        run(*site.words(node), site.folder / "fill", site.disk / "results", first, *shape)
    to = scene.place.mount / "results"
    to.mkdir()
    began = time.monotonic()
    site.text(SOURCE, ["sh", "-ec", loop(tool), "sh", f"ssh -F {config}", site.disk / "results", to, *site.nodes])
    took = time.monotonic() - began
    check(scene, to, shape)
    for node in site.nodes:
        run(*site.words(node), "rm", "-r", site.disk / "results")
    record(scene, tool, {"seconds": took}, "", wall(took))


def loop(tool):
    """Returns the loop as a script: ssh, directory on the nodes, destination, nodes."""
    begin = 'ssh=$1 from=$2 to=$3; shift 3; for node in "$@"; do '
    if tool == PULL_TASKS:
        return begin + f'for task in $($ssh "$node" ls "$from"); do {RSYNC[tool]} -e "$ssh" "$node:$from/$task" "$to/"; done; done'
    return begin + f'{RSYNC[tool]} -e "$ssh" "$node:$from/" "$to/"; done'


def check(scene, folder, shape):
    """Checks that each file has arrived whole."""
    directories, files, size = shape
    found = [path.stat().st_size for path in Path(folder).rglob("*") if path.is_file()]
    if len(found) != NODES * directories * files or set(found) != {size}:
        raise RuntimeError(f"{scene.case.name}: {len(found)} files have arrived")


def wall(seconds):
    """Returns the fields of a run that took so long."""
    return {"wall": seconds, "user": 0, "sys": 0, "peak_kib": 0, "exit": 0}


KINDS = (results,)
