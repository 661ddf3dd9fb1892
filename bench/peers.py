"""The commands that are compared. In a template, {src} and {dst} are the two trees, {jobs} the parallel jobs and
{ssh} the command that reaches the other host.

A template with `shell` goes through sh; all others are split at blanks and run directly.
"""

import shlex
from dataclasses import dataclass

FLOOR = "floor"
DRIFTLESS = "driftless"
UNSYNCED = "driftless-none"
SUM = "driftless-sum"
VERIFY = "driftless-verify"
VERIFIED = "driftless-verified"
FAR = "driftless-ssh"
OFTEN = "driftless-open"
MIRROR = "mirror"
ONE_SYNC = "one-sync"
SHIM, EMPTY, BARE = "shim", "shim-empty", "shim-none"
CHAIN, POOL, SR3 = "agent-broker-mirror", "agent-broker-pool", "sr3"
LSYNCD, LSYNCD_SLOW = "lsyncd", "lsyncd-15"
RSYNC_DELETE = "rsync-delete"
SEND = "btrfs-send"
CAST = "cast"
JOBS = "jobs"
SBATCH, SERVED, SERVED_CACHED = "sbatch", "served", "served-cached"
COLLECT, PULL, PULL_TASKS, PULL_UNSYNCED = "collect", "rsync-nodes", "rsync-tasks", "rsync-nodes-unsynced"
SCP_ALL, TAR_ALL, SBCAST, UFTP, UDPCAST = "scp-all", "tar-all", "sbcast", "uftp", "udpcast"
MOVERS = ("movers-1", "movers-2", "movers-3")
FORMS = (DRIFTLESS, UNSYNCED, SUM, VERIFY, VERIFIED, FAR, OFTEN, MIRROR, SHIM, CHAIN, POOL, CAST, JOBS, COLLECT, *MOVERS)
RSYNC = "rsync-aHAX"
RSYNC_FAR = "rsync-ssh"
TAR_FAR = "tar-ssh"
LINE = "line"
FPSYNC_FAR = "fpsync-w"
SHARED = (
    "{driftless} sync --queue {queue} --job {job} --queue-credentials {credentials} --ssh {ssh} "
    "--agent-path {driftless} {src} {dst}")


@dataclass(frozen=True)
class Pace:
    """How files are opened, and closes follow each other: so many, and a pause. None is faster than an agent hears one user for long."""

    opened: str  # a word of tools/calls.c
    calls: int
    pause_us: int
    share: int  # one in so many of the calls of a case


BURSTS = ("by its name", "by its whole path")
PACES = {BURSTS[0]: Pace("named", 40, 10_000, 1), BURSTS[1]: Pace("whole", 40, 10_000, 1), "one each 5 ms": Pace("whole", 1, 5_000, 20)}


@dataclass(frozen=True)
class Tool:
    """One way to make a tree equal to another."""

    label: str
    template: str
    shell: bool = False
    movers: int = 0  # how many are at work beside it
    is_before: bool = False  # an earlier state of driftless

    @property
    def remote(self):
        """Whether one of its trees is on another host."""
        return "{ssh}" in self.template

    def argv(self, **values):
        """The words to execute, for real paths."""
        if self.shell:
            quoted = {key: shlex.quote(str(value)) for key, value in values.items()}
            return ["sh", "-c", self.template.format(**quoted)]
        return [word.format(**values) for word in self.template.split()]

    def shown(self, jobs):
        """The command as a reader would type it."""
        return self.template.format(
            src="SRC", dst="far:DST" if self.remote and not self.movers else "DST", ssh="'ssh -F CONFIG'",
            jobs=jobs, bytes="BYTES", queue="URL", job="NAME", credentials="FILE", hosts="'A B C'",
            driftless="driftless", config="CONFIG", hidden=".driftless-snapshots", older="OLDER", newer="NEWER",
            tools="bench/out/bin", tmp="/tmp", nodes="'n[1-8]'", list="NODES", to="DIR", node_dir="STORE", store="STORE",
            agent="driftless", count=8, kbits="KBITS", file="SRC/big", slurm="SLURM.CONF", script="SCRIPT", host="far")


