"""The records of the companion log, byte by byte."""

import pytest
from hypothesis import HealthCheck, given
from hypothesis import strategies as st

from penstock.foundation.decision import NO_PRODUCER, StateRecord
from penstock.queues.commands import Destination
from penstock.queues.errors import DamagedState
from penstock.queues.machine import QueueMachine
from penstock.queues.records import (
    DeliveryRange,
    Move,
    Route,
    position_key,
    position_record,
    producer_record,
    purge_mark,
    purge_record,
    range_prefix,
    range_record,
    range_tombstone,
    read_position,
    read_producer,
    read_range,
    read_route,
    route_record,
)
from tests.examples import examples

TOPIC = bytes(range(16))
TEXT = st.text("aé☃-7", max_size=20)
OFFSET = st.integers(0, 2**62)
DESTINATION = st.builds(Destination, st.binary(min_size=16, max_size=16), st.integers(0, 2**31 - 1))
NUMBERS = (st.integers(0, 2**62), st.integers(0, 2**15 - 1), st.integers(0, 2**31 - 1))


def raw(record: StateRecord) -> StateRecord:
    return StateRecord(key=record.key, value=record.value)


@st.composite
def ranges(draw: st.DrawFn) -> DeliveryRange:
    first = draw(OFFSET)
    group = draw(st.none() | TEXT)
    move = draw(st.none() | DESTINATION.map(Move) | st.builds(Move, DESTINATION, *NUMBERS))
    is_one = group is not None or (move is not None and move.sequence >= 0)
    last = first if is_one else first + draw(st.integers(0, 2**40))
    return DeliveryRange(
        first, last, draw(st.integers(0, 2**32 - 1)), draw(OFFSET), draw(TEXT), draw(OFFSET), group, move
    )


@examples(50, deadline=None, suppress_health_check=[HealthCheck.too_slow])
@given(TEXT, ranges())
def test_a_delivery_range_is_read_as_it_was_written(name: str, delivery_range: DeliveryRange) -> None:
    key, read = read_range(raw(range_record(range_prefix(name), name, delivery_range)))
    assert key == (name, delivery_range.first)
    assert read == delivery_range
    assert read_range(raw(range_tombstone(range_prefix(name), name, delivery_range.first))) == (key, None)


@examples(50, deadline=None, suppress_health_check=[HealthCheck.too_slow])
@given(TEXT, st.none() | OFFSET, DESTINATION, st.builds(Route, *NUMBERS))
def test_all_else_is_read_as_it_was_written(name: str, end: int | None, to: Destination, route: Route) -> None:
    assert read_position(raw(position_record(position_key(name), name, end))) == (name, end)
    assert read_route(raw(route_record(to, route))) == (to, route)
    assert read_producer(raw(producer_record(end))) == end


def test_a_purge_is_to_older_brokers_a_route_that_leads_nowhere() -> None:
    record = purge_record("q", 9)
    assert record.key.hex() == "03" + "dfd90ccee3eb3928a24238ecf6cdc8fb" + "ffffffff"
    assert record.value is not None
    assert record.value.hex() == "00" + "0000000000000009" + "0000" + "00000000"
    assert read_route(raw(record)) == (purge_mark("q"), Route(9, 0, 0))
    assert read_route(raw(purge_record("q", None))) == (purge_mark("q"), None)


