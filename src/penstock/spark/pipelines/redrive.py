"""The `redrive` pipeline: filters dead letters, fixes them with SQL and sends them back, exactly once.

Spark reads the topic of a dead-letter queue without receiving messages. Matching dead letters are claimed by offset,
written in one transaction per round, and deleted; claims.py explains why each is sent once. Others stay unchanged.
"""

import json
import time
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Final

from penstock.client.claims import Survey
from penstock.client.transactional import QUERY_CLOSED
from penstock.foundation.errors import PenstockError
from penstock.spark.pipelines.claims import (
    ONLY_BATCH,
    DeadLetters,
    Round,
    find_queue_topics,
    find_topics,
    open_queue,
    open_ranges,
    open_topic,
    recover,
    surveys,
)
from penstock.spark.pipelines.dead_letters import CAUSE, FIXABLE, OpenRanges, filter_open, parse_letters, to_messages
from penstock.spark.pipelines.document import Problem, suggest
from penstock.spark.pipelines.options import duration, flag, number, option, pairs, schema, text, topic
from penstock.spark.pipelines.pipeline import CommonOptions, Need, Pipeline, Report, Run
from penstock.spark.pipelines.query_progress import Batch
from penstock.spark.pipelines.redrive_report import Cause, Example, Outcome
from penstock.spark.pipelines.tables import Source, infer_schema, parse_schema

if TYPE_CHECKING:
    from pyspark.sql import DataFrame
    from pyspark.sql.types import StructType

ROUND_ROWS: Final = 10_000
"""Default maximum number of dead letters that a round claims and sends: well below the in-flight limit of a queue."""
HOLD_S: Final = 12 * 3600.0
"""Default time, in seconds, after which the claim of a dead driver expires: the maximum visibility timeout of SQS."""
GROUP: Final = "redrive"
EXAMPLES: Final = 5


class CannotRedrive(PenstockError):
    """Another redrive of the same dead letters has taken over. Those that this redrive had claimed (acquired) were
    released."""


@dataclass(frozen=True, slots=True, kw_only=True)
class RedriveOptions(CommonOptions):
    queue: str | None = option(text, "The dead-letter queue", default=None, metavar="QUEUE")
    topic: str | None = option(topic, "Instead of a queue: a dead-letter topic of share groups", default=None)
    to: str | None = option(
        text, "The queue (or topic) for all dead letters; by default each returns to its source", default=None
    )
    where: str | None = option(text, "A condition: only matching dead letters", default=None, metavar="SQL")
    fix: Mapping[str, str] = option(
        pairs,
        "New value, key or attributes, each as an expression",
        default={},
        metavar="NAME: SQL, …",
    )
    schema: str | None = option(
        schema, "The fields of JSON values, as columns json.…; infer samples the latest messages", default=None
    )
    cause: str = option(text, "An expression that groups dead letters in the report", default=CAUSE, metavar="SQL")
    dry_run: bool = option(flag, "Only show what would be sent back", default=False)
    limit: int | None = option(
        number(1), "The most dead letters to send back, the oldest of each partition first", default=None
    )
    max_rows: int = option(number(1, 100_000), "The most dead letters per transaction", default=ROUND_ROWS)
    hold: float = option(
        duration, "How long dead letters stay claimed if this process dies and is not run again", default=HOLD_S
    )
    group: str = option(text, "With a topic: the share group that tracks finished dead letters", default=GROUP)
    examples: int = option(number(0, 100), "Examples to show, before and after the fix", default=EXAMPLES)


def _check(options: RedriveOptions) -> Iterator[Problem]:
    if (options.queue is None) == (options.topic is None):
        yield Problem(options.locations.table, "set either queue or topic (a dead-letter topic of share groups)")
    if options.queue is not None and "group" in options.locations.keys:
        yield Problem(options.locations.of("group"), "group: it requires topic; a queue needs no group")
    if options.to is not None and options.to == (options.queue or options.topic):
        yield Problem(options.locations.of("to"), "to: it is the dead-letter queue itself")
    for name in options.fix:
        if name not in FIXABLE:
            yield Problem(options.locations.of("fix"), f"fix: there is no {name!r} to fix; {suggest(name, FIXABLE)}")


