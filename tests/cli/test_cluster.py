"""`penstock cluster` of three brokers and more, on a real etcd."""

import asyncio
import json
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from penstock.client.admin import Admin
from penstock.client.cluster import KafkaClient
from penstock.client.cluster_admin import ClusterAdmin, Resource
from penstock.client.metadata import PartitionInfo
from penstock.replication.settings import LEADER_RATE
from tests.clients.waiting import wait_until
from tests.clusters import ClusterProcesses

from .cli_runner import RUN_S, Cli, Direct, interrupt, table

NO_REBALANCE = {"auto.leader.rebalance.enable": False}
SLOW = "1"
"""Bytes a second: what is moved so is not moved before the test is over."""


@pytest.fixture(scope="module")
def trio(tmp_path_factory: pytest.TempPathFactory) -> Iterator[ClusterProcesses]:
    """Three brokers that tests share: they differ in their topics."""
    made = ClusterProcesses(tmp_path_factory.mktemp("trio"), settings=NO_REBALANCE)
    yield made
    made.finish()


@pytest.fixture
def own_cluster(tmp_path: Path) -> Iterator[Callable[[], ClusterProcesses]]:
    """Three brokers for one test alone, which may do to them what it likes."""
    made: list[ClusterProcesses] = []

    def start() -> ClusterProcesses:
        made.append(ClusterProcesses(tmp_path, settings=NO_REBALANCE))
        return made[-1]

    yield start
    for cluster in made:
        cluster.finish()


@pytest.fixture
def trio_cli(trio: ClusterProcesses) -> Cli:
    return Cli(trio.bootstrap)


def create(cluster: ClusterProcesses, topic: str, partitions: int = 1, replicas: int = 1, **configs: str) -> None:
    async def work() -> None:
        async with KafkaClient(cluster.bootstrap) as client:
            named = {name.replace("_", "."): value for name, value in configs.items()}
            await Admin(client).create(topic, partitions=partitions, replication_factor=replicas, configs=named)

    asyncio.run(work())


def partitions(cluster: ClusterProcesses, topic: str) -> list[PartitionInfo]:
    async def work() -> list[PartitionInfo]:
        async with KafkaClient(cluster.bootstrap) as client:
            found = await Admin(client).topic(topic)
            return [found.partitions[number] for number in sorted(found.partitions)]

    return asyncio.run(work())


def own_configs(cli: Cli, topic: str) -> dict[str, str]:
    (found,) = cli.json("topic", "describe", topic)
    return {entry["name"]: entry["value"] for entry in found["configs"]}


def leader_rates(cluster: ClusterProcesses) -> list[str | None]:
    async def work() -> list[str | None]:
        async with KafkaClient(cluster.bootstrap) as client:
            found = await ClusterAdmin(client).configs(Resource.BROKER, ["1", "2", "3"], [LEADER_RATE])
            return [found[name][LEADER_RATE] for name in sorted(found)]

    return asyncio.run(work())


def test_status_and_brokers_show_all_three(trio: ClusterProcesses, trio_cli: Cli) -> None:
    create(trio, "shown", 6, 3)
    wait_until(lambda: trio_cli("cluster", "status", "--check").returncode == 0, "it is healthy")
    (found,) = trio_cli.json("cluster", "status")
    assert [each["id"] for each in found["brokers"]] == [1, 2, 3]
    assert sorted(each["state"] for each in found["brokers"]) == ["controller", "up", "up"]
    rows = trio_cli.json("cluster", "brokers")
    assert [row["address"] for row in rows] == [broker.kafka for broker in trio.brokers.values()]
    assert sum(row["controller"] for row in rows) == 1
    assert all(row["replicas"] >= 6 for row in rows)
    assert sum(row["leaders"] for row in rows) >= 6
    assert len(table(trio_cli.ok("cluster", "brokers"))) == 4


