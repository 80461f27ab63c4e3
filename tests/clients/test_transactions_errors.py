"""Errors of a transaction coordinator for invalid requests, which never block readers for good."""

import time
from collections.abc import Callable

import pytest
from confluent_kafka import KafkaError, KafkaException

from penstock.foundation.codes import ErrorCode
from penstock.wire.messages.add_partitions_to_txn import (
    AddPartitionsToTxnRequest,
    AddPartitionsToTxnTopic,
    AddPartitionsToTxnTransaction,
)
from penstock.wire.messages.describe_transactions import DescribeTransactionsRequest
from penstock.wire.messages.init_producer_id import InitProducerIdRequest
from tests.brokers import BrokerProcess

from .driver_confluent import ConfluentDriver
from .drivers import Outgoing
from .raw import RawClient
from .raw_members import RawProducer, find_coordinator
from .test_transactions import driver, transactor
from .transactional_producers import READ_UNCOMMITTED, ConfluentTransactor, Fenced, read_to_end
from .waiting import wait_until

__all__ = ["driver", "transactor"]

Make = Callable[..., RawProducer]
CLASSIC, NEWER = 4, 5
"""Versions of EndTxn: partitions are added by hand; they join by being written to, and the epoch moves (KIP-890)."""


@pytest.fixture
def make(driver: ConfluentDriver, group_raw: RawClient, topic: str) -> Make:
    """Makes initialised producers, all with one transactional id; their topic has two partitions."""
    driver.create_topic(topic, 2)

    def made(version: int = CLASSIC, **options: int) -> RawProducer:
        producer = RawProducer(group_raw, topic, version=version, **options)
        init(producer)
        return producer

    return made


def init(producer: RawProducer, **options: int) -> None:
    """An open transaction is aborted first; meanwhile the client has to retry."""
    code = producer.init(**options)
    while code is ErrorCode.CONCURRENT_TRANSACTIONS:
        code = producer.init(**options)
    assert code is ErrorCode.NONE


def begun(producer: RawProducer, topic: str, value: bytes = b"begun") -> RawProducer:
    """A producer with an open transaction in partition 0."""
    if producer.version == CLASSIC:
        assert producer.add(topic, 0) == {0: ErrorCode.NONE}
    assert producer.produce(topic, value) is ErrorCode.NONE
    return producer


def state_of(raw: RawClient, transactional_id: str) -> str:
    (found,) = raw.ask(DescribeTransactionsRequest(transactional_ids=[transactional_id]), 0).transaction_states
    return found.transaction_state


# -- beginning


@pytest.mark.parametrize("timeout_ms", [0, -1, 900_001])
def test_a_timeout_must_be_within_bounds(make: Make, timeout_ms: int) -> None:
    assert make().init(transaction_timeout_ms=timeout_ms) is ErrorCode.INVALID_TRANSACTION_TIMEOUT


def test_an_empty_transactional_id_is_none(group_raw: RawClient, make: Make) -> None:
    assert make().init(transactional_id="") is ErrorCode.INVALID_REQUEST


def test_a_transactional_id_that_was_not_initialised_is_unknown(make: Make, topic: str) -> None:
    known = make()
    known.transactional_id = f"{topic}-unknown"
    find_coordinator(known.raw, "group")
    assert known.add(topic, 0) == {0: ErrorCode.INVALID_PRODUCER_ID_MAPPING}
    assert known.add_offsets("group") is ErrorCode.INVALID_PRODUCER_ID_MAPPING
    assert known.commit() is ErrorCode.INVALID_PRODUCER_ID_MAPPING
    assert known.produce(topic, b"x") is ErrorCode.INVALID_PRODUCER_ID_MAPPING


def test_another_producer_id_is_unknown_to_it(make: Make, topic: str) -> None:
    other = make()
    other.producer_id += 1000
    assert other.add(topic, 0) == {0: ErrorCode.INVALID_PRODUCER_ID_MAPPING}
    assert other.commit() is ErrorCode.INVALID_PRODUCER_ID_MAPPING


