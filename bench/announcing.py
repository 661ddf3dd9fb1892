"""The procedures about changes that are announced through a broker: how long from the close of a file to its place on a replica.

All that takes part runs on one host of a lab, with a broker of its own: a program that writes under the shim, the agent that it
tells, and a mirror that hears of the broker alone. Beside it stands `sr3`, as its makers have it: one that watches, one that copies.
"""

import json
import os
import shutil
import subprocess
import time
from contextlib import ExitStack, contextmanager
from pathlib import Path

import machine
from crew import PASSWORD, USER, Broker, Lab
from followers import READY_SECONDS_MAX, Agent, Follower, Member, Mirror
from following import FOLDERS, compare, record, trees
from peers import CHAIN, POOL, SHIM
from shims import loaded

HOST = "node"
TABLE = '[{name}]\nbroker = "{url}"\ncredentials = "{credentials}"\nexchange = "xs_bench"\n'
FOLLOW = 'detect = ["announcements"]\n'
# Of small files, so that a mirror of one host can follow.
RATE_BYTES = 100
RATE_FOLDERS = 100

SR3_WATCH = """post_broker {url}
post_exchange xs_bench
post_baseUrl file:{source}
post_baseDir {source}
path {source}
"""
SR3_SUBSCRIBE = """broker {url}
exchange xs_bench
topicPrefix v03
queueName q_bench.subscribe.copy.test
instances 1
mirror True
baseDir {source}
directory {replica}
nodupe_ttl 0
subtopic #
accept .*
"""


@contextmanager
def broker(scene):
    """A broker on a host of its own, for a while."""
    folder = scene.bench.work / "announced"
    folder.mkdir()
    with ExitStack() as closing:
        closing.callback(shutil.rmtree, folder, True)
        lab = Lab({HOST: None})
        closing.callback(lab.close)
        running = Broker(lab, HOST, folder / "broker")
        closing.callback(running.close)
        yield running


@contextmanager
def chain(scene, at, both):
    """An agent that announces at a broker, and a mirror that hears of it; yields both when they are at rest."""
    def table(name):
        return TABLE.format(name=name, url=at.url, credentials=at.credentials)
    keys = f"{FOLLOW}{table('announcements')}queue = \"q_bench.mirror\"\n"
    with Agent(scene.bench, both[:1], table("publish"), at.words) as agent:
        with Mirror(scene.bench, both, keys, at.words) as mirror:
            agent.wait_until_announced()
            mirror.wait_until_idle()
            yield agent, mirror


def written(scene, agent, both, files, *words):
    """Has files written by a program with the shim; returns what was seen of them on the replica. None may have been missed."""
    argv = loaded(scene, SHIM, agent, [scene.bench.tools / "busy", "files", *both, files, *words])
    seen = json.loads(subprocess.run(argv, capture_output=True, text=True, check=True).stdout)
    agent.check_heard(files)
    return seen


def announced(scene):
    """So many new files a second: how long until each is on the replica, for each tool in turn."""
    sizes, rate = scene.bench.trees.sizes, scene.case.rate
    for tool in scene.case.tools:
        if tool != CHAIN and not Sr3.is_there():
            scene.bench.say(f"{scene.case.name}: sr3 is not there (make test-packages)")
            continue
        both = trees(scene, FOLDERS)
        with broker(scene) as at:
            if tool == CHAIN:
                with chain(scene, at, both) as (agent, mirror):
                    seen = written(scene, agent, both, rate * sizes.live_seconds, rate, 4096, FOLDERS)
                    mirror.ask("barrier")
                    compare(scene, *both)
            else:
                with Sr3(scene.bench, both, at, "subscribe/copy"), Sr3(scene.bench, both, at, "watch/post") as watch:
                    watch.wait_until_followed()
                    words = ["files", *both, rate * sizes.peer_seconds, rate, 4096, FOLDERS]
                    done = subprocess.run([scene.bench.tools / "busy", *map(str, words)], capture_output=True, text=True, check=True)
                    seen = json.loads(done.stdout)
        record(scene, tool, {name: seen[name] for name in ("p50", "p99", "missing", "rate")})


def announced_rate(scene):
    """More events a second than are asked for, for a while, for each tool in turn: are all files there, and at which rate have they
    come?"""
    rate = scene.case.rate
    files = rate * scene.bench.trees.sizes.rate_seconds
    for tool in scene.case.tools:
        both = trees(scene, RATE_FOLDERS)
        with broker(scene) as at, chain(scene, at, both) as (agent, mirror), ExitStack() as helping:
            if tool == POOL:
                helping.enter_context(Member(scene.bench, mirror))
            seen = written(scene, agent, both, files, rate, RATE_BYTES, RATE_FOLDERS)
            mirror.ask("barrier")
            took = seen["seen"] - (seen["closed"] - files / seen["rate"])
            figures = {"missing": seen["missing"], "rate": seen["rate"], "arrivals": files / took, "p99": seen["p99"]}
            record(scene, tool, figures)
            compare(scene, *both)


class Sr3(Follower):
    """A component of `sr3` in the foreground, such as "watch/post", with a home of its own."""

    end_seconds_max = 1  # it does not end by itself

    def __init__(self, bench, both, at, component):
        super().__init__(bench.work / component.replace("/", "-"))
        self.component, self.words, (self.source, self.replica) = component, at.words, both
        kind, name = component.split("/")
        settings = self.folder / ".config" / "sr3"
        (settings / kind).mkdir(parents=True)
        (self.folder / ".cache" / "sr3" / kind / name).mkdir(parents=True)
        text = {"watch": SR3_WATCH, "subscribe": SR3_SUBSCRIBE}[kind]
        (settings / kind / f"{name}.conf").write_text(text.format(url=at.url, source=self.source, replica=self.replica))
        credentials = settings / "credentials.conf"
        credentials.write_text(at.url.replace(f"{USER}@", f"{USER}:{PASSWORD}@") + "\n")
        credentials.chmod(0o600)

    @staticmethod
    def program():
        """Where `make test-packages` puts it."""
        return machine.ROOT / Path(os.environ.get("CARGO_TARGET_DIR", "target")) / "sr3" / "bin" / "sr3"

    @classmethod
    def is_there(cls):
        """Whether there is one."""
        return cls.program().exists()

    def _command(self, *words):
        return [*self.words, "env", "-i", f"HOME={self.folder}", "PATH=/usr/bin:/bin", self.program(), *words]

    def argv(self):
        return self._command("foreground", self.component)

    def __enter__(self):
        subprocess.run(list(map(str, self._command("declare", self.component))), check=True, capture_output=True)
        return super().__enter__()

    def wait_until_followed(self):
        """Until a file that is written comes to the replica: it begins to hear some seconds after its start."""
        deadline = time.monotonic() + READY_SECONDS_MAX
        while not (self.replica / "probe").exists():
            self.check()
            if time.monotonic() > deadline:
                raise RuntimeError("sr3 copies nothing")
            (self.source / "probe").write_text("1")
            time.sleep(0.5)


KINDS = (announced, announced_rate)
