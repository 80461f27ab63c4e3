"""Which clients may read metrics and health over HTTP: http.metrics.allow and http.health.allow."""

import urllib.error
import urllib.request
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from tests.brokers import BrokerProcess

HEALTH = ("/healthz", "/readyz", "/_localstack/health")
METRICS = "/metrics"
HERE, ELSEWHERE, INSIDE = "127.0.0.0/8", "192.0.2.0/24", "10.1.2.3"
OPENER = urllib.request.build_opener(urllib.request.ProxyHandler({}))


def get(broker: BrokerProcess, path: str, **headers: str) -> tuple[int, str]:
    request = urllib.request.Request(f"http://{broker.http}{path}", headers=headers)
    try:
        with OPENER.open(request, timeout=60) as answer:
            return answer.status, answer.read().decode()
    except urllib.error.HTTPError as error:
        with error:
            return error.code, error.read().decode()


@pytest.fixture
def start(tmp_path: Path) -> Iterator[Callable[..., BrokerProcess]]:
    made: list[BrokerProcess] = []

    def start(**settings: str) -> BrokerProcess:
        named = {name.replace("_", "."): value for name, value in settings.items()}
        made.append(BrokerProcess(tmp_path, named))
        return made[-1].start()

    yield start
    for broker in made:
        broker.finish()


def test_metrics_and_health_each_have_their_networks(start: Callable[..., BrokerProcess]) -> None:
    broker = start(http_metrics_allow=ELSEWHERE, http_health_allow=f"{ELSEWHERE}, {HERE}")
    for path in HEALTH:
        assert get(broker, path)[0] == 200
    assert get(broker, METRICS) == (403, "your address is not in http.metrics.allow\n")
    # Without a trusted proxy, a client cannot choose its address.
    assert get(broker, METRICS, **{"X-Forwarded-For": "192.0.2.7"})[0] == 403


def test_health_is_refused_to_clients_of_other_networks(start: Callable[..., BrokerProcess]) -> None:
    broker = start(http_health_allow=ELSEWHERE)
    for path in HEALTH:
        assert get(broker, path) == (403, "your address is not in http.health.allow\n")
    assert get(broker, METRICS)[0] == 200


def test_behind_a_load_balancer_the_address_of_the_client_counts(start: Callable[..., BrokerProcess]) -> None:
    broker = start(http_metrics_allow="10.0.0.0/8", http_trusted_proxies="127.0.0.1")
    for forwarded, status in (
        (INSIDE, 200),
        (f"192.0.2.7, {INSIDE}", 200),
        (f"{INSIDE}, 192.0.2.7", 403),
        ("nonsense", 403),
        ("", 403),
    ):
        assert get(broker, METRICS, **{"X-Forwarded-For": forwarded})[0] == status, forwarded
    assert get(broker, METRICS)[0] == 403


@pytest.mark.parametrize("name", ["http.metrics.allow", "http.health.allow"])
def test_wrong_networks_are_refused_at_the_start(tmp_path: Path, name: str) -> None:
    broker = BrokerProcess(tmp_path, {name: "10.0.0.0/8,10.0.0.1/8"})
    with pytest.raises(AssertionError, match=f"{name} has '10.0.0.1/8'; expected addresses and networks such as"):
        broker.start()
