"""Where trees are copied to: fresh file systems in memory, the machine's disk, a file system with slow requests, a
host that is reached over ssh.

A place is used as: `fresh()` before a first copy (the replica does not exist), `again()` before a repeated one (it
does, caches as after a remount where that is cheap and fair), `close()` at the end. Nothing of it is timed.
"""

import os
import shutil
import subprocess
import time
from contextlib import ExitStack, contextmanager, nullcontext

import far

IMAGE_BYTES = 32 << 30  # sparse: only what is written takes memory
MKFS = {
    "ext4": ["mkfs.ext4", "-q", "-F"],
    "xfs": ["mkfs.xfs", "-q", "-f"],
    "btrfs": ["mkfs.btrfs", "-q", "-f"],
}
LATENCY_US = 500
LINE_DELAY_US = 20_000  # each way
READY_SECONDS_MAX = 10


def run(*argv):
    """Runs a helper command and stops the benchmark if it fails."""
    subprocess.run([str(word) for word in argv], check=True, stdout=subprocess.DEVNULL)


def is_mount(folder, words=()):
    """Whether something is mounted there, on the host that `words` before a command stand for."""
    if not words:
        return os.path.ismount(folder)
    return subprocess.run([*words, "mountpoint", "-q", folder], check=False).returncode == 0


def unmount(folder, words=()):
    """Unmounts a folder if something is mounted there; waits for the last user to let go."""
    for _ in range(50):
        if not is_mount(folder, words):
            return
        if subprocess.run([*words, "umount", str(folder)], check=False, capture_output=True).returncode != 0:
            time.sleep(0.1)
    subprocess.run([*words, "umount", "-l", str(folder)], check=False)


def mount_tmpfs(folder):
    """Mounts a tmpfs that may use nearly all memory and any number of inodes."""
    folder.mkdir(parents=True, exist_ok=True)
    run("mount", "-t", "tmpfs", "-o", "size=95%,nr_inodes=0", "driftless-bench", folder)


class Place:
    """A place without tricks; subclasses say how it becomes empty."""

    synced = True  # whether commands are timed together with a final sync of the file system
    jobs = 2
    ssh = ""  # the command that reaches the other host, if there is one

    def __init__(self, work):
        self.mount = work / "place"
        self.mount.mkdir(parents=True, exist_ok=True)
        self.dst = self.mount / "dst"
        self.src_mount = self.mount  # where a source is made that changes

    def src(self, tree):
        """The path at which the tools see a source tree."""
        return tree

    def ends(self, src):
        """Source and replica as a tool that goes over ssh names them."""
        raise NotImplementedError(f"{type(self).__name__} is not remote")

    def again(self):
        """Prepares for a run over a replica that exists."""

    def at_work(self, _tool):
        """Whoever must be at work beside a tool; yields the words that go before its command, and more values for it."""
        return nullcontext(([], {}))

    def close(self):
        """Gives everything back."""
        unmount(self.mount)


class Tmpfs(Place):
    """A new tmpfs for each run."""

    synced = False

    def fresh(self):
        unmount(self.mount)
        mount_tmpfs(self.mount)


class Image(Place):
    """A new file system in a sparse image file, loop-mounted: in memory, or with direct I/O on the disk.

    On the disk too each run gets a new file system: removing a large tree there can take longer than all copies,
    and what has just been removed slows down what is created next.
    """

    def __init__(self, work, kind, folder, direct=False):
        super().__init__(work)
        self.kind, self.direct = kind, direct
        self.image = folder / f"{kind}.img"

    def fresh(self):
        self.close()
        self.image.parent.mkdir(parents=True, exist_ok=True)
        with open(self.image, "wb") as image:
            image.truncate(IMAGE_BYTES)
        run(*MKFS[self.kind], self.image)
        if self.direct:
            run("sync", "-f", self.image)
        attach = ["losetup", "--find", "--show", f"--direct-io={'on' if self.direct else 'off'}", str(self.image)]
        device = subprocess.run(attach, check=True, capture_output=True, text=True).stdout.strip()
        try:
            run("mount", device, self.mount)
        finally:
            run("losetup", "-d", device)  # while it is mounted: the kernel detaches it after the unmount

    def close(self):
        super().close()
        self.image.unlink(missing_ok=True)


class Pair(Image):
    """Two such file systems, so that what is written to the replica is not heard of at the source."""

    def __init__(self, work, kind, folder, direct=False):
        super().__init__(work, kind, folder, direct)
        self.source = Image(work / "source", kind, folder / "source", direct)
        self.src_mount = self.source.mount

    def fresh(self):
        super().fresh()
        self.source.fresh()

    def close(self):
        self.source.close()
        super().close()


