"""The batch reader: plans offset ranges on the driver and reads them in tasks."""

from collections.abc import Iterable, Iterator
from typing import TYPE_CHECKING

from pyspark.sql.datasource import DataSourceReader, Filter, InputPartition

from penstock.foundation.ids import TopicPartition
from penstock.spark import offset_bounds
from penstock.spark.driver import DriverClient
from penstock.spark.errors import hide_tracebacks
from penstock.spark.filters import PushedFilters, push_filters
from penstock.spark.read_options import ReadOptions
from penstock.spark.read_plan import OffsetRange, split
from penstock.spark.read_schema import ReadColumns

if TYPE_CHECKING:
    import pyarrow as pa


class OffsetRangePartition(InputPartition):
    """The input partition of one Spark task: an offset range, serialized to the executor."""

    def __init__(self, offset_range: OffsetRange, topic_id: bytes) -> None:
        self.offset_range = offset_range
        self.topic_id = topic_id


def read_partition(
    options: ReadOptions, columns: ReadColumns, partition: InputPartition
) -> "Iterator[pa.RecordBatch]":
    """Yields the rows of one task; none for a partition of another type, which Spark passes for an empty read."""
    if not isinstance(partition, OffsetRangePartition):
        return
    # Imported late: only tasks use them, and every streaming query starts a process that plans its batches.
    from penstock.spark.range_fetch import FetchPlan
    from penstock.spark.rows import read_rows

    plan = FetchPlan(
        offset_range=partition.offset_range,
        topic_id=partition.topic_id,
        bootstrap=options.bootstrap,
        client=options.client,
        settings=options.fetch,
        committed=options.committed,
        fail_on_data_loss=options.fail_on_data_loss,
    )
    with hide_tracebacks():
        if not columns.readers:
            yield from read_rows(plan, columns.schema)
            return
        from penstock.spark.values.rows import read_typed_rows

        yield from read_typed_rows(plan, columns, options)


class BatchReader(DataSourceReader):
    """The reader of a batch query: plans tasks on the driver; each task reads with a copy of the reader."""

    def __init__(self, options: ReadOptions, columns: ReadColumns) -> None:
        self._options = options
        self._columns = columns
        self._pushed = PushedFilters()

    def partitions(self) -> list[InputPartition]:
        with hide_tracebacks():
            driver = DriverClient(self._options)
            try:
                return self._plan(driver)
            finally:
                driver.close()

    def _plan(self, driver: DriverClient) -> list[InputPartition]:
        ids = driver.partitions()
        found = offset_bounds.batch_ranges(driver, self._options, list(ids))
        clipped = [self._pushed.clip(each) for each in found if self._pushed.matches(each.tp)]
        clipped = self._skip_earlier(driver, [each for each in clipped if each.size > 0])
        tasks = split(clipped, tasks_min=self._options.tasks_min, records_max=self._options.records_per_task_max)
        return [OffsetRangePartition(each, ids[each.tp]) for each in tasks]

    def _skip_earlier(self, driver: DriverClient, ranges: list[OffsetRange]) -> list[OffsetRange]:
        """Starts each range at the first record of the filters' minimum time or later; drops ranges without one."""
        time_ms = self._pushed.time_min_ms
        if time_ms is None:
            return ranges
        first: dict[TopicPartition, int] = driver.offsets_for_times({each.tp: time_ms for each in ranges})
        return [
            OffsetRange(each.tp, max(each.start, first[each.tp]), each.end) for each in ranges if each.tp in first
        ]

    def read(self, partition: InputPartition) -> "Iterator[pa.RecordBatch]":
        return read_partition(self._options, self._columns, partition)


class FilteringReader(BatchReader):
    """A batch reader that accepts pushed filters, used if the option `pushFilters` is true.

    It is not the default, because Spark 4.3 reuses the plan of a DataFrame's first scan: a second query on the same
    DataFrame would miss rows. Spark rejects this reader unless `spark.sql.python.filterPushdown.enabled` is true.
    """

    def pushFilters(self, filters: list[Filter]) -> Iterable[Filter]:  # noqa: N802
        self._pushed, residual = push_filters(filters)
        return residual
