"""Dead letters as a table: what SQL sees of them, and the messages that they become when they are sent back."""

from bisect import bisect_right
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Final

from penstock.spark.pipelines.json_values import from_json

if TYPE_CHECKING:
    import pyarrow as pa
    from pyspark.sql import Column, DataFrame
    from pyspark.sql.types import StructType

# Headers of records that are a queue's, as brokers write them.
OWN_PREFIX: Final = "penstock-"
MESSAGE_ID: Final = "penstock-message-id"
SOURCE_ARN: Final = "penstock-source-arn"
RECEIVE_COUNT: Final = "penstock-receive-count"
SENT_AT: Final = "penstock-sent-at"
DELAY_MS: Final = "penstock-delay-ms"

DLQ_PREFIX: Final = "__dlq.errors."
"""Of headers that dead letters of share groups have (KIP-1191)."""

VALUE: Final = "value"
KEY: Final = "key"
ATTRIBUTES: Final = "attributes"
FIXABLE: Final = (VALUE, KEY, ATTRIBUTES)
"""What a fix may say anew."""
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
"""What SQL sees; and `json`, with a schema."""
CAUSE: Final = (
    "coalesce(attributes['error'], attributes['exception'], attributes['reason'],"
    " concat('received ', receive_count, ' times'))"
)
"""What dead letters are grouped by unless it is said: what they say of themselves, if anything."""

_NO_HEADERS: Final = "cast(array() AS array<struct<key: string, value: binary>>)"


@dataclass(frozen=True, slots=True, kw_only=True)
class Spans:
    """Offsets of one partition that count, as ranges in order."""

    firsts: Sequence[int]
    lasts: Sequence[int]
    counts: Sequence[int]
    """Deliveries, of each range."""
    are_free: Sequence[bool]
    """Whether nobody has them in hand."""
    waits_from: int
    """From here on all count, and were never delivered."""

    def find(self, offset: int) -> tuple[int, bool] | None:
        """Deliveries, and whether it is free; None: it does not count.

        >>> Spans(firsts=[3], lasts=[5], counts=[2], are_free=[True], waits_from=9).find(4)
        (2, True)
        """
        if offset >= self.waits_from:
            return 0, True
        at = bisect_right(self.firsts, offset) - 1
        if at < 0 or offset > self.lasts[at]:
            return None
        return self.counts[at], self.are_free[at]


class Marking:
    """Leaves out rows of offsets that do not count, and says of the others how they are. Runs in Spark's tasks."""

    def __init__(self, spans: Mapping[int, Spans]) -> None:
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


def marked(raw: "DataFrame", spans: Mapping[int, Spans]) -> "DataFrame":
    """The rows that count, with `_count` and `_free`. Order and tasks stay as they are."""
    from pyspark.sql.types import BooleanType, IntegerType, StructType

    schema = StructType([*raw.schema.fields]).add("_count", IntegerType()).add("_free", BooleanType())
    return raw.mapInArrow(Marking(spans), schema)


def letters(rows: "DataFrame", *, of_queue: bool, fields: "StructType | None" = None) -> "DataFrame":
    """Dead letters with the columns that SQL sees, beside the bytes that they are made of (`_key`, `_value`, …)."""
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
        # A text of its own, so that what is no text is not mended by chance.
        "try_validate_utf8(cast(key AS string)) AS key",
        "try_validate_utf8(cast(value AS string)) AS value",
    )
    found = found.withColumns({ATTRIBUTES: _attributes()} | (_of_queue() if of_queue else _of_share_group()))
    if fields is not None:
        found = found.withColumn("json", from_json(fn.col(VALUE), fields, {"mode": "PERMISSIVE"}))
    return found


def _attributes() -> "Column":
    """Headers that are not ours as a map; of several of one name the last. What is no text is null."""
    from pyspark.sql import functions as fn

    return fn.expr(
        f"""map_from_entries(transform(
            array_distinct(transform(filter(_headers, h -> NOT startswith(h.key, '{OWN_PREFIX}')
                AND NOT startswith(h.key, '{DLQ_PREFIX}')), h -> h.key)),
            k -> struct(k, try_validate_utf8(cast(element_at(filter(_headers, h -> h.key = k), -1).value AS string)))
        ))"""
    )


