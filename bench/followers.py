"""Programs that keep a replica equal while its source changes: a mirror of driftless, and lsyncd.

A follower is used as a context: it is at work when the block begins, and gone when it ends. Its state lies beside the
trees of the benchmark, on the disk.
"""

import json
import os
import shutil
import signal
import subprocess
import time

READY_SECONDS_MAX = 30
END_SECONDS_MAX = 60
# A comparison of millions of entries that have to be copied.
BARRIER_SECONDS_MAX = 1800

LSYNCD = """settings {{ nodaemon = true, logfile = "{log}", insist = true }}
sync {{ default.rsync, source = "{source}", target = "{replica}", delay = {delay},
        rsync = {{ archive = true, acls = true, xattrs = true, hard_links = true }} }}
"""


class Follower:
    """A program that runs until it is ended; its files are in `folder`."""

    end_seconds_max = END_SECONDS_MAX

    def __init__(self, folder):
        self.folder, self.process = folder, None
        shutil.rmtree(folder, ignore_errors=True)
        folder.mkdir()

    def argv(self):
        """The command that runs it."""
        raise NotImplementedError

    def wait_until_ready(self):
        """Waits until it has begun to follow."""

    def __enter__(self):
        with open(self.folder / "said", "wb") as said:
            self.process = subprocess.Popen(
                list(map(str, self.argv())), stdin=subprocess.DEVNULL, stdout=said, stderr=said, start_new_session=True)
        try:
            self.wait_until_ready()
        except BaseException:
            self.__exit__()
            raise
        return self

    def __exit__(self, *_):
        if self.process.poll() is None:
            self.process.terminate()
            try:
                self.process.wait(self.end_seconds_max)
            except subprocess.TimeoutExpired:
                pass
        try:
            os.killpg(self.process.pid, signal.SIGKILL)
        except ProcessLookupError:
            pass
        self.process.wait()

    def check(self):
        """Stops the case if it is gone."""
        if self.process.poll() is not None:
            said = (self.folder / "said").read_text(errors="replace")
            raise RuntimeError(f"it has ended by itself ({self.process.returncode}): {said[-300:]}")

    def processor_seconds(self):
        """User and system time of the process until now."""
        fields = self._proc("stat").rsplit(")", 1)[1].split()
        return (int(fields[11]) + int(fields[12])) / os.sysconf("SC_CLK_TCK")

    def peak_kib(self):
        """Largest resident memory of the process until now."""
        line = next(line for line in self._proc("status").splitlines() if line.startswith("VmHWM"))
        return int(line.split()[1])

    def _proc(self, name):
        with open(f"/proc/{self.process.pid}/{name}", encoding="utf-8") as file:
            return file.read()


class Mirror(Follower):
    """`driftless mirror run` of a job with these further lines; `before` goes before its commands."""

    def __init__(self, bench, trees, keys, before=()):
        folder = bench.work / "mirror"
        super().__init__(folder)
        self.before, self.words = before, [*before, "env", f"XDG_STATE_HOME={folder}", bench.driftless, "mirror"]
        self.job = folder / "job.toml"
        source, replica = trees
        self.job.write_text(f'name = "bench"\nsource = "{source}"\nreplica = "{replica}"\ndelete = true\n{keys}')

    def argv(self):
        return self.command("run")

    def command(self, *words):
        """A command about its job."""
        return [*self.words, *words, self.job]

    def wait_until_ready(self):
        """Until it answers, and all was compared for the first time."""
        deadline = time.monotonic() + READY_SECONDS_MAX
        while subprocess.run(self.command("status"), capture_output=True, check=False).returncode:
            self.check()
            if time.monotonic() > deadline:
                raise RuntimeError("the mirror does not answer")
            time.sleep(0.05)
        self.ask("sync-now", "--wait")

    def ask(self, *words):
        """Has it answer; returns what it prints."""
        done = subprocess.run(
            self.command(*words), capture_output=True, text=True, timeout=BARRIER_SECONDS_MAX, check=False)
        if done.returncode:
            self.check()
            raise RuntimeError(f"mirror {words[0]}: exit {done.returncode}: {done.stderr[-300:]}")
        return done.stdout

    def status(self):
        """What it says of itself."""
        return json.loads(self.ask("status", "--json"))

    def wait_until_idle(self):
        """Until nothing is left to do, and no comparison is under way."""
        self.ask("barrier")
        deadline = time.monotonic() + BARRIER_SECONDS_MAX
        while time.monotonic() < deadline:
            status = self.status()
            if status["left"] == 0 and not status["is_walking"]:
                return
            time.sleep(0.2)
        raise RuntimeError("the mirror does not come to rest")


