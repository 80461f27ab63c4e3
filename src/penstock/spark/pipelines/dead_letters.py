"""Dead letters as a DataFrame with SQL columns, and their conversion back into messages."""

from bisect import bisect_right
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Final

from penstock.spark.pipelines.json_values import from_json

if TYPE_CHECKING:
    import pyarrow as pa
    from pyspark.sql import Column, DataFrame
    from pyspark.sql.types import StructType

# Headers that brokers write on the records of queues.
OWN_PREFIX: Final = "penstock-"
MESSAGE_ID: Final = "penstock-message-id"
SOURCE_ARN: Final = "penstock-source-arn"
RECEIVE_COUNT: Final = "penstock-receive-count"
SENT_AT: Final = "penstock-sent-at"
DELAY_MS: Final = "penstock-delay-ms"

DLQ_PREFIX: Final = "__dlq.errors."
"""Prefix of the names of headers that brokers add to dead letters of share groups (KIP-1191)."""

VALUE: Final = "value"
KEY: Final = "key"
ATTRIBUTES: Final = "attributes"
FIXABLE: Final = (VALUE, KEY, ATTRIBUTES)
"""Names of the columns of a dead letter that the redrive option `fix` can replace."""
COLUMNS: Final = (
    *FIXABLE,
    "source",
    "receive_count",
    "sent_at",
    "dead_at",
    "message_id",
    "partition",
    "offset",
)
"""Names of the columns of a dead letter that SQL can use; with a JSON schema, there is also a column `json`."""
CAUSE: Final = (
    "coalesce(attributes['error'], attributes['exception'], attributes['reason'],"
    " concat('received ', receive_count, ' times'))"
)
"""SQL expression by which the report groups dead letters by default: the error attribute, else the receive count."""

_NO_HEADERS: Final = "cast(array() AS array<struct<key: string, value: binary>>)"


@dataclass(frozen=True, slots=True, kw_only=True)
class OpenRanges:
    """Sorted offset ranges of one partition whose messages are unfinished (not deleted or acknowledged)."""

    firsts: Sequence[int]
    lasts: Sequence[int]
    counts: Sequence[int]
    """The delivery count that all messages of a range have, for each range."""
    are_available: Sequence[bool]
    """Whether the messages of each range are available, that is, not in flight."""
    undelivered_from: int
    """The offset from which on all messages are unfinished and have never been delivered."""

    def find(self, offset: int) -> tuple[int, bool] | None:
        """Returns the delivery count of the message at an offset and whether it is available; None if it is finished.

        >>> OpenRanges(firsts=[3], lasts=[5], counts=[2], are_available=[True], undelivered_from=9).find(4)
        (2, True)
        """
        if offset >= self.undelivered_from:
            return 0, True
        at = bisect_right(self.firsts, offset) - 1
        if at < 0 or offset > self.lasts[at]:
            return None
        return self.counts[at], self.are_available[at]


class OpenFilter:
    """Filters rows in Spark tasks: drops those of finished messages (deleted or acknowledged), and adds the columns
    `_count` (deliveries) and `_free` (not in flight)."""

    def __init__(self, spans: Mapping[int, OpenRanges]) -> None:
        self._spans: Final = dict(spans)

    def __call__(self, batches: "Iterator[pa.RecordBatch]") -> "Iterator[pa.RecordBatch]":
        import pyarrow as pa

        for batch in batches:
            partitions, offsets = batch.column("partition").to_pylist(), batch.column("offset").to_pylist()
            found = [
                self._spans[partition].find(offset) if partition in self._spans else None
                for partition, offset in zip(partitions, offsets, strict=True)
            ]
            kept = batch.filter(pa.array([mark is not None for mark in found], pa.bool_()))
            marks = [mark for mark in found if mark is not None]
            columns = [
                *kept.columns,
                pa.array([count for count, _ in marks], pa.int32()),
                pa.array([is_free for _, is_free in marks], pa.bool_()),
            ]
            yield pa.RecordBatch.from_arrays(columns, [*kept.schema.names, "_count", "_free"])


