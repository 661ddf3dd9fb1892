"""What must be at work on the nodes of a cluster before a tool can send a file to all of them.

Each value is started for one run and ended after it. None uses a service, a key or a setting of this machine.
"""

import os
import shutil
import subprocess
import time
from contextlib import contextmanager

import slurm as slurms
from cluster import SOURCE
from daemons import READY_SECONDS_MAX, Daemons, wait_for
from peers import SBCAST, UDPCAST, UFTP


@contextmanager
def uftp(cluster):
    """Receivers for `uftp`."""
    with Daemons() as daemons:
        for node in cluster.nodes:
            daemons.start(cluster.words(node), ["uftpd", "-d", "-q", "-I", "net0", "-D", cluster.to])
        time.sleep(1)  # they do not tell when they listen
        yield {}


@contextmanager
def udpcast(cluster):
    """Receivers for `udp-sender`."""
    with Daemons() as daemons:
        receive = ["udp-receiver", "--nokbd", "--interface", "net0", "--file", cluster.to / "big"]
        receivers = [daemons.start(cluster.words(node), receive) for node in cluster.nodes]
        time.sleep(1)  # they do not tell when they listen
        yield {}
        wait_for(lambda: all(receiver.poll() is not None for receiver in receivers), "udp-receiver", "end")


@contextmanager
def slurm(cluster):
    """A Slurm of its own, with one `slurmd` on each node, and a job on all nodes whose number `sbcast` needs."""
    folder = cluster.folder / "slurm"
    with Daemons() as daemons:
        daemons.callback(kill_steps, cluster)
        environment, _ = slurms.start(daemons, folder, cluster.lab, SOURCE, cluster.nodes)
        job = allocate(cluster.words(SOURCE), len(cluster.nodes), environment)
        yield {"slurm": folder / "slurm.conf", "job": job}
    shutil.rmtree(folder, ignore_errors=True)


def kill_steps(cluster):
    """Ends what a `slurmd` started: such a process has a session of its own."""
    for node in cluster.nodes:
        cluster.kill(node, "slurmstepd")


def allocate(words, count, environment):
    """Returns the number of a job on so many nodes, once it runs."""
    command = [*words, "salloc", "--no-shell", f"--nodes={count}", "--job-name=driftless-bench"]
    deadline = time.monotonic() + READY_SECONDS_MAX
    while True:
        made = subprocess.run(command, env=os.environ | environment, capture_output=True, text=True, timeout=READY_SECONDS_MAX, check=False)
        granted = [line.split()[-1] for line in made.stderr.splitlines() if "Granted job allocation" in line]
        if granted:
            return granted[0]
        if time.monotonic() > deadline:
            raise RuntimeError(f"Slurm gave no nodes: {made.stderr[-300:]}")
        time.sleep(0.5)


SPREADERS = {UFTP: uftp, UDPCAST: udpcast, SBCAST: slurm}
