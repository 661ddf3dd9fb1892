"""The procedures about jobs of a batch system that start where their data has arrived.

Tasks write when they began and ended, by the clock that all hosts of the lab share. Each figure counts from outside: from the start
of a command, or from the moment at which a node has the copy under the name of the job.
"""

import os
import random
import time
from contextlib import contextmanager
from statistics import median

from batch import HEAD, SOURCE, BatchSite
from daemons import Daemons, wait_for
from far import FarHost
from following import record
from peers import JOBS, SBATCH, SERVED, SERVED_CACHED
from places import is_mount, run

NODES = 8
LINK_BITS = 100_000_000
SMALL, WHOLE = "40 tasks of 32 MiB", "100 tasks of 256 MiB"
PAIRS = 20  # the schedules of Slurm spread each of them by a second
START_ROUNDS = 9
HELD_SECONDS = 60
SUBMITTERS = 4
KNOWN_SECONDS_MAX = 600
SCHEDULE_SECONDS = 1  # from one schedule of Slurm to the next
SILENT, DRAINED = "a node without a daemon", "all nodes drained"

# Reads all of its data, and writes: node, begin, end, bytes. dd(1) counts what it has read.
READ = """#!/bin/sh
began=$(date +%s.%N)
read=$(LC_ALL=C dd if="$SPOOL_DIRECTORY/big" of=/dev/null bs=1M 2>&1 | tail -n 1) || exit 1
echo "$SLURMD_NODENAME $began $(date +%s.%N) ${read%% *}" >"$1/$SLURM_ARRAY_JOB_ID-$SLURM_ARRAY_TASK_ID"
"""
# Writes its node and begin, and keeps the node busy, so that no other task of the job runs there.
STAMP = """#!/bin/sh
echo "$SLURMD_NODENAME $(date +%s.%N)" >"$1/${SLURM_ARRAY_JOB_ID:-$SLURM_JOB_ID}-${SLURM_ARRAY_TASK_ID:-0}"
sleep "${2:-0}"
"""


def array(scene):
    """An array of tasks that read a data set, by driftless and beside it through one server."""
    sizes = scene.bench.trees.sizes
    small, whole = (sizes.job_tasks_small, sizes.job_bytes_small), (sizes.job_tasks, sizes.job_bytes)
    with BatchSite(scene.bench, NODES, LINK_BITS) as site:
        site.script("read", READ)
        for _ in scene.rounds():
            for part, (tasks, size) in ((SMALL, small), (WHOLE, whole)):
                folder = data_of(scene, size)
                for tool in scene.case.tools:
                    # 100 tasks that read 256 MiB each through one such link take 36 minutes.
                    if tool != SERVED or part == SMALL or scene.bench.long:
                        read_all(scene, site, tool, part, folder, tasks, size)


def data_of(scene, size, name="jobs"):
    """Returns a folder with new data in one file, which the user of the jobs can read."""
    trees = scene.bench.trees
    trees.clear()
    folder = trees.root / name
    folder.mkdir(parents=True)
    run(trees.generator, "file", folder / "big", size)
    return folder


def read_all(scene, site, tool, part, folder, tasks, size):
    """Runs an array by one tool, until the end of its last task."""
    range_of_tasks = f"--array=1-{tasks}"
    script = (site.folder / "read", site.out)
    if tool == JOBS:
        began = time.time()
        job = site.submit(folder / "big", range_of_tasks, *script)
        lines = site.stamps(job, tasks)
        site.wait_until_closed(job)
    else:
        with served(site, folder, tool == SERVED_CACHED) as there:
            began = time.time()
            job = site.sbatch(f"--export=ALL,SPOOL_DIRECTORY={there}", range_of_tasks, *script)
            lines = site.stamps(job, tasks)
    if any(int(line[3]) != size for line in lines):
        raise RuntimeError(f"{tool}: a task has not read all data")
    ended = max(float(line[2]) for line in lines) - began
    first = min(float(line[1]) for line in lines) - began
    record(scene, tool, {"seconds": ended, "begin": first}, part, wall(ended))
    site.wait_until_idle()


