"""What can only be decided by opening a batch: keys on compacted topics, another codec than the producer's."""

from penstock.foundation.errors import InvalidRecord
from penstock.log.settings import LogSettings
from penstock.records.batch import BatchHeader, read_client_batch, read_header
from penstock.records.build import build_batch, read_records
from penstock.records.columns import decode_columns
from penstock.records.compression import Codec
from penstock.records.layout import CODEC_MASK, HEADER_BYTES
from penstock.wire.schema import Buffer


class RejectedRecords(InvalidRecord):
    """Some records of a batch cannot be taken; then none of it is."""

    def __init__(self, message: str, rows: list[int]) -> None:
        super().__init__(message)
        self.rows = rows


_CODECS = {
    "uncompressed": Codec.NONE,
    "gzip": Codec.GZIP,
    "snappy": Codec.SNAPPY,
    "lz4": Codec.LZ4,
    "zstd": Codec.ZSTD,
}


def may_open(settings: LogSettings) -> bool:
    """Whether there are batches that a topic with these settings must open."""
    return settings.compacted or settings.compression_type != "producer"


def must_open(batch: Buffer, settings: LogSettings) -> bool:
    """Whether `admit` has anything to do for a batch of this topic."""
    if settings.compacted:
        return True
    codec = _CODECS.get(settings.compression_type)
    return codec is not None and len(batch) >= HEADER_BYTES and read_header(batch).attributes & CODEC_MASK != codec


def admit(batch: Buffer, settings: LogSettings) -> Buffer:
    """The batch to append in the place of this one. Costs time by the record: call it where that does no harm."""
    header = read_client_batch(batch)
    if settings.compacted:
        _check_keys(batch)
    codec = _CODECS.get(settings.compression_type)
    if codec is None or codec == header.codec:
        return batch
    return _recompress(batch, header, codec, settings)


def _check_keys(batch: Buffer) -> None:
    columns = decode_columns(batch)
    rows = [row for row in range(columns.count) if columns.key_len[row] < 0]
    if rows:
        raise RejectedRecords("a compacted topic takes only records with a key", rows)


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
