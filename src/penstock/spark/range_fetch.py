"""Fetches the record batches of one offset range on a background thread, before the Spark task asks for them."""

import asyncio
import logging
import queue
import threading
from collections import deque
from collections.abc import Iterator
from dataclasses import dataclass
from types import TracebackType
from typing import Final, NamedTuple, Self

import uvloop

from penstock.client.cluster import ClientSettings, KafkaClient
from penstock.client.consumer import FETCH_BY_NAME, LANE
from penstock.client.errors import ConnectionFailed, ServerError, refusal
from penstock.client.metadata import PartitionInfo
from penstock.client.offsets import LogRange, log_ranges
from penstock.client.retry import Backoff
from penstock.foundation.codes import ErrorCode
from penstock.foundation.errors import CorruptMessage, MessageTooLarge, PenstockError
from penstock.foundation.settings import INT_MAX
from penstock.records.batch import BatchHeader, batches
from penstock.records.build import read_marker
from penstock.spark.driver import MISSING_TOPIC_CODES, with_spark_advice
from penstock.spark.errors import DataLost, ReadStalled
from penstock.spark.read_options import FetchSettings
from penstock.spark.read_plan import OffsetRange
from penstock.wire.messages.fetch import (
    AbortedTransaction,
    FetchPartition,
    FetchRequest,
    FetchResponse,
    FetchTopic,
    PartitionData,
)

PREFETCH_MAX: Final = 2
"""Maximum number of Fetch responses that are buffered or requested before the task asks for them."""
FIRST_FETCH_BYTES: Final = 1 << 20
"""Maximum bytes of the first Fetch response. It is small because many offset ranges are short."""
log = logging.getLogger(__name__)


@dataclass(frozen=True, slots=True, kw_only=True)
class FetchPlan:
    """An offset range to fetch, and the fetch settings."""

    offset_range: OffsetRange
    topic_id: bytes
    """The topic id when the read was planned, to detect a topic that was recreated under the same name since."""
    bootstrap: str
    client: ClientSettings
    settings: FetchSettings
    committed: bool
    fail_on_data_loss: bool


class FetchedBatches(NamedTuple):
    """The complete record batches of one Fetch response."""

    start: int
    """The offset that was requested. The first batch may begin before it."""
    data: memoryview
    batches: list[tuple[int, BatchHeader]]
    """The byte position in `data` and the header, for each batch."""
    aborted: list[AbortedTransaction]

    def visible(self) -> Iterator[tuple[int, BatchHeader]]:
        """Yields position and header of each batch, except control batches and batches of aborted transactions.

        Batches of a producer are skipped from the first offset of its aborted transaction to the abort marker.
        """
        pending = deque(sorted(self.aborted, key=lambda entry: entry.first_offset))
        aborted: set[int] = set()
        for at, header in self.batches:
            while pending and pending[0].first_offset <= header.last_offset:
                aborted.add(pending.popleft().producer_id)
            if header.is_control:
                if header.producer_id in aborted:
                    marker = read_marker(self.data[at : at + header.size_bytes])
                    if marker is not None and not marker.committed:
                        aborted.remove(header.producer_id)
            elif not (header.is_transactional and header.producer_id in aborted):
                yield at, header


