"""What can only be decided by opening a batch: keys on compacted topics, another codec than the producer's."""

from collections.abc import Mapping

from penstock.foundation.codes import ErrorCode
from penstock.foundation.errors import InvalidRecord, PenstockError
from penstock.log.settings import LogSettings
from penstock.records.batch import BatchHeader, read_client_batch, read_header
from penstock.records.build import build_batch, read_records
from penstock.records.columns import decode_columns
from penstock.records.compression import Codec
from penstock.records.delayed import bad_rows, delayed_mask, is_delivery
from penstock.records.layout import CODEC_MASK, HEADER_BYTES
from penstock.wire.schema import Buffer


class RejectedRecords(InvalidRecord):
    """Some records of a batch cannot be taken; then none of it is."""

    def __init__(self, message: str, rows: list[int], reasons: Mapping[int, str] | None = None) -> None:
        super().__init__(message)
        self.rows = rows
        self.reasons = reasons or {}
        """What is wrong with each, where that is not the same for all."""


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


def admit(batch: Buffer, settings: LogSettings, now_ms: int = 0, may_delay: bool = True) -> Buffer:
    """The batch to append in the place of this one. Costs time by the record: call it where that does no harm.

    `may_delay`: on a topic of delayed messages, whether they can be held back already.
    """
    header = read_client_batch(batch)
    if settings.compacted:
        _check_keys(batch)
    if settings.delayed:
        _check_delays(batch, header, now_ms, may_delay)
    codec = _CODECS.get(settings.compression_type)
    if codec is None or codec == header.codec:
        return batch
    return _recompress(batch, header, codec, settings)


def _check_keys(batch: Buffer) -> None:
    columns = decode_columns(batch)
    rows = [row for row in range(columns.count) if columns.key_len[row] < 0]
    if rows:
        raise RejectedRecords("a compacted topic takes only records with a key", rows)


def _check_delays(batch: Buffer, header: BatchHeader, now_ms: int, may_delay: bool) -> None:
    if is_delivery(header):
        raise InvalidRecord(f"sequence {header.base_sequence} without a producer is the broker's own")
    columns = decode_columns(batch)
    bad = bad_rows(columns, now_ms)
    if bad:
        row = min(bad)
        raise RejectedRecords(f"record {row} of the batch: {bad[row]}", sorted(bad), bad)
    if not may_delay and any(delayed_mask(columns)):
        raise DelaysNotReady("delayed messages are being made ready here; try again")


def _recompress(batch: Buffer, header: BatchHeader, codec: Codec, settings: LogSettings) -> Buffer:
    return build_batch(
        read_records(batch),
        codec=codec,
        level=settings.compression_levels.get(settings.compression_type),
        producer_id=header.producer_id,
        producer_epoch=header.producer_epoch,
        base_sequence=header.base_sequence,
        transactional=header.is_transactional,
    )
