"""The source trees, made when a case first asks for one and removed when the next needs the memory.

All lie in one tmpfs. Sizes for --quick are small enough to prove that everything works, and no more.
"""

import os
import random
import shutil
import subprocess
import sysconfig
from dataclasses import dataclass
from pathlib import Path

REAL_ENTRIES_WANTED = 120_000
CHANGED_BLOCK_BYTES = 64 << 10
CREW_FILE_BYTES = 4 << 20
CAST_MEDIAN_BYTES = 3 << 10


@dataclass(frozen=True)
class Sizes:
    """How large the trees are."""

    entries: int = 1_000_000
    few_entries: int = 10_000
    small_entries: int = 20_000
    latency_entries: int = 4_100
    latency_wide: int = 1_386
    big_bytes: int = 4 << 30
    real_wanted: int = REAL_ENTRIES_WANTED
    sum_entries: int = 125_000
    crew_files: int = 160
    cast_bytes: int = 384 << 20
    cast_slow_bytes: int = 640 << 20
    cast_file_bytes: int = 1 << 30
    cast_entries: int = 100_000
    cast_files: int = 512
    mirror_entries: int = 1_000_000
    live_seconds: int = 60
    peer_seconds: int = 20
    burst_files: int = 100_000
    appends: int = 10_000
    idle_seconds: int = 60
    churn_seconds: int = 600
    rate_seconds: int = 20
    script_lines: int = 2_000
    make_files: int = 120
    close_calls: int = 8_000
    read_calls: int = 1_000_000
    job_tasks: int = 100
    job_bytes: int = 256 << 20
    job_tasks_small: int = 40
    job_bytes_small: int = 32 << 20
    job_bytes_start: int = 8 << 20
    jobs_held: int = 1_000
    held_rest_seconds: int = 60
    result_tasks: int = 50
    result_files: int = 25
    result_bytes: int = 4096


QUICK = Sizes(
    20_000, 2_000, 2_000, 400, 140, 64 << 20, 10_000, 4_000, 16, 32 << 20, 32 << 20, 32 << 20, 2_000, 32, 20_000, live_seconds=3, peer_seconds=3, burst_files=5_000, appends=1_000, idle_seconds=5,
    churn_seconds=10, rate_seconds=2, script_lines=200, make_files=10, close_calls=800, read_calls=40_000,
    job_tasks=16, job_bytes=8 << 20, job_tasks_small=10, job_bytes_small=4 << 20, job_bytes_start=1 << 20, jobs_held=20, held_rest_seconds=5,
    result_tasks=5, result_files=4)


def real_folders():
    """Folders of this machine that are copied together as the real tree, in this order until there is enough."""
    found = subprocess.run(["rustc", "--print", "sysroot"], capture_output=True, text=True, check=False)
    toolchain = [found.stdout.strip()] if found.returncode == 0 else []
    return there([*toolchain, "/usr/share", "/usr/include", "/usr/lib"])


def latency_folders():
    """Folders of some thousand small files, for the file system where each request takes long."""
    return there([sysconfig.get_path("stdlib"), "/usr/share/perl", "/usr/share/zoneinfo", "/usr/share/doc"])


def there(paths):
    """Those that this machine has."""
    return [Path(path) for path in paths if os.path.isdir(path)]


def count(folder):
    """Entries below a folder, regular files among them, and the bytes of these."""
    entries = files = total = 0
    pending = [folder]
    while pending:
        for entry in os.scandir(pending.pop()):
            entries += 1
            if entry.is_dir(follow_symlinks=False):
                pending.append(entry.path)
            elif entry.is_file(follow_symlinks=False):
                files += 1
                total += entry.stat(follow_symlinks=False).st_size
    return {"entries": entries, "files": files, "bytes": total}


