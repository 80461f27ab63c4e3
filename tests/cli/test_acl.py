"""`penstock acl`: permissions of a running cluster, and what they do for other commands."""

import re
import shlex
from collections.abc import Iterator
from pathlib import Path

import pytest
from click.testing import CliRunner, Result
from confluent_kafka.admin import (
    AclBindingFilter,
    AclOperation,
    AclPermissionType,
    ResourcePatternType,
    ResourceType,
)

from penstock.cli.acl.commands import acl
from penstock.cli.main import main
from penstock.foundation.acls import Operation
from penstock.foundation.authorizer_settings import STANDARD_AUTHORIZER
from tests.clients.acl_lab import ADMIN, AclLab
from tests.clients.waiting import PATIENCE_S

from .cli_runner import Cli, ServeProcess, table

ORDERS, BILLING = "orders", "billing"
HEADER = ["RESOURCE", "NAME", "PATTERN", "USER", "HOST", "OPERATION", "PERMISSION"]
COLOURS = re.compile(r"\x1b\[[0-9;]*m")
HOST = "10.0.0.7"


EVERY_ACL = AclBindingFilter(
    ResourceType.ANY, None, ResourcePatternType.ANY, None, None, AclOperation.ANY, AclPermissionType.ANY
)


@pytest.fixture(scope="module")
def lab(tmp_path_factory: pytest.TempPathFactory) -> Iterator[AclLab]:
    lab = AclLab(tmp_path_factory.mktemp("broker"), [ORDERS, BILLING], {"group.initial.rebalance.delay.ms": 0})
    yield lab
    lab.broker.finish()


def login(lab: AclLab, folder: Path, user: str) -> Cli:
    """Returns `penstock` with the address of the broker and a user's login in its environment."""
    file = folder / f"{user}.properties"
    file.write_text("\n".join(f"{name}={value}" for name, value in lab.properties(user).items()))
    cli = Cli(lab.at)
    cli.environment["PENSTOCK_COMMAND_CONFIG"] = str(file)
    return cli


@pytest.fixture
def cli(lab: AclLab, tmp_path: Path) -> Iterator[Cli]:
    """The command as user admin. There are no ACLs before and after the test."""
    yield login(lab, tmp_path, ADMIN)
    for done in lab.admin.delete_acls([EVERY_ACL]).values():
        done.result(PATIENCE_S)


def quick(cli: Cli, *arguments: str) -> Result:
    """Runs a command in this process: starting one takes longer."""
    return CliRunner().invoke(main, arguments, env=cli.environment)


def rows(text: str) -> list[list[str]]:
    """Returns the rows of a table of ACLs."""
    header, *found = table(text)
    assert header == HEADER
    return found


def test_the_roles_let_a_producer_publish_and_a_consumer_subscribe(cli: Cli, lab: AclLab, tmp_path: Path) -> None:
    cli.ok("topic", "create", "deliveries")
    producer, consumer = login(lab, tmp_path, ORDERS), login(lab, tmp_path, BILLING)
    reading = ("subscribe", "deliveries", "--from", "earliest", "--max", "1", "--group", "readers")
    assert "access is denied" in producer.refused("publish", "deliveries", "hello", code=1)

    to_produce = ("--allow", ORDERS, "--producer", "--topic", "deliveries", "--transactional-id", "orders-1")
    *found, last = cli.ok("acl", "add", *to_produce).splitlines()
    assert last == "added 5 ACLs"
    assert rows("\n".join(found)) == [
        ["topic", "deliveries", "literal", ORDERS, "*", "write", "allow"],
        ["topic", "deliveries", "literal", ORDERS, "*", "describe", "allow"],
        ["topic", "deliveries", "literal", ORDERS, "*", "create", "allow"],
        ["transactional-id", "orders-1", "literal", ORDERS, "*", "write", "allow"],
        ["transactional-id", "orders-1", "literal", ORDERS, "*", "describe", "allow"],
    ]
    producer.ok("publish", "deliveries", "hello")
    cli.ok("acl", "add", "--allow", BILLING, "--consumer", "--topic", "deliver", "--group", "read", "--prefix")
    assert "hello" in consumer.ok(*reading)

    assert cli.ok("acl", "remove", *to_produce, "--yes").splitlines()[-1] == "deleted 5 ACLs"
    assert "access is denied" in producer.refused("publish", "deliveries", "hello", code=1)
    assert [(each["name"], each["operation"]) for each in cli.json("acl", "list")] == [
        ("deliver", "read"),
        ("deliver", "describe"),
        ("read", "read"),
    ]


