"""Zigzag varints of record fields: small signed numbers in few bytes.

A length has 32 bits (at most five bytes), a timestamp delta 64 bits (at most ten).
"""

from penstock.foundation.errors import CorruptMessage

NULL_LENGTH = b"\x01"  # zigzag of -1: null, not an empty value

_ONE_BYTE = [bytes((raw,)) for raw in range(0x80)]
_ZIGZAG = [(raw >> 1) ^ -(raw & 1) for raw in range(0x80)]


def encode_varint(value: int) -> bytes:
    r"""Encodes `value`, a signed 64-bit integer, as a zigzag varint: `encode_varint(-2) == b"\x03"`."""
    raw = (value << 1) ^ (value >> 63)
    if raw < 0x80:
        return _ONE_BYTE[raw]
    out = bytearray()
    while raw > 0x7F:
        out.append(raw & 0x7F | 0x80)
        raw >>= 7
    out.append(raw)
    return bytes(out)


def decode_varint(data: bytes, at: int) -> tuple[int, int]:
    """Returns the 32-bit value at position `at` and the next position. Raises IndexError if `data` ends first."""
    first = data[at]
    if first < 0x80:
        return _ZIGZAG[first], at + 1
    second = data[at + 1]
    if second < 0x80:
        raw = first & 0x7F | second << 7
        return (raw >> 1) ^ -(raw & 1), at + 2
    return _decode(data, at, shift_max=28, last_byte_max=0x0F)


def decode_varlong(data: bytes, at: int) -> tuple[int, int]:
    """Returns the 64-bit value at position `at` and the next position. Raises IndexError if `data` ends first."""
    first = data[at]
    if first < 0x80:
        return _ZIGZAG[first], at + 1
    return _decode(data, at, shift_max=63, last_byte_max=0x01)


def _decode(data: bytes, at: int, *, shift_max: int, last_byte_max: int) -> tuple[int, int]:
    raw = shift = 0
    while True:
        byte = data[at]
        at += 1
        if shift == shift_max and byte > last_byte_max:
            raise CorruptMessage(f"varint that ends after byte {at} of the records is too long")
        raw |= (byte & 0x7F) << shift
        if byte < 0x80:
            return (raw >> 1) ^ -(raw & 1), at
        shift += 7