class Member(Follower):
    """`driftless mirror join` of the job of `mirror`, on the same host."""

    def __init__(self, bench, mirror):
        folder = bench.work / "member"
        super().__init__(folder)
        self.mirror = mirror
        places = (f"XDG_STATE_HOME={folder}", f"DRIFTLESS_RUNTIME_DIR={folder}")
        self.words = [*mirror.before, "env", *places, bench.driftless, "mirror", "join", mirror.job]

    def argv(self):
        return self.words

    def wait_until_ready(self):
        """Until the mirror says that it hears its part."""
        deadline = time.monotonic() + READY_SECONDS_MAX
        while not any(member["hears"] for member in self.mirror.status().get("pool") or ()):
            self.check()
            if time.monotonic() > deadline:
                raise RuntimeError("the member hears nothing")
            time.sleep(0.05)


class Agent(Follower):
    """`driftless watch` of some trees, which hears what is announced below them; `keys` are further lines, `before` goes before its
    commands."""

    def __init__(self, bench, trees, keys="", before=()):
        folder = bench.work / "agent"
        super().__init__(folder)
        self.words = [*before, "env", f"XDG_STATE_HOME={folder}", f"DRIFTLESS_RUNTIME_DIR={folder}", bench.driftless, "watch"]
        self.config, self.map, self.gaps = folder / "node.toml", folder / "shim.map", 0
        listed = ", ".join(f'"{tree}"' for tree in trees)
        self.config.write_text(f'trees = [{listed}]\n{keys}[shim]\nmap = "{self.map}"\nspool = "{folder}/spool"\n')

    def argv(self):
        return [*self.words, self.config]

    def status(self):
        """What it says of itself."""
        done = subprocess.run([*self.argv(), "--status", "--json"], capture_output=True, text=True, check=False)
        return json.loads(done.stdout) if done.returncode == 0 else {"is_running": False}

    def _wait(self, is_so, what):
        deadline = time.monotonic() + READY_SECONDS_MAX
        while not is_so(status := self.status()):
            self.check()
            if time.monotonic() > deadline:
                raise RuntimeError(f"the agent {what}: {status}")
            time.sleep(0.05)
        return status

    def wait_until_ready(self):
        """Until it listens."""
        self.gaps = gaps_of(self._wait(lambda status: status["is_running"], "does not answer"))

    def wait_until_announced(self):
        """Until its broker has confirmed all that it has heard."""
        self._wait(lambda status: status["publisher"]["waiting"] == 0 and not status["publisher"]["away"], "has announced too little")
        self.gaps = gaps_of(self.status())

    def check_heard(self, messages):
        """Stops the case if not so many messages at least were heard, or if something was missed."""
        status = self._wait(lambda status: status["messages"] >= messages and status["spool_files"] == 0, f"has not heard {messages}")
        if status["dropped"] or gaps_of(status) != self.gaps:
            raise RuntimeError(f"something was missed: {status}")


def gaps_of(status):
    """How often something may have been missed."""
    return sum(tree["gaps"]["count"] for tree in status["trees"])


class Lsyncd(Follower):
    """lsyncd, which begins an rsync for what has changed, `delay` seconds after the first change."""

    def __init__(self, bench, trees, delay):
        super().__init__(bench.work / "lsyncd")
        self.config, self.log = self.folder / "config", self.folder / "log"
        source, self.replica = trees
        self.config.write_text(LSYNCD.format(log=self.log, source=f"{source}/", replica=f"{self.replica}/", delay=delay))

    def argv(self):
        return ["lsyncd", self.config]

    def wait_until_ready(self):
        """Until its first rsync of all has ended."""
        deadline = time.monotonic() + READY_SECONDS_MAX
        while "finished." not in (self.log.read_text(errors="replace") if self.log.exists() else ""):
            self.check()
            if time.monotonic() > deadline:
                raise RuntimeError("lsyncd does not begin")
            time.sleep(0.05)