TOOLS = {
    DRIFTLESS: Tool("driftless", "{driftless} sync {src} {dst}"),
    UNSYNCED: Tool("driftless, no sync", "{driftless} sync --durability=none {src} {dst}"),
    FLOOR: Tool("copyfloor", "{tools}/copyfloor {src} {dst} 2"),
    RSYNC: Tool("rsync -aHAX", "rsync -aHAX --numeric-ids {src}/ {dst}/"),
    "rsync-a": Tool("rsync -a", "rsync -a {src}/ {dst}/"),
    "cp": Tool("cp -a", "cp -a {src} {dst}"),
    "tar": Tool("tar pipe", "mkdir {dst} && tar -C {src} -cf - . | tar -C {dst} -xpf -", shell=True),
    "fpsync": Tool("fpsync", "mkdir -p {dst} && fpsync -n {jobs} -t {tmp}/fpsync {src}/ {dst}/", shell=True),
    "rclone": Tool(
        "rclone", "rclone copy --links -M --create-empty-src-dirs --transfers 16 --checkers 16 {src} {dst}"),
    VERIFY: Tool("verify --level=meta", "{driftless} verify --level=meta {src} {dst}"),
    VERIFIED: Tool("sync --verify", "{driftless} sync --verify=content {src} {dst}"),
    FAR: Tool("driftless over ssh", "{driftless} sync --ssh {ssh} --agent-path {driftless} {src} {dst}"),
    RSYNC_FAR: Tool("rsync -aHAX -e ssh", "rsync -aHAX --numeric-ids -e {ssh} {src}/ {dst}/"),
    TAR_FAR: Tool(
        "tar to ssh tar",
        "to={dst}; ssh={ssh}; tar -C {src} -cf - . | "
        '$ssh ${{to%%:*}} "mkdir ${{to#*:}} && tar -C ${{to#*:}} -xpf -"', shell=True),
    LINE: Tool(
        "its bytes through ssh",
        "to={dst}; ssh={ssh}; head -c {bytes} /dev/zero | $ssh ${{to%%:*}} 'cat >/dev/null'", shell=True),
    "movers-3": Tool("3 movers", SHARED, movers=3),
    "movers-2": Tool("2 movers", SHARED, movers=2),
    "movers-1": Tool("1 mover", SHARED, movers=1),
    FPSYNC_FAR: Tool(
        "fpsync -w",
        "mkdir -p {dst} && fpsync -n {jobs} -f 44 -w {hosts} -d {tmp}/fpsync-shared -t {tmp}/fpsync {src}/ {dst}/",
        shell=True),
    SUM: Tool("driftless sum", "{driftless} sum {src}"),
    OFTEN: Tool("trees that stay open", "{tools}/often {src} {dst} 10000"),
    MIRROR: Tool("driftless mirror", "{driftless} mirror run {job}"),
    LSYNCD: Tool("lsyncd, delay 0", "lsyncd {config}"),
    LSYNCD_SLOW: Tool("lsyncd, delay 15", "lsyncd {config}"),
    RSYNC_DELETE: Tool("rsync --delete", "rsync -aHAX --delete --numeric-ids --exclude=/{hidden} {src}/ {dst}/"),
    SEND: Tool("btrfs send", "btrfs send -q --no-data -p {older} {newer} -f /dev/null"),
    ONE_SYNC: Tool("one file and a syncfs", "a file is written, and syncfs(2) waited for"),
    SHIM: Tool("with the shim", "LD_PRELOAD=libdriftless_shim.so COMMAND"),
    EMPTY: Tool("with an empty library", "LD_PRELOAD=bench/out/bin/empty COMMAND"),
    BARE: Tool("without", "COMMAND"),
    CHAIN: Tool("shim, agent, broker and mirror", "{driftless} watch {config}; {driftless} mirror run {job}"),
    POOL: Tool(
        "shim, agent, broker and two mirrors", "{driftless} watch {config}; {driftless} mirror run {job}; {driftless} mirror join {job}"),
    SR3: Tool("sr3 watch and subscribe", "sr3 foreground watch/post; sr3 foreground subscribe/copy"),
    CAST: Tool(
        "driftless cast",
        "{driftless} cast --json {src} --nodes {nodes} --to {to} --node-dir {node_dir} --ssh {ssh} --agent-path {agent} --dir {store}"),
    JOBS: Tool("driftless submit", "{driftless} submit --data {src} -- sbatch {script}"),
    SBATCH: Tool("sbatch", "sbatch {script}"),
    SERVED: Tool("sbatch, data on one server", "sshfs -o ro,allow_other {host}:{src} {to}; sbatch {script}"),
    SERVED_CACHED: Tool(
        "sbatch, data on one server, cached by each node", "sshfs -o ro,allow_other,kernel_cache {host}:{src} {to}; sbatch {script}"),
    COLLECT: Tool("driftless gateway, with results", "{driftless} submit --data {src} --results {to}/%j/%t -- sbatch {script}"),
    PULL: Tool(
        "rsync, one after the other for each node, with --fsync",
        'for node in {nodes}; do rsync -a --fsync --remove-source-files -e {ssh} "$node:{src}/" {to}/; done', shell=True),
    PULL_TASKS: Tool(
        "rsync for each directory of a task, with --fsync",
        'for node in {nodes}; do for task in $({ssh} "$node" ls {src}); do '
        'rsync -a --fsync --remove-source-files -e {ssh} "$node:{src}/$task" {to}/; done; done', shell=True),
    PULL_UNSYNCED: Tool(
        "rsync for each node, not durable before it removes",
        'for node in {nodes}; do rsync -a --remove-source-files -e {ssh} "$node:{src}/" {to}/; done', shell=True),
    SCP_ALL: Tool("scp to each node", "xargs -P {count} -I NODE -a {list} scp -q -F {config} {file} NODE:{to}/big"),
    SBCAST: Tool("sbcast", "env SLURM_CONF={slurm} sbcast --jobid={job} {file} {to}/big"),
    UFTP: Tool("uftp", "uftp -q -I net0 -R {kbits} {file}"),
    UDPCAST: Tool(
        "udpcast",
        "udp-sender --nokbd --no-progress --full-duplex --interface net0 --min-receivers {count} --max-bitrate {kbits}k --file {file}"),
    TAR_ALL: Tool(
        "tar to each node",
        "xargs -P {count} -I NODE -a {list} sh -c 'tar -C \"$1\" -cf - . | $2 NODE \"tar -C $3 -xpf -\"' sh {src} {ssh} {to}", shell=True),
    "b3sum": Tool("b3sum", "find {src} -type f -print0 | xargs -0 b3sum", shell=True),
    "b3sum-1": Tool(
        "b3sum, 1 thread", "find {src} -type f -print0 | xargs -0 b3sum --num-threads 1", shell=True),
    "sha256sum": Tool("sha256sum", "find {src} -type f -print0 | xargs -0 sha256sum", shell=True),
}
COPYING_PEERS = (RSYNC, "rsync-a", "cp", "tar", "fpsync", "rclone")
REPEATING_PEERS = (RSYNC, "rsync-a", "fpsync", "rclone")
HASHING_PEERS = ("b3sum", "b3sum-1", "sha256sum")


def is_peer(key):
    """Whether a tool is one that users have today; the floor and driftless itself are not."""
    return key not in (FLOOR, LINE, ONE_SYNC, SEND, EMPTY, BARE, *FORMS)