def filter_open(raw: "DataFrame", spans: Mapping[int, OpenRanges]) -> "DataFrame":
    """Returns the rows of `raw`, in order, whose messages are unfinished: their offsets are in `spans` (by
    partition). Adds the columns `_count` (deliveries) and `_free` (not in flight)."""
    from pyspark.sql.types import BooleanType, IntegerType, StructType

    schema = StructType([*raw.schema.fields]).add("_count", IntegerType()).add("_free", BooleanType())
    return raw.mapInArrow(OpenFilter(spans), schema)


def parse_letters(rows: "DataFrame", *, of_queue: bool, fields: "StructType | None" = None) -> "DataFrame":
    """Returns dead letters with the columns for SQL; the raw bytes are in `_key`, `_value` and `_headers`.
    `of_queue`: the rows are from a dead-letter queue, otherwise from a dead-letter topic of share groups.
    `fields`: schema by which JSON values are parsed into the column `json`; None: there is no such column."""
    from pyspark.sql import functions as fn

    found = rows.selectExpr(
        "partition",
        "offset",
        "timestamp AS dead_at",
        "key AS _key",
        "value AS _value",
        f"coalesce(headers, {_NO_HEADERS}) AS _headers",
        "_count",
        "_free",
        # Validated, so that invalid UTF-8 becomes null instead of replacement characters.
        "try_validate_utf8(cast(key AS string)) AS key",
        "try_validate_utf8(cast(value AS string)) AS value",
    )
    found = found.withColumns({ATTRIBUTES: _attributes()} | (_queue_columns() if of_queue else _share_columns()))
    if fields is not None:
        found = found.withColumn("json", from_json(fn.col(VALUE), fields, {"mode": "PERMISSIVE"}))
    return found


def _attributes() -> "Column":
    """Returns the user's headers as a map. The last of equal names wins; values that are not UTF-8 are null."""
    from pyspark.sql import functions as fn

    return fn.expr(
        f"""map_from_entries(transform(
            array_distinct(transform(filter(_headers, h -> NOT startswith(h.key, '{OWN_PREFIX}')
                AND NOT startswith(h.key, '{DLQ_PREFIX}')), h -> h.key)),
            k -> struct(k, try_validate_utf8(cast(element_at(filter(_headers, h -> h.key = k), -1).value AS string)))
        ))"""
    )


def _header_text(name: str) -> str:
    """Returns an SQL expression for the text of a header. The expression is null if the header is missing."""
    return f"cast(try_element_at(filter(_headers, h -> h.key = '{name}'), -1).value AS string)"


def _queue_columns() -> "dict[str, Column]":
    from pyspark.sql import functions as fn

    return {
        "source": fn.expr(f"element_at(split({_header_text(SOURCE_ARN)}, ':'), -1)"),
        "receive_count": fn.expr(f"coalesce(try_cast({_header_text(RECEIVE_COUNT)} AS int), 0) + _count"),
        "sent_at": fn.expr(f"coalesce(timestamp_millis(try_cast({_header_text(SENT_AT)} AS bigint)), dead_at)"),
        "message_id": fn.expr(_header_text(MESSAGE_ID)),
    }


def _share_columns() -> "dict[str, Column]":
    from pyspark.sql import functions as fn

    return {
        "source": fn.expr(_header_text(f"{DLQ_PREFIX}topic")),
        "receive_count": fn.expr(f"try_cast({_header_text(f'{DLQ_PREFIX}delivery.count')} AS int)"),
        "sent_at": fn.expr("cast(NULL AS timestamp)"),
        "message_id": fn.concat_ws(
            "-", *(fn.expr(_header_text(f"{DLQ_PREFIX}{part}")) for part in ("topic", "partition", "offset"))
        ),
    }


