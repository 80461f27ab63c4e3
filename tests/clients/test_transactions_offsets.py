"""Offsets that are committed within a transaction are committed with it or not at all."""

from collections.abc import Iterator
from typing import Any

import pytest
from confluent_kafka import Consumer, ConsumerGroupTopicPartitions, KafkaError, KafkaException, TopicPartition

from penstock.foundation.codes import ErrorCode
from penstock.wire.messages.offset_fetch import (
    OffsetFetchRequest,
    OffsetFetchRequestGroup,
    OffsetFetchRequestTopics,
)
from tests.brokers import BrokerProcess

from .driver_confluent import QUIET, ConfluentDriver
from .drivers import Outgoing
from .raw import RawClient
from .raw_members import RawMember, RawProducer, find_coordinator
from .test_groups_commits import ConfluentCommitter
from .test_transactions import Open, driver, send_all, transactor
from .transactional_producers import TRANSACTORS, ConfluentTransactor, read_to_end
from .waiting import PATIENCE_S, wait_until

__all__ = ["driver", "transactor"]


def offset_of(raw: RawClient, group: str, topic: str, require_stable: bool = False) -> tuple[int, ErrorCode]:
    """The offset that a group has committed, and what the coordinator says with it."""
    wanted = OffsetFetchRequestGroup(
        group_id=group, topics=[OffsetFetchRequestTopics(name=topic, partition_indexes=[0])]
    )
    answer = raw.ask(OffsetFetchRequest(groups=[wanted], require_stable=require_stable), 9)
    found = answer.groups[0].topics[0].partitions[0]
    return found.committed_offset, ErrorCode(found.error_code)


@pytest.mark.parametrize("library", TRANSACTORS)
def test_offsets_count_when_the_transaction_commits(
    group_broker: BrokerProcess,
    driver: ConfluentDriver,
    transactor: Open,
    group_raw: RawClient,
    topic: str,
    library: str,
) -> None:
    driver.create_topic(topic)
    group = f"{topic}-group"
    ConfluentCommitter(group_broker.kafka, group).commit({(topic, 0): (1, "")})
    producer = transactor(library, topic)
    for offset, ends, after in ((5, producer.abort, 1), (7, producer.commit, 7), (9, producer.abort, 7)):
        producer.begin()
        send_all(producer, topic, b"%d" % offset)
        producer.send_offsets({(topic, 0): offset}, group)
        before = 7 if offset == 9 else 1
        assert offset_of(group_raw, group, topic) == (before, ErrorCode.NONE)
        # A member that fetches offsets must not begin before the transaction has ended (KIP-447).
        assert offset_of(group_raw, group, topic, require_stable=True) == (-1, ErrorCode.UNSTABLE_OFFSET_COMMIT)
        ends()
        wait_until(
            lambda: offset_of(group_raw, group, topic, require_stable=True)[1] is ErrorCode.NONE,
            "the offset is settled",
        )
        assert offset_of(group_raw, group, topic) == (after, ErrorCode.NONE)
    assert read_to_end(group_broker.kafka, topic) == [b"7"]


@pytest.mark.parametrize("library", TRANSACTORS)
def test_a_transaction_of_offsets_alone_is_one_too(
    driver: ConfluentDriver, transactor: Open, group_raw: RawClient, topic: str, library: str
) -> None:
    driver.create_topic(topic)
    producer = transactor(library, topic)
    producer.begin()
    producer.send_offsets({(topic, 0): 3}, f"{topic}-group")
    producer.commit()
    wait_until(lambda: offset_of(group_raw, f"{topic}-group", topic) == (3, ErrorCode.NONE), "the offset")