def _text(name: str) -> str:
    """SQL: the text of a header, null if it is not there."""
    return f"cast(try_element_at(filter(_headers, h -> h.key = '{name}'), -1).value AS string)"


def _of_queue() -> "dict[str, Column]":
    from pyspark.sql import functions as fn

    return {
        "source": fn.expr(f"element_at(split({_text(SOURCE_ARN)}, ':'), -1)"),
        "receive_count": fn.expr(f"coalesce(try_cast({_text(RECEIVE_COUNT)} AS int), 0) + _count"),
        "sent_at": fn.expr(f"coalesce(timestamp_millis(try_cast({_text(SENT_AT)} AS bigint)), dead_at)"),
        "message_id": fn.expr(_text(MESSAGE_ID)),
    }


def _of_share_group() -> "dict[str, Column]":
    from pyspark.sql import functions as fn

    return {
        "source": fn.expr(_text(f"{DLQ_PREFIX}topic")),
        "receive_count": fn.expr(f"try_cast({_text(f'{DLQ_PREFIX}delivery.count')} AS int)"),
        "sent_at": fn.expr("cast(NULL AS timestamp)"),
        "message_id": fn.concat_ws(
            "-", *(fn.expr(_text(f"{DLQ_PREFIX}{part}")) for part in ("topic", "partition", "offset"))
        ),
    }


def sent_back(
    found: "DataFrame", topics: Mapping[str, str], to: str | None, fix: Mapping[str, str], *, keeps_partition: bool
) -> "DataFrame":
    """The messages that letters become: topic, partition, key, value and headers.

    `topics`: where each source's messages go, unless all go `to` one topic.
    """
    from pyspark.sql import functions as fn

    if to is not None:
        topic = fn.lit(to)
    else:
        pairs = [item for source, name in topics.items() for item in (fn.lit(source), fn.lit(name))]
        topic = fn.try_element_at(fn.create_map(*pairs), fn.col("source"))
    partition = fn.expr(f"try_cast({_text(f'{DLQ_PREFIX}partition')} AS int)") if keeps_partition else fn.lit(None)
    fixed = found.withColumns({f"_new_{name}": fn.expr(sql) for name, sql in fix.items()})
    return fixed.select(
        topic.alias("topic"),
        partition.cast("int").alias("partition"),
        _bytes("key", fix).alias("key"),
        _bytes("value", fix).alias("value"),
        fn.expr(_headers(ATTRIBUTES in fix)).alias("headers"),
    )


def _bytes(name: str, fix: Mapping[str, str]) -> "Column":
    """What was not fixed stays as it is, to the byte; so does what the fix makes nothing of."""
    from pyspark.sql import functions as fn

    old = fn.col(f"_{name}")
    return fn.coalesce(fn.col(f"_new_{name}").cast("string").cast("binary"), old) if name in fix else old


def _headers(are_fixed: bool) -> str:
    """SQL: the headers of a message that begins anew, as brokers write them when they move one back themselves.

    It keeps its id and the time at which it was sent; how often it was received where it died counts no more.
    """
    gone = ", ".join(f"'{name}'" for name in (SOURCE_ARN, RECEIVE_COUNT, DELAY_MS))
    kept = f"filter(_headers, h -> h.key NOT IN ({gone}) AND NOT startswith(h.key, '{DLQ_PREFIX}'))"
    if are_fixed:
        kept = _with_attributes(kept)
    at = f"struct('{SENT_AT}' AS key, cast(cast(unix_millis(sent_at) AS string) AS binary) AS value)"
    is_dated = f"exists(_headers, h -> h.key = '{SENT_AT}') OR sent_at IS NULL"
    return f"concat({kept}, if({is_dated}, {_NO_HEADERS}, array({at})))"


def _with_attributes(kept: str) -> str:
    """SQL: headers with other attributes. One that was not changed stays as it is, to the byte."""
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
