"""Validation of produced batches that needs decompression: keys, delay headers, schema ids, recompression."""

from array import array
from collections.abc import Mapping
from types import MappingProxyType
from typing import Final, NamedTuple

from penstock.foundation.codes import ErrorCode
from penstock.foundation.errors import InvalidRecord, MessageTooLarge, PenstockError
from penstock.foundation.settings import INT_MAX
from penstock.log.settings import KEY, VALUE, LogSettings, SubjectRule
from penstock.records import kernel
from penstock.records.batch import BatchHeader, assemble, read_client_batch, read_header
from penstock.records.columns import Columns, decode_columns
from penstock.records.compression import Codec, compress
from penstock.records.delayed import delayed_mask, find_bad_rows, is_delivery
from penstock.records.layout import CODEC_MASK, HEADER_BYTES, SCHEMA_ID_BYTES, UNKNOWN_SCHEMA_ID, Ints
from penstock.wire.schema import Buffer

REJECTED_ROWS_MAX: Final = 1000
"""Maximum number of invalid records listed in an error response."""
RESOLVED_IDS_MAX: Final = 256
"""Maximum number of schema ids of a batch that are looked up at once."""


class RejectedRecords(InvalidRecord):
    """Some records of a batch are invalid; the whole batch is rejected."""

    def __init__(self, message: str, rows: list[int], reasons: Mapping[int, str] | None = None) -> None:
        super().__init__(message)
        self.rows = rows
        self.reasons = reasons or {}
        """Error messages by record index; a record without an entry has the message of this exception."""


class TooLargeForEventLoop(Exception):
    """The decompressed batch is too large for the event loop: call `admit` on a thread."""


class DelaysNotReady(PenstockError):
    """Delayed messages are not yet enabled on this partition, so delayed records are rejected; clients retry."""

    code = ErrorCode.NOT_ENOUGH_REPLICAS  # producers retry after this error


class UnresolvedSchemaIds(PenstockError):
    """It is not known whether schema ids in a batch are registered: look them up, and validate the batch again."""

    code = ErrorCode.NOT_ENOUGH_REPLICAS  # producers retry after this error

    def __init__(self, part: str, rule: SubjectRule, ids: list[int]) -> None:
        super().__init__(f"schema id {ids[0]} of a {part} is not looked up yet; retry")
        self.part = part
        """VALUE or KEY."""
        self.rule = rule
        self.ids = ids


class SchemaIds(NamedTuple):
    """What is known of schema ids of keys or values."""

    rule: SubjectRule
    known: "array[int]"
    """Ids of schemas that are registered as `rule` requires, ascending 32-bit integers."""
    refused: frozenset[int] = frozenset()
    """Ids that were looked up for this batch and are not registered so."""


NO_SCHEMA_IDS: Final = SchemaIds(SubjectRule("", True), array("i"))
_CODECS = {
    "uncompressed": Codec.NONE,
    "gzip": Codec.GZIP,
    "snappy": Codec.SNAPPY,
    "lz4": Codec.LZ4,
    "zstd": Codec.ZSTD,
}


def may_decompress(settings: LogSettings) -> bool:
    """Returns whether a topic with these settings may have batches that `admit` must decompress before the append."""
    return settings.validates_schemas or may_change(settings)


def may_change(settings: LogSettings) -> bool:
    """Returns whether `admit` does more for a topic with these settings than validate schema ids."""
    return settings.compacted or settings.compression_type != "producer" or settings.delayed


def must_decompress(batch: Buffer, settings: LogSettings) -> bool:
    """Returns whether `admit` must decompress this batch before the append, given the topic's settings."""
    if settings.compacted or settings.delayed or settings.validates_schemas:
        return True
    codec = _CODECS.get(settings.compression_type)
    return codec is not None and len(batch) >= HEADER_BYTES and read_header(batch).attributes & CODEC_MASK != codec


