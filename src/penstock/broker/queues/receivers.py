"""ReceiveMessage: tries the partitions led by this broker, then other brokers; long polls wait at all leaders.

A long-polling receiver waits at every leader of the queue's partitions. The first leader with messages delivers them;
deliveries that arrive later are undone.
"""

import itertools
import secrets
from collections.abc import Callable, Iterable, Iterator, Sequence
from typing import Final

from penstock.broker.queues.messages import Delivered
from penstock.broker.queues.partition import QueuePartition, ReceiveRequest, TakeMessages, Waiter
from penstock.broker.queues.partitions import QueuePartitions
from penstock.broker.queues.peer_brokers import PeerBrokers
from penstock.broker.queues.pending_reply import Outcome
from penstock.cluster.image import ClusterImage
from penstock.cluster.queues import NoSuchQueue, Queue
from penstock.foundation.clock import Clock, Timer
from penstock.foundation.errors import PenstockError
from penstock.wire.messages.queue_control import STOP_WAITING, QueueControlRequest

TICKET_BITS: Final = 62
"""Size of the random first ticket, in bits: other brokers may still use tickets from before this broker's restart."""
RETRY_S: Final = 0.5
"""Pause, in seconds, before an unreachable broker is asked again."""


class Receivers:
    """All receive requests of this broker's clients, and the long-polling receivers of other brokers' clients."""

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
        self._waiting: dict[int, PendingReceive] = {}
        self._remote_waiters: dict[tuple[int, int], _RemoteWaiter] = {}
        self._topics_seen = image().topics
        queue_partitions.on_ready.append(self._on_ready)

    def receive(
        self, queue: Queue, receive_request: ReceiveRequest, wait_ms: int, then: Outcome[list[Delivered]]
    ) -> "PendingReceive":
        """Receives messages for a client of this broker; the result is empty if none arrive within `wait_ms`."""
        pending = PendingReceive(self, next(self._tickets), queue, receive_request, wait_ms, then)
        pending.start()
        return pending

    def rotate_partitions(self, queue: Queue) -> list[QueuePartition]:
        """Returns the queue's partitions led by this broker, starting with a different partition each time."""
        found = self.queue_partitions.of_topic(queue.topic_id)
        if len(found) > 1:
            first = next(self._turns) % len(found)
            found = found[first:] + found[:first]
        return found

    def others(self, queue: Queue) -> list[int]:
        """Returns the ids of the other brokers that lead partitions of the queue."""
        image = self.image()
        topic = image.topics.get(queue.topic_id)
        if topic is None:
            return []
        leaders = dict.fromkeys(state.leader for state in topic.partitions.values())
        return [node for node in leaders if node in image.brokers and node != self.peer_brokers.node_id]

    # -- waiting receivers

    def add(self, pending: "PendingReceive") -> None:
        self._waiting[pending.ticket] = pending

    def remove(self, pending: "PendingReceive") -> None:
        self._waiting.pop(pending.ticket, None)

    def refresh(self) -> None:
        """Registers waiting receivers with the current leaders after a metadata change."""
        topics, self._topics_seen = self._topics_seen, self.image().topics
        for pending in list(self._waiting.values()):
            topic_id = pending.queue.topic_id
            if topics.get(topic_id) is not self._topics_seen.get(topic_id):
                pending.refresh()

    def finish_all(self) -> None:
        """Answers all waiting receivers with no messages, because this broker stops."""
        for pending in list(self._waiting.values()):
            pending.finish_empty()

    def _on_ready(self, partition: QueuePartition) -> None:
        for pending in list(self._waiting.values()):
            if pending.queue.topic_id == partition.partition.topic_id:
                pending.refresh()
        for remote_waiter in list(self._remote_waiters.values()):
            if remote_waiter.queue.topic_id == partition.partition.topic_id:
                partition.park(remote_waiter.waiter)

    def delivered(self, ticket: int, messages: Sequence[Delivered]) -> bool:
        """Gives messages from another broker to a waiting receiver; returns whether the receiver took them."""
        pending = self._waiting.get(ticket)
        if pending is None or any(each.holder != pending.holder for each in messages):
            return False  # they are for another receiver, maybe of another queue
        return pending.take(list(messages))

    # -- waiters of other brokers

    def receive_for_peer(
        self, node: int, ticket: int, queue: Queue, receive_request: ReceiveRequest, wait_ms: int, then: TakeMessages
    ) -> None:
        """Calls `then` with messages for another broker; sends later messages there while its client waits."""

        def on_tried(found: list[Delivered] | PenstockError) -> None:
            if not found and wait_ms > 0:
                self._remote_waiters[node, ticket] = _RemoteWaiter(
                    self, node, ticket, queue, receive_request, wait_ms
                )
            then(found)

        PartitionSweep(self.rotate_partitions(queue), receive_request, on_tried).try_next()

    def remove_waiter(self, node: int, ticket: int) -> None:
        """Removes the long-polling receiver of another broker's client."""
        remote_waiter = self._remote_waiters.pop((node, ticket), None)
        if remote_waiter is not None:
            remote_waiter.close()

    def __len__(self) -> int:
        return len(self._waiting)


