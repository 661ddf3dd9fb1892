"""A cluster to cast to: network namespaces with links of a known rate, and on each node an sshd and a tmpfs of its own.

The hosts share the files of this machine, so each node has a mount namespace. Its tmpfs lies at the same path as those of
the other nodes, as the local disks of a cluster do. Nothing is reachable from outside, and `close()` removes all of it.
"""

import json
import os
import shutil
import signal
import subprocess
import threading
import time
from contextlib import ExitStack
from pathlib import Path

import far
from crew import Lab
from places import run, unmount

SOURCE = "source"
TMPFS = "size=95%,nr_inodes=0"
PROGRAM = "driftless"
SAFE_PERCENT = 95  # of a link, for tools that have to be told a rate


class Cluster:
    """A source and nodes `n1` and so on. Each link has the same rate in both directions, or none if `bits` is `None`."""

    def __init__(self, bench, nodes, bits):
        self.bench, self.bits, self.folder, self.closing = bench, bits, bench.work / "cluster", ExitStack()
        self.nodes = [f"n{number}" for number in range(1, nodes + 1)]
        self.disk, self.store, self.list = self.folder / "disk", self.folder / "store", self.folder / "nodes"
        self.to = self.disk / "to"
        self.config, self.servers = self.folder / "ssh-config", {}
        self.ssh = f"ssh -F {self.config}"
        self.disk.mkdir(parents=True)
        self.list.write_text("\n".join(self.nodes) + "\n")
        self.closing.callback(shutil.rmtree, self.folder, True)
        try:
            self.lab = Lab({SOURCE: bits} | dict.fromkeys(self.nodes, bits))
            self.closing.callback(self.lab.close)
            for node in self.nodes:
                self.lab.own_mounts(node)
                self._start_server(node)
        except BaseException:
            self.closing.close()
            raise

    def __enter__(self):
        return self

    def __exit__(self, *_error):
        self.closing.close()

    def _start_server(self, node):
        """Starts an sshd on a node, and writes the configuration for all."""
        folder, address = self.folder / f"sshd-{node}", self.lab.addresses[node]
        server = self.servers[node] = far.FarHost(folder, self.bench.tools, node, self.words(node), address)
        self.closing.callback(server.close)
        self.config.write_text("\n".join(server.client() for server in self.servers.values()))

    def words(self, host):
        """Returns what goes before a command that runs on a host."""
        return self.lab.words(host)

    def fresh(self):
        """Gives each node an empty tmpfs, and the source an empty store."""
        shutil.rmtree(self.store, ignore_errors=True)
        for node in self.nodes:
            words = self.words(node)
            unmount(self.disk, words)
            run(*words, "mount", "-t", "tmpfs", "-o", TMPFS, "driftless-bench", self.disk)
            run(*words, "mkdir", self.to)

    def seen(self, node):
        """Returns the path at which this process sees the tmpfs of a node."""
        return Path(f"/proc/{self.lab.keepers[node].pid}/root{self.disk}")

    def values(self):
        """Returns what the commands of the tools need to know."""
        return {"ssh": self.ssh, "config": self.config, "list": self.list, "nodes": ",".join(self.nodes), "count": len(self.nodes),
                "kbits": (self.bits or 0) * SAFE_PERCENT // 100_000, "to": self.to, "node_dir": self.disk / "store",
                "store": self.store, "agent": self.bench.driftless, "driftless": self.bench.driftless}

    def signal(self, host, command, number):
        """Sends a signal to `driftless` with this command on a host."""
        for pid in self._processes(host):
            if name_of(pid) == PROGRAM and command in words_of(pid):
                send(pid, number)

    def kill(self, node, name=None):
        """Kills the processes of a node that have this name, or all, its server for ssh included."""
        for pid in self._processes(node):
            if not name or name_of(pid) == name:
                send(pid, signal.SIGKILL)

    def revive(self, node):
        """Starts the server of a killed node again."""
        self.servers[node].close()
        self._start_server(node)

    def _processes(self, host):
        inside = subprocess.run(["ip", "netns", "pids", self.lab.name(host)], capture_output=True, text=True, check=True)
        keeper = self.lab.keepers.get(host)
        return [int(pid) for pid in inside.stdout.split() if not keeper or int(pid) != keeper.pid]


def name_of(pid):
    """Returns the name of a process, or nothing if it has ended."""
    try:
        return Path(f"/proc/{pid}/comm").read_text().strip()
    except OSError:
        return ""


def words_of(pid):
    """Returns the words of a process, or nothing if it has ended."""
    try:
        return Path(f"/proc/{pid}/cmdline").read_bytes().decode(errors="replace").split("\0")
    except OSError:
        return []


def send(pid, number):
    """Sends a signal to a process that may have ended."""
    try:
        os.kill(pid, number)
    except ProcessLookupError:
        pass


class Events(threading.Thread):
    """Reads the events of a cast from a pipe, and gives each the seconds since the start. Calls `hook` with each of them."""

    def __init__(self, hook):
        super().__init__(daemon=True)
        self.all, self.hook = [], hook
        self.reading, self.writing = os.pipe()
        self.began = time.monotonic()

    def __enter__(self):
        self.start()
        return self

    def __exit__(self, *_error):
        os.close(self.writing)
        self.join()

    def run(self):
        with open(self.reading, encoding="utf-8") as lines:
            for line in lines:
                event = json.loads(line) | {"at": time.monotonic() - self.began}
                self.all.append(event)
                self.hook(event)

    def named(self, name):
        """Returns the events of a name."""
        return [event for event in self.all if event["event"] == name]

    def complete(self):
        """Returns the seconds at which each node had the data set."""
        return {event["node"]: event["at"] for event in self.named("ended") if event["is_complete"]}
