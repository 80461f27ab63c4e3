"""Partitions are added to transactions: AddPartitionsToTxn, AddOffsetsToTxn, JoinTransaction."""

from collections.abc import Callable

import pytest

from penstock.foundation.codes import ErrorCode
from penstock.foundation.decision import ProducerKey
from penstock.foundation.ids import TopicPartition
from penstock.transactions.add_partitions import code_for_producer, refuse, refuse_unknown
from penstock.transactions.states import State
from penstock.transactions.transaction import EPOCH_LAST
from penstock.wire.messages.add_partitions_to_txn import (
    AddPartitionsToTxnRequest,
    AddPartitionsToTxnResponse,
    AddPartitionsToTxnResult,
    AddPartitionsToTxnTransaction,
)

from .coordinator_harness import START_MS, A, B, C, CoordinatorHarness, asked, codes, topics
from .test_init_producer_id import at_epoch

Way = Callable[[CoordinatorHarness, ProducerKey], int]


def by_client(harness: CoordinatorHarness, producer: ProducerKey, name: str = "id") -> int:
    return harness.add(producer, A, name=name)[A]


def by_broker(harness: CoordinatorHarness, producer: ProducerKey, name: str = "id") -> int:
    return harness.add_batched(producer, A, name=name)[A]


def by_batch(harness: CoordinatorHarness, producer: ProducerKey, name: str = "id") -> int:
    return harness.join(producer, A, name=name)[A]


def by_offsets(harness: CoordinatorHarness, producer: ProducerKey, name: str = "id") -> int:
    return harness.add_offsets(producer, name=name)


def by_verifying(harness: CoordinatorHarness, producer: ProducerKey, name: str = "id") -> int:
    return harness.join(producer, A, name=name, verify_only=True)[A]


def by_verifying_broker(harness: CoordinatorHarness, producer: ProducerKey, name: str = "id") -> int:
    return harness.add_batched(producer, A, name=name, verify_only=True)[A]


ADDING = [by_client, by_broker, by_batch, by_offsets]
VERIFYING = [by_verifying, by_verifying_broker]
every_way = pytest.mark.parametrize("way", ADDING + VERIFYING, ids=lambda way: way.__name__)
every_way_to_add = pytest.mark.parametrize("way", ADDING, ids=lambda way: way.__name__)
every_way_to_verify = pytest.mark.parametrize("way", VERIFYING, ids=lambda way: way.__name__)


# -- refusals


@every_way
def test_an_empty_transactional_id_is_refused(way: Callable[..., int]) -> None:
    assert way(CoordinatorHarness(), ProducerKey(1, 0), "") == ErrorCode.INVALID_REQUEST


@every_way
def test_a_transactional_id_that_is_not_known_is_refused(way: Way) -> None:
    assert way(CoordinatorHarness(), ProducerKey(1, 0)) == ErrorCode.INVALID_PRODUCER_ID_MAPPING


@every_way
def test_the_producer_id_of_another_is_refused(way: Way) -> None:
    harness = CoordinatorHarness()
    producer = harness.producer()
    assert way(harness, ProducerKey(producer.producer_id + 1, 0)) == ErrorCode.INVALID_PRODUCER_ID_MAPPING
    assert harness.state().state is State.EMPTY


@every_way
@pytest.mark.parametrize("epoch", [0, 2])
def test_another_epoch_is_fenced(way: Way, epoch: int) -> None:
    harness = CoordinatorHarness()
    harness.producer()
    harness.producer()
    assert way(harness, ProducerKey(1001, epoch)) == ErrorCode.PRODUCER_FENCED


@every_way
@pytest.mark.parametrize("committed", [True, False])
def test_the_transaction_before_is_waited_for(way: Way, committed: bool) -> None:
    harness = CoordinatorHarness()
    producer = harness.producer()
    harness.add(producer, A)
    harness.end(producer, committed=committed, version=3)
    assert way(harness, producer) == ErrorCode.CONCURRENT_TRANSACTIONS


@every_way_to_add
def test_a_producer_that_comes_under_its_next_producer_id_is_not_fenced_but_waits(way: Way) -> None:
    harness = CoordinatorHarness()
    producer = at_epoch(harness, EPOCH_LAST)
    harness.join(producer, A)
    answer = harness.end(producer)
    following = ProducerKey(answer.producer_id, answer.producer_epoch)
    assert way(harness, following) == ErrorCode.CONCURRENT_TRANSACTIONS
    harness.write_markers()
    assert way(harness, following) == ErrorCode.NONE


