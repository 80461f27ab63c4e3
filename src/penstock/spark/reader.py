"""The batch reader: spans are planned on the driver, and read by tasks."""

from collections.abc import Iterable, Iterator
from typing import TYPE_CHECKING

from pyspark.sql.datasource import DataSourceReader, Filter, InputPartition

from penstock.foundation.ids import TopicPartition
from penstock.spark import offset_bounds
from penstock.spark.driver import Driver
from penstock.spark.errors import plainly
from penstock.spark.filters import Narrowed, narrow
from penstock.spark.read_options import ReadOptions
from penstock.spark.read_plan import Span, split
from penstock.spark.span_fetch import FetchPlan

if TYPE_CHECKING:
    import pyarrow as pa


class SpanPartition(InputPartition):
    """What one task reads. It travels to the executor."""

    def __init__(self, span: Span, topic_id: bytes) -> None:
        self.span = span
        self.topic_id = topic_id


def read_partition(
    options: ReadOptions, columns: tuple[str, ...], partition: InputPartition
) -> "Iterator[pa.RecordBatch]":
    """The rows of a task. Where nothing is to be read, Spark has a task with nothing in it."""
    if not isinstance(partition, SpanPartition):
        return
    from penstock.spark.rows import read_rows  # pyarrow's compute functions take a while, and only tasks need them

    plan = FetchPlan(
        span=partition.span,
        topic_id=partition.topic_id,
        bootstrap=options.bootstrap,
        client=options.client,
        settings=options.fetch,
        committed=options.committed,
        fail_on_data_loss=options.fail_on_data_loss,
    )
    with plainly():
        yield from read_rows(plan, columns)


class BatchReader(DataSourceReader):
    """Made on the driver, where it plans; a copy of it reads in each task."""

    def __init__(self, options: ReadOptions, columns: tuple[str, ...]) -> None:
        self._options = options
        self._columns = columns
        self._narrowed = Narrowed()

    def partitions(self) -> list[InputPartition]:
        with plainly():
            driver = Driver(self._options)
            try:
                return self._plan(driver)
            finally:
                driver.close()

    def _plan(self, driver: Driver) -> list[InputPartition]:
        ids = driver.partitions()
        found = offset_bounds.spans(driver, self._options, list(ids))
        left = [self._narrowed.narrow(span) for span in found if self._narrowed.wants(span.name)]
        left = self._after_time(driver, [span for span in left if span.size > 0])
        cut = split(left, tasks_min=self._options.tasks_min, records_max=self._options.records_per_task_max)
        return [SpanPartition(span, ids[span.name]) for span in cut]

    def _after_time(self, driver: Driver, spans: list[Span]) -> list[Span]:
        """Everything before the first record of the time asked for is earlier; there may be none so late."""
        time_ms = self._narrowed.time_least_ms
        if time_ms is None:
            return spans
        first: dict[TopicPartition, int] = driver.at_times(dict.fromkeys((span.name for span in spans), time_ms))
        return [Span(span.name, max(span.start, first[span.name]), span.end) for span in spans if span.name in first]

    def read(self, partition: InputPartition) -> "Iterator[pa.RecordBatch]":
        return read_partition(self._options, self._columns, partition)


class FilteringReader(BatchReader):
    """One that takes filters from Spark, with the option `pushFilters`.

    It is not the usual one, since Spark 4.3 keeps the plan of a frame's first scan for all that follow: with one
    filter's spans, a second query on the same frame would miss rows. Spark also refuses it unless
    `spark.sql.python.filterPushdown.enabled` is true, and says so.
    """

    def pushFilters(self, filters: list[Filter]) -> Iterable[Filter]:  # noqa: N802
        self._narrowed, again = narrow(filters)
        return again
