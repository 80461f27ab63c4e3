"""The streaming reader: plans the offset ranges of micro-batches, and commits progress to a consumer group.

Spark keeps one reader in a separate process while the query runs and calls one method at a time; each task reads with
a copy of the reader.
"""

import logging
import time
from collections.abc import Collection, Iterator
from typing import TYPE_CHECKING, Any, Final

from pyspark.sql.datasource import DataSourceStreamReader, InputPartition

from penstock.foundation.errors import PenstockError
from penstock.foundation.ids import TopicPartition
from penstock.spark import offset_bounds
from penstock.spark.driver import DriverClient, Partitions
from penstock.spark.errors import BadCheckpoint, BadOption, hide_tracebacks
from penstock.spark.positions import Positions, read_positions, write_positions
from penstock.spark.pyspark_versions import ReadAllAvailable, ReadLimit, ReadMaxRows, SupportsTriggerAvailableNow
from penstock.spark.read_options import ReadOptions
from penstock.spark.read_plan import OffsetRange, limit_offsets, split
from penstock.spark.read_schema import ReadColumns
from penstock.spark.reader import OffsetRangePartition, read_partition

if TYPE_CHECKING:
    import pyarrow as pa

GROUP_TIMEOUT_S: Final = 5.0
"""Timeout, in seconds, of an offset commit to the consumer group."""
GROUP_PAUSE_S: Final = 30.0
"""How long, in seconds, no offsets are committed to the consumer group after a failed commit."""
log = logging.getLogger(__name__)

Offsets = dict[str, Any]
"""Offsets by topic and partition, in the JSON form that Spark stores in its checkpoint."""


