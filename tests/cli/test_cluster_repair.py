"""`penstock cluster repair-internal-topics` where internal topics were created wrongly; killed halfway, too."""

import asyncio
import json
import subprocess
from collections.abc import Iterator
from pathlib import Path

import pytest
from confluent_kafka import Consumer, KafkaException, TopicPartition
from confluent_kafka.admin import AdminClient, ConfigResource, ResourceType

from penstock.client.cluster import KafkaClient
from penstock.client.commit_set import Outcome, close_query, commit_set
from penstock.foundation.codes import ErrorCode
from penstock.wire.messages.list_groups import ListGroupsRequest
from penstock.wire.messages.list_transactions import ListTransactionsRequest
from tests.brokers import BrokerProcess
from tests.clients.raw import RawClient, records_of
from tests.clients.raw_members import RawProducer
from tests.clients.waiting import wait_until
from tests.clusters import ClusterProcesses
from tests.damaged_internal_topics import (
    OFFSETS,
    TOPIC,
    TRANSACTIONS,
    commit_all,
    committed,
    make_topic,
    make_wrongly,
)

from .cli_runner import COMMAND, Cli

PARTITIONS = 8
SETTINGS = {"offsets.topic.num.partitions": PARTITIONS, "transaction.state.log.num.partitions": PARTITIONS}
GROUPS = [f"group-{number}" for number in range(60)]
NAMES = [f"tx-{number}" for number in range(20)]
REPAIR = ("cluster", "repair-internal-topics")
START_S = 60


class Lab:
    """A broker with wrong internal topics, and what was put into them."""

    def __init__(self, bootstrap: str, address: tuple[str, int]) -> None:
        self.bootstrap = bootstrap
        self.address = address
        self.cli = Cli(bootstrap)
        self.offsets: dict[str, int] = {}

    @property
    def admin(self) -> AdminClient:
        """Keep it until the answer is there."""
        return AdminClient({"bootstrap.servers": self.bootstrap})

    def fill(self) -> None:
        """Groups and transactional ids, with real clients and raw frames."""
        make_topic(self.bootstrap)
        self.offsets = commit_all(self.bootstrap, GROUPS)
        with RawClient(self.address) as raw:
            for name in NAMES:
                assert RawProducer(raw, name).init() is ErrorCode.NONE

    def listed(self) -> tuple[list[str], list[str]]:
        """Groups and transactional ids, as often as they are there."""
        with RawClient(self.address) as raw:
            wait_until(lambda: raw.ask(ListGroupsRequest(), 5).error_code == 0, "groups are loaded", START_S)
            everything = ListTransactionsRequest(state_filters=(), producer_id_filters=())
            wait_until(lambda: raw.ask(everything, 1).error_code == 0, "transactions are loaded", START_S)
            groups = [group.group_id for group in raw.ask(ListGroupsRequest(), 5).groups]
            return sorted(groups), sorted(
                state.transactional_id for state in raw.ask(everything, 1).transaction_states
            )

    def check(self) -> None:
        """Everything that was put in is there, once."""
        assert self.listed() == (sorted(GROUPS), sorted(NAMES))
        assert committed(self.bootstrap, GROUPS) == self.offsets
        for topic in (OFFSETS, TRANSACTIONS):
            with RawClient(self.address) as raw:
                known = raw.describe(topic)
            assert (len(known.partitions), known.is_internal) == (PARTITIONS, True)
            resource = ConfigResource(ResourceType.TOPIC, topic)
            admin = self.admin
            configs = admin.describe_configs([resource])[resource].result()
            assert configs["cleanup.policy"].value == "compact"
            assert configs["segment.bytes"].value == str(100 << 20)
        assert self.cli.ok(*REPAIR, "--check") == "Nothing to repair.\n"


@pytest.fixture
def process(tmp_path: Path) -> Iterator[BrokerProcess]:
    """A broker whose internal topics have one partition and delete old segments."""
    process = BrokerProcess(tmp_path, SETTINGS).start()
    process.stop()
    for topic in (OFFSETS, TRANSACTIONS):
        make_wrongly("embedded", process.data_dir, topic)
    process.start()
    yield process
    if process.is_running:
        process.kill()


