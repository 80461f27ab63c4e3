"""Fuzzes record batches: both implementations of the decoder, every codec, and the broker's checks.

Not a part of `make test`; see fuzz_wire.py for how to install and run it:

    python tests/fuzz/fuzz_records.py -max_total_time=600

A batch that the fuzzer makes up rarely has the right CRC, so each one is sealed before it is read. Anything but an
answer or a PenstockError is a crash; so are two twins that do not agree. It begins with seeds: batches that claim
more records than they have, that grow a thousandfold when they are decompressed, and with very many headers.
"""

import contextlib
from collections.abc import Iterator

import atheris
from corpus import run

with atheris.instrument_imports(include=["penstock"]):
    from penstock.foundation.errors import PenstockError
    from penstock.records import kernel
    from penstock.records.batch import ATTRIBUTES_AT, CRC_AT, batches, read_client_batch, read_header
    from penstock.records.build import Record, build_batch, read_records
    from penstock.records.columns import decode_columns, header_column, select_records
    from penstock.records.compression import Codec, compress
    from penstock.records.layout import HEADER_BYTES

from crc32c import crc32c

DECOMPRESSED_BYTES_MAX = 1 << 20


def sealed(data: bytes) -> bytearray:
    """The bytes as one batch: right length, right magic, right CRC; everything else is the fuzzer's."""
    batch = bytearray(data)
    batch[8:12] = (len(batch) - 12).to_bytes(4, "big")
    batch[16] = 2
    batch[CRC_AT:ATTRIBUTES_AT] = crc32c(bytes(batch[ATTRIBUTES_AT:])).to_bytes(4, "big")
    return batch


def outcome(batch: bytearray) -> object:
    """Everything that can be got out of a batch, or the error."""
    try:
        columns = decode_columns(batch, DECOMPRESSED_BYTES_MAX)
    except PenstockError as error:
        return type(error)
    mask = bytes(row % 2 for row in range(columns.count))
    at, length = header_column(columns, b"tag")
    table = kernel.active.new_key_table(bytes(16))
    kept: object
    try:
        table.note(columns.body, columns.key_at, columns.key_len, columns.offsets)
        kept = bytes(
            table.mask(columns.body, columns.key_at, columns.key_len, columns.value_len, columns.offsets, True)
        )
    except PenstockError as error:
        kept = type(error)
    chosen = select_records(batch, columns, mask, keep_last_offset=True)
    return bytes(columns.offsets), bytes(columns.key_at), bytes(at), bytes(length), kept, chosen


def fuzz(data: bytes) -> None:
    with contextlib.suppress(PenstockError):
        for at, header in batches(data):
            assert at + header.size_bytes <= len(data)
    if len(data) < HEADER_BYTES:
        return
    batch = sealed(data)
    with contextlib.suppress(PenstockError):
        read_client_batch(batch)
        assert read_header(batch).count > 0
    found = []
    for twin in (kernel.PURE, kernel.COMPILED or kernel.PURE):
        kernel.active = twin
        found.append(outcome(batch))
    assert found[0] == found[1], "the twins do not agree"
    with contextlib.suppress(PenstockError):
        read_records(batch, DECOMPRESSED_BYTES_MAX)


def seeds() -> Iterator[bytes]:
    headers = (("h", b""),) * 2000
    records = [Record(key=b"k", value=b"v" * 50, headers=(("tag", b"a"),), timestamp_ms=1)] * 20
    for codec in Codec:
        plain = build_batch(records, codec=codec)
        yield bytes(plain)
        yield bytes(build_batch([Record(key=None, value=b"", headers=headers, timestamp_ms=1)], codec=codec))
        yield bytes(build_batch([Record(key=None, value=bytes(900_000), timestamp_ms=1)], codec=codec))
        for count in (0, 21, 20_000_000, 2**31 - 1):  # what it claims to have
            yield bytes(plain[: HEADER_BYTES - 4]) + count.to_bytes(4, "big") + bytes(plain[HEADER_BYTES:])
        if codec is not Codec.NONE:
            bomb = bytes(compress(codec, bytes(4 << 20)))
            yield bytes(plain[:HEADER_BYTES]) + bomb


if __name__ == "__main__":
    run(fuzz, seeds())
