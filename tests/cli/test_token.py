"""`penstock token` against a broker, and commands that log in with a token."""

import re
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.brokers import BrokerProcess
from tests.clients.token_lab import properties, settings_of, token_properties

from .cli_runner import Cli, table

SASL, OPEN, ANN, BOB = "SASL", "OPEN", "ann", "bob"
TIME = re.compile(r"\d{4}-\d\d-\d\dT\d\d:\d\d:\d\d\.\d{3}Z")


@pytest.fixture(scope="module")
def broker(tmp_path_factory: pytest.TempPathFactory) -> Iterator[BrokerProcess]:
    listeners = {SASL: "SASL_PLAINTEXT", OPEN: "PLAINTEXT"}
    broker = BrokerProcess(tmp_path_factory.mktemp("broker"), settings_of((ANN, BOB)), listeners=listeners).start()
    yield broker
    broker.finish()


@pytest.fixture(scope="module")
def cli(broker: BrokerProcess) -> Cli:
    return Cli(broker.at[SASL])


def config(folder: Path, name: str, given: dict[str, str]) -> tuple[str, str]:
    file = folder / f"{name}.properties"
    file.write_text("\n".join(f"{key}={value}" for key, value in given.items()))
    return "--command-config", str(file)


def test_the_life_of_a_token(cli: Cli, tmp_path: Path) -> None:
    ann, bob = (config(tmp_path, name, properties(name)) for name in (ANN, BOB))
    (made,) = cli.json("token", "create", "--renewer", "bob", "--lifetime", "3d", *ann)
    token, password = made["token"], made.pop("password")
    assert (made["owner"], made["requester"], made["renewers"]) == ("User:ann", "User:ann", ["User:bob"])
    assert cli.json("token", "list", *ann) == cli.json("token", "list", "--owner", "bob", *ann) == [made]
    assert password not in cli.ok("token", "list", *ann)
    assert cli.json("token", "list", "--show-passwords", *bob) == [{**made, "password": password}]
    names, row = table(cli.ok("token", "list", *bob))
    assert names == ["TOKEN", "OWNER", "REQUESTER", "RENEWERS", "CREATED", "EXPIRES", "RENEWABLE UNTIL"]
    assert row[:4] == [token, "User:ann", "User:ann", "User:bob"]
    assert all(map(TIME.fullmatch, row[4:]))

    with_token = config(tmp_path, "token", token_properties(token, password))
    cli.ok("topic", "create", "by-token", *with_token)
    cli.ok("publish", "by-token", "hello", *with_token)
    assert "hello" in cli.ok("subscribe", "by-token", "--from", "earliest", "--max", "1", *with_token)
    said = cli.refused("subscribe", "by-token", "--group", "g", "--max", "1", *with_token, code=1)
    assert "confluent-kafka cannot log in with delegation tokens" in said
    said = cli.refused("token", "create", *with_token, code=1)
    assert "log in with a password or a certificate, not with a token" in said

    (sooner,) = cli.json("token", "expire", token, "--after", "10m", *bob)
    (renewed,) = cli.json("token", "renew", token, "--for", "12h", *bob)
    assert sooner["token"] == renewed["token"] == token
    assert sooner["expires"] < renewed["expires"] < made["expires"]
    said = cli.ok("token", "renew", token, *ann)
    assert re.fullmatch(rf"renewed delegation token {token}: it expires at {TIME.pattern}\n", said)
    assert cli.ok("token", "expire", token, "--yes", *ann) == f"deleted token {token}\n"
    assert cli.json("token", "list", *ann) == []
    said = cli.refused("topic", "list", *with_token, code=1)
    assert f"refused the login with the delegation token '{token}', which may have expired" in said


def test_a_new_token_is_printed_as_properties(cli: Cli, tmp_path: Path) -> None:
    said = cli.ok("token", "create", *config(tmp_path, ANN, properties(ANN)))
    first, *lines = said.splitlines()
    assert re.fullmatch(
        rf"created delegation token \S{{22}} of User:ann: it expires at {TIME.pattern}, and can be renewed until "
        rf"{TIME.pattern}",
        first,
    )
    given = {"security.protocol": "SASL_PLAINTEXT", **dict(line.split("=", 1) for line in lines)}
    assert cli.ok("topic", "create", "as-printed", *config(tmp_path, "printed", given))


def test_mistakes_are_explained(cli: Cli, broker: BrokerProcess, tmp_path: Path) -> None:
    ann = config(tmp_path, ANN, properties(ANN))
    for arguments, code, said in (
        (("renew", "A" * 22), 1, "there is no delegation token 'AAAAAAAAAAAAAAAAAAAAAA', or not for you"),
        (("expire", "A" * 22, "--yes"), 1, "there is no delegation token"),
        (("expire", "A" * 22), 2, "no terminal to ask for confirmation"),
        (("create", "--lifetime", "soon"), 2, "'soon' is not a duration"),
        (("create", "--lifetime", "0s"), 2, "'0s' is too short"),
        (("create", "--renewer", "Group:ops"), 1, "owners and renewers must be users; write them as User:NAME"),
    ):
        assert said in cli.refused("token", *arguments, *ann, code=code), arguments
    said = cli.refused("token", "list", "--bootstrap", broker.at[OPEN], code=1)
    assert "log in with a password or a certificate, not with a token" in said
