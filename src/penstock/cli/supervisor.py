"""Child processes of `penstock dev` and `serve --processes`: start, restart and stop.

No child outlives this process, even if it crashes: the kernel signals children of a dead parent (PR_SET_PDEATHSIG).
"""

import asyncio
import contextlib
import ctypes
import os
import signal
import sys
from collections.abc import Awaitable, Callable, Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from random import Random
from typing import IO, Final

from penstock.client.retry import Backoff
from penstock.foundation.errors import PenstockError

PENSTOCK: Final = str(Path(sys.executable).with_name("penstock"))
READY: Final = "penstock is ready: "
START_S: Final = 60.0
STOP_S: Final = 40.0
"""Seconds that a child may take to stop before it is killed. A broker may take 15 s to leave its cluster cleanly."""
RESTART_FIRST_S: Final = 0.5
RESTART_MAX_S: Final = 30.0
STABLE_S: Final = 60.0
"""Seconds that a process must have run so that its next restart begins with the shortest backoff again."""
_PAUSE_S: Final = 0.05
_TAIL_LINES: Final = 8
_PR_SET_PDEATHSIG: Final = 1


class ChildFailed(PenstockError):
    """A child process exited before it was ready, was not ready in time, or could not be started."""


def die_with_parent(number: signal.Signals) -> Callable[[], None]:
    """Returns a preexec function that makes the kernel send signal `number` to the child when its parent dies.
    The kernel watches the thread that forks, not the process, so start children from the main thread."""
    prctl = ctypes.CDLL(None).prctl  # looked up before the fork: little is safe to call after it
    parent = os.getpid()

    def before_exec() -> None:
        prctl(_PR_SET_PDEATHSIG, int(number), 0, 0, 0)
        if os.getppid() != parent:  # the parent died before prctl took effect
            os._exit(1)

    return before_exec


@dataclass(frozen=True, slots=True, kw_only=True)
class Program:
    """A command to run as a child process."""

    name: str
    command: Sequence[str]
    log: Path | None = None
    """File for all output (appended). None: output is inherited, but the standard output of a broker is discarded."""
    is_ready: Callable[[], Awaitable[bool]] | None = None
    """Function that checks whether the program is ready; None for a broker, which prints a line when it is ready."""
    parent_death_signal: signal.Signals = signal.SIGKILL
    """The signal that the program receives when this process dies."""


class Child:
    """One program and its current process; a restart replaces the process."""

    def __init__(self, program: Program) -> None:
        self.program = program
        self.ready_line = ""
        """The line that a broker printed when it was ready."""
        self._process: asyncio.subprocess.Process | None = None
        self._reading: asyncio.Task[None] | None = None
        self._ready_printed = asyncio.Event()

    @property
    def name(self) -> str:
        return self.program.name

    @property
    def pid(self) -> int | None:
        """The process id; None while the process is not running."""
        return self._process.pid if self._process is not None and self._process.returncode is None else None

    async def start(self) -> None:
        """Starts the process; returns when it is ready. Otherwise raises ChildFailed with the end of its log."""
        self._ready_printed.clear()
        self._process = process = await self._make_process()
        if process.stdout is not None:
            self._reading = asyncio.create_task(self._read(process.stdout))
        ready, ended = asyncio.create_task(self._until_ready()), asyncio.create_task(process.wait())
        try:
            await asyncio.wait((ready, ended), timeout=START_S, return_when=asyncio.FIRST_COMPLETED)
            if ended.done():
                raise ChildFailed(f"{self.name} ended with {self._exit_status()} before it was ready{self._tail()}")
            if not ready.done():
                raise ChildFailed(f"{self.name} was not ready after {START_S:g} s{self._tail()}")
        except BaseException:
            self.signal(signal.SIGKILL)
            await self.ended()
            raise
        finally:
            ready.cancel()
            ended.cancel()

    async def _make_process(self) -> asyncio.subprocess.Process:
        program = self.program
        with self._output() as output:
            try:
                # A new session: Ctrl-C on the terminal reaches only us, and we stop the children in order.
                return await asyncio.create_subprocess_exec(
                    *program.command,
                    stdin=asyncio.subprocess.DEVNULL,
                    stdout=asyncio.subprocess.PIPE if program.is_ready is None else output,
                    stderr=output,
                    start_new_session=True,
                    preexec_fn=die_with_parent(program.parent_death_signal),
                )
            except OSError as error:
                raise ChildFailed(f"{self.name} cannot be run: {program.command[0]}: {error.strerror}") from error

    @contextlib.contextmanager
    def _output(self) -> Iterator[IO[bytes] | None]:
        if self.program.log is None:
            yield None
        else:
            with self.program.log.open("ab") as log:
                yield log

    async def _read(self, output: asyncio.StreamReader) -> None:
        """Reads standard output: stores the line that a ready broker prints; copies all lines to the log, if any."""
        async for line in output:
            text = line.decode(errors="replace").rstrip()
            if text.startswith(READY):
                self.ready_line = text
                self._ready_printed.set()
            if self.program.log is not None:
                with self.program.log.open("ab") as log:
                    log.write(line)

    async def _until_ready(self) -> None:
        if self.program.is_ready is None:
            await self._ready_printed.wait()
            return
        while True:
            if await self.program.is_ready():
                return
            await asyncio.sleep(_PAUSE_S)

    def _exit_status(self) -> str:
        assert self._process is not None
        code = self._process.returncode
        return f"signal {signal.Signals(-code).name}" if code is not None and code < 0 else f"code {code}"

    def _tail(self) -> str:
        log = self.program.log
        if log is None:
            return "; see above"
        lines = log.read_text(errors="replace").splitlines()[-_TAIL_LINES:]
        return f"; the end of {log}:\n" + "\n".join(lines)

    async def ended(self) -> str:
        """Waits for the process to exit; returns its exit code or signal as text."""
        assert self._process is not None
        await self._process.wait()
        if self._reading is not None:
            await self._reading
        return self._exit_status()

    def signal(self, number: signal.Signals) -> None:
        if self.pid is not None:
            assert self._process is not None
            with contextlib.suppress(ProcessLookupError):
                self._process.send_signal(number)

    async def stop(self) -> bool:
        """Sends SIGTERM and waits for the process to exit; kills it after STOP_S. Returns False if it was killed."""
        if self._process is None:
            return True
        self.signal(signal.SIGTERM)
        try:
            async with asyncio.timeout(STOP_S):
                await self.ended()
        except TimeoutError:
            self.signal(signal.SIGKILL)
            await self.ended()
            return False
        return True


