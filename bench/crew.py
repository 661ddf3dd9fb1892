"""Hosts on which movers work: network namespaces with links of a known rate, an sshd on each, and a broker of our own.

Everything is reached from inside a namespace only, so nothing of the machine's network, its servers or its own broker is used.
All hosts have one set of files, like hosts that mount the same file systems; a place may have each of them mount a file system by
itself, with a kernel's caches and locks of its own. What runs in a namespace is ended with it.
"""

import os
import shutil
import signal
import subprocess
import threading
import time
from contextlib import ExitStack, contextmanager
from pathlib import Path

import far
from places import READY_SECONDS_MAX, Latency, Tmpfs, run

PREFIX = "driftless-bench-"  # then the process that made it, and the part that it plays
NAMESPACES = Path("/run/netns")  # ip-netns(8)
MOVERS = 3
LINK_BITS = 200_000_000  # per second and direction
BURST_BYTES = 250_000  # a hundredth of a second's worth (tc-tbf(8))
CREW_LATENCY_US = 5_000
JOBS_TOTAL = 96
PROGRAMS = Path("/usr/lib/rabbitmq/bin")  # Debian's own; those in /usr/sbin change the user first
BROKER_SECONDS_MAX = 120
USER, PASSWORD, VHOST = "bench", "no-secret", "bench"
QUIET = {"stdin": subprocess.DEVNULL, "stdout": subprocess.DEVNULL}

BROKER = """\
listeners.tcp.local = {address}:{port}
default_vhost = {vhost}
default_user = {user}
default_pass = {password}
default_permissions.configure = .*
default_permissions.read = .*
default_permissions.write = .*
disk_free_limit.absolute = 1MB
raft.wal_max_size_bytes = 16777216
"""


class Lab:
    """A switch and hosts around it. `words(host)` goes before a command that runs there."""

    def __init__(self, links):
        self.names, self.addresses, self.ports, self.keepers = [], {}, {}, {}
        remove_abandoned()
        try:
            self._add("switch")
            self._ip("switch", "link", "add", "switch", "type", "bridge")
            self._ip("switch", "link", "set", "switch", "up")
            for number, (host, bits) in enumerate(links.items(), 1):
                self._join(number, host, bits)
        except BaseException:
            self.close()
            raise

    def words(self, host):
        """What is put before a command."""
        keeper = self.keepers.get(host)
        mounts = [f"--mount=/proc/{keeper.pid}/ns/mnt"] if keeper else []
        return ["nsenter", f"--net={NAMESPACES / self.name(host)}", *mounts, "--"]

    def own_mounts(self, host):
        """From now on what is mounted on the host is seen there alone."""
        keep = ["unshare", "--mount", "--propagation", "private", "sh", "-c", "echo; exec sleep infinity"]
        keeper = subprocess.Popen(
            ["setpriv", "--pdeathsig", "KILL", *self.words(host), *keep], stdin=subprocess.DEVNULL, stdout=subprocess.PIPE,
            start_new_session=True)
        keeper.stdout.readline()
        self.keepers[host] = keeper

    def close(self):
        """Ends what runs on the hosts and takes them down."""
        for name in reversed(self.names):
            remove(name)
        for keeper in self.keepers.values():
            keeper.wait()
            keeper.stdout.close()
        self.names.clear()
        self.keepers.clear()

    def name(self, host):
        """Returns the name of a host's network namespace."""
        return f"{PREFIX}{os.getpid()}-{host}"

    def limit(self, host, bits):
        """Limits the link of a host in both directions, also one that has a limit."""
        shape = ["rate", f"{bits}bit", "burst", str(BURST_BYTES), "latency", "100ms"]
        for where, interface in ((host, "net0"), ("switch", self.ports[host])):
            run("tc", "-netns", self.name(where), "qdisc", "replace", "dev", interface, "root", "tbf", *shape)

    def _ip(self, host, *words):
        run("ip", "-netns", self.name(host), *words)

    def _add(self, host):
        run("ip", "netns", "add", self.name(host))
        self.names.append(self.name(host))
        self._ip(host, "link", "set", "lo", "up")

    def _join(self, number, host, bits):
        self._add(host)
        port, address = f"port{number}", f"10.77.0.{number}"
        self._ip("switch", "link", "add", port, "type", "veth", "peer", "name", "net0", "netns", self.name(host))
        self._ip("switch", "link", "set", port, "master", "switch", "up")
        self._ip(host, "address", "add", f"{address}/24", "broadcast", "+", "dev", "net0")
        self._ip(host, "link", "set", "net0", "up")
        self.addresses[host] = address
        self.ports[host] = port
        if bits:
            self.limit(host, bits)


def remove(name):
    """Ends what runs in a namespace, and removes it."""
    inside = subprocess.run(["ip", "netns", "pids", name], capture_output=True, text=True, check=False)
    for process in inside.stdout.split():
        try:
            os.kill(int(process), signal.SIGKILL)
        except ProcessLookupError:
            pass
    subprocess.run(["ip", "netns", "delete", name], check=False, capture_output=True)


