"""Compares two sets of messages of any size in bounded memory, by fingerprints.

First each side is read once into fingerprints: for each partition the number of messages, the sum of their hashes,
and the sum of their hashes weighted by position. Equal fingerprints mean equal messages in equal order, with an error
probability of about 2^-60. Nothing is shuffled or stored, so the cost per message is constant.

Only if fingerprints differ, the messages are hashed into buckets, and the messages of differing buckets are sorted to
find those that differ. The order of all other messages is then compared by fingerprints; only if the order differs,
all messages are sorted. Spark sorts on disk what does not fit into memory.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Final, NamedTuple

if TYPE_CHECKING:
    from pyspark.sql import Column, DataFrame

PRIME: Final = 2**31 - 1
"""Modulus of hashes. The product of two hashes fits into 64 bits, and so does the sum of four billion hashes."""
BUCKETS: Final = 4096
MISMATCHES_MAX: Final = 10_000
"""Maximum number of messages in `Differences.mismatches`. If more messages differ, `mismatches` is None."""
_INDEX_BITS: Final = 33
"""Number of low bits of monotonically_increasing_id that hold the index of a row in its task."""


class Fingerprint(NamedTuple):
    """The fingerprint of a partition's messages: count, sums of hashes, and sums of hashes weighted by position."""

    rows: int
    sum_high: int
    sum_low: int
    order_high: int
    order_low: int
    first: int
    last: int

    @property
    def content(self) -> tuple[int, int, int]:
        """Message count and hash sums: equal for partitions with the same messages, even in another order."""
        return self.rows, self.sum_high, self.sum_low

    @property
    def sequence(self) -> tuple[int, int, int, int, int]:
        """`content` plus hash sums weighted by position: equal for partitions with the same messages in the same
        order."""
        return *self.content, self.order_high, self.order_low


def join_fingerprints(parts: Sequence[Fingerprint]) -> Fingerprint:
    """Returns the fingerprint of a partition, from those of its parts. Parts weight hashes by position in the part,
    the result by position in the partition. In the example, hash 5 has position 0, and hash 7 has position 1.

    >>> join_fingerprints([Fingerprint(1, 5, 5, 0, 0, 0, 0), Fingerprint(1, 7, 7, 0, 0, 1, 1)]).order_high
    7
    """
    rows = sum_high = sum_low = order_high = order_low = 0
    ordered = sorted(parts, key=lambda part: part.first)
    for part in ordered:
        order_high = (order_high + part.order_high + rows * part.sum_high) % PRIME
        order_low = (order_low + part.order_low + rows * part.sum_low) % PRIME
        rows += part.rows
        sum_high += part.sum_high
        sum_low += part.sum_low
    return Fingerprint(rows, sum_high, sum_low, order_high, order_low, ordered[0].first, ordered[-1].last)


def hash_messages(frame: "DataFrame", identity: "Sequence[Column]", key: "Column") -> "DataFrame":
    """Returns a row for each message: topic, partition, offset, and the hashes of `identity` and of `key`."""
    from pyspark.sql import functions as fn

    return frame.select(
        fn.col("topic"),
        fn.col("partition"),
        fn.col("offset"),
        fn.xxhash64(*identity).alias("id"),
        fn.xxhash64(key).alias("key_hash"),
    )


def identity_columns(*, with_offset: bool) -> "list[Column]":
    """Returns the columns that identify a message: key, value and headers, optionally partition and offset."""
    from pyspark.sql import functions as fn

    # A null and an empty value hash alike within a row, so isNull is hashed too.
    parts = [fn.col("key"), fn.col("key").isNull(), fn.col("value"), fn.col("value").isNull()]
    offset_columns = [fn.col("partition"), fn.col("offset")] if with_offset else []
    return [*parts, fn.col("headers"), *offset_columns]


