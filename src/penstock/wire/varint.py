"""Kafka's unsigned varints: seven bits a byte, lowest first, at most 32 bits; and skipping tagged fields."""

from typing import Final

from penstock.wire.schema import Buffer


def uvarint(value: int) -> bytes:
    r"""Encodes an unsigned integer as a varint.

    >>> uvarint(300)
    b'\xac\x02'
    """
    out = bytearray()
    while value > 127:
        out.append(value & 0x7F | 0x80)
        value >>= 7
    out.append(value)
    return bytes(out)


TAGS_MAX: Final = 1024
"""Maximum number of tagged fields in one struct; a frame with more is rejected as hostile."""
UVARINT: Final = tuple(uvarint(value) for value in range(128))


def read_uvarint(buf: Buffer, at: int) -> tuple[int, int]:
    """Returns the varint at position `at` and the position after it."""
    first = buf[at]
    return (first, at + 1) if first < 128 else read_uvarint_tail(buf, at + 1, first)


def read_uvarint_tail(buf: Buffer, at: int, first: int) -> tuple[int, int]:
    """Reads the rest of a varint whose first byte, `first`, has its high bit set; returns value and next position."""
    value = first & 0x7F
    for shift in (7, 14, 21, 28):
        byte = buf[at]
        at += 1
        value |= (byte & 0x7F) << shift
        if byte < 128:
            return value & 0xFFFFFFFF, at
    raise ValueError("a variable-length integer has more than five bytes")


def skip_tagged_fields(buf: Buffer, at: int, count: int) -> int:
    """Returns the position after `count` tagged fields; ignores their content."""
    if count > TAGS_MAX:
        raise ValueError(f"{count} tagged fields, at most {TAGS_MAX} are read")
    for _ in range(count):
        _, at = read_uvarint(buf, at)
        size, at = read_uvarint(buf, at)
        at += size
    return at
