"""Follows streaming queries while they run: progress of each micro-batch, and totals."""

import json
import time
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from datetime import UTC, datetime
from threading import Event
from typing import TYPE_CHECKING, Any, Final

if TYPE_CHECKING:
    from pyspark.sql.streaming import StreamingQuery
    from pyspark.sql.streaming.listener import StreamingQueryProgress

_POLL_S: Final = 0.2


@dataclass(frozen=True, slots=True, kw_only=True)
class Batch:
    """Progress of one micro-batch, or (with 0 rows) of a trigger that found no new records."""

    number: int
    rows: int
    seconds: float
    rows_per_s: float
    lag: int | None
    """Number of messages not read yet at the end of the micro-batch; None if unknown."""
    late_s: float | None
    """Seconds by which the watermark is behind the time of the report; None if there is no watermark."""
    dropped: int
    """Number of rows that were dropped because they were older than the watermark."""
    at_ms: int

    def as_json(self) -> dict[str, object]:
        return {
            "event": "batch",
            "batch": self.number,
            "rows": self.rows,
            "seconds": round(self.seconds, 3),
            "rows_per_second": round(self.rows_per_s, 1),
            "lag": self.lag,
            "late_seconds": None if self.late_s is None else round(self.late_s, 1),
            "dropped": self.dropped,
        }


@dataclass(slots=True, kw_only=True)
class Totals:
    batches: int = 0
    rows: int = 0
    dropped: int = 0
    busy_s: float = 0.0
    elapsed_s: float = 0.0
    lag: int | None = None
    late_s: float | None = None

    def add(self, batch: Batch) -> None:
        self.batches += batch.rows > 0
        self.rows += batch.rows
        self.dropped += batch.dropped
        self.busy_s += batch.seconds if batch.rows else 0.0
        self.lag = batch.lag if batch.lag is not None else self.lag
        self.late_s = batch.late_s if batch.late_s is not None else self.late_s

    @property
    def rows_per_s(self) -> float:
        return self.rows / self.busy_s if self.busy_s else 0.0

    def facts(self) -> dict[str, object]:
        found: dict[str, object] = {
            "batches": self.batches,
            "rows": self.rows,
            "seconds": round(self.elapsed_s, 1),
            "rows_per_second": round(self.rows_per_s),
        }
        if self.lag is not None:
            found["lag"] = self.lag
        if self.dropped:
            found["dropped_late"] = self.dropped
        return found


def batch_of(progress: Mapping[str, Any]) -> Batch:
    """Converts Spark's StreamingQueryProgress (as parsed JSON) into a Batch."""
    at = _time(progress["timestamp"])
    seconds = progress.get("durationMs", {}).get("triggerExecution", progress.get("batchDuration", 0)) / 1000
    rows = progress.get("numInputRows")
    if rows is None:  # progress reports lack the total if they came through Spark Connect
        rows = sum(source.get("numInputRows", 0) for source in progress.get("sources", []))
    watermark = progress.get("eventTime", {}).get("watermark")
    late_s = None
    if watermark is not None and (reached := _time(watermark)).year > 1970:  # 1970: no rows yet
        late_s = (at - reached).total_seconds()
    lags = [lag_of(source) for source in progress.get("sources", [])]
    known = [lag for lag in lags if lag is not None]
    return Batch(
        number=int(progress["batchId"]),
        rows=rows,
        seconds=seconds,
        rows_per_s=rows / seconds if seconds else 0.0,
        lag=sum(known) if known else None,
        late_s=late_s,
        dropped=sum(int(state.get("numRowsDroppedByWatermark", 0)) for state in progress.get("stateOperators", [])),
        at_ms=round(at.timestamp() * 1000),
    )


def _time(text: str) -> datetime:
    return datetime.fromisoformat(text.replace("Z", "+00:00")).astimezone(UTC)


def lag_of(source: Mapping[str, Any]) -> int | None:
    """Returns by how many offsets a source's `endOffset` is behind its `latestOffset`; None if unknown.

    >>> lag_of({"endOffset": {"orders": {"0": 5}}, "latestOffset": {"orders": {"0": 8, "1": 2}}})
    5
    """
    latest, end = _offsets(source.get("latestOffset")), _offsets(source.get("endOffset"))
    if not latest:
        return None
    return sum(max(0, offset - end.get(name, 0)) for name, offset in latest.items())


def _offsets(value: Any) -> dict[tuple[str, str], int]:
    if isinstance(value, str):
        try:
            value = json.loads(value)
        except ValueError:
            return {}
    if not isinstance(value, dict):
        return {}
    return {
        (topic, partition): offset
        for topic, partitions in value.items()
        if isinstance(partitions, dict)
        for partition, offset in partitions.items()
        if isinstance(offset, int)
    }


def watch(query: "StreamingQuery", on_batch: Callable[[Batch], None], stopping: Event) -> Totals:
    """Follows a streaming query until it ends, and returns the totals. Stops the query when `stopping` is set.

    If the query fails, raises Spark's own exception, which failures.py can explain.
    """
    watcher = _ProgressReporter(query, on_batch)
    began_s = time.monotonic()
    # Short polls: a signal cannot interrupt a long wait, as Java's reply must be read before the next call.
    while not query.awaitTermination(_POLL_S):  # type: ignore[arg-type] # annotated int, takes float
        watcher.report_new()
        if stopping.is_set():
            query.stop()
            break
    watcher.report_new()
    watcher.totals.elapsed_s = time.monotonic() - began_s
    return watcher.totals


class _ProgressReporter:
    """Calls `on_batch` once for each progress report of a query, and adds up the totals."""

    def __init__(self, query: "StreamingQuery", on_batch: Callable[[Batch], None]) -> None:
        self.totals = Totals()
        self._query = query
        self._on_batch = on_batch
        self._seen: tuple[int, str] = (-1, "")

    def report_new(self) -> None:
        last = self._query.lastProgress
        if last is None or self._position(last) <= self._seen:
            return  # avoids fetching recentProgress, which takes a hundred calls into Java
        for progress in self._query.recentProgress:
            if self._position(progress) > self._seen:
                self._seen = self._position(progress)
                batch = batch_of(json.loads(progress.json))
                self.totals.add(batch)
                self._on_batch(batch)

    @staticmethod
    def _position(progress: "StreamingQueryProgress") -> tuple[int, str]:
        return progress.batchId, progress.timestamp