def test_a_topic_gets_more_replicas_and_fewer_again(trio: ClusterProcesses, trio_cli: Cli) -> None:
    create(trio, "grows", 3)
    Direct(trio.bootstrap).publish("grows", *(b"%d" % number for number in range(500)))
    before = [each.replicas for each in partitions(trio, "grows")]
    arguments = ("cluster", "reassign", "--replication-factor", "3", "--topic", "grows")
    plan = trio_cli.ok(*arguments)
    assert "3 partitions changed, 6 replicas copied" in plan
    assert plan.endswith("Nothing was changed; run with --execute.\n")
    assert [each.replicas for each in partitions(trio, "grows")] == before

    done = trio_cli.ok(*arguments, "--execute", "--throttle", "10000000")
    assert "moved 3 of 3 partitions\n" in done
    assert done.endswith("Moved 3 partitions.\n")
    assert {len(each.replicas) for each in partitions(trio, "grows")} == {3}
    assert {len(each.isr) for each in partitions(trio, "grows")} == {3}
    assert own_configs(trio_cli, "grows") == {}, "the throttle is lifted"
    assert Direct(trio.bootstrap).values("grows") == [b"%d" % number for number in range(500)]

    fewer = ("cluster", "reassign", "--replication-factor", "1", "--topic", "grows")
    plan_json, moved = trio_cli.json(*fewer, "--execute")
    assert [len(entry["replicas"]) for entry in plan_json["partitions"]] == [1, 1, 1]
    assert moved == {"moved": 3}
    assert [each.replicas[0] for each in partitions(trio, "grows")] == [each[0] for each in before]


def test_a_plan_goes_through_a_file(trio: ClusterProcesses, trio_cli: Cli, tmp_path: Path) -> None:
    create(trio, "by-file", 2)
    path = tmp_path / "plan.json"
    path.write_text(
        json.dumps(
            {
                "version": 1,
                "partitions": [
                    {"topic": "by-file", "partition": 0, "replicas": [2, 3]},
                    {"topic": "by-file", "partition": 1, "replicas": [3, 1], "log_dirs": ["any", "any"]},
                ],
            }
        )
    )
    shown = table(trio_cli.ok("cluster", "reassign", "--file", str(path)))
    assert shown[0] == ["PARTITION", "NOW", "THEN"]
    assert [row[2] for row in shown[1:3]] == ["2,3", "3,1"]
    trio_cli.ok("cluster", "reassign", "--file", str(path), "--execute")
    assert [each.replicas for each in partitions(trio, "by-file")] == [(2, 3), (3, 1)]
    trio_cli.ok("cluster", "reassign", "--partition", "by-file-0=1,2", "--execute")
    assert [each.replicas for each in partitions(trio, "by-file")] == [(1, 2), (3, 1)]


def test_an_ongoing_reassignment_is_listed_and_can_be_cancelled(trio: ClusterProcesses, trio_cli: Cli) -> None:
    create(trio, "slow")
    trio_cli.ok("cluster", "reassign", "--partition", "slow-0=1", "--execute")
    Direct(trio.bootstrap).publish("slow", *[b"x" * 50_000] * 20)
    arguments = ("cluster", "reassign", "--partition", "slow-0=2,3", "--execute", "--throttle", SLOW)
    text = trio_cli.ok(*arguments, "--no-wait")
    assert "The throttle stays;" in text
    assert "Started to move 1 partition" in text
    assert own_configs(trio_cli, "slow") == {
        "leader.replication.throttled.replicas": "0:1",
        "follower.replication.throttled.replicas": "0:2,0:3",
    }
    (found,) = trio_cli.json("cluster", "status")
    (moving,) = found["moving"]
    assert (moving["partition"], moving["adding"], moving["removing"]) == ("slow-0", [2, 3], [1])
    assert moving["copied"] is None or moving["copied"] < 1
    assert "slow-0" in trio_cli.ok("cluster", "status", "--check"), "moving is no illness"

    # Nothing is copied: the quota of the other topic is used up for hours.
    create(trio, "copied", 1, 3)
    trio_cli.ok("cluster", "reassign", "--partition", "copied-0=2,3", "--execute", "--throttle", SLOW)
    assert own_configs(trio_cli, "copied") == {}
    assert leader_rates(trio) == [SLOW] * 3, "another topic is still throttled"

    waits = trio_cli.start(*arguments)
    assert waits.stdout is not None
    while waits.stdout.readline() != b"moved 0 of 1 partition\n":
        assert waits.poll() is None
    code, _, said = interrupt(waits)
    assert code == 130
    assert said.startswith(b"The moves continue;")

    assert "slow-0" in trio_cli.ok("cluster", "reassign", "--cancel", "--topic", "slow")
    assert partitions(trio, "slow")[0].replicas != (1,)
    assert trio_cli.ok("cluster", "reassign", "--cancel", "--topic", "slow", "--execute").endswith(
        "Cancelled 1 move.\n"
    )
    wait_until(lambda: partitions(trio, "slow")[0].replicas == (1,), "it is as it was")
    trio_cli.ok("cluster", "reassign", "--unthrottle")
    assert own_configs(trio_cli, "slow") == {}
    assert SLOW not in leader_rates(trio)
    trio_cli.ok("cluster", "reassign", "--partition", "slow-0=2,3", "--execute")
    assert partitions(trio, "slow")[0].isr in ((2, 3), (3, 2))