@pytest.mark.parametrize(("version", "code"), [(1, ErrorCode.INVALID_PRODUCER_EPOCH), (2, ErrorCode.PRODUCER_FENCED)])
def test_older_clients_get_invalid_producer_epoch(version: int, code: ErrorCode) -> None:
    harness = CoordinatorHarness()
    producer = harness.producer()
    harness.producer()
    assert harness.add(producer, A, B, version=version) == {A: code, B: code}
    assert harness.add_offsets(producer, version=version) == code


def test_a_refusal_is_that_of_every_partition() -> None:
    harness = CoordinatorHarness()
    assert harness.add(ProducerKey(1, 0), A, B, C) == dict.fromkeys([A, B, C], ErrorCode.INVALID_PRODUCER_ID_MAPPING)


# -- adding


@every_way_to_add
def test_a_transaction_begins_with_its_first_partition(way: Way) -> None:
    harness = CoordinatorHarness()
    producer = harness.producer()
    harness.advance(5)
    assert way(harness, producer) == ErrorCode.NONE
    assert (harness.state().state, harness.state().started_ms) == (State.ONGOING, START_MS + 5)


def test_more_partitions_join_it() -> None:
    harness = CoordinatorHarness()
    producer = harness.producer()
    assert harness.add(producer, A) == {A: ErrorCode.NONE}
    assert harness.add(producer, B, C) == {B: ErrorCode.NONE, C: ErrorCode.NONE}
    assert harness.join(producer, A, B) == {A: ErrorCode.NONE, B: ErrorCode.NONE}
    assert harness.state().partitions == {A, B, C}


def test_partitions_that_are_in_it_are_not_recorded_again() -> None:
    harness = CoordinatorHarness()
    producer = harness.producer()
    harness.add(producer, A, B)
    recorded = len(harness.records)
    assert harness.join(producer, A, B) == {A: ErrorCode.NONE, B: ErrorCode.NONE}
    assert len(harness.records) == recorded


def test_an_older_client_is_acknowledged_only_by_a_coordinator_that_can_persist() -> None:
    """Its transactions have one epoch: a coordinator that has been replaced may mean the one before."""
    harness = CoordinatorHarness()
    producer = harness.producer()
    harness.add(producer, A, B)
    recorded = len(harness.records)
    assert harness.add(producer, B) == {B: ErrorCode.NONE}
    assert harness.records[recorded:] == harness.records[recorded - 1 : recorded]


def test_the_offsets_of_a_group_are_a_partition_of_it() -> None:
    harness = CoordinatorHarness()
    producer = harness.producer()
    assert harness.add_offsets(producer, partition=7) == ErrorCode.NONE
    assert harness.state().partitions == {TopicPartition("__consumer_offsets", 7)}


def test_partitions_that_could_not_be_persisted_are_not_in_it() -> None:
    harness = CoordinatorHarness()
    producer = harness.producer()
    harness.broken = True
    assert harness.join(producer, A) is None
    harness.broken = False
    assert harness.join(producer, A, verify_only=True) == {A: ErrorCode.TRANSACTION_ABORTABLE}
    assert harness.join(producer, A) == {A: ErrorCode.NONE}


@pytest.mark.parametrize("committed", [True, False])
def test_a_transaction_after_another_has_partitions_of_its_own(committed: bool) -> None:
    harness = CoordinatorHarness()
    producer = harness.producer()
    harness.add(producer, A)
    harness.end(producer, committed=committed, version=3)
    harness.write_markers()
    harness.add(producer, B)
    assert harness.state().partitions == {B}


# -- many transactions at a time


def batched(*wanted: AddPartitionsToTxnTransaction) -> AddPartitionsToTxnRequest:
    return AddPartitionsToTxnRequest(transactions=wanted)


def wanted(name: str, producer: ProducerKey, *partitions: TopicPartition) -> AddPartitionsToTxnTransaction:
    return AddPartitionsToTxnTransaction(
        transactional_id=name,
        producer_id=producer.producer_id,
        producer_epoch=producer.epoch,
        topics=topics(*partitions),
    )


def by_transaction(response: AddPartitionsToTxnResponse) -> list[tuple[str, dict[TopicPartition, int]]]:
    return [(result.transactional_id, of_result(result)) for result in response.results_by_transaction]


def of_result(result: AddPartitionsToTxnResult) -> dict[TopicPartition, int]:
    return codes(AddPartitionsToTxnResponse(throttle_time_ms=0, results_by_transaction=[result]))