@pytest.fixture(params=["classic", "consumer"])
def member(request: pytest.FixtureRequest, group_broker: BrokerProcess, topic: str) -> Iterator[Consumer]:
    """A member of a group of either protocol, which reads `<topic>-in`."""
    classic = {"session.timeout.ms": 10_000, "heartbeat.interval.ms": 100} if request.param == "classic" else {}
    consumer = Consumer(
        {
            "bootstrap.servers": group_broker.kafka,
            "group.id": f"{topic}-group",
            "group.protocol": request.param,
            "auto.offset.reset": "earliest",
            "enable.auto.commit": False,
            "fetch.wait.max.ms": 100,
            **classic,
            **QUIET,
        }
    )
    yield consumer
    consumer.close()


def take(consumer: Consumer, count: int) -> list[Any]:
    found: list[Any] = []
    while len(found) < count:
        messages = consumer.consume(count - len(found), PATIENCE_S)
        assert messages
        assert all(message.error() is None for message in messages), [message.error() for message in messages]
        found += messages
    return found


def test_consume_transform_produce_is_exactly_once_through_aborts(
    group_broker: BrokerProcess, driver: ConfluentDriver, topic: str, member: Consumer
) -> None:
    source, sink = f"{topic}-in", f"{topic}-out"
    for name in (source, sink):
        driver.create_topic(name)
    driver.produce(source, [Outgoing(value=b"%d" % number) for number in range(30)])
    producer = ConfluentTransactor(group_broker.kafka, topic)
    member.subscribe([source])
    for round_ in range(6):
        messages = take(member, 5)
        producer.begin()
        for message in messages:
            producer.send(sink, b"made of " + message.value())
        following = [TopicPartition(source, 0, messages[-1].offset() + 1)]
        producer.producer.send_offsets_to_transaction(following, member.consumer_group_metadata(), PATIENCE_S)
        if round_ % 2 == 0:
            producer.abort()
            member.seek(TopicPartition(source, 0, messages[0].offset()))
            messages = take(member, 5)
            producer.begin()
            for message in messages:
                producer.send(sink, b"made of " + message.value())
            producer.producer.send_offsets_to_transaction(following, member.consumer_group_metadata(), PATIENCE_S)
        producer.commit()
    wait_until(lambda: len(read_to_end(group_broker.kafka, sink)) == 30, "all of it")
    assert read_to_end(group_broker.kafka, sink) == [b"made of %d" % number for number in range(30)]
    wanted = ConsumerGroupTopicPartitions(f"{topic}-group", [TopicPartition(source, 0)])
    (found,) = (
        driver.admin.list_consumer_group_offsets([wanted])[f"{topic}-group"].result(PATIENCE_S).topic_partitions
    )
    assert found.offset == 30


def test_a_former_member_cannot_commit_within_a_transaction(
    group_broker: BrokerProcess, driver: ConfluentDriver, topic: str, member: Consumer
) -> None:
    """KIP-447: not the producer is fenced then, but its consumer."""
    source = f"{topic}-in"
    driver.create_topic(source)
    driver.produce(source, [Outgoing(value=b"1")])
    member.subscribe([source])
    take(member, 1)
    stale = member.consumer_group_metadata()
    member.unsubscribe()
    producer = ConfluentTransactor(group_broker.kafka, topic)

    def has_left() -> bool:
        assert member.poll(0.02) is None  # which is when it does what it has to
        found = driver.admin.describe_consumer_groups([f"{topic}-group"])[f"{topic}-group"].result(PATIENCE_S)
        return not found.members

    wait_until(has_left, "the member has left")
    producer.begin()
    with pytest.raises(KafkaException) as caught:
        producer.producer.send_offsets_to_transaction([TopicPartition(source, 0, 1)], stale, PATIENCE_S)
    assert caught.value.args[0].code() in (KafkaError.UNKNOWN_MEMBER_ID, KafkaError.ILLEGAL_GENERATION)
    assert caught.value.args[0].txn_requires_abort()
    producer.abort()
    producer.begin()
    producer.commit()


# -- by hand


@pytest.fixture
def producer(driver: ConfluentDriver, group_raw: RawClient, topic: str) -> RawProducer:
    driver.create_topic(topic)
    made = RawProducer(group_raw, topic)
    assert made.init() is ErrorCode.NONE
    return made


