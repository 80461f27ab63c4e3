"""`audit`: proves a delivery. Gaps, duplicates and order, between two topics, or a topic and its archive."""

import time
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING, Final

from penstock.foundation.ids import TopicPartition
from penstock.spark.pipelines.audit_comparison import (
    Differences,
    Fingerprint,
    content,
    differences,
    disorder,
    fingerprints,
    hashed,
    is_in_order,
    sequences,
)
from penstock.spark.pipelines.clusters import held_ranges
from penstock.spark.pipelines.document import Problem
from penstock.spark.pipelines.lake import find_lake
from penstock.spark.pipelines.options import Written, bootstrap, nested, number, option, text, topic, written
from penstock.spark.pipelines.pipeline import Common, Need, Pipeline, Report, Run, Sheet

if TYPE_CHECKING:
    from pyspark.sql import DataFrame

EXAMPLES: Final = 20


@dataclass(frozen=True, slots=True, kw_only=True)
class Side:
    """Messages: of a topic, or of an archive."""

    topic: str | None = option(topic, "The topic; with a path, the one of the archive's topics", default=None)
    path: str | None = option(text, "The folder of an archive", default=None, metavar="FOLDER")
    bootstrap: str | None = option(bootstrap, "Brokers, if they are not the pipeline's", default=None)
    starting: str = option(text, "Where to begin: earliest, or offsets as Spark writes them", default="earliest")
    ending: str = option(text, "Where to end: latest, or offsets", default="latest")
    where: str | None = option(text, "Only messages for which this is true", default=None, metavar="SQL")
    written: Written = written()

    @property
    def name(self) -> str:
        return f"topic {self.topic}" if self.path is None else f"archive {self.path}"


@dataclass(frozen=True, slots=True, kw_only=True)
class AuditOptions(Common):
    actual: Side = option(nested(Side), "What has arrived: a topic, or an archive")
    expected: Side | None = option(nested(Side), "What should have: the other of the two", default=None)
    id: str | None = option(
        text, "What a message is known by; its key, value and headers if it is left out", default=None, metavar="SQL"
    )
    key: str = option(text, "Messages that must stay in order among each other", default="key", metavar="SQL")
    producer: str | None = option(text, "Who has numbered a message", default=None, metavar="SQL")
    sequence: str | None = option(text, "Its number: each producer counts up by one", default=None, metavar="SQL")
    examples: int = option(number(1, 1000), "How many of the offending offsets are shown", default=EXAMPLES)


def _check(options: AuditOptions) -> Iterator[Problem]:
    for label, side in (("actual", options.actual), ("expected", options.expected)):
        if side is not None and side.topic is None and side.path is None:
            yield Problem(side.written.at, f"{label}: it needs a topic or a path")
    if options.expected is None and options.sequence is None:
        message = "there is nothing to compare with: give expected, or a sequence that producers count up"
        yield Problem(options.written.at, message)
    if options.producer is not None and options.sequence is None:
        yield Problem(options.written.place("producer"), "producer: it goes with a sequence, and there is none")


def _needs(options: AuditOptions) -> Iterator[Need]:
    for side in (options.actual, options.expected):
        if side is not None and side.path is None and side.topic is not None:
            place = side.written.place("topic")
            yield Need(bootstrap=side.bootstrap or options.bootstrap, at=place, topics={side.topic: place})


def _open(options: AuditOptions, side: Side, run: Run) -> "DataFrame":
    from pyspark.sql import functions as fn

    if side.path is not None:
        frame = find_lake(run.path(side.path)).read(run.spark)
        if side.topic is not None:
            frame = frame.where(fn.col("topic") == side.topic)
    else:
        given = {
            "kafka.bootstrap.servers": side.bootstrap or options.bootstrap,
            "subscribe": side.topic or "",
            "startingOffsets": side.starting,
            "endingOffsets": side.ending,
            "includeHeaders": "true",
        }
        frame = run.spark.read.format("penstock").options(**given).load()
    return frame.where(side.where) if side.where is not None else frame


def _within(frame: "DataFrame", begins: Mapping[TopicPartition, int]) -> "DataFrame":
    """An archive's messages as far as the topic still has them: it may be trimmed behind them."""
    from pyspark.sql import functions as fn

    before = {name.partition: begin for name, begin in begins.items() if begin > 0}
    if not before:
        return frame
    pairs = [item for partition, begin in before.items() for item in (fn.lit(partition), fn.lit(begin))]
    first = fn.coalesce(fn.try_element_at(fn.create_map(*pairs), fn.col("partition")), fn.lit(0))
    return frame.where(fn.col("offset") >= first)


def _sides(options: AuditOptions, expected: Side, run: Run) -> "tuple[DataFrame, DataFrame, bool]":
    """Both sides as they are compared, and whether their order is to be compared too."""
    from pyspark.sql import functions as fn

    frames = [_open(options, side, run) for side in (expected, options.actual)]
    with_archive = (expected.path is None) != (options.actual.path is None)
    if with_archive:
        archived, live = (0, options.actual) if expected.path is not None else (1, expected)
        held = held_ranges(live.bootstrap or options.bootstrap, [live.topic or ""])
        frames[archived] = _within(
            frames[archived].where(fn.col("topic") == (live.topic or "")),
            {name: span.start for name, span in held.items()},
        )
    # A topic and its archive have the offset in common, and with it the order.
    identity = content(with_place=with_archive) if options.id is None else [fn.expr(options.id)]
    compared = [hashed(frame, identity, fn.expr(options.key)) for frame in frames]
    ordered = expected.path is None and options.actual.path is None
    return compared[0], compared[1], ordered


