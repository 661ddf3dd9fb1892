"""The machine under the benchmark: what must be installed, what is built, how it is described.

Descriptions go into published documents, so they name no host, no user and no path.
"""

import os
import platform
import re
import shutil
import subprocess
from pathlib import Path

ROOT = Path(__file__).resolve().parent.parent
SOURCES = Path(__file__).resolve().parent / "tools"

# command that must exist -> Debian package that has it
PACKAGES = {
    "gcc": "gcc", "pkg-config": "pkg-config", "fusermount3": "fuse3", "rsync": "rsync", "fpsync": "fpart",
    "rclone": "rclone", "tar": "tar", "cp": "coreutils", "mkfs.ext4": "e2fsprogs", "mkfs.xfs": "xfsprogs",
    "mkfs.btrfs": "btrfs-progs", "cmp": "diffutils", "b3sum": "b3sum", "sshd": "openssh-server",
    "ssh": "openssh-client", "unshare": "util-linux", "ip": "iproute2", "rabbitmqctl": "rabbitmq-server",
    "lsyncd": "lsyncd", "make": "make", "uftp": "uftp", "udp-sender": "udpcast", "sbcast": "slurm-client", "slurmctld": "slurmctld",
    "slurmd": "slurmd", "munged": "munge", "sshfs": "sshfs",
}
# name -> extra arguments for the C compiler
C_TOOLS = {
    "busy": ["-pthread"], "calls": [], "copyfloor": ["-pthread"], "empty": ["-shared", "-fPIC"], "gentree": ["-lm"], "measure": [],
    "relay": [], "latencyfs": None,
}
VERSIONS = {
    "rsync": ["rsync", "--version"], "cp": ["cp", "--version"], "tar": ["tar", "--version"],
    "fpsync": ["fpsync", "-v"], "rclone": ["rclone", "version"], "b3sum": ["b3sum", "--version"],
    "OpenSSH": ["ssh", "-V"], "lsyncd": ["lsyncd", "--version"],
    "Slurm": ["slurmd", "-V"], "uftp": ["dpkg-query", "-W", "-f", "${Version}", "uftp"],
    "udpcast": ["dpkg-query", "-W", "-f", "${Version}", "udpcast"],
}


def output(argv):
    """What a command prints on either stream; empty if it cannot be run."""
    try:
        done = subprocess.run(argv, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True, check=False)
    except OSError:
        return ""
    return done.stdout.strip()


def missing_packages():
    """The Debian packages that the benchmark needs and this machine lacks."""
    lacking = {package for command, package in PACKAGES.items() if not shutil.which(command)}
    if not output(["pkg-config", "--modversion", "fuse3"])[:1].isdigit():
        lacking.add("libfuse3-dev")
    if subprocess.run(["/usr/bin/python3", "-c", "import matplotlib"], capture_output=True, check=False).returncode:
        lacking.add("python3-matplotlib")
    return sorted(lacking)


def install_missing():
    """Installs what is missing, which needs root and a Debian machine."""
    lacking = missing_packages()
    if not lacking:
        return
    print("installing:", " ".join(lacking), flush=True)
    if os.geteuid() != 0 or not shutil.which("apt-get"):
        raise SystemExit("the benchmark needs these packages: " + " ".join(lacking))
    quiet = {"stdout": subprocess.DEVNULL, "env": os.environ | {"DEBIAN_FRONTEND": "noninteractive"}}
    install = ["apt-get", "install", "-y", "-q", "--no-install-recommends", *lacking]
    if subprocess.run(install, check=False, **quiet).returncode:
        subprocess.run(["apt-get", "update", "-q"], check=True, **quiet)
        subprocess.run(install, check=True, **quiet)


def build_c_tools(folder):
    """Compiles the C programs of bench/tools into a folder and returns that folder."""
    folder.mkdir(parents=True, exist_ok=True)
    for name, extra in C_TOOLS.items():
        if extra is None:
            extra = output(["pkg-config", "--cflags", "--libs", "fuse3"]).split()
        source = SOURCES / f"{name}.c"
        subprocess.run(["gcc", "-O2", "-o", str(folder / name), str(source), *extra], check=True)
    return folder


def build_examples(folder):
    """Builds the programs that measure the engine from within, into a folder."""
    subprocess.run(["cargo", "build", "--release", "-p", "driftless-engine", "--example", "often"], cwd=ROOT, check=True)
    target = ROOT / os.environ.get("CARGO_TARGET_DIR", "target")
    shutil.copy(target / "release" / "examples" / "often", folder / "often")


def build_shim(folder):
    """Builds the library that is preloaded, into a folder; returns its path."""
    subprocess.run(["cargo", "build", "--release", "-p", "driftless-shim"], cwd=ROOT, check=True)
    target = ROOT / os.environ.get("CARGO_TARGET_DIR", "target")
    return Path(shutil.copy(target / "release" / "libdriftless_shim.so", folder))


def build_driftless():
    """Builds the release binary and returns its path."""
    subprocess.run(["cargo", "build", "--release", "-p", "driftless"], cwd=ROOT, check=True)
    target = Path(os.environ.get("CARGO_TARGET_DIR", "target"))
    return ROOT / target / "release" / "driftless"


def version_number(text):
    """The first thing in a text that looks like a version."""
    found = re.search(r"\d+\.\d+(\.\d+)?|\d{8}", text)  # or a date
    return found.group(0) if found else "unknown"


def memory_gib():
    """Memory of the machine in GiB, rounded."""
    return round(os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES") / 2**30)


def kernel():
    """The kernel's version without the names that builders append."""
    return re.match(r"[0-9.]+", platform.release()).group(0).rstrip(".")


def describe(driftless):
    """Facts about the machine and the versions of the tools, for the report."""
    versions = {name: version_number(output(argv)) for name, argv in VERSIONS.items()}
    versions["driftless"] = version_number(output([str(driftless), "--version"]))
    return {"cores": os.cpu_count(), "memory_gib": memory_gib(), "kernel": kernel(), "versions": versions}
