"""Receiving from a queue: at the partitions that are led here, then at other brokers, or at all of them at once.

Whoever waits is known to every leader of the queue's partitions; the first that has something for it gives it, and
what comes too late is as if never delivered.
"""

import itertools
import secrets
from collections.abc import Callable, Iterable, Iterator, Sequence
from typing import Final

from penstock.broker.queues.messages import Delivered
from penstock.broker.queues.outcome import Outcome
from penstock.broker.queues.partition import QueuePartition, ReceiveRequest, TakeMessages, Waiter
from penstock.broker.queues.partitions import QueuePartitions
from penstock.broker.queues.remote import PeerBrokers
from penstock.cluster.image import ClusterImage
from penstock.cluster.queues import NoSuchQueue, Queue
from penstock.foundation.clock import Clock, Timer
from penstock.foundation.errors import PenstockError
from penstock.wire.messages.queue_control import STOP_WAITING, QueueControlRequest

TICKET_BITS: Final = 62
"""Tickets begin anywhere: other brokers may know those of an earlier life of this one for a while."""
AGAIN_S: Final = 0.5
"""After what time a broker is asked again that could not be reached."""


class Receivers:
    """All that is received through this broker, and all that waits here for others."""

    def __init__(
        self,
        *,
        image: Callable[[], ClusterImage],
        queue_partitions: QueuePartitions,
        peer_brokers: PeerBrokers,
        give_back: Callable[[Queue, Sequence[Delivered]], None],
        clock: Clock,
        timer: Timer,
    ) -> None:
        """`give_back`: undoes deliveries to a client that is gone."""
        self.image = image
        self.queue_partitions: Final = queue_partitions
        self.peer_brokers: Final = peer_brokers
        self.give_back: Final = give_back
        self.clock: Final = clock
        self.timer: Final = timer
        self._turns = itertools.count()
        self._tickets = itertools.count(secrets.randbits(TICKET_BITS))
        self._waiting: dict[int, Receiving] = {}
        self._remote_waiters: dict[tuple[int, int], _RemoteWaiter] = {}
        self._seen = image().topics
        queue_partitions.on_ready.append(self._on_ready)

    def receive(
        self, queue: Queue, receive_request: ReceiveRequest, wait_ms: int, then: Outcome[list[Delivered]]
    ) -> "Receiving":
        """Messages for a client of this broker; none, if none have come when the time is up."""
        receiving = Receiving(self, next(self._tickets), queue, receive_request, wait_ms, then)
        receiving.start()
        return receiving

    def in_turn(self, queue: Queue) -> list[QueuePartition]:
        """The partitions that are led here, another one first each time."""
        found = self.queue_partitions.of_topic(queue.topic_id)
        if len(found) > 1:
            first = next(self._turns) % len(found)
            found = found[first:] + found[:first]
        return found

    def others(self, queue: Queue) -> list[int]:
        """The brokers that lead its other partitions."""
        image = self.image()
        topic = image.topics.get(queue.topic_id)
        if topic is None:
            return []
        leaders = dict.fromkeys(state.leader for state in topic.partitions.values())
        return [node for node in leaders if node in image.brokers and node != self.peer_brokers.node_id]

    # -- those who wait

    def keep(self, receiving: "Receiving") -> None:
        self._waiting[receiving.ticket] = receiving

    def drop(self, receiving: "Receiving") -> None:
        self._waiting.pop(receiving.ticket, None)

    def refresh(self) -> None:
        """Partitions may have other leaders now."""
        topics, self._seen = self._seen, self.image().topics
        for receiving in list(self._waiting.values()):
            topic_id = receiving.queue.topic_id
            if topics.get(topic_id) is not self._seen.get(topic_id):
                receiving.refresh()

    def end_all(self) -> None:
        """Answer everyone who waits here: this broker stops."""
        for receiving in list(self._waiting.values()):
            receiving.end()

    def _on_ready(self, partition: QueuePartition) -> None:
        for receiving in list(self._waiting.values()):
            if receiving.queue.topic_id == partition.partition.topic_id:
                receiving.refresh()
        for remote_waiter in list(self._remote_waiters.values()):
            if remote_waiter.queue.topic_id == partition.partition.topic_id:
                partition.park(remote_waiter.waiter)

    def delivered(self, ticket: int, messages: Sequence[Delivered]) -> bool:
        """Another broker has something for somebody who waits here; whether it is taken."""
        receiving = self._waiting.get(ticket)
        if receiving is None or any(each.holder != receiving.holder for each in messages):
            return False  # they are for somebody else, maybe of another queue
        return receiving.take(list(messages))

    # -- those who wait at other brokers

    def visit(
        self, node: int, ticket: int, queue: Queue, receive_request: ReceiveRequest, wait_ms: int, then: TakeMessages
    ) -> None:
        """What there is on the partitions led here for a client of another broker; what comes later is sent there."""

        def on_tried(found: list[Delivered] | PenstockError) -> None:
            if not found and wait_ms > 0:
                self._remote_waiters[node, ticket] = _RemoteWaiter(
                    self, node, ticket, queue, receive_request, wait_ms
                )
            then(found)

        Trying(self.in_turn(queue), receive_request, on_tried).go_on()

    def leave(self, node: int, ticket: int) -> None:
        """Nobody waits there any more."""
        remote_waiter = self._remote_waiters.pop((node, ticket), None)
        if remote_waiter is not None:
            remote_waiter.close()

    def __len__(self) -> int:
        return len(self._waiting)