def _run(options: AuditOptions, run: Run) -> Report:
    began_s = time.monotonic()
    facts: dict[str, object] = {}
    sheets: list[Sheet] = []
    examples: list[tuple[str, str, int, str]] = []
    faults = 0
    if options.expected is not None:
        faults += _compare(options, options.expected, run, facts, sheets, examples)
    if options.sequence is not None:
        run.on_step("following the numbers of producers")
        frame = _open(options, options.actual, run)
        found = sequences(frame, options.producer or "'all'", options.sequence, options.examples)
        facts |= {"producers": found.producers, "numbered": found.messages, "gaps": found.gaps}
        facts |= {"missing_numbers": found.missing, "doubled_numbers": found.doubled}
        facts |= {"numbers_out_of_order": found.disordered, "unnumbered": found.unnumbered}
        examples += found.examples
        faults += found.gaps + found.doubled + found.disordered + found.unnumbered
    if examples:
        sheets.append(Sheet(title="offenders", columns=["WHAT", "WHERE", "#OFFSET", "MORE"], rows=examples))
    facts["seconds"] = round(time.monotonic() - began_s, 1)
    return Report(verdict=_verdict(options, facts, faults), is_well=not faults, facts=facts, sheets=sheets)


def _verdict(options: AuditOptions, facts: Mapping[str, object], faults: int) -> str:
    if not faults:
        count = facts.get("actual", facts.get("numbered"))
        against = f" is what {options.expected.name} has" if options.expected is not None else " is complete"
        return f"PASS: {options.actual.name}{against}; {count} messages, nothing lost, doubled or out of order"
    names = ("missing", "doubled", "unknown", "out_of_order", "gaps", "missing_numbers", "doubled_numbers")
    said = [f"{facts[name]} {name.replace('_', ' ')}" for name in (*names, "numbers_out_of_order") if facts.get(name)]
    return f"FAIL: {options.actual.name}: {', '.join(said) or 'messages without a number'}"


def _compare(
    options: AuditOptions,
    side: Side,
    run: Run,
    facts: dict[str, object],
    sheets: list[Sheet],
    examples: list[tuple[str, str, int, str]],
) -> int:
    """Compare the two sides; how many messages are not as they should be."""
    expected, actual, is_ordered = _sides(options, side, run)
    run.on_step(f"reading {side.name}")
    wanted = fingerprints(expected)
    run.on_step(f"reading {options.actual.name}")
    found = fingerprints(actual)
    facts |= {"expected": _count(wanted), "actual": _count(found)}
    sheets.append(_sheet(wanted, found, is_ordered))
    differs = Differences()
    out_of_order = 0
    if _total(wanted) != _total(found):
        run.on_step("looking for what differs")
        differs = differences(expected, actual, options.examples)
        examples += differs.examples
    if is_ordered and {part: each.sequence for part, each in wanted.items()} != {
        part: each.sequence for part, each in found.items()
    }:
        is_kept = False
        if differs.strays:
            run.on_step("comparing the order of all others")
            is_kept = is_in_order(expected, actual, differs.strays)
        if not is_kept:
            run.on_step("comparing the order within keys")
            out_of_order, wrong = disorder(expected, actual, options.examples)
            examples += wrong
    facts |= {"missing": differs.missing, "doubled": differs.doubled, "unknown": differs.unknown}
    facts["out_of_order"] = out_of_order
    return differs.missing + differs.doubled + differs.unknown + out_of_order


def _count(prints: Mapping[int, Fingerprint]) -> int:
    return sum(each.rows for each in prints.values())


def _total(prints: Mapping[int, Fingerprint]) -> tuple[int, ...]:
    """What all partitions hold together: messages may have changed partitions."""
    return tuple(map(sum, zip(*(each.content for each in prints.values()), strict=True)))


def _sheet(wanted: Mapping[int, Fingerprint], found: Mapping[int, Fingerprint], is_ordered: bool) -> Sheet:
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
    return Sheet(title="partitions", columns=columns, rows=rows)


PIPELINE: Final = Pipeline(
    name="audit",
    summary="Proves a delivery: gaps, duplicates and order between two topics, or a topic and its archive",
    about="""\
Both sides are read once into fingerprints of their partitions, in memory that does not grow with them; only where
these differ the messages are looked for. A topic and its archive are compared offset by offset, two topics by key,
value and headers, or by an id. With a sequence (and a producer) that messages carry, one topic is audited alone.
Ends with PASS or FAIL, the offending offsets, and exit code 1 for FAIL.""",
    example="penstock pipeline run audit -o expected.topic=orders -o actual.path=lake/orders\n",
    options=AuditOptions,
    needs=_needs,
    check=_check,
    run=_run,
)
