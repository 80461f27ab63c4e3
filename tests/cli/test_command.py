"""Common behaviour of all commands: help with examples, the broker's address, exit codes."""

import socket

import pytest

from .cli_runner import Cli

COMMANDS = [
    ["topic"],
    ["topic", "create"],
    ["topic", "list"],
    ["topic", "describe"],
    ["topic", "alter"],
    ["topic", "delete"],
    ["topic", "trim"],
    ["publish"],
    ["subscribe"],
    ["log"],
    ["log", "inspect"],
]


@pytest.mark.parametrize("command", COMMANDS, ids=" ".join)
def test_help_has_examples(command: list[str]) -> None:
    said = Cli(None).ok(*command, "--help")
    assert said.startswith(f"Usage: penstock {' '.join(command)}")
    assert f"\n    penstock {' '.join(command)}" in said.split("Examples:")[1] or command == ["topic"]


def test_the_command_lists_its_groups() -> None:
    said = Cli(None).ok("--help")
    assert all(f"\n  {name} " in said for name in ("serve", "topic", "publish", "subscribe", "log"))


def test_a_broker_that_is_not_there_is_named_with_what_to_do() -> None:
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))  # bound and not listening: no other process can take it meanwhile
        address = f"127.0.0.1:{probe.getsockname()[1]}"
        for command in (["topic", "list"], ["publish", "orders", "hi"], ["subscribe", "orders"]):
            assert Cli(None).refused(*command, "--bootstrap", address, code=1) == (
                f"cannot reach {address}: connection refused; is `penstock serve` running? "
                "Set --bootstrap or PENSTOCK_BOOTSTRAP"
            )
            assert f"cannot reach {address}" in Cli(address).refused(*command, code=1)


def test_the_option_wins_over_the_environment(cli: Cli, topic: str) -> None:
    elsewhere = Cli("127.0.0.1:1")
    bootstrap = cli.environment["PENSTOCK_BOOTSTRAP"]
    assert topic in elsewhere.ok("topic", "list", "--bootstrap", f"127.0.0.1:1,{bootstrap}")


def test_an_address_that_is_none_is_a_misuse() -> None:
    assert "'nowhere' is not HOST:PORT" in Cli(None).refused("topic", "list", "--bootstrap", "nowhere", code=2)


def test_a_command_that_is_not_known_is_a_misuse() -> None:
    assert Cli(None).refused("frobnicate", code=2).startswith("No such command 'frobnicate'")
    assert Cli(None).refused("topic", "frobnicate", code=2).startswith("No such command 'frobnicate'")
