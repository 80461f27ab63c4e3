"""`redrive`: dead letters examined, filtered, fixed by SQL and sent back to where they came from, each once.

Spark reads the topic of a dead-letter queue, and takes nothing by that. What is to go back is claimed by its offsets,
written by one decision, and deleted; claims.py says why that is once. What does not match stays as it is.
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
    Box,
    Round,
    existing,
    open_queue,
    open_topic,
    recover,
    spans_of,
    surveys,
    topics_of,
)
from penstock.spark.pipelines.dead_letters import CAUSE, FIXABLE, Spans, letters, marked, sent_back
from penstock.spark.pipelines.document import Problem, possible
from penstock.spark.pipelines.options import duration, flag, number, option, pairs, schema, text, topic
from penstock.spark.pipelines.pipeline import Common, Need, Pipeline, Report, Run
from penstock.spark.pipelines.query_progress import Batch
from penstock.spark.pipelines.redrive_report import Cause, Example, Outcome
from penstock.spark.pipelines.tables import Source, infer, parsed

if TYPE_CHECKING:
    from pyspark.sql import DataFrame
    from pyspark.sql.types import StructType

ROUND_ROWS: Final = 10_000
"""Letters that are claimed and sent back at a time: well below what may be in flight of a queue."""
HOLD_S: Final = 12 * 3600.0
"""As long as SQS lets anybody have a message."""
GROUP: Final = "redrive"
EXAMPLES: Final = 5


class CannotRedrive(PenstockError):
    """The dead letters cannot be sent back; those that are claimed are given back."""


@dataclass(frozen=True, slots=True, kw_only=True)
class RedriveOptions(Common):
    queue: str | None = option(text, "The dead-letter queue", default=None, metavar="QUEUE")
    topic: str | None = option(topic, "Instead of it, the dead-letter topic of share groups", default=None)
    to: str | None = option(
        text, "The queue (or topic) that all go to; else each goes to where it came from", default=None
    )
    where: str | None = option(text, "Only letters for which this is true", default=None, metavar="SQL")
    fix: Mapping[str, str] = option(
        pairs,
        "What letters become: value, key or attributes, each by an expression",
        default={},
        metavar="NAME: SQL, …",
    )
    schema: str | None = option(
        schema, "Fields of JSON values, to have them as json.…; infer looks at the last messages", default=None
    )
    cause: str = option(text, "What letters are grouped by in the report", default=CAUSE, metavar="SQL")
    dry_run: bool = option(flag, "Only show what would be done", default=False)
    limit: int | None = option(
        number(1), "Letters that are sent back at most, the oldest of each partition", default=None
    )
    max_rows: int = option(number(1, 100_000), "Letters that are sent back at a time", default=ROUND_ROWS)
    hold: float = option(
        duration, "How long letters stay claimed if this process dies and none comes after it", default=HOLD_S
    )
    group: str = option(text, "With a topic: the share group that keeps which letters are done", default=GROUP)
    examples: int = option(number(0, 100), "Letters that are shown before and after the fix", default=EXAMPLES)


def _check(options: RedriveOptions) -> Iterator[Problem]:
    if (options.queue is None) == (options.topic is None):
        yield Problem(options.written.at, "give a queue, or the topic that a share group's dead letters are in")
    if options.queue is not None and "group" in options.written.places:
        yield Problem(options.written.place("group"), "group: it goes with a topic; a queue knows what is done of it")
    if options.to is not None and options.to == (options.queue or options.topic):
        yield Problem(options.written.place("to"), "to: letters would go to where they are")
    for name in options.fix:
        if name not in FIXABLE:
            yield Problem(
                options.written.place("fix"), f"fix: there is no {name!r} to fix; {possible(name, FIXABLE)}"
            )


def _needs(options: RedriveOptions) -> Iterator[Need]:
    wanted = {}
    if options.topic is not None:
        wanted[options.topic] = options.written.place("topic")
        if options.to is not None:
            wanted[options.to] = options.written.place("to")
    yield Need(bootstrap=options.bootstrap, at=options.written.place("bootstrap"), topics=wanted)


# -- examining


def _read(
    options: RedriveOptions, run: Run, box: Box, spans: Mapping[int, Spans], ends: Mapping[int, tuple[int, int]]
) -> "DataFrame":
    """The letters of some offsets, from the first to the one behind the last of each partition."""
    chosen = sorted(ends)
    given = {
        "kafka.bootstrap.servers": box.bootstrap,
        "assign": json.dumps({box.topic: chosen}),
        "startingOffsets": json.dumps({box.topic: {str(number): ends[number][0] for number in chosen}}),
        "endingOffsets": json.dumps({box.topic: {str(number): ends[number][1] for number in chosen}}),
        "includeHeaders": "true",
        "failOnDataLoss": "false",  # what workers have finished meanwhile may be gone
    }
    # A frame of its own for each use: Spark plans what a Python source reads only once.
    raw = run.spark.read.format("penstock").options(**given).load()
    return letters(marked(raw, spans), of_queue=box.of_queue, fields=_fields(options, run, box))


def _fields(options: RedriveOptions, run: Run, box: Box) -> "StructType | None":
    if options.schema is None:
        return None
    if options.schema != "infer":
        return parsed(options.schema)
    return infer(run, Source(topic=(box.topic,)), box.bootstrap)


def _examined(options: RedriveOptions, run: Run, box: Box, known: Mapping[int, Survey]) -> "DataFrame":
    """All letters that are not finished, with `_match`."""
    from pyspark.sql import functions as fn

    ends = {number: (survey.start, survey.end) for number, survey in known.items() if survey.start < survey.end}
    frame = _read(options, run, box, {number: spans_of(known[number]) for number in ends}, ends)
    return frame.withColumn("_match", fn.expr(f"coalesce(({options.where or 'true'}), false)"))


def _judged(options: RedriveOptions, frame: "DataFrame") -> "DataFrame":
    """What there is to say about each letter, without the letter: that is read once, and kept while it is needed."""
    from pyspark.sql import functions as fn

    oldest = "sent_at" if options.queue is not None else "dead_at"
    cause = fn.expr(options.cause).cast("string")
    return frame.select(
        "partition", "offset", "source", "_match", "_free", cause.alias("_cause"), fn.col(oldest).alias("_at")
    ).persist()


def _causes(judged: "DataFrame") -> list[Cause]:
    from pyspark.sql import functions as fn

    rows = (
        judged.groupBy("_cause", "source")
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


def _wanted(judged: "DataFrame", sources: Iterable[str] | None) -> dict[int, list[int]]:
    """Offsets of the letters that can be sent back, in order. `sources`: where letters must have come from."""
    from pyspark.sql import functions as fn

    chosen = judged.where(fn.col("_match") & fn.col("_free"))
    if sources is not None:
        chosen = chosen.where(fn.col("source").isin(*sources))
    table = chosen.select("partition", "offset").toArrow()
    found: dict[int, list[int]] = {}
    for partition, offset in zip(table["partition"].to_pylist(), table["offset"].to_pylist(), strict=True):
        found.setdefault(partition, []).append(offset)
    return {partition: sorted(offsets) for partition, offsets in sorted(found.items())}


def rounds_of(wanted: Mapping[int, Sequence[int]], each: int, limit: int | None) -> Iterator[dict[int, list[int]]]:
    """Letters in rounds of about so many: of every partition in the order of its offsets, so that groups keep theirs.

    >>> list(rounds_of({0: [1, 2, 5], 1: [4]}, each=2, limit=None))
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


