"""Claims messages of a queue by offset: the claiming consumer acquires them, so that no other consumer gets them.

A claim carries the name of its holder, the consumer that made it. A message keeps this name until it is finished or
delivered to another consumer: if the holder dies, a successor can find the messages that the holder had claimed.
"""

from collections.abc import Iterable, Iterator, Sequence
from enum import Enum
from typing import NamedTuple

from penstock.client.cluster import KafkaClient, Target
from penstock.client.errors import check
from penstock.client.groups import Groups
from penstock.foundation.ids import TopicPartition
from penstock.wire.messages import queue_claim as wire
from penstock.wire.messages.queue_claim import QueueClaimRequest, QueueClaimResponse, QueueRange

Range = tuple[int, int]
"""First and last offset of a range of messages, both inclusive."""


class QueueLocation(NamedTuple):
    """A queue, and the topic that holds its messages."""

    name: str
    topic: str
    topic_id: bytes
    is_fifo: bool


class State(Enum):
    AVAILABLE = wire.AVAILABLE
    IN_FLIGHT = wire.IN_FLIGHT
    DELAYED = wire.DELAYED
    MOVING = wire.MOVING


class DeliveryRange(NamedTuple):
    """Consecutive unfinished messages with equal delivery state: `state`, delivery count and holder of the claim."""

    first: int
    last: int
    state: State
    count: int  # type: ignore[assignment]  # hides tuple.count, which is not used
    """How often these messages have been delivered."""
    holder: str
    """Name of the consumer that last claimed the messages, even if its claim has expired; empty if there was none."""


class Survey(NamedTuple):
    """The unfinished messages of a partition: `delivery_ranges`, and all from `undelivered_from` to `end`."""

    delivery_ranges: tuple[DeliveryRange, ...]
    undelivered_from: int
    end: int
    """The end offset of the committed messages: one past the last."""

    @property
    def start(self) -> int:
        """The offset of the first unfinished message; `end` if there is none."""
        return min(self.delivery_ranges[0].first if self.delivery_ranges else self.undelivered_from, self.end)


class FinishedClaims(NamedTuple):
    done: int
    """Number of messages that are finished, by this request or earlier."""
    lost: tuple[Range, ...]
    """Messages left unchanged, because another consumer has received them since they were claimed."""