@pytest.fixture
def lab(process: BrokerProcess) -> Lab:
    return Lab(process.kafka, process.address)


def test_topics_that_were_created_wrongly_are_reported_and_repaired(process: BrokerProcess, lab: Lab) -> None:
    for topic in (OFFSETS, TRANSACTIONS):
        assert f"internal_topic_misconfigured topic={topic} setting=cleanup.policy found=None" in process.log
        assert f"internal_topic_partitions topic={topic} found=1" in process.log
    assert process.metric("penstock_internal_topic_faults") == 2
    lab.fill()
    shown = lab.cli(*REPAIR, "--check")
    assert shown.returncode == 1
    assert "cleanup.policy is not set, expected compact" in shown.stdout.decode()
    assert f"1 of {PARTITIONS} partitions" in shown.stdout.decode()
    refused = lab.cli(*REPAIR)
    assert (refused.returncode, b"give --yes" in refused.stderr) == (2, True)
    assert lab.cli.ok(*REPAIR, "--yes").endswith("Repaired 2 topics.\n")
    lab.check()
    assert process.metric("penstock_internal_topic_faults") == 0
    process.kill()
    process.start()
    lab.check()
    assert process.log.count("internal_topic_misconfigured") == 2, "nothing is reported any more"


def test_a_member_that_is_at_work_goes_on_through_the_repair(lab: Lab) -> None:
    lab.fill()
    consumer = Consumer({"bootstrap.servers": lab.bootstrap, "group.id": "at-work", "auto.offset.reset": "earliest"})
    consumer.subscribe([TOPIC])
    wait_until(lambda: consumer.poll(0.1) is None and consumer.assignment(), "it has joined", START_S)
    lab.cli.ok(*REPAIR, "--yes")

    def commits() -> bool:
        consumer.poll(0.1)
        try:
            consumer.commit(offsets=[TopicPartition(TOPIC, 0, 7)], asynchronous=False)
        except KafkaException:
            return False
        return True

    wait_until(commits, "it commits again", START_S)
    assert committed(lab.bootstrap, ["at-work"]) == {"at-work": 7}
    consumer.close()


def test_transactions_go_on_after_the_repair(process: BrokerProcess, lab: Lab) -> None:
    """The epochs of the new coordinators must not be behind: their markers would be ignored, and readers wait."""
    for _ in range(3):  # leader epochs, and with them the epochs of coordinators, go up
        process.kill()
        process.start()
    lab.fill()
    with RawClient(lab.address) as raw:
        producers = [RawProducer(raw, name, version=5) for name in NAMES]
        for producer in producers:
            producer.init()
            assert producer.produce(TOPIC, b"before") is ErrorCode.NONE
            assert producer.commit() is ErrorCode.NONE
            wait_until(lambda p=producer: p.produce(TOPIC, b"open") is ErrorCode.NONE, "a transaction is open")
        lab.cli.ok(*REPAIR, "--yes")
        lab.listed()
        for producer in producers:
            assert producer.produce(TOPIC, b"after") is ErrorCode.NONE
            assert producer.commit() is ErrorCode.NONE

        def ended() -> list[bytes | None]:
            data = raw.fetch(TOPIC, 0, isolation_level=1)
            return [record.value for record in records_of(data.records) if record.value in (b"open", b"after")]

        wait_until(lambda: len(ended()) == 2 * len(NAMES), "all transactions have ended", START_S)


def test_decisions_of_spark_queries_are_moved_too(lab: Lab) -> None:
    """A batch that was decided must stay so: a query that repeats it would write it twice."""
    lab.fill()
    queries = [f"query-{number}" for number in range(10)]

    async def close() -> None:
        async with KafkaClient(lab.bootstrap) as client:
            for query in queries:
                await close_query(client, query=query)

    async def commit() -> set[Outcome]:
        async with KafkaClient(lab.bootstrap) as client:
            return {await commit_set(client, query=query, batch_id=0, participants=[]) for query in queries}

    asyncio.run(close())
    lab.cli.ok(*REPAIR, "--yes")
    assert asyncio.run(commit()) == {Outcome.DECIDED_BEFORE}, "all queries are still closed"