# -- sending back


def _send(
    options: RedriveOptions, run: Run, box: Box, turn: Round, topics: Mapping[str, str], to: str | None
) -> None:
    """Write what a round has claimed: all of it, or nothing."""
    ends = {number: (ranges[0][0], ranges[-1][1] + 1) for number, ranges in turn.taken.items()}
    frame = _read(options, run, box, turn.spans, ends)
    rows = sent_back(frame, topics, to, options.fix, keeps_partition=not box.of_queue and to is None)
    given = {"kafka.bootstrap.servers": box.bootstrap, "txnAppId": turn.name, "txnVersion": str(ONLY_BATCH)}
    rows.write.format("penstock").options(**given).mode("append").save()


def _redrive(
    options: RedriveOptions,
    run: Run,
    box: Box,
    wanted: Mapping[int, Sequence[int]],
    topics: Mapping[str, str],
    to: str | None,
    outcome: Outcome,
) -> None:
    """Round by round: claimed, sent back, deleted."""
    from pyspark.errors import PySparkException

    left = sum(map(len, wanted.values()))
    for count, some in enumerate(rounds_of(wanted, options.max_rows, options.limit)):
        if run.stopping.is_set():
            return
        began_s = time.monotonic()
        size = sum(map(len, some.values()))
        run.on_step(f"claiming {size} dead letters")
        turn = Round(box, options.hold)
        try:
            turn.claim(some)
            if turn.taken:
                run.on_step(f"sending {turn.count} messages back")
                _send(options, run, box, turn, topics, to)
                run.on_step(f"deleting {turn.count} dead letters")
        except PySparkException as error:
            if QUERY_CLOSED not in str(error):
                raise
        finally:  # whatever went wrong: what was sent is deleted, and what was not is as it was
            deleted = turn.close()
        if deleted is None:
            raise CannotRedrive(
                f"another redrive of {outcome.name!r} has taken over: {turn.count} dead letters were given back, and "
                "none of them was sent; run one at a time"
            )
        outcome.add(turn.count, deleted)
        left -= size
        run.on_batch(_batch(count, turn.count, time.monotonic() - began_s, left))


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


