"""Comparing two sets of messages, however large, in bounded memory.

First each side is read once into fingerprints: for each partition how many messages there are, a sum of their hashes,
and a sum of their hashes weighted by their position. Equal fingerprints are equal messages in equal order, but for a
chance of about 1 in 2^60. Nothing is shuffled or kept, so that this costs the same for every message.

Only where they differ, the messages themselves are looked for: by buckets of hashes, so that no more of them are
sorted than lie in buckets that differ. Their order is compared without those that differ, by fingerprints again; only
if that is not the same, all of them are sorted. Spark sorts on disk what does not fit into memory.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Final, NamedTuple

if TYPE_CHECKING:
    from pyspark.sql import Column, DataFrame

PRIME: Final = 2**31 - 1
"""Products of two numbers below it fit into 64 bits, and so do sums of four billion of them."""
BUCKETS: Final = 4096
STRAYS_MAX: Final = 10_000
"""Messages that are not alike and are known one by one, so that the rest can be compared without them."""
_INDEX_BITS: Final = 33
"""What monotonically_increasing_id leaves for the place of a row within its task."""


class Fingerprint(NamedTuple):
    """What is left of the messages of one partition."""

    rows: int
    sum_high: int
    sum_low: int
    order_high: int
    order_low: int
    first: int
    last: int

    @property
    def content(self) -> tuple[int, int, int]:
        """The same for the same messages, in whatever order."""
        return self.rows, self.sum_high, self.sum_low

    @property
    def sequence(self) -> tuple[int, int, int, int, int]:
        """The same for the same messages in the same order."""
        return *self.content, self.order_high, self.order_low


def joined(parts: Sequence[Fingerprint]) -> Fingerprint:
    """The fingerprint of stretches of one partition, each with positions of its own, that follow each other.

    >>> joined([Fingerprint(1, 5, 5, 0, 0, 0, 0), Fingerprint(1, 7, 7, 0, 0, 1, 1)]).order_high
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


def hashed(frame: "DataFrame", identity: "Sequence[Column]", key: "Column") -> "DataFrame":
    """Messages as they are compared: where they are, a hash of what they are, and one of their key."""
    from pyspark.sql import functions as fn

    return frame.select(
        fn.col("topic"),
        fn.col("partition"),
        fn.col("offset"),
        fn.xxhash64(*identity).alias("id"),
        fn.xxhash64(key).alias("key_hash"),
    )


def content(*, with_place: bool) -> "list[Column]":
    """What a message is: its key, value and headers, and if asked for where it is."""
    from pyspark.sql import functions as fn

    # A null and an empty text hash alike within a row: whether it is null counts for itself.
    parts = [fn.col("key"), fn.col("key").isNull(), fn.col("value"), fn.col("value").isNull()]
    place = [fn.col("partition"), fn.col("offset")] if with_place else []
    return [*parts, fn.col("headers"), *place]


def fingerprints(frame: "DataFrame") -> dict[int, Fingerprint]:
    """By partition. The order counts where each task has rows of one partition in their order, as topics are read."""
    from pyspark.sql import functions as fn

    high = fn.pmod(fn.shiftrightunsigned("id", 32), fn.lit(PRIME))
    low = fn.pmod(fn.col("id").bitwiseAND(fn.lit(0xFFFFFFFF)), fn.lit(PRIME))
    place = fn.monotonically_increasing_id().bitwiseAND(fn.lit((1 << _INDEX_BITS) - 1))
    weighed = frame.select(
        "partition",
        "offset",
        high.alias("high"),
        low.alias("low"),
        fn.pmod(place, fn.lit(PRIME)).alias("place"),
        fn.spark_partition_id().alias("task"),
    )
    prime = fn.lit(PRIME)
    found = weighed.groupBy("partition", "task").agg(
        fn.count("*").alias("rows"),
        fn.sum("high").alias("sum_high"),
        fn.sum("low").alias("sum_low"),
        fn.sum(fn.pmod(fn.col("high") * fn.col("place"), prime)).alias("order_high"),
        fn.sum(fn.pmod(fn.col("low") * fn.col("place"), prime)).alias("order_low"),
        fn.min("offset").alias("first"),
        fn.max("offset").alias("last"),
    )
    parts: dict[int, list[Fingerprint]] = {}
    for row in found.collect():
        parts.setdefault(row["partition"], []).append(Fingerprint(*row[2:]))
    return {partition: joined(stretches) for partition, stretches in parts.items()}


def differing_buckets(expected: "DataFrame", actual: "DataFrame") -> list[int]:
    """Those of the buckets of hashes that do not hold the same on both sides."""
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
    """What is not alike: how much of it, and the first of each kind."""

    missing: int = 0
    doubled: int = 0
    unknown: int = 0
    examples: Sequence[tuple[str, str, int, str]] = ()
    """What it is, and the topic, partition and offset, and more about it."""
    strays: "Sequence[Stray] | None" = ()
    """All of them, one by one; None if they are too many."""


class Stray(NamedTuple):
    """A message that one side has more often than the other, and where each has it first."""

    id: int
    source: "Spot | None"
    found: "Spot | None"


def differences(expected: "DataFrame", actual: "DataFrame", examples_max: int) -> Differences:
    """The messages that one side has more often than the other."""
    from pyspark import StorageLevel
    from pyspark.sql import functions as fn

    buckets = differing_buckets(expected, actual)
    if not buckets:
        return Differences()
    both = _side_by_side(expected, actual)
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
        place = fn.coalesce("source", "first")
        rows = uneven.orderBy(place).limit(examples_max).collect()
        strays = [Stray(*row) for row in uneven.select("id", "source", "first").limit(STRAYS_MAX + 1).collect()]
    finally:
        uneven.unpersist()
    return Differences(
        missing=sums[0] or 0,
        doubled=sums[1] or 0,
        unknown=sums[2] or 0,
        examples=[_example(row["wanted"], row["found"], row["source"], row["first"], row["last"]) for row in rows],
        strays=strays if len(strays) <= STRAYS_MAX else None,
    )


