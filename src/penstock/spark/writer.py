"""Exactly-once batch and streaming sinks: tasks write in open transactions, the driver commits them together.

Each task writes in its own transaction and leaves it open. The driver asks the transaction coordinator to commit all
transactions of a batch atomically, recorded under the query id and batch id. If Spark repeats a batch that is already
committed, the coordinator finds that record, and the repeated writes are aborted. The proof is in docs/spark.md.
"""

from __future__ import annotations

import asyncio
import logging
import time
import uuid
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Final

from pyspark import TaskContext
from pyspark.sql.datasource import DataSourceArrowWriter, DataSourceStreamArrowWriter, WriterCommitMessage

from penstock.client.cluster import KafkaClient
from penstock.client.commit_set import (
    Outcome,
    Participant,
    SetBroken,
    abort_open,
    close_query,
    commit_set,
    transactional_id,
)
from penstock.client.transactional import BatchProducer, TransactionalProducer, transaction_states
from penstock.foundation.clock import SystemClock
from penstock.foundation.errors import PenstockError
from penstock.spark import table
from penstock.spark.background import BackgroundLoop, background_loop
from penstock.spark.errors import BadOption, hide_tracebacks
from penstock.spark.task_writer import TaskWriter
from penstock.spark.write_options import TRANSACTION_TIMEOUT, Delivery, WriteOptions
from penstock.spark.write_schema import WriteColumns

if TYPE_CHECKING:
    import pyarrow as pa
    from pyspark.sql.types import StructType

    from penstock.spark.values.encoding import RowEncoder

QUERY_ID: Final = "sql.streaming.queryId"
"""Name of the local property of a Spark task that holds the streaming query id. The checkpoint determines the id."""
ONLY_BATCH: Final = 0
"""The batch id of a batch write without `txnAppId`: its query has only this batch."""
ID_SLOTS: Final = 4
"""Number of transactional ids that each task attempt can choose from. Two stage attempts may run the same task at
once; with different ids the second does not fence the first."""
ABORT_TIMEOUT_S: Final = 10.0
"""How long, in seconds, a failed task tries to abort its transaction. Otherwise the query's next commit aborts it."""
STRAGGLERS_S: Final = 3.0
"""Seconds to wait for the last tasks of a failed batch to end: Spark kills Python workers after two seconds."""
_BUSY_RANK: Final = {"PrepareCommit": 1, "PrepareAbort": 1, "PrepareEpochFence": 1, "Ongoing": 2}
"""Rank of transaction states, 0 if not listed: a task takes the transactional id whose state ranks lowest."""
log = logging.getLogger(__name__)


@dataclass(frozen=True, slots=True, kw_only=True)
class TaskCommitMessage(WriterCommitMessage):
    """The result of a write task, which Spark sends to the driver."""

    query: str
    participant: Participant | None
    """The task's open transaction; None if the task wrote nothing, or wrote without transactions."""
    rows: int
    size_bytes: int


def batch_writer(options: Mapping[str, str], schema: StructType, overwrite: bool) -> BatchWriter:
    """Returns the writer for `df.write`. With exactly-once delivery, it writes all rows or none."""
    with hide_tracebacks():
        if overwrite:
            raise BadOption("mode 'overwrite' is not supported: topics are append-only; use mode('append')")
        given, mark = table.write_options(options, schema)
        parsed = WriteOptions.parse(given)
        columns, encoder = _plan(parsed, schema)
        if encoder is not None:
            encoder.plan()
        return BatchWriter(parsed, columns, mark, encoder)


def stream_writer(options: Mapping[str, str], schema: StructType, overwrite: bool) -> StreamWriter:
    """Returns the sink for `df.writeStream`. In complete mode each micro-batch appends the whole result."""
    with hide_tracebacks():
        given, mark = table.write_options(options, schema)
        parsed = WriteOptions.parse(given)
        columns, encoder = _plan(parsed, schema)
        return StreamWriter(parsed, columns, mark, encoder)


def _plan(options: WriteOptions, schema: StructType) -> tuple[WriteColumns, RowEncoder | None]:
    """Returns which columns are written, and the encoder of typed keys and values, if there are any."""
    typed = [part.part for part in options.typed.parts]
    columns = WriteColumns.of(schema, options.topic, typed)
    if not typed:
        return columns, None
    from penstock.spark.values.encoding import RowEncoder  # late: most queries do not need it

    return columns, RowEncoder(options, columns, schema)


