"""`penstock user access-key` and `penstock security key` against a broker."""

import re
import stat
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.brokers import BrokerProcess
from tests.sqs_clients import sqs_client

from .cli_runner import Cli, table

TIME = re.compile(r"\d{4}-\d\d-\d\dT\d\d:\d\d:\d\d\.\d{3}Z")
ID = re.compile(r"AKIA[A-Z2-7]{16}")


@pytest.fixture(scope="module")
def broker(tmp_path_factory: pytest.TempPathFactory) -> Iterator[BrokerProcess]:
    folder = tmp_path_factory.mktemp("broker")
    file = folder / "sqs-secret-key"
    said = Cli(None).ok("security", "key", str(file))
    reference = f"${{file:{file}}}"
    assert said == f"{file}  brokers need it as sqs.secret.key={reference}\n"
    assert stat.S_IMODE(file.stat().st_mode) == 0o600
    broker = BrokerProcess(folder, {"sqs.secret.key": reference}).start()
    yield broker
    broker.finish()


@pytest.fixture(scope="module")
def cli(broker: BrokerProcess) -> Cli:
    return Cli(broker.kafka)


def test_a_key_file_is_never_replaced(tmp_path: Path) -> None:
    file = tmp_path / "key"
    cli = Cli(None)
    cli.ok("security", "key", str(file))
    before = file.read_bytes()
    assert "exists; access keys may be encrypted with it" in cli.refused("security", "key", str(file), code=1)
    assert file.read_bytes() == before
    said = cli.refused("security", "key", str(tmp_path / "missing" / "key"), code=1)
    assert "cannot be written: no such file or directory" in said


def test_the_life_of_an_access_key(cli: Cli, broker: BrokerProcess, tmp_path: Path) -> None:
    patterns = ("--action", "Send*", "--action", "GetQueueUrl", "--queue", "orders-*", "--subject", "orders-*")
    (made,) = cli.json("user", "access-key", "create", "orders", "--account", "111122223333", *patterns)
    name, secret = made["access_key"], made.pop("secret")
    assert ID.fullmatch(name)
    assert TIME.fullmatch(made["created"])
    assert made == {
        "access_key": name,
        "user": "orders",
        "account": "111122223333",
        "actions": ["Send*", "GetQueueUrl"],
        "queues": ["orders-*"],
        "subjects": ["orders-*"],
        "created": made["created"],
    }
    listed = {**made, "enabled": True, "usable": True}
    assert cli.json("user", "access-key", "list") == cli.json("user", "access-key", "list", "orders") == [listed]
    names, row = table(cli.ok("user", "access-key", "list"))
    assert names == ["ACCESS KEY", "USER", "ACCOUNT", "ACTIONS", "QUEUES", "SUBJECTS", "CREATED", "STATE"]
    assert row == [
        *(name, "orders", "111122223333", "Send*,GetQueueUrl", "orders-*", "orders-*", made["created"], "enabled")
    ]
    sqs = sqs_client(broker.http, "json", tmp_path, key=name, secret=secret)
    with pytest.raises(sqs.exceptions.QueueDoesNotExist):
        sqs.get_queue_url(QueueName="orders-1")
    assert cli.ok("user", "access-key", "disable", name) == f"disabled access key {name}\n"
    assert table(cli.ok("user", "access-key", "list"))[1][-1] == "disabled"
    with pytest.raises(sqs.exceptions.ClientError, match=r"security token included in the request is invalid"):
        sqs.get_queue_url(QueueName="orders-1")
    assert cli.json("user", "access-key", "enable", name) == [{"access_key": name, "enabled": True}]
    assert "no terminal to ask" in cli.refused("user", "access-key", "delete", name, code=2)
    said = cli.refused("user", "access-key", "delete", name, "AKIAMISSING", "--yes", code=1)
    assert "there is no access key 'AKIAMISSING'; `penstock user access-key list` lists" in said
    assert cli.json("user", "access-key", "list") == []
    sqs.close()


def test_users_are_listed_with_the_number_of_their_access_keys(cli: Cli) -> None:
    cli.ok("user", "create", "both", "--generate", "--iterations", "4096")
    said = cli.ok("user", "access-key", "create", "both")
    first, *lines = said.splitlines()
    assert re.fullmatch(
        rf"created access key {ID.pattern} of user both in account 0{{12}}; keep its secret, .*", first
    )
    assert [line.partition("=")[0] for line in lines] == ["AWS_ACCESS_KEY_ID", "AWS_SECRET_ACCESS_KEY"]
    for _ in range(2):
        cli.ok("user", "access-key", "create", "only-keys")
    names, *rows = table(cli.ok("user", "list"))
    assert names == ["USER", "MECHANISMS", "ITERATIONS", "ACCESS KEYS"]
    assert rows == [["both", "SCRAM-SHA-256,SCRAM-SHA-512", "4096,4096", "1"], ["only-keys", "-", "-", "2"]]
    assert {"user": "only-keys", "iterations": {}, "access_keys": 2} in cli.json("user", "list")
    cli.ok("user", "delete", "both", "only-keys", "--yes")
    assert cli.json("user", "list") == cli.json("user", "access-key", "list") == []
    assert cli.refused("user", "delete", "only-keys", "--yes", code=1)


def test_mistakes_are_explained(cli: Cli) -> None:
    for arguments, said in (
        (("create", "orders", "--account", "shop"), "the account 'shop' is not an account id; expected 12 digits"),
        (
            ("create", "orders", "--queue", ""),
            "queues has the pattern ''; expected printable text such as payments-*",
        ),
        (("disable", "AKIAMISSING"), "there is no access key 'AKIAMISSING'"),
    ):
        assert said in cli.refused("user", "access-key", *arguments, code=1), arguments