class Trees:
    """Makes trees on demand below `root` and keeps at most one of them."""

    def __init__(self, root, tools, sizes):
        self.root = root
        self.generator = tools / "gentree"
        self.sizes = sizes
        self.name = None
        self.facts = None
        self.chance = random.Random(1)

    def get(self, name):
        """The folder of a tree; removes the tree before."""
        folder = self.root / name
        if name != self.name:
            self.clear()
            self.root.mkdir(parents=True, exist_ok=True)
            print(f"making the tree '{name}'", flush=True)
            getattr(self, f"_make_{name}")(folder)
            self.name, self.facts = name, count(folder)
        return folder

    def change(self, path):
        """Overwrites one block in a hundred of a file, each time others and with other bytes."""
        chance = self.chance
        blocks = path.stat().st_size // CHANGED_BLOCK_BYTES
        with open(path, "r+b", buffering=0) as file:
            for block in chance.sample(range(blocks), blocks // 100):
                file.seek(block * CHANGED_BLOCK_BYTES)
                file.write(chance.randbytes(CHANGED_BLOCK_BYTES))

    def change_files(self, folder):
        """Overwrites one block in a hundred of all files together, each time others and with other bytes."""
        files = sorted(path for path in folder.rglob("*") if path.is_file())
        blocks = [(path, at) for path in files for at in range(0, path.stat().st_size, CHANGED_BLOCK_BYTES)]
        for path, at in self.chance.sample(blocks, len(blocks) // 100):
            with open(path, "r+b", buffering=0) as file:
                file.seek(at)
                file.write(self.chance.randbytes(CHANGED_BLOCK_BYTES))

    def clear(self):
        """Removes the tree that is there."""
        subprocess.run(["rm", "-rf", str(self.root)], check=True)
        self.name = None

    def _tree(self, folder, entries, median_bytes, wide):
        wides = ",".join(str(names) for names in wide)
        subprocess.run([self.generator, "tree", folder, str(entries), str(median_bytes), wides], check=True)

    def _generated(self, folder, entries):
        self._tree(folder, entries, 2048, [entries // 20, entries // 25, entries * 3 // 100, entries // 50])

    def _big(self, path):
        subprocess.run([self.generator, "file", path, str(self.sizes.big_bytes)], check=True)

    def _make_generated(self, folder):
        self._generated(folder, self.sizes.entries)

    def _make_few(self, folder):
        self._generated(folder, self.sizes.few_entries)

    def _make_sums(self, folder):
        self._generated(folder, self.sizes.sum_entries)

    def _make_latency(self, folder):
        folder.mkdir()
        self._copy_real(folder, latency_folders(), self.sizes.latency_entries)

    def _make_latency_wide(self, folder):
        self._tree(folder, self.sizes.latency_entries, 4500, [self.sizes.latency_wide])

    def _make_one(self, folder):
        folder.mkdir()
        self._big(folder / "big")

    def _make_crew(self, folder):
        """Files of 4 MiB in four folders, and one file as large as half of them."""
        for number in range(self.sizes.crew_files):
            path = folder / f"folder-{number % 4}" / f"file-{number}"
            path.parent.mkdir(parents=True, exist_ok=True)
            subprocess.run([self.generator, "file", path, str(CREW_FILE_BYTES)], check=True)
        subprocess.run([self.generator, "file", folder / "large", str(self.sizes.crew_files * CREW_FILE_BYTES // 2)], check=True)

    def _make_cast(self, folder):
        self._one(folder, self.sizes.cast_bytes)

    def _make_cast_half(self, folder):
        self._one(folder, self.sizes.cast_bytes // 2)

    def _make_cast_slow(self, folder):
        """A file that takes a minute: finding the slow node takes the same time, whatever the size."""
        self._one(folder, self.sizes.cast_slow_bytes)

    def _make_cast_file(self, folder):
        self._one(folder, self.sizes.cast_file_bytes)

    def _make_cast_small(self, folder):
        self._tree(folder, self.sizes.cast_entries, CAST_MEDIAN_BYTES, [])

    def _make_cast_second(self, folder):
        """Files of 1 MiB in folders of 64."""
        for number in range(self.sizes.cast_files):
            path = folder / f"folder-{number // 64}" / f"file-{number}"
            path.parent.mkdir(parents=True, exist_ok=True)
            path.write_bytes(self.chance.randbytes(1 << 20))

    def _one(self, folder, size):
        folder.mkdir()
        subprocess.run([self.generator, "file", folder / "big", str(size)], check=True)

    def _make_mixed(self, folder):
        folder.mkdir()
        self._generated(folder / "small", self.sizes.small_entries)
        self._big(folder / "big1")
        self._big(folder / "big2")

    def _make_real(self, folder):
        folder.mkdir()
        self._copy_real(folder, real_folders(), self.sizes.real_wanted)

    def _copy_real(self, folder, origins, wanted):
        entries = 0
        for number, origin in enumerate(origins):
            if entries >= wanted:
                break
            copy = folder / f"{number}-{origin.name}"
            self._copy(origin, copy)
            entries += count(copy)["entries"]

    def _copy(self, origin, copy):
        if self.sizes is not QUICK:
            subprocess.run(["cp", "-a", origin, copy], check=True)
            return
        copy.mkdir()
        for part in sorted(origin.iterdir())[:40]:
            if part.is_dir() and not part.is_symlink() and count(part)["bytes"] < 20e6:
                shutil.copytree(part, copy / part.name, symlinks=True)
