"""Tasks of a query, each with its Spark context, and what read_committed readers see."""

from collections.abc import Iterable, Iterator
from contextlib import contextmanager

import pyarrow as pa
from confluent_kafka import IsolationLevel, TopicPartition
from confluent_kafka.admin import AdminClient, OffsetSpec
from pyspark import TaskContext
from pyspark.sql.types import BinaryType, StructType

from penstock.foundation.spark_ids import query_of
from penstock.spark.writer import QUERY_ID, StreamWriter, TaskCommitMessage, stream_writer
from penstock.wire.messages.list_transactions import ListTransactionsRequest, ListTransactionsResponse
from tests.clients.driver_confluent import QUIET
from tests.clients.raw import RawClient
from tests.clients.transactional_producers import READ_COMMITTED, read_to_end
from tests.clients.waiting import PATIENCE_S, wait_until

SCHEMA = StructType().add("value", BinaryType())
"""Of rows that are nothing but their values."""


def numbers(start: int, end: int) -> list[bytes]:
    return [b"%d" % number for number in range(start, end)]


def rows(values: Iterable[bytes], size: int = 100) -> Iterator[pa.RecordBatch]:
    """Arrow batches of so many rows, as Spark would give them."""
    wanted = list(values)
    for start in range(0, len(wanted), size):
        yield pa.RecordBatch.from_pydict({"value": pa.array(wanted[start : start + size], pa.binary())})


@contextmanager
def in_task(query: str, partition: int = 0, attempt: int = 0) -> Iterator[None]:
    """The task context."""
    TaskContext._setTaskContext(None)
    TaskContext(partitionId=partition, attemptNumber=attempt, localProperties={QUERY_ID: query})
    try:
        yield
    finally:
        TaskContext._setTaskContext(None)


class Query:
    """A streaming query whose tasks and batches the test runs itself, in any order."""

    def __init__(self, bootstrap: str, topic: str, query: str, **options: str) -> None:
        named = {name.replace("__", "."): value for name, value in options.items()}
        self._options = {"kafka.bootstrap.servers": bootstrap, "topic": topic, **named}
        self.query = query

    def writer(self) -> StreamWriter:
        """A new one each time, as Spark makes them."""
        return stream_writer(self._options, SCHEMA, overwrite=False)

    def task(self, values: Iterable[bytes], partition: int = 0, attempt: int = 0) -> TaskCommitMessage:
        return self.stream(rows(values), partition, attempt)

    def stream(self, batches: Iterator[pa.RecordBatch], partition: int = 0, attempt: int = 0) -> TaskCommitMessage:
        with in_task(self.query, partition, attempt):
            return self.writer().write(batches)

    def commit(self, batch_id: int, *written: TaskCommitMessage) -> None:
        self.writer().commit(list(written), batch_id)

    def abort(self, batch_id: int, *written: TaskCommitMessage | None) -> None:
        self.writer().abort(list(written), batch_id)


def open_transactions(address: tuple[str, int], query: str | None = None) -> set[str]:
    """The ids of tasks that have an open transaction; None: of any query."""
    with RawClient(address) as raw:
        request = ListTransactionsRequest(state_filters=["Ongoing"], producer_id_filters=())
        answer: ListTransactionsResponse = raw.ask(request, 0)
        found = {state.transactional_id for state in answer.transaction_states}
        return {name for name in found if query is None or query_of(name) == query}


def committed(bootstrap: str, topic: str, partitions: int = 1) -> list[bytes]:
    """All values that a reader of committed records gets, when everything that was decided is known everywhere."""
    admin = AdminClient({"bootstrap.servers": bootstrap, **QUIET})
    names = [TopicPartition(topic, number) for number in range(partitions)]

    def ends(isolation: IsolationLevel) -> dict[TopicPartition, int]:
        asked = admin.list_offsets(dict.fromkeys(names, OffsetSpec.latest()), isolation_level=isolation)
        return {name: answer.result(PATIENCE_S).offset for name, answer in asked.items()}

    wait_until(
        lambda: ends(IsolationLevel.READ_COMMITTED) == ends(IsolationLevel.READ_UNCOMMITTED),
        f"no transaction is open in {topic}",
    )
    return [value for name in names for value in read_to_end(bootstrap, topic, name.partition, READ_COMMITTED)]