def fingerprints(frame: "DataFrame") -> dict[int, Fingerprint]:
    """Returns the fingerprint (message count and hash sums) of each partition, by partition number. To cover the
    order, each Spark task of `frame` must have rows of only one partition, in offset order."""
    from pyspark.sql import functions as fn

    high = fn.pmod(fn.shiftrightunsigned("id", 32), fn.lit(PRIME))
    low = fn.pmod(fn.col("id").bitwiseAND(fn.lit(0xFFFFFFFF)), fn.lit(PRIME))
    index = fn.monotonically_increasing_id().bitwiseAND(fn.lit((1 << _INDEX_BITS) - 1))
    weighed = frame.select(
        "partition",
        "offset",
        high.alias("high"),
        low.alias("low"),
        fn.pmod(index, fn.lit(PRIME)).alias("index"),
        fn.spark_partition_id().alias("task"),
    )
    prime = fn.lit(PRIME)
    found = weighed.groupBy("partition", "task").agg(
        fn.count("*").alias("rows"),
        fn.sum("high").alias("sum_high"),
        fn.sum("low").alias("sum_low"),
        fn.sum(fn.pmod(fn.col("high") * fn.col("index"), prime)).alias("order_high"),
        fn.sum(fn.pmod(fn.col("low") * fn.col("index"), prime)).alias("order_low"),
        fn.min("offset").alias("first"),
        fn.max("offset").alias("last"),
    )
    parts: dict[int, list[Fingerprint]] = {}
    for row in found.collect():
        parts.setdefault(row["partition"], []).append(Fingerprint(*row[2:]))
    return {partition: join_fingerprints(stretches) for partition, stretches in parts.items()}


def differing_buckets(expected: "DataFrame", actual: "DataFrame") -> list[int]:
    """Returns the indices of the hash buckets whose messages differ between the expected and the actual side."""
    sides = [_buckets(expected), _buckets(actual)]
    return sorted(
        bucket for bucket in sides[0].keys() | sides[1].keys() if sides[0].get(bucket) != sides[1].get(bucket)
    )


def _buckets(frame: "DataFrame") -> dict[int, tuple[int, int]]:
    from pyspark.sql import functions as fn

    bucket = fn.pmod("id", fn.lit(BUCKETS)).alias("bucket")
    low = fn.pmod(fn.shiftrightunsigned("id", 12), fn.lit(PRIME)).alias("low")
    found = frame.select(bucket, low).groupBy("bucket").agg(fn.count("*"), fn.sum("low"))
    return {int(row[0]): (row[1], row[2]) for row in found.collect()}


@dataclass(frozen=True, slots=True, kw_only=True)
class Differences:
    """The differences between expected and actual messages. `missing`: number of expected messages not found;
    `doubled`: of surplus copies of expected messages; `unknown`: of messages that were not expected."""

    missing: int = 0
    doubled: int = 0
    unknown: int = 0
    examples: Sequence[tuple[str, str, int, str]] = ()
    """Examples of differing messages, each as kind of difference, topic-partition, offset and details."""
    mismatches: "Sequence[Mismatch] | None" = ()
    """All messages that differ between the sides; None if there are more than MISMATCHES_MAX."""


class Mismatch(NamedTuple):
    """A message that occurs more often on one side than on the other, with its first location on each side."""

    id: int
    source: "Spot | None"
    found: "Spot | None"