def test_topics_that_are_not_there_are_not_added_and_nothing_else_is(make: Make, topic: str) -> None:
    producer = make()
    assert producer.add_topics({topic: [0, 7], "nowhere": [0]}) == {
        topic: {0: ErrorCode.OPERATION_NOT_ATTEMPTED, 7: ErrorCode.UNKNOWN_TOPIC_OR_PARTITION},
        "nowhere": {0: ErrorCode.UNKNOWN_TOPIC_OR_PARTITION},
    }
    assert state_of(producer.raw, topic) == "Empty"
    assert producer.add(topic, 0) == {0: ErrorCode.NONE}
    assert producer.commit() is ErrorCode.NONE


def test_several_transactions_are_added_to_in_one_request_each_with_its_own_answer(
    driver: ConfluentDriver, group_raw: RawClient, topic: str
) -> None:
    """As brokers ask each other from version 4 on."""
    driver.create_topic(topic, 2)
    producers = [RawProducer(group_raw, f"{topic}-{number}") for number in range(2)]
    for producer in producers:
        assert producer.init() is ErrorCode.NONE
    wanted = [
        AddPartitionsToTxnTransaction(
            transactional_id=producer.transactional_id,
            producer_id=producer.producer_id,
            producer_epoch=producer.epoch + number,
            topics=[AddPartitionsToTxnTopic(name=topic, partitions=[0, 1])],
        )
        for number, producer in enumerate(producers)
    ]
    answer = group_raw.ask(AddPartitionsToTxnRequest(transactions=wanted), 5)
    codes = {
        result.transactional_id: [one.partition_error_code for one in result.topic_results[0].results_by_partition]
        for result in answer.results_by_transaction
    }
    assert codes == {
        f"{topic}-0": [ErrorCode.NONE] * 2,
        f"{topic}-1": [ErrorCode.PRODUCER_FENCED] * 2,
    }
    assert producers[0].commit() is ErrorCode.NONE


# -- writing


def test_a_partition_that_was_not_added_cannot_be_written_to(
    group_broker: BrokerProcess, make: Make, topic: str
) -> None:
    """KIP-890: a transaction that would never be ended is not begun."""
    producer = make()
    assert producer.produce(topic, b"not added") is ErrorCode.INVALID_TXN_STATE
    assert producer.add(topic, 1) == {1: ErrorCode.NONE}
    assert producer.produce(topic, b"not added") is ErrorCode.INVALID_TXN_STATE
    assert producer.produce(topic, b"added", partition=1) is ErrorCode.NONE
    assert producer.commit() is ErrorCode.NONE
    assert read_to_end(group_broker.kafka, topic, 0, READ_UNCOMMITTED) == []
    assert read_to_end(group_broker.kafka, topic, 1) == [b"added"]


def test_requests_after_the_end_are_refused(group_broker: BrokerProcess, make: Make, topic: str) -> None:
    """A batch that was on its way when its transaction ended must not begin another one that would never be ended."""
    producer = begun(make(), topic)
    assert producer.commit() is ErrorCode.NONE
    assert producer.produce(topic, b"late") is ErrorCode.INVALID_TXN_STATE
    assert read_to_end(group_broker.kafka, topic) == [b"begun"]
    newer = begun(make(NEWER), topic, b"again")
    late_epoch = newer.epoch
    assert newer.commit() is ErrorCode.NONE
    assert newer.epoch == late_epoch + 1
    newer.epoch = late_epoch
    newer.sequences[topic, 0] = 1
    assert newer.produce(topic, b"late") is ErrorCode.INVALID_PRODUCER_EPOCH
    assert read_to_end(group_broker.kafka, topic) == [b"begun", b"again"]


def test_with_the_newer_protocol_a_transaction_begins_with_the_first_batch(make: Make, topic: str) -> None:
    """KIP-890: every transaction has an epoch of its own, so what has another number has one before it."""
    producer = make(NEWER)
    producer.sequences[topic, 0] = 3
    assert producer.produce(topic, b"fourth") is ErrorCode.OUT_OF_ORDER_SEQUENCE_NUMBER
    producer.sequences[topic, 0] = 0
    assert producer.produce(topic, b"first") is ErrorCode.NONE
    assert producer.commit() is ErrorCode.NONE


def test_an_older_producer_may_begin_with_any_sequence_if_it_is_unknown(make: Make, topic: str) -> None:
    """What was known of it may have expired (KIP-360)."""
    producer = make()
    assert producer.add(topic, 0) == {0: ErrorCode.NONE}
    producer.sequences[topic, 0] = 3
    assert producer.produce(topic, b"fourth") is ErrorCode.NONE
    assert producer.commit() is ErrorCode.NONE