class Claims:
    """Claims messages of a topic by offset: queue or share group `group` then delivers them to no other consumer.

    >>> jobs = Claims(client, group="jobs-dead", topic="jobs-dead", topic_id=found.topic_id)
    >>> taken = await jobs.claim(0, "mender", [(3, 3), (7, 9)], hold_ms=60_000)
    """

    def __init__(self, client: KafkaClient, *, group: str, topic: str, topic_id: bytes) -> None:
        self._client = client
        self._group = group
        self._topic = topic
        self._topic_id = topic_id

    async def survey(self, partition: int) -> Survey:
        """Returns the unfinished messages of a partition."""
        delivery_ranges: list[DeliveryRange] = []
        at = 0
        while True:
            response = await self._request(partition, wire.SURVEY, offset=at)
            delivery_ranges += (
                DeliveryRange(one.first, one.last, State(one.state), one.count, one.holder)
                for one in response.delivery_ranges
            )
            if response.next_offset < 0:
                return Survey(tuple(delivery_ranges), response.undelivered_from, response.end_offset)
            at = response.next_offset

    async def claim(self, partition: int, holder: str, ranges: Sequence[Range], hold_ms: int) -> list[Range]:
        """Claims the available messages in `ranges` for `hold_ms` milliseconds. Returns the parts of `ranges` that
        `holder` has claimed, now or earlier."""
        taken: list[Range] = []
        for chunk in _chunks(ranges):
            response = await self._request(
                partition, wire.CLAIM, holder=holder, visibility_ms=hold_ms, ranges=_to_wire(chunk)
            )
            taken += ((one.first, one.last) for one in response.delivery_ranges)
        return merge_ranges(taken)

    async def finish(self, partition: int, holder: str, ranges: Sequence[Range]) -> FinishedClaims:
        """Acknowledges the messages in `ranges` that `holder` has claimed."""
        return await self._end_claims(partition, wire.FINISH, holder, ranges)

    async def undo(self, partition: int, holder: str, ranges: Sequence[Range]) -> FinishedClaims:
        """Undoes the holder's claims on these messages, as if they had never been claimed."""
        return await self._end_claims(partition, wire.UNDO, holder, ranges)

    async def _end_claims(self, partition: int, action: int, holder: str, ranges: Sequence[Range]) -> FinishedClaims:
        done = 0
        lost: list[Range] = []
        for chunk in _chunks(ranges):
            response = await self._request(partition, action, holder=holder, ranges=_to_wire(chunk))
            done += response.finished
            lost += ((one.first, one.last) for one in response.lost)
        parts = [(offset, offset) for first, last in lost if last > first for offset in range(first, last + 1)]
        if parts:  # a range that was lost in part is ended offset by offset
            ended = await self._end_claims(partition, action, holder, parts)
            done += ended.done
            lost = [*(each for each in lost if each[0] == each[1]), *ended.lost]
        return FinishedClaims(done, tuple(lost))

    async def _request(
        self,
        partition: int,
        action: int,
        *,
        offset: int = 0,
        holder: str = "",
        visibility_ms: int = 0,
        ranges: Sequence[QueueRange] = (),
    ) -> QueueClaimResponse:
        """Sends a claim request to the partition's leader, with retries: every action is idempotent."""
        request = QueueClaimRequest(
            action=action,
            group=self._group,
            topic_id=self._topic_id,
            partition=partition,
            offset=offset,
            holder=holder,
            visibility_ms=visibility_ms,
            ranges=ranges,
        )
        tp = TopicPartition(self._topic, partition)
        response: QueueClaimResponse = await self._client.request_leader(tp, request)
        return response


async def find_queue(client: KafkaClient, name: str) -> QueueLocation:
    """Returns the topic of a queue. Raises ServerError (UNKNOWN_TOPIC_OR_PARTITION) if the queue does not exist."""
    request = QueueClaimRequest(action=wire.FIND, group=name, topic_id=bytes(16))
    response: QueueClaimResponse = await client.request_checked(Target.ANY, request, f"queue {name!r}")
    return QueueLocation(name, response.topic, response.topic_id, response.is_fifo)


async def prepare_group(client: KafkaClient, *, group: str, topic_id: bytes) -> None:
    """Creates the delivery state of a share group (not of a queue) for a topic, starting at the log start offset."""

    async def attempt() -> None:
        node_id = await Groups(client).coordinator(group)
        request = QueueClaimRequest(action=wire.PREPARE, group=group, topic_id=topic_id)
        response: QueueClaimResponse = await client.request(node_id, request)
        check(response.error_code, f"group {group!r}", response.error_message)

    await client.retrying(attempt)


def merge_ranges(ranges: Iterable[Range]) -> list[Range]:
    """Returns the offset ranges sorted, with overlapping and adjacent ranges merged.

    >>> merge_ranges([(7, 9), (3, 4), (5, 5)])
    [(3, 5), (7, 9)]
    """
    found: list[Range] = []
    for first, last in sorted(ranges):
        if found and first <= found[-1][1] + 1:
            found[-1] = found[-1][0], max(found[-1][1], last)
        else:
            found.append((first, last))
    return found


def _chunks(ranges: Sequence[Range]) -> Iterator[Sequence[Range]]:
    """Splits the ranges into chunks that each fit into one QueueClaim request."""
    for at in range(0, len(ranges), wire.RANGES_MAX):
        yield ranges[at : at + wire.RANGES_MAX]


def _to_wire(ranges: Iterable[Range]) -> list[QueueRange]:
    return [QueueRange(first=first, last=last) for first, last in ranges]