def test_a_broker_asks_about_many_transactions_at_a_time() -> None:
    harness = CoordinatorHarness()
    one, two = harness.producer("one"), harness.producer("two")
    request = batched(wanted("one", one, A), wanted("two", two, A, B), wanted("three", one, C))
    assert by_transaction(harness.submit(asked(request, 4))) == [
        ("one", {A: ErrorCode.NONE}),
        ("two", {A: ErrorCode.NONE, B: ErrorCode.NONE}),
        ("three", {C: ErrorCode.INVALID_PRODUCER_ID_MAPPING}),
    ]
    assert harness.state("one").partitions == {A}
    assert harness.state("two").partitions == {A, B}


def test_one_transaction_twice_in_a_request_loses_no_partition() -> None:
    harness = CoordinatorHarness()
    producer = harness.producer()
    harness.submit(asked(batched(wanted("id", producer, A), wanted("id", producer, B)), 4))
    assert harness.state().partitions == {A, B}


def test_nothing_asked_is_nothing_answered() -> None:
    assert by_transaction(CoordinatorHarness().submit(asked(batched(), 5))) == []


# -- verifying (KIP-890)


@every_way_to_verify
def test_a_partition_that_was_added_may_be_written_to(way: Way) -> None:
    harness = CoordinatorHarness()
    producer = harness.producer()
    harness.add(producer, A)
    recorded = len(harness.records)
    assert way(harness, producer) == ErrorCode.NONE
    assert len(harness.records) == recorded


@every_way_to_verify
def test_a_partition_that_was_not_added_may_not_be_written_to(way: Way) -> None:
    harness = CoordinatorHarness()
    producer = harness.producer()
    assert way(harness, producer) == ErrorCode.TRANSACTION_ABORTABLE
    harness.add(producer, B)
    assert way(harness, producer) == ErrorCode.TRANSACTION_ABORTABLE
    assert harness.state().partitions == {B}


@every_way_to_verify
def test_a_partition_of_the_transaction_before_may_not_be_written_to(way: Way) -> None:
    harness = CoordinatorHarness()
    producer = harness.producer()
    harness.committed(producer, version=3)
    assert way(harness, producer) == ErrorCode.TRANSACTION_ABORTABLE


def test_each_partition_is_verified_by_itself() -> None:
    harness = CoordinatorHarness()
    producer = harness.producer()
    harness.add(producer, A, C)
    assert harness.join(producer, A, B, C, verify_only=True) == {
        A: ErrorCode.NONE,
        B: ErrorCode.TRANSACTION_ABORTABLE,
        C: ErrorCode.NONE,
    }


@pytest.mark.parametrize(
    ("code", "newer", "older"),
    [
        (ErrorCode.NONE, ErrorCode.NONE, ErrorCode.NONE),
        (ErrorCode.PRODUCER_FENCED, ErrorCode.INVALID_PRODUCER_EPOCH, ErrorCode.INVALID_PRODUCER_EPOCH),
        (ErrorCode.TRANSACTION_ABORTABLE, ErrorCode.TRANSACTION_ABORTABLE, ErrorCode.INVALID_TXN_STATE),
        (
            ErrorCode.CONCURRENT_TRANSACTIONS,
            ErrorCode.CONCURRENT_TRANSACTIONS,
            ErrorCode.CONCURRENT_TRANSACTIONS,
        ),
    ],
)
def test_a_producer_gets_an_error_code_that_its_version_knows(
    code: ErrorCode, newer: ErrorCode, older: ErrorCode
) -> None:
    assert code_for_producer(code, knows_abortable=True) == newer
    assert code_for_producer(code, knows_abortable=False) == older


# -- partitions that do not exist


def test_if_one_partition_does_not_exist_the_others_are_not_attempted() -> None:
    def what_is(one: TopicPartition) -> ErrorCode:
        return ErrorCode.UNKNOWN_TOPIC_OR_PARTITION if one == B else ErrorCode.NONE

    refused = refuse_unknown(wanted("id", ProducerKey(1, 0), A, B, C), what_is)
    assert refused is not None
    assert refused.transactional_id == "id"
    assert of_result(refused) == {
        A: ErrorCode.OPERATION_NOT_ATTEMPTED,
        B: ErrorCode.UNKNOWN_TOPIC_OR_PARTITION,
        C: ErrorCode.OPERATION_NOT_ATTEMPTED,
    }


def test_if_all_partitions_exist_nothing_is_refused() -> None:
    assert refuse_unknown(wanted("id", ProducerKey(1, 0), A, B), lambda one: ErrorCode.NONE) is None


def test_one_reason_can_be_that_of_all() -> None:
    refused = refuse(wanted("id", ProducerKey(1, 0), A, B), ErrorCode.NOT_COORDINATOR)
    assert of_result(refused) == {A: ErrorCode.NOT_COORDINATOR, B: ErrorCode.NOT_COORDINATOR}