# -- all of it


def _targets(options: RedriveOptions, box: Box, sources: Iterable[str]) -> tuple[dict[str, str], str | None]:
    """The topics that letters go to, by their source; and the one that all go to, if it is said."""
    if options.to is None:
        found = topics_of(box.bootstrap, sources) if box.of_queue else existing(box.bootstrap, sources)
        return found, None
    return {}, open_queue(box.bootstrap, options.to).topic if box.of_queue else options.to


def _run(options: RedriveOptions, run: Run) -> Report:
    began_s = time.monotonic()
    if options.queue is not None:
        box = open_queue(options.bootstrap, options.queue)
    else:
        box = open_topic(options.bootstrap, options.topic or "", options.group, prepare=not options.dry_run)
    outcome = Outcome(name=options.queue or options.topic or "", is_dry=options.dry_run, limit=options.limit)
    if not options.dry_run:
        outcome.recovered = recover(box)
    run.on_step(f"examining the dead letters of {box.topic}")
    known = surveys(box)
    if any(survey.start < survey.end for survey in known.values()):
        _go(options, run, box, known, outcome)
    return outcome.report(time.monotonic() - began_s)


def _go(options: RedriveOptions, run: Run, box: Box, known: Mapping[int, Survey], outcome: Outcome) -> None:
    """What is to be done about letters that are there, and doing it."""
    examined = _examined(options, run, box, known)
    sent_back(examined, {"": ""}, None, options.fix, keeps_partition=False)  # a fix that cannot be says so now
    judged = _judged(options, examined)
    outcome.causes = _causes(judged)
    sources = {each.source for each in outcome.causes if each.source and each.matched}
    topics, to = _targets(options, box, sources)
    outcome.targets = {each.source: to or topics.get(each.source or "") for each in outcome.causes}
    wanted: dict[int, list[int]] = {}
    if outcome.sendable and not options.dry_run:
        wanted = _wanted(judged, None if to is not None else sorted(topics))
    judged.unpersist()
    if options.dry_run and options.examples:
        outcome.examples = _examples(options, _examined(options, run, box, known), outcome)
    if wanted:
        _redrive(options, run, box, wanted, topics, to, outcome)


def _examples(options: RedriveOptions, frame: "DataFrame", outcome: Outcome) -> list[Example]:
    """The first letters that match, before and after the fix."""
    from pyspark.sql import functions as fn

    chosen = frame.where("_match").orderBy("partition", "offset").limit(options.examples)
    after = fn.expr(options.fix.get("value", "value")).cast("string")
    rows = chosen.select("partition", "offset", "source", "value", after.alias("after")).collect()
    return [Example(row[0], row[1], outcome.targets.get(row[2]), row[3], row[4]) for row in rows]


PIPELINE: Final = Pipeline(
    name="redrive",
    summary="Dead letters examined, filtered, fixed by SQL and sent back, each once",
    about="""\
Reads a dead-letter queue without receiving from it. Letters that match are claimed, fixed, written to the queues
that they came from, and deleted: each once, also if this process is killed. All others stay as they are, with their
receive counts. SQL sees value, key, attributes (a map), source, receive_count, sent_at, dead_at, message_id,
partition, offset, and with a schema json. A dry run only shows what would be done. With `topic` the dead letters of
share groups are sent back; a share group keeps which of them are done.""",
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
