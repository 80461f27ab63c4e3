"""An executor's way to the brokers: the batches of one span, fetched ahead by a thread while Spark takes the rows."""

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
from penstock.client.offsets import Range, ranges
from penstock.client.retry import Backoff
from penstock.foundation.codes import ErrorCode
from penstock.foundation.errors import CorruptMessage, MessageTooLarge, PenstockError
from penstock.foundation.settings import INT_MAX
from penstock.records.batch import BatchHeader, batches
from penstock.records.build import read_marker
from penstock.spark.driver import GONE, unreachable
from penstock.spark.errors import DataLost, ReadStalled
from penstock.spark.read_options import FetchSettings
from penstock.spark.read_plan import Span
from penstock.wire.messages.fetch import (
    AbortedTransaction,
    FetchPartition,
    FetchRequest,
    FetchResponse,
    FetchTopic,
    PartitionData,
)

AHEAD: Final = 2
"""Answers that are there, or on their way, before they are needed."""
FIRST_BYTES: Final = 1 << 20
"""What is asked for before it is known how large records are: many spans are short."""
log = logging.getLogger(__name__)


@dataclass(frozen=True, slots=True, kw_only=True)
class FetchPlan:
    """A span, and all it takes to fetch it."""

    span: Span
    topic_id: bytes
    """The topic that was planned with; another of the same name is another topic."""
    bootstrap: str
    client: ClientSettings
    settings: FetchSettings
    committed: bool
    fail_on_data_loss: bool


class Answer(NamedTuple):
    """What one Fetch brought: whole batches."""

    start: int
    """The offset that was asked for: the first batch may begin before it."""
    data: memoryview
    batches: list[tuple[int, BatchHeader]]
    """Where each begins, and its header."""
    aborted: list[AbortedTransaction]

    def visible(self) -> Iterator[tuple[int, BatchHeader]]:
        """The batches that hold records for the reader: no markers, and nothing that was aborted.

        A producer's records are left out from the offset where its transaction began up to the marker of its end.
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


class Fetching:
    """The answers of a span, in order. At most AHEAD of them are held besides the one that was taken last.

    >>> with Fetching(plan) as answers:
    ...     for answer in answers: ...
    """

    def __init__(self, plan: FetchPlan) -> None:
        self._plan = plan
        self._ready: queue.SimpleQueue[Answer | asyncio.Task[None]] = queue.SimpleQueue()
        self._begun = threading.Event()
        self._thread = threading.Thread(target=self._work, name=f"fetch {plan.span.name}", daemon=True)

    def __enter__(self) -> Self:
        self._thread.start()
        self._begun.wait()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._loop.call_soon_threadsafe(self._enough.set)
        self._thread.join()

    def __iter__(self) -> Iterator[Answer]:
        while True:
            item = self._ready.get()
            if isinstance(item, asyncio.Task):
                item.result()  # it is done: this raises what went wrong, if anything did
                return
            self._loop.call_soon_threadsafe(self._slots.release)
            yield item

    # -- the thread

    def _work(self) -> None:
        with asyncio.Runner(loop_factory=uvloop.new_event_loop) as runner:
            runner.run(self._main())

    async def _main(self) -> None:
        self._loop = asyncio.get_running_loop()
        self._enough = asyncio.Event()
        self._slots = asyncio.Semaphore(AHEAD)
        fetching = asyncio.create_task(self._fetch_all())
        fetching.add_done_callback(self._ready.put)
        self._begun.set()
        # The loop outlives the task: whoever takes the last answer still says so.
        await self._enough.wait()
        fetching.cancel()
        await asyncio.wait([fetching])

    async def _fetch_all(self) -> None:
        client = KafkaClient(self._plan.bootstrap, settings=self._plan.client)
        try:
            await self._reach(client)
            walk = _Walk(client, self._plan)
            while not walk.is_done:
                await self._slots.acquire()
                answer = await walk.next()
                if answer is None:
                    self._slots.release()
                else:
                    self._ready.put(answer)
        except ConnectionFailed as error:
            raise unreachable(error) from None
        finally:
            await client.close()

    async def _reach(self, client: KafkaClient) -> None:
        """A broker that is just being restarted is waited for: the driver has seen it."""
        settings = self._plan.client
        deadline_s = self._loop.time() + self._plan.settings.patience_s
        backoff = Backoff(client.rng, first_s=settings.backoff_first_s, max_s=settings.backoff_max_s)
        while True:
            try:
                await client.refresh([self._plan.span.name.topic])
                return
            except ConnectionFailed:
                wait_s = backoff.next_s()
                if self._loop.time() + wait_s > deadline_s:
                    raise
            except ServerError:
                return  # of the topic; a broker answered, and the walk tries again and says what is wrong
            await asyncio.sleep(wait_s)


class _Replaced(PenstockError):
    """The topic's name belongs to another one now."""