def test_users_hosts_operations_and_resources_are_combined(cli: Cli) -> None:
    who = ("--allow", "ann", "--allow", "User:bob", "--deny", "*", "--host", "10.0.0.0/8", "--host", "192.0.2.1")
    made = cli.json("acl", "add", *who, "--operation", "DescribeConfigs", "--topic", "a", "--topic", "*", "--cluster")
    assert len(made) == 3 * 2 * 3
    assert {each["principal"] for each in made} == {"User:ann", "User:bob", "User:*"}
    assert made[0] == {
        "resource": "topic",
        "name": "a",
        "pattern": "literal",
        "principal": "User:ann",
        "host": "10.0.0.0/8",
        "operation": "describe-configs",
        "permission": "allow",
        "added": True,
        "error": None,
    }
    kept = cli.json("acl", "list")
    assert len(kept) == len(made)
    # Once more: nothing changes.
    cli.ok("acl", "add", *who, "--operation", "describe_configs", "--topic", "a")
    assert cli.json("acl", "list") == kept
    assert len(cli.json("acl", "remove", "--deny", "*", "--host", "192.0.2.1", "--yes")) == 3
    assert len(cli.json("acl", "remove", "--allow", "ann", "--topic", "*", "--yes")) == 2
    (deleted, *_) = cli.json("acl", "remove", "--cluster", "--operation", "describe-configs", "--yes")
    assert (deleted["resource"], deleted["name"], deleted["deleted"]) == ("cluster", "kafka-cluster", True)


def test_lists_by_resource_user_and_what_applies_to_a_topic(cli: Cli) -> None:
    names = ("--topic", "orders", "--topic", "orders-eu", "--topic", "*")
    cli.ok("acl", "add", "--allow", "ann", "--operation", "read", *names)
    cli.ok("acl", "add", "--allow", "Group:staff", "--topic", "orders", "--group", "orders", "--prefix")
    cli.ok("acl", "add", "--deny", "*", "--operation", "create-tokens", "--user", "ann")

    def listed(*options: str) -> list[list[str]]:
        return [row[:4] for row in rows(quick(cli, "acl", "list", *options).stdout)]

    every_topic, literal, prefixed = (
        ["topic", "*", "literal", "ann"],
        ["topic", "orders", "literal", "ann"],
        ["topic", "orders", "prefixed", "Group:staff"],
    )
    assert listed("--all-matching", "orders") == [every_topic, literal, prefixed]
    assert listed("--all-matching", "orders-us") == [every_topic, prefixed]
    assert listed("--topic", "orders") == [literal, prefixed]
    assert listed("--topic", "orders", "--prefix", "--group", "orders") == [
        prefixed,
        ["group", "orders", "prefixed", "Group:staff"],
    ]
    assert listed("--user-filter", "Group:staff", "--topic", "orders") == [prefixed]
    assert listed("--user-filter", "*") == listed("--user", "ann") == [["user", "User:ann", "literal", "*"]]
    done = cli("acl", "list", "--topic", "none")
    assert (done.returncode, done.stdout) == (0, b"")
    assert done.stderr == b"No ACLs found; add one with `penstock acl add`.\n"


def test_remove_shows_the_acls_and_asks(cli: Cli) -> None:
    cli.ok("acl", "add", "--allow", "ann", "--operation", "read", "--topic", "orders")
    remove = ("acl", "remove", "--topic", "orders")
    assert "give --yes to delete without asking" in cli.refused(*remove, code=2)
    code, screen = cli.on_terminal(*remove, typed=b"n\n", until=b"[y/N]")
    assert code == 1
    assert "nothing was deleted" in screen
    shown, _, _ = COLOURS.sub("", screen).replace("\r", "").partition("Delete these ACLs?")
    assert rows(shown) == [["topic", "orders", "literal", "ann", "*", "read", "allow"]]
    assert len(cli.json("acl", "list")) == 1
    assert cli.ok(*remove, "--yes").endswith("\ndeleted 1 ACL\n")
    assert "no ACL matches, nothing was deleted" in cli.refused(*remove, "--yes", code=1)
    literally = cli.refused("acl", "remove", "--topic", "orders*", "--yes", code=1)
    assert "'orders*' is taken literally; see --prefix" in literally


