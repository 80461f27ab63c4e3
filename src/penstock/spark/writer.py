"""Writing from Spark: what a task does with its rows, and what the driver decides about all of them.

Every task writes in a transaction of its own and leaves it open. The driver has the coordinator commit those of a
whole batch by one decision, which is kept under the query and the batch's number: a batch that Spark does again is
found to be decided, and what was written again is aborted. The proof is in docs/spark.md.
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
from penstock.spark.background import Background, background
from penstock.spark.errors import BadOption, plainly
from penstock.spark.task_writer import TaskWriter
from penstock.spark.write_options import TRANSACTION_TIMEOUT, Delivery, WriteOptions
from penstock.spark.write_schema import WriteColumns

if TYPE_CHECKING:
    import pyarrow as pa
    from pyspark.sql.types import StructType

QUERY_ID: Final = "sql.streaming.queryId"
"""The local property by which tasks know their streaming query: another checkpoint is another query."""
ONLY_BATCH: Final = 0
"""The number of a batch write, which has a query of its own."""
SLOTS: Final = 4
"""Transactional ids of one attempt of a task. Spark does not tell Python the attempt of the stage: two of them may be
at the same task at a time, and then the second must not shut out the first."""
GIVE_UP_S: Final = 10.0
"""How long a task that has failed tries to abort its transaction; after that it is left to the next decision."""
STRAGGLERS_S: Final = 3.0
"""After what time the tasks of a batch that has failed are gone: Spark kills its Python workers after two seconds."""
_BUSY: Final = {"PrepareCommit": 1, "PrepareAbort": 1, "PrepareEpochFence": 1, "Ongoing": 2}
"""States of ids that are not at rest: those about to be, and those that someone may be writing under."""
log = logging.getLogger(__name__)


@dataclass(frozen=True, slots=True, kw_only=True)
class Written(WriterCommitMessage):
    """What a task tells the driver."""

    query: str
    participant: Participant | None
    """The transaction that it left open, if it wrote anything and in one."""
    rows: int
    size_bytes: int


def batch_writer(options: Mapping[str, str], schema: StructType, overwrite: bool) -> BatchWriter:
    """What `df.write` writes with: all rows, or none."""
    with plainly():
        if overwrite:
            raise BadOption("mode 'overwrite' cannot be: a topic is only added to; use mode('append')")
        parsed = WriteOptions.parse(options)
        return BatchWriter(parsed, WriteColumns.of(schema, parsed.topic))


def stream_writer(options: Mapping[str, str], schema: StructType, overwrite: bool) -> StreamWriter:
    """What `df.writeStream` writes with. In complete mode, which overwrites, every batch adds the whole result."""
    with plainly():
        parsed = WriteOptions.parse(options)
        return StreamWriter(parsed, WriteColumns.of(schema, parsed.topic))


class BatchWriter(DataSourceArrowWriter):
    """One batch write. Made on the driver; tasks, and the driver when it commits, have copies of it."""

    def __init__(self, options: WriteOptions, columns: WriteColumns) -> None:
        self._options = options
        self._columns = columns
        self.query = options.txn_app or f"batch-{uuid.uuid4()}"

    def write(self, iterator: Iterator[pa.RecordBatch]) -> Written:
        with plainly():
            return write_task(self._options, self._columns, self.query, iterator)

    def commit(self, messages: Sequence[WriterCommitMessage | None]) -> None:
        if self._options.delivery is not Delivery.EXACTLY_ONCE:
            return
        with plainly():
            if self._options.txn_app is not None:  # kept: it may be done again
                decide(self._options, self.query, self._options.txn_version, messages)
                return
            decide(self._options, self.query, ONLY_BATCH, messages)
            close(self._options, self.query)

    def abort(self, messages: Sequence[WriterCommitMessage | None]) -> None:
        if self._options.delivery is not Delivery.EXACTLY_ONCE:
            return
        if self._options.txn_app is None:
            close(self._options, self.query)
        else:  # what it is done again under
            abandon(self._options, self.query, messages)


class StreamWriter(DataSourceStreamArrowWriter):
    """The sink of a streaming query. Every task, and the driver for every batch, makes one anew."""

    def __init__(self, options: WriteOptions, columns: WriteColumns) -> None:
        self._options = options
        self._columns = columns

    def write(self, iterator: Iterator[pa.RecordBatch]) -> Written:
        with plainly():
            context = TaskContext.get()
            query = None if context is None else context.getLocalProperty(QUERY_ID)
            if query is None:
                raise BadOption(f"this is not a task of a streaming query: {QUERY_ID} is not set; use df.write")
            return write_task(self._options, self._columns, query, iterator)

    def commit(self, messages: Sequence[WriterCommitMessage | None], batchId: int) -> None:  # noqa: N803
        if self._options.delivery is not Delivery.EXACTLY_ONCE:
            return
        with plainly():
            query = _query_of(messages)
            if query is not None:
                decide(self._options, query, batchId, messages)

    def abort(self, messages: Sequence[WriterCommitMessage | None], batchId: int) -> None:  # noqa: N803
        if self._options.delivery is not Delivery.EXACTLY_ONCE:
            return
        # Where no task was done, none left a transaction open, but those that were killed; the next decision ends
        # theirs.
        query = _query_of(messages)
        if query is not None:
            abandon(self._options, query, messages)


# -- a task


def write_task(
    options: WriteOptions, columns: WriteColumns, query: str, iterator: Iterator[pa.RecordBatch]
) -> Written:
    """Write all rows, and leave the transaction open; if anything goes wrong, abort it."""
    work = background()
    producer: BatchProducer | None = None
    writer: TaskWriter | None = None
    try:
        for rows in iterator:
            if not rows.num_rows:
                continue
            if writer is None:  # a task without rows has no transaction
                client = work.client(options.bootstrap, options.client)
                producer = work.run(_open_producer(client, options, query))
                writer = TaskWriter(
                    options, columns, client=client, producer=producer, background=work, clock=SystemClock()
                )
            writer.write(rows)
        if writer is None or producer is None:
            return Written(query=query, participant=None, rows=0, size_bytes=0)
        writer.finish()
    except BaseException:
        if producer is not None:
            _give_up(work, producer)
        raise
    participant = None
    if isinstance(producer, TransactionalProducer):
        participant = Participant(producer.transactional_id, *producer.identity)
    return Written(query=query, participant=participant, rows=writer.rows, size_bytes=writer.size_bytes)


async def _open_producer(client: KafkaClient, options: WriteOptions, query: str) -> BatchProducer:
    if options.delivery is not Delivery.EXACTLY_ONCE:
        return await BatchProducer.open(client, options.send)
    context = TaskContext.get()
    assert context is not None, "tasks have a context"
    attempt = context.attemptNumber()
    ids = [transactional_id(query, context.partitionId(), f"{slot}.{attempt}") for slot in range(SLOTS)]
    states = await transaction_states(client, ids)
    free = min(ids, key=lambda name: _BUSY.get(states.get(name, ""), 0))
    return await TransactionalProducer.open(
        client, free, timeout_ms=options.transaction_timeout_ms, settings=options.send
    )


def _give_up(work: Background, producer: BatchProducer) -> None:
    async def end() -> None:
        async with asyncio.timeout(GIVE_UP_S):
            await (producer.abort() if isinstance(producer, TransactionalProducer) else producer.close())

    try:
        work.run(end())
    except (PenstockError, TimeoutError) as error:
        log.warning("transaction left open until the next decision or its timeout: %s", error)


# -- the driver


def _query_of(messages: Sequence[WriterCommitMessage | None]) -> str | None:
    return next((message.query for message in messages if isinstance(message, Written)), None)


def decide(options: WriteOptions, query: str, batch_id: int, messages: Sequence[WriterCommitMessage | None]) -> None:
    """Have everything that the tasks wrote committed by one decision, unless the batch was decided before."""
    work = background()
    participants = [
        message.participant
        for message in messages
        if isinstance(message, Written) and message.participant is not None
    ]
    client = work.client(options.bootstrap, options.client)
    try:
        outcome = work.run(commit_set(client, query=query, batch_id=batch_id, participants=participants))
    except SetBroken as error:
        raise SetBroken(
            f"batch {batch_id} was not committed, and nothing of it can be read: {error}. If it took longer than its "
            f"transactions may last, raise the option {TRANSACTION_TIMEOUT!r}, which is "
            f"{options.transaction_timeout_ms} (and the brokers' transaction.max.timeout.ms, if that is less); a "
            "streaming query does the batch again when it is started again",
            error.broken,
        ) from error
    if outcome is Outcome.DECIDED_BEFORE:
        log.warning("query=%s batch=%d was decided before: what was written again is aborted", query, batch_id)


def close(options: WriteOptions, query: str) -> None:
    """The query is over, and what it has committed stays so. Tasks that are still at work can begin nothing more:
    Spark does not wait for those that it kills, nor for those on machines that it has lost sight of."""
    work = background()
    try:
        work.run(close_query(work.client(options.bootstrap, options.client), query=query))
    except PenstockError as error:
        log.warning("query=%s may have transactions open until they time out: %s", query, error)


def abandon(options: WriteOptions, query: str, messages: Sequence[WriterCommitMessage | None]) -> None:
    """The batch has failed: what its tasks have left open is aborted now, and not when it times out."""
    work = background()
    try:
        client = work.client(options.bootstrap, options.client)
        count = work.run(abort_open(client, query=query))
        if None in messages:  # some may be at work still: Spark does not wait for those that it kills
            time.sleep(STRAGGLERS_S)
            count += work.run(abort_open(client, query=query))
    except PenstockError as error:
        log.warning("query=%s has transactions open until they time out: %s", query, error)
    else:
        log.info("query=%s aborted=%d", query, count)
