"""Ids of schemas in front of keys and values, in pure Python: the counterpart of `_columns_schemas.pxi`."""

from typing import Final

from penstock.records._columns_write_pure import piece
from penstock.records.layout import NO_SCHEMA_ID, SCHEMA_ID_BYTES, UNKNOWN_SCHEMA_ID, Buffer, Ints

LISTED_IDS_MAX: Final = 1000


def match_schema_ids(body: Buffer, at: Ints, length: Ints, known: Ints) -> bytes:
    if len(at) != len(length):
        raise ValueError("columns of different lengths")
    view, ids = memoryview(body), frozenset(known)
    states = bytearray(len(at))
    for row, (start, size) in enumerate(zip(at, length, strict=True)):
        if size < 0:
            continue
        cell = piece(view, start, size)
        if size < SCHEMA_ID_BYTES or cell[0] != 0:
            states[row] = NO_SCHEMA_ID
        elif _schema_id(cell) not in ids:
            states[row] = UNKNOWN_SCHEMA_ID
    return bytes(states)


def list_schema_ids(body: Buffer, at: Ints, length: Ints, states: Buffer, most: int) -> list[int]:
    if len(at) != len(length) or len(states) != len(at):
        raise ValueError("columns of different lengths")
    if not 0 <= most <= LISTED_IDS_MAX:
        raise ValueError(f"{most} ids are too many to list")
    view = memoryview(body)
    found: dict[int, None] = {}
    for row, state in enumerate(states):
        if state != UNKNOWN_SCHEMA_ID:
            continue
        cell = piece(view, at[row], length[row])
        if len(cell) < SCHEMA_ID_BYTES:
            raise ValueError(f"{len(cell)} bytes have no schema id")
        number = _schema_id(cell)
        if number not in found and len(found) == most:
            break
        found[number] = None
    return list(found)


def _schema_id(cell: Buffer) -> int:
    return int.from_bytes(cell[1:SCHEMA_ID_BYTES], "big", signed=True)
