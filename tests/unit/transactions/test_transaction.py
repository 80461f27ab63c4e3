"""One transactional id as a value and as a record."""

from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from penstock.foundation.decision import ProducerKey
from penstock.foundation.errors import MalformedRequest
from penstock.foundation.ids import TopicPartition
from penstock.transactions.records import TRANSACTION, TransactionKey, TransactionValue
from penstock.transactions.states import State
from penstock.transactions.transaction import EPOCH_LAST, EPOCH_MAX, TV_0, TV_2, Transaction, tombstone
from penstock.wire.state import kind_of, read_key, read_value, state_record

from .coordinator_harness import START_MS, A, B, C

longs = st.integers(-1, 2**63 - 1)
epochs = st.integers(-1, 2**15 - 1)
names = st.text(st.characters(exclude_categories=["Cs"]), min_size=1, max_size=20)
partitions = st.frozensets(st.builds(TopicPartition, names, st.integers(0, 2**31 - 1)), max_size=8)


@st.composite
def transactions(draw: st.DrawFn) -> Transaction:
    state = draw(st.sampled_from(State))
    return Transaction(
        transactional_id=draw(names),
        producer_id=draw(longs),
        epoch=draw(epochs),
        timeout_ms=draw(st.integers(0, 2**31 - 1)),
        updated_ms=draw(longs),
        state=state,
        partitions=frozenset() if state is State.EMPTY else draw(partitions),
        started_ms=draw(longs),
        version=draw(st.sampled_from((TV_0, TV_2))),
        previous_producer_id=draw(longs),
        last_epoch=draw(epochs),
        next_producer=draw(st.none() | st.builds(ProducerKey, st.integers(0, 2**63 - 1), st.integers(0, 2**15 - 1))),
    )


@given(transactions())
def test_a_record_holds_all_there_is_to_know(transaction: Transaction) -> None:
    record = transaction.to_record()
    assert kind_of(record.key) == TRANSACTION
    name = read_key(TransactionKey, record.key).transactional_id
    assert record.value is not None
    assert Transaction.from_record(name, record.value) == transaction


def known(**changes: Any) -> Transaction:
    made = Transaction(transactional_id="id", producer_id=5, epoch=3, timeout_ms=1000, updated_ms=START_MS)
    return made._replace(**changes)


def test_an_empty_id_has_no_list_of_partitions() -> None:
    value = known().to_record().value
    assert value is not None
    assert read_value(TransactionValue, value).transaction_partitions is None


def test_partitions_are_kept_by_topic() -> None:
    value = known(state=State.ONGOING, partitions=frozenset({A, B, C})).to_record().value
    assert value is not None
    read = read_value(TransactionValue, value)
    assert [(entry.topic, list(entry.partition_ids)) for entry in read.transaction_partitions or ()] == [
        ("a", [0]),
        ("b", [1, 2]),
    ]


def test_a_record_of_the_older_version_is_read() -> None:
    value = TransactionValue(
        producer_id=5,
        producer_epoch=3,
        transaction_timeout_ms=1000,
        transaction_status=State.COMPLETE_COMMIT,
        transaction_partitions=[],
        transaction_last_update_timestamp_ms=START_MS,
        transaction_start_timestamp_ms=START_MS - 1,
    )
    record = state_record(TRANSACTION, TransactionKey(transactional_id="id"), value, version=0)
    assert record.value is not None
    read = Transaction.from_record("id", record.value)
    assert read == known(state=State.COMPLETE_COMMIT, started_ms=START_MS - 1)


def test_an_unknown_state_is_reported() -> None:
    value = TransactionValue(
        producer_id=5,
        producer_epoch=3,
        transaction_timeout_ms=1000,
        transaction_status=9,
        transaction_partitions=[],
        transaction_last_update_timestamp_ms=START_MS,
        transaction_start_timestamp_ms=START_MS,
    )
    record = state_record(TRANSACTION, TransactionKey(transactional_id="id"), value, version=1)
    assert record.value is not None
    with pytest.raises(MalformedRequest, match="'id': 9 is not a valid State"):
        Transaction.from_record("id", record.value)


def test_an_id_that_is_gone_leaves_a_tombstone_under_its_key() -> None:
    assert tombstone("id").key == known().to_record().key
    assert tombstone("id").value is None


def test_a_transaction_begins_with_its_first_partition() -> None:
    begun = known().joined([A], TV_0, START_MS + 5)
    assert (begun.state, begun.started_ms) == (State.ONGOING, START_MS + 5)
    more = begun.joined([B], TV_0, START_MS + 9)
    assert (more.started_ms, more.updated_ms) == (START_MS + 5, START_MS + 9)
    assert more.partitions == {A, B}


def test_a_transaction_after_another_begins_anew() -> None:
    ended = known().joined([A], TV_0, START_MS).prepared(True, TV_0, -1, START_MS).completed(START_MS)
    begun = ended.joined([B], TV_0, START_MS + 7)
    assert (begun.partitions, begun.started_ms) == ({B}, START_MS + 7)


def test_an_older_client_keeps_its_epoch() -> None:
    ended = known().joined([A], TV_0, START_MS).prepared(True, TV_0, -1, START_MS)
    assert ended.producer == (5, 3)
    assert ended.completed(START_MS).producer == (5, 3)


def test_a_newer_client_gets_another_epoch_for_each_transaction() -> None:
    ended = known().joined([A], TV_2, START_MS).prepared(True, TV_2, -1, START_MS)
    assert (ended.producer, ended.last_epoch, ended.next_producer) == ((5, 4), 3, None)
    assert ended.completed(START_MS).producer == (5, 4)


def test_after_the_last_epoch_comes_another_producer_id() -> None:
    ended = known(epoch=EPOCH_LAST).joined([A], TV_2, START_MS).prepared(True, TV_2, 77, START_MS)
    assert (ended.producer, ended.next_producer) == ((5, EPOCH_MAX), (77, 0))
    complete = ended.completed(START_MS)
    assert (complete.producer, complete.previous_producer_id, complete.last_epoch) == ((77, 0), 5, EPOCH_LAST)
    assert complete.next_producer is None


def test_no_epoch_is_above_the_highest() -> None:
    begun = known(epoch=EPOCH_MAX, last_epoch=EPOCH_LAST).joined([A], TV_2, START_MS)
    assert begun.fenced(EPOCH_LAST, START_MS).epoch == EPOCH_MAX