def wall(seconds):
    """Returns the fields of a run that took so long."""
    return {"wall": seconds, "user": 0, "sys": 0, "peak_kib": 0, "exit": 0}


@contextmanager
def served(site, folder, is_cached):
    """Mounts a folder of the source on each node over sshfs. With a cache, a node reads each byte once."""
    there = site.folder / "served"
    there.mkdir(exist_ok=True)
    options = "ro,allow_other" + (",kernel_cache" if is_cached else "")
    server = FarHost(site.folder / "sshd", site.bench.tools, SOURCE, site.words(SOURCE), site.lab.addresses[SOURCE])
    config = site.folder / "ssh-config"
    config.write_text(server.client())
    try:
        with Daemons() as daemons:
            for node in site.nodes:
                argv = ["sshfs", "-f", "-F", config, "-o", options, f"{SOURCE}:{folder}", there]
                daemons.start(site.words(node), argv)
            for node in site.nodes:
                daemons.callback(site.unmount, node, there)
                wait_for(lambda node=node: is_mount(there, site.words(node)), "sshfs")
            yield there
    finally:
        server.close()


def starts(scene):
    """From the moment at which a node has the data to its first task, beside a plain held job from its release on."""
    with BatchSite(scene.bench, NODES) as site:
        site.script("stamp", STAMP)
        for scene.round in range(scene.bench.rounds or START_ROUNDS):
            plain = plain_starts(site)
            record(scene, SBATCH, {"start": median(plain), "start_last": max(plain)})
            own = own_starts(scene, site)
            more = {"beyond": median(own) - median(plain), "beyond_last": max(own) - max(plain)}
            record(scene, JOBS, {"start": median(own), "start_last": max(own)} | more)


def plain_starts(site):
    """Returns the seconds from the release of a held job to the task on each node."""
    job = site.sbatch("--hold", f"--array=1-{NODES}", site.folder / "stamp", site.out, 2)
    sleep_until_any_time()
    began = time.time()
    site.text(HEAD, ["scontrol", "release", job])
    seconds = [float(line[1]) - began for line in site.stamps(job, NODES)]
    site.wait_until_idle()
    return seconds


def sleep_until_any_time():
    """Sleeps, so that no measurement keeps pace with the schedules of Slurm."""
    time.sleep(random.uniform(1, 1 + SCHEDULE_SECONDS))


def own_starts(scene, site):
    """Returns the seconds from when a node had the data to its task, for each node."""
    folder = data_of(scene, scene.bench.trees.sizes.job_bytes_start)
    sleep_until_any_time()
    job = site.submit(folder / "big", f"--array=1-{NODES}", site.folder / "stamp", site.out, 2)
    began = {line[0]: float(line[1]) for line in site.stamps(job, NODES)}
    ready = ready_times(site, job)
    site.wait_until_closed(job)
    site.wait_until_idle()
    return [began[node] - ready[node] for node in began]


def ready_times(site, job):
    """Returns when each node had the data of a job under the job's name: the link there is made last."""
    mark, times = site.jobs()[job]["mark"], {}
    for node in site.nodes:
        links = (site.seen(node) / "store" / "jobs").glob(f"*-{mark}")
        times.update({node: link.lstat().st_ctime for link in links})
    return times


def submits(scene):
    """`driftless submit` beside `sbatch`, in turn, with the data on all nodes."""
    with BatchSite(scene.bench, NODES) as site:
        site.script("stamp", STAMP)
        folder = data_of(scene, scene.bench.trees.sizes.job_bytes_start)
        # A job that starts tomorrow keeps the copies on the nodes.
        keeper = site.submit(folder / "big", "--begin=now+1day", site.folder / "stamp", site.out)
        wait_for(lambda: is_everywhere(site, keeper), "the data", "arrive")
        for scene.round in range(scene.bench.rounds or PAIRS):
            plain = timed_submission(site, lambda script: site.sbatch(*script))
            own = timed_submission(site, lambda script: site.submit(folder / "big", *script))
            record(scene, SBATCH, plain, "", wall(plain["command"]))
            more = {f"{key}_more": own[key] - plain[key] for key in plain}
            record(scene, JOBS, own | more, "", wall(own["command"]))
        site.cancel(keeper)


