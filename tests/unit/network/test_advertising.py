"""The advertised address, and warnings about it in the log."""

import logging

import pytest

from penstock.cluster.listeners import Listeners, parse_listeners
from penstock.foundation.address import Address
from penstock.foundation.host import reachable_host
from penstock.network.advertised_address import advertised_listeners

HERE = reachable_host()


@pytest.mark.parametrize(
    ("listen", "advertise", "expected", "warnings"),
    [
        ("127.0.0.1:9092", None, "127.0.0.1:9092", []),
        ("localhost:9092", None, "localhost:9092", []),
        ("[::1]:9092", None, "[::1]:9092", []),
        ("127.0.0.1:9092", "queue.example.org:9092", "queue.example.org:9092", []),
        ("queue.example.org:9092", None, "queue.example.org:9092", ["kafka_open_to_all"]),
        ("0.0.0.0:9092", "queue.example.org:19092", "queue.example.org:19092", ["kafka_open_to_all"]),
        ("0.0.0.0:9092", None, f"{HERE}:9092", ["advertised_address_chosen", "kafka_open_to_all"]),
        ("[::]:9092", None, f"{HERE}:9092", ["advertised_address_chosen", "kafka_open_to_all"]),
        ("127.0.0.1:9092", "0.0.0.0:9092", f"{HERE}:9092", ["advertised_address_chosen"]),
    ],
)
def test_the_advertised_address_can_be_connected_to(
    listen: str, advertise: str | None, expected: str, warnings: list[str], caplog: pytest.LogCaptureFixture
) -> None:
    with caplog.at_level(logging.WARNING):
        given = Listeners.plain(Address.parse(listen), Address.parse(advertise) if advertise else None)
        (found,) = advertised_listeners(given, lambda name: False)
    assert str(found.advertised) == expected
    assert [record.message.split()[0] for record in caplog.records] == warnings


def test_a_listener_that_demands_certificates_is_not_open_to_all(caplog: pytest.LogCaptureFixture) -> None:
    given = parse_listeners(
        {
            "listeners": "OPEN://0.0.0.0:1,CLOSED://0.0.0.0:2",
            "advertised.listeners": "OPEN://h:1",
            "listener.security.protocol.map": "OPEN:SSL,CLOSED:SSL",
        }
    )
    with caplog.at_level(logging.WARNING):
        found = advertised_listeners(given, lambda name: name == "CLOSED")
    assert [str(each.advertised) for each in found] == ["h:1", "None"]
    assert [record.message.split()[:2] for record in caplog.records] == [["kafka_open_to_all", "listen=0.0.0.0:1"]]


def test_the_address_is_one_of_this_machine() -> None:
    assert HERE not in ("", "0.0.0.0")
