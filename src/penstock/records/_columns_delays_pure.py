"""Messages that wait for their time, in pure Python: the twin of `_columns_delays.pxi`."""

from penstock.foundation.errors import CorruptMessage
from penstock.records.layout import HEADER, HEADER_BYTES, Buffer
from penstock.records.varint import decode_varint, decode_varlong

ENTRY_BYTES = 32
ENTRY_KEY_BYTES = 10
ENTRY_VALUE_BYTES = 24
RECORD_BYTES_MIN = 6


def sort_entries(entries: bytearray) -> None:
    if len(entries) % ENTRY_BYTES:
        raise ValueError(f"{len(entries)} bytes are no whole number of entries")
    data = bytes(entries)
    pieces = [data[at : at + ENTRY_BYTES] for at in range(0, len(data), ENTRY_BYTES)]
    pieces.sort(key=lambda entry: entry[:16])
    entries[:] = b"".join(pieces)


def pack_entries(batch: Buffer, kind: bytes) -> tuple[bytes, list[tuple[bytes, bytes | None]]]:
    if len(batch) < HEADER_BYTES or len(kind) != 2:
        raise CorruptMessage(f"{len(batch)} bytes are no batch")
    fields = HEADER.unpack_from(batch)
    base, count = fields[0], fields[-1]
    if count < 0 or count > (len(batch) - HEADER_BYTES) // (1 + RECORD_BYTES_MIN):
        raise CorruptMessage(f"{count} records cannot be in {len(batch)} bytes")
    data = bytes(batch)
    at, entries, others = HEADER_BYTES, [], []
    for row in range(count):
        try:
            length, at = decode_varint(data, at)
            end = at + length
            _, place = decode_varlong(data, at + 1)
            delta, place = decode_varint(data, place)
            key, place = _cell(data, place)
            value, place = _cell(data, place)
        except IndexError:
            raise CorruptMessage(f"record {row} of {count} does not agree with its lengths") from None
        if length < RECORD_BYTES_MIN or end > len(data) or place > end:
            raise CorruptMessage(f"record {row} of {count} does not agree with its length")
        at = end
        if key is not None and len(key) == ENTRY_KEY_BYTES and key[:2] == kind:
            if value is not None and len(value) >= ENTRY_VALUE_BYTES:
                place_of = (base + delta).to_bytes(8, "big")
                entries.append(value[1:9] + key[2:] + value[:1] + value[9:16] + place_of)
        elif key is not None:
            others.append((key, value))
    return b"".join(entries), others


def _cell(data: bytes, at: int) -> tuple[bytes | None, int]:
    length, at = decode_varint(data, at)
    if length < 0:
        return None, at
    return data[at : at + length], at + length
