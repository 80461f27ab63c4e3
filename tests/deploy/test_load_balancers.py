"""nginx and HAProxy as deploy/ has them, in front of three brokers: one is killed, and no request fails."""

from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor

import pytest

from tests.brokers import BrokerProcess

from .balancers import BALANCERS, answer, balanced, find

REQUESTS = 60


@pytest.fixture(scope="module")
def brokers(tmp_path_factory: pytest.TempPathFactory) -> Iterator[list[BrokerProcess]]:
    folders = [tmp_path_factory.mktemp(f"broker-{number}") for number in (1, 2, 3)]
    started = [BrokerProcess(folder).start() for folder in folders]
    yield started
    for broker in started:
        broker.finish()


@pytest.fixture(scope="module", params=BALANCERS)
def program(request: pytest.FixtureRequest) -> tuple[str, str]:
    """Its kind, and where it lies. Looked for before any broker is started for it."""
    return request.param, find(request.param)


@pytest.fixture(scope="module")
def front(
    program: tuple[str, str], brokers: list[BrokerProcess], tmp_path_factory: pytest.TempPathFactory
) -> Iterator[str]:
    """Its address."""
    kind, path = program
    with balanced(kind, path, tmp_path_factory.mktemp(kind), [broker.http for broker in brokers]) as address:
        yield f"http://{address}"


def test_any_broker_answers_through_the_front(front: str, brokers: list[BrokerProcess]) -> None:
    assert answer(f"{front}/healthz") == (200, b"ok\n")
    assert answer(f"{front}/readyz") == (200, b"ready\n")
    assert answer(f"{front}/nothing-here")[0] == 404


def test_metrics_are_of_one_broker_and_not_for_the_front(front: str, brokers: list[BrokerProcess]) -> None:
    assert answer(f"{front}/metrics")[0] == 404
    assert answer(f"http://{brokers[0].http}/metrics")[0] == 200


def test_no_request_fails_when_a_broker_is_killed(front: str, brokers: list[BrokerProcess]) -> None:
    with ThreadPoolExecutor(8) as threads:
        first = threads.map(answer, [f"{front}/readyz"] * REQUESTS)
        brokers[1].kill()
        second = threads.map(answer, [f"{front}/readyz"] * REQUESTS)
        assert {*first, *second} == {(200, b"ready\n")}
    brokers[1].start()
    assert answer(f"{front}/healthz") == (200, b"ok\n")


def test_no_request_fails_when_a_broker_is_stopped(front: str, brokers: list[BrokerProcess]) -> None:
    with ThreadPoolExecutor(8) as threads:
        asked = threads.map(answer, [f"{front}/readyz"] * REQUESTS)
        brokers[2].stop()
        assert set(asked) == {(200, b"ready\n")}
    brokers[2].start()