@pytest.mark.slow
def test_waiting_for_a_reassignment_fails_if_it_is_cancelled(trio: ClusterProcesses, trio_cli: Cli) -> None:
    create(trio, "taken")
    trio_cli.ok("cluster", "reassign", "--partition", "taken-0=1", "--execute")
    Direct(trio.bootstrap).publish("taken", *[b"x" * 50_000] * 20)
    waits = trio_cli.start("cluster", "reassign", "--partition", "taken-0=2", "--execute", "--throttle", SLOW)
    assert waits.stdout is not None
    while waits.stdout.readline() != b"moved 0 of 1 partition\n":
        assert waits.poll() is None
    trio_cli.ok("cluster", "reassign", "--cancel", "--topic", "taken", "--execute")
    _, said = waits.communicate(timeout=RUN_S)
    assert waits.returncode == 1
    assert b"the replicas of taken-0 are 1, expected 2; another client has cancelled or changed the move" in said
    assert own_configs(trio_cli, "taken") == {}, "the throttle is lifted all the same"


def test_a_broker_that_is_killed_is_missed_and_its_leaders_are_elected_back(
    own_cluster: Callable[[], ClusterProcesses],
) -> None:
    cluster = own_cluster()
    create(cluster, "alone", 3)
    create(cluster, "safe", 6, 3, min_insync_replicas="3")
    cli = Cli(cluster.bootstrap)
    wait_until(lambda: cli("cluster", "status", "--check").returncode == 0, "it is healthy")
    cli.ok("cluster", "reassign", "--partition", "alone-0=3", "--execute")
    lost = sorted(str(each.tp) for each in partitions(cluster, "alone") if each.replicas == (3,))
    cluster.lose(3)
    cli = Cli(cluster.bootstrap)
    wait_until(
        lambda: len(cli.json("cluster", "status")[0]["partitions"]["under_replicated"]) >= 6, "the ISRs shrink", 60
    )
    done = cli("cluster", "status", "--check")
    assert done.returncode == 1
    rows = table(done.stdout.decode())
    assert ["3", "-", "-", "missing"] in rows
    (found,) = cli.json("cluster", "status")
    assert len(found["partitions"]["under_min_isr"]) >= 6
    assert found["partitions"]["offline"] == lost
    assert ["alone-0", "offline", "-", "3", "3"] in rows
    brokers = [broker for broker in cluster.brokers.values() if broker.is_running]
    assert sum(broker.metric("penstock_under_replicated_partitions") for broker in brokers) >= 6
    assert sum(broker.metric("penstock_under_min_isr_partitions") for broker in brokers) >= 6
    assert sum(broker.metric("penstock_leaderless_partitions") for broker in brokers) == len(lost)

    cluster.brokers[3].start()
    cli = Cli(cluster.bootstrap)
    wait_until(lambda: cli("cluster", "status", "--check").returncode == 0, "it is healthy again", 60)
    assert sum(broker.metric("penstock_isr_expands_total") for broker in brokers) >= 6
    (found,) = cli.json("cluster", "status")
    waiting = found["partitions"]["not_preferred"]
    assert waiting, "those that broker 3 led are led by others"
    assert [entry["partition"] for entry in cli.json("cluster", "rebalance", "--leaders")] == waiting
    assert "Elected the preferred leader of" in cli.ok("cluster", "rebalance", "--leaders", "--execute")
    wait_until(lambda: not cli.json("cluster", "status")[0]["partitions"]["not_preferred"], "they lead")


