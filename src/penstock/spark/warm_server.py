"""Starts, finds and stops a Spark Connect server on this machine, so that pipelines need not start Spark each time.

The server listens on the loopback interface and asks for a token, because its clients can run any code. Its address,
token and pid are in a file that only this user can read.
"""

import json
import os
import secrets
import signal
import socket
import subprocess
import sys
import time
from collections.abc import Mapping
from contextlib import suppress
from dataclasses import asdict, dataclass, replace
from importlib.util import find_spec
from pathlib import Path
from typing import Final

from penstock.foundation.private_folder import private_folder
from penstock.spark.connect import PORT_DEFAULT, check_server
from penstock.spark.errors import SparkFailed, SparkMissing
from penstock.spark.java import provide_java
from penstock.spark.sessions import is_local, log4j2_option, settings
from penstock.spark.worker_python import worker_python

_FILE: Final = "server.json"
_MAIN_CLASS: Final = "org.apache.spark.sql.connect.service.SparkConnectServer"
_START_S: Final = 240.0
_STOP_S: Final = 30.0
_POLL_S: Final = 0.1
_TOKEN: Final = "SPARK_CONNECT_AUTHENTICATE_TOKEN"
"""Environment variable of Spark with the token that the server asks for: in arguments, `ps` would show it."""


@dataclass(frozen=True, slots=True, kw_only=True)
class WarmServer:
    """A Spark Connect server that keeps running between pipelines."""

    pid: int
    port: int
    token: str
    master: str
    log: str
    started_at_ms: int

    @property
    def address(self) -> str:
        """The address for users; this package adds the token."""
        return "sc://localhost" if self.port == PORT_DEFAULT else f"sc://localhost:{self.port}"


def find() -> WarmServer | None:
    """Returns the running server; None if there is none."""
    try:
        found = WarmServer(**json.loads((_folder() / _FILE).read_text()))
    except (OSError, ValueError, TypeError):
        return None
    return found if _is_running(found.pid) else None


def with_token(remote: str) -> str:
    """Returns the address of a Spark Connect server, with the token if it is the server that `start` has started."""
    address = remote.rstrip("/")
    found = None if ";" in remote else find()
    if found is None or address not in (found.address, f"sc://localhost:{found.port}"):
        return remote
    return f"sc://localhost:{found.port}/;token={found.token}"


def start(master: str, *, port: int = PORT_DEFAULT, conf: Mapping[str, str] | None = None) -> WarmServer:
    """Starts the server and waits until it answers. Raises SparkFailed if it runs already, or does not start."""
    if find_spec("pyspark") is None or find_spec("grpc") is None:
        raise SparkMissing("Spark Connect is not installed: pip install 'penstock[connect]'")
    running = find()
    if running is not None:
        raise SparkFailed(f"the server runs already, at {running.address} (pid {running.pid}); stop it first")
    _check_free(port)
    provide_java()
    log = _folder() / "server.log"
    wanted = settings(master) | {
        "spark.connect.grpc.binding.address": "127.0.0.1",
        "spark.connect.grpc.binding.port": str(port),
        **(conf or {}),
    }
    wanted["spark.driver.extraJavaOptions"] = log4j2_option(log, wanted.get("spark.driver.extraJavaOptions", ""))
    server = WarmServer(
        pid=0,
        port=port,
        token=secrets.token_urlsafe(24),
        master=master,
        log=str(log),
        started_at_ms=time.time_ns() // 1_000_000,
    )
    process = _launch(server, wanted)
    server = replace(server, pid=process.pid)
    try:
        _wait_until_ready(server, process)
        _save(server)
    except BaseException:
        _kill(process.pid)
        process.wait()
        raise
    return server


def stop() -> WarmServer | None:
    """Stops the server, with the queries that run on it. Returns None if there was none."""
    found = find()
    if found is None:
        return None
    os.kill(found.pid, signal.SIGTERM)
    deadline_s = time.monotonic() + _STOP_S
    while _is_running(found.pid):
        if time.monotonic() > deadline_s:
            _kill(found.pid)
        time.sleep(_POLL_S)
    (_folder() / _FILE).unlink(missing_ok=True)
    return found


def _folder() -> Path:
    return private_folder("spark-server")


def _launch(server: WarmServer, wanted: Mapping[str, str]) -> "subprocess.Popen[bytes]":
    import pyspark

    environment = dict(os.environ)
    environment.pop("SPARK_REMOTE", None)  # a server that inherits it would be a client of itself
    environment.setdefault("PYSPARK_PYTHON", worker_python() if is_local(server.master) else sys.executable)
    home = str(Path(pyspark.__file__).parent)
    command = [str(Path(home) / "bin" / "spark-submit"), "--class", _MAIN_CLASS, "--master", server.master]
    for name, value in wanted.items():
        command += ["--conf", f"{name}={value}"]
    environment |= {"SPARK_HOME": home, "SPARK_LOCAL_IP": "127.0.0.1", _TOKEN: server.token}
    with Path(server.log).open("wb") as log:
        return subprocess.Popen(
            [*command, "spark-internal"],
            cwd=_folder(),  # where Spark puts its warehouse
            env=environment,
            stdin=subprocess.DEVNULL,
            stdout=log,
            stderr=log,
            start_new_session=True,  # Ctrl-C in this terminal must not end it
        )


def _check_free(port: int) -> None:
    with socket.socket() as probe:
        probe.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        try:
            probe.bind(("127.0.0.1", port))
        except OSError as error:
            raise SparkFailed(
                f"port {port} cannot be used: {error.strerror}; choose another one with --port"
            ) from None


def _wait_until_ready(server: WarmServer, process: "subprocess.Popen[bytes]") -> None:
    deadline_s = time.monotonic() + _START_S
    while time.monotonic() < deadline_s:
        if process.poll() is not None:
            lines = [line for line in Path(server.log).read_text(errors="replace").splitlines() if "xception" in line]
            why = lines[-1].strip() if lines else f"exit code {process.returncode}"
            raise SparkFailed(f"the Spark Connect server did not start: {why}; {server.log} has the details")
        with suppress(OSError):
            socket.create_connection(("127.0.0.1", server.port), timeout=_POLL_S).close()
            check_server(f"sc://localhost:{server.port}/;token={server.token}")
            return
        time.sleep(_POLL_S)
    raise SparkFailed(f"the Spark Connect server did not start within {_START_S:.0f} s; {server.log} has the details")


def _save(server: WarmServer) -> None:
    path = _folder() / _FILE
    fresh = path.with_suffix(".new")
    fresh.touch(mode=0o600)
    fresh.write_text(json.dumps(asdict(server)))
    fresh.replace(path)


def _is_running(pid: int) -> bool:
    """Returns whether a process is a Spark Connect server: another process may have got its pid."""
    command = ["ps", "-ww", "-p", str(pid), "-o", "command="]
    return _MAIN_CLASS in subprocess.run(command, capture_output=True, text=True, check=False).stdout


def _kill(pid: int) -> None:
    """Kills the server with the Python processes that it has started."""
    with suppress(ProcessLookupError):
        os.killpg(pid, signal.SIGKILL)
