"""nginx and HAProxy with the configuration of deploy/: only addresses and paths differ."""

import contextlib
import re
import shutil
import signal
import subprocess
import urllib.error
import urllib.request
from collections.abc import Iterator, Sequence
from pathlib import Path

import pytest

from tests.clients.waiting import wait_until
from tests.ports import free_port

from .manifests import DEPLOY

_OPENER = urllib.request.build_opener(urllib.request.ProxyHandler({}))


def find(kind: str) -> str:
    """The program; on Debian it lies where only root looks."""
    found = shutil.which(kind) or shutil.which(kind, path="/usr/sbin:/usr/local/sbin")
    if found is None:
        pytest.skip(f"{kind} is not installed: apt install {kind}")
    return found


def answer(url: str) -> tuple[int, bytes]:
    try:
        with _OPENER.open(url, timeout=60) as found:
            return found.status, found.read()
    except urllib.error.HTTPError as error:
        with error:
            return error.code, error.read()
    except urllib.error.URLError:
        return 0, b""


def is_served(port: int) -> bool:
    return answer(f"http://127.0.0.1:{port}/healthz")[0] == 200


def nginx_command(program: str, folder: Path, config: str, port: int) -> list[str]:
    config = re.sub(r"listen \d+;", f"listen 127.0.0.1:{port};", config)
    kinds = ("client_body", "proxy", "fastcgi", "uwsgi", "scgi")
    places = "\n".join(f"{kind}_temp_path {folder}/{kind};" for kind in kinds)
    (folder / "nginx.conf").write_text(config.replace("http {", "http {\n" + places, 1))
    command = [program, "-p", str(folder), "-c", str(folder / "nginx.conf"), "-e", str(folder / "errors")]
    return [*command, "-g", f"daemon off; pid {folder}/nginx.pid; error_log {folder}/errors warn;"]


def haproxy_command(program: str, folder: Path, config: str, port: int) -> list[str]:
    (folder / "haproxy.cfg").write_text(re.sub(r"bind :\d+", f"bind 127.0.0.1:{port}", config))
    return [program, "-db", "-f", str(folder / "haproxy.cfg")]


BALANCERS = {"nginx": ("nginx.conf", nginx_command), "haproxy": ("haproxy.cfg", haproxy_command)}


@contextlib.contextmanager
def balanced(kind: str, program: str, folder: Path, brokers: Sequence[str]) -> Iterator[str]:
    """Run one in front of three brokers, by their HTTP addresses; gives its own address."""
    port = free_port()
    file, command = BALANCERS[kind]
    config = (DEPLOY / file).read_text()
    for number, http in enumerate(brokers, start=1):
        assert f"broker-{number}:9324" in config
        config = config.replace(f"broker-{number}:9324", http)
    with (folder / "output").open("wb") as output:
        process = subprocess.Popen(command(program, folder, config, port), stdout=output, stderr=output)
    try:
        wait_until(lambda: process.poll() is not None or is_served(port), f"{kind} is ready")
        assert process.poll() is None, (folder / "output").read_text()
        yield f"127.0.0.1:{port}"
    finally:
        process.send_signal(signal.SIGTERM)
        process.wait(20)
