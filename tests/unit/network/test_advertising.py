"""The advertised address, and warnings about it in the log."""

import logging

import pytest

from penstock.foundation.address import Address
from penstock.foundation.host import reachable_host
from penstock.network.advertised_address import advertised_address

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
        found = advertised_address(Address.parse(advertise) if advertise else None, Address.parse(listen))
    assert str(found) == expected
    assert [record.message.split()[0] for record in caplog.records] == warnings


def test_the_address_is_one_of_this_machine() -> None:
    assert HERE not in ("", "0.0.0.0")