class RangeFetcher:
    """Iterates over the fetched batches of an offset range in order, buffering at most PREFETCH_MAX responses.

    >>> with RangeFetcher(plan) as fetches:
    ...     for fetched in fetches: ...
    """

    def __init__(self, plan: FetchPlan) -> None:
        self._plan = plan
        self._ready: queue.SimpleQueue[FetchedBatches | asyncio.Task[None]] = queue.SimpleQueue()
        self._started = threading.Event()
        self._thread = threading.Thread(target=self._run_loop, name=f"fetch {plan.offset_range.tp}", daemon=True)

    def __enter__(self) -> Self:
        self._thread.start()
        self._started.wait()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._loop.call_soon_threadsafe(self._stop.set)
        self._thread.join()

    def __iter__(self) -> Iterator[FetchedBatches]:
        while True:
            item = self._ready.get()
            if isinstance(item, asyncio.Task):
                item.result()  # raises the error of the fetch task, if it failed
                return
            self._loop.call_soon_threadsafe(self._slots.release)
            yield item

    # -- fetch thread

    def _run_loop(self) -> None:
        with asyncio.Runner(loop_factory=uvloop.new_event_loop) as runner:
            runner.run(self._run())

    async def _run(self) -> None:
        self._loop = asyncio.get_running_loop()
        self._stop = asyncio.Event()
        self._slots = asyncio.Semaphore(PREFETCH_MAX)
        fetching = asyncio.create_task(self._fetch_all())
        fetching.add_done_callback(self._ready.put)
        self._started.set()
        # The loop outlives the fetch task: the consumer still schedules calls on it after the last response.
        await self._stop.wait()
        fetching.cancel()
        await asyncio.wait([fetching])

    async def _fetch_all(self) -> None:
        client = KafkaClient(self._plan.bootstrap, settings=self._plan.client)
        try:
            await self._connect(client)
            cursor = _RangeCursor(client, self._plan)
            while not cursor.is_done:
                await self._slots.acquire()
                fetched = await cursor.next()
                if fetched is None:
                    self._slots.release()
                else:
                    self._ready.put(fetched)
        except ConnectionFailed as error:
            raise with_spark_advice(error) from None
        finally:
            await client.close()

    async def _connect(self, client: KafkaClient) -> None:
        """Connects to a broker. Waits up to the poll timeout, because brokers may be restarting."""
        settings = self._plan.client
        deadline_s = self._loop.time() + self._plan.settings.poll_timeout_s
        backoff = Backoff(client.rng, first_s=settings.backoff_first_s, max_s=settings.backoff_max_s)
        while True:
            try:
                await client.refresh([self._plan.offset_range.tp.topic])
                return
            except ConnectionFailed:
                wait_s = backoff.next_s()
                if self._loop.time() + wait_s > deadline_s:
                    raise
            except ServerError:
                return  # an error of the topic: a broker answered, and the cursor retries and reports it
            await asyncio.sleep(wait_s)


class _TopicReplaced(PenstockError):
    """The topic was deleted and recreated under the same name."""


