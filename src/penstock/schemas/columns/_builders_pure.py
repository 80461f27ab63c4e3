"""Columns that grow value by value and become Arrow buffers, in pure Python: the twin of `_builders.pxi`."""

import struct
from array import array
from typing import Final

from penstock.foundation.errors import MessageTooLarge
from penstock.schemas.columns.layout import FilledColumn, Kind, Layout

INT32_MAX: Final = 2**31 - 1


class _Builder:
    __slots__ = ("children", "is_nullable", "kind", "offsets", "valid", "values", "width")

    def __init__(self, kind: Kind, width: int, is_nullable: bool, children: list[int]) -> None:
        self.kind = kind
        self.width = width
        self.is_nullable = is_nullable
        self.children = children
        self.valid = bytearray()
        """One byte per value."""
        self.values = bytearray()
        """One byte per value for `Kind.BIT`."""
        self.offsets = array("i", [0])


class Table:
    """The builders of a layout."""

    def __init__(self, layout: Layout) -> None:
        self._builders = [
            _Builder(
                column.kind,
                column.type.bit_width // 8 if column.kind == Kind.FIXED else 0,
                column.is_nullable,
                [child.index for child in column.children],
            )
            for column in layout.columns
        ]

    def put_bit(self, index: int, value: bool) -> None:
        builder = self._builders[index]
        builder.values.append(value)
        builder.valid.append(True)

    def put_int32(self, index: int, value: int) -> None:
        self._put(index, value.to_bytes(4, "little", signed=True))

    def put_int64(self, index: int, value: int) -> None:
        self._put(index, value.to_bytes(8, "little", signed=True))

    def put_int128(self, index: int, value: int) -> None:
        """Appends a decimal: the unscaled value."""
        self._put(index, value.to_bytes(16, "little", signed=True))

    def put_float(self, index: int, value: float) -> None:
        self._put(index, struct.pack("<f", value))

    def put_double(self, index: int, value: float) -> None:
        self._put(index, struct.pack("<d", value))

    def put_raw(self, index: int, value: bytes) -> None:
        """Appends a value of fixed size as it is in memory."""
        self._put(index, value)

    def put_bytes(self, index: int, value: bytes) -> None:
        """Appends the bytes. Of a text column they must be UTF-8."""
        builder = self._builders[index]
        self._put(index, value)
        builder.offsets.append(_checked(len(builder.values)))

    def put_struct(self, index: int) -> None:
        self._builders[index].valid.append(True)

    def put_list(self, index: int) -> None:
        """Appends a list of the items that were put since the last one."""
        builder = self._builders[index]
        builder.offsets.append(_checked(self.length(builder.children[0])))
        builder.valid.append(True)

    def put_null(self, index: int) -> None:
        """Appends null, or the zero of its type to a column that is not nullable: a placeholder in a null struct."""
        builder = self._builders[index]
        match builder.kind:
            case Kind.BIT:
                builder.values.append(False)
            case Kind.FIXED:
                builder.values += bytes(builder.width)
            case Kind.BYTES | Kind.LIST:
                builder.offsets.append(builder.offsets[-1])
            case Kind.STRUCT:
                for child in builder.children:
                    self.put_null(child)
        builder.valid.append(False)

    def truncate(self, index: int, length: int) -> None:
        """Removes all values after the first `length`, with the items or fields that belong to them."""
        builder = self._builders[index]
        del builder.valid[length:]
        kept = length
        match builder.kind:
            case Kind.BIT:
                del builder.values[length:]
            case Kind.FIXED:
                del builder.values[length * builder.width :]
            case Kind.BYTES | Kind.LIST:
                del builder.offsets[length + 1 :]
                kept = builder.offsets[-1]
                if builder.kind == Kind.BYTES:
                    del builder.values[kept:]
        for child in builder.children:
            self.truncate(child, kept)

    def length(self, index: int) -> int:
        """Returns how many values a column has."""
        return len(self._builders[index].valid)

    def texts(self, index: int, first: int) -> list[bytes]:
        """Returns the values of a column of bytes from `first` on."""
        builder = self._builders[index]
        offsets = builder.offsets
        return [bytes(builder.values[offsets[at] : offsets[at + 1]]) for at in range(first, len(offsets) - 1)]

    def finish(self) -> list[FilledColumn]:
        """Returns the buffers of all columns."""
        return [_finished(builder) for builder in self._builders]

    def _put(self, index: int, value: bytes) -> None:
        builder = self._builders[index]
        builder.values += value
        builder.valid.append(True)


def _checked(offset: int) -> int:
    if offset > INT32_MAX:
        raise MessageTooLarge(f"a column has more than {INT32_MAX} bytes or items: decode fewer payloads at a time")
    return offset


def _finished(builder: _Builder) -> FilledColumn:
    values = None
    if builder.kind == Kind.BIT:
        values = _bits(builder.values)
    elif builder.kind in (Kind.FIXED, Kind.BYTES):
        values = bytes(builder.values)
    return FilledColumn(
        len(builder.valid),
        _bits(builder.valid) if builder.is_nullable and builder.kind != Kind.NULL else None,
        builder.offsets.tobytes() if builder.kind in (Kind.BYTES, Kind.LIST) else None,
        values,
    )


def _bits(flags: bytearray) -> bytes:
    """Packs a byte per value into a bit per value."""
    packed = bytearray((len(flags) + 7) // 8)
    for place, flag in enumerate(flags):
        packed[place >> 3] |= flag << (place & 7)
    return bytes(packed)
