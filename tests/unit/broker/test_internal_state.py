"""The partitions of keys in internal topics, and which keys move when partitions are added."""

import pytest

from penstock.broker.internal_state import StateTable, find_moves, home_of
from penstock.foundation.decision import NO_PRODUCER, StateRecord
from penstock.foundation.errors import MalformedRequest
from penstock.foundation.ids import GROUPS_TOPIC, TRANSACTIONS_TOPIC
from penstock.groups import records
from penstock.groups.records import GroupKey, MemberKey, OffsetCommitKey, RegularExpressionKey
from penstock.groups.state_keys import KEYS
from penstock.groups.streams import records as streams_records
from penstock.replication.runtimes import java_hash
from penstock.transactions.records import DECIDED, TRANSACTION, DecidedKey, TransactionKey
from penstock.wire.state import state_record

COUNT = 50
SAMPLES = {
    OffsetCommitKey: OffsetCommitKey(group="billing", topic="orders", partition=3),
    GroupKey: GroupKey(group="billing"),
    MemberKey: MemberKey(group="billing", member_id="m"),
    RegularExpressionKey: RegularExpressionKey(group="billing", regular_expression="a.*"),
}


def offset_key(group: str, partition: int = 0) -> bytes:
    key = OffsetCommitKey(group=group, topic="orders", partition=partition)
    return state_record(records.OFFSET_COMMIT, key, None).key


def table_of(*pairs: tuple[bytes, bytes | None]) -> StateTable:
    table = StateTable(GROUPS_TOPIC)
    for key, value in pairs:
        table.apply(StateRecord(key=key, value=value), NO_PRODUCER)
    return table


# -- homes


@pytest.mark.parametrize("kind", KEYS)
def test_every_record_of_a_group_belongs_where_its_coordinator_is(kind: int) -> None:
    key = state_record(kind, SAMPLES[KEYS[kind]], None).key
    assert home_of(GROUPS_TOPIC, key, COUNT) == java_hash("billing") % COUNT


def test_every_kind_of_record_that_groups_write_is_known() -> None:
    numbers = {
        value
        for name, value in [*vars(records).items(), *vars(streams_records).items()]
        if name.isupper() and isinstance(value, int) and "VERSION" not in name
    }
    assert set(KEYS) == numbers


def test_transactions_of_a_spark_query_belong_with_its_decisions() -> None:
    def home(kind: int, key: object) -> int | None:
        return home_of(TRANSACTIONS_TOPIC, state_record(kind, key, None).key, COUNT)

    assert home(TRANSACTION, TransactionKey(transactional_id="orders-7")) == java_hash("orders-7") % COUNT
    task = home(TRANSACTION, TransactionKey(transactional_id="spark/6f1c/3/0.1"))
    assert task == home(DECIDED, DecidedKey(query="6f1c")) == java_hash("spark/6f1c") % COUNT


def test_a_kind_of_record_that_is_not_known_has_no_home_and_one_that_cannot_be_read_is_refused() -> None:
    for topic in (GROUPS_TOPIC, TRANSACTIONS_TOPIC):
        assert home_of(topic, b"\x00\x63anything", COUNT) is None
        with pytest.raises(MalformedRequest):
            home_of(topic, b"x", COUNT)
    with pytest.raises(MalformedRequest):
        home_of(GROUPS_TOPIC, b"\x00\x02\x00\xffcut off", COUNT)


# -- the state of a partition


def test_the_last_value_of_a_key_counts() -> None:
    a, b = offset_key("a"), offset_key("b")
    assert table_of((a, b"1"), (b, b"2"), (a, b"3"), (b, None)).values == {a: b"3", b: None}


def test_transactional_records_count_at_their_offset_once_committed() -> None:
    a, b, c = offset_key("a"), offset_key("b"), offset_key("c")
    table = StateTable(GROUPS_TOPIC)
    table.apply(StateRecord(key=a, value=b"in transaction"), 1)
    table.apply(StateRecord(key=b, value=b"in transaction"), 1)
    table.apply(StateRecord(key=c, value=b"aborted"), 2)
    table.apply(StateRecord(key=b, value=b"later"), NO_PRODUCER)
    assert table.values == {b: b"later"}
    table.end_transaction(2, committed=False)
    table.end_transaction(1, committed=True)
    assert table.values == {a: b"in transaction", b: b"later"}


# -- moving


def test_only_what_is_in_the_wrong_place_moves() -> None:
    groups = [f"group-{number}" for number in range(20)]
    keys = {group: offset_key(group) for group in groups}
    tables = {number: table_of() for number in range(4)}
    for group, key in keys.items():
        tables[0].apply(StateRecord(key=key, value=group.encode()), NO_PRODUCER)
    moves = list(find_moves(GROUPS_TOPIC, tables))
    assert {move.key for move in moves} == {key for group, key in keys.items() if java_hash(group) % 4}
    assert all((move.source, move.home) == (0, home_of(GROUPS_TOPIC, move.key, 4)) for move in moves)
    assert not any(move.is_copied for move in moves)


def test_a_key_that_is_in_its_partition_is_not_copied_again() -> None:
    a = offset_key("a")
    home = java_hash("a") % 2
    for now in (b"same", b"newer", None):
        tables = {1 - home: table_of((a, b"same")), home: table_of((a, now))}
        (move,) = find_moves(GROUPS_TOPIC, dict(sorted(tables.items())))
        assert (move.source, move.is_copied) == (1 - home, True)


def test_deleted_and_unknown_keys_are_not_moved() -> None:
    a = offset_key("a")
    tables = {number: table_of((a, None), (b"\x00\x63?", b"x")) for number in range(2)}
    assert list(find_moves(GROUPS_TOPIC, tables)) == []
