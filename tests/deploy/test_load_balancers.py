"""nginx and HAProxy as deploy/ has them, in front of three brokers: one of them is killed, and nobody notices."""

import re
import shutil
import signal
import subprocess
import urllib.error
import urllib.request
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pytest

from tests.brokers import BrokerProcess
from tests.clients.waiting import wait_until
from tests.coordination.servers import free_ports

from .manifests import DEPLOY

REQUESTS = 60
_OPENER = urllib.request.build_opener(urllib.request.ProxyHandler({}))


def find(kind: str) -> str:
    """The program; on Debian it lies where only root looks."""
    found = shutil.which(kind) or shutil.which(kind, path="/usr/sbin:/usr/local/sbin")
    if found is None:
        pytest.skip(f"{kind} is not installed: apt install {kind}")
    return found


def answer(url: str) -> tuple[int, bytes]:
    try:
        with _OPENER.open(url, timeout=20) as found:
            return found.status, found.read()
    except urllib.error.HTTPError as error:
        with error:
            return error.code, error.read()
    except urllib.error.URLError:
        return 0, b""


@pytest.fixture(scope="module")
def brokers(tmp_path_factory: pytest.TempPathFactory) -> Iterator[list[BrokerProcess]]:
    folders = [tmp_path_factory.mktemp(f"broker-{number}") for number in (1, 2, 3)]
    started = [BrokerProcess(folder).start() for folder in folders]
    yield started
    for broker in started:
        broker.finish()


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


@pytest.fixture(scope="module", params=BALANCERS)
def program(request: pytest.FixtureRequest) -> tuple[str, str]:
    """Its kind, and where it lies. Looked for before any broker is started for it."""
    return request.param, find(request.param)


@pytest.fixture(scope="module")
def front(
    program: tuple[str, str], brokers: list[BrokerProcess], tmp_path_factory: pytest.TempPathFactory
) -> Iterator[str]:
    """Its address. Only addresses and places of files are other than in the file that is shipped."""
    kind, path = program
    folder, (port,) = tmp_path_factory.mktemp(kind), free_ports(1)
    file, command = BALANCERS[kind]
    config = (DEPLOY / file).read_text()
    for number, broker in enumerate(brokers, start=1):
        assert f"broker-{number}:9324" in config
        config = config.replace(f"broker-{number}:9324", broker.http)
    with (folder / "output").open("wb") as output:
        process = subprocess.Popen(command(path, folder, config, port), stdout=output, stderr=output)
    try:
        wait_until(lambda: process.poll() is not None or is_served(port), f"{kind} is ready")
        assert process.poll() is None, (folder / "output").read_text()
        yield f"http://127.0.0.1:{port}"
    finally:
        process.send_signal(signal.SIGTERM)
        process.wait(20)


def is_served(port: int) -> bool:
    return answer(f"http://127.0.0.1:{port}/healthz")[0] == 200


def test_any_broker_answers_through_the_front(front: str, brokers: list[BrokerProcess]) -> None:
    assert answer(f"{front}/healthz") == (200, b"ok\n")
    assert answer(f"{front}/readyz") == (200, b"ready\n")
    assert answer(f"{front}/nothing-here")[0] == 404


def test_metrics_are_of_one_broker_and_not_for_the_front(front: str, brokers: list[BrokerProcess]) -> None:
    assert answer(f"{front}/metrics")[0] == 404
    assert answer(f"http://{brokers[0].http}/metrics")[0] == 200


def test_nobody_notices_that_a_broker_is_killed(front: str, brokers: list[BrokerProcess]) -> None:
    with ThreadPoolExecutor(8) as threads:
        first = threads.map(answer, [f"{front}/readyz"] * REQUESTS)
        brokers[1].kill()
        second = threads.map(answer, [f"{front}/readyz"] * REQUESTS)
        assert {*first, *second} == {(200, b"ready\n")}
    brokers[1].start()
    assert answer(f"{front}/healthz") == (200, b"ok\n")


def test_nobody_notices_that_a_broker_stops_in_order(front: str, brokers: list[BrokerProcess]) -> None:
    with ThreadPoolExecutor(8) as threads:
        asked = threads.map(answer, [f"{front}/readyz"] * REQUESTS)
        brokers[2].stop()
        assert set(asked) == {(200, b"ready\n")}
    brokers[2].start()
