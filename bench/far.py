"""A host that is reached over ssh: an sshd of our own on the loopback interface, or in a namespace that `words` enter, and relays that lie on the way to it.

Keys, settings and log lie in one folder; the machine's own server, keys and settings are neither used nor changed. The
server and its sessions are in a process namespace of their own, so that none of them outlives the benchmark, however it
ends; a relay ends with its standard input. Sessions have an empty home, so that no tool pays for what the owner of this
machine lets a shell do at its start.
"""

import shutil
import socket
import subprocess
import time
from contextlib import contextmanager
from pathlib import Path

NAME = "far"
PROGRAM = "/usr/sbin/sshd"  # it starts itself anew for each connection and wants to know where it is
LOCKED_IN = Path("/run/sshd")  # where it locks itself in before anybody has logged in
SHADOW = Path("/etc/shadow")
CAGE = ["setpriv", "--pdeathsig", "KILL", "unshare", "--pid", "--fork", "--kill-child"]
STARTS_MAX = 10  # between looking for a free port and listening on it, somebody else may take it
READY_SECONDS_MAX = 20

SERVER = """\
ListenAddress {address}
Port {port}
HostKey {folder}/host
AuthorizedKeysFile {folder}/login.pub
PidFile none
UsePAM no
StrictModes no
UseDNS no
PermitRootLogin prohibit-password
PasswordAuthentication no
KbdInteractiveAuthentication no
MaxStartups 1000
MaxSessions 1000
PrintMotd no
Subsystem sftp internal-sftp
SetEnv HOME={folder}/home
"""
CLIENT = """\
Host {name}
 HostName {address}
 Port {port}
 User root
 HostKeyAlias {name}
 UserKnownHostsFile {folder}/known_hosts
 GlobalKnownHostsFile /dev/null
 StrictHostKeyChecking yes
 UpdateHostKeys no
 IdentityFile {folder}/login
 IdentitiesOnly yes
 IdentityAgent none
 BatchMode yes
 ConnectTimeout 10
 LogLevel ERROR
"""


class FarHost:
    """Runs until it is closed. `ssh()` is the command that reaches it."""

    def __init__(self, folder, tools, name=NAME, words=(), address="127.0.0.1"):
        self.folder, self.relay_program = folder, tools / "relay"
        self.name, self.words, self.address = name, words, address
        self.server, self.port = None, 0
        shutil.rmtree(folder, ignore_errors=True)
        folder.mkdir(mode=0o700)
        (folder / "home").mkdir()
        try:
            prepare_machine()
            self._make_keys()
            self._start()
        except BaseException:
            self.close()
            raise

    def ssh(self, port=None):
        """`ssh -F FILE` as one text, for options that take a command; through a relay if its port is given."""
        port = port or self.port
        config = self.folder / f"client-{port}"
        if not config.exists():
            config.write_text(self.client(port))
        return f"ssh -F {config}"

    def client(self, port=None):
        """What a client's configuration says about this host."""
        values = {"name": self.name, "address": self.address, "port": port or self.port, "folder": self.folder}
        return CLIENT.format(**values)

    @contextmanager
    def relay(self, delay_us=0):
        """A relay on the way to the host."""
        argv = [self.relay_program, str(delay_us), str(self.port)]
        process = subprocess.Popen(
            argv, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True, start_new_session=True)
        with process:
            try:
                yield Relay(process)
            finally:
                process.kill()

    def close(self):
        """Ends the server, all its sessions, and removes the keys."""
        if self.server:
            self.server.kill()
            self.server.wait()
            self.server = None
        shutil.rmtree(self.folder, ignore_errors=True)

    def _make_keys(self):
        for key in ("host", "login"):
            make = ["ssh-keygen", "-q", "-t", "ed25519", "-N", "", "-C", "driftless-bench", "-f", self.folder / key]
            subprocess.run(make, check=True)
        (self.folder / "known_hosts").write_text(f"{self.name} {(self.folder / 'host.pub').read_text()}")

    def _start(self):
        for _ in range(STARTS_MAX):
            self.port = free_port()
            config, log = self.folder / "server", self.folder / "log"
            config.write_text(SERVER.format(address=self.address, port=self.port, folder=self.folder))
            log.unlink(missing_ok=True)
            self.server = subprocess.Popen(
                [*CAGE, *self.words, PROGRAM, "-D", "-f", config, "-E", log], start_new_session=True,
                stdin=subprocess.DEVNULL, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
            if self._listens(log):
                return
        raise RuntimeError("sshd found no free port")

    def _listens(self, log):
        """Waits until it says that it listens; false if the port is taken."""
        deadline = time.monotonic() + READY_SECONDS_MAX
        while True:
            ended = self.server.poll() is not None
            said = log.read_text() if log.exists() else ""
            if "Server listening on" in said:
                return True
            if "Address already in use" in said:
                self.server.wait()
                return False
            if ended or time.monotonic() > deadline:
                raise RuntimeError(f"sshd did not start: {said}")
            time.sleep(0.01)


class Relay:
    """A running relay: its port, and what passed through it."""

    def __init__(self, process):
        self.process = process
        self.port = int(process.stdout.readline())

    def passed(self):
        """Bytes that passed so far, both ways together, when no connection is open any more."""
        deadline = time.monotonic() + READY_SECONDS_MAX
        while True:
            self.process.stdin.write("\n")
            self.process.stdin.flush()
            there, back, still_open = map(int, self.process.stdout.readline().split())
            if not still_open:
                return there + back
            if time.monotonic() > deadline:
                raise RuntimeError("a connection stays open")
            time.sleep(0.01)


def prepare_machine():
    """Makes the folder that sshd wants. A locked account is its owner's matter: it is not unlocked here."""
    LOCKED_IN.mkdir(exist_ok=True)
    if any(line.startswith("root:!") for line in SHADOW.read_text().splitlines()):
        raise RuntimeError("root's account is locked, so sshd lets nobody in: usermod --password '*' root")


def free_port():
    """A port of the loopback interface that nobody has right now."""
    with socket.create_server(("127.0.0.1", 0)) as probe:
        return probe.getsockname()[1]
