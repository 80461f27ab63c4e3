"""Delayed records in batches: found by their headers, extracted, and rebuilt for delivery.

A record is delayed if it has one of the delay headers of `foundation/delays.py`. Nothing else matters, so every
replica hides the same records.
"""

from array import array
from bisect import bisect_left
from collections.abc import Iterable, Iterator
from typing import Final, NamedTuple

from penstock.foundation.delays import (
    BROKER_HEADERS,
    COMMON_PREFIX,
    DELAY_HEADERS,
    DELAYED_FROM,
    DUE_AT,
    ORIGINAL_TIMESTAMP,
    BadDelay,
    DeliveryTime,
    check_delivery_time,
    parse_delivery_time,
)
from penstock.foundation.errors import CorruptMessage
from penstock.foundation.ids import uuid_text
from penstock.records.batch import BatchHeader
from penstock.records.build import Row
from penstock.records.columns import ABSENT_LENGTH, Columns, header_column
from penstock.records.layout import Ints
from penstock.records.varint import decode_varint, decode_varlong

DELIVERED_SEQUENCE: Final = -2
"""Base sequence that marks a batch of delivered delayed messages; clients cannot send it to topics with delays."""
_ABSENT_RUN: Final = array("i", [ABSENT_LENGTH] * 1024).tobytes()
_NAMES: Final = tuple((name, name.encode()) for name in DELAY_HEADERS)
_ROWS_AT_A_TIME: Final = 4096
_DROPPED: Final = frozenset((*DELAY_HEADERS, *BROKER_HEADERS))


def is_delivery(header: BatchHeader) -> bool:
    """Returns whether a broker appended this batch to deliver delayed messages that were due."""
    return header.producer_id == -1 and header.base_sequence == DELIVERED_SEQUENCE


def may_have_delays(columns: Columns) -> bool:
    """Returns False if certainly no record is delayed; costs one scan of the batch's bytes."""
    return COMMON_PREFIX in (columns.body if isinstance(columns.body, bytes) else bytes(columns.body))


def delayed_mask(columns: Columns) -> bytearray:
    """Returns a byte per record: 1 if the record is delayed, else 0."""
    mask = bytearray(columns.count)
    if may_have_delays(columns):
        for _, name in _NAMES:
            _, lengths = header_column(columns, name)
            for row in _rows_with(lengths):
                mask[row] = 1
    return mask


def _rows_with(lengths: Ints) -> Iterator[int]:
    """Yields the rows in which a header is present. `lengths`: the header's value lengths, from `header_column`."""
    data = bytes(lengths)
    at = 0
    while at < len(data):
        if data.startswith(_ABSENT_RUN, at):
            at += len(_ABSENT_RUN)
            continue
        end = min(at + len(_ABSENT_RUN), len(data))
        for row in range(at // 4, end // 4):
            if lengths[row] != ABSENT_LENGTH:
                yield row
        at = end


def delivery_times(columns: Columns) -> dict[int, DeliveryTime | BadDelay]:
    """Returns the delivery times of the delayed records of a batch, by row; BadDelay where a time is invalid."""
    found: dict[int, DeliveryTime | BadDelay] = {}
    if not may_have_delays(columns):
        return found
    for text, name in _NAMES:
        at, lengths = header_column(columns, name)
        for row in _rows_with(lengths):
            length = lengths[row]
            if row in found:
                found[row] = BadDelay(f"a record has two of {', '.join(DELAY_HEADERS)}; set only one")
                continue
            value = None if length < 0 else bytes(columns.body[at[row] : at[row] + length])
            try:
                found[row] = parse_delivery_time(text, value)
            except BadDelay as error:
                found[row] = error
    return found


def find_bad_rows(columns: Columns, now_ms: int) -> dict[int, str]:
    """Returns error messages for records with an invalid delay, by row."""
    bad: dict[int, str] = {}
    for row, delivery_time in delivery_times(columns).items():
        try:
            if isinstance(delivery_time, BadDelay):
                raise delivery_time
            check_delivery_time(delivery_time, now_ms)
        except BadDelay as error:
            bad[row] = str(error)
    return bad


class Delayed(NamedTuple):
    """A delayed record that was found in a batch."""

    offset: int
    delivery_time: DeliveryTime
    timestamp_ms: int
    key: bytes | None
    raw: bytes
    """The encoded record, including its length field: see `read_raw`."""


DUE_NOW: Final = DeliveryTime(0, 0)


def find_delayed(columns: Columns, from_offset: int) -> Iterator[Delayed]:
    """Yields the delayed records at or after an offset. A record with an invalid delay counts as due immediately."""
    first = bisect_left(columns.offsets, from_offset)
    for start in range(first, columns.count, _ROWS_AT_A_TIME):
        part = columns.part(start, start + _ROWS_AT_A_TIME)
        for row, delivery_time in sorted(delivery_times(part).items()):
            yield Delayed(
                part.offsets[row],
                DUE_NOW if isinstance(delivery_time, BadDelay) else delivery_time,
                part.timestamps[row],
                part.key(row),
                bytes(part.body[part.record_at[row] : part.record_at[row] + part.record_len[row]]),
            )


def read_raw(raw: bytes) -> Row:
    """Returns key, value and headers of an encoded record."""
    _, at = decode_varint(raw, 0)  # its length
    _, at = decode_varlong(raw, at + 1)  # after the attributes: timestamp delta, then offset delta
    _, at = decode_varint(raw, at)
    key, at = _cell(raw, at)
    value, at = _cell(raw, at)
    count, at = decode_varint(raw, at)
    headers = []
    for _ in range(count):
        name, at = _cell(raw, at)
        text, at = _cell(raw, at)
        headers.append(((name or b"").decode(errors="replace"), text))
    return key, value, headers


def _cell(raw: bytes, at: int) -> tuple[bytes | None, int]:
    length, at = decode_varint(raw, at)
    if length < 0:
        return None, at
    if at + length > len(raw):
        raise CorruptMessage(f"a stored record of {len(raw)} bytes is cut off at {at}")
    return bytes(raw[at : at + length]), at + length


def make_delivery_row(
    raw: bytes, *, topic_id: bytes, partition: int, offset: int, timestamp_ms: int, due_ms: int
) -> Row:
    """Returns the record that delivers a due delayed record: the same content, with headers that name its origin."""
    key, value, headers = read_raw(raw)
    kept: Iterable[tuple[str, bytes | None]] = (pair for pair in headers if pair[0] not in _DROPPED)
    added = (
        (ORIGINAL_TIMESTAMP, b"%d" % timestamp_ms),
        (DELAYED_FROM, f"{uuid_text(topic_id)}/{partition}/{offset}".encode()),
        (DUE_AT, b"%d" % due_ms),
    )
    return key, value, (*kept, *added)


def delivered_offsets(columns: Columns) -> list[int]:
    """Returns the original offsets of the delayed messages that a batch delivers."""
    at, lengths = header_column(columns, DELAYED_FROM.encode())
    return [
        int(bytes(columns.body[at[row] : at[row] + lengths[row]]).rpartition(b"/")[2]) for row in range(columns.count)
    ]
