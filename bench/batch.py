"""A cluster with a batch system: a Slurm of its own, the daemon of driftless on each node, and a gateway.

The controller of Slurm is on `head`, whose link has no limit. Users submit on `source`, which also has the data and the gateway.
Each node has a tmpfs at the same path. The tables of gateway and controller are on the disk of this machine.
"""

import json
import os
import subprocess
import time
from pathlib import Path

import slurm
from crew import Lab
from daemons import Daemons, wait_for
from places import run, unmount

HEAD, SOURCE = "head", "source"
USER = 65534  # the tasks run as "nobody", whom each machine has
TMPFS = "size=95%,nr_inodes=0"
PORT = 7400
JOBS_SECONDS_MAX = 600
TASKS_SECONDS_MAX = 6000
# A controller that schedules at once: what a job waits for is not a pause between two schedules.
PROMPT = """\
MinJobAge=2
KillWait=2
SchedulerType=sched/backfill
SchedulerParameters=sched_interval=1,batch_sched_delay=0,bf_interval=1,default_queue_depth=1000
"""


class BatchSite:
    """The cluster. Each link of a node and of the source has the same rate, or none if `bits` is `None`."""

    def __init__(self, bench, nodes, bits=None):
        self.bench, self.driftless, self.folder = bench, bench.driftless, bench.work / "site"
        self.nodes = [f"n{number}" for number in range(1, nodes + 1)]
        self.disk, self.out = self.folder / "disk", self.folder / "out"
        self.store, self.gateway_dir, self.socket = self.disk / "store", self.folder / "gateway", self.folder / "gateway.sock"
        self.daemons, self.environment, self.of_node = Daemons(), {}, {}
        self.daemons.callback(self._remove)
        # The user of the jobs must reach its scripts and data.
        bench.work.chmod(0o711)
        for folder in (self.disk, self.out, self.gateway_dir):
            folder.mkdir(parents=True)
        self.out.chmod(0o1777)
        try:
            self._start(bits)
        except BaseException:
            self.daemons.close()
            raise

    def __enter__(self):
        return self

    def __exit__(self, *_error):
        self.daemons.close()

    def _start(self, bits):
        self.lab = Lab({HEAD: None, SOURCE: bits} | dict.fromkeys(self.nodes, bits))
        self.daemons.callback(self.lab.close)
        for node in self.nodes:
            self.lab.own_mounts(node)
            run(*self.words(node), "mount", "-t", "tmpfs", "-o", TMPFS, "driftless-bench", self.disk)
        self.environment, self.controller = slurm.start(
            self.daemons, self.folder / "slurm", self.lab, HEAD, self.nodes, PROMPT)
        self._start_daemons()
        self._start_gateway()
        self.wait_until_idle()

    def _start_daemons(self):
        trusted = self.text(SOURCE, [self.driftless, "node", "key", "--cast-dir", self.gateway_dir / "cast"])
        for node in self.nodes:
            argv = [self.driftless, "node", "--dir", self.store, "--ports", PORT, "--trust", trusted]
            self.of_node[node] = self.daemons.start(self.words(node), argv)
        lines = [f"{node} {self.lab.addresses[node]}:{PORT} {self._key(node)}" for node in self.nodes]
        (self.folder / "nodes").write_text("\n".join(lines) + "\n")

    def _key(self, node):
        """Returns the key of a daemon, once it runs."""
        argv = [*self.words(node), self.driftless, "node", "status", "--json", "--dir", self.store]
        found = []

        def is_running():
            done = subprocess.run(list(map(str, argv)), capture_output=True, text=True, check=False)
            found[:] = [json.loads(done.stdout).get("key")] if done.stdout else []
            return any(found)

        wait_for(is_running, "driftless node")
        return found[0]

    def _start_gateway(self):
        argv = [self.driftless, "gateway", "--system", "slurm", "--nodes", ",".join(self.nodes), "--daemons", self.folder / "nodes",
                "--node-dir", self.store, "--dir", self.gateway_dir, "--gateway", self.socket]
        with open(self.folder / "gateway.log", "wb") as log:
            self.gateway = self.daemons.start(self.words(SOURCE), argv, self.environment, log)
        wait_for(self.socket.exists, "driftless gateway")

    def _remove(self):
        run("rm", "-rf", "--one-file-system", self.folder)
        self.bench.work.chmod(0o700)

    def words(self, host):
        """Returns what goes before a command that runs on a host."""
        return self.lab.words(host)

    def as_user(self, host):
        """Returns what goes before a command that runs on a host as the user of the jobs."""
        return [*self.words(host), "setpriv", f"--reuid={USER}", f"--regid={USER}", "--clear-groups", "--"]

    def text(self, host, argv):
        """Runs a command as root on a host; returns its output."""
        return self._output([*self.words(host), *argv])

    def as_user_text(self, argv):
        """Runs a command on the host of the source, as the user of the jobs; returns its output."""
        return self._output([*self.as_user(SOURCE), *argv])

    def _output(self, argv):
        done = subprocess.run(
            list(map(str, argv)), env=os.environ | self.environment, cwd=self.out, stdin=subprocess.DEVNULL,
            capture_output=True, text=True, check=False)
        if done.returncode:
            raise RuntimeError(f"{argv[-1]}: ended with {done.returncode}: {done.stderr.strip()[-300:]}")
        return done.stdout.strip()

    def script(self, name, text):
        """Writes a script of a job; returns its path."""
        path = self.folder / name
        path.write_text(text)
        path.chmod(0o755)
        return path

    def sbatch(self, *argv):
        """Submits a job to Slurm alone; returns its number."""
        return self.as_user_text(["sbatch", "--parsable", "--output=/dev/null", *argv])

    def submit(self, data, *argv, options=()):
        """Submits a job by driftless; returns its number."""
        command = [self.driftless, "submit", *options, "--data", data, "--gateway", self.socket]
        return self.as_user_text([*command, "--", "sbatch", "--output=/dev/null", *argv])

    def jobs(self):
        """Returns the jobs that the gateway knows, by their numbers."""
        text = self.text(SOURCE, [self.driftless, "jobs", "--all", "--json", "--gateway", self.socket])
        lines = map(json.loads, text.splitlines())
        return {job["job"]: job for job in lines}

    def cancel(self, job):
        """Cancels a job, and waits until the gateway has removed what it left."""
        self.text(HEAD, ["scancel", job])
        self.wait_until_closed(job)

    def wait_until_closed(self, job):
        """Waits until all tasks of a job ended, and its copies are removed."""
        wait_for(lambda: self.jobs()[job]["stage"] == "closed", f"job {job}", "close", JOBS_SECONDS_MAX)

    def wait_until_idle(self):
        """Waits until all nodes wait for tasks."""
        def is_idle():
            states = self.text(HEAD, ["sinfo", "-h", "-N", "-o", "%t"]).split()
            return len(states) == len(self.nodes) and set(states) == {"idle"}

        wait_for(self.is_answering, "slurmctld")
        wait_for(is_idle, "the nodes", "become idle", JOBS_SECONDS_MAX)

    def is_answering(self):
        """Returns whether the controller answers."""
        ping = [*self.words(HEAD), "scontrol", "ping"]
        done = subprocess.run(ping, env=os.environ | self.environment, capture_output=True, text=True, check=False)
        return " is UP" in done.stdout

    def stamps(self, job, count):
        """Waits until so many tasks of a job wrote a line; returns the lines as words."""
        deadline = time.monotonic() + TASKS_SECONDS_MAX
        while True:
            lines = [path.read_text() for path in self.out.glob(f"{job}-*")]
            if sum(line.endswith("\n") for line in lines) >= count:
                return [line.split() for line in lines]
            if time.monotonic() > deadline:
                raise RuntimeError(f"job {job}: {len(lines)} of {count} tasks have run: {self.log()}")
            time.sleep(0.05)

    def seen(self, node):
        """Returns the path at which this process sees the disk of a node."""
        return Path(f"/proc/{self.lab.keepers[node].pid}/root{self.disk}")

    def log(self):
        """Returns the end of what the gateway said."""
        return (self.folder / "gateway.log").read_text(errors="replace")[-600:]

    def unmount(self, node, folder):
        """Unmounts a folder of a node."""
        unmount(folder, self.words(node))
