"""Byte layout of the record batch header, and the buffer and Arrow column types of this package."""

import struct
from typing import Final, NamedTuple

Buffer = bytes | bytearray | memoryview
Ints = memoryview  # of native items: 'i' for positions and lengths, 'q' for offsets and timestamps

HEADER: Final = struct.Struct(">qiibIhiqqqhii")
HEADER_BYTES: Final = 61
LENGTH_END: Final = 12  # the length field counts what follows it
MAGIC: Final = 2
CODEC_MASK: Final = 0x07  # of the attributes
CODEC_MAX: Final = 4
RECORD_BYTES_MIN: Final = 7  # its length, attributes, two deltas, two lengths and the number of headers
LOG_APPEND_TIME: Final = 0x08
TRANSACTIONAL: Final = 0x10
CONTROL: Final = 0x20
DELETE_HORIZON: Final = 0x40  # KIP-534: the base timestamp is the delete horizon of tombstones
BROKER_ONLY: Final = LOG_APPEND_TIME | CONTROL | DELETE_HORIZON
SCHEMA_ID_BYTES: Final = 5  # the magic byte 0 and an int32, in front of a value that Confluent's serializers wrote
NO_SCHEMA_ID: Final = 1  # states of `Kernel.match_schema_ids`, besides 0
UNKNOWN_SCHEMA_ID: Final = 2


class BinaryColumn(NamedTuple):
    """A nullable column of bytes in Arrow's layout: row r is data[offsets[i] : offsets[i + 1]], where i = offset + r.

    `offset` is 0 unless the Arrow array is a slice. If `validity` is None, there are no nulls.
    """

    offsets: Buffer  # int32, one more than there are rows
    data: Buffer
    validity: Buffer | None = None
    offset: int = 0


class IntColumn(NamedTuple):
    """A nullable column of int32 in Arrow's layout."""

    data: Buffer
    validity: Buffer | None = None
    offset: int = 0


class HeadersColumn(NamedTuple):
    """Arrow's list<struct<key: string, value: binary>>: row r has the entries [offsets[r], offsets[r + 1])."""

    offsets: Buffer  # int32, one more than there are rows
    names: BinaryColumn
    values: BinaryColumn
    validity: Buffer | None = None
    offset: int = 0
