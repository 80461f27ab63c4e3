"""CommitSet by raw frames and through our own client, on broker processes that are killed at the worst moments."""

import asyncio
import random
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

from penstock.client.admin import Admin
from penstock.client.cluster import ClientSettings, KafkaClient
from penstock.client.commit_set import Outcome, Participant, abort_open, commit_set, transactional_id
from penstock.foundation.codes import ErrorCode
from penstock.records.batch import batches
from penstock.transactions.commit_sets import ABORTED_MAX
from penstock.wire.keys import ApiKey
from penstock.wire.messages.api_versions import ApiVersionsRequest
from penstock.wire.messages.commit_set import (
    ABORT,
    COMMIT,
    COMMITTED,
    DECIDED_BEFORE,
    FORGET,
    CommitSetParticipant,
    CommitSetRequest,
    CommitSetResponse,
)
from penstock.wire.messages.list_transactions import ListTransactionsRequest
from tests.brokers import BrokerProcess
from tests.clusters import ClusterProcesses
from tests.spark_tasks import coordinator_of, ended, write

from .conftest import QUICK_GROUPS, QUICK_MAINTENANCE
from .driver_confluent import ConfluentDriver
from .drivers import Driver, Outgoing
from .raw import RawClient
from .raw_members import TRANSACTION, RawProducer, find_coordinator
from .test_transactions_errors import init, state_of
from .transactional_producers import READ_UNCOMMITTED, TRANSACTORS, read_to_end
from .waiting import wait_until

OWN = QUICK_GROUPS | QUICK_MAINTENANCE | {"transaction.state.log.num.partitions": 5}
NEWER = 5
"""The version of EndTxn from which on partitions join by being written to (KIP-890)."""
PATIENT = ClientSettings(retry_for_s=120.0, backoff_first_s=0.02, backoff_max_s=0.2)


def wrote(raw: RawClient, topic: str, name: str, value: bytes, partitions: int = 1, **options: int) -> RawProducer:
    """A task that has written, and left its transaction open."""
    producer = RawProducer(raw, name, version=NEWER, **options)
    init(producer)
    for number in range(partitions):
        assert producer.produce(topic, value, partition=number) is ErrorCode.NONE
    return producer


def request_for(query: str, batch_id: int, *tasks: RawProducer) -> CommitSetRequest:
    participants = [
        CommitSetParticipant(
            transactional_id=one.transactional_id, producer_id=one.producer_id, producer_epoch=one.epoch
        )
        for one in tasks
    ]
    return CommitSetRequest(query=query, action=COMMIT, batch_id=batch_id, participants=participants)


def commit(raw: RawClient, query: str, batch_id: int, *tasks: RawProducer) -> CommitSetResponse:
    answer: CommitSetResponse = raw.ask(request_for(query, batch_id, *tasks), 0)
    return answer


def order(raw: RawClient, query: str, action: int) -> CommitSetResponse:
    answer: CommitSetResponse = raw.ask(CommitSetRequest(query=query, action=action), 0)
    return answer


def has_ended(raw: RawClient, *names: str) -> set[str]:
    """How transactions have ended, once their partitions know."""
    wait_until(lambda: all(state_of(raw, name).startswith("Complete") for name in names), "all are complete")
    return {state_of(raw, name) for name in names}


@pytest.fixture
def own(topic: str, group_broker: BrokerProcess) -> str:
    """A topic of two partitions, whose name is the query's too."""
    ConfluentDriver(group_broker.kafka).create_topic(topic, 2)
    return topic


# -- one broker


def test_readers_of_committed_messages_see_a_batch_whole_and_once(
    group_raw: RawClient, group_broker: BrokerProcess, own: str
) -> None:
    ids = [transactional_id(own, number, "0.0") for number in range(3)]
    tasks = [wrote(group_raw, own, name, b"0", partitions=2) for name in ids]
    speculative = wrote(group_raw, own, transactional_id(own, 0, "0.1"), b"twice", partitions=2)
    assert read_to_end(group_broker.kafka, own) == []
    answer = commit(group_raw, own, 0, *tasks)
    assert (answer.error_code, answer.outcome, answer.aborted) == (0, COMMITTED, 1)
    assert has_ended(group_raw, *ids) == {"CompleteCommit"}
    assert has_ended(group_raw, speculative.transactional_id) == {"CompleteAbort"}
    for partition in range(2):
        assert read_to_end(group_broker.kafka, own, partition) == [b"0"] * 3
    assert commit(group_raw, own, 0, *tasks).outcome == COMMITTED
    repeated = [wrote(group_raw, own, name, b"again", partitions=2) for name in ids]
    answer = commit(group_raw, own, 0, *repeated)
    assert (answer.outcome, answer.aborted, answer.last_batch_id) == (DECIDED_BEFORE, 3, 0)
    assert has_ended(group_raw, *ids) == {"CompleteAbort"}
    for partition in range(2):
        assert read_to_end(group_broker.kafka, own, partition) == [b"0"] * 3
        assert len(read_to_end(group_broker.kafka, own, partition, READ_UNCOMMITTED)) == 7