def test_a_broker_comes_gets_its_share_and_goes(own_cluster: Callable[[], ClusterProcesses]) -> None:
    cluster = own_cluster()
    create(cluster, "orders", 12, 3)
    Direct(cluster.bootstrap).publish("orders", *[b"x" * 1000] * 50)
    cluster.add(4)
    cli = Cli(cluster.bootstrap)
    (plan,) = cli.json("cluster", "rebalance")
    assert sum(4 in entry["replicas"] for entry in plan["partitions"]) == 9
    text = cli.ok("cluster", "rebalance", "--execute")
    assert "9 replicas copied" in text, "a quarter of 36"
    load = {row["id"]: row for row in cli.json("cluster", "brokers")}
    assert {load[node]["replicas"] for node in (1, 2, 3, 4)} == {9}
    assert load[4]["leaders"] >= 2
    assert cli.ok("cluster", "rebalance") == "Nothing to do.\n"

    assert "9 replicas copied" in cli.ok("cluster", "drain", "4")
    text = cli.ok("cluster", "drain", "4", "--execute", "--throttle", "50000000")
    assert text.endswith("Broker 4 has no replicas left; it can be decommissioned.\n")
    load = {row["id"]: row for row in cli.json("cluster", "brokers")}
    assert (load[4]["replicas"], load[4]["state"]) == (0, "drained")
    create(cluster, "later", 8, 3)
    assert all(4 not in each.replicas for each in partitions(cluster, "later")), "it gets nothing any more"
    cli.ok("cluster", "drain", "4", "--cancel", "--execute")
    assert {row["id"]: row["state"] for row in cli.json("cluster", "brokers")}[4] == "up"
    cluster.brokers[4].stop()
    cli = Cli(cluster.bootstrap)
    wait_until(lambda: len(cli.json("cluster", "brokers")) == 3, "it is gone", 60)
    assert len(Direct(cluster.bootstrap).values("orders")) == 50


@pytest.mark.slow
def test_a_broker_that_is_lost_is_replaced_by_the_others(own_cluster: Callable[[], ClusterProcesses]) -> None:
    cluster = own_cluster()
    create(cluster, "orders", 6, 2)
    Direct(cluster.bootstrap).publish("orders", *[b"x" * 1000] * 50)
    cluster.lose(3)
    cli = Cli(cluster.bootstrap)
    wait_until(lambda: "missing" in cli.ok("cluster", "brokers"), "it is missed", 60)
    text = cli.ok("cluster", "drain", "3", "--execute")
    assert text.endswith("Broker 3 has no replicas left; it can be decommissioned.\n")
    assert {each.isr for each in partitions(cluster, "orders")} <= {(1, 2), (2, 1)}
    assert [row["id"] for row in cli.json("cluster", "brokers")] == [1, 2]
    cli.ok("cluster", "status", "--check")
    assert len(Direct(cluster.bootstrap).values("orders")) == 50


def test_the_clusters_own_topics_are_left_alone_unless_they_are_asked_for(
    trio: ClusterProcesses, trio_cli: Cli
) -> None:
    create(trio, "read")
    Direct(trio.bootstrap).publish("read", b"hello")
    trio_cli.ok("subscribe", "read", "--group", "readers", "--from", "earliest", "--max", "1")

    def planned(*arguments: str) -> set[str]:
        (plan,) = trio_cli.json("cluster", "reassign", "--replication-factor", "2", *arguments)
        return {entry["topic"] for entry in plan["partitions"]}

    assert "__consumer_offsets" not in planned()
    assert "read" in planned()
    assert "__consumer_offsets" in planned("--internal")
    assert planned("--topic", "__consumer_offsets") == {"__consumer_offsets"}


def test_progress_is_drawn_on_a_terminal(trio: ClusterProcesses, trio_cli: Cli) -> None:
    create(trio, "drawn", 2)
    code, screen = trio_cli.on_terminal(
        "cluster", "reassign", "--replication-factor", "2", "--topic", "drawn", "--execute"
    )
    assert code == 0
    assert "moving" in screen
    assert "100%" in screen
    assert "Moved 2 partitions." in screen
