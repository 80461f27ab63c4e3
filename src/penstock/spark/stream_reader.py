"""The streaming reader: how far a micro-batch goes, which spans it is made of, and what others hear of it.

Spark keeps one of these in a process of its own for as long as the query runs, and calls one method at a time; a
copy that has not planned anything reads in each task.
"""

import logging
import time
from collections.abc import Collection, Iterator
from typing import TYPE_CHECKING, Any, Final

from pyspark.sql.datasource import DataSourceStreamReader, InputPartition
from pyspark.sql.streaming.datasource import (
    ReadAllAvailable,
    ReadLimit,
    ReadMaxRows,
    SupportsTriggerAvailableNow,
)

from penstock.foundation.errors import PenstockError
from penstock.foundation.ids import TopicPartition
from penstock.spark import offset_bounds
from penstock.spark.driver import Driver, Partitions
from penstock.spark.errors import BadCheckpoint, plainly
from penstock.spark.positions import Positions, read_positions, write_positions
from penstock.spark.read_options import ReadOptions
from penstock.spark.read_plan import Span, share_out, split
from penstock.spark.reader import SpanPartition, read_partition

if TYPE_CHECKING:
    import pyarrow as pa

GROUP_TIMEOUT_S: Final = 5.0
"""How long a micro-batch may wait for the consumer group: its offsets are for people, not for Spark."""
GROUP_PAUSE_S: Final = 30.0
"""How long the group is left alone after it did not take them."""
log = logging.getLogger(__name__)

Offsets = dict[str, Any]
"""Positions as Spark keeps them in the checkpoint."""


