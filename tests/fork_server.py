"""A fork server for `penstock`: imports it once, then forks a process for each command.

Half a second of the start of a broker, and most of a short command, is importing modules; the tests start hundreds of
both. A forked process has a pid, descriptors, an environment and an exit code of its own, as after exec. What happens
before `main` is not covered: tests that measure the start or imports, or change what Python reads when it starts, use
exec, and so do `penstock dev` and `serve --processes` for their brokers.
"""

import atexit
import contextlib
import gc
import importlib
import io
import json
import os
import runpy
import select
import shlex
import signal
import socket
import subprocess
import sys
import threading
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import IO, Any, Final

PENSTOCK: Final = str(Path(sys.executable).with_name("penstock"))
_LONG: Final = ("acl", "cluster", "dev", "group", "log", "pipeline", "queue", "schema", "serve", "subscribe", "topic")
_SHORT: Final = (
    "main",
    "publish",
    "view",
    "delayed",
    "user",
    "metrics",
    "quota",
    "audit",
    "context",
    "token",
    "access_key",
)
_PRELOADED: Final = (
    *(f"penstock.cli.{name}.commands" for name in _LONG),
    *(f"penstock.cli.{name}" for name in _SHORT),
    "penstock.coordination.etcd",
    "penstock.api.sync.connection",
    "rich.console",
    "rich.progress",
    "rich.table",
)
_REQUEST_MAX: Final = 1 << 20
_PID_BYTES: Final = 10
_FDS: Final = 4
FORKING_PYTHON: Final = (sys.executable, "-ISB", str(Path(__file__).resolve().with_name("fork_client.py")))
"""Runs a script in a forked process; `forking_environment` has the environment of such commands."""
CONTROL: Final = "PENSTOCK_TEST_FORK_SERVER"
"""The variable that tells the client the descriptor of the fork server."""
_HEEDED_AT_START: Final = ("PYTHON", "LD_", "MALLOC_", "UV_", "LC_", "LANG")
"""Variables that are read before `main`: by the loader, libc or Python."""


def forking_environment(folder: Path) -> tuple[dict[str, str], int]:
    """Puts a `penstock` into a folder that runs each command in a forked process, for scripts of a shell.

    Returns the environment of such a script, and a descriptor that it must inherit.
    """
    command = folder / "penstock"
    command.write_text(f'#!/bin/sh\nexec {shlex.join(FORKING_PYTHON)} {PENSTOCK} "$@"\n')
    command.chmod(0o755)
    fd = _server().control_fd
    path = os.pathsep.join([str(folder), str(Path(sys.executable).parent), os.environ["PATH"]])
    return {**os.environ, "PATH": path, CONTROL: str(fd)}, fd


