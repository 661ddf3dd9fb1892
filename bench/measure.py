"""Runs one command and says what it took: wall, user and system seconds, peak memory, exit code.

The clock and the accounting are in tools/measure.c; this module starts it in a process group of its own, so that
an interrupted benchmark can end everything that the command started.
"""

import os
import signal
import subprocess
import tempfile
import time
from pathlib import Path

STDERR_CHARACTERS_MAX = 400


class Runner:
    """Starts measured commands; `scrub` maps texts such as paths to what may be published instead."""

    def __init__(self, tools, tmp):
        self.launcher = tools / "measure"
        self.tmp = tmp
        self.scrub = {}
        self.ended = 0.0  # when the last command did, by the monotonic clock
        self.environment = os.environ | {"RCLONE_CONFIG": "", "LC_ALL": "C.UTF-8", "TMPDIR": str(tmp)}

    def run(self, argv, sync_dir=None, out=subprocess.DEVNULL):
        """Runs a command; with sync_dir, until all data of that file system is on stable storage. Standard output goes to `out`."""
        result = self.tmp / "result"
        sync = ["--sync", str(sync_dir)] if sync_dir else []
        with tempfile.TemporaryFile("w+", dir=self.tmp) as errors:
            launched = [str(self.launcher), *sync, str(result), *map(str, argv)]
            self._wait(subprocess.Popen(
                launched, stdin=subprocess.DEVNULL, stdout=out, stderr=errors,
                env=self.environment, start_new_session=True))
            self.ended = time.monotonic()
            errors.seek(0)
            return self._record(result, errors.read())

    @staticmethod
    def _wait(process):
        try:
            if process.wait() != 0:
                raise RuntimeError("the launcher failed")
        except BaseException:
            try:
                os.killpg(process.pid, signal.SIGKILL)
            except ProcessLookupError:
                pass
            process.wait()
            raise

    def _record(self, result, errors):
        wall, user, system, peak_kib, status = map(int, result.read_text().split())
        record = {"wall": wall / 1e6, "user": user / 1e6, "sys": system / 1e6, "peak_kib": peak_kib, "exit": status}
        if status:
            record["stderr"] = self.scrubbed(errors)[-STDERR_CHARACTERS_MAX:]
        return record

    def scrubbed(self, text):
        """A text without the paths of this machine."""
        for path, name in self.scrub.items():
            text = text.replace(str(path), name)
        return text.replace(str(Path.home()), "HOME")
