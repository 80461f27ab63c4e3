"""Batches with hidden records: a naive filter must agree, for both implementations."""

from collections.abc import Sequence
from dataclasses import dataclass

import pytest
from hypothesis import given
from hypothesis import strategies as st

from penstock.records.batch import batches, check_batch, read_header
from penstock.records.build import Record, build_batch, control_marker, read_marker, read_records
from penstock.records.columns import decode_columns
from penstock.records.compression import Codec
from penstock.records.selection import Selected, Selection, mask_without

pytestmark = pytest.mark.usefixtures("twin")

NOW_MS = 1_700_000_000_000


@dataclass(frozen=True, slots=True, kw_only=True)
class Gone:
    producer_id: int
    first_offset: int
    last_offset: int


def record(offset: int, **fields: object) -> Record:
    values: dict[str, object] = {
        "key": f"k{offset}".encode(),
        "value": b"v" * (offset % 7),
        "timestamp_ms": NOW_MS + offset,
        "headers": (("tag", b"eu"),),
        "offset": offset,
    }
    return Record(**(values | fields))  # type: ignore[arg-type]


def batch(offsets: Sequence[int], *, codec: Codec = Codec.NONE, **fields: object) -> bytearray:
    values: dict[str, object] = {"base_offset": offsets[0], "leader_epoch": 4} | fields
    return build_batch([record(offset) for offset in offsets], codec=codec, keep_offsets=True, **values)  # type: ignore[arg-type]


def shown(answer: Selected) -> list[Record]:
    """What a consumer shows of an answer: all records but those of control batches."""
    records = []
    for at, header in batches(answer.records):
        check_batch(answer.records, at, header)
        if not header.is_control:
            records += read_records(answer.records[at : at + header.size_bytes])
    return records


def hide_all(
    data: bytes | bytearray, hidden: set[int], from_offset: int = 0, aborted: Sequence[Gone] = ()
) -> Selected:
    selection = Selection(from_offset, aborted)
    for at, header in batches(data):
        if not selection.is_visible(header):
            continue
        batch = memoryview(data)[at : at + header.size_bytes]
        if offsets := _within(hidden, header):
            columns = decode_columns(batch)
            selection.choose(batch, header, columns, mask_without(columns, offsets))
        else:
            selection.keep(batch, header)
    return selection.answer()


def _within(hidden: set[int], header: object) -> list[int]:
    first, last = header.base_offset, header.last_offset  # type: ignore[attr-defined]
    return [offset for offset in hidden if first <= offset <= last]


@pytest.mark.parametrize("codec", Codec)
def test_kept_records_are_unchanged_and_the_batch_ends_at_the_last(codec: Codec) -> None:
    data = batch(range(10, 20), codec=codec, producer_id=7, producer_epoch=1, base_sequence=3)
    answer = hide_all(data, {10, 15, 18, 19}, 10)
    assert shown(answer) == [record(offset) for offset in (11, 12, 13, 14, 16, 17)]
    (at, kept), (marker_at, marker) = batches(answer.records)
    assert (at, kept.base_offset, kept.last_offset, kept.codec) == (0, 10, 17, codec)
    assert (kept.producer_id, kept.leader_epoch, kept.max_timestamp) == (7, 4, NOW_MS + 17)
    assert (marker.base_offset, marker.count, marker.attributes, marker.producer_id) == (19, 1, 0x20, -1)
    assert marker.leader_epoch == 4
    (only,) = read_records(answer.records[marker_at:])
    assert (only.key, only.value) == (bytes.fromhex("00000001"), bytes(6))
    assert (answer.next_offset, answer.kept) == (20, 6)


def test_a_batch_without_hidden_records_is_sent_byte_by_byte() -> None:
    data = bytes(batch(range(5), codec=Codec.ZSTD))
    assert hide_all(data, set()) == Selected(data, 5, 5)


def test_a_batch_that_compaction_left_with_a_gap_at_its_end_is_sent_as_it_is() -> None:
    data = bytes(batch([3, 5], last_offset_delta=6))
    assert hide_all(data, {4}, 3) == Selected(data, 10, 2)


def test_no_marker_follows_where_the_last_record_is_kept() -> None:
    answer = hide_all(batch(range(5)) + batch(range(5, 9)), {0, 5})
    assert [header.is_control for _, header in batches(answer.records)] == [False, False]
    assert [each.offset for each in shown(answer)] == [1, 2, 3, 4, 6, 7, 8]


def test_of_nothing_but_hidden_records_a_marker_is_left() -> None:
    answer = hide_all(batch(range(5)) + batch(range(5, 9)), set(range(9)))
    assert read_header(answer.records).base_offset == 8
    assert read_marker(answer.records) == (True, 0)
    assert (shown(answer), answer.next_offset, answer.kept) == ([], 9, 0)


def test_selecting_no_records_leaves_nothing() -> None:
    assert hide_all(b"", {1}, 7) == Selected(b"", 7, 0)


def test_a_batch_that_was_cut_off_is_not_passed_over() -> None:
    data = batch(range(5)) + batch(range(5, 9))
    assert hide_all(data[:-1], {4}).next_offset == 5


def test_aborted_records_are_left_out_and_committed_ones_stay() -> None:
    def sent(offsets: Sequence[int], producer_id: int) -> bytearray:
        return batch(offsets, producer_id=producer_id, producer_epoch=0, base_sequence=0, transactional=True)

    def end(offset: int, producer_id: int, commit: bool) -> bytearray:
        return control_marker(
            commit=commit,
            coordinator_epoch=0,
            producer_id=producer_id,
            producer_epoch=0,
            timestamp_ms=NOW_MS,
            base_offset=offset,
        )

    data = sent([0, 1], 1) + sent([2], 2) + end(3, 1, False) + sent([4], 1) + end(5, 2, True) + end(6, 1, True)
    answer = hide_all(data, set(), 0, [Gone(producer_id=1, first_offset=0, last_offset=3)])
    assert [each.offset for each in shown(answer)] == [2, 4]
    assert answer.next_offset == 7
    assert [header.is_transactional for _, header in batches(answer.records)] == [True, True, False]


def test_the_mask_of_offsets_minds_gaps() -> None:
    from penstock.records.columns import decode_columns

    columns = decode_columns(batch([3, 5, 9]))
    assert mask_without(columns, [5, 7]) == bytes([1, 0, 1])
    assert mask_without(decode_columns(batch([3, 4, 5])), [2, 3, 6]) == bytes([0, 1, 1])


@given(st.data())
def test_a_naive_filter_shows_the_same(data: st.DataObject) -> None:
    offset, log, everything = data.draw(st.integers(0, 1000)), bytearray(), []
    start = offset
    for _ in range(data.draw(st.integers(1, 4))):
        gaps = data.draw(st.lists(st.integers(1, 3), min_size=1, max_size=6))
        offsets = [offset := offset + gap for gap in gaps]
        log += batch(offsets, codec=data.draw(st.sampled_from(Codec)))
        everything += offsets
    hidden = set(data.draw(st.lists(st.sampled_from(everything))))
    answer = hide_all(log, hidden, start)
    assert shown(answer) == [record(each) for each in everything if each not in hidden]
    assert answer.next_offset == everything[-1] + 1
    *_, (_, last) = batches(answer.records)
    assert last.last_offset == everything[-1]
    assert answer.kept == len(everything) - len(hidden)
