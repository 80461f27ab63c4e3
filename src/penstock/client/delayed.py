"""Pending delayed messages of a topic: list and cancel them on the leaders of its partitions."""

from collections.abc import AsyncIterator, Sequence
from typing import NamedTuple

from penstock.client.cluster import KafkaClient
from penstock.foundation.ids import TopicPartition
from penstock.wire.messages import delayed_messages as wire
from penstock.wire.messages.delayed_messages import DelayedMessagesRequest, DelayedMessagesResponse


class PendingMessage(NamedTuple):
    """A delayed message that is not delivered yet."""

    partition: int
    offset: int
    due_ms: int
    timestamp_ms: int
    key: bytes | None
    value_bytes: int
    """Size of the value in bytes; -1 if the value is null."""


class Cancelled(NamedTuple):
    partition: int
    offset: int
    was_pending: bool
    """False if the message was already delivered or cancelled, or never existed."""


class DelayedMessages:
    """The delayed messages of one topic.

    >>> waiting = [message async for message in DelayedMessages(client, "orders").waiting(0)]
    """

    def __init__(self, client: KafkaClient, topic: str) -> None:
        self._client = client
        self._topic = topic

    async def partitions(self) -> list[int]:
        return sorted((await self._client.topic(self._topic)).partitions)

    async def pending(self, partition: int) -> int:
        """Returns the number of pending messages of a partition."""
        request = DelayedMessagesRequest(action=wire.LIST, topic=self._topic, partition=partition, count_max=0)
        return (await self._request(partition, request)).pending

    async def waiting(self, partition: int, count_max: int | None = None) -> AsyncIterator[PendingMessage]:
        """Yields pending messages in the order of their delivery times; fetches them page by page."""
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
            response = await self._request(partition, request)
            for one in response.messages:
                due_ms, offset = one.due_ms, one.offset
                key = None if one.key is None else bytes(one.key)
                yield PendingMessage(partition, one.offset, one.due_ms, one.timestamp_ms, key, one.value_bytes)
            if len(response.messages) < wanted:
                return
            left = None if left is None else left - wanted

    async def cancel(self, partition: int, offsets: Sequence[int]) -> list[Cancelled]:
        """Cancels messages by the offsets at which they were published. Returns the result for each message."""
        found: list[Cancelled] = []
        for at in range(0, len(offsets), wire.OFFSETS_MAX):
            some = offsets[at : at + wire.OFFSETS_MAX]
            request = DelayedMessagesRequest(action=wire.CANCEL, topic=self._topic, partition=partition, offsets=some)
            response = await self._request(partition, request)
            found += (Cancelled(partition, one.offset, one.was_pending) for one in response.cancelled)
        return found

    async def cancel_key(self, key: bytes) -> list[Cancelled]:
        """Cancels all pending messages with this key, in all partitions; returns the result for each message."""
        found: list[Cancelled] = []
        for partition in await self.partitions():
            request = DelayedMessagesRequest(action=wire.CANCEL_KEY, topic=self._topic, partition=partition, key=key)
            response = await self._request(partition, request)
            found += (Cancelled(partition, one.offset, one.was_pending) for one in response.cancelled)
        return found

    async def _request(self, partition: int, request: DelayedMessagesRequest) -> DelayedMessagesResponse:
        tp = TopicPartition(self._topic, partition)
        response: DelayedMessagesResponse = await self._client.request_leader(tp, request)
        return response
