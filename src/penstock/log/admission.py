"""What can only be decided by opening a batch: keys on compacted topics, another codec than the producer's."""

from collections.abc import Mapping
from typing import Final

from penstock.foundation.codes import ErrorCode
from penstock.foundation.errors import InvalidRecord, MessageTooLarge, PenstockError
from penstock.foundation.settings import INT_MAX
from penstock.log.settings import LogSettings
from penstock.records import kernel
from penstock.records.batch import BatchHeader, assemble, read_client_batch, read_header
from penstock.records.columns import Columns, decode_columns
from penstock.records.compression import Codec, compress
from penstock.records.delayed import bad_rows, delayed_mask, is_delivery
from penstock.records.layout import CODEC_MASK, HEADER_BYTES
from penstock.wire.schema import Buffer

REJECTED_ROWS_MAX: Final = 1000
"""Records that a producer is told of."""


class RejectedRecords(InvalidRecord):
    """Some records of a batch cannot be taken; then none of it is."""

    def __init__(self, message: str, rows: list[int], reasons: Mapping[int, str] | None = None) -> None:
        super().__init__(message)
        self.rows = rows
        self.reasons = reasons or {}
        """What is wrong with each, where that is not the same for all."""


class TooLargeHere(Exception):
    """A batch is for a thread to open: decompressed, it has more bytes than may be looked at here."""


class DelaysNotReady(PenstockError):
    """It is not committed yet that delayed records are held back here."""

    code = ErrorCode.NOT_ENOUGH_REPLICAS  # which producers try again


_CODECS = {
    "uncompressed": Codec.NONE,
    "gzip": Codec.GZIP,
    "snappy": Codec.SNAPPY,
    "lz4": Codec.LZ4,
    "zstd": Codec.ZSTD,
}


def may_open(settings: LogSettings) -> bool:
    """Whether there are batches that a topic with these settings must open."""
    return settings.compacted or settings.compression_type != "producer" or settings.delayed


def must_open(batch: Buffer, settings: LogSettings) -> bool:
    """Whether `admit` has anything to do for a batch of this topic."""
    if settings.compacted or settings.delayed:
        return True
    codec = _CODECS.get(settings.compression_type)
    return codec is not None and len(batch) >= HEADER_BYTES and read_header(batch).attributes & CODEC_MASK != codec


def admit(
    batch: Buffer, settings: LogSettings, now_ms: int = 0, may_delay: bool = True, body_max: int = INT_MAX
) -> Buffer:
    """The batch to append in the place of this one. Costs time by its decompressed size.

    `may_delay`: on a topic of delayed messages, whether they can be held back already. `body_max`: decompressed bytes
    that may be looked at here. Raises TooLargeHere if there are more: call it on a thread then, without that bound;
    MessageTooLarge if the topic's settings allow no more at all.
    """
    header = read_client_batch(batch)
    limit = settings.decompressed_bytes_max
    try:
        columns = decode_columns(batch, min(limit, body_max))
    except MessageTooLarge as error:
        if body_max < limit:
            raise TooLargeHere from None
        raise MessageTooLarge(
            f"the batch has more than {limit} bytes when decompressed, which is decompressed.batch.max.bytes of the "
            "topic; send smaller batches"
        ) from error
    if settings.compacted:
        _check_keys(columns)
    if settings.delayed:
        _check_delays(columns, header, now_ms, may_delay)
    codec = _CODECS.get(settings.compression_type)
    if codec is None or codec == header.codec:
        return batch
    return _recompress(columns.body, header, codec, settings)


def _check_keys(columns: Columns) -> None:
    rows = _rows_of(kernel.active.match_null(columns.key_len))
    if rows:
        raise RejectedRecords("a compacted topic takes only records with a key", rows)


def _rows_of(mask: bytes) -> list[int]:
    """The first rows whose byte is 1: a producer is told of so many."""
    rows: list[int] = []
    at = mask.find(1)
    while at >= 0 and len(rows) < REJECTED_ROWS_MAX:
        rows.append(at)
        at = mask.find(1, at + 1)
    return rows


def _check_delays(columns: Columns, header: BatchHeader, now_ms: int, may_delay: bool) -> None:
    if is_delivery(header):
        raise InvalidRecord(f"sequence {header.base_sequence} without a producer is the broker's own")
    bad = bad_rows(columns, now_ms)
    if bad:
        row = min(bad)
        raise RejectedRecords(f"record {row} of the batch: {bad[row]}", sorted(bad)[:REJECTED_ROWS_MAX], bad)
    if not may_delay and any(delayed_mask(columns)):
        raise DelaysNotReady("delayed messages are being made ready here; try again")


def _recompress(body: Buffer, header: BatchHeader, codec: Codec, settings: LogSettings) -> Buffer:
    """The same records under another codec."""
    level = settings.compression_levels.get(settings.compression_type)
    return assemble(
        compress(codec, body, level),
        count=header.count,
        attributes=header.attributes & ~CODEC_MASK | codec,
        base_offset=header.base_offset,
        last_offset_delta=header.last_offset_delta,
        leader_epoch=header.leader_epoch,
        base_timestamp=header.base_timestamp,
        max_timestamp=header.max_timestamp,
        producer_id=header.producer_id,
        producer_epoch=header.producer_epoch,
        base_sequence=header.base_sequence,
    )