# -- ending


def test_nothing_can_be_ended_that_was_not_begun(make: Make) -> None:
    producer = make()
    assert producer.commit() is ErrorCode.INVALID_TXN_STATE
    assert producer.abort() is ErrorCode.INVALID_TXN_STATE
    newer = make(NEWER)
    assert newer.commit() is ErrorCode.INVALID_TXN_STATE
    before = newer.epoch
    assert newer.abort() is ErrorCode.NONE, "whether anything was begun a client cannot always know (KIP-890)"
    assert newer.epoch == before + 1


def test_an_end_may_be_asked_for_twice_but_not_another_one(make: Make, topic: str) -> None:
    producer = begun(make(), topic)
    assert producer.commit() is ErrorCode.NONE
    assert producer.commit() is ErrorCode.NONE, "the answer may have been lost"
    assert producer.abort() is ErrorCode.INVALID_TXN_STATE
    begun(producer, topic)
    assert producer.abort() is ErrorCode.NONE
    assert producer.abort() is ErrorCode.NONE
    assert producer.commit() is ErrorCode.INVALID_TXN_STATE


def test_with_the_newer_protocol_an_end_may_be_asked_for_twice_in_the_old_epoch(make: Make, topic: str) -> None:
    producer = begun(make(NEWER), topic)
    before = producer.epoch
    assert producer.commit() is ErrorCode.NONE
    after = producer.epoch
    producer.epoch = before
    assert producer.commit() is ErrorCode.NONE
    assert producer.epoch == after
    producer.epoch = before
    assert producer.abort() is ErrorCode.INVALID_TXN_STATE


# -- fencing


@pytest.mark.parametrize("version", [CLASSIC, NEWER])
def test_a_later_producer_fences_the_one_before(
    group_broker: BrokerProcess, make: Make, topic: str, version: int
) -> None:
    older = begun(make(version), topic, b"older")
    newer = make(version)
    assert newer.producer_id == older.producer_id
    assert newer.epoch > older.epoch
    assert older.add(topic, 1) == {1: ErrorCode.PRODUCER_FENCED}
    assert older.add_offsets("group") is ErrorCode.PRODUCER_FENCED
    assert older.produce(topic, b"too late") is ErrorCode.INVALID_PRODUCER_EPOCH
    assert older.commit() is ErrorCode.PRODUCER_FENCED
    assert older.abort() is ErrorCode.PRODUCER_FENCED
    assert older.init(producer_id=older.producer_id, producer_epoch=older.epoch) is ErrorCode.PRODUCER_FENCED
    begun(newer, topic, b"newer")
    assert newer.commit() is ErrorCode.NONE
    assert read_to_end(group_broker.kafka, topic) == [b"newer"]


def test_older_versions_have_another_word_for_fencing(make: Make, topic: str) -> None:
    """Clients before KIP-588 do not know PRODUCER_FENCED."""
    older = begun(make(), topic)
    make()
    older.version = 1
    assert older.commit() is ErrorCode.INVALID_PRODUCER_EPOCH
    request = InitProducerIdRequest(
        transactional_id=topic,
        transaction_timeout_ms=1000,
        producer_id=older.producer_id,
        producer_epoch=older.epoch,
    )
    assert older.raw.ask(request, 3).error_code == ErrorCode.INVALID_PRODUCER_EPOCH


def test_a_producer_that_knows_its_epoch_may_go_on_after_an_error(make: Make, topic: str) -> None:
    """KIP-360: it gets the next epoch, and what it has begun is aborted."""
    producer = begun(make(), topic)
    before = producer.epoch
    again = {"producer_id": producer.producer_id, "producer_epoch": before}
    init(producer, **again)
    assert producer.epoch > before
    assert producer.init(**again) is ErrorCode.NONE, "the answer may have been lost"
    begun(producer, topic)
    assert producer.commit() is ErrorCode.NONE


# -- the transaction that never ends


