"""What a pipeline is: options that are checked before Spark starts, and a function that Spark runs."""

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from threading import Event
from typing import TYPE_CHECKING, Any, Final, Generic, TypeVar

from penstock.client.address import BOOTSTRAP_DEFAULT
from penstock.spark.pipelines.document import Place, Problem
from penstock.spark.pipelines.options import (
    Written,
    bootstrap,
    choice,
    duration,
    option,
    pairs,
    text,
    written,
)

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

    from penstock.spark.pipelines.query_progress import Batch

O = TypeVar("O", bound="Common")  # noqa: E741 - the options of one pipeline

EXACTLY_ONCE: Final = "exactly-once"
AT_LEAST_ONCE: Final = "at-least-once"
HOME: Final = "penstock-pipelines"
"""Where checkpoints are kept unless the pipeline says where: a folder beside whoever runs it."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Common:
    """What every pipeline can be told."""

    name: str = option(text, "What the pipeline is called; its file's name if it is left out", default="")
    bootstrap: str = option(bootstrap, "Brokers to begin with; one that answers is enough", default=BOOTSTRAP_DEFAULT)
    spark: Mapping[str, str] = option(pairs, "Settings of Spark, by Spark's names", default={})
    written: Written = written()


@dataclass(frozen=True, slots=True, kw_only=True)
class Streaming(Common):
    """What pipelines can be told that run on."""

    trigger: float = option(duration, "How often a batch begins, when there is something", default=1.0)
    checkpoint: str | None = option(
        text, f"Where its progress is kept; {HOME}/NAME/checkpoint if it is left out", default=None, metavar="FOLDER"
    )
    delivery: str = option(
        choice(EXACTLY_ONCE, AT_LEAST_ONCE), "What is promised of each message that is written", default=EXACTLY_ONCE
    )


@dataclass(frozen=True, slots=True, kw_only=True)
class Need:
    """Topics and groups that must be there before Spark starts."""

    bootstrap: str
    at: Place
    """Where the brokers are named."""
    topics: Mapping[str, Place] = field(default_factory=dict)
    pattern: str | None = None
    """A regular expression of which at least one topic must be found."""
    groups: Mapping[str, Place] = field(default_factory=dict)


@dataclass(frozen=True, slots=True, kw_only=True)
class Sheet:
    """A table of a report; columns whose name begins with `#` hold numbers."""

    title: str
    columns: Sequence[str]
    rows: Sequence[Sequence[object]]


@dataclass(frozen=True, slots=True, kw_only=True)
class Report:
    """How it went."""

    verdict: str
    is_well: bool = True
    facts: Mapping[str, object] = field(default_factory=dict)
    sheets: Sequence[Sheet] = ()

    def as_json(self) -> dict[str, object]:
        sheets = {
            sheet.title: [
                {column.removeprefix("#").lower(): cell for column, cell in zip(sheet.columns, row, strict=True)}
                for row in sheet.rows
            ]
            for sheet in self.sheets
        }
        return {"event": "report", "ok": self.is_well, "verdict": self.verdict, **self.facts, "tables": sheets}


@dataclass(frozen=True, slots=True, kw_only=True)
class Run:
    """What a pipeline is run with."""

    spark: "SparkSession"
    once: bool
    """Whether to end when everything is read that was there at the start."""
    on_batch: Callable[["Batch"], None]
    on_step: Callable[[str], None]
    """Told what is being done, by whoever has no batches."""
    base: Path
    """The folder that relative paths begin in."""
    stopping: Event = field(default_factory=Event)
    """Set when it is to end before it is done."""

    def path(self, written_as: str) -> Path:
        return (self.base / written_as).resolve()

    def checkpoint(self, options: Streaming) -> Path:
        if options.checkpoint is not None:
            return self.path(options.checkpoint)
        return self.path(f"{HOME}/{options.name}/checkpoint")


def _nothing(_: Any) -> Iterable[Problem]:
    return ()


@dataclass(frozen=True, slots=True, kw_only=True)
class Pipeline(Generic[O]):
    """A ready pipeline."""

    name: str
    summary: str
    about: str
    example: str
    options: type[O]
    needs: Callable[[O], Iterable[Need]]
    run: Callable[[O, Run], Report]
    check: Callable[[O], Iterable[Problem]] = _nothing
    """What is wrong with options that are each right alone."""
    examine: Callable[[O], Iterable[Problem]] = _nothing
    """What else Spark would find wrong: found by `validate`, which does not start it."""
    streams: bool = False
    """Whether it can run on and on."""