class BatchWriter(DataSourceArrowWriter):
    """The writer for one `df.write`. Tasks, and the driver when it commits, use copies of the writer."""

    def __init__(
        self,
        options: WriteOptions,
        columns: WriteColumns,
        mark: int | None = None,
        encoder: RowEncoder | None = None,
    ) -> None:
        """`mark`: the default of the column `offset` that all rows have, if they are written to a SQL table.
        `encoder`: that of typed keys and values; None if they are binary."""
        self._options = options
        self._columns = columns
        self._mark = mark
        self._encoder = encoder
        self.query = options.txn_app or f"batch-{uuid.uuid4()}"

    def write(self, iterator: Iterator[pa.RecordBatch]) -> TaskCommitMessage:
        with hide_tracebacks():
            rows = encoded(table.checked(iterator, self._mark), self._encoder)
            return write_task(self._options, self._columns, self.query, rows)

    def commit(self, messages: Sequence[WriterCommitMessage | None]) -> None:
        if self._options.delivery is not Delivery.EXACTLY_ONCE:
            return
        with hide_tracebacks():
            if self._options.txn_app is not None:  # the query stays open: the write may be repeated
                commit_batch(self._options, self.query, self._options.txn_version, messages)
                return
            commit_batch(self._options, self.query, ONLY_BATCH, messages)
            end_query(self._options, self.query)

    def abort(self, messages: Sequence[WriterCommitMessage | None]) -> None:
        if self._options.delivery is not Delivery.EXACTLY_ONCE:
            return
        if self._options.txn_app is None:
            end_query(self._options, self.query)
        else:  # the query stays open: the write may be repeated
            abort_batch(self._options, self.query, messages)


class StreamWriter(DataSourceStreamArrowWriter):
    """The sink of a streaming query. Spark creates an instance in every task, and on the driver for every batch."""

    def __init__(
        self,
        options: WriteOptions,
        columns: WriteColumns,
        mark: int | None = None,
        encoder: RowEncoder | None = None,
    ) -> None:
        """`mark`: the default of the column `offset` that all rows have, if they are written to a SQL table.
        `encoder`: that of typed keys and values; None if they are binary."""
        self._options = options
        self._columns = columns
        self._mark = mark
        self._encoder = encoder

    def write(self, iterator: Iterator[pa.RecordBatch]) -> TaskCommitMessage:
        with hide_tracebacks():
            context = TaskContext.get()
            query = None if context is None else context.getLocalProperty(QUERY_ID)
            if query is None:
                raise BadOption(f"not a task of a streaming query: {QUERY_ID} is not set; use df.write instead")
            rows = encoded(table.checked(iterator, self._mark), self._encoder)
            return write_task(self._options, self._columns, query, rows)

    def commit(self, messages: Sequence[WriterCommitMessage | None], batchId: int) -> None:  # noqa: N803
        if self._options.delivery is not Delivery.EXACTLY_ONCE:
            return
        with hide_tracebacks():
            query = _query_of(messages)
            if query is not None:
                commit_batch(self._options, query, batchId, messages)

    def abort(self, messages: Sequence[WriterCommitMessage | None], batchId: int) -> None:  # noqa: N803
        if self._options.delivery is not Delivery.EXACTLY_ONCE:
            return
        # If no task finished, only killed tasks may have left transactions open; the next commit aborts those.
        query = _query_of(messages)
        if query is not None:
            abort_batch(self._options, query, messages)


# -- task


def encoded(rows: Iterator[pa.RecordBatch], encoder: RowEncoder | None) -> Iterator[pa.RecordBatch]:
    """Returns the rows with binary keys and values."""
    return rows if encoder is None else encoder.encode(rows)