@pytest.mark.parametrize("version", [CLASSIC, NEWER])
def test_a_transaction_that_never_ends_is_aborted_and_readers_go_on(
    group_broker: BrokerProcess, driver: ConfluentDriver, make: Make, topic: str, version: int
) -> None:
    """After its timeout, when that is next looked for (every 100 ms here)."""
    began_s = time.monotonic()
    producer = begun(make(version, timeout_ms=500), topic, b"never")
    driver.produce(topic, [Outgoing(value=b"after")])
    wait_until(lambda: read_to_end(group_broker.kafka, topic) == [b"after"], "readers go on")
    assert time.monotonic() - began_s >= 0.5, "they went on too early"
    wait_until(lambda: state_of(producer.raw, topic) == "CompleteAbort", "the transaction is aborted")
    assert producer.produce(topic, b"too late") is ErrorCode.INVALID_PRODUCER_EPOCH
    assert producer.commit() is ErrorCode.PRODUCER_FENCED
    assert producer.init() is ErrorCode.NONE
    begun(producer, topic, b"next")
    assert producer.commit() is ErrorCode.NONE
    assert read_to_end(group_broker.kafka, topic) == [b"after", b"next"]


def test_the_clock_of_a_transaction_begins_with_its_first_partition(
    group_broker: BrokerProcess, make: Make, topic: str
) -> None:
    """Not with the one before, nor with the producer."""
    producer = make(timeout_ms=2000)
    until_s = time.monotonic() + 3.0
    rounds = 0
    while time.monotonic() < until_s:
        begun(producer, topic, b"%d" % rounds)
        assert producer.commit() is ErrorCode.NONE
        rounds += 1
    assert read_to_end(group_broker.kafka, topic) == [b"%d" % number for number in range(rounds)]


def test_a_library_whose_transaction_has_timed_out_gets_an_error(
    group_broker: BrokerProcess, driver: ConfluentDriver, topic: str
) -> None:
    driver.create_topic(topic)
    producer = ConfluentTransactor(group_broker.kafka, topic, timeout_ms=1000)
    producer.begin()
    producer.send(topic, b"too slow")
    producer.flush()
    driver.produce(topic, [Outgoing(value=b"after")])
    wait_until(lambda: read_to_end(group_broker.kafka, topic) == [b"after"], "the transaction is aborted")
    with pytest.raises(Fenced):
        producer.commit()
    again = ConfluentTransactor(group_broker.kafka, topic)
    again.begin()
    again.send(topic, b"in time")
    again.commit()
    wait_until(lambda: read_to_end(group_broker.kafka, topic) == [b"after", b"in time"], "the next one")


def test_a_transaction_in_a_topic_that_is_deleted_meanwhile_still_ends(
    group_broker: BrokerProcess, driver: ConfluentDriver, topic: str
) -> None:
    gone, kept = f"{topic}-gone", f"{topic}-kept"
    for name in (gone, kept):
        driver.create_topic(name)
    producer = ConfluentTransactor(group_broker.kafka, topic)
    producer.begin()
    for name in (gone, kept):
        producer.send(name, b"within")
    producer.flush()
    driver.delete_topic(gone)
    producer.commit()
    wait_until(lambda: read_to_end(group_broker.kafka, kept) == [b"within"], "what was written to the other one")
    producer.begin()
    producer.send(kept, b"next")
    producer.commit()


def test_an_error_within_a_transaction_can_be_aborted_and_the_producer_goes_on(
    group_broker: BrokerProcess, driver: ConfluentDriver, topic: str
) -> None:
    driver.create_topic(topic, 2, configs={"max.message.bytes": "10000"})
    producer = ConfluentTransactor(group_broker.kafka, topic)
    producer.begin()
    producer.send(topic, b"small")
    producer.send(topic, b"x" * 20_000, partition=1)
    with pytest.raises(KafkaException) as caught:
        producer.commit()
    assert caught.value.args[0].txn_requires_abort()
    assert caught.value.args[0].code() == KafkaError.MSG_SIZE_TOO_LARGE
    producer.abort()
    producer.begin()
    producer.send(topic, b"next")
    producer.commit()
    wait_until(lambda: read_to_end(group_broker.kafka, topic) == [b"next"], "the next one")


def test_an_unknown_id_is_not_described(group_raw: RawClient, make: Make) -> None:
    make()
    (found,) = group_raw.ask(DescribeTransactionsRequest(transactional_ids=["nowhere"]), 0).transaction_states
    assert found.error_code == ErrorCode.TRANSACTIONAL_ID_NOT_FOUND