STEPS = [
    pytest.param("coordinators paused", marks=pytest.mark.slow),
    "partitions added",
    pytest.param("state read", marks=pytest.mark.slow),
    "state copied",
    pytest.param("copied state deleted", marks=pytest.mark.slow),
]


@pytest.mark.parametrize("step", STEPS)
def test_a_repair_that_is_killed_is_finished_by_the_next(process: BrokerProcess, lab: Lab, step: str) -> None:
    lab.fill()
    running = lab.cli.start(*REPAIR, "--yes", "--json")
    assert running.stdout is not None
    for line in running.stdout:
        if json.loads(line).get("done") == step:
            break
    else:
        pytest.fail(f"it never said {step!r}: {running.stderr and running.stderr.read()!r}")
    running.kill()
    running.communicate()
    process.kill()
    process.start()
    if step == "partitions added":
        with RawClient(lab.address) as raw:
            code = raw.ask(ListGroupsRequest(), 5).error_code
        assert code == ErrorCode.COORDINATOR_LOAD_IN_PROGRESS, "coordinators wait for the state in its new partition"
        assert process.metric('penstock_coordinator_unloaded_partitions{coordinator="group",state="paused"}') > 0
    done = lab.cli(*REPAIR, "--yes")
    assert done.returncode == 0, done
    lab.check()
    process.kill()
    process.start()
    lab.check()


def test_offsets_in_an_open_transaction_hold_it_up(lab: Lab) -> None:
    lab.fill()
    with RawClient(lab.address) as raw:
        producer = RawProducer(raw, NAMES[0], version=5)
        producer.init()
        assert producer.commit_offset(GROUPS[0], TOPIC, 99) is ErrorCode.NONE
        refused = lab.cli(*REPAIR, "--yes", "--wait", "1")
        assert refused.returncode == 1
        assert b"transactions with offset commits are open" in refused.stderr
        assert len(raw.describe(OFFSETS).partitions) == 1
        assert lab.listed()[0] == sorted(GROUPS), "coordinators go on"
        assert producer.commit() is ErrorCode.NONE
        lab.offsets[GROUPS[0]] = 99
        lab.cli.ok(*REPAIR, "--yes")
    lab.check()


def test_nothing_is_done_to_topics_that_are_right(tmp_path: Path) -> None:
    process = BrokerProcess(tmp_path, SETTINGS).start()
    try:
        lab = Lab(process.kafka, process.address)
        assert lab.cli.ok(*REPAIR, "--yes") == "Nothing to repair.\n"
        lab.fill()
        assert lab.cli.json(*REPAIR, "--yes") == []
        lab.check()
    finally:
        process.finish()


def test_a_cluster_gets_partitions_and_replicas(tmp_path: Path) -> None:
    cluster = ClusterProcesses(tmp_path, settings=SETTINGS)
    try:
        for topic in (OFFSETS, TRANSACTIONS):
            make_wrongly(cluster.store, tmp_path, topic)
        broker = cluster.brokers[1]
        with RawClient(broker.address) as raw:
            wait_until(lambda: raw.describe(OFFSETS).error_code == 0, "the topics are there")
        cli = Cli(cluster.bootstrap)
        make_topic(cluster.bootstrap)
        wanted = commit_all(cluster.bootstrap, GROUPS)
        done = subprocess.run(
            [COMMAND, *REPAIR, "--yes"], env=cli.environment, capture_output=True, timeout=300, check=False
        )
        assert done.returncode == 0, done
        with RawClient(broker.address) as raw:
            for topic in (OFFSETS, TRANSACTIONS):
                found = {tuple(sorted(one.replica_nodes)) for one in raw.describe(topic).partitions}
                assert (found, len(raw.describe(topic).partitions)) == ({(1, 2, 3)}, PARTITIONS)
        broker.kill()
        broker.start()
        assert committed(cluster.bootstrap, GROUPS) == wanted
    finally:
        cluster.kill()
