"""The record batch, format v2 (KIP-98): header, validation, and the fields that a broker patches in place.

A batch is a header of 61 bytes and a body of records, which is compressed as a whole or not at all. The CRC covers
everything from the attributes on, so base offset and leader epoch can be set without updating the CRC.
"""

import struct
from collections.abc import Iterator
from typing import Final, NamedTuple

from crc32c import crc32c

from penstock.foundation.errors import CorruptMessage, InvalidRecord, MessageTooLarge, PenstockError
from penstock.records import kernel
from penstock.records.compression import Codec, codec_of
from penstock.records.errors import UnsupportedMessageFormat
from penstock.records.layout import (
    BROKER_ONLY,
    CONTROL,
    DELETE_HORIZON,
    HEADER,
    HEADER_BYTES,
    LENGTH_END,
    LOG_APPEND_TIME,
    MAGIC,
    TRANSACTIONAL,
    Buffer,
)

LENGTH_MIN: Final = HEADER_BYTES - LENGTH_END
LENGTH_MAX: Final = 2**31 - 1

LEADER_EPOCH_AT: Final = 12
MAGIC_AT: Final = 16
CRC_AT: Final = 17
ATTRIBUTES_AT: Final = 21  # the CRC covers from here to the end
MAX_TIMESTAMP_AT: Final = 35

_INT64: Final = struct.Struct(">q")
_OFFSET_FIELDS: Final = struct.Struct(">qii")  # base offset, length, leader epoch
_UINT32: Final = struct.Struct(">I")
_INT16: Final = struct.Struct(">h")


class BatchHeader(NamedTuple):
    """The fields of a batch header, in their order in the batch."""

    base_offset: int
    length: int
    leader_epoch: int
    magic: int
    crc: int
    attributes: int
    last_offset_delta: int
    base_timestamp: int
    max_timestamp: int
    producer_id: int
    producer_epoch: int
    base_sequence: int
    count: int  # type: ignore[assignment]  # hides tuple.count, which is not used

    @property
    def size_bytes(self) -> int:
        return LENGTH_END + self.length

    @property
    def last_offset(self) -> int:
        return self.base_offset + self.last_offset_delta

    @property
    def next_offset(self) -> int:
        return self.base_offset + self.last_offset_delta + 1

    @property
    def codec(self) -> Codec:
        return codec_of(self.attributes)

    @property
    def is_control(self) -> bool:
        return self.attributes & CONTROL != 0

    @property
    def is_transactional(self) -> bool:
        return self.attributes & TRANSACTIONAL != 0

    @property
    def is_log_append_time(self) -> bool:
        return self.attributes & LOG_APPEND_TIME != 0

    @property
    def delete_horizon_ms(self) -> int | None:
        """The time from which compaction may drop this batch's tombstones (KIP-534); None if compaction has not set
        it yet."""
        return self.base_timestamp if self.attributes & DELETE_HORIZON else None


_unpack_header = HEADER.unpack_from
_new_header = tuple.__new__  # half the time of NamedTuple's own constructor


def read_header(buf: Buffer, at: int = 0) -> BatchHeader:
    """Returns the header of the batch at position `at`, without validation: see `check_batch`."""
    try:
        return _new_header(BatchHeader, _unpack_header(buf, at))
    except struct.error as error:
        raise CorruptMessage(f"batch header needs {HEADER_BYTES} bytes, {len(buf) - at} are there") from error


def batches(buf: Buffer) -> Iterator[tuple[int, BatchHeader]]:
    """Yields position and header of each whole batch. Omits a batch that is cut off at the end of `buf`.

    A fetch or a torn write may end anywhere. An impossible length or magic raises CorruptMessage.
    """
    at = 0
    size = len(buf)
    while size - at > MAGIC_AT:
        if size - at < HEADER_BYTES:
            _check_magic(buf[at + MAGIC_AT], at)  # a message of format v0 or v1 may be shorter than a header
            return
        header = read_header(buf, at)
        _check_magic(header.magic, at)
        if header.length < LENGTH_MIN:
            raise CorruptMessage(f"batch at byte {at} has length {header.length}, the least is {LENGTH_MIN}")
        end = at + LENGTH_END + header.length
        if end > size:
            return
        yield at, header
        at = end


def check_shape(buf: Buffer, at: int, header: BatchHeader) -> None:
    """Raises CorruptMessage if a batch is incomplete or its header is inconsistent."""
    _, length, _, magic, _, _, last_offset_delta, _, _, _, _, _, count = header
    if magic != MAGIC:
        _check_magic(magic, at)
    if length < LENGTH_MIN or at + LENGTH_END + length > len(buf):
        raise CorruptMessage(f"batch at byte {at} has length {length}, {len(buf) - at - LENGTH_END} bytes follow")
    if count < 0 or last_offset_delta < 0:
        raise CorruptMessage(f"batch at byte {at} has count {count}, last offset delta {last_offset_delta}")