class PartitionSweep:
    """Receives from one partition after another until there are enough messages."""

    def __init__(
        self, partitions: Iterable[QueuePartition], receive_request: ReceiveRequest, then: TakeMessages
    ) -> None:
        self._partitions: Iterator[QueuePartition] = iter(partitions)
        self._receive_request = receive_request
        self._then = then
        self._found: list[Delivered] = []
        self._error: PenstockError | None = None

    def try_next(self) -> None:
        partition = next(self._partitions, None)
        if partition is not None:
            receive_request = self._receive_request
            if self._found:
                receive_request = receive_request._replace(
                    max_messages=receive_request.max_messages - len(self._found)
                )
            partition.receive(receive_request, self._on_reply)
        elif self._error is not None and not self._found:
            self._then(self._error)
        else:
            self._then(self._found)

    def _on_reply(self, reply: list[Delivered] | PenstockError) -> None:
        if isinstance(reply, PenstockError):
            self._error = reply
        else:
            self._found += reply
            if len(self._found) >= self._receive_request.max_messages:
                self._then(self._found)
                return
        self.try_next()


class PendingReceive:
    """One receive request of a client."""

    def __init__(
        self,
        receivers: Receivers,
        ticket: int,
        queue: Queue,
        receive_request: ReceiveRequest,
        wait_ms: int,
        then: Outcome[list[Delivered]],
    ) -> None:
        self._receivers = receivers
        self.ticket: Final = ticket
        self.queue: Final = queue
        self._receive_request = receive_request
        self._until_ms = receivers.clock.steady_ms() + wait_ms
        self._wait_ms = wait_ms
        self._then: Outcome[list[Delivered]] | None = then
        self.waiter: Waiter | None = None
        """The long-polling receiver; set while the request waits."""
        self._waiting_at: dict[int, int] = {}
        """Ids of the brokers at which the request waits, with their broker epochs when it was registered."""
        self._nodes_left: list[int] = []
        self._stop_timer: Callable[[], None] | None = None

    @property
    def holder(self) -> str:
        """The holder name under which this request acquires messages."""
        return self._receive_request.holder

    def start(self) -> None:
        found = self._receivers.rotate_partitions(self.queue)
        if len(found) == 1:
            found[0].receive(self._receive_request, self._on_tried)
        else:
            PartitionSweep(found, self._receive_request, self._on_tried).try_next()

    def _on_tried(self, reply: list[Delivered] | PenstockError) -> None:
        if isinstance(reply, PenstockError):
            self._finish(reply)
        elif reply:
            self._take(reply)
        elif self._then is None:
            return
        elif self._wait_ms > 0:
            self._wait()
        else:
            self._nodes_left = self._receivers.others(self.queue)
            self._ask_next()

    # -- without waiting

    def _ask_next(self) -> None:
        """Asks the other leaders for messages, one after another, without long polling."""
        if self._then is None:
            return
        if not self._nodes_left:
            self._finish([])
            return
        node = self._nodes_left.pop(0)
        self._receivers.peer_brokers.receive(node, self.queue, self._receive_request, 0, self.ticket, self._on_asked)

    def _on_asked(self, reply: list[Delivered] | PenstockError) -> None:
        if reply and not isinstance(reply, PenstockError):
            self._take(reply)
        elif isinstance(reply, PenstockError) and not self._nodes_left and self._then is not None:
            self._finish(reply)
        else:
            self._ask_next()

    # -- long polling

    def _wait(self) -> None:
        self.waiter = Waiter(self._receive_request, self._take)
        self._receivers.add(self)
        self._stop_timer = self._receivers.timer(self._wait_ms / 1000, lambda: self._finish([]))
        self.refresh()

    def refresh(self) -> None:
        """Long-polls at all brokers that lead partitions of the queue now."""
        if self._then is None or self.waiter is None:
            return
        if self.queue.topic_id not in self._receivers.image().topics:
            self._finish(NoSuchQueue(f"queue {self.queue.name!r} was deleted"))
            return
        for partition in self._receivers.queue_partitions.of_topic(self.queue.topic_id):
            partition.park(self.waiter)
        wait_ms = self._until_ms - self._receivers.clock.steady_ms()
        brokers = self._receivers.image().brokers
        for node in self._receivers.others(self.queue) if wait_ms > 0 else ():
            epoch = brokers[node].epoch
            if self._waiting_at.get(node) != epoch:
                self._waiting_at[node] = epoch
                self._wait_at(node, wait_ms)

    def _wait_at(self, node: int, wait_ms: int) -> None:
        def on_answer(reply: list[Delivered] | PenstockError) -> None:
            if isinstance(reply, PenstockError):
                self._waiting_at.pop(node, None)
                if self._then is not None:
                    self._receivers.timer(RETRY_S, self.refresh)
            elif reply:
                self._take(reply)

        self._receivers.peer_brokers.receive(node, self.queue, self._receive_request, wait_ms, self.ticket, on_answer)

    def _take(self, messages: list[Delivered]) -> None:
        if not self.take(messages):
            self._receivers.undo(self.queue, messages)

    # -- finishing

    def take(self, messages: list[Delivered]) -> bool:
        """Answers the client with these messages; returns False if the client is gone or was already answered."""
        if self._then is None or self._then.is_gone:
            return False
        self._finish(messages)
        return True

    def finish_empty(self) -> None:
        """Answers the client with no messages."""
        self._finish([])

    def _finish(self, reply: list[Delivered] | PenstockError) -> None:
        then = self._then
        self.cancel()
        if then is not None:
            then(reply)

    def cancel(self) -> None:
        """Stops waiting: the client is gone or has been answered."""
        if self._then is None:
            return
        self._then = None
        if self._stop_timer is None or self.waiter is None:
            return
        self._stop_timer()
        self._receivers.remove(self)
        self.waiter.is_open = False
        for partition in self._receivers.queue_partitions.of_topic(self.queue.topic_id):
            partition.unpark(self.waiter)
        for node in self._waiting_at:
            request = QueueControlRequest(
                action=STOP_WAITING,
                topic_id=self.queue.topic_id,
                node_id=self._receivers.peer_brokers.node_id,
                ticket=self.ticket,
            )
            self._receivers.peer_brokers.control(node, request, _ignore)