def remove_abandoned():
    """Removes what a killed benchmark has left."""
    for path in NAMESPACES.glob(PREFIX + "*"):
        owner = path.name[len(PREFIX):].split("-")[0]
        if not Path("/proc", owner).exists():
            remove(path.name)


class Broker:
    """A RabbitMQ node on a host of the lab, with its own port mapper, cookie and data."""

    port, nodes_port, epmd_port = 5672, 25672, 4369

    def __init__(self, lab, host, folder):
        self.folder, self.words, self.address = folder, lab.words(host), lab.addresses[host]
        shutil.rmtree(folder, ignore_errors=True)
        folder.mkdir(mode=0o700)
        text = BROKER.format(address=self.address, port=self.port, vhost=VHOST, user=USER, password=PASSWORD)
        (folder / "rabbitmq.conf").write_text(text)
        (folder / "plugins").write_text("[].\n")
        self.credentials = folder / "password"
        self.credentials.write_text(PASSWORD + "\n")
        self.credentials.chmod(0o600)
        self.processes = []
        try:
            self._spawn("epmd", "-port", str(self.epmd_port), "-address", "127.0.0.1")
            self._spawn(PROGRAMS / "rabbitmq-server")
            self._wait()
        except BaseException:
            self.close()
            raise

    @property
    def url(self):
        """Without the password."""
        return f"amqp://{USER}@{self.address}:{self.port}/{VHOST}"

    def close(self):
        """Kills it."""
        for process in reversed(self.processes):
            try:
                os.killpg(process.pid, signal.SIGKILL)
            except ProcessLookupError:
                pass
            process.wait()
        self.processes.clear()
        shutil.rmtree(self.folder, ignore_errors=True)

    def _environment(self):
        below = {
            "RABBITMQ_CONF_ENV_FILE": "none", "RABBITMQ_ADVANCED_CONFIG_FILE": "none", "RABBITMQ_MNESIA_BASE": "data",
            "RABBITMQ_CONFIG_FILE": "rabbitmq.conf", "RABBITMQ_ENABLED_PLUGINS_FILE": "plugins", "HOME": "",
            "RABBITMQ_LOG_BASE": "log", "RABBITMQ_GENERATED_CONFIG_DIR": "config", "RABBITMQ_PID_FILE": "pid",
            "ERL_CRASH_DUMP": "crash.dump",
        }
        return {
            "PATH": "/usr/sbin:/usr/bin:/sbin:/bin", "LANG": "C.UTF-8", "RABBITMQ_LOGS": "-",
            "ERL_EPMD_PORT": str(self.epmd_port), "ERL_EPMD_ADDRESS": "127.0.0.1",
            "RABBITMQ_NODENAME": "bench@localhost", "RABBITMQ_DIST_PORT": str(self.nodes_port),
            "RABBITMQ_SERVER_ADDITIONAL_ERL_ARGS":
                "-kernel inet_dist_use_interface {127,0,0,1} +sbwt none +sbwtdcpu none +sbwtdio none",
        } | {name: str(self.folder / path) for name, path in below.items()}

    def _spawn(self, *argv):
        with open(self.folder / "output", "a") as log:
            self.processes.append(subprocess.Popen(
                ["setpriv", "--pdeathsig", "KILL", *self.words, *argv], env=self._environment(), cwd=self.folder,
                stdin=subprocess.DEVNULL, stdout=log, stderr=log, start_new_session=True))

    def _wait(self):
        greet = r"exec 3<>/dev/tcp/$0/$1 && printf 'AMQP\0\0\11\1' >&3 && timeout 5 head -c 1 <&3 | grep -q ."
        deadline = time.monotonic() + BROKER_SECONDS_MAX
        while subprocess.run([*self.words, "bash", "-c", greet, self.address, str(self.port)], check=False,
                             stderr=subprocess.DEVNULL, **QUIET).returncode:
            if self.processes[-1].poll() is not None or time.monotonic() > deadline:
                raise RuntimeError("the broker did not start: " + (self.folder / "output").read_text()[-300:])
            time.sleep(0.1)