Spot = tuple[str, int, int]
"""Topic, partition and offset."""


def is_in_order(expected: "DataFrame", actual: "DataFrame", strays: Sequence[Stray]) -> bool:
    """Whether all others, and of those that both sides have the first, are in the same partitions and order."""
    kept = [stray for stray in strays if stray.source is not None and stray.found is not None]
    wanted = _without(expected, strays, {stray.id: stray.source for stray in kept})
    found = _without(actual, strays, {stray.id: stray.found for stray in kept})
    return _sequences(wanted) == _sequences(found)


def _sequences(frame: "DataFrame") -> dict[int, tuple[int, ...]]:
    return {partition: each.sequence for partition, each in fingerprints(frame).items()}


def _without(frame: "DataFrame", strays: Sequence[Stray], kept: "Mapping[int, Spot | None]") -> "DataFrame":
    """All messages but the strays, of which some are kept at one place. Nothing is shuffled, so that rows stay where
    they are, in their order."""
    from pyspark.sql import functions as fn

    spots = [(stray.id, *((kept.get(stray.id) or (None, None, None))[1:])) for stray in strays]
    known = frame.sparkSession.createDataFrame(spots, "stray bigint, kept_partition int, kept_offset bigint")
    joined_to = frame.join(fn.broadcast(known), fn.col("id") == fn.col("stray"), "left")
    is_kept = (fn.col("partition") == fn.col("kept_partition")) & (fn.col("offset") == fn.col("kept_offset"))
    return joined_to.where(fn.col("stray").isNull() | fn.coalesce(is_kept, fn.lit(False))).select(*frame.columns)


def _example(
    wanted: int, found: int, source: Spot | None, first: Spot | None, last: Spot | None
) -> tuple[str, str, int, str]:
    if source is not None and found < wanted:
        return "missing", f"{source[0]}-{source[1]}", source[2], f"{wanted} expected, {found} found"
    assert first is not None
    assert last is not None
    more = f"{wanted} expected, {found} found, the last at {last[0]}-{last[1]} offset {last[2]}"
    return "doubled" if wanted else "unknown", f"{first[0]}-{first[1]}", first[2], more


def _side_by_side(expected: "DataFrame", actual: "DataFrame") -> "DataFrame":
    from pyspark.sql import functions as fn

    return expected.withColumn("is_expected", fn.lit(1)).unionByName(actual.withColumn("is_expected", fn.lit(0)))


def disorder(
    expected: "DataFrame", actual: "DataFrame", examples_max: int
) -> tuple[int, list[tuple[str, str, int, str]]]:
    """Messages of one key that come in another order than they should; of what is doubled, the first counts."""
    from pyspark.sql import Window
    from pyspark.sql import functions as fn

    spot = fn.struct("partition", "offset", "topic")
    pairs = (
        _side_by_side(expected, actual)
        .groupBy("id", "key_hash")
        .agg(
            fn.min(fn.when(fn.col("is_expected") == 1, spot)).alias("source"),
            fn.min(fn.when(fn.col("is_expected") == 0, spot)).alias("found"),
        )
        .where("source IS NOT NULL AND found IS NOT NULL")
    )
    # Order is kept within a partition: what lay in several of them has none.
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


class Sequences(NamedTuple):
    """What the numbers of producers say."""

    producers: int
    messages: int
    unnumbered: int
    gaps: int
    missing: int
    doubled: int
    disordered: int
    examples: list[tuple[str, str, int, str]]


def sequences(frame: "DataFrame", producer: str, sequence: str, examples_max: int) -> Sequences:
    """Numbers that producers count up by one: gaps and duplicates by producer, order by producer and partition."""
    from pyspark.sql import Window
    from pyspark.sql import functions as fn

    numbered = frame.select(
        "topic",
        "partition",
        "offset",
        fn.expr(producer).cast("string").alias("producer"),
        fn.expr(sequence).cast("bigint").alias("number"),
    )
    by_number = Window.partitionBy("producer").orderBy("number", "partition", "offset")
    by_place = Window.partitionBy("producer", "partition").orderBy("offset")
    marked = (
        numbered.where("number IS NOT NULL")
        .withColumn("before", fn.lag("number").over(by_number))
        .withColumn("place_before", fn.lag("number").over(by_place))
        .withColumn("is_gap", fn.coalesce(fn.expr("number > before + 1"), fn.lit(False)))
        .withColumn("is_double", fn.coalesce(fn.expr("number = before"), fn.lit(False)))
        .withColumn("is_late", fn.coalesce(fn.expr("number < place_before"), fn.lit(False)))
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
        examples = [_numbered(row.asDict()) for row in rows.limit(examples_max).collect()]
    return Sequences(producers, messages, unnumbered, gaps, missing, doubled, late, examples)


def _numbered(row: Mapping[str, object]) -> tuple[str, str, int, str]:
    kind = "gap" if row["is_gap"] else "doubled" if row["is_double"] else "out of order"
    before = row["place_before"] if kind == "out of order" else row["before"]
    offset = row["offset"]
    assert isinstance(offset, int)
    return (
        kind,
        f"{row['topic']}-{row['partition']}",
        offset,
        f"producer {row['producer']}: {row['number']} after {before}",
    )
