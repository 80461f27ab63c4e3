"""The last offset of every key."""

from penstock.log.offset_map import KeyTable
from penstock.records.build import Record, build_batch
from penstock.records.columns import Columns, decode_columns

from .builders import NOW_MS

SECRET = bytes(16)


def columns(first: int, *pairs: tuple[bytes | None, bytes | None]) -> Columns:
    records = [Record(key=key, value=value, timestamp_ms=NOW_MS) for key, value in pairs]
    return decode_columns(build_batch(records, base_offset=first))


def test_only_the_last_of_each_key_stays() -> None:
    table = KeyTable(100, SECRET)
    first = columns(0, (b"a", b"1"), (b"b", b"1"), (b"a", b"2"))
    second = columns(3, (b"b", b"2"), (b"c", b"1"))
    table.note(first)
    table.note(second)
    assert list(table.mask(first, drop_tombstones=False)) == [0, 0, 1]
    assert list(table.mask(second, drop_tombstones=False)) == [1, 1]


def test_keys_that_the_table_does_not_know_stay() -> None:
    table = KeyTable(100, SECRET)
    table.note(columns(5, (b"a", b"1")))
    assert list(table.mask(columns(0, (b"a", b"0"), (b"z", b"0")), drop_tombstones=False)) == [0, 1]
    assert list(table.mask(columns(9, (b"a", b"2")), drop_tombstones=False)) == [1], "it is later than the table"


def test_records_without_a_key_go_and_do_not_count() -> None:
    table = KeyTable(1, SECRET)
    nameless = columns(0, (None, b"1"), (None, b"2"))
    table.note(nameless)
    assert not table.is_full
    assert list(table.mask(nameless, drop_tombstones=False)) == [0, 0]


def test_an_empty_key_is_a_key() -> None:
    table = KeyTable(10, SECRET)
    batch = columns(0, (b"", b"1"), (b"", b"2"))
    table.note(batch)
    assert list(table.mask(batch, drop_tombstones=False)) == [0, 1]


def test_tombstones_stay_until_they_may_be_removed() -> None:
    table = KeyTable(10, SECRET)
    batch = columns(0, (b"a", b"1"), (b"a", None), (b"b", b""))
    table.note(batch)
    assert list(table.mask(batch, drop_tombstones=False)) == [0, 1, 1]
    assert list(table.mask(batch, drop_tombstones=True)) == [0, 0, 1]


def test_a_table_is_full_when_it_has_its_number_of_keys() -> None:
    table = KeyTable(2, SECRET)
    table.note(columns(0, (b"a", b"1"), (b"a", b"2")))
    assert not table.is_full
    table.note(columns(2, (b"b", b"1"), (b"c", b"1")))
    assert table.is_full
    assert list(table.mask(columns(0, (b"c", b"0")), drop_tombstones=False)) == [0], "a batch is noted whole"


def test_many_keys_are_distinguished() -> None:
    table = KeyTable(100_000, SECRET)
    batch = columns(0, *((b"%d" % number, b"") for number in range(5000)))
    table.note(batch)
    table.note(columns(5000, *((b"%d" % number, b"") for number in range(0, 5000, 2))))
    assert list(table.mask(batch, drop_tombstones=False)) == [0, 1] * 2500
