"""What must be at work on the nodes of a cluster before a tool can send a file to all of them.

Each value is started for one run and ended after it. None uses a service, a key or a setting of this machine.
"""

import os
import shutil
import signal
import subprocess
import time
from contextlib import ExitStack, contextmanager
from socket import gethostname

from cluster import SOURCE
from peers import SBCAST, UDPCAST, UFTP

READY_SECONDS_MAX = 30
SLURM = """\
ClusterName=driftless-bench
SlurmctldHost={host}({address})
SlurmctldPort=6817
AuthType=auth/munge
CryptoType=crypto/munge
AuthInfo=socket={folder}/munge/socket
SlurmUser=root
SlurmdUser=root
ProctrackType=proctrack/linuxproc
TaskPlugin=task/none
SelectType=select/cons_tres
SelectTypeParameters=CR_Core
ReturnToService=2
SlurmdParameters=config_overrides
MpiDefault=none
JobAcctGatherType=jobacct_gather/none
StateSaveLocation={folder}/state
SlurmdSpoolDir={folder}/spool-%n
SlurmdPidFile={folder}/slurmd-%n.pid
SlurmctldPidFile={folder}/slurmctld.pid
SlurmctldLogFile={folder}/slurmctld.log
SlurmdLogFile={folder}/slurmd-%n.log
{nodes}
PartitionName=all Nodes={names} Default=YES State=UP
"""
SLURM_NODE = "NodeName={node} NodeHostname={host} NodeAddr={address} Port=6818 CPUs=1 State=UNKNOWN"
DAEMON = {"stdin": subprocess.DEVNULL, "stdout": subprocess.DEVNULL, "stderr": subprocess.DEVNULL, "start_new_session": True}


class Daemons(ExitStack):
    """Programs on hosts of a cluster. They end with this value, or with the benchmark."""

    def start(self, words, argv, environment=None):
        """Starts a program in the foreground."""
        command = ["setpriv", "--pdeathsig", "KILL", *words, *map(str, argv)]
        process = subprocess.Popen(command, env=os.environ | (environment or {}), **DAEMON)
        self.callback(end, process)
        return process


def end(process):
    """Ends a program and its children."""
    try:
        os.killpg(process.pid, signal.SIGKILL)
    except ProcessLookupError:
        pass
    process.wait()


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
    shutil.rmtree(folder, ignore_errors=True)
    for name in ("state", "munge"):
        (folder / name).mkdir(parents=True)
    write_slurm(cluster, folder)
    environment = {"SLURM_CONF": str(folder / "slurm.conf")}
    source = cluster.words(SOURCE)
    with Daemons() as daemons:
        daemons.callback(kill_steps, cluster)
        daemons.start([], ["munged", "--foreground", "--force", f"--key-file={folder}/key", f"--socket={folder}/munge/socket",
                           f"--pid-file={folder}/munge/pid", f"--log-file={folder}/munge/log", f"--seed-file={folder}/munge/seed"])
        wait_for(lambda: (folder / "munge" / "socket").exists(), "munged")
        daemons.start(source, ["slurmctld", "-D"], environment)
        for node in cluster.nodes:
            daemons.start(cluster.words(node), ["slurmd", "-D", "-N", node], environment)
        yield {"slurm": folder / "slurm.conf", "job": allocate(source, len(cluster.nodes), environment)}
    shutil.rmtree(folder, ignore_errors=True)


def kill_steps(cluster):
    """Ends what a `slurmd` started: such a process has a session of its own."""
    for node in cluster.nodes:
        cluster.kill(node, "slurmstepd")


def write_slurm(cluster, folder):
    """Writes the settings and the key of a Slurm."""
    host, addresses = gethostname().split(".")[0], cluster.lab.addresses
    nodes = [SLURM_NODE.format(node=node, host=host, address=addresses[node]) for node in cluster.nodes]
    names = ",".join(cluster.nodes)
    settings = SLURM.format(host=host, address=addresses[SOURCE], folder=folder, nodes="\n".join(nodes), names=names)
    (folder / "slurm.conf").write_text(settings)
    key = folder / "key"
    key.write_bytes(os.urandom(1024))
    key.chmod(0o400)


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


def wait_for(is_so, program, does="start"):
    """Waits until a program has started, or has ended."""
    deadline = time.monotonic() + READY_SECONDS_MAX
    while not is_so():
        if time.monotonic() > deadline:
            raise RuntimeError(f"{program} did not {does}")
        time.sleep(0.05)


SPREADERS = {UFTP: uftp, UDPCAST: udpcast, SBCAST: slurm}