def write_task(
    options: WriteOptions, columns: WriteColumns, query: str, iterator: Iterator[pa.RecordBatch]
) -> TaskCommitMessage:
    """Writes all rows of a task and leaves its transaction open; aborts the transaction on any error."""
    loop = background_loop()
    producer: BatchProducer | None = None
    writer: TaskWriter | None = None
    try:
        for rows in iterator:
            if not rows.num_rows:
                continue
            if writer is None:  # a task without rows has no transaction
                client = loop.client(options.bootstrap, options.client)
                producer = loop.run(_open_producer(client, options, query))
                writer = TaskWriter(
                    options, columns, client=client, producer=producer, background=loop, clock=SystemClock()
                )
            writer.write(rows)
        if writer is None or producer is None:
            return TaskCommitMessage(query=query, participant=None, rows=0, size_bytes=0)
        writer.finish()
    except BaseException:
        if producer is not None:
            _abort_task(loop, producer)
        raise
    participant = None
    if isinstance(producer, TransactionalProducer):
        participant = Participant(producer.transactional_id, *producer.identity)
    return TaskCommitMessage(query=query, participant=participant, rows=writer.rows, size_bytes=writer.size_bytes)


async def _open_producer(client: KafkaClient, options: WriteOptions, query: str) -> BatchProducer:
    if options.delivery is not Delivery.EXACTLY_ONCE:
        return await BatchProducer.open(client, options.send)
    context = TaskContext.get()
    assert context is not None, "tasks have a context"
    attempt = context.attemptNumber()
    ids = [transactional_id(query, context.partitionId(), f"{slot}.{attempt}") for slot in range(ID_SLOTS)]
    states = await transaction_states(client, ids)
    free = min(ids, key=lambda name: _BUSY_RANK.get(states.get(name, ""), 0))
    return await TransactionalProducer.open(
        client, free, timeout_ms=options.transaction_timeout_ms, settings=options.send
    )


def _abort_task(loop: BackgroundLoop, producer: BatchProducer) -> None:
    async def end() -> None:
        async with asyncio.timeout(ABORT_TIMEOUT_S):
            await (producer.abort() if isinstance(producer, TransactionalProducer) else producer.close())

    try:
        loop.run(end())
    except (PenstockError, TimeoutError) as error:
        log.warning("transaction left open until the query's next commit or its timeout: %s", error)


# -- driver


def _query_of(messages: Sequence[WriterCommitMessage | None]) -> str | None:
    return next((message.query for message in messages if isinstance(message, TaskCommitMessage)), None)


def commit_batch(
    options: WriteOptions, query: str, batch_id: int, messages: Sequence[WriterCommitMessage | None]
) -> None:
    """Commits the transactions of all tasks of a batch atomically, unless the batch is already committed.
    Raises SetBroken, and commits none, if one of the transactions has failed."""
    loop = background_loop()
    participants = [
        message.participant
        for message in messages
        if isinstance(message, TaskCommitMessage) and message.participant is not None
    ]
    client = loop.client(options.bootstrap, options.client)
    try:
        outcome = loop.run(commit_set(client, query=query, batch_id=batch_id, participants=participants))
    except SetBroken as error:
        raise SetBroken(
            f"batch {batch_id} was not committed, and none of its records are visible: {error}. If it took longer "
            f"than the transaction timeout, raise the option {TRANSACTION_TIMEOUT!r}, which is "
            f"{options.transaction_timeout_ms} (and the brokers' transaction.max.timeout.ms, if that is less); a "
            "streaming query repeats the batch when it is restarted",
            error.broken,
        ) from error
    if outcome is Outcome.DECIDED_BEFORE:
        log.warning("query=%s batch=%d was committed before: the repeated writes are aborted", query, batch_id)


def end_query(options: WriteOptions, query: str) -> None:
    """Closes the query, so that running tasks cannot begin more transactions. Records already committed stay.

    Spark does not wait for tasks that it kills, nor for tasks on executors that it has lost.
    """
    loop = background_loop()
    try:
        loop.run(close_query(loop.client(options.bootstrap, options.client), query=query))
    except PenstockError as error:
        log.warning("query=%s may leave transactions open until they time out: %s", query, error)


def abort_batch(options: WriteOptions, query: str, messages: Sequence[WriterCommitMessage | None]) -> None:
    """Aborts the open transactions of a failed batch at once, instead of letting them time out."""
    loop = background_loop()
    try:
        client = loop.client(options.bootstrap, options.client)
        count = loop.run(abort_open(client, query=query))
        if None in messages:  # some tasks may still run: Spark does not wait for those that it kills
            time.sleep(STRAGGLERS_S)
            count += loop.run(abort_open(client, query=query))
    except PenstockError as error:
        log.warning("query=%s leaves transactions open until they time out: %s", query, error)
    else:
        log.info("query=%s aborted=%d", query, count)
