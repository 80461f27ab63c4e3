"""The `audit` pipeline: checks for gaps, duplicates and reordering between two topics, or a topic and its archive."""

import time
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING, Final

from penstock.foundation.ids import TopicPartition
from penstock.spark.pipelines.audit_comparison import (
    Differences,
    Fingerprint,
    check_sequences,
    differences,
    find_reordered,
    fingerprints,
    hash_messages,
    identity_columns,
    is_in_order,
)
from penstock.spark.pipelines.brokers import Brokers
from penstock.spark.pipelines.clusters import held_ranges
from penstock.spark.pipelines.document import Problem
from penstock.spark.pipelines.lake_formats import find_lake
from penstock.spark.pipelines.options import Locations, bootstrap, locations, nested, number, option, text, topic
from penstock.spark.pipelines.pipeline import CommonOptions, Need, Pipeline, Report, ReportTable, Run

if TYPE_CHECKING:
    from pyspark.sql import DataFrame

EXAMPLES: Final = 20


@dataclass(frozen=True, slots=True, kw_only=True)
class Side:
    """One of the two sets of messages that an audit compares: a topic or an archive."""

    topic: str | None = option(topic, "The topic; with a path, one of the archive's topics", default=None)
    path: str | None = option(text, "The folder of an archive", default=None, metavar="FOLDER")
    bootstrap: Brokers | None = option(bootstrap, "Brokers, if other than the pipeline's", default=None)
    starting: str = option(text, "Where to start: earliest, or offsets in Spark's JSON format", default="earliest")
    ending: str = option(text, "Where to end: latest, or offsets", default="latest")
    where: str | None = option(text, "A condition: only matching messages", default=None, metavar="SQL")
    locations: Locations = locations()

    @property
    def name(self) -> str:
        return f"topic {self.topic}" if self.path is None else f"archive {self.path}"


@dataclass(frozen=True, slots=True, kw_only=True)
class AuditOptions(CommonOptions):
    actual: Side = option(nested(Side), "The messages to check: a topic or an archive")
    expected: Side | None = option(nested(Side), "The messages to compare with: a topic or an archive", default=None)
    id: str | None = option(
        text, "Identifies a message; by default its key, value and headers", default=None, metavar="SQL"
    )
    key: str = option(text, "Messages with the same key must stay in order", default="key", metavar="SQL")
    producer: str | None = option(text, "The producer of a message", default=None, metavar="SQL")
    sequence: str | None = option(text, "A number that each producer increments by one", default=None, metavar="SQL")
    examples: int = option(number(1, 1000), "How many offending offsets to show", default=EXAMPLES)


def _check(options: AuditOptions) -> Iterator[Problem]:
    for label, side in (("actual", options.actual), ("expected", options.expected)):
        if side is not None and side.topic is None and side.path is None:
            yield Problem(side.locations.table, f"{label}: it needs a topic or a path")
    if options.expected is None and options.sequence is None:
        message = "there is nothing to compare with: set expected, or a sequence that producers increment"
        yield Problem(options.locations.table, message)
    if options.producer is not None and options.sequence is None:
        yield Problem(options.locations.of("producer"), "producer: it requires a sequence")


def _needs(options: AuditOptions) -> Iterator[Need]:
    for side in (options.actual, options.expected):
        if side is not None and side.path is None and side.topic is not None:
            at = side.locations.of("topic")
            yield Need(bootstrap=side.bootstrap or options.bootstrap, location=at, topics={side.topic: at})


def _read_side(options: AuditOptions, side: Side, run: Run) -> "DataFrame":
    from pyspark.sql import functions as fn

    if side.path is not None:
        frame = find_lake(run.path(side.path)).read(run.spark)
        if side.topic is not None:
            frame = frame.where(fn.col("topic") == side.topic)
    else:
        given = {
            **(side.bootstrap or options.bootstrap).options,
            "subscribe": side.topic or "",
            "startingOffsets": side.starting,
            "endingOffsets": side.ending,
            "includeHeaders": "true",
        }
        frame = run.spark.read.format("penstock").options(**given).load()
    return frame.where(side.where) if side.where is not None else frame


def _from_log_start(frame: "DataFrame", begins: Mapping[TopicPartition, int]) -> "DataFrame":
    """Drops archived messages before the topic's log start offsets (`begins`), which the topic no longer has."""
    from pyspark.sql import functions as fn

    before = {name.partition: begin for name, begin in begins.items() if begin > 0}
    if not before:
        return frame
    pairs = [item for partition, begin in before.items() for item in (fn.lit(partition), fn.lit(begin))]
    first = fn.coalesce(fn.try_element_at(fn.create_map(*pairs), fn.col("partition")), fn.lit(0))
    return frame.where(fn.col("offset") >= first)


def _sides(options: AuditOptions, expected: Side, run: Run) -> "tuple[DataFrame, DataFrame, bool]":
    """Returns the hashed messages of the expected and of the actual side, and whether to compare the order."""
    from pyspark.sql import functions as fn

    frames = [_read_side(options, side, run) for side in (expected, options.actual)]
    with_archive = (expected.path is None) != (options.actual.path is None)
    if with_archive:
        archived, live = (0, options.actual) if expected.path is not None else (1, expected)
        held = held_ranges(live.bootstrap or options.bootstrap, [live.topic or ""])
        frames[archived] = _from_log_start(
            frames[archived].where(fn.col("topic") == (live.topic or "")),
            {name: span.start for name, span in held.items()},
        )
    # A topic and its archive share offsets, and therefore the order.
    identity = identity_columns(with_offset=with_archive) if options.id is None else [fn.expr(options.id)]
    compared = [hash_messages(frame, identity, fn.expr(options.key)) for frame in frames]
    ordered = expected.path is None and options.actual.path is None
    return compared[0], compared[1], ordered