class Trying:
    """Looks at partitions one after another, until there are as many messages as are wanted."""

    def __init__(
        self, partitions: Iterable[QueuePartition], receive_request: ReceiveRequest, then: TakeMessages
    ) -> None:
        self._partitions: Iterator[QueuePartition] = iter(partitions)
        self._receive_request = receive_request
        self._then = then
        self._found: list[Delivered] = []
        self._error: PenstockError | None = None

    def go_on(self) -> None:
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
        self.go_on()


class Receiving:
    """One request for messages of a queue."""

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
        """Once it waits."""
        self._asked: dict[int, int] = {}
        """Brokers that know of it, and the registrations that they had then."""
        self._left: list[int] = []
        self._stop_timer: Callable[[], None] | None = None

    @property
    def holder(self) -> str:
        """Under which name it takes messages in hand."""
        return self._receive_request.holder

    def start(self) -> None:
        found = self._receivers.in_turn(self.queue)
        if len(found) == 1:
            found[0].receive(self._receive_request, self._on_tried)
        else:
            Trying(found, self._receive_request, self._on_tried).go_on()

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
            self._left = self._receivers.others(self.queue)
            self._ask_next()

    # -- somebody who does not wait

    def _ask_next(self) -> None:
        """One broker after another."""
        if self._then is None:
            return
        if not self._left:
            self._finish([])
            return
        node = self._left.pop(0)
        self._receivers.peer_brokers.receive(node, self.queue, self._receive_request, 0, self.ticket, self._on_asked)

    def _on_asked(self, reply: list[Delivered] | PenstockError) -> None:
        if reply and not isinstance(reply, PenstockError):
            self._take(reply)
        elif isinstance(reply, PenstockError) and not self._left and self._then is not None:
            self._finish(reply)
        else:
            self._ask_next()

    # -- somebody who waits

    def _wait(self) -> None:
        self.waiter = Waiter(self._receive_request, self._take)
        self._receivers.keep(self)
        self._stop_timer = self._receivers.timer(self._wait_ms / 1000, lambda: self._finish([]))
        self.refresh()

    def refresh(self) -> None:
        """Be known wherever the queue's partitions are led now."""
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
            if self._asked.get(node) != epoch:
                self._asked[node] = epoch
                self._ask_to_wait(node, wait_ms)

    def _ask_to_wait(self, node: int, wait_ms: int) -> None:
        def on_answer(reply: list[Delivered] | PenstockError) -> None:
            if isinstance(reply, PenstockError):
                self._asked.pop(node, None)
                if self._then is not None:
                    self._receivers.timer(AGAIN_S, self.refresh)
            elif reply:
                self._take(reply)

        self._receivers.peer_brokers.receive(node, self.queue, self._receive_request, wait_ms, self.ticket, on_answer)

    def _take(self, messages: list[Delivered]) -> None:
        if not self.take(messages):
            self._receivers.give_back(self.queue, messages)

    # -- the end

    def take(self, messages: list[Delivered]) -> bool:
        """Whether somebody is still there to take them."""
        if self._then is None or self._then.is_gone:
            return False
        self._finish(messages)
        return True

    def end(self) -> None:
        """There is nothing for it, and it need not wait for more."""
        self._finish([])

    def _finish(self, reply: list[Delivered] | PenstockError) -> None:
        then = self._then
        self.cancel()
        if then is not None:
            then(reply)

    def cancel(self) -> None:
        """Nobody waits any more."""
        if self._then is None:
            return
        self._then = None
        if self._stop_timer is None or self.waiter is None:
            return
        self._stop_timer()
        self._receivers.drop(self)
        self.waiter.is_open = False
        for partition in self._receivers.queue_partitions.of_topic(self.queue.topic_id):
            partition.unpark(self.waiter)
        for node in self._asked:
            request = QueueControlRequest(
                action=STOP_WAITING,
                topic_id=self.queue.topic_id,
                node_id=self._receivers.peer_brokers.node_id,
                ticket=self.ticket,
            )
            self._receivers.peer_brokers.control(node, request, _ignore)


class _RemoteWaiter:
    """A client of another broker that waits at the partitions led here."""

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
        self._stop_timer = receivers.timer(wait_ms / 1000, lambda: receivers.leave(node, ticket))
        for partition in receivers.queue_partitions.of_topic(queue.topic_id):
            partition.park(self.waiter)

    def _send(self, messages: list[Delivered]) -> None:
        self._receivers.leave(self._node, self._ticket)
        self._receivers.peer_brokers.deliver(
            self._node, self._ticket, messages, lambda is_taken: self._on_sent(messages, is_taken)
        )

    def _on_sent(self, messages: Sequence[Delivered], is_taken: bool | PenstockError) -> None:
        """If nobody knows whether they were taken, they come back when their time is up."""
        if is_taken is False:
            self._receivers.give_back(self.queue, messages)

    def close(self) -> None:
        self._stop_timer()
        self.waiter.is_open = False
        for partition in self._receivers.queue_partitions.of_topic(self.queue.topic_id):
            partition.unpark(self.waiter)


def _ignore(reply: object) -> None:
    """Nobody waits for it."""