def admit(
    batch: Buffer,
    settings: LogSettings,
    now_ms: int = 0,
    may_delay: bool = True,
    body_max: int = INT_MAX,
    ids: Mapping[str, SchemaIds] = MappingProxyType({}),
) -> Buffer:
    """Validates a batch and returns the batch to append in its place. The cost grows with the decompressed size.

    `may_delay`: whether delayed messages are already enabled on the partition; if not, raises DelaysNotReady for
    delayed records. `body_max`: maximum decompressed bytes; above it, raises TooLargeForEventLoop: call `admit` on
    a thread without `body_max`. `ids`: by part (VALUE, KEY), what is known of schema ids that the topic validates.
    Raises RejectedRecords for invalid records, UnresolvedSchemaIds if schema ids must be looked up first, and
    MessageTooLarge for a batch above decompressed.batch.max.bytes.
    """
    header = read_client_batch(batch)
    limit = settings.decompressed_bytes_max
    try:
        columns = decode_columns(batch, min(limit, body_max))
    except MessageTooLarge as error:
        if body_max < limit:
            raise TooLargeForEventLoop from None
        raise MessageTooLarge(
            f"the batch has more than {limit} bytes when decompressed, which is decompressed.batch.max.bytes of the "
            "topic; send smaller batches"
        ) from error
    if settings.compacted:
        _check_keys(columns)
    if settings.delayed:
        _check_delays(columns, header, now_ms, may_delay)
    if settings.value_subjects is not None:
        _check_schema_ids(columns.body, columns.value_at, columns.value_len, VALUE, ids.get(VALUE))
    if settings.key_subjects is not None:
        _check_schema_ids(columns.body, columns.key_at, columns.key_len, KEY, ids.get(KEY))
    codec = _CODECS.get(settings.compression_type)
    if codec is None or codec == header.codec:
        return batch
    return _recompress(columns.body, header, codec, settings)


def _check_keys(columns: Columns) -> None:
    rows = _rows_of(kernel.active.match_null(columns.key_len))
    if rows:
        raise RejectedRecords("a compacted topic takes only records with a key", rows)


def _rows_of(mask: bytes, state: int = 1) -> list[int]:
    """Returns the indexes of rows whose byte in `mask` is `state`, at most REJECTED_ROWS_MAX of them."""
    rows: list[int] = []
    at = mask.find(state)
    while at >= 0 and len(rows) < REJECTED_ROWS_MAX:
        rows.append(at)
        at = mask.find(state, at + 1)
    return rows


def _check_delays(columns: Columns, header: BatchHeader, now_ms: int, may_delay: bool) -> None:
    if is_delivery(header):
        raise InvalidRecord(f"sequence {header.base_sequence} without a producer id is reserved for brokers")
    bad = find_bad_rows(columns, now_ms)
    if bad:
        row = min(bad)
        raise RejectedRecords(f"record {row} of the batch: {bad[row]}", sorted(bad)[:REJECTED_ROWS_MAX], bad)
    if not may_delay and any(delayed_mask(columns)):
        raise DelaysNotReady("delayed delivery is not ready on this partition yet; retry")


def _check_schema_ids(body: Buffer, at: Ints, length: Ints, part: str, ids: SchemaIds | None) -> None:
    ids = ids or NO_SCHEMA_IDS
    states = kernel.active.match_schema_ids(body, at, length, memoryview(ids.known))
    if states.count(0) == len(states):
        return
    reasons = dict.fromkeys(_rows_of(states), f"the {part} does not start with the magic byte 0 and a schema id")
    unresolved = kernel.active.list_schema_ids(body, at, length, states, RESOLVED_IDS_MAX)
    if not ids.refused.isdisjoint(unresolved):
        for row in _rows_of(states, UNKNOWN_SCHEMA_ID):
            number = int.from_bytes(body[at[row] + 1 : at[row] + SCHEMA_ID_BYTES], "big", signed=True)
            if number in ids.refused:
                reasons[row] = f"schema id {number} of the {part} is not registered {ids.rule}"
    if not reasons:
        raise UnresolvedSchemaIds(part, ids.rule, unresolved)
    row = min(reasons)
    raise RejectedRecords(f"record {row} of the batch: {reasons[row]}", sorted(reasons)[:REJECTED_ROWS_MAX], reasons)


def _recompress(body: Buffer, header: BatchHeader, codec: Codec, settings: LogSettings) -> Buffer:
    """Returns a batch of the same records, compressed with `codec`."""
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