class OverSsh:
    """What is added to a place whose replica, or on request whose source, is reached over ssh, on request through a line with delay."""

    def __init__(self, *here, work, tools, pull=False, delay_us=0):
        super().__init__(*here)
        self.folder, self.tools, self.pull, self.delay_us = work / "far", tools, pull, delay_us
        self.host, self.opened = None, ExitStack()

    def fresh(self):
        super().fresh()
        if not self.host:
            self._start()

    def _start(self):
        self.host = far.FarHost(self.folder, self.tools)
        self.opened.callback(self.host.close)
        self.ssh = self.near = self.host.ssh()
        if self.delay_us:
            self.ssh = self.host.ssh(self.opened.enter_context(self.host.relay(self.delay_us)).port)

    def ends(self, src):
        there = f"{far.NAME}:{src if self.pull else self.dst}"
        return (there, self.dst) if self.pull else (src, there)

    @contextmanager
    def without_delay(self):
        """The same host, reached directly."""
        usual, self.ssh = self.ssh, self.near
        try:
            yield
        finally:
            self.ssh = usual

    @contextmanager
    def counted(self):
        """The same host, reached through a relay that counts; yields that relay."""
        usual = self.ssh
        with self.host.relay() as relay:
            self.ssh = self.host.ssh(relay.port)
            try:
                yield relay
            finally:
                self.ssh = usual

    def close(self):
        self.opened.close()
        self.host = None
        super().close()


class RemoteTmpfs(OverSsh, Tmpfs):
    """A new tmpfs for each run."""


class RemoteXfs(OverSsh, Image):
    """A new xfs in memory, which can share blocks between files."""


class Latency(Place):
    """Two mounts of latencyfs over a tmpfs, source and replica, mounted anew before each run."""

    jobs = 16
    latency_us = LATENCY_US

    def __init__(self, work, tools):
        super().__init__(work)
        self.program = tools / "latencyfs"
        self.below = work / "mem" / "below"
        self.sides = {"src": work / "src", "dst": work / "dst"}
        self.roots = {"src": work / "mem" / "trees", "dst": self.below}
        self.daemons = []
        self.dst = self.sides["dst"] / "copy"

    def src(self, tree):
        return self.sides["src"] / tree.relative_to(self.roots["src"])

    def fresh(self):
        self._unmount()
        shutil.rmtree(self.below, ignore_errors=True)
        self.again()

    def again(self):
        self._unmount()
        for side, folder in self.sides.items():
            folder.mkdir(exist_ok=True)
            self.roots[side].mkdir(exist_ok=True)
            self._mount(self.roots[side], folder)

    def close(self):
        self._unmount()
        shutil.rmtree(self.below, ignore_errors=True)

    def _hosts(self):
        """What goes before a command on each host that mounts the file systems."""
        return [[]]

    def _mount(self, root, folder):
        delays = [f"--meta-us={self.latency_us}", f"--data-us={self.latency_us}"]
        for words in self._hosts():
            daemon = subprocess.Popen(
                [*words, self.program, f"--root={root}", *delays, folder, "-f"], start_new_session=True,
                stdin=subprocess.DEVNULL, stdout=subprocess.DEVNULL)
            self.daemons.append(daemon)
            deadline = time.monotonic() + READY_SECONDS_MAX
            while not is_mount(folder, words):
                if daemon.poll() is not None or time.monotonic() > deadline:
                    raise RuntimeError("latencyfs did not start")
                time.sleep(0.01)

    def _unmount(self):
        for words in self._hosts():
            for folder in self.sides.values():
                unmount(folder, words)
        for daemon in self.daemons:
            try:
                daemon.wait(READY_SECONDS_MAX)
            except subprocess.TimeoutExpired:
                daemon.kill()
                daemon.wait()
        self.daemons.clear()


REMOTE = {"ssh": {}, "ssh-pull": {"pull": True}, "ssh-delay": {"delay_us": LINE_DELAY_US}}
REMOTE_XFS = "ssh-xfs"


def open_place(name, bench):
    """The place that a case names."""
    if name == "tmpfs":
        return Tmpfs(bench.work)
    if name == "disk":
        return Image(bench.work, "ext4", bench.disk, direct=True)
    if name == "pair-disk":
        return Pair(bench.work, "ext4", bench.disk, direct=True)
    if name == "pair-btrfs":
        return Pair(bench.work, "btrfs", bench.work / "mem")
    if name == "latencyfs":
        return Latency(bench.work, bench.tools)
    if name in REMOTE:
        return RemoteTmpfs(bench.work, work=bench.work, tools=bench.tools, **REMOTE[name])
    if name == REMOTE_XFS:
        return RemoteXfs(bench.work, "xfs", bench.work / "mem", work=bench.work, tools=bench.tools)
    return Image(bench.work, name, bench.work / "mem")
