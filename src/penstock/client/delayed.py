"""Delayed messages that wait: listed and cancelled, wherever their partitions are led."""

from collections.abc import AsyncIterator, Sequence
from typing import NamedTuple

from penstock.client.cluster import KafkaClient
from penstock.client.errors import check
from penstock.foundation.ids import TopicPartition
from penstock.wire.messages import delayed_messages as wire
from penstock.wire.messages.delayed_messages import DelayedMessagesRequest, DelayedMessagesResponse


class Waiting(NamedTuple):
    """A message that waits for its time."""

    partition: int
    offset: int
    due_ms: int
    timestamp_ms: int
    key: bytes | None
    value_bytes: int
    """-1 if it has no value."""


class Cancelled(NamedTuple):
    partition: int
    offset: int
    was_pending: bool
    """Whether it waited until now: if not, it was delivered or cancelled before, or never was."""


class DelayedMessages:
    """Of one topic.

    >>> waiting = [message async for message in DelayedMessages(client, "orders").waiting(0)]
    """

    def __init__(self, client: KafkaClient, topic: str) -> None:
        self._client = client
        self._topic = topic

    async def partitions(self) -> list[int]:
        return sorted((await self._client.topic(self._topic)).partitions)

    async def pending(self, partition: int) -> int:
        """How many wait."""
        request = DelayedMessagesRequest(action=wire.LIST, topic=self._topic, partition=partition, count_max=0)
        return (await self._ask(partition, request)).pending

    async def waiting(self, partition: int, count_max: int | None = None) -> AsyncIterator[Waiting]:
        """Those that wait, in the order in which they are due; a page is asked for at a time."""
        due_ms, offset, left = -1, -1, count_max
        while left is None or left > 0:
            wanted = wire.PAGE_MAX if left is None else min(left, wire.PAGE_MAX)
            request = DelayedMessagesRequest(
                action=wire.LIST,
                topic=self._topic,
                partition=partition,
                after_due_ms=due_ms,
                after_offset=offset,
                count_max=wanted,
            )
            answer = await self._ask(partition, request)
            for one in answer.messages:
                due_ms, offset = one.due_ms, one.offset
                key = None if one.key is None else bytes(one.key)
                yield Waiting(partition, one.offset, one.due_ms, one.timestamp_ms, key, one.value_bytes)
            if len(answer.messages) < wanted:
                return
            left = None if left is None else left - wanted

    async def cancel(self, partition: int, offsets: Sequence[int]) -> list[Cancelled]:
        """Have messages not delivered, by the offsets that they were published at; what became of each."""
        found: list[Cancelled] = []
        for at in range(0, len(offsets), wire.OFFSETS_MAX):
            some = offsets[at : at + wire.OFFSETS_MAX]
            request = DelayedMessagesRequest(action=wire.CANCEL, topic=self._topic, partition=partition, offsets=some)
            answer = await self._ask(partition, request)
            found += (Cancelled(partition, one.offset, one.was_pending) for one in answer.cancelled)
        return found

    async def cancel_key(self, key: bytes) -> list[Cancelled]:
        """Have no message with a key delivered that waits now, whatever partition it is on."""
        found: list[Cancelled] = []
        for partition in await self.partitions():
            request = DelayedMessagesRequest(action=wire.CANCEL_KEY, topic=self._topic, partition=partition, key=key)
            answer = await self._ask(partition, request)
            found += (Cancelled(partition, one.offset, one.was_pending) for one in answer.cancelled)
        return found

    async def _ask(self, partition: int, request: DelayedMessagesRequest) -> DelayedMessagesResponse:
        name = TopicPartition(self._topic, partition)

        async def ask() -> DelayedMessagesResponse:
            leader = (await self._client.leader(name)).leader
            answer: DelayedMessagesResponse = await self._client.request(leader, request)
            check(answer.error_code, f"partition {name}", answer.error_message)
            return answer

        return await self._client.retrying(ask, topics={self._topic})