def to_messages(
    found: "DataFrame", topics: Mapping[str, str], to: str | None, fix: Mapping[str, str], *, keeps_partition: bool
) -> "DataFrame":
    """Converts dead letters to messages, with the SQL expressions `fix` (by column) applied.

    The topic of a message is `to`; if None, the topic that `topics` has for the source of the dead letter.
    `keeps_partition`: the message is also sent to the partition number that it had in its source topic.
    """
    from pyspark.sql import functions as fn

    if to is not None:
        topic = fn.lit(to)
    else:
        pairs = [item for source, name in topics.items() for item in (fn.lit(source), fn.lit(name))]
        topic = fn.try_element_at(fn.create_map(*pairs), fn.col("source"))
    partition = (
        fn.expr(f"try_cast({_header_text(f'{DLQ_PREFIX}partition')} AS int)") if keeps_partition else fn.lit(None)
    )
    fixed = found
    for name, sql in fix.items():
        fixed = fixed.withColumn(f"_new_{name}", fn.expr(sql))
    return fixed.select(
        topic.alias("topic"),
        partition.cast("int").alias("partition"),
        _new_or_old_bytes("key", fix).alias("key"),
        _new_or_old_bytes("value", fix).alias("value"),
        fn.expr(_message_headers(ATTRIBUTES in fix)).alias("headers"),
    )


def _new_or_old_bytes(name: str, fix: Mapping[str, str]) -> "Column":
    """Returns the message column `name`: the fixed value, or the original bytes if the fix is missing or null."""
    from pyspark.sql import functions as fn

    old = fn.col(f"_{name}")
    return fn.coalesce(fn.col(f"_new_{name}").cast("string").cast("binary"), old) if name in fix else old


def _message_headers(are_fixed: bool) -> str:
    """Returns an SQL expression for the headers of a redriven message. The message keeps its id and sent time; its
    receive count is reset. `are_fixed`: the message attributes are those that the redrive option `fix` computes;
    otherwise they are the original ones."""
    gone = ", ".join(f"'{name}'" for name in (SOURCE_ARN, RECEIVE_COUNT, DELAY_MS))
    kept = f"filter(_headers, h -> h.key NOT IN ({gone}) AND NOT startswith(h.key, '{DLQ_PREFIX}'))"
    if are_fixed:
        kept = _replace_attributes(kept)
    at = f"struct('{SENT_AT}' AS key, cast(cast(unix_millis(sent_at) AS string) AS binary) AS value)"
    is_dated = f"exists(_headers, h -> h.key = '{SENT_AT}') OR sent_at IS NULL"
    return f"concat({kept}, if({is_dated}, {_NO_HEADERS}, array({at})))"


def _replace_attributes(kept: str) -> str:
    """Returns an SQL expression for headers with the message attributes that the redrive option `fix` computes.
    `kept`: SQL expression for the headers with the original attributes. Unchanged attributes keep their bytes."""
    new = f"coalesce(_new_{ATTRIBUTES}, {ATTRIBUTES})"
    is_own = f"startswith(h.key, '{OWN_PREFIX}')"
    is_same = f"try_element_at({new}, h.key) <=> try_element_at({ATTRIBUTES}, h.key)"
    changed = f"struct(h.key AS key, cast(try_element_at({new}, h.key) AS binary) AS value)"
    left = f"filter({kept}, h -> {is_own} OR map_contains_key({new}, h.key))"
    old = f"transform({left}, h -> if({is_own} OR {is_same}, h, {changed}))"
    is_new = f"NOT map_contains_key({ATTRIBUTES}, e.key) AND e.value IS NOT NULL"
    added = (
        f"transform(filter(map_entries({new}), e -> {is_new}),"
        " e -> struct(e.key AS key, cast(e.value AS binary) AS value))"
    )
    return f"concat({old}, {added})"