def test_a_task_that_is_gone_takes_its_batch_with_it_and_the_next_try_succeeds(
    group_raw: RawClient, group_broker: BrokerProcess, own: str
) -> None:
    names = [transactional_id(own, number, "0.0") for number in range(2)]
    tasks = [wrote(group_raw, own, names[0], b"lost", timeout_ms=200), wrote(group_raw, own, names[1], b"lost")]
    wait_until(lambda: state_of(group_raw, names[0]) == "CompleteAbort", "the first has timed out")
    answer = commit(group_raw, own, 0, *tasks)
    assert answer.error_code == ErrorCode.INVALID_TXN_STATE
    assert [(one.transactional_id, one.error_code) for one in answer.broken] == [
        (names[0], ErrorCode.PRODUCER_FENCED)
    ]
    assert has_ended(group_raw, *names) == {"CompleteAbort"}
    tasks = [wrote(group_raw, own, name, b"found") for name in names]
    assert commit(group_raw, own, 0, *tasks).outcome == COMMITTED
    assert has_ended(group_raw, *names) == {"CompleteCommit"}
    assert read_to_end(group_broker.kafka, own) == [b"found"] * 2


def test_a_task_that_goes_on_after_the_decision_writes_nothing_more(
    group_raw: RawClient, group_broker: BrokerProcess, own: str
) -> None:
    name, late = transactional_id(own, 0, "0.0"), transactional_id(own, 0, "0.1")
    task, zombie = wrote(group_raw, own, name, b"once"), wrote(group_raw, own, late, b"never")
    assert commit(group_raw, own, 0, task).aborted == 1
    assert has_ended(group_raw, name, late) == {"CompleteCommit", "CompleteAbort"}
    for one in (task, zombie):
        for partition in range(2):
            assert one.produce(own, b"too late", partition=partition) is ErrorCode.INVALID_PRODUCER_EPOCH
        assert one.abort() is ErrorCode.PRODUCER_FENCED
    wrote(group_raw, own, late, b"never either")
    assert commit(group_raw, own, 1).aborted == 1
    assert has_ended(group_raw, late) == {"CompleteAbort"}
    assert read_to_end(group_broker.kafka, own) == [b"once"]


def test_a_query_is_cleaned_up_and_forgotten(group_raw: RawClient, group_broker: BrokerProcess, own: str) -> None:
    names = [transactional_id(own, number, "0.0") for number in range(3)]
    for name in names:
        wrote(group_raw, own, name, b"left")
    assert order(group_raw, own, ABORT).aborted == 3
    assert has_ended(group_raw, *names) == {"CompleteAbort"}
    for value in (b"first", b"second"):
        assert commit(group_raw, own, 7, wrote(group_raw, own, names[0], value)).outcome == COMMITTED
        assert order(group_raw, own, FORGET).last_batch_id == 7
        assert has_ended(group_raw, names[0]) == {"CompleteCommit"}
    assert read_to_end(group_broker.kafka, own) == [b"first", b"second"]


def test_a_driver_that_comes_too_late_has_all_its_transactions_aborted(
    group_raw: RawClient, group_broker: BrokerProcess, own: str
) -> None:
    """One request aborts a limited number of transactions: the client repeats it."""
    find_coordinator(group_raw, f"spark/{own}", TRANSACTION)
    assert commit(group_raw, own, 7).error_code == ErrorCode.NONE
    count = ABORTED_MAX + 10
    tasks = [wrote(group_raw, own, transactional_id(own, number, "0.0"), b"x") for number in range(count)]
    participants = [Participant(one.transactional_id, one.producer_id, one.epoch) for one in tasks]

    async def commit_late() -> Outcome:
        async with KafkaClient(group_broker.kafka, settings=PATIENT) as client:
            return await commit_set(client, query=own, batch_id=7, participants=participants)

    assert run(commit_late()) is Outcome.DECIDED_BEFORE
    assert has_ended(group_raw, *(one.transactional_id for one in tasks)) == {"CompleteAbort"}