def test_the_layout_is_what_logs_have() -> None:
    held = range_record(range_prefix("q"), "q", DeliveryRange(5, 6, 1, 1000, "ada", 900))
    assert held.key.hex() == "02000171" + "0000000000000005"
    assert held.value is not None
    assert held.value.hex() == ("000000000000000000060000000100000000000003e8000000000000038400030000616461")
    leaving = DeliveryRange(5, 5, 2, 0, "", 900, "g", Move(Destination(TOPIC, 1), 7, 1, 3))
    moved = range_record(range_prefix("q"), "q", leaving)
    assert moved.value is not None
    assert moved.value.hex() == (
        "00" + "07" + "0000000000000005" + "00000002" + "0000000000000000" + "0000000000000384" + "00000001" + "67"
        "000102030405060708090a0b0c0d0e0f" + "00000001" + "0000000000000007" + "0001" + "00000003"
    )
    position = position_record(position_key("q"), "q", 9)
    assert (position.key.hex(), (position.value or b"").hex()) == ("01000171", "00" + "0000000000000009")
    producer = producer_record(4711)
    assert (producer.key.hex(), (producer.value or b"").hex()) == ("04", "00" + "0000000000001267")


def test_a_message_group_need_not_be_text() -> None:
    delivery_range = DeliveryRange(5, 5, group=b"\xff\x00key".decode(errors="surrogateescape"))
    assert read_range(raw(range_record(range_prefix("q"), "q", delivery_range)))[1] == delivery_range


HELD = range_record(range_prefix("q"), "q", DeliveryRange(5, 6, 1, 1000, "ada", 900))
GROUPED = range_record(range_prefix("q"), "q", DeliveryRange(5, 5, 1, 1000, "ada", 900, "g"))
ROUTE_RECORD = route_record(Destination(TOPIC, 1), Route(1, 2, 3))


def changed(record: StateRecord, at: int, byte: int) -> StateRecord:
    value = bytearray(record.value or b"")
    value[at] = byte
    return StateRecord(key=record.key, value=bytes(value))


@pytest.mark.parametrize(
    "record",
    [
        StateRecord(key=b"", value=b""),
        StateRecord(key=b"\x09abc", value=b""),
        StateRecord(key=b"\x02", value=b""),
        StateRecord(key=b"\x02\x00\x05q", value=b""),
        StateRecord(key=b"\x02\x00\x01\xff" + bytes(8), value=None),
        StateRecord(key=HELD.key[:-1], value=HELD.value),
        StateRecord(key=HELD.key + b"x", value=HELD.value),
        StateRecord(key=HELD.key, value=b""),
        StateRecord(key=HELD.key, value=(HELD.value or b"")[:-1]),
        StateRecord(key=HELD.key, value=(HELD.value or b"") + b"x"),
        changed(HELD, 0, 1),
        changed(HELD, 1, 0x80),
        changed(HELD, 1, 4),
        changed(HELD, 9, 4),
        changed(HELD, 33, 1),
        changed(GROUPED, 9, 6),
        changed(HELD, -1, 0xFF),
        StateRecord(key=b"\x01\x00\x01q!", value=bytes(9)),
        StateRecord(key=b"\x01\x00\x01q", value=bytes(8)),
        StateRecord(key=b"\x01\x00\x01q", value=b"\x01" + bytes(8)),
        StateRecord(key=b"\x01\x00\x01q", value=b"\x00" + b"\xff" * 8),
        StateRecord(key=ROUTE_RECORD.key + b"x", value=ROUTE_RECORD.value),
        StateRecord(key=ROUTE_RECORD.key, value=b"\x01" + (ROUTE_RECORD.value or b"")[1:]),
        StateRecord(key=b"\x04x", value=bytes(9)),
        StateRecord(key=b"\x04", value=bytes(10)),
    ],
)
def test_damaged_and_unknown_records_raise(record: StateRecord) -> None:
    with pytest.raises(DamagedState):
        QueueMachine().apply(record, NO_PRODUCER)


def test_tombstones_of_missing_groups_change_nothing() -> None:
    machine = QueueMachine()
    for record in (
        range_tombstone(range_prefix("q"), "q", 5),
        position_record(position_key("q"), "q", None),
        producer_record(None),
    ):
        machine.apply(raw(record), NO_PRODUCER)
    machine.apply(StateRecord(key=ROUTE_RECORD.key, value=None), NO_PRODUCER)
    machine.end_transaction(1, True)
    assert list(machine.summary()) == []
    assert machine.start is None
