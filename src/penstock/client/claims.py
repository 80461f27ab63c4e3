"""Messages of a queue chosen by their offsets: who reads its topic can take some of them, and leave the others be.

A holder's name says who has claimed what. It stays with a message until that is settled or somebody else gets it, so
that whoever comes after a holder that died can find what that one had.
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
"""The first offset and the last."""


class QueueFound(NamedTuple):
    """A queue, as far as it matters where its messages lie."""

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
    """Consecutive messages that are not finished, and share one fate."""

    first: int
    last: int
    state: State
    count: int  # type: ignore[assignment]  # hides tuple.count, which is not used
    """Deliveries so far."""
    holder: str
    """Whoever had it last, also if its time is up; empty if nobody did."""


class Survey(NamedTuple):
    """What of a partition is not finished: the delivery ranges, and all from `looked_to` on."""

    delivery_ranges: tuple[DeliveryRange, ...]
    looked_to: int
    end: int
    """Where committed messages end."""

    @property
    def start(self) -> int:
        """The first message that is not finished, if there is one."""
        return min(self.delivery_ranges[0].first if self.delivery_ranges else self.looked_to, self.end)


class FinishedClaims(NamedTuple):
    done: int
    """Messages that were settled, now or before."""
    lost: tuple[Range, ...]
    """Messages that somebody else has received since: nothing was done with them."""


class Claims:
    """Claims of one group, which is a queue by its name or a share group, on one topic.

    >>> jobs = Claims(client, group="jobs-dead", topic="jobs-dead", topic_id=found.topic_id)
    >>> taken = await jobs.claim(0, "mender", [(3, 3), (7, 9)], hold_ms=60_000)
    """

    def __init__(self, client: KafkaClient, *, group: str, topic: str, topic_id: bytes) -> None:
        self._client = client
        self._group = group
        self._topic = topic
        self._topic_id = topic_id

    async def survey(self, partition: int) -> Survey:
        """What is not finished now."""
        delivery_ranges: list[DeliveryRange] = []
        at = 0
        while True:
            answer = await self._ask(partition, wire.SURVEY, offset=at)
            delivery_ranges += (
                DeliveryRange(one.first, one.last, State(one.state), one.count, one.holder)
                for one in answer.delivery_ranges
            )
            if answer.next_offset < 0:
                return Survey(tuple(delivery_ranges), answer.looked_to, answer.end_offset)
            at = answer.next_offset

    async def claim(self, partition: int, holder: str, ranges: Sequence[Range], hold_ms: int) -> list[Range]:
        """Take messages in hand that nobody else has; which of them it got. What it had before, it keeps."""
        taken: list[Range] = []
        for some in _pieces(ranges):
            answer = await self._ask(partition, wire.CLAIM, holder=holder, visibility_ms=hold_ms, ranges=_out(some))
            taken += ((one.first, one.last) for one in answer.delivery_ranges)
        return joined(taken)

    async def finish(self, partition: int, holder: str, ranges: Sequence[Range]) -> FinishedClaims:
        """What the holder has of these is done."""
        return await self._settle(partition, wire.FINISH, holder, ranges)

    async def undo(self, partition: int, holder: str, ranges: Sequence[Range]) -> FinishedClaims:
        """What the holder has of these is as if it had never been claimed."""
        return await self._settle(partition, wire.UNDO, holder, ranges)

    async def _settle(self, partition: int, action: int, holder: str, ranges: Sequence[Range]) -> FinishedClaims:
        done = 0
        lost: list[Range] = []
        for some in _pieces(ranges):
            answer = await self._ask(partition, action, holder=holder, ranges=_out(some))
            done += answer.finished
            lost += ((one.first, one.last) for one in answer.lost)
        parts = [(offset, offset) for first, last in lost if last > first for offset in range(first, last + 1)]
        if parts:  # of a range in part, all that is the holder's still is settled too
            settled = await self._settle(partition, action, holder, parts)
            done += settled.done
            lost = [*(each for each in lost if each[0] == each[1]), *settled.lost]
        return FinishedClaims(done, tuple(lost))

    async def _ask(
        self,
        partition: int,
        action: int,
        *,
        offset: int = 0,
        holder: str = "",
        visibility_ms: int = 0,
        ranges: Sequence[QueueRange] = (),
    ) -> QueueClaimResponse:
        """Ask the leader, until there is an answer: all of it may be done twice."""
        name = TopicPartition(self._topic, partition)
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

        async def ask() -> QueueClaimResponse:
            leader = (await self._client.leader(name)).leader
            answer: QueueClaimResponse = await self._client.request(leader, request)
            check(answer.error_code, f"partition {name}", answer.error_message)
            return answer

        return await self._client.retrying(ask, topics={self._topic})


async def find_queue(client: KafkaClient, name: str) -> QueueFound:
    """Where a queue's messages lie. ServerError (UNKNOWN_TOPIC_OR_PARTITION) if there is none of that name."""

    async def ask() -> QueueFound:
        request = QueueClaimRequest(action=wire.FIND, group=name, topic_id=bytes(16))
        answer: QueueClaimResponse = await client.request(Target.ANY, request)
        check(answer.error_code, f"queue {name!r}", answer.error_message)
        return QueueFound(name, answer.topic, answer.topic_id, answer.is_fifo)

    return await client.retrying(ask)


async def prepare_group(client: KafkaClient, *, group: str, topic_id: bytes) -> None:
    """Have a share group that is no queue's keep delivery state on a topic, from the topic's start on."""

    async def ask() -> None:
        node_id = await Groups(client).coordinator(group)
        request = QueueClaimRequest(action=wire.PREPARE, group=group, topic_id=topic_id)
        answer: QueueClaimResponse = await client.request(node_id, request)
        check(answer.error_code, f"group {group!r}", answer.error_message)

    await client.retrying(ask)


def joined(ranges: Iterable[Range]) -> list[Range]:
    """Ranges in order, those side by side as one.

    >>> joined([(7, 9), (3, 4), (5, 5)])
    [(3, 5), (7, 9)]
    """
    found: list[Range] = []
    for first, last in sorted(ranges):
        if found and first <= found[-1][1] + 1:
            found[-1] = found[-1][0], max(found[-1][1], last)
        else:
            found.append((first, last))
    return found


def _pieces(ranges: Sequence[Range]) -> Iterator[Sequence[Range]]:
    """As many as one request may have."""
    for at in range(0, len(ranges), wire.RANGES_MAX):
        yield ranges[at : at + wire.RANGES_MAX]


def _out(ranges: Iterable[Range]) -> list[QueueRange]:
    return [QueueRange(first=first, last=last) for first, last in ranges]