def test_invalid_requests_are_refused_with_a_message(group_raw: RawClient, own: str) -> None:
    find_coordinator(group_raw, f"spark/{own}", TRANSACTION)
    stranger = RawProducer(group_raw, transactional_id("another", 0, "0.0"))
    for request in (
        request_for(own, -1),
        request_for("a/b", 0),
        request_for(own, 0, stranger),
        CommitSetRequest(query=own, action=17),
    ):
        answer = group_raw.ask(request, 0)
        assert answer.error_code == ErrorCode.INVALID_REQUEST
        assert "expected" in answer.error_message or "counted from 0" in answer.error_message


@pytest.mark.parametrize("library", TRANSACTORS)
def test_an_ordinary_client_may_have_an_id_of_that_shape(
    group_broker: BrokerProcess, group_raw: RawClient, own: str, library: str
) -> None:
    """It is found by its query's coordinator everywhere, and goes through its transactions as with any other id."""
    name = transactional_id(own, 7, library)
    producer = TRANSACTORS[library](group_broker.kafka, name)
    for number, commits in enumerate((True, False, True)):
        producer.begin()
        producer.send(own, b"%d" % number, partition=1)
        producer.send_offsets({(own, 1): number}, f"group-{own}")
        producer.commit() if commits else producer.abort()
    producer.close()
    wait_until(lambda: read_to_end(group_broker.kafka, own, 1) == [b"0", b"2"], "what was committed")
    listed = group_raw.ask(ListTransactionsRequest(state_filters=(), producer_id_filters=()), 1)
    assert name in {entry.transactional_id for entry in listed.transaction_states}


# -- brokers that do not support it


def test_an_api_of_our_own_is_listed_and_no_library_stumbles_over_it(
    client: Driver, raw: RawClient, topic: str
) -> None:
    """What ApiVersions lists beyond what they know, all of them pass over."""
    request = ApiVersionsRequest(client_software_name="raw", client_software_version="1")
    listed = {entry.api_key: (entry.min_version, entry.max_version) for entry in raw.ask(request, 4).api_keys}
    assert listed[ApiKey.COMMIT_SET] == (0, 0)
    client.create_topic(topic)
    client.produce(topic, [Outgoing(value=b"hello")])
    assert [message.value for message in client.consume_from_start(topic, 1)] == [b"hello"]


# -- killed brokers


def markers_in(broker: BrokerProcess, topic: str) -> int:
    """How many ends of transactions the partitions of a topic have, on disk."""
    segments = (broker.data_dir / "logs" / topic).rglob("*.log")
    return sum(header.is_control for path in segments for _, header in batches(path.read_bytes()))


def test_open_transactions_survive_a_killed_broker_and_are_committed_after_it(
    own_broker: Callable[..., BrokerProcess],
) -> None:
    broker = own_broker(OWN)
    ConfluentDriver(broker.kafka).create_topic("orders", 2)
    ids = [transactional_id("q", number, "0.0") for number in range(3)]
    with RawClient(broker.address) as raw:
        tasks = [wrote(raw, "orders", name, b"kept", partitions=2) for name in ids]
    broker.kill()
    broker.start()
    with RawClient(broker.address) as raw:
        find_coordinator(raw, "spark/q", TRANSACTION)
        assert commit(raw, "q", 0, *tasks).outcome == COMMITTED
        assert has_ended(raw, *ids) == {"CompleteCommit"}
    for partition in range(2):
        assert read_to_end(broker.kafka, "orders", partition) == [b"kept"] * 3