class StreamReader(DataSourceStreamReader, SupportsTriggerAvailableNow):
    def __init__(self, options: ReadOptions, columns: ReadColumns) -> None:
        self._options = options
        self._columns = columns
        self._driver: DriverClient | None = None
        self._latest: Positions = {}
        self._target: Positions | None = None
        """The end offsets of an availableNow query, set at its first micro-batch; None for other queries."""
        self._is_available_now = False
        self._triggered_s = float("-inf")
        self._committed: Positions = {}
        self._commit_retry_at_s = float("-inf")

    @property
    def driver(self) -> DriverClient:
        if self._driver is None:
            self._driver = DriverClient(self._options)
        return self._driver

    # -- offsets

    def initialOffset(self) -> Offsets:  # noqa: N802
        with hide_tracebacks():
            tps = list(self.driver.partitions())
            return write_positions(offset_bounds.initial_offsets(self.driver, self._options, tps))

    def prepareForTriggerAvailableNow(self) -> None:  # noqa: N802
        self._is_available_now = True

    def getDefaultReadLimit(self) -> ReadLimit:  # noqa: N802
        most = self._options.trigger.offsets_max
        return ReadAllAvailable() if most is None else ReadMaxRows(most)

    def latestOffset(self, start: Offsets, limit: ReadLimit) -> Offsets:  # noqa: N802
        with hide_tracebacks():
            start_offsets = self._parse_offsets(start)
            existing = self.driver.partitions(require_all=False)
            self._check_checkpoint(start_offsets, existing)
            # Spark calls this only when all earlier records are processed, also after the last batch of an
            # availableNow query, for which it never calls `commit`.
            self._commit_to_group(start_offsets, existing)
            self._latest = self._latest_offsets(existing)
            end = self._next_end(start_offsets, self._latest, limit)
            return start if end is None or end == start_offsets else write_positions(end)

    def _latest_offsets(self, existing: Partitions) -> Positions:
        if not self._is_available_now:
            return self.driver.latest_offsets(list(existing))
        if self._target is None:
            self._target = self.driver.latest_offsets(list(existing))
        return self._target

    def _next_end(self, start_offsets: Positions, latest: Positions, limit: ReadLimit) -> Positions | None:
        """Returns the end offsets of the next micro-batch; None while it must wait for more records."""
        if not latest:
            return None
        trigger = self._options.trigger
        new = [tp for tp in latest if tp not in start_offsets]
        start = start_offsets | (self.driver.earliest_offsets(new) if new else {})
        latest = {tp: end for tp, end in latest.items() if tp in start}
        if trigger.offsets_min is not None and not self._is_available_now:
            now_s = time.monotonic()
            behind = sum(max(end - start[tp], 0) for tp, end in latest.items())
            if behind < trigger.offsets_min and now_s - self._triggered_s < trigger.delay_ms / 1000:
                return None
            self._triggered_s = now_s
        return limit_offsets(limit.max_rows, start, latest) if isinstance(limit, ReadMaxRows) else latest

    def reportLatestOffset(self) -> Offsets | None:  # noqa: N802
        return write_positions(self._latest) or None

    # -- planning

    def partitions(self, start: Offsets, end: Offsets) -> list[InputPartition]:
        with hide_tracebacks():
            start_offsets, end_offsets = self._parse_offsets(start), self._parse_offsets(end)
            if start_offsets == end_offsets:
                return []
            ids = self.driver.partitions(require_all=False)
            tasks = split(
                self._plan_ranges(start_offsets, end_offsets, ids),
                tasks_min=self._options.tasks_min,
                records_max=self._options.records_per_task_max,
            )
            return [OffsetRangePartition(each, ids[each.tp]) for each in tasks]

    def _plan_ranges(self, start: Positions, end: Positions, ids: Partitions) -> Iterator[OffsetRange]:
        deleted = sorted(tp for tp in start.keys() | end.keys() if tp not in end or tp not in ids)
        if deleted:
            self._report_loss(f"{_format_partitions(deleted)} cannot be found any more", "with the others")
        first = self.driver.earliest_offsets([tp for tp in end if tp in ids])
        for tp in sorted(first):
            least, last = first[tp], end[tp]
            at = start.get(tp)
            if at is None:
                if least > 0:
                    self._report_loss(
                        f"partition {tp} is new, and begins at offset {least} instead of 0", "from there"
                    )
                at = least
            if last < at:
                self._report_loss(
                    f"partition {tp} was read up to offset {at}, and now ends at {last}: it was deleted and "
                    "recreated, or truncated",
                    f"from {last}",
                )
            elif at < least and at < last:
                self._report_loss(
                    f"partition {tp} begins at offset {least} and was read up to {at} only: the records between "
                    "were trimmed or expired",
                    f"from {least}",
                )
                at = least
            yield OffsetRange(tp, at, last)

    def _report_loss(self, what: str, remedy: str) -> None:
        offset_bounds.report_data_loss(self._options, what, remedy)

    def read(self, partition: InputPartition) -> "Iterator[pa.RecordBatch]":
        return read_partition(self._options, self._columns, partition)

    # -- the checkpoint

    def _parse_offsets(self, offsets: Offsets) -> Positions:
        try:
            return read_positions(offsets)
        except ValueError as error:
            raise BadCheckpoint(
                f"the checkpoint belongs to another source: {error}; give this query its own checkpointLocation"
            ) from None

    def _check_checkpoint(self, start_offsets: Positions, existing: Partitions) -> None:
        """Raises BadCheckpoint if the query reads none of the checkpoint's topics, even with failOnDataLoss=false."""
        selection = self._options.selection
        if start_offsets and existing and not any(selection.matches(tp.topic) for tp in start_offsets):
            topics = sorted({tp.topic for tp in start_offsets})
            raise BadCheckpoint(
                f"the checkpoint belongs to a query of {', '.join(topics)}, but this one reads {selection}; give it "
                "its own checkpointLocation, or the topics of the checkpoint"
            )

    # -- the consumer group

    def commit(self, end: Offsets) -> None:
        """Commits `end` to the consumer group; Spark calls it once all records before `end` are processed."""
        with hide_tracebacks():
            self._commit_to_group(self._parse_offsets(end), None)

    def _commit_to_group(self, done: Positions, existing: Collection[TopicPartition] | None) -> None:
        """Commits offsets of partitions in `existing` (None: of all) to the consumer group. Only logs a failure."""
        group = self._options.group
        offsets = {tp: offset for tp, offset in done.items() if existing is None or tp in existing}
        if group is None or not offsets or offsets == self._committed or time.monotonic() < self._commit_retry_at_s:
            return
        try:
            self.driver.commit_offsets(group, offsets, GROUP_TIMEOUT_S)
            self._committed = offsets
        except PenstockError as error:
            log.warning("group_commit_failed group=%s error=%r", group, str(error))
            self._commit_retry_at_s = time.monotonic() + GROUP_PAUSE_S

    def stop(self) -> None:
        if self._driver is not None:
            self._driver.close()
            self._driver = None


class UnlimitedStreamReader(StreamReader):
    """The reader for PySpark 4.1, which asks for the latest offsets without the start: each micro-batch has all."""

    def __init__(self, options: ReadOptions, columns: ReadColumns) -> None:
        trigger = options.trigger
        if trigger.offsets_max is not None or trigger.offsets_min is not None:
            raise BadOption("maxOffsetsPerTrigger and minOffsetsPerTrigger need PySpark 4.2 or newer")
        super().__init__(options, columns)

    def latestOffset(self) -> Offsets:  # type: ignore[override] # noqa: N802
        with hide_tracebacks():
            return write_positions(self.driver.latest_offsets(list(self.driver.partitions(require_all=False))))

    def partitions(self, start: Offsets, end: Offsets) -> list[InputPartition]:
        with hide_tracebacks():
            self._check_checkpoint(self._parse_offsets(start), self.driver.partitions(require_all=False))
        return super().partitions(start, end)


def _format_partitions(tps: list[TopicPartition]) -> str:
    return ("partition " if len(tps) == 1 else "partitions ") + ", ".join(map(str, tps))
