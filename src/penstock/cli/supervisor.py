"""Processes that belong to this one: started, watched, if need be started again, and stopped in order.

None of them outlives this process, however it ends: the kernel sees to that.
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
"""A broker may take 15 s to leave its cluster and its clients in order; whoever takes longer than this is killed."""
RESTART_FIRST_S: Final = 0.5
RESTART_MAX_S: Final = 30.0
CALM_S: Final = 60.0
"""A process that has lived for so long is started again as soon as the first time."""
_PAUSE_S: Final = 0.05
_TAIL_LINES: Final = 8
_PR_SET_PDEATHSIG: Final = 1


class ChildFailed(PenstockError):
    """A process ended, or took too long, before it was ready."""


def die_with_parent(number: signal.Signals) -> Callable[[], None]:
    """For between fork and exec: the kernel sends the new process this signal when the one that made it is gone.

    It hangs on the thread that forks, so processes are started from the main one.
    """
    prctl = ctypes.CDLL(None).prctl  # looked up here: after a fork there is not much that one may do
    parent = os.getpid()

    def before_exec() -> None:
        prctl(_PR_SET_PDEATHSIG, int(number), 0, 0, 0)
        if os.getppid() != parent:  # it was gone before it could be asked for
            os._exit(1)

    return before_exec


@dataclass(frozen=True, slots=True, kw_only=True)
class Program:
    """What is run."""

    name: str
    command: Sequence[str]
    log: Path | None = None
    """Where its output goes; to where ours goes if there is none."""
    is_ready: Callable[[], Awaitable[bool]] | None = None
    """How to tell that it is ready. A broker, which has none, says so itself."""
    dies_by: signal.Signals = signal.SIGKILL
    """What it is sent when this process is gone."""


class Child:
    """One program in a process; in another one after the first has ended."""

    def __init__(self, program: Program) -> None:
        self.program = program
        self.ready_line = ""
        """What a broker said when it was ready."""
        self._process: asyncio.subprocess.Process | None = None
        self._reading: asyncio.Task[None] | None = None
        self._said_ready = asyncio.Event()

    @property
    def name(self) -> str:
        return self.program.name

    @property
    def pid(self) -> int | None:
        """None while it does not run."""
        return self._process.pid if self._process is not None and self._process.returncode is None else None

    async def start(self) -> None:
        """Returns when it is ready; ChildFailed, with the end of its log, if it ends or takes too long before."""
        self._said_ready.clear()
        self._process = process = await self._make_process()
        if process.stdout is not None:
            self._reading = asyncio.create_task(self._read(process.stdout))
        ready, ended = asyncio.create_task(self._until_ready()), asyncio.create_task(process.wait())
        try:
            await asyncio.wait((ready, ended), timeout=START_S, return_when=asyncio.FIRST_COMPLETED)
            if ended.done():
                raise ChildFailed(f"{self.name} ended with {self._end()} before it was ready{self._tail()}")
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
                # A session of its own: Ctrl-C on the terminal is for us, and we end our children in order.
                return await asyncio.create_subprocess_exec(
                    *program.command,
                    stdin=asyncio.subprocess.DEVNULL,
                    stdout=asyncio.subprocess.PIPE if program.is_ready is None else output,
                    stderr=output,
                    start_new_session=True,
                    preexec_fn=die_with_parent(program.dies_by),
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

    async def _read(self, said: asyncio.StreamReader) -> None:
        """A broker says on standard output that it is ready."""
        async for line in said:
            text = line.decode(errors="replace").rstrip()
            if text.startswith(READY):
                self.ready_line = text
                self._said_ready.set()
            if self.program.log is not None:
                with self.program.log.open("ab") as log:
                    log.write(line)

    async def _until_ready(self) -> None:
        if self.program.is_ready is None:
            await self._said_ready.wait()
            return
        while True:
            if await self.program.is_ready():
                return
            await asyncio.sleep(_PAUSE_S)

    def _end(self) -> str:
        """How it ended, in words."""
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
        """Waits for the end of the process, and says how it was."""
        assert self._process is not None
        await self._process.wait()
        if self._reading is not None:
            await self._reading
        return self._end()

    def signal(self, number: signal.Signals) -> None:
        if self.pid is not None:
            assert self._process is not None
            with contextlib.suppress(ProcessLookupError):
                self._process.send_signal(number)

    async def stop(self) -> bool:
        """Ask it to end, and wait until it has. False if it had to be killed."""
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
    """All at once. If one fails, the others are ended too."""
    starting = [asyncio.create_task(child.start()) for child in children]
    try:
        await asyncio.gather(*starting)
    except BaseException:
        for task in starting:
            task.cancel()
        await asyncio.gather(*starting, return_exceptions=True)
        raise


class Supervisor:
    """Watches children that are ready. One that ends is reported, and started again if that is wanted."""

    def __init__(self, *, restarts: bool, report: Callable[[str], None], on_change: Callable[[], None]) -> None:
        """`report`: a line about what has happened. `on_change`: other processes run than before."""
        self._restarts = restarts
        self._report = report
        self._on_change = on_change
        self._tasks: dict[Child, asyncio.Task[None]] = {}
        self._rng = Random()

    def watch(self, child: Child) -> None:
        self._tasks[child] = asyncio.create_task(self._keep(child))

    async def all_ended(self, children: Sequence[Child]) -> None:
        """Returns when none of these runs, nor will again."""
        await asyncio.gather(*(self._tasks[child] for child in children))

    def _backoff(self) -> Backoff:
        return Backoff(self._rng, first_s=RESTART_FIRST_S, max_s=RESTART_MAX_S)

    async def _keep(self, child: Child) -> None:
        clock = asyncio.get_running_loop().time
        backoff = self._backoff()
        while True:
            began_s = clock()
            self._report(f"{child.name} ended with {await child.ended()}")
            self._on_change()
            if not self._restarts:
                return
            if clock() - began_s > CALM_S:
                backoff = self._backoff()
            await self._start_again(child, backoff)

    async def _start_again(self, child: Child, backoff: Backoff) -> None:
        while True:
            wait_s = backoff.next_s()
            self._report(f"{child.name} is started again in {wait_s:.1f} s")
            await asyncio.sleep(wait_s)
            try:
                await child.start()
            except ChildFailed as error:
                self._report(str(error))
                continue
            self._report(f"{child.name} runs again, pid {child.pid}")
            self._on_change()
            return

    async def stop(self, *groups: Sequence[Child]) -> None:
        """Stop one group after another, and all of a group at once: so none of them waits for another to lead."""
        for task in self._tasks.values():
            task.cancel()
        await asyncio.gather(*self._tasks.values(), return_exceptions=True)
        for group in groups:
            stopped = await asyncio.gather(*(child.stop() for child in group))
            for child, in_order in zip(group, stopped, strict=True):
                if not in_order:
                    self._report(f"{child.name} did not end within {STOP_S:g} s, and was killed")


async def until_told(work: Awaitable[None], children: Sequence[Child]) -> None:
    """Do the work until it ends, or until this process is told to stop. Told twice, the children are killed."""
    loop, stop = asyncio.get_running_loop(), asyncio.Event()

    def told() -> None:
        if stop.is_set():
            for child in children:
                child.signal(signal.SIGKILL)
        stop.set()

    for number in (signal.SIGINT, signal.SIGTERM, signal.SIGHUP):
        if number != signal.SIGHUP or signal.getsignal(number) != signal.SIG_IGN:  # which is what nohup asks for
            loop.add_signal_handler(number, told)
    working, telling = asyncio.ensure_future(work), asyncio.create_task(stop.wait())
    await asyncio.wait((working, telling), return_when=asyncio.FIRST_COMPLETED)
    telling.cancel()
    if not working.done():
        working.cancel()
        await asyncio.gather(working, return_exceptions=True)
        return
    working.result()
