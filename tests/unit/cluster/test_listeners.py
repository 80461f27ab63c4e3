"""Kafka's listener settings: what they define, and what is refused with which advice."""

import pytest

from penstock.cluster.listeners import Listeners, parse_listeners
from penstock.foundation.address import Address
from penstock.foundation.errors import InvalidConfig
from penstock.foundation.security_protocol import SecurityProtocol

MAP = "listener.security.protocol.map"
ADVERTISED = "advertised.listeners"
INTER = "inter.broker.listener.name"
TWO = {
    "listeners": "INTERNAL://127.0.0.1:9092, EXTERNAL://0.0.0.0:9093",
    ADVERTISED: "INTERNAL://broker-1:9092,EXTERNAL://queue.example.org:19093",
    MAP: "INTERNAL:PLAINTEXT, EXTERNAL:SSL",
    INTER: "INTERNAL",
}


def test_two_listeners_have_their_own_protocols_and_addresses() -> None:
    found = parse_listeners(TWO)
    assert [(each.name, each.protocol.value, str(each.bind), str(each.advertised)) for each in found] == [
        ("INTERNAL", "PLAINTEXT", "127.0.0.1:9092", "broker-1:9092"),
        ("EXTERNAL", "SSL", "0.0.0.0:9093", "queue.example.org:19093"),
    ]
    assert found.inter_broker == "INTERNAL"
    assert str(found) == found.bind_text == "INTERNAL://127.0.0.1:9092,EXTERNAL://0.0.0.0:9093"
    assert found.advertised_text == TWO[ADVERTISED]


@pytest.mark.parametrize(
    ("settings", "listeners", "inter_broker"),
    [
        ({"listeners": "PLAINTEXT://:9092"}, "PLAINTEXT://0.0.0.0:9092", "PLAINTEXT"),
        ({"listeners": "plaintext://h:1"}, "PLAINTEXT://h:1", "PLAINTEXT"),
        ({"listeners": "SSL://h:1"}, "SSL://h:1", "SSL"),
        ({"listeners": "SSL://h:1,PLAINTEXT://h:2"}, "SSL://h:1,PLAINTEXT://h:2", "PLAINTEXT"),
        (
            {"listeners": "SSL://h:1,PLAINTEXT://h:2", "security.inter.broker.protocol": "SSL"},
            "SSL://h:1,PLAINTEXT://h:2",
            "SSL",
        ),
        ({"listeners": "A://h:0,B://h:0", MAP: "A:SSL,B:SSL", INTER: "b"}, "A://h:0,B://h:0", "B"),
        (
            {"listeners": "A://0.0.0.0:1,B://[::]:1", MAP: "A:SSL,B:SSL", INTER: "A"},
            "A://0.0.0.0:1,B://[::]:1",
            "A",
        ),
        (
            {"listeners": "PLAINTEXT://h:1,CONTROLLER://h:2", "controller.listener.names": "controller"},
            "PLAINTEXT://h:1",
            "PLAINTEXT",
        ),
    ],
)
def test_listeners_as_kafka_reads_them(settings: dict[str, str], listeners: str, inter_broker: str) -> None:
    found = parse_listeners(settings)
    assert (found.bind_text, found.inter_broker) == (listeners, inter_broker)


def test_a_listener_need_not_be_advertised() -> None:
    found = parse_listeners(TWO | {ADVERTISED: "INTERNAL://broker-1:9092"})
    assert found["EXTERNAL"].advertised is None
    assert found.advertised_text == "INTERNAL://broker-1:9092"


def test_port_0_is_replaced_by_the_bound_port() -> None:
    (only,) = parse_listeners({"listeners": "PLAINTEXT://h:0"})
    assert str(only.bound(9).bind) == str(only.bound(9).advertised) == "h:9"
    (only,) = parse_listeners({"listeners": "PLAINTEXT://h:0", ADVERTISED: "PLAINTEXT://other:7"})
    assert str(only.bound(9).advertised) == "other:7"


@pytest.mark.parametrize(
    ("changed", "said"),
    [
        ({"listeners": "CONTROLLER://:1", "controller.listener.names": "CONTROLLER"}, "no listener for clients"),
        ({"listeners": "localhost:9092"}, "listeners has 'localhost:9092'; expected NAME://HOST:PORT"),
        ({"listeners": "A://h"}, "listeners has 'A://h'; expected NAME://HOST:PORT"),
        ({"listeners": "A B://h:1"}, "listeners has 'A B://h:1'; expected NAME://HOST:PORT"),
        ({"listeners": "INTERNAL://h:1,internal://h:2"}, "listeners has listener INTERNAL twice"),
        ({"listeners": "INTERNAL://h:1,EXTERNAL://i:1"}, "INTERNAL and EXTERNAL both have port 1"),
        ({"listeners": "INTERNAL://h:1", ADVERTISED: TWO[ADVERTISED]}, "advertised.listeners has EXTERNAL, which"),
        ({MAP: "INTERNAL:PLAINTEXT"}, "EXTERNAL has no security protocol; add it to listener.security.protocol.map"),
        ({MAP: ""}, "INTERNAL has no security protocol"),
        ({MAP: "INTERNAL:TLS,EXTERNAL:SSL"}, "has 'INTERNAL:TLS'; expected NAME:PROTOCOL"),
        ({MAP: "INTERNAL:SSL,INTERNAL:SSL"}, "has listener INTERNAL twice"),
        ({INTER: "OTHER"}, "on listener OTHER, which is not an advertised listener; set inter.broker.listener.name"),
        ({INTER: ""}, "on listener PLAINTEXT, which is not an advertised listener"),
        ({INTER: "EXTERNAL", ADVERTISED: "INTERNAL://h:1"}, "on listener EXTERNAL, which is not an advertised"),
        ({"security.inter.broker.protocol": "SSL"}, "exclude each other; remove one of them"),
        ({INTER: "", "security.inter.broker.protocol": "TLS"}, "expected one of PLAINTEXT, SSL"),
    ],
)
def test_mistakes_are_refused_with_advice(changed: dict[str, str], said: str) -> None:
    with pytest.raises(InvalidConfig) as caught:
        parse_listeners(TWO | changed)
    assert said in str(caught.value)
    assert "\n" not in str(caught.value)


@pytest.mark.parametrize("protocol", [each for each in SecurityProtocol if each.is_sasl])
def test_a_listener_may_have_sasl(protocol: SecurityProtocol) -> None:
    assert parse_listeners({"listeners": f"{protocol}://h:1"}).all[0].protocol is protocol


def test_the_options_of_one_listener_define_one_that_is_named_plaintext() -> None:
    found = Listeners.plain(Address.parse("0.0.0.0:1"), Address.parse("h:2"))
    assert found.is_plain
    assert (found.bind_text, found.advertised_text, str(found)) == (
        "PLAINTEXT://0.0.0.0:1",
        "PLAINTEXT://h:2",
        "0.0.0.0:1",
    )
    assert not parse_listeners({"listeners": "PLAINTEXT://h:1", MAP: "PLAINTEXT:SSL"}).is_plain