def _run(options: AuditOptions, run: Run) -> Report:
    began_s = time.monotonic()
    facts: dict[str, object] = {}
    tables: list[ReportTable] = []
    examples: list[tuple[str, str, int, str]] = []
    faults = 0
    if options.expected is not None:
        faults += _compare(options, options.expected, run, facts, tables, examples)
    if options.sequence is not None:
        run.on_step("checking sequence numbers")
        frame = _read_side(options, options.actual, run)
        found = check_sequences(frame, options.producer or "'all'", options.sequence, options.examples)
        facts |= {"producers": found.producers, "numbered": found.messages, "gaps": found.gaps}
        facts |= {"missing_numbers": found.missing, "doubled_numbers": found.doubled}
        facts |= {"numbers_out_of_order": found.disordered, "unnumbered": found.unnumbered}
        examples += found.examples
        faults += found.gaps + found.doubled + found.disordered + found.unnumbered
    if examples:
        tables.append(ReportTable(title="offenders", columns=["WHAT", "WHERE", "#OFFSET", "MORE"], rows=examples))
    facts["seconds"] = round(time.monotonic() - began_s, 1)
    return Report(verdict=_verdict(options, facts, faults), is_ok=not faults, facts=facts, tables=tables)


def _verdict(options: AuditOptions, facts: Mapping[str, object], faults: int) -> str:
    if not faults:
        count = facts.get("actual", facts.get("numbered"))
        against = f" matches {options.expected.name}" if options.expected is not None else " is complete"
        return f"PASS: {options.actual.name}{against}; {count} messages, none lost, duplicated or out of order"
    names = ("missing", "doubled", "unknown", "out_of_order", "gaps", "missing_numbers", "doubled_numbers")
    said = [f"{facts[name]} {name.replace('_', ' ')}" for name in (*names, "numbers_out_of_order") if facts.get(name)]
    return f"FAIL: {options.actual.name}: {', '.join(said) or 'messages without a number'}"


def _compare(
    options: AuditOptions,
    side: Side,
    run: Run,
    facts: dict[str, object],
    tables: list[ReportTable],
    examples: list[tuple[str, str, int, str]],
) -> int:
    """Compares `options.actual` with `side`, and adds the results to `facts`, `tables` and `examples`.
    Returns the number of messages that are missing, duplicated, unknown or out of order."""
    expected, actual, is_ordered = _sides(options, side, run)
    run.on_step(f"reading {side.name}")
    wanted = fingerprints(expected)
    run.on_step(f"reading {options.actual.name}")
    found = fingerprints(actual)
    facts |= {"expected": _count(wanted), "actual": _count(found)}
    tables.append(_compare_table(wanted, found, is_ordered))
    differs = Differences()
    out_of_order = 0
    if _total(wanted) != _total(found):
        run.on_step("locating differences")
        differs = differences(expected, actual, options.examples)
        examples += differs.examples
    if is_ordered and {part: each.sequence for part, each in wanted.items()} != {
        part: each.sequence for part, each in found.items()
    }:
        is_kept = False
        if differs.mismatches:
            run.on_step("comparing the order of the other messages")
            is_kept = is_in_order(expected, actual, differs.mismatches)
        if not is_kept:
            run.on_step("comparing the order within keys")
            out_of_order, wrong = find_reordered(expected, actual, options.examples)
            examples += wrong
    facts |= {"missing": differs.missing, "doubled": differs.doubled, "unknown": differs.unknown}
    facts["out_of_order"] = out_of_order
    return differs.missing + differs.doubled + differs.unknown + out_of_order


def _count(prints: Mapping[int, Fingerprint]) -> int:
    return sum(each.rows for each in prints.values())


def _total(prints: Mapping[int, Fingerprint]) -> tuple[int, ...]:
    """Returns the fingerprints summed over all partitions, to compare sides with different partitioning."""
    return tuple(map(sum, zip(*(each.content for each in prints.values()), strict=True)))


def _compare_table(
    wanted: Mapping[int, Fingerprint], found: Mapping[int, Fingerprint], is_ordered: bool
) -> ReportTable:
    rows = []
    for partition in sorted(wanted.keys() | found.keys()):
        one, other = wanted.get(partition), found.get(partition)
        alike = one is not None and other is not None and one.content == other.content
        in_order = alike and is_ordered and one is not None and other is not None and one.sequence == other.sequence
        rows.append(
            (
                partition,
                one.rows if one else 0,
                other.rows if other else 0,
                "yes" if alike else "no",
                ("yes" if in_order else "no") if is_ordered else "by offset",
            )
        )
    columns = ["#PARTITION", "#EXPECTED", "#ACTUAL", "SAME MESSAGES", "SAME ORDER"]
    return ReportTable(title="partitions", columns=columns, rows=rows)


PIPELINE: Final = Pipeline(
    name="audit",
    summary="Checks for gaps, duplicates and reordering between two topics, or a topic and its archive",
    about="""\
Both sides are read once into fingerprints of their partitions, in constant memory; only if these differ, the
differing messages are located. A topic and its archive are compared offset by offset, two topics by key, value and
headers, or by an id. With a sequence (and a producer) in the messages, one topic is audited alone. Ends with PASS or
FAIL, the offending offsets, and exit code 1 for FAIL.""",
    example="penstock pipeline run audit -o expected.topic=orders -o actual.path=lake/orders\n",
    options=AuditOptions,
    needs=_needs,
    check=_check,
    run=_run,
)
