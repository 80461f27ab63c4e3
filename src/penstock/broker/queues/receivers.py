"""ReceiveMessage: receives from the partitions led by this broker, else from other brokers, else by long polling.

A long poll waits at every leader of the queue's partitions. The first leader with messages delivers them; deliveries
that arrive later are undone.
"""

import asyncio
import itertools
import secrets
from collections.abc import Callable, Sequence
from typing import Final

from penstock.broker.queues.messages import Delivered
from penstock.broker.queues.partition import QueuePartition, ReceiveRequest, Waiter
from penstock.broker.queues.partitions import QueuePartitions
from penstock.broker.queues.peer_brokers import PeerBrokers
from penstock.broker.queues.pending_reply import PendingReply
from penstock.cluster.image import ClusterImage
from penstock.cluster.queues import NoSuchQueue, Queue
from penstock.foundation.clock import Clock, Timer
from penstock.foundation.errors import PenstockError
from penstock.wire.messages.queue_control import STOP_WAITING, QueueControlRequest

TICKET_BITS: Final = 62
"""Size, in bits, of the random first ticket (id of a long poll), so that no ticket repeats after a restart."""
RETRY_S: Final = 0.5
"""Pause, in seconds, before a request to an unreachable broker is retried."""


class Receivers:
    """Receives messages for clients of this broker; also, from partitions led here, for clients of other brokers."""

    def __init__(
        self,
        *,
        image: Callable[[], ClusterImage],
        queue_partitions: QueuePartitions,
        peer_brokers: PeerBrokers,
        undo: Callable[[Queue, Sequence[Delivered]], None],
        clock: Clock,
        timer: Timer,
    ) -> None:
        """`undo`: undoes deliveries to a client that has disconnected."""
        self.image = image
        self.queue_partitions: Final = queue_partitions
        self.peer_brokers: Final = peer_brokers
        self.undo: Final = undo
        self.clock: Final = clock
        self.timer: Final = timer
        self._turns = itertools.count()
        self._tickets = itertools.count(secrets.randbits(TICKET_BITS))
        self.long_polls: Final[dict[int, ClientLongPoll]] = {}
        self.peer_long_polls: Final[dict[tuple[int, int], PeerLongPoll]] = {}
        self._topics_seen = image().topics
        queue_partitions.on_ready.append(self._on_ready)

    # -- receiving

    async def receive(self, queue: Queue, receive_request: ReceiveRequest, wait_ms: int) -> list[Delivered]:
        """Receives messages for a client of this broker; the result is empty if none arrive within `wait_ms`.

        If the client disconnects, its task is cancelled: then all deliveries to it are undone.
        """
        messages = await self._receive_here(queue, receive_request)
        if messages:
            return messages
        if wait_ms <= 0:
            return await self._receive_from_peers(queue, receive_request)
        ticket = next(self._tickets)
        long_poll = self.long_polls[ticket] = ClientLongPoll(self, ticket, queue, receive_request, wait_ms)
        long_poll.wait_at_leaders()
        try:
            return await long_poll.reply
        finally:
            long_poll.close()

    async def _receive_here(self, queue: Queue, receive_request: ReceiveRequest) -> list[Delivered]:
        """Receives from the partitions led by this broker, one after the other, until there are enough messages."""
        found: list[Delivered] = []
        last_error: PenstockError | None = None
        for partition in self._rotate_partitions(queue):
            reply = self.pending_reply(queue)
            left = receive_request.max_messages - len(found)
            partition.receive(receive_request._replace(max_messages=left) if found else receive_request, reply)
            try:
                found += await reply
            except PenstockError as error:
                last_error = error
            except asyncio.CancelledError:
                self.undo(queue, found)
                raise
            if len(found) >= receive_request.max_messages:
                return found
        if last_error is not None and not found:
            raise last_error
        return found

    async def _receive_from_peers(self, queue: Queue, receive_request: ReceiveRequest) -> list[Delivered]:
        """Receives from other leaders, one after the other, until one has messages; without long polling. Raises an
        error of any leader if none has messages: clients would take the queue for empty."""
        last_error: PenstockError | None = None
        for node in self.other_leaders(queue):
            reply = self.pending_reply(queue)
            self.peer_brokers.receive(node, queue, receive_request, wait_ms=0, ticket=0, then=reply)
            try:
                messages = await reply
            except PenstockError as error:
                last_error = error
            else:
                if messages:
                    return messages
        if last_error is not None:
            raise last_error
        return []

    async def receive_for_peer(
        self, node: int, ticket: int, queue: Queue, receive_request: ReceiveRequest, wait_ms: int
    ) -> list[Delivered]:
        """Returns messages for broker `node`; if there are none, starts a long poll (`ticket`, `wait_ms`) for it."""
        messages = await self._receive_here(queue, receive_request)
        if not messages and wait_ms > 0:
            self.stop_peer_long_poll(node, ticket)  # the other broker may have lost the answer, and asked again
            long_poll = PeerLongPoll(self, node, ticket, queue, receive_request, wait_ms)
            self.peer_long_polls[node, ticket] = long_poll
            long_poll.wait_at_leaders()
        return messages

    def pending_reply(self, queue: Queue) -> PendingReply[list[Delivered]]:
        return PendingReply(lambda messages: self.undo(queue, messages))

    def _rotate_partitions(self, queue: Queue) -> list[QueuePartition]:
        """Returns the queue's partitions led by this broker, starting with a different partition each time."""
        found = self.queue_partitions.of_topic(queue.topic_id)
        if len(found) > 1:
            first = next(self._turns) % len(found)
            found = found[first:] + found[:first]
        return found

    def other_leaders(self, queue: Queue) -> list[int]:
        """Returns the ids of the other brokers that lead partitions of the queue."""
        image = self.image()
        topic = image.topics.get(queue.topic_id)
        if topic is None:
            return []
        leaders = dict.fromkeys(state.leader for state in topic.partitions.values())
        return [node for node in leaders if node in image.brokers and node != self.peer_brokers.node_id]

    # -- long polls

    def deliver(self, ticket: int, messages: list[Delivered]) -> bool:
        """Gives messages from another broker to a long poll; returns whether the long poll took them."""
        long_poll = self.long_polls.get(ticket)
        if long_poll is None or any(each.holder != long_poll.receive_request.holder for each in messages):
            return False  # they are for another long poll, maybe of another queue
        is_taken = long_poll.reply.is_awaited
        if is_taken:
            long_poll.finish(messages)
        return is_taken

    def stop_peer_long_poll(self, node: int, ticket: int) -> None:
        """Ends the long poll of another broker's client."""
        long_poll = self.peer_long_polls.get((node, ticket))
        if long_poll is not None:
            long_poll.close()

    def refresh(self) -> None:
        """Makes all long polls wait at the current partition leaders, after a metadata change."""
        topics, self._topics_seen = self._topics_seen, self.image().topics
        for long_poll in list(self.long_polls.values()):
            topic_id = long_poll.queue.topic_id
            if topics.get(topic_id) is not self._topics_seen.get(topic_id):
                long_poll.wait_at_leaders()

    def _on_ready(self, partition: QueuePartition) -> None:
        for long_poll in (*self.long_polls.values(), *self.peer_long_polls.values()):
            if long_poll.queue.topic_id == partition.partition.topic_id:
                long_poll.wait_at_leaders()

    def finish_all(self) -> None:
        """Answers all long polls with no messages, because this broker stops."""
        for long_poll in list(self.long_polls.values()):
            long_poll.finish([])

    def __len__(self) -> int:
        return len(self.long_polls)


