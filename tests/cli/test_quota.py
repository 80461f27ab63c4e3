"""`penstock quota` against a broker."""

from collections.abc import Iterator

import pytest

from tests.brokers import BrokerProcess

from .cli_runner import Cli, table


@pytest.fixture(scope="module")
def cli(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Cli]:
    broker = BrokerProcess(tmp_path_factory.mktemp("broker")).start()
    yield Cli(broker.kafka)
    broker.finish()


def test_quotas_are_set_listed_and_removed(cli: Cli) -> None:
    assert cli.json("quota", "list") == []
    said = cli.ok("quota", "set", "--user", "orders", "producer_byte_rate=1048576", "request_percentage=12.5")
    assert said == "set producer_byte_rate=1048576, request_percentage=12.5 of user orders\n"
    cli.ok("quota", "set", "--user", "orders", "--default-client-id", "consumer_byte_rate=1000")
    cli.ok("quota", "set", "--ip", "192.0.2.7", "connection_creation_rate=5")
    found = cli.json("quota", "list")
    assert {"user": "orders", "quotas": {"producer_byte_rate": 1048576.0, "request_percentage": 12.5}} in found
    assert {"user": "orders", "client-id": None, "quotas": {"consumer_byte_rate": 1000.0}} in found
    assert table(cli.ok("quota", "list")) == [
        ["CLIENTS", "QUOTA", "VALUE"],
        ["address 192.0.2.7", "connection_creation_rate", "5"],
        ["user orders", "producer_byte_rate", "1048576"],
        ["user orders", "request_percentage", "12.5"],
        ["user orders, each client id", "consumer_byte_rate", "1000"],
    ]
    assert cli.ok("quota", "remove", "--user", "orders", "request_percentage", "--yes") == (
        "removed request_percentage of user orders\n"
    )
    cli.ok("quota", "remove", "--user", "orders", "--yes")
    assert [each for each in cli.json("quota", "list") if "client-id" not in each] == [
        {"ip": "192.0.2.7", "quotas": {"connection_creation_rate": 5.0}}
    ]


@pytest.mark.parametrize(
    ("arguments", "code", "said"),
    [
        (("set", "producer_byte_rate=1"), 2, "whose quotas? Give --user"),
        (("set", "--user", "a", "--default-user", "producer_byte_rate=1"), 2, "exclude each other"),
        (("set", "--user", "a", "bytes=1"), 2, "names are producer_byte_rate, consumer_byte_rate"),
        (("set", "--user", "a", "producer_byte_rate=fast"), 2, "'fast' is not a number"),
        (("set", "--user", "a", "producer_byte_rate=0"), 1, "must be greater than 0"),
        (("set", "--user", "a", "--ip", "192.0.2.7", "producer_byte_rate=1"), 1, "Invalid client quota entity"),
        (("remove", "--user", "zoe", "--yes"), 1, "user zoe has no quotas"),
    ],
)
def test_mistakes_are_explained(cli: Cli, arguments: tuple[str, ...], code: int, said: str) -> None:
    assert said in cli.refused("quota", *arguments, code=code)
