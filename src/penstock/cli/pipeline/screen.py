"""Progress of a running pipeline: a live table on a terminal, lines elsewhere, JSON for scripts."""

import time
from collections import deque
from collections.abc import Callable
from contextlib import AbstractContextManager
from typing import TYPE_CHECKING, Any, Final, Protocol

import click

from penstock.cli.common import echo_json, echo_table

if TYPE_CHECKING:
    from rich.console import RenderableType

    from penstock.spark.pipelines.pipeline import Report
    from penstock.spark.pipelines.query_progress import Batch

BATCHES_SHOWN: Final = 12
IDLE: Final = 0
"""Number of rows (0) in the batch of a Spark trigger that found no data; such batches are not shown."""


class ProgressDisplay(Protocol):
    """Shows a pipeline's batches, steps and final report."""

    def __enter__(self) -> Any: ...
    def __exit__(self, *args: Any) -> Any: ...
    def batch(self, batch: "Batch") -> None: ...
    def step(self, step: str) -> None: ...
    def report(self, report: "Report") -> None: ...


class LineDisplay:
    """Prints lines of text or JSON: for pipes, logs and scripts."""

    def __init__(self, as_json: bool) -> None:
        self._as_json = as_json
        self._began_s = time.monotonic()

    def __enter__(self) -> "LineDisplay":
        return self

    def __exit__(self, *args: Any) -> None:
        return None

    def batch(self, batch: "Batch") -> None:
        if self._as_json:
            echo_json(batch.as_json())
        elif batch.rows > IDLE:
            lag = "" if batch.lag is None else f", lag {batch.lag}"
            late = "" if batch.late_s is None else f", {batch.late_s:.1f} s late"
            speed = f"{batch.rows} rows in {batch.seconds:.1f} s ({batch.rows_per_s:.0f}/s)"
            click.echo(f"batch {batch.number}: {speed}{lag}{late}")

    def step(self, step: str) -> None:
        if not self._as_json:
            click.echo(f"{_duration(time.monotonic() - self._began_s):>7}  {step} …", err=True)

    def report(self, report: "Report") -> None:
        if self._as_json:
            echo_json(report.as_json())
        else:
            show_report(report)


class LiveDisplay:
    """A live table, redrawn as batches finish."""

    def __init__(self, name: str) -> None:
        from rich.live import Live

        self._name = name
        self._began_s = time.monotonic()
        self._step = "starting"
        self._step_began_s = self._began_s
        self._batches: deque[Batch] = deque(maxlen=BATCHES_SHOWN)
        self._rows = 0
        self._live: AbstractContextManager[Any] = Live(
            get_renderable=self._draw, refresh_per_second=4, transient=True
        )

    def __enter__(self) -> "LiveDisplay":
        self._live.__enter__()
        return self

    def __exit__(self, *args: Any) -> None:
        self._live.__exit__(*args)

    def batch(self, batch: "Batch") -> None:
        if not self._batches:
            self.step("running; Ctrl-C stops it")
        self._rows += batch.rows
        if batch.rows > IDLE or not self._batches:
            self._batches.append(batch)

    def step(self, step: str) -> None:
        self._step = step
        self._step_began_s = time.monotonic()

    def report(self, report: "Report") -> None:
        show_report(report)

    def _draw(self) -> "RenderableType":
        from rich.console import Group
        from rich.spinner import Spinner
        from rich.table import Table
        from rich.text import Text

        now_s = time.monotonic()
        spent = _duration(now_s - self._began_s)
        step = f"  {self._step} ({_duration(now_s - self._step_began_s)})  "
        heading = Spinner("dots", Text.assemble((self._name, "bold"), step, (spent, "dim")))
        if not self._batches:
            return heading
        table = Table(box=None, pad_edge=False, header_style="bold dim")
        for column, _ in _COLUMNS:
            table.add_column(column, justify="right", min_width=8)
        for batch in self._batches:
            is_last = batch is self._batches[-1]
            table.add_row(*(cell(batch) for _, cell in _COLUMNS), style="" if is_last else "dim")
        busy_s = sum(batch.seconds for batch in self._batches) or 1.0
        recent = sum(batch.rows for batch in self._batches) / busy_s
        foot = Text.assemble((f"{self._rows:,}", "bold"), " rows  ", (f"{recent:,.0f}", "bold"), " rows/s of late")
        return Group(heading, table, foot)


def _lag(batch: "Batch") -> str:
    return "-" if batch.lag is None else f"{batch.lag:,}"


def _late(batch: "Batch") -> str:
    return "-" if batch.late_s is None else _duration(batch.late_s)


_COLUMNS: Final[tuple[tuple[str, Callable[["Batch"], str]], ...]] = (
    ("BATCH", lambda batch: str(batch.number)),
    ("ROWS", lambda batch: f"{batch.rows:,}"),
    ("SECONDS", lambda batch: f"{batch.seconds:.1f}"),
    ("ROWS/S", lambda batch: f"{batch.rows_per_s:,.0f}"),
    ("LAG", _lag),
    ("LATENESS", _late),
    ("DROPPED", lambda batch: f"{batch.dropped:,}"),
)


def _duration(seconds: float) -> str:
    """Formats a duration as seconds with one decimal, from a minute on as m:ss, from an hour on as h:mm:ss.

    >>> _duration(75)
    '1:15'
    """
    if seconds < 60:
        return f"{seconds:.1f} s"
    minutes, rest = divmod(int(seconds), 60)
    hours, minutes = divmod(minutes, 60)
    return f"{hours}:{minutes:02}:{rest:02}" if hours else f"{minutes}:{rest:02}"


def show_report(report: "Report") -> None:
    """Prints the report's tables, facts and verdict."""
    for report_table in report.tables:
        click.secho(f"\n{report_table.title}", bold=True)
        echo_table(report_table.columns, report_table.rows)
    if report.facts:
        click.echo()
        facts = ", ".join(f"{name.replace('_', ' ')} {value}" for name, value in report.facts.items())
        click.echo(facts)
    click.secho(f"\n{report.verdict}", bold=True, fg="green" if report.is_ok else "red")