def test_a_fenced_member_cannot_commit_within_a_transaction(
    group_broker: BrokerProcess, producer: RawProducer, topic: str
) -> None:
    group = f"{topic}-group"
    find_coordinator(producer.raw, group)
    with (
        RawMember(group_broker.address, group, topic, instance_id="same") as older,
        RawMember(group_broker.address, group, topic, instance_id="same") as newer,
    ):
        assert older.join() is ErrorCode.NONE
        assert older.sync() is ErrorCode.NONE
        assert newer.join() is ErrorCode.NONE
        assert newer.sync({}) is ErrorCode.NONE
        assert producer.add_offsets(group) is ErrorCode.NONE

        def commit(member: RawMember, **other: Any) -> ErrorCode:
            who = {
                "member_id": member.member_id,
                "generation_id": member.generation,
                "group_instance_id": member.instance_id,
            }
            return producer.commit_offset(group, topic, 5, **{**who, **other})

        assert commit(older) is ErrorCode.FENCED_INSTANCE_ID
        assert commit(newer, generation_id=newer.generation + 1) is ErrorCode.ILLEGAL_GENERATION
        assert commit(newer, generation_id=newer.generation - 1) is ErrorCode.ILLEGAL_GENERATION
        assert commit(newer, member_id="stranger", group_instance_id=None) is ErrorCode.UNKNOWN_MEMBER_ID
        assert commit(newer) is ErrorCode.NONE
    assert producer.commit() is ErrorCode.NONE
    wait_until(lambda: offset_of(producer.raw, group, topic) == (5, ErrorCode.NONE), "the offset")


def test_offsets_of_a_group_that_was_not_added_are_refused(producer: RawProducer, topic: str) -> None:
    """Before KIP-890 a producer adds the group first; without that, what it writes would never be ended."""
    find_coordinator(producer.raw, f"{topic}-group")
    assert producer.commit_offset(f"{topic}-group", topic, 5) is ErrorCode.TRANSACTION_ABORTABLE
    assert producer.commit_offset(f"{topic}-group", topic, 5, version=3) is ErrorCode.INVALID_TXN_STATE
    assert offset_of(producer.raw, f"{topic}-group", topic, require_stable=True) == (-1, ErrorCode.NONE)


def test_offsets_join_a_transaction_by_being_committed(producer: RawProducer, topic: str) -> None:
    """KIP-890: from version 5 on nothing has to be added."""
    producer.version = 5
    find_coordinator(producer.raw, f"{topic}-group")
    assert producer.commit_offset(f"{topic}-group", topic, 5) is ErrorCode.NONE
    assert producer.commit() is ErrorCode.NONE
    wait_until(lambda: offset_of(producer.raw, f"{topic}-group", topic) == (5, ErrorCode.NONE), "the offset")


def test_text_and_topics_are_looked_at_within_transactions_too(producer: RawProducer, topic: str) -> None:
    group = f"{topic}-group"
    find_coordinator(producer.raw, group)
    assert producer.add_offsets(group) is ErrorCode.NONE
    assert producer.commit_offset(group, topic, 5, metadata="x" * 5000) is ErrorCode.OFFSET_METADATA_TOO_LARGE
    assert producer.commit_offset(group, "nowhere", 5) is ErrorCode.UNKNOWN_TOPIC_OR_PARTITION
    assert producer.commit() is ErrorCode.NONE
    assert offset_of(producer.raw, group, topic, require_stable=True) == (-1, ErrorCode.NONE)


def test_a_group_needs_a_name_within_transactions_too(producer: RawProducer, topic: str) -> None:
    """As with Kafka it may be added without one, but nothing can be committed for it."""
    assert producer.add_offsets("") is ErrorCode.NONE
    assert producer.commit_offset("", topic, 5) is ErrorCode.INVALID_GROUP_ID
    assert producer.abort() is ErrorCode.NONE