class StreamReader(DataSourceStreamReader, SupportsTriggerAvailableNow):
    def __init__(self, options: ReadOptions, columns: tuple[str, ...]) -> None:
        self._options = options
        self._columns = columns
        self._driver: Driver | None = None
        self._latest: Positions = {}
        self._target: Positions | None = None
        """Where an availableNow query ends, from its first look on."""
        self._is_available_now = False
        self._triggered_s = float("-inf")
        self._told: Positions = {}
        self._tell_again_s = float("-inf")

    @property
    def driver(self) -> Driver:
        if self._driver is None:
            self._driver = Driver(self._options)
        return self._driver

    # -- how far

    def initialOffset(self) -> Offsets:  # noqa: N802
        with plainly():
            names = list(self.driver.partitions())
            return write_positions(offset_bounds.initial(self.driver, self._options, names))

    def prepareForTriggerAvailableNow(self) -> None:  # noqa: N802
        self._is_available_now = True

    def getDefaultReadLimit(self) -> ReadLimit:  # noqa: N802
        most = self._options.trigger.offsets_max
        return ReadAllAvailable() if most is None else ReadMaxRows(most)

    def latestOffset(self, start: Offsets, limit: ReadLimit) -> Offsets:  # noqa: N802
        with plainly():
            begun = self._read(start)
            there = self.driver.partitions(all_there=False)
            self._check_checkpoint(begun, there)
            # Spark asks for more only when it is done with all before: also after the last batch of an availableNow
            # query, for which it never calls `commit`.
            self._tell_group(begun, there)
            self._latest = self._ends(there)
            end = self._admit(begun, self._latest, limit)
            return start if end is None or end == begun else write_positions(end)

    def _ends(self, there: Partitions) -> Positions:
        if not self._is_available_now:
            return self.driver.latest(list(there))
        if self._target is None:
            self._target = self.driver.latest(list(there))
        return self._target

    def _admit(self, begun: Positions, latest: Positions, limit: ReadLimit) -> Positions | None:
        """Where the next micro-batch ends; None if it is too early for one."""
        if not latest:
            return None
        trigger = self._options.trigger
        new = [name for name in latest if name not in begun]
        start = begun | (self.driver.earliest(new) if new else {})
        latest = {name: end for name, end in latest.items() if name in start}
        if trigger.offsets_min is not None and not self._is_available_now:
            now_s = time.monotonic()
            behind = sum(max(end - start[name], 0) for name, end in latest.items())
            if behind < trigger.offsets_min and now_s - self._triggered_s < trigger.delay_ms / 1000:
                return None
            self._triggered_s = now_s
        return share_out(limit.max_rows, start, latest) if isinstance(limit, ReadMaxRows) else latest

    def reportLatestOffset(self) -> Offsets | None:  # noqa: N802
        return write_positions(self._latest) or None

    # -- what

    def partitions(self, start: Offsets, end: Offsets) -> list[InputPartition]:
        with plainly():
            begun, ended = self._read(start), self._read(end)
            if begun == ended:
                return []
            ids = self.driver.partitions(all_there=False)
            spans = split(
                self._spans(begun, ended, ids),
                tasks_min=self._options.tasks_min,
                records_max=self._options.records_per_task_max,
            )
            return [SpanPartition(span, ids[span.name]) for span in spans]

    def _spans(self, begun: Positions, ended: Positions, ids: Partitions) -> Iterator[Span]:
        gone = sorted(name for name in begun.keys() | ended.keys() if name not in ended or name not in ids)
        if gone:
            self._lose(f"{_listed(gone)} cannot be found any more", "with the others")
        first = self.driver.earliest([name for name in ended if name in ids])
        for name in sorted(first):
            least, last = first[name], ended[name]
            at = begun.get(name)
            if at is None:
                if least > 0:
                    self._lose(f"partition {name} is new, and begins at offset {least} instead of 0", "from there")
                at = least
            if last < at:
                self._lose(
                    f"partition {name} was read up to offset {at}, and now ends at {last}: it was deleted and made "
                    "again, or lost its end",
                    f"from {last}",
                )
            elif at < least and at < last:
                self._lose(
                    f"partition {name} begins at offset {least} and was read up to {at} only: what lies between was "
                    "trimmed or aged out",
                    f"from {least}",
                )
                at = least
            yield Span(name, at, last)

    def _lose(self, what: str, left: str) -> None:
        offset_bounds.report_loss(self._options, what, left)

    def read(self, partition: InputPartition) -> "Iterator[pa.RecordBatch]":
        return read_partition(self._options, self._columns, partition)

    # -- the checkpoint

    def _read(self, offsets: Offsets) -> Positions:
        try:
            return read_positions(offsets)
        except ValueError as error:
            raise BadCheckpoint(
                f"the checkpoint is of another source: {error}; give this query a checkpointLocation of its own"
            ) from None

    def _check_checkpoint(self, begun: Positions, there: Partitions) -> None:
        """Nothing that the checkpoint knows is asked for: that is a mistake, whatever is said of data loss."""
        choice = self._options.choice
        if begun and there and not any(choice.covers(name.topic) for name in begun):
            topics = sorted({name.topic for name in begun})
            raise BadCheckpoint(
                f"the checkpoint is of {', '.join(topics)}, and the query reads {choice}; give this query a "
                "checkpointLocation of its own, or the topics that it began with"
            )

    # -- the consumer group

    def commit(self, end: Offsets) -> None:
        """Spark is done with all before `end`, and has begun the batch after it."""
        with plainly():
            self._tell_group(self._read(end), None)

    def _tell_group(self, done: Positions, there: Collection[TopicPartition] | None) -> None:
        """The group shows how far the query is; that it cannot is no reason for the query to fail."""
        group = self._options.group
        told = {name: offset for name, offset in done.items() if there is None or name in there}
        if group is None or not told or told == self._told or time.monotonic() < self._tell_again_s:
            return
        try:
            self.driver.commit(group, told, GROUP_TIMEOUT_S)
            self._told = told
        except PenstockError as error:
            log.warning("group_not_told group=%s error=%r", group, str(error))
            self._tell_again_s = time.monotonic() + GROUP_PAUSE_S

    def stop(self) -> None:
        if self._driver is not None:
            self._driver.close()
            self._driver = None


def _listed(names: list[TopicPartition]) -> str:
    return ("partition " if len(names) == 1 else "partitions ") + ", ".join(map(str, names))
