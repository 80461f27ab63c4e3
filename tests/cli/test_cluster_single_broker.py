"""`penstock cluster` with a single broker: what is shown, and what is refused."""

import json
from pathlib import Path

import pytest

from penstock.cli.cluster.reassign import read_plan
from penstock.foundation.ids import TopicPartition

from .cli_runner import Cli, Direct, ServeProcess, table


def test_a_broker_of_its_own_is_healthy(cli: Cli, broker: ServeProcess, topic: str) -> None:
    text = cli.ok("cluster", "status", "--check")
    first, second = text.splitlines()[:2]
    assert first.startswith("cluster ")
    assert first.endswith(": healthy")
    assert second.startswith("1 broker, ")
    assert ["1", broker.bootstrap, "-", "controller"] in table(text)
    assert ["offline", "0"] in table(text)
    (found,) = cli.json("cluster", "status")
    assert found["healthy"]
    assert found["controller"] == 1
    port = int(broker.bootstrap.rpartition(":")[2])
    assert found["brokers"] == [{"id": 1, "host": "127.0.0.1", "port": port, "rack": None, "state": "controller"}]
    assert found["counts"]["partitions"] >= 1
    assert found["unreachable"] == []
    assert all(names == [] for names in found["partitions"].values())
    assert found["moving"] == []


def test_a_topic_cannot_lack_more_replicas_than_it_has(cli: Cli, direct: Direct, fresh: str) -> None:
    direct.create(fresh, min_insync_replicas="2")
    assert cli("cluster", "status", "--check").returncode == 0
    direct.publish(fresh, b"taken all the same")
    cli.ok("topic", "delete", fresh, "--yes")


def test_brokers_are_listed_with_what_they_have(cli: Cli, direct: Direct, broker: ServeProcess, topic: str) -> None:
    direct.publish(topic, b"x" * 10_000)
    header, row = table(cli.ok("cluster", "brokers"))
    assert header == ["ID", "HOST", "RACK", "STATE", "REPLICAS", "LEADERS", "SIZE", "CONTROLLER"]
    assert row[:4] == ["1", broker.bootstrap, "-", "controller"]
    assert row[-1] == "yes"
    (found,) = cli.json("cluster", "brokers")
    assert found["size_bytes"] >= 10_000
    assert found["replicas"] == found["leaders"] >= 1


def test_a_plan_that_needs_more_brokers_is_refused(cli: Cli, topic: str) -> None:
    said = cli.refused("cluster", "reassign", "--replication-factor", "2", "--topic", topic, code=1)
    assert said == "2 replicas need 2 brokers that accept replicas, but there are 1"
    said = cli.refused("cluster", "reassign", "--partition", f"{topic}-0=1,2", code=1)
    assert "names unknown or offline brokers: [2]" in said
    said = cli.refused("cluster", "drain", "1", code=1)
    assert "broker 1 cannot be drained" in said
    assert "add one, or lower the replication factor" in said


def test_where_there_is_nothing_to_do_nothing_is_done(cli: Cli, topic: str) -> None:
    for arguments in (
        ("reassign", "--replication-factor", "1", "--topic", topic, "--execute"),
        ("reassign", "--partition", f"{topic}-0=1", "--execute"),
        ("rebalance",),
    ):
        assert cli.ok("cluster", *arguments) == "Nothing to do.\n"
    assert cli.ok("cluster", "reassign", "--cancel", "--execute") == "No reassignments in progress.\n"
    assert cli.ok("cluster", "rebalance", "--leaders", "--execute").startswith("Nothing to do: every partition")
    assert cli.ok("cluster", "reassign", "--unthrottle").startswith("Removed the throttle of 0 topics")
    assert cli.json("cluster", "rebalance") == [{"version": 1, "partitions": []}]


def test_missing_topics_and_brokers_are_named(cli: Cli, topic: str) -> None:
    assert "there is no topic 'no-such'" in cli.refused(
        "cluster", "reassign", "--replication-factor", "1", "--topic", "no-such", code=1
    )
    assert "has 1 partitions; 4 does not exist" in cli.refused(
        "cluster", "reassign", "--partition", f"{topic}-4=1", code=1
    )
    assert "there is no broker 7" in cli.refused("cluster", "drain", "7", code=1)


@pytest.mark.parametrize(
    ("arguments", "said"),
    [
        (("reassign",), "give exactly one of --replication-factor"),
        (("reassign", "--cancel", "--unthrottle"), "give exactly one of"),
        (("reassign", "--partition", "orders=1"), "'orders=1' is not TOPIC-PARTITION=BROKER"),
        (("reassign", "--partition", "orders-0=1,x"), "is not TOPIC-PARTITION=BROKER"),
        (("rebalance", "--leaders", "--throttle", "5"), "--leaders copies no data"),
    ],
)
def test_misuse_is_reported(cli: Cli, arguments: tuple[str, ...], said: str) -> None:
    assert said in cli.refused("cluster", *arguments, code=2)


def test_a_file_that_is_no_plan_is_refused(cli: Cli, tmp_path: Path) -> None:
    path = tmp_path / "plan.json"
    path.write_text('{"version": 2}')
    said = cli.refused("cluster", "reassign", "--file", str(path), code=2)
    assert 'expected {"version": 1, "partitions"' in said


def test_kafkas_plans_are_read() -> None:
    entry = {"topic": "orders", "partition": 3, "replicas": [1, 2], "log_dirs": ["any", "any"]}
    assert read_plan(json.dumps({"version": 1, "partitions": [entry]})) == {TopicPartition("orders", 3): (1, 2)}
    for wrong in (
        "no json",
        "[]",
        "[" * 100_000,
        '{"version": 1}',
        '{"version": 1, "partitions": [{"topic": "orders"}]}',
        '{"version": 1, "partitions": [{"topic": "orders", "partition": 0, "replicas": ["1"]}]}',
        json.dumps({"version": 1, "partitions": [entry, entry]}),
    ):
        with pytest.raises(ValueError, match=r"JSON|expected|a partition has|twice|too deeply"):
            read_plan(wrong)
