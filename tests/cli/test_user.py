"""`penstock user`: the users of a running cluster, and the first user of one that does not run yet."""

from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.brokers import BrokerProcess

from .cli_runner import Cli

BOTH = {"SCRAM-SHA-256": 16384, "SCRAM-SHA-512": 16384}


@pytest.fixture(scope="module")
def broker(tmp_path_factory: pytest.TempPathFactory) -> Iterator[BrokerProcess]:
    settings = {"sasl.enabled.mechanisms": "PLAIN,SCRAM-SHA-256,SCRAM-SHA-512"}
    listeners = {"OPEN": "PLAINTEXT", "SASL": "SASL_PLAINTEXT"}
    broker = BrokerProcess(tmp_path_factory.mktemp("broker"), settings, listeners=listeners).start()
    yield broker
    broker.finish()


@pytest.fixture(scope="module")
def cli(broker: BrokerProcess) -> Cli:
    return Cli(broker.kafka)


def properties(folder: Path, user: str, password: str, mechanism: str = "SCRAM-SHA-512") -> str:
    """Returns the name of a file with the properties of a client."""
    file = folder / f"{user}.properties"
    lines = [
        "security.protocol=SASL_PLAINTEXT",
        f"sasl.mechanism={mechanism}",
        f"sasl.username={user}",
        f"sasl.password={password}",
    ]
    file.write_text("\n".join(lines))
    return str(file)


def password_file(folder: Path, password: str) -> str:
    file = folder / "password"
    file.write_text(f"{password}\n")
    return str(file)


def test_the_life_of_a_user(cli: Cli, broker: BrokerProcess, tmp_path: Path) -> None:
    (made,) = cli.json("user", "create", "orders", "--generate")
    assert (made["user"], made["mechanisms"]) == ("orders", ["SCRAM-SHA-256", "SCRAM-SHA-512"])
    assert len(made["password"]) >= 32
    assert {"user": "orders", "iterations": BOTH, "access_keys": 0} in cli.json("user", "list")
    config = ("--command-config", properties(tmp_path, "orders", made["password"]), "--bootstrap", broker.at["SASL"])
    cli.ok("topic", "create", "greetings", *config)
    cli.ok("publish", "greetings", "hello", *config)
    reading = ("subscribe", "greetings", "--from", "earliest", "--max", "1")
    assert cli.ok(*reading, *config) == cli.ok(*reading, "--group", "readers", *config) != ""

    said = cli.ok("user", "password", "orders", "--password-file", password_file(tmp_path, "a new password"))
    assert said == "changed the password of user orders\n"
    assert "refused the login of user 'orders'" in cli.refused("topic", "list", *config, code=1)
    properties(tmp_path, "orders", "a new password", "PLAIN")
    cli.ok("topic", "list", *config)

    assert cli.ok("user", "delete", "orders", "--yes") == "deleted user orders\n"
    assert "refused the login of user 'orders'" in cli.refused("topic", "list", *config, code=1)
    assert "does not exist" in cli.refused("user", "delete", "orders", "--yes", code=1)


def test_one_mechanism_and_fewer_iterations(cli: Cli, tmp_path: Path) -> None:
    options = ("--mechanism", "scram-sha-256", "--iterations", "4096")
    cli.ok("user", "create", "old-client", *options, "--password-file", password_file(tmp_path, "old password"))
    assert {"user": "old-client", "iterations": {"SCRAM-SHA-256": 4096}, "access_keys": 0} in cli.json("user", "list")
    # The new password is for the same mechanisms.
    cli.ok("user", "password", "old-client", "--generate")
    assert {"user": "old-client", "iterations": {"SCRAM-SHA-256": 16384}, "access_keys": 0} in cli.json(
        "user", "list"
    )


def test_mistakes_are_refused_with_advice(cli: Cli, tmp_path: Path) -> None:
    file = password_file(tmp_path, "long enough")
    cli.ok("user", "create", "twice", "--password-file", file)
    said = cli.refused("user", "create", "twice", "--password-file", file, code=1)
    assert "user 'twice' exists; change its password with `penstock user password twice`" in said
    assert "there is no user 'missing'" in cli.refused("user", "password", "missing", "--password-file", file, code=1)
    assert "no terminal to ask for the password: give --password-file FILE or --generate" in cli.refused(
        "user", "create", "quiet", code=2
    )
    short = password_file(tmp_path, "short")
    assert "give it at least 8" in cli.refused("user", "create", "weak", "--password-file", short, code=2)
    assert "exclude each other" in cli.refused("user", "create", "x", "--generate", "--password-file", file, code=2)
    assert "no terminal to ask for confirmation" in cli.refused("user", "delete", "twice", code=2)


def test_the_first_user_is_created_before_the_first_start(tmp_path: Path) -> None:
    """All listeners need a login, of brokers as well."""
    data, cli = tmp_path / "data", Cli(None)
    file = password_file(tmp_path, "first password")
    where = ("--password-file", file, "--data-dir", str(data))
    assert cli.ok("user", "create", "admin", *where) == "created user admin\n"
    assert "user 'admin' exists in this store" in cli.refused("user", "create", "admin", *where, code=1)
    module = "org.apache.kafka.common.security.scram.ScramLoginModule"
    jaas = f'{module} required username="admin" password="first password";'
    settings = {"listener.name.sasl.scram-sha-512.sasl.jaas.config": jaas}
    broker = BrokerProcess(tmp_path, settings, listeners={"SASL": "SASL_PLAINTEXT"}, data_dir=data).start()
    config = ("--command-config", properties(tmp_path, "admin", "first password"), "--bootstrap", broker.kafka)
    assert cli.json("user", "list", *config) == [{"user": "admin", "iterations": BOTH, "access_keys": 0}]
    assert "is used by another penstock process" in cli.refused("user", "create", "second", *where, code=1)
    broker.finish()