def is_everywhere(site, job):
    """Returns whether all nodes have the data of a job."""
    nodes = site.jobs()[job]["nodes"]
    return len(nodes) == NODES and all(node["state"] == "ready" for node in nodes)


def timed_submission(site, submit):
    """Submits one task; returns the seconds until the command ended, and until the task began."""
    sleep_until_any_time()
    began = time.time()
    job = submit((site.folder / "stamp", site.out))
    command = time.time() - began
    until = float(site.stamps(job, 1)[0][1]) - began
    known = site.jobs()
    if job in known:
        site.wait_until_closed(job)
    site.wait_until_idle()
    return {"command": command, "until": until}


def held(scene):
    """Processor time of a gateway with many held jobs, which wait for all nodes: one node does not answer, or all are drained."""
    sizes = scene.bench.trees.sizes
    for part in (SILENT, DRAINED):
        with BatchSite(scene.bench, NODES) as site:
            site.script("stamp", STAMP)
            folder = data_of(scene, sizes.job_bytes_start)
            if part == SILENT:
                site.of_node[site.nodes[-1]].kill()
            else:
                site.text(HEAD, ["scontrol", "update", "NodeName=ALL", "State=DRAIN", "Reason=bench"])
            submit_many(site, folder, sizes.jobs_held)
            wait_for(lambda site=site: count_held(site) == sizes.jobs_held, "the gateway", "know all jobs", KNOWN_SECONDS_MAX)
            if part == SILENT:
                ready = sizes.jobs_held * (NODES - 1)
                wait_for(lambda site=site, ready=ready: count_ready(site) == ready, "the gateway", "send the data", KNOWN_SECONDS_MAX)
            time.sleep(sizes.held_rest_seconds)
            figures, still = shares(site, HELD_SECONDS), count_held(site)
            if still != sizes.jobs_held:
                raise RuntimeError(f"{part}: {still} of {sizes.jobs_held} jobs are held: {site.log()}")
            record(scene, JOBS, figures | {"held": still}, part)


def submit_many(site, folder, count):
    """Submits jobs, some at the same time."""
    command = [site.driftless, "submit", "--release", "all", "--data", folder / "big", "--gateway", site.socket, "--", "sbatch",
               "--output=/dev/null", site.folder / "stamp", site.out]
    many = 'seq "$0" | xargs -P "$1" -I N "${@:2}" > /dev/null'
    site.as_user_text(["bash", "-c", many, count, SUBMITTERS, *command])


def count_held(site):
    """Returns the number of jobs that the gateway knows by their numbers and has not released."""
    return sum(job["stage"] == "loading" for job in site.jobs().values())


def count_ready(site):
    """Returns the number of nodes with the data, of all jobs together."""
    return sum(node["state"] == "ready" for job in site.jobs().values() for node in job["nodes"])


def shares(site, seconds):
    """Returns the processor time of gateway and controller, each as a share of one core."""
    before = [times_of(process.pid) for process in (site.gateway, site.controller)]
    time.sleep(seconds)
    after = [times_of(process.pid) for process in (site.gateway, site.controller)]
    (own, children), (controller, _) = [
        [new - old for new, old in zip(*pair)] for pair in zip(after, before)]
    return {"processor": (own + children) / seconds, "processor_own": own / seconds, "controller": controller / seconds}


def times_of(pid):
    """Returns the processor seconds of a process, and of its children that have ended (proc(5))."""
    with open(f"/proc/{pid}/stat", encoding="utf-8") as file:
        fields = file.read().rsplit(")", 1)[1].split()
    ticks = os.sysconf("SC_CLK_TCK")
    user, system, of_children_user, of_children_system = map(int, fields[11:15])
    return [(user + system) / ticks, (of_children_user + of_children_system) / ticks]


KINDS = (array, starts, submits, held)