class _RangeCursor:
    """Fetches an offset range, response by response."""

    def __init__(self, client: KafkaClient, plan: FetchPlan) -> None:
        self._client = client
        self._plan = plan
        self._tp = plan.offset_range.tp
        self._position = plan.offset_range.start
        self._limit_bytes = min(FIRST_FETCH_BYTES, plan.settings.bytes_max)
        self._progress_at_s = asyncio.get_running_loop().time()

    @property
    def is_done(self) -> bool:
        return self._position >= self._plan.offset_range.end

    async def next(self) -> FetchedBatches | None:
        """Fetches once and returns the new batches; None if there are none, or if records were lost."""
        try:
            data = await self._client.retrying(
                self._ask, topics=[self._tp.topic], retry_for_s=self._plan.settings.poll_timeout_s
            )
        except ServerError as error:
            if error.code not in MISSING_TOPIC_CODES:
                raise
            self._report_loss(f"partition {self._tp} was deleted while it was read, at offset {self._position}")
            return None
        except _TopicReplaced:
            self._report_loss(f"partition {self._tp} was recreated before offset {self._position} was read")
            return None
        if data.error_code == ErrorCode.OFFSET_OUT_OF_RANGE:
            await self._skip_gap()
            return None
        return self._take(data)

    async def _ask(self) -> PartitionData:
        partition = await self._client.leader(self._tp)
        topic = self._client.view.topics[self._tp.topic]
        if topic.topic_id != self._plan.topic_id:
            raise _TopicReplaced
        connection = await self._client.connection(partition.leader, LANE)
        settings = self._plan.settings
        response: FetchResponse = await connection.request(
            self._request(partition),
            timeout_s=settings.wait_ms / 1000 + self._plan.client.connection.request_timeout_s,
            version_max=None if topic.has_id else FETCH_BY_NAME,
        )
        if response.error_code:
            raise refusal(response.error_code, f"fetching from broker {partition.leader}")
        data: PartitionData = response.responses[0].partitions[0]
        if data.error_code not in (ErrorCode.NONE, ErrorCode.OFFSET_OUT_OF_RANGE):
            raise refusal(data.error_code, f"partition {self._tp}")
        return data

    def _request(self, partition: PartitionInfo) -> FetchRequest:
        return FetchRequest(
            max_wait_ms=self._plan.settings.wait_ms,
            min_bytes=self._plan.settings.bytes_min,
            max_bytes=self._limit_bytes,
            isolation_level=int(self._plan.committed),
            topics=[
                FetchTopic(
                    topic=self._tp.topic,
                    topic_id=self._plan.topic_id,
                    partitions=[
                        FetchPartition(
                            partition=self._tp.partition,
                            current_leader_epoch=partition.leader_epoch,
                            fetch_offset=self._position,
                            partition_max_bytes=self._limit_bytes,
                        )
                    ],
                )
            ],
        )

    def _take(self, data: PartitionData) -> FetchedBatches | None:
        """Returns the batches in a response and advances the fetch position; None if it has no complete new batch."""
        view = memoryview(data.records or b"")
        try:
            found = [(at, header) for at, header in batches(view) if header.next_offset > self._position]
        except CorruptMessage as error:
            raise corrupt_at(self._plan.offset_range, self._position, error) from error
        if not found:
            self._wait_for_more(len(view))
            return None
        asked, self._position = self._position, found[-1][1].next_offset
        self._progress_at_s = asyncio.get_running_loop().time()
        # The estimated size of the rest plus a margin, to avoid another fetch for the last few records.
        rest_bytes = len(view) * max(self._plan.offset_range.end - self._position, 0) // (self._position - asked)
        self._limit_bytes = min(self._plan.settings.bytes_max, rest_bytes + rest_bytes // 8 + (64 << 10))
        aborted = list(data.aborted_transactions or ()) if self._plan.committed else []
        return FetchedBatches(asked, view, found, aborted)

    def _wait_for_more(self, received_bytes: int) -> None:
        if received_bytes:  # less than one whole batch
            if self._limit_bytes >= INT_MAX // 2:
                raise MessageTooLarge(f"the batch at offset {self._position} of partition {self._tp} exceeds 1 GiB")
            self._limit_bytes *= 2
        elif asyncio.get_running_loop().time() - self._progress_at_s > self._plan.settings.poll_timeout_s:
            raise ReadStalled(
                f"partition {self._tp} sent no records from offset {self._position} for "
                f"{self._plan.settings.poll_timeout_s:g} s, but should hold offsets up to "
                f"{self._plan.offset_range.end}; see `penstock topic describe {self._tp.topic}`, or raise "
                "kafkaConsumer.pollTimeoutMs"
            )

    async def _skip_gap(self) -> None:
        """Handles OFFSET_OUT_OF_RANGE: skips the lost offsets, or raises DataLost if `failOnDataLoss` is true."""
        held: LogRange = (await log_ranges(self._client, [self._tp]))[self._tp]
        if held.start <= self._position < held.end:
            self._wait_for_more(0)
            await asyncio.sleep(self._plan.client.backoff_first_s)
            return  # the offset exists by now
        self._report_loss(
            f"partition {self._tp} holds offsets {held.start} to {held.end}, not {self._position} to "
            f"{self._plan.offset_range.end} as planned: records were trimmed or expired meanwhile",
            held.start,
        )

    def _report_loss(self, what: str, resume_at: int | None = None) -> None:
        end = self._plan.offset_range.end
        if self._plan.fail_on_data_loss:
            raise DataLost(f"{what}. Set failOnDataLoss to false to continue with the remaining records")
        log.warning("data_lost what=%r", what)
        is_ahead = resume_at is not None and self._position < resume_at < end
        self._position = resume_at if resume_at is not None and is_ahead else end


def corrupt_at(offset_range: OffsetRange, offset: int, error: CorruptMessage) -> CorruptMessage:
    """Returns an error that names the partition and offset of a corrupt batch."""
    return CorruptMessage(
        f"partition {offset_range.tp} is corrupt at offset {offset}: {error}; run `penstock log inspect` on its "
        "broker for details. To read the rest, start after this offset (startingOffsets)"
    )