def test_a_decision_is_carried_out_after_a_kill_before_the_markers(
    own_broker: Callable[..., BrokerProcess],
) -> None:
    """Killed at the answer, until the kill was seen to come between the decision and the last of the markers."""
    broker = own_broker(OWN)
    ConfluentDriver(broker.kafka).create_topic("orders", 8)
    ids = [transactional_id("q", number, "0.0") for number in range(12)]
    came_between = False
    expected: list[bytes] = []
    for batch_id in range(10):
        value = b"%d" % batch_id
        with RawClient(broker.address) as raw:
            tasks = [wrote(raw, "orders", name, value, partitions=8) for name in ids]
            assert commit(raw, "q", batch_id, *tasks).outcome == COMMITTED
            broker.kill()
        came_between = 96 * batch_id <= markers_in(broker, "orders") < 96 * (batch_id + 1)
        broker.start()
        expected += [value] * len(ids)
        with RawClient(broker.address) as raw:
            find_coordinator(raw, "spark/q", TRANSACTION)
            assert commit(raw, "q", batch_id, *tasks).outcome == COMMITTED, "asked again, as a driver would"
            assert has_ended(raw, *ids) == {"CompleteCommit"}
        for partition in range(8):
            assert read_to_end(broker.kafka, "orders", partition) == expected
        if came_between:
            break
    assert came_between, "no kill came between the decision and the last marker"


def test_a_batch_is_whole_or_absent_when_the_broker_is_killed_around_the_decision(
    own_broker: Callable[..., BrokerProcess], rng: random.Random
) -> None:
    """Killed without waiting for the answer: the driver asks again, and each batch is there once."""
    broker = own_broker(OWN)
    ConfluentDriver(broker.kafka).create_topic("orders", 4)
    ids = [transactional_id("q", number, "0.0") for number in range(6)]
    for batch_id in range(6):
        value = b"%d" % batch_id
        with RawClient(broker.address) as raw:
            tasks = [wrote(raw, "orders", name, value, partitions=4) for name in ids]
            raw.send(request_for("q", batch_id, *tasks), 0)
            if rng.random() < 0.5:
                raw.receive()
            broker.kill()
        broker.start()
        with RawClient(broker.address) as raw:
            find_coordinator(raw, "spark/q", TRANSACTION)
            if rng.random() < 0.5:  # the same driver asks again; or another has the batch written once more
                answer = commit(raw, "q", batch_id, *tasks)
            else:
                answer = commit(raw, "q", batch_id, *[wrote(raw, "orders", name, value, 4) for name in ids])
            assert answer.error_code == 0
            has_ended(raw, *ids)
    for partition in range(4):
        assert read_to_end(broker.kafka, "orders", partition) == [b"%d" % (at // 6) for at in range(36)]


# -- several brokers


@pytest.fixture
def cluster(tmp_path: Path) -> Iterator[ClusterProcesses]:
    made = ClusterProcesses(tmp_path, settings=OWN)
    yield made
    made.finish()


def run(work: Any) -> Any:
    return asyncio.run(asyncio.wait_for(work, 110))


@pytest.mark.slow
@pytest.mark.timeout(240)
def test_a_query_has_one_coordinator_in_a_cluster_and_outlives_it(cluster: ClusterProcesses) -> None:
    """Tasks write to partitions of every broker; the coordinator is killed with a set open, and after a decision."""
    ids = [transactional_id("q", number, "0.0") for number in range(4)]

    async def two_batches() -> None:
        async with KafkaClient(cluster.bootstrap, settings=PATIENT) as client:
            await Admin(client).create("orders", partitions=6, replication_factor=3)
            where = {await coordinator_of(client, name) for name in (*ids, "spark/q")}
            assert len(where) == 1
            (coordinator,) = where
            for batch_id in range(2):
                await write(client, "orders", transactional_id("q", 0, "0.1"), b"never", range(6))
                tasks = [await write(client, "orders", name, b"%d" % batch_id, range(6)) for name in ids]
                if batch_id == 1:
                    cluster.lose(coordinator)
                done = await commit_set(client, query="q", batch_id=batch_id, participants=tasks)
                assert done is Outcome.COMMITTED
                assert {await ended(client, name) for name in ids} == {"CompleteCommit"}
            repeated = [await write(client, "orders", name, b"again", range(6)) for name in ids]
            done = await commit_set(client, query="q", batch_id=1, participants=repeated)
            assert done is Outcome.DECIDED_BEFORE
            await write(client, "orders", ids[0], b"left", range(6))
            assert await abort_open(client, query="q") == 1
            assert {await ended(client, name) for name in ids} == {"CompleteAbort"}

    run(two_batches())
    for partition in range(6):
        wait_until(
            lambda at=partition: read_to_end(cluster.bootstrap, "orders", at) == [b"0"] * 4 + [b"1"] * 4,
            "both batches, whole and once",
        )