def _needs(options: RedriveOptions) -> Iterator[Need]:
    wanted = {}
    if options.topic is not None:
        wanted[options.topic] = options.locations.of("topic")
        if options.to is not None:
            wanted[options.to] = options.locations.of("to")
    yield Need(bootstrap=options.bootstrap, location=options.locations.of("bootstrap"), topics=wanted)


# -- examine


def _read(
    options: RedriveOptions,
    run: Run,
    dlq: DeadLetters,
    spans: Mapping[int, OpenRanges],
    ends: Mapping[int, tuple[int, int]],
) -> "DataFrame":
    """Reads dead letters between the two offsets (start, exclusive end) that `ends` has for each partition. Drops
    finished ones, whose offsets are not in `spans`."""
    chosen = sorted(ends)
    given = {
        **dlq.bootstrap.options,
        "assign": json.dumps({dlq.topic: chosen}),
        "startingOffsets": json.dumps({dlq.topic: {str(number): ends[number][0] for number in chosen}}),
        "endingOffsets": json.dumps({dlq.topic: {str(number): ends[number][1] for number in chosen}}),
        "includeHeaders": "true",
        "failOnDataLoss": "false",  # messages finished meanwhile may have been deleted
    }
    # A new DataFrame for each use: Spark plans the read of a Python data source only once.
    raw = run.spark.read.format("penstock").options(**given).load()
    return parse_letters(filter_open(raw, spans), of_queue=dlq.of_queue, fields=_fields(options, run, dlq))


def _fields(options: RedriveOptions, run: Run, dlq: DeadLetters) -> "StructType | None":
    if options.schema is None:
        return None
    if options.schema != "infer":
        return parse_schema(options.schema)
    return infer_schema(run, Source(topic=(dlq.topic,)), dlq.bootstrap)


def _examine(options: RedriveOptions, run: Run, dlq: DeadLetters, known: Mapping[int, Survey]) -> "DataFrame":
    """Returns all unfinished dead letters, with a column `_match`: whether the option `where` selects the row."""
    from pyspark.sql import functions as fn

    ends = {number: (survey.start, survey.end) for number, survey in known.items() if survey.start < survey.end}
    frame = _read(options, run, dlq, {number: open_ranges(known[number]) for number in ends}, ends)
    return frame.withColumn("_match", fn.expr(f"coalesce(({options.where or 'true'}), false)"))


def _classify(options: RedriveOptions, frame: "DataFrame") -> "DataFrame":
    """Returns a cached frame with position, source, cause and time of each dead letter, but not its content."""
    from pyspark.sql import functions as fn

    oldest = "sent_at" if options.queue is not None else "dead_at"
    cause = fn.expr(options.cause).cast("string")
    return frame.select(
        "partition", "offset", "source", "_match", "_free", cause.alias("_cause"), fn.col(oldest).alias("_at")
    ).persist()


def _group_causes(classified: "DataFrame") -> list[Cause]:
    from pyspark.sql import functions as fn

    rows = (
        classified.groupBy("_cause", "source")
        .agg(
            fn.count("*").alias("letters"),
            fn.count_if("_match").alias("matched"),
            fn.count_if(fn.col("_match") & fn.col("_free")).alias("free"),
            fn.min("_at").alias("oldest"),
        )
        .collect()
    )
    found = [Cause(*row) for row in rows]
    return sorted(found, key=lambda each: (-each.matched, -each.letters, each.source or "", each.cause or ""))


def _sendable_offsets(classified: "DataFrame", sources: Iterable[str] | None) -> dict[int, list[int]]:
    """Returns, by partition, the sorted offsets of dead letters that match the option `where`, are not in flight,
    and come from one of `sources` (None: from any source)."""
    from pyspark.sql import functions as fn

    chosen = classified.where(fn.col("_match") & fn.col("_free"))
    if sources is not None:
        chosen = chosen.where(fn.col("source").isin(*sources))
    table = chosen.select("partition", "offset").toArrow()
    found: dict[int, list[int]] = {}
    for partition, offset in zip(table["partition"].to_pylist(), table["offset"].to_pylist(), strict=True):
        found.setdefault(partition, []).append(offset)
    return {partition: sorted(offsets) for partition, offsets in sorted(found.items())}