class ForkedProcess:
    """A command that runs in a forked process. The part of subprocess.Popen that tests need."""

    def __init__(
        self,
        command: Sequence[str],
        *,
        environment: Mapping[str, str],
        stdin: int | None = None,
        stdout: int | None = None,
        stderr: int | None = None,
        text: bool = True,
    ) -> None:
        """`stdin`: a descriptor, which is closed here; None for nothing, or subprocess.PIPE. `stdout` and `stderr`:
        descriptors; None for pipes, from which text or bytes are read."""
        self.stdin: IO[bytes] | None = None
        if stdin == subprocess.PIPE:
            stdin, writing = os.pipe()
            self.stdin = open(writing, "wb")  # noqa: SIM115
        out, out_of_child = os.pipe() if stdout is None else (-1, os.dup(stdout))
        err, err_of_child = os.pipe() if stderr is None else (-1, os.dup(stderr))
        self._status, status_of_child = os.pipe()
        given = os.open(os.devnull, os.O_RDONLY) if stdin is None else stdin
        descriptors = [given, out_of_child, err_of_child, status_of_child]
        try:
            _server().fork(command, environment, descriptors)
        finally:
            for fd in descriptors:
                os.close(fd)
        answer = os.read(self._status, _PID_BYTES)
        assert answer, "the fork server has ended"
        self.pid = int(answer)
        mode = "r" if text else "rb"
        self.stdout: Any = None if stdout is not None else open(out, mode)  # noqa: SIM115
        self.stderr: Any = None if stderr is not None else open(err, mode)  # noqa: SIM115
        self.returncode: int | None = None

    def __enter__(self) -> "ForkedProcess":
        return self

    def __exit__(self, *_: object) -> None:
        self.wait()
        for file in (self.stdin, self.stdout, self.stderr):
            if file is not None:
                file.close()

    def poll(self) -> int | None:
        with contextlib.suppress(subprocess.TimeoutExpired):
            self.wait(0)
        return self.returncode

    def wait(self, timeout: float | None = None) -> int:
        """Returns the exit code, which is negative after a signal. Raises subprocess.TimeoutExpired."""
        if self.returncode is None:
            readable, _, _ = select.select([self._status], [], [], timeout)
            if not readable:
                raise subprocess.TimeoutExpired("penstock", timeout or 0)
            code = os.read(self._status, 16)
            assert code, "the fork server has ended"
            os.close(self._status)
            self.returncode = int(code)
        return self.returncode

    def communicate(self, input: bytes = b"", timeout: float | None = None) -> tuple[bytes, bytes]:
        """Writes all of `input`, reads pipes of bytes to their end, and waits for that of the process."""
        found: dict[str, bytes] = {}

        def write() -> None:
            if self.stdin is not None and not self.stdin.closed:
                with contextlib.suppress(BrokenPipeError), self.stdin:
                    self.stdin.write(input)

        def read(name: str, file: IO[bytes]) -> None:
            found[name] = file.read()

        threads = [
            threading.Thread(target=write),
            threading.Thread(target=read, args=("stdout", self.stdout)),
            threading.Thread(target=read, args=("stderr", self.stderr)),
        ]
        for thread in threads:
            thread.start()
        try:
            self.wait(timeout)
        except BaseException:
            self.kill()
            raise
        finally:
            for thread in threads:
                thread.join()
            self.__exit__()
        return found["stdout"], found["stderr"]

    def send_signal(self, number: int) -> None:
        if self.poll() is None:
            with contextlib.suppress(ProcessLookupError):  # it has just ended, and the server is about to report that
                os.kill(self.pid, number)

    def kill(self) -> None:
        self.send_signal(signal.SIGKILL)


def can_fork(environment: Mapping[str, str]) -> bool:
    """Whether a forked process behaves like one that is started with this environment."""
    names = {name for name in {*environment, *os.environ} if name.startswith(_HEEDED_AT_START)}
    return all(environment.get(name) == os.environ.get(name) for name in names)


def run(
    command: Sequence[str], *, input: bytes, environment: Mapping[str, str], timeout: float
) -> subprocess.CompletedProcess[bytes]:
    """Runs a command to its end in a forked process, as subprocess.run does."""
    process = ForkedProcess(command, environment=environment, stdin=subprocess.PIPE, text=False)
    out, err = process.communicate(input, timeout)
    return subprocess.CompletedProcess(command, process.wait(), out, err)


# -- the side of the tests


class _Server:
    """The connection of this process to a fork server of its own, which ends with it."""

    def __init__(self) -> None:
        self.owner = os.getpid()
        self._control, theirs = socket.socketpair(socket.AF_UNIX, socket.SOCK_SEQPACKET)
        with theirs:
            self._process = subprocess.Popen(
                [sys.executable, str(Path(__file__).resolve()), str(theirs.fileno())],
                stdin=subprocess.DEVNULL,
                stdout=subprocess.DEVNULL,
                pass_fds=[theirs.fileno()],
            )
        atexit.register(self._close)

    def _close(self) -> None:
        if os.getpid() == self.owner:
            self._control.close()
            self._process.wait(10)

    @property
    def control_fd(self) -> int:
        return self._control.fileno()

    def fork(self, command: Sequence[str], environment: Mapping[str, str], descriptors: Sequence[int]) -> None:
        """The last descriptor is the pipe to which the server writes the pid, and then the exit code."""
        request = {
            "command": list(command),
            "environment": dict(environment),
            "folder": os.getcwd(),
            "ignores_interrupts": signal.getsignal(signal.SIGINT) is signal.SIG_IGN,
        }
        data = json.dumps(request).encode()
        assert len(data) < _REQUEST_MAX
        socket.send_fds(self._control, [data], descriptors)


_servers: list[_Server] = []


def _server() -> _Server:
    if not _servers or _servers[-1].owner != os.getpid():
        _servers[:] = [_Server()]
    return _servers[-1]