class _RemoteWaiter:
    """A client of another broker that waits for messages of the partitions led by this broker."""

    def __init__(
        self,
        receivers: Receivers,
        node: int,
        ticket: int,
        queue: Queue,
        receive_request: ReceiveRequest,
        wait_ms: int,
    ) -> None:
        self._receivers = receivers
        self._node = node
        self._ticket = ticket
        self.queue: Final = queue
        self.waiter = Waiter(receive_request, self._send)
        self._stop_timer = receivers.timer(wait_ms / 1000, lambda: receivers.remove_waiter(node, ticket))
        for partition in receivers.queue_partitions.of_topic(queue.topic_id):
            partition.park(self.waiter)

    def _send(self, messages: list[Delivered]) -> None:
        self._receivers.remove_waiter(self._node, self._ticket)
        self._receivers.peer_brokers.deliver(
            self._node, self._ticket, messages, lambda is_taken: self._on_sent(messages, is_taken)
        )

    def _on_sent(self, messages: Sequence[Delivered], is_taken: bool | PenstockError) -> None:
        """Undoes a refused delivery. If the outcome is unknown, the visibility timeout releases the messages."""
        if is_taken is False:
            self._receivers.undo(self.queue, messages)

    def close(self) -> None:
        self._stop_timer()
        self.waiter.is_open = False
        for partition in self._receivers.queue_partitions.of_topic(self.queue.topic_id):
            partition.unpark(self.waiter)


def _ignore(reply: object) -> None:
    pass
