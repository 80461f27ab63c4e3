"""The main program of a process that tests kill: it logs events, and reads commands from its standard input."""

import json
import os
import signal
import sys
import threading
import time
from typing import Any

OUT = 1
FENCED = 3
"""The exit code of a process that was fenced by another one."""


def note(what: str, *details: object) -> None:
    """One line with the time, in one write: what was noted stays, whenever the process is killed."""
    os.write(OUT, (json.dumps([time.monotonic(), what, *details]) + "\n").encode())


def options() -> dict[str, Any]:
    """What the test wants of this process."""
    return json.loads(sys.argv[1])


class Orders:
    """Lines on standard input: `stop`, `die STEP` or `freeze STEP`. Where they end, the test is gone."""

    def __init__(self) -> None:
        self.stopping = threading.Event()
        self._at_step: dict[str, str] = {}
        threading.Thread(target=self._read, daemon=True).start()

    def _read(self) -> None:
        for line in sys.stdin:
            order, _, step = line.strip().partition(" ")
            if order == "stop":
                self.stopping.set()
            else:
                self._at_step[step] = order
        os._exit(0)

    def at(self, step: str) -> None:
        """A place to die at, with no chance to do anything more; or to freeze at, and know nothing of it."""
        order = self._at_step.pop(step, None)
        if order == "die":
            note("died", step)
            os.kill(os.getpid(), signal.SIGKILL)
        elif order == "freeze":
            note("frozen", step)
            os.kill(os.getpid(), signal.SIGSTOP)
            note("thawed", step)