async def start_all(children: Sequence[Child]) -> None:
    """Starts all children concurrently; returns when all are ready. If a child fails, raises its error and kills
    the children that are still starting; the caller must stop the others."""
    starting = [asyncio.create_task(child.start()) for child in children]
    try:
        await asyncio.gather(*starting)
    except BaseException:
        for task in starting:
            task.cancel()
        await asyncio.gather(*starting, return_exceptions=True)
        raise


class Supervisor:
    """Watches running children: reports each exit, and restarts the child if `restarts` is set."""

    def __init__(self, *, restarts: bool, report: Callable[[str], None], on_change: Callable[[], None]) -> None:
        """`report` receives a line of text per event; `on_change` is called when a process has started or exited."""
        self._restarts = restarts
        self._report = report
        self._on_change = on_change
        self._tasks: dict[Child, asyncio.Task[None]] = {}
        self._rng = Random()

    def watch(self, child: Child) -> None:
        self._tasks[child] = asyncio.create_task(self._supervise(child))

    async def all_ended(self, children: Sequence[Child]) -> None:
        """Returns when all `children` have exited; never, if exited children are restarted."""
        await asyncio.gather(*(self._tasks[child] for child in children))

    def _backoff(self) -> Backoff:
        return Backoff(self._rng, first_s=RESTART_FIRST_S, max_s=RESTART_MAX_S)

    async def _supervise(self, child: Child) -> None:
        clock = asyncio.get_running_loop().time
        backoff = self._backoff()
        while True:
            began_s = clock()
            self._report(f"{child.name} ended with {await child.ended()}")
            self._on_change()
            if not self._restarts:
                return
            if clock() - began_s > STABLE_S:
                backoff = self._backoff()
            await self._restart(child, backoff)

    async def _restart(self, child: Child, backoff: Backoff) -> None:
        while True:
            wait_s = backoff.next_s()
            self._report(f"{child.name} restarts in {wait_s:.1f} s")
            await asyncio.sleep(wait_s)
            try:
                await child.start()
            except ChildFailed as error:
                self._report(str(error))
                continue
            self._report(f"{child.name} restarted, pid {child.pid}")
            self._on_change()
            return

    async def stop(self, *groups: Sequence[Child]) -> None:
        """Stops the groups of children one after another; the children of one group stop concurrently."""
        for task in self._tasks.values():
            task.cancel()
        await asyncio.gather(*self._tasks.values(), return_exceptions=True)
        for group in groups:
            results = await asyncio.gather(*(child.stop() for child in group))
            for child, stopped_cleanly in zip(group, results, strict=True):
                if not stopped_cleanly:
                    self._report(f"{child.name} did not stop within {STOP_S:g} s and was killed")


async def run_until_signal(work: Awaitable[None], children: Sequence[Child]) -> None:
    """Runs `work`; cancels it on SIGINT, SIGTERM or SIGHUP. A second signal kills the children."""
    loop, stop = asyncio.get_running_loop(), asyncio.Event()

    def on_signal() -> None:
        if stop.is_set():
            for child in children:
                child.signal(signal.SIGKILL)
        stop.set()

    for number in (signal.SIGINT, signal.SIGTERM, signal.SIGHUP):
        if number != signal.SIGHUP or signal.getsignal(number) != signal.SIG_IGN:  # nohup ignores SIGHUP
            loop.add_signal_handler(number, on_signal)
    running, signalled = asyncio.ensure_future(work), asyncio.create_task(stop.wait())
    await asyncio.wait((running, signalled), return_when=asyncio.FIRST_COMPLETED)
    signalled.cancel()
    if not running.done():
        running.cancel()
        await asyncio.gather(running, return_exceptions=True)
        return
    running.result()