def differences(expected: "DataFrame", actual: "DataFrame", examples_max: int) -> Differences:
    """Finds the messages that occur more often on one side than on the other."""
    from pyspark import StorageLevel
    from pyspark.sql import functions as fn

    buckets = differing_buckets(expected, actual)
    if not buckets:
        return Differences()
    both = _union_sides(expected, actual)
    if len(buckets) < BUCKETS:
        both = both.where(fn.pmod("id", fn.lit(BUCKETS)).isin(*buckets))
    uneven = (
        both.groupBy("id")
        .agg(
            fn.sum("is_expected").alias("wanted"),
            fn.sum(1 - fn.col("is_expected")).alias("found"),
            fn.min(fn.when(fn.col("is_expected") == 1, fn.struct("topic", "partition", "offset"))).alias("source"),
            fn.min(fn.when(fn.col("is_expected") == 0, fn.struct("topic", "partition", "offset"))).alias("first"),
            fn.max(fn.when(fn.col("is_expected") == 0, fn.struct("topic", "partition", "offset"))).alias("last"),
        )
        .where("wanted != found")
        .persist(StorageLevel.DISK_ONLY)
    )
    try:
        sums = uneven.agg(
            fn.sum(fn.greatest(fn.col("wanted") - fn.col("found"), fn.lit(0))),
            fn.sum(fn.when((fn.col("found") > fn.col("wanted")) & (fn.col("wanted") > 0), fn.expr("found - wanted"))),
            fn.sum(fn.when(fn.col("wanted") == 0, fn.col("found"))),
        ).collect()[0]
        location = fn.coalesce("source", "first")
        rows = uneven.orderBy(location).limit(examples_max).collect()
        mismatches = [
            Mismatch(*row) for row in uneven.select("id", "source", "first").limit(MISMATCHES_MAX + 1).collect()
        ]
    finally:
        uneven.unpersist()
    return Differences(
        missing=sums[0] or 0,
        doubled=sums[1] or 0,
        unknown=sums[2] or 0,
        examples=[_example(row["wanted"], row["found"], row["source"], row["first"], row["last"]) for row in rows],
        mismatches=mismatches if len(mismatches) <= MISMATCHES_MAX else None,
    )


Spot = tuple[str, int, int]
"""The location of a message: topic, partition and offset."""


def is_in_order(expected: "DataFrame", actual: "DataFrame", mismatches: Sequence[Mismatch]) -> bool:
    """Whether both sides have the same messages in the same order in each partition. Of a message in `mismatches`,
    only the first occurrence on each side is compared; if one side does not have it, it is ignored."""
    kept = [mismatch for mismatch in mismatches if mismatch.source is not None and mismatch.found is not None]
    wanted = _exclude_mismatches(expected, mismatches, {mismatch.id: mismatch.source for mismatch in kept})
    found = _exclude_mismatches(actual, mismatches, {mismatch.id: mismatch.found for mismatch in kept})
    return _order_fingerprints(wanted) == _order_fingerprints(found)


def _order_fingerprints(frame: "DataFrame") -> dict[int, tuple[int, ...]]:
    return {partition: each.sequence for partition, each in fingerprints(frame).items()}


def _exclude_mismatches(
    frame: "DataFrame", mismatches: Sequence[Mismatch], kept: "Mapping[int, Spot | None]"
) -> "DataFrame":
    """Returns the rows of `frame`, in order, without those of mismatched messages. `kept`: for the id of a
    mismatched message, the location of its one row that stays; if missing or None, none of its rows stays."""
    from pyspark.sql import functions as fn

    rows = [(mismatch.id, *((kept.get(mismatch.id) or (None, None, None))[1:])) for mismatch in mismatches]
    known = frame.sparkSession.createDataFrame(rows, "mismatch bigint, kept_partition int, kept_offset bigint")
    joined_to = frame.join(fn.broadcast(known), fn.col("id") == fn.col("mismatch"), "left")
    is_kept = (fn.col("partition") == fn.col("kept_partition")) & (fn.col("offset") == fn.col("kept_offset"))
    return joined_to.where(fn.col("mismatch").isNull() | fn.coalesce(is_kept, fn.lit(False))).select(*frame.columns)


def _example(
    wanted: int, found: int, source: Spot | None, first: Spot | None, last: Spot | None
) -> tuple[str, str, int, str]:
    if source is not None and found < wanted:
        return "missing", f"{source[0]}-{source[1]}", source[2], f"{wanted} expected, {found} found"
    assert first is not None
    assert last is not None
    more = f"{wanted} expected, {found} found, the last at {last[0]}-{last[1]} offset {last[2]}"
    return "doubled" if wanted else "unknown", f"{first[0]}-{first[1]}", first[2], more


def _union_sides(expected: "DataFrame", actual: "DataFrame") -> "DataFrame":
    from pyspark.sql import functions as fn

    return expected.withColumn("is_expected", fn.lit(1)).unionByName(actual.withColumn("is_expected", fn.lit(0)))


