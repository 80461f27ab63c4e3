"""The pipeline interface: options, required topics and groups, run context and report."""

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from threading import Event
from typing import TYPE_CHECKING, Any, Final, Generic, TypeVar

from penstock.spark.pipelines.brokers import DEFAULT, Brokers
from penstock.spark.pipelines.document import Location, Problem
from penstock.spark.pipelines.options import (
    Locations,
    bootstrap,
    choice,
    connect_server,
    duration,
    locations,
    option,
    pairs,
    text,
)

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

    from penstock.spark.pipelines.query_progress import Batch

O = TypeVar("O", bound="CommonOptions")  # noqa: E741 - the options of one pipeline

EXACTLY_ONCE: Final = "exactly-once"
AT_LEAST_ONCE: Final = "at-least-once"
HOME: Final = "penstock-pipelines"
"""Name of the default folder for checkpoints, inside the current directory."""


@dataclass(frozen=True, slots=True, kw_only=True)
class CommonOptions:
    """The options that every pipeline has."""

    name: str = option(text, "The name of the pipeline; by default that of its file", default="")
    bootstrap: Brokers = option(bootstrap, "Bootstrap brokers; one that answers is enough", default=DEFAULT)
    spark: Mapping[str, str] = option(pairs, "Spark settings, by their names", default={})
    remote: str | None = option(
        connect_server, "A Spark Connect server to run on, unless --master is given", default=None
    )
    locations: Locations = locations()


@dataclass(frozen=True, slots=True, kw_only=True)
class StreamOptions(CommonOptions):
    """The options of pipelines that run streaming queries."""

    trigger: float = option(duration, "The trigger interval of micro-batches", default=1.0)
    checkpoint: str | None = option(
        text, f"The checkpoint folder; {HOME}/NAME/checkpoint by default", default=None, metavar="FOLDER"
    )
    delivery: str = option(
        choice(EXACTLY_ONCE, AT_LEAST_ONCE), "The delivery guarantee for written messages", default=EXACTLY_ONCE
    )


@dataclass(frozen=True, slots=True, kw_only=True)
class Need:
    """What a pipeline requires of a cluster before Spark starts: reachable brokers, topics and consumer groups."""

    bootstrap: Brokers
    location: Location
    """Location (file, line, column) in the error message if no broker answers or no topic matches `pattern`."""
    topics: Mapping[str, Location] = field(default_factory=dict)
    pattern: str | None = None
    """A regular expression that must match at least one topic."""
    groups: Mapping[str, Location] = field(default_factory=dict)


@dataclass(frozen=True, slots=True, kw_only=True)
class ReportTable:
    """A table of a report; columns whose name begins with `#` are formatted as numbers."""

    title: str
    columns: Sequence[str]
    rows: Sequence[Sequence[object]]


@dataclass(frozen=True, slots=True, kw_only=True)
class Report:
    """The result of a pipeline run."""

    verdict: str
    is_ok: bool = True
    facts: Mapping[str, object] = field(default_factory=dict)
    tables: Sequence[ReportTable] = ()

    def as_json(self) -> dict[str, object]:
        tables = {
            each.title: [
                {column.removeprefix("#").lower(): cell for column, cell in zip(each.columns, row, strict=True)}
                for row in each.rows
            ]
            for each in self.tables
        }
        return {"event": "report", "ok": self.is_ok, "verdict": self.verdict, **self.facts, "tables": tables}


@dataclass(frozen=True, slots=True, kw_only=True)
class Run:
    """The context of a pipeline run: Spark session, base folder and callbacks."""

    spark: "SparkSession"
    once: bool
    """Whether the run ends when all records available at its start are processed."""
    on_batch: Callable[["Batch"], None]
    on_step: Callable[[str], None]
    """Callback that gets a description of the current step, for pipelines without micro-batches."""
    base: Path
    """The folder against which relative paths in the options are resolved."""
    stopping: Event = field(default_factory=Event)
    """Event that the caller sets to end the run early."""

    def path(self, written_as: str) -> Path:
        return (self.base / written_as).resolve()

    def checkpoint(self, options: StreamOptions) -> Path:
        if options.checkpoint is not None:
            return self.path(options.checkpoint)
        return self.path(f"{HOME}/{options.name}/checkpoint")


def _nothing(_: Any) -> Iterable[Problem]:
    return ()


@dataclass(frozen=True, slots=True, kw_only=True)
class Pipeline(Generic[O]):
    """A ready-made pipeline: its name, options and functions."""

    name: str
    summary: str
    about: str
    example: str
    options: type[O]
    needs: Callable[[O], Iterable[Need]]
    run: Callable[[O, Run], Report]
    check: Callable[[O], Iterable[Problem]] = _nothing
    """Function that returns problems of options that do not fit together."""
    examine: Callable[[O], Iterable[Problem]] = _nothing
    """Function that finds, without Spark, errors that Spark would report; for `penstock pipeline validate`."""
    streams: bool = False
    """Whether the pipeline can run continuously, as a streaming query."""