def test_check_names_the_acl_that_decides(cli: Cli) -> None:
    def check(*options: str, user: str = ORDERS) -> tuple[int, str, list[list[str]]]:
        done = quick(cli, "acl", "check", "--as", user, "--host", HOST, *options)
        assert done.stderr == "", done.output
        verdict, _, rest = done.stdout.partition("\n")
        return done.exit_code, verdict, rows(rest) if rest else []

    writing = ("--operation", "write", "--topic", "orders")
    assert check(*writing) == (1, "denied: no ACL allows User:orders from 10.0.0.7: write on topic orders", [])
    assert check(*writing, user=ADMIN) == (0, "allowed: User:admin is one of the brokers' super.users", [])
    cli.ok("acl", "add", "--allow", ORDERS, "--operation", "write", "--topic", "ord", "--prefix")
    allowing = ["topic", "ord", "prefixed", ORDERS, "*", "write", "allow"]
    assert check(*writing) == (0, "allowed: by this ACL", [allowing])
    assert check("--operation", "describe", "--topic", "orders") == (0, "allowed: by this ACL", [allowing])
    cli.ok("acl", "add", "--deny", "*", "--host", "10.0.0.0/24", "--topic", "orders")
    denying = ["topic", "orders", "literal", "*", "10.0.0.0/24", "all", "deny"]
    assert check(*writing) == (1, "denied: by this ACL", [denying])
    # To create topics, the permission on the cluster is enough.
    creating = ("--operation", "create", "--topic", "orders")
    assert check(*creating) == (1, "denied: by this ACL", [denying])
    cli.ok("acl", "add", "--allow", ORDERS, "--operation", "create", "--cluster")
    in_cluster = ["cluster", "kafka-cluster", "literal", ORDERS, "*", "create", "allow"]
    assert check(*creating) == (0, "allowed: by this ACL", [in_cluster])
    (facts,) = cli.json("acl", "check", "--as", ORDERS, "--host", HOST, *creating)
    assert (facts["allowed"], facts["acl"]["resource"]) == (True, "cluster")


def test_a_user_without_permission_is_told_what_to_do(cli: Cli, lab: AclLab, tmp_path: Path) -> None:
    orders = login(lab, tmp_path, ORDERS)
    advice = (
        "log in as one of the brokers' super.users (--command-config), or as a user with the permission for alter"
    )
    adding = ("acl", "add", "--allow", ORDERS, "--topic", "a", "--topic", "b")
    said = orders.refused(*adding, code=1)
    assert said.startswith(f"User:orders has no permission for alter on the cluster; {advice}")
    assert said.count(advice) == 1
    done = orders(*adding, "--json")
    assert (done.returncode, done.stdout.count(b'"added": false')) == (1, 2)
    for command in (("list",), ("remove", "--topic", "a", "--yes")):
        assert advice in orders.refused("acl", *command, code=1)
    cli.ok("acl", "add", "--allow", ORDERS, "--operation", Operation.DESCRIBE.name, "--cluster")
    assert len(orders.json("acl", "list")) == 1


def test_without_an_authorizer_the_settings_are_named(broker: ServeProcess) -> None:
    plain = Cli(broker.bootstrap)
    for command in (
        ("list",),
        ("add", "--allow", ORDERS, "--topic", "a", "--topic", "b"),
        ("remove", "--topic", "a", "--yes"),
        ("check", "--as", ORDERS, "--host", HOST, "--operation", "read", "--topic", "a"),
    ):
        assert plain.refused("acl", *command, code=1) == (
            f"the brokers have no authorizer; set authorizer.class.name={STANDARD_AUTHORIZER} and super.users for "
            "all of them, and restart them"
        )


def test_the_examples_of_the_help_run(cli: Cli) -> None:
    for command, count in {"add": 6, "list": 4, "check": 2, "remove": 4}.items():
        examples = re.findall(r"^ *penstock (acl .*)$", acl.commands[command].help or "", re.MULTILINE)
        assert len(examples) == count
        for example in examples:
            done = quick(cli, *shlex.split(example))
            assert (done.exit_code, done.stderr) == (0, ""), done.output