class _Walk:
    """From the start of a span to its end, one answer at a time."""

    def __init__(self, client: KafkaClient, plan: FetchPlan) -> None:
        self._client = client
        self._plan = plan
        self._name = plan.span.name
        self._position = plan.span.start
        self._limit_bytes = min(FIRST_BYTES, plan.settings.bytes_max)
        self._moved_s = asyncio.get_running_loop().time()

    @property
    def is_done(self) -> bool:
        return self._position >= self._plan.span.end

    async def next(self) -> Answer | None:
        """The next answer; None if it brought nothing that could be used."""
        try:
            data = await self._client.retrying(
                self._ask, topics=[self._name.topic], retry_for_s=self._plan.settings.patience_s
            )
        except ServerError as error:
            if error.code not in GONE:
                raise
            self._lose(f"partition {self._name} was deleted while it was read, at offset {self._position}")
            return None
        except _Replaced:
            self._lose(f"partition {self._name} was deleted and made again before offset {self._position} was read")
            return None
        if data.error_code == ErrorCode.OFFSET_OUT_OF_RANGE:
            await self._leave_gap()
            return None
        return self._take(data)

    async def _ask(self) -> PartitionData:
        partition = await self._client.leader(self._name)
        topic = self._client.view.topics[self._name.topic]
        if topic.topic_id != self._plan.topic_id:
            raise _Replaced
        connection = await self._client.connection(partition.leader, LANE)
        settings = self._plan.settings
        response: FetchResponse = await connection.request(
            self._request(partition),
            timeout_s=settings.wait_ms / 1000 + self._plan.client.connection.request_timeout_s,
            newest=None if topic.has_id else FETCH_BY_NAME,
        )
        if response.error_code:
            raise refusal(response.error_code, f"fetching from broker {partition.leader}")
        data: PartitionData = response.responses[0].partitions[0]
        if data.error_code not in (ErrorCode.NONE, ErrorCode.OFFSET_OUT_OF_RANGE):
            raise refusal(data.error_code, f"partition {self._name}")
        return data

    def _request(self, partition: PartitionInfo) -> FetchRequest:
        return FetchRequest(
            max_wait_ms=self._plan.settings.wait_ms,
            min_bytes=self._plan.settings.bytes_min,
            max_bytes=self._limit_bytes,
            isolation_level=int(self._plan.committed),
            topics=[
                FetchTopic(
                    topic=self._name.topic,
                    topic_id=self._plan.topic_id,
                    partitions=[
                        FetchPartition(
                            partition=self._name.partition,
                            current_leader_epoch=partition.leader_epoch,
                            fetch_offset=self._position,
                            partition_max_bytes=self._limit_bytes,
                        )
                    ],
                )
            ],
        )

    def _take(self, data: PartitionData) -> Answer | None:
        """Moves past what came, and settles how much to ask for next."""
        view = memoryview(data.records or b"")
        try:
            found = [(at, header) for at, header in batches(view) if header.next_offset > self._position]
        except CorruptMessage as error:
            raise damaged(self._plan.span, self._position, error) from error
        if not found:
            self._wait_for_more(len(view))
            return None
        asked, self._position = self._position, found[-1][1].next_offset
        self._moved_s = asyncio.get_running_loop().time()
        # About what is left at this size of records, and a little more, so that one answer more is not needed for it.
        rest_bytes = len(view) * max(self._plan.span.end - self._position, 0) // (self._position - asked)
        self._limit_bytes = min(self._plan.settings.bytes_max, rest_bytes + rest_bytes // 8 + (64 << 10))
        return Answer(asked, view, found, list(data.aborted_transactions or ()) if self._plan.committed else [])

    def _wait_for_more(self, came_bytes: int) -> None:
        if came_bytes:  # and not one whole batch
            if self._limit_bytes >= INT_MAX // 2:
                raise MessageTooLarge(f"the batch at offset {self._position} of partition {self._name} is too large")
            self._limit_bytes *= 2
        elif asyncio.get_running_loop().time() - self._moved_s > self._plan.settings.patience_s:
            raise ReadStalled(
                f"partition {self._name} sent nothing from offset {self._position} on for "
                f"{self._plan.settings.patience_s:g} s, though it should hold offsets up to {self._plan.span.end}; "
                f"see `penstock topic describe {self._name.topic}`, or allow more time by kafkaConsumer.pollTimeoutMs"
            )

    async def _leave_gap(self) -> None:
        """The offset is not there: go on where the partition begins now, if that is allowed."""
        held: Range = (await ranges(self._client, [self._name]))[self._name]
        if held.start <= self._position < held.end:
            self._wait_for_more(0)
            await asyncio.sleep(self._plan.client.backoff_first_s)
            return  # it should be there by now
        self._lose(
            f"partition {self._name} holds offsets {held.start} to {held.end}, not {self._position}, from where on "
            f"it was to be read up to {self._plan.span.end}: it was trimmed or aged out meanwhile",
            held.start,
        )

    def _lose(self, what: str, go_on_at: int | None = None) -> None:
        end = self._plan.span.end
        if self._plan.fail_on_data_loss:
            raise DataLost(f"{what}. Set failOnDataLoss to false to go on with what is left")
        log.warning("data_lost what=%r", what)
        is_ahead = go_on_at is not None and self._position < go_on_at < end
        self._position = go_on_at if go_on_at is not None and is_ahead else end


def damaged(span: Span, offset: int, error: CorruptMessage) -> CorruptMessage:
    """Names the place, and what can be done."""
    return CorruptMessage(
        f"partition {span.name} is damaged at offset {offset}: {error}; `penstock log inspect` on its broker says "
        "more. To read the rest, start after it (startingOffsets)"
    )
