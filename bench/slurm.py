"""A Slurm of its own on the hosts of a lab: a controller, one `slurmd` on each node, and a munge with a key of its own.

Nothing below /etc/slurm or /etc/munge is read or changed. Tasks see the mounts and the network of their node.
"""

import os
import shutil
from socket import gethostname

from daemons import wait_for

SETTINGS = """\
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
{more}{nodes}
PartitionName=all Nodes={names} Default=YES MaxTime=INFINITE State=UP
"""
NODE = "NodeName={node} NodeHostname={host} NodeAddr={address} Port=6818 CPUs=1 State=UNKNOWN"


def start(daemons, folder, lab, controller, nodes, more=""):
    """Starts a Slurm whose files are in `folder`; returns the environment for its commands and the process of the controller.
    `more` has further lines of settings."""
    shutil.rmtree(folder, ignore_errors=True)
    for name in ("state", "munge"):
        (folder / name).mkdir(parents=True)
    _write(folder, lab.addresses, controller, nodes, more)
    environment = {"SLURM_CONF": str(folder / "slurm.conf")}
    daemons.start([], ["munged", "--foreground", "--force", f"--key-file={folder}/key", f"--socket={folder}/munge/socket",
                       f"--pid-file={folder}/munge/pid", f"--log-file={folder}/munge/log", f"--seed-file={folder}/munge/seed"])
    wait_for(lambda: (folder / "munge" / "socket").exists(), "munged")
    process = daemons.start(lab.words(controller), ["slurmctld", "-D"], environment)
    for node in nodes:
        daemons.start(lab.words(node), ["slurmd", "-D", "-N", node], environment)
    return environment, process


def _write(folder, addresses, controller, nodes, more):
    host = gethostname().split(".")[0]
    lines = [NODE.format(node=node, host=host, address=addresses[node]) for node in nodes]
    settings = SETTINGS.format(
        host=host, address=addresses[controller], folder=folder, nodes="\n".join(lines), names=",".join(nodes), more=more)
    (folder / "slurm.conf").write_text(settings)
    key = folder / "key"
    key.write_bytes(os.urandom(1024))
    key.chmod(0o400)