def check_batch(buf: Buffer, at: int, header: BatchHeader) -> None:
    """Raises CorruptMessage if a batch is incomplete, its header is inconsistent or its CRC is wrong."""
    check_shape(buf, at, header)
    found = crc32c(memoryview(buf)[at + ATTRIBUTES_AT : at + LENGTH_END + header.length])
    if found != header.crc:
        raise CorruptMessage(f"batch at byte {at} has CRC {found:#010x}, its header says {header.crc:#010x}")


def read_client_batch(buf: Buffer) -> BatchHeader:
    """Returns the header of a producer's batch, after `check_batch` and the rules that only producers must follow.

    Checks the record count of uncompressed batches; does not decompress batches.
    """
    return _new_header(BatchHeader, client_fields(buf))


def client_fields(buf: Buffer) -> tuple[int, ...]:
    """Like `read_client_batch`, but faster: returns the header's fields as a plain tuple."""
    view = buf if type(buf) is memoryview else memoryview(buf)
    fields = kernel.active.client_header(view)
    if fields is not None and crc32c(view[ATTRIBUTES_AT:]) == fields[4]:
        return fields
    raise _diagnose(view)


def _diagnose(buf: memoryview) -> PenstockError:
    """Returns the error that says why a producer's batch is invalid."""
    try:
        header = read_header(buf)
        check_batch(buf, 0, header)
        codec_of(header.attributes)
    except PenstockError as error:
        return error
    if header.size_bytes != len(buf):
        return InvalidRecord("a produce request must have exactly one record batch per partition")
    if header.last_offset_delta != header.count - 1:
        return CorruptMessage(f"batch of {header.count} records has last offset delta {header.last_offset_delta}")
    if header.attributes & BROKER_ONLY:
        return InvalidRecord(f"attributes {header.attributes:#x}: only brokers may set {BROKER_ONLY:#x}")
    if header.producer_id < -1 or (header.producer_id == -1 and header.is_transactional):
        return InvalidRecord(f"producer id {header.producer_id} with attributes {header.attributes:#x}")
    if header.producer_id >= 0 and (header.producer_epoch < 0 or header.base_sequence < 0):
        return InvalidRecord(
            f"producer {header.producer_id} sent epoch {header.producer_epoch}, sequence {header.base_sequence}"
        )
    return CorruptMessage(f"batch of {header.count} records does not hold just that many")


patch_offsets = _OFFSET_FIELDS.pack_into
"""`patch_offsets(buf, at, base_offset, length, leader_epoch)` writes base offset and leader epoch into a batch.

`length` must be the batch's own length, which is rewritten unchanged. The CRC covers none of the three fields.
"""


def patch_log_append_time(buf: bytearray | memoryview, at: int, timestamp_ms: int) -> None:
    """Sets all timestamps of a batch to the broker's time (`message.timestamp.type=LogAppendTime`)."""
    header = read_header(buf, at)
    _INT16.pack_into(buf, at + ATTRIBUTES_AT, header.attributes | LOG_APPEND_TIME)
    _INT64.pack_into(buf, at + MAX_TIMESTAMP_AT, timestamp_ms)
    _write_crc(buf, at, header.size_bytes)


def assemble(
    body: Buffer,
    *,
    count: int,
    attributes: int,
    base_offset: int,
    last_offset_delta: int,
    leader_epoch: int,
    base_timestamp: int,
    max_timestamp: int,
    producer_id: int,
    producer_epoch: int,
    base_sequence: int,
) -> bytearray:
    """Builds a batch from a body already compressed with the codec in `attributes`; computes length and CRC."""
    size = HEADER_BYTES + len(body)
    length = size - LENGTH_END
    if length > LENGTH_MAX:
        raise MessageTooLarge(f"a batch of {size} bytes exceeds its length field")
    batch = bytearray(
        HEADER.pack(
            base_offset,
            length,
            leader_epoch,
            MAGIC,
            0,
            attributes,
            last_offset_delta,
            base_timestamp,
            max_timestamp,
            producer_id,
            producer_epoch,
            base_sequence,
            count,
        )
    )
    batch += body
    _write_crc(batch, 0, size)
    return batch


def _write_crc(buf: bytearray | memoryview, at: int, size_bytes: int) -> None:
    _UINT32.pack_into(buf, at + CRC_AT, crc32c(memoryview(buf)[at + ATTRIBUTES_AT : at + size_bytes]))


def _check_magic(magic: int, at: int) -> None:
    if magic in (0, 1):
        raise UnsupportedMessageFormat(f"message at byte {at} has format v{magic}: producers must send v{MAGIC}")
    if magic != MAGIC:
        raise CorruptMessage(f"batch at byte {at} has magic {magic}, expected {MAGIC}")
