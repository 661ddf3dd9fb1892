"""Programs that run beside what is measured, on hosts of a lab. They end with their owner, however that ends."""

import os
import signal
import subprocess
import time
from contextlib import ExitStack

READY_SECONDS_MAX = 30
QUIET = {"stdin": subprocess.DEVNULL, "stdout": subprocess.DEVNULL, "stderr": subprocess.DEVNULL}


class Daemons(ExitStack):
    """Programs on hosts of a cluster. They end with this value, or with the benchmark."""

    def start(self, words, argv, environment=None, errors=subprocess.DEVNULL):
        """Starts a program in the foreground. Its standard error goes to `errors`."""
        command = ["setpriv", "--pdeathsig", "KILL", *map(str, words), *map(str, argv)]
        process = subprocess.Popen(
            command, env=os.environ | (environment or {}), start_new_session=True, **QUIET | {"stderr": errors})
        self.callback(end, process)
        return process


def end(process):
    """Ends a program and its children."""
    try:
        os.killpg(process.pid, signal.SIGKILL)
    except ProcessLookupError:
        pass
    process.wait()


def wait_for(is_so, program, does="start", seconds_max=READY_SECONDS_MAX):
    """Waits until a program has started, or has ended."""
    deadline = time.monotonic() + seconds_max
    while not is_so():
        if time.monotonic() > deadline:
            raise RuntimeError(f"{program} did not {does}")
        time.sleep(0.05)