class LongPoll(Waiter):
    """A receive request that waits for messages at the partitions led by this broker."""

    __slots__ = ("_receivers", "_stop_timer", "queue", "ticket")

    def __init__(
        self,
        receivers: Receivers,
        ticket: int,
        queue: Queue,
        receive_request: ReceiveRequest,
        wait_ms: int,
        take: Callable[[list[Delivered]], None],
    ) -> None:
        super().__init__(receive_request, take)
        self._receivers = receivers
        self.ticket: Final = ticket
        self.queue: Final = queue
        self._stop_timer = receivers.timer(wait_ms / 1000, self.expire)

    def wait_at_leaders(self) -> None:
        """Adds this long poll to the waiting receivers of those partitions of the queue that this broker leads."""
        for partition in self._receivers.queue_partitions.of_topic(self.queue.topic_id):
            partition.park(self)

    def expire(self) -> None:
        """Ends the wait without messages."""
        self.close()

    def close(self) -> None:
        self._stop_timer()
        self.is_open = False
        for partition in self._receivers.queue_partitions.of_topic(self.queue.topic_id):
            partition.unpark(self)


class ClientLongPoll(LongPoll):
    """A long poll of a client of this broker; waits at all leaders of the queue's partitions."""

    __slots__ = ("_until_ms", "_waiting_at", "reply")

    def __init__(
        self, receivers: Receivers, ticket: int, queue: Queue, receive_request: ReceiveRequest, wait_ms: int
    ) -> None:
        super().__init__(receivers, ticket, queue, receive_request, wait_ms, self.finish)
        self.reply: Final = receivers.pending_reply(queue)
        self._until_ms = receivers.clock.steady_ms() + wait_ms
        self._waiting_at: dict[int, int] = {}
        """Ids of the other brokers at which the request waits, each with its broker epoch when the wait began."""

    def wait_at_leaders(self) -> None:
        """Starts to wait at all brokers that lead partitions of the queue now."""
        receivers, image = self._receivers, self._receivers.image()
        if not self.reply.is_awaited:
            return
        if self.queue.topic_id not in image.topics:
            self.finish(NoSuchQueue(f"queue {self.queue.name!r} was deleted"))
            return
        super().wait_at_leaders()
        wait_ms = self._until_ms - receivers.clock.steady_ms()
        for node in receivers.other_leaders(self.queue) if wait_ms > 0 else ():
            epoch = image.brokers[node].epoch
            if self._waiting_at.get(node) != epoch:
                self._waiting_at[node] = epoch
                self._wait_at(node, wait_ms)

    def _wait_at(self, node: int, wait_ms: int) -> None:
        def on_reply(reply: list[Delivered] | PenstockError) -> None:
            if isinstance(reply, PenstockError):
                self._waiting_at.pop(node, None)
                if self.reply.is_awaited:
                    self._receivers.timer(RETRY_S, self.wait_at_leaders)
            elif reply:
                self.finish(reply)

        peer_brokers = self._receivers.peer_brokers
        peer_brokers.receive(node, self.queue, self.receive_request, wait_ms, self.ticket, on_reply)

    def finish(self, reply: list[Delivered] | PenstockError) -> None:
        """Answers the client; undoes the delivery if the client was answered already or is gone."""
        self.close()
        self.reply(reply)

    def expire(self) -> None:
        self.finish([])

    def close(self) -> None:
        if self._receivers.long_polls.pop(self.ticket, None) is None:
            return
        super().close()
        request = QueueControlRequest(
            action=STOP_WAITING,
            topic_id=self.queue.topic_id,
            node_id=self._receivers.peer_brokers.node_id,
            ticket=self.ticket,
        )
        for node in self._waiting_at:
            self._receivers.peer_brokers.control(node, request, _ignore)


class PeerLongPoll(LongPoll):
    """A long poll of another broker's client, for messages of the partitions led by this broker."""

    __slots__ = ("_node",)

    def __init__(
        self,
        receivers: Receivers,
        node: int,
        ticket: int,
        queue: Queue,
        receive_request: ReceiveRequest,
        wait_ms: int,
    ) -> None:
        super().__init__(receivers, ticket, queue, receive_request, wait_ms, self._send)
        self._node = node

    def _send(self, messages: list[Delivered]) -> None:
        """Sends messages to the client's broker; undoes the delivery if that broker refuses the messages.

        If it is unknown whether the messages arrived, the visibility timeout releases them.
        """

        def on_sent(is_taken: bool | PenstockError) -> None:
            if is_taken is False:
                self._receivers.undo(self.queue, messages)

        self.close()
        self._receivers.peer_brokers.deliver(self._node, self.ticket, messages, on_sent)

    def close(self) -> None:
        self._receivers.peer_long_polls.pop((self._node, self.ticket), None)
        super().close()


def _ignore(reply: object) -> None:
    pass