def find_reordered(
    expected: "DataFrame", actual: "DataFrame", examples_max: int
) -> tuple[int, list[tuple[str, str, int, str]]]:
    """Returns the number of messages out of order among those of the same key, and examples. Ignores duplicates."""
    from pyspark.sql import Window
    from pyspark.sql import functions as fn

    location = fn.struct("partition", "offset", "topic")
    pairs = (
        _union_sides(expected, actual)
        .groupBy("id", "key_hash")
        .agg(
            fn.min(fn.when(fn.col("is_expected") == 1, location)).alias("source"),
            fn.min(fn.when(fn.col("is_expected") == 0, location)).alias("found"),
        )
        .where("source IS NOT NULL AND found IS NOT NULL")
    )
    # Kafka orders messages only within a partition.
    window = Window.partitionBy("key_hash", "source.partition", "found.partition").orderBy("found.offset")
    wrong = (
        pairs.withColumn("before", fn.lag("source.offset").over(window))
        .where("before > source.offset")
        .select("found", "source", "before")
    )
    rows = wrong.orderBy("found").limit(examples_max).collect()
    count = len(rows) if len(rows) < examples_max else wrong.count()
    return count, [
        (
            "out of order",
            f"{row['found']['topic']}-{row['found']['partition']}",
            row["found"]["offset"],
            f"source offset {row['source']['offset']} after {row['before']}",
        )
        for row in rows
    ]


class SequenceReport(NamedTuple):
    """The result of checking the sequence numbers that producers put into messages."""

    producers: int
    messages: int
    unnumbered: int
    gaps: int
    missing: int
    doubled: int
    disordered: int
    examples: list[tuple[str, str, int, str]]


def check_sequences(frame: "DataFrame", producer: str, sequence: str, examples_max: int) -> SequenceReport:
    """Checks each producer's sequence numbers: for gaps and duplicates overall, for order in each partition.
    `producer` and `sequence`: SQL expressions for the producer and the number of a message."""
    from pyspark.sql import Window
    from pyspark.sql import functions as fn

    numbered = frame.select(
        "topic",
        "partition",
        "offset",
        fn.expr(producer).cast("string").alias("producer"),
        fn.expr(sequence).cast("bigint").alias("number"),
    )
    by_number = Window.partitionBy("producer").orderBy("number", "topic", "partition", "offset")
    by_offset = Window.partitionBy("producer", "topic", "partition").orderBy("offset")
    marked = (
        numbered.where("number IS NOT NULL")
        .withColumn("before", fn.lag("number").over(by_number))
        .withColumn("offset_before", fn.lag("number").over(by_offset))
        .withColumn("is_gap", fn.coalesce(fn.expr("number > before + 1"), fn.lit(False)))
        .withColumn("is_double", fn.coalesce(fn.expr("number = before"), fn.lit(False)))
        .withColumn("is_late", fn.coalesce(fn.expr("number < offset_before"), fn.lit(False)))
    )
    sums = marked.agg(
        fn.approx_count_distinct("producer"),
        fn.count("*"),
        fn.sum(fn.col("is_gap").cast("bigint")),
        fn.sum(fn.when(fn.col("is_gap"), fn.expr("number - before - 1"))),
        fn.sum(fn.col("is_double").cast("bigint")),
        fn.sum(fn.col("is_late").cast("bigint")),
    ).collect()[0]
    producers, messages, gaps, missing, doubled, late = (found or 0 for found in sums)
    unnumbered = frame.where(f"({sequence}) IS NULL").count()
    examples: list[tuple[str, str, int, str]] = []
    if gaps or doubled or late:
        rows = marked.where("is_gap OR is_double OR is_late").orderBy("topic", "partition", "offset")
        examples = [_sequence_example(row.asDict()) for row in rows.limit(examples_max).collect()]
    return SequenceReport(producers, messages, unnumbered, gaps, missing, doubled, late, examples)


def _sequence_example(row: Mapping[str, object]) -> tuple[str, str, int, str]:
    kind = "gap" if row["is_gap"] else "doubled" if row["is_double"] else "out of order"
    before = row["offset_before"] if kind == "out of order" else row["before"]
    offset = row["offset"]
    assert isinstance(offset, int)
    return (
        kind,
        f"{row['topic']}-{row['partition']}",
        offset,
        f"producer {row['producer']}: {row['number']} after {before}",
    )
