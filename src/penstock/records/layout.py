"""How bytes and columns are passed between the files of this room."""

from typing import NamedTuple

Buffer = bytes | bytearray | memoryview
Ints = memoryview  # of native items: 'i' for positions and lengths, 'q' for offsets and timestamps


class BinaryColumn(NamedTuple):
    """A nullable column of bytes in Arrow's layout: row r is data[offsets[r] : offsets[r + 1]].

    `offset` is where row 0 lies, in rows, as in a sliced Arrow array. No `validity`: no nulls.
    """

    offsets: Buffer  # int32, one more than there are rows
    data: Buffer
    validity: Buffer | None = None
    offset: int = 0


class HeadersColumn(NamedTuple):
    """Arrow's list<struct<key: string, value: binary>>: row r has entries offsets[r] to offsets[r + 1]."""

    offsets: Buffer  # int32, one more than there are rows
    names: BinaryColumn
    values: BinaryColumn
    validity: Buffer | None = None
    offset: int = 0