# -- the side of the server


def _serve(control: socket.socket) -> dict[str, Any] | None:
    """Forks for each request. Returns the request in the forked process, and None in the server, at its end."""
    wake, waking = socket.socketpair()
    for end in (wake, waking):
        end.setblocking(False)
    signal.set_wakeup_fd(waking.fileno(), warn_on_full_buffer=False)
    signal.signal(signal.SIGCHLD, lambda *_: None)
    running: dict[int, int] = {}
    while True:
        readable, _, _ = select.select([control, wake], [], [])
        if wake in readable:
            with contextlib.suppress(BlockingIOError):
                wake.recv(4096)
            _report_ended(running)
        if control not in readable:
            continue
        data, descriptors, _, _ = socket.recv_fds(control, _REQUEST_MAX, _FDS)
        if not data:
            return None
        assert len(os.listdir("/proc/self/task")) == 1, "only a process of one thread is forked"
        pid = os.fork()
        if pid == 0:
            for end in (control, wake, waking):
                end.detach()  # their descriptors are closed, and belong to others then
            request = json.loads(data)
            _become(request, descriptors)
            return dict(request)
        *passed, status = descriptors
        running[pid] = status
        for fd in passed:
            os.close(fd)
        with contextlib.suppress(BrokenPipeError):
            os.write(status, b"%0*d" % (_PID_BYTES, pid))


def _report_ended(running: dict[int, int]) -> None:
    while running:
        pid, status = os.waitpid(-1, os.WNOHANG)
        if not pid:
            return
        pipe = running.pop(pid)
        with contextlib.suppress(BrokenPipeError):
            os.write(pipe, b"%d" % os.waitstatus_to_exitcode(status))
        os.close(pipe)


def _become(request: Mapping[str, Any], descriptors: Sequence[int]) -> None:
    """Makes the forked process what exec would have made it."""
    signal.set_wakeup_fd(-1)
    signal.signal(signal.SIGCHLD, signal.SIG_DFL)
    signal.signal(signal.SIGINT, signal.SIG_IGN if request["ignores_interrupts"] else signal.default_int_handler)
    for number, fd in enumerate(descriptors[:3]):
        os.dup2(fd, number)
    os.closerange(3, max(map(int, os.listdir("/proc/self/fd"))) + 1)
    os.chdir(request["folder"])
    os.environ.clear()
    os.environ.update(request["environment"])
    sys.argv = list(request["command"])
    sys.stdin = sys.__stdin__ = open(0, closefd=False)  # noqa: SIM115
    through = bool(os.environ.get("PYTHONUNBUFFERED"))
    files = (io.FileIO(fd, "w", closefd=False) for fd in (1, 2))
    out, err = files if through else map(io.BufferedWriter, files)
    sys.stdout = sys.__stdout__ = io.TextIOWrapper(out, line_buffering=os.isatty(1), write_through=through)  # type: ignore[type-var]
    sys.stderr = sys.__stderr__ = io.TextIOWrapper(
        err,  # type: ignore[type-var]
        errors="backslashreplace",
        line_buffering=True,
        write_through=through,
    )


def main() -> None:
    sys.path[0] = str(Path(PENSTOCK).parent)  # as for the command, and not this folder
    for name in _PRELOADED:
        try:
            importlib.import_module(name)
        except ModuleNotFoundError as error:
            if str(error.name).startswith("penstock"):
                raise  # all other modules may be extras
    gc.collect()
    gc.freeze()  # or the collector would copy all of these pages in each process
    request = _serve(socket.socket(fileno=int(sys.argv[1])))
    if request is not None:
        _run_to_the_end(request["command"][0])


def _run_to_the_end(path: str) -> None:
    """Runs a script, and ends the process without tearing down modules, which would copy most of the memory."""
    code: object = None
    try:
        runpy.run_path(path, run_name="__main__")
    except SystemExit as ended:
        code = ended.code
        if not isinstance(code, int | None):
            raise
    threading._shutdown()  # type: ignore[attr-defined]  # waits for threads, as Python does at its end
    atexit._run_exitfuncs()
    try:
        sys.stdout.flush()
        sys.stderr.flush()
    except OSError:
        sys.exit(code)  # Python reports it
    os._exit(code or 0)


if __name__ == "__main__":
    main()