class Movers:
    """The lab, the broker and a way to have a number of movers at work; made part of a place below."""

    def __init__(self, bench, bits, jobs_total, own_mounts):
        self.bench, self.folder, self.closing = bench, bench.work / "crew", ExitStack()
        self.folder.mkdir(exist_ok=True)
        self.closing.callback(shutil.rmtree, self.folder, True)
        self.hosts = [f"mover{number}" for number in range(1, MOVERS + 1)]
        try:
            self.lab = Lab({"store": None, "lead": None} | {host: bits for host in self.hosts})
            self.closing.callback(self.lab.close)
            for host in ("lead", *self.hosts) if own_mounts else ():
                self.lab.own_mounts(host)
            self.broker = Broker(self.lab, "lead", self.folder / "broker")
            self.closing.callback(self.broker.close)
            self.sshds = {host: self._sshd(host) for host in ("store", *self.hosts)}
            self._write_ssh()
        except BaseException:
            self.closing.close()
            raise
        self.jobs_total, self.started, self.running = jobs_total, 0, []

    def _sshd(self, host):
        sshd = far.FarHost(self.folder / f"sshd-{host}", self.bench.tools, host, self.lab.words(host), self.lab.addresses[host])
        self.closing.callback(sshd.close)
        return sshd

    def _write_ssh(self):
        """One configuration for all hosts, and an ssh that uses it, for programs that take none."""
        config = self.folder / "ssh-config"
        config.write_text("\n".join(sshd.client() for sshd in self.sshds.values()))
        self.ssh = f"ssh -F {config}"
        self.path = self.folder / "bin"
        self.path.mkdir()
        (self.path / "ssh").write_text(f'#!/bin/sh\nexec /usr/bin/ssh -F {config} "$@"\n')
        (self.path / "ssh").chmod(0o755)

    @contextmanager
    def at_work(self, count, driftless):
        """So many movers of this binary wait for work; yields what goes before the command of the coordinator, and the values for it."""
        self.started += 1
        values = {"queue": self.broker.url, "job": f"run{self.started}", "credentials": self.broker.credentials}
        job = ["--queue", values["queue"], "--job", values["job"], "--queue-credentials", values["credentials"]]
        jobs = ["--jobs", str(self.jobs_total // count)] if self.jobs_total and count else []
        self.running = []
        try:
            for host in self.hosts[:count]:
                self.running.append(self._start(host, driftless, [*job, *jobs]))
            yield self._words(), values | {"hosts": " ".join(self.hosts)}
        finally:
            for mover in self.running:
                mover.terminate()
            for mover in self.running:
                mover.wait()

    def _words(self):
        environment = [f"PATH={self.path}:{os.environ['PATH']}", f"XDG_STATE_HOME={self.folder}"]
        return [*self.lab.words("lead"), "env", *environment]

    def _start(self, host, driftless, arguments):
        log = self.folder / f"{host}.log"
        command = [driftless, "mover", *arguments, "--ssh", self.ssh, "--agent-path", driftless]
        with open(log, "w") as out:
            mover = subprocess.Popen(
                ["setpriv", "--pdeathsig", "KILL", *self.lab.words(host), *command], stderr=out, start_new_session=True, **QUIET)
        deadline = time.monotonic() + READY_SECONDS_MAX
        while "ready for" not in log.read_text():
            if mover.poll() is not None or time.monotonic() > deadline:
                raise RuntimeError(f"a mover did not start: {log.read_text()}")
            time.sleep(0.01)
        return mover

    def kill_one(self):
        """Kills a mover in the middle of what it does."""
        os.killpg(self.running[0].pid, signal.SIGKILL)


class WithMovers:
    """What the places below have in common: a lab that is built when it is first wanted."""

    link_bits = None
    jobs_total = None
    own_mounts = False
    movers = None

    def fresh(self):
        if not self.movers:
            self.movers = Movers(self.bench, self.link_bits, self.jobs_total, self.own_mounts)
            self.ssh = self.movers.ssh
        super().fresh()

    def at_work(self, tool):
        return self.movers.at_work(tool.movers, self.bench.binary(tool))

    def close(self):
        if self.movers:
            self.movers.closing.close()
        super().close()


class CrewLinks(WithMovers, Tmpfs):
    """A new tmpfs for each run, and a source that each mover reaches through its own link of a known rate."""

    link_bits = LINK_BITS

    def __init__(self, bench):
        super().__init__(bench.work)
        self.bench = bench

    def ends(self, src):
        return f"store:{src}", self.dst


class CrewLatency(WithMovers, Latency):
    """Slow requests, and as many of them at a time with one mover as with several; each host has mounts of its own."""

    latency_us = CREW_LATENCY_US
    jobs = jobs_total = JOBS_TOTAL
    own_mounts = True

    def __init__(self, bench):
        super().__init__(bench.work, bench.tools)
        self.bench = bench

    def ends(self, src):
        return src, self.dst

    def _hosts(self):
        """What goes before a command on each host that mounts the file systems."""
        return [self.movers.lab.words(host) for host in self.movers.lab.keepers] if self.movers else []


class Mark(threading.Thread):
    """Waits until so many bytes have arrived in a file system, then acts; knows when that was and how many had."""

    def __init__(self, folder, wanted_bytes, act):
        super().__init__(daemon=True)
        self.folder, self.wanted_bytes, self.act = folder, wanted_bytes, act
        self.at, self.arrived, self.over = None, 0, threading.Event()

    def run(self):
        while not self.over.wait(0.005):
            space = os.statvfs(self.folder)
            self.arrived = (space.f_blocks - space.f_bfree) * space.f_frsize
            if self.arrived >= self.wanted_bytes:
                self.at = time.monotonic()
                return self.act()