def split_rounds(wanted: Mapping[int, Sequence[int]], each: int, limit: int | None) -> Iterator[dict[int, list[int]]]:
    """Splits offsets (at most `limit`, if set) into rounds of about `each`, in order within each partition.

    >>> list(split_rounds({0: [1, 2, 5], 1: [4]}, each=2, limit=None))
    [{0: [1], 1: [4]}, {0: [2, 5]}]
    """
    left = {partition: list(offsets) for partition, offsets in wanted.items() if offsets}
    budget = sum(map(len, left.values())) if limit is None else limit
    while left and budget > 0:
        share = max(1, min(each, budget) // len(left))
        some: dict[int, list[int]] = {}
        for partition in list(left):
            taken = left[partition][: min(share, budget)]
            if not taken:
                break
            some[partition] = taken
            budget -= len(taken)
            left[partition] = left[partition][len(taken) :]
            if not left[partition]:
                del left[partition]
        yield some


# -- send back


def _send_round(
    options: RedriveOptions, run: Run, dlq: DeadLetters, round_: Round, topics: Mapping[str, str], to: str | None
) -> None:
    """Writes the dead letters that a round has claimed, in one transaction, to the topic `to`; if None, each to
    the topic that `topics` has for its source."""
    ends = {number: (ranges[0][0], ranges[-1][1] + 1) for number, ranges in round_.taken.items()}
    frame = _read(options, run, dlq, round_.spans, ends)
    rows = to_messages(frame, topics, to, options.fix, keeps_partition=not dlq.of_queue and to is None)
    given = {**dlq.bootstrap.options, "txnAppId": round_.name, "txnVersion": str(ONLY_BATCH)}
    rows.write.format("penstock").options(**given).mode("append").save()


def _redrive(
    options: RedriveOptions,
    run: Run,
    dlq: DeadLetters,
    wanted: Mapping[int, Sequence[int]],
    topics: Mapping[str, str],
    to: str | None,
    outcome: Outcome,
) -> None:
    """Claims, sends and deletes the dead letters at the offsets `wanted`, in rounds of about `options.max_rows`.
    Sends them to the topic `to`; if None, to the topic that `topics` has for their source. Updates `outcome`."""
    from pyspark.errors import PySparkException

    found = sum(map(len, wanted.values()))
    left = found if options.limit is None else min(found, options.limit)
    for count, some in enumerate(split_rounds(wanted, options.max_rows, options.limit)):
        if run.stopping.is_set():
            return
        began_s = time.monotonic()
        size = sum(map(len, some.values()))
        run.on_step(f"claiming {size} dead letters")
        round_ = Round(dlq, options.hold)
        try:
            round_.claim(some)
            if round_.taken:
                run.on_step(f"sending {round_.count} messages back")
                _send_round(options, run, dlq, round_, topics, to)
                run.on_step(f"deleting {round_.count} dead letters")
        except PySparkException as error:
            if QUERY_CLOSED not in str(error):
                raise
        finally:  # on any error: messages that were sent are deleted, all others are released
            deleted = round_.close()
        if deleted is None:
            raise CannotRedrive(
                f"another redrive of {outcome.name!r} has taken over: the {round_.count} claimed dead letters "
                "were released and none of them was sent; run only one redrive at a time"
            )
        outcome.add(round_.count, deleted)
        left -= size
        run.on_batch(_batch(count, round_.count, time.monotonic() - began_s, left))


def _batch(count: int, rows: int, seconds: float, left: int) -> Batch:
    return Batch(
        number=count,
        rows=rows,
        seconds=seconds,
        rows_per_s=rows / seconds,
        lag=left,
        late_s=None,
        dropped=0,
        at_ms=round(time.time() * 1000),
    )


# -- run


def _find_targets(
    options: RedriveOptions, dlq: DeadLetters, sources: Iterable[str]
) -> tuple[dict[str, str], str | None]:
    """Returns (target topic by source, None), or ({}, the topic for all dead letters) if the option `to` is set."""
    if options.to is None:
        found = find_queue_topics(dlq.bootstrap, sources) if dlq.of_queue else find_topics(dlq.bootstrap, sources)
        return found, None
    return {}, open_queue(dlq.bootstrap, options.to).topic if dlq.of_queue else options.to


def _run(options: RedriveOptions, run: Run) -> Report:
    began_s = time.monotonic()
    if options.queue is not None:
        dlq = open_queue(options.bootstrap, options.queue)
    else:
        dlq = open_topic(options.bootstrap, options.topic or "", options.group, prepare=not options.dry_run)
    outcome = Outcome(name=options.queue or options.topic or "", is_dry=options.dry_run, limit=options.limit)
    if not options.dry_run:
        outcome.recovered = recover(dlq)
    run.on_step(f"examining the dead letters of {dlq.topic}")
    known = surveys(dlq)
    if any(survey.start < survey.end for survey in known.values()):
        _examine_and_send(options, run, dlq, known, outcome)
    return outcome.report(time.monotonic() - began_s)


def _examine_and_send(
    options: RedriveOptions, run: Run, dlq: DeadLetters, known: Mapping[int, Survey], outcome: Outcome
) -> None:
    """Examines the dead letters and, unless the option `dry_run` is set, redrives those that match."""
    examined = _examine(options, run, dlq, known)
    # The schema makes Spark check the SQL now: a fix may be invalid.
    to_messages(examined, {"": ""}, None, options.fix, keeps_partition=False).schema  # noqa: B018
    classified = _classify(options, examined)
    outcome.causes = _group_causes(classified)
    sources = {each.source for each in outcome.causes if each.source}
    topics, to = _find_targets(options, dlq, sources)
    outcome.targets = {each.source: to or topics.get(each.source or "") for each in outcome.causes}
    wanted: dict[int, list[int]] = {}
    if outcome.sendable and not options.dry_run:
        wanted = _sendable_offsets(classified, None if to is not None else sorted(topics))
    classified.unpersist()
    if options.dry_run and options.examples:
        outcome.examples = _collect_examples(options, _examine(options, run, dlq, known), outcome)
    if wanted:
        _redrive(options, run, dlq, wanted, topics, to, outcome)


def _collect_examples(options: RedriveOptions, frame: "DataFrame", outcome: Outcome) -> list[Example]:
    """Returns the first matching dead letters, each with its value before and after the fix."""
    from pyspark.sql import functions as fn

    chosen = frame.where("_match").orderBy("partition", "offset").limit(options.examples)
    after = fn.expr(options.fix.get("value", "value")).cast("string")
    rows = chosen.select("partition", "offset", "source", "value", after.alias("after")).collect()
    return [Example(row[0], row[1], outcome.targets.get(row[2]), row[3], row[4]) for row in rows]


PIPELINE: Final = Pipeline(
    name="redrive",
    summary="Filters dead letters, fixes them with SQL and sends them back, exactly once",
    about="""\
Reads a dead-letter queue without receiving from it. Matching dead letters are claimed, fixed, written to the queues
that they came from, and deleted: exactly once, even if this process is killed. All others stay unchanged, with their
receive counts. The SQL columns are value, key, attributes (a map), source, receive_count, sent_at, dead_at,
message_id, partition, offset, and with a schema json. A dry run only shows what would be sent back. With `topic` the
dead letters of share groups are sent back; a share group tracks which of them are finished.""",
    example="""\
penstock pipeline run redrive -o queue=jobs-dead --dry-run
penstock pipeline run redrive -o queue=jobs-dead --where "attributes['tenant'] = 'eu' AND receive_count < 10" \\
  -o "fix.value=regexp_replace(value, '\\"amont\\"', '\\"amount\\"')"
""",
    options=RedriveOptions,
    needs=_needs,
    check=_check,
    run=_run,
)
