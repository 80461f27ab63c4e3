"""The queue service of a broker: called by the SQS API and by other brokers.

The coroutines of `send`, `receive` and `acknowledge` do not wait if this broker leads the partition and the records
are committed at once: they can be started without a task (foundation/eager_task.py).
"""

import asyncio
import contextlib
import hashlib
import itertools
import secrets
from collections.abc import Callable, Coroutine, Mapping, Sequence
from concurrent.futures import Executor
from dataclasses import replace
from functools import partial
from typing import Any, Final, TypeVar

from penstock.broker.peers import AskPeer
from penstock.broker.queues.administration import QueueAdministration
from penstock.broker.queues.counts import QueueCounter, sum_counts
from penstock.broker.queues.message_appender import MessageAppender
from penstock.broker.queues.message_mover import MessageMover, Validate
from penstock.broker.queues.messages import Delivered, MessageAck, NewMessage, QueueUnavailable, Sent
from penstock.broker.queues.move_tasks import MoveTasks
from penstock.broker.queues.partition import QueuePartition, ReceiveRequest
from penstock.broker.queues.partitions import QueuePartitions
from penstock.broker.queues.peek import QueuePeeks
from penstock.broker.queues.peer_brokers import PeerBrokers
from penstock.broker.queues.pending_reply import PendingReply
from penstock.broker.queues.receivers import Receivers
from penstock.broker.queues.reclamation import Reclaimer
from penstock.broker.queues.router import QueueRouter
from penstock.broker.transactions.producer_ids import ProducerIds
from penstock.cluster import keys
from penstock.cluster.image import ClusterImage
from penstock.cluster.metadata import Metadata
from penstock.cluster.queue_changes import find_queue, queue_of
from penstock.cluster.queue_cooldowns import QueueCooldowns
from penstock.cluster.queues import MoveTask, NoSuchQueue, Queue, QueueSettings
from penstock.cluster.topic_changes import Defaults
from penstock.foundation.clock import Clock, Timer
from penstock.foundation.eager_task import start
from penstock.foundation.errors import PenstockError
from penstock.foundation.time_slices import TimeSlices
from penstock.queues.commands import AckType, Counts, DeleteGroup
from penstock.queues.settings import IN_FLIGHT_MAX, LOOKAHEAD_MAX, DeadLetter, DeliverySettings, share_of
from penstock.replication.partitions import Partitions
from penstock.wire.messages.queue_control import COUNT, FORGET, PURGE, QueueControlRequest

ATTEMPT_CHARS: Final = 16
"""Number of hex digits of a ReceiveRequestAttemptId's hash, which names the consumer that holds the messages."""
WAIT_FOR_QUEUE_S: Final = 5.0
_SETTINGS_CACHE_MAX: Final = 10_000

T = TypeVar("T")


class QueueService:
    """Access to all queues of the cluster through this broker."""

    def __init__(
        self,
        *,
        node_id: int,
        metadata: Metadata,
        partitions: Partitions,
        producer_ids: ProducerIds,
        defaults: Callable[[], Defaults],
        clock: Clock,
        timer: Timer,
        threads: Executor,
        slices: TimeSlices,
        ask: AskPeer,
        validate: Validate,
    ) -> None:
        self._metadata, self._clock = metadata, clock
        led = QueuePartitions(partitions=partitions, clock=clock, timer=timer, threads=threads)
        self.queue_partitions: Final = led
        self._tasks: set[asyncio.Task[Any]] = set()
        led.perform = MessageMover(
            node_id=node_id,
            partitions=partitions,
            runtimes=led.runtimes,
            image=lambda: metadata.image,
            producer_ids=producer_ids,
            ask=ask,
            clock=clock,
            threads=threads,
            slices=slices,
            spawn=self._spawn,
            validate=validate,
        ).perform
        peers = PeerBrokers(node_id, ask)
        self.router: Final = QueueRouter(
            image=lambda: metadata.image,
            partitions=partitions,
            queue_partitions=led,
            peer_brokers=peers,
            appender=MessageAppender(clock=clock, timer=timer),
            settings_of=self.delivery_settings,
            clock=clock,
            threads=threads,
        )
        self.receivers: Final = Receivers(
            image=lambda: metadata.image,
            queue_partitions=led,
            peer_brokers=peers,
            undo=self.undo,
            clock=clock,
            timer=timer,
        )
        self.peeks: Final = QueuePeeks(led, self.receivers.other_leaders, peers.peek, threads)
        self._administration = QueueAdministration(metadata=metadata, clock=clock, defaults=defaults)
        self.cooldowns, self.counter = QueueCooldowns(metadata, clock), QueueCounter(threads)
        self._move_tasks = MoveTasks(
            metadata=metadata, partitions=led, settings_of=self.delivery_settings, count=self.counts, clock=clock
        )
        self.reclaimer: Final = Reclaimer(
            queue_partitions=led, partitions=partitions, image=lambda: metadata.image, clock=clock
        )
        self._settings: dict[str, tuple[ClusterImage, Queue, DeliverySettings]] = {}
        self._holders = map("{}.{:x}".format, itertools.repeat(secrets.token_urlsafe(6)), itertools.count())

    @property
    def image(self) -> ClusterImage:
        return self._metadata.image

    def apply(self, image: ClusterImage) -> None:
        """Applies a new metadata image to the queues. Call after `Partitions.apply` with the same image."""
        self.queue_partitions.apply(image)
        self.router.apply()
        self.receivers.refresh()
        self._move_tasks.apply(image)

    def run(self, work: Coroutine[Any, Any, T], then: Callable[[T], None]) -> None:
        """Runs a coroutine, then calls `then` with its result: synchronously if the coroutine never suspends, else
        from a task. If the coroutine raises, `then` is not called."""
        found = start(work)
        if not isinstance(found, asyncio.Task):
            then(found)
            return

        def done(task: asyncio.Task[T]) -> None:
            self._tasks.discard(task)
            if not task.cancelled():
                then(task.result())

        self._tasks.add(found)
        found.add_done_callback(done)

    def _spawn(self, work: Coroutine[Any, Any, object]) -> None:
        task = asyncio.get_running_loop().create_task(work)
        self._tasks.add(task)
        task.add_done_callback(self._tasks.discard)

    async def close(self) -> None:
        self.queue_partitions.close()
        await self._move_tasks.close()
        for task in self._tasks:
            task.cancel()
        await asyncio.gather(*self._tasks, return_exceptions=True)

    # -- administration

    def queue(self, name: str) -> Queue | None:
        return find_queue(self.image, name)

    async def wait_for_queue(self, name: str) -> None:
        """Waits for a queue that is in the metadata store but not in this broker's metadata image yet."""
        with contextlib.suppress(TimeoutError):
            async with asyncio.timeout(WAIT_FOR_QUEUE_S):
                if await self._metadata.is_stored(keys.queue(name)):
                    await self._metadata.until(lambda image: find_queue(image, name) is not None)

    def find_for_peer(self, name: str, topic_id: bytes) -> Queue:
        """Returns the queue that another broker named. Raises NoSuchQueue, also if another queue reuses the name."""
        found = queue_of(self.image, name)
        if found.topic_id != topic_id:
            raise NoSuchQueue(f"queue {name!r} was deleted and created again")
        return found

    def queues(self) -> Mapping[str, Queue]:
        topics = self.image.topics
        return {name: queue for name, queue in self.image.queues.items() if queue.topic_id in topics}

    async def create(
        self,
        name: str,
        settings: QueueSettings,
        tags: Mapping[str, str],
        owner: str,
        topic: str | None = None,
    ) -> Queue:
        """Creates a queue, on its own topic or attached to a topic. Raises QueueExists, NameTaken, Kafka's errors."""
        return await self._administration.create(name, settings, tags, owner, topic)

    async def alter(self, name: str, change: Callable[[QueueSettings], QueueSettings]) -> Queue:
        """Changes the settings of a queue; returns the queue. Raises NoSuchQueue and the errors of `change`."""
        return await self._administration.alter(name, lambda queue: replace(queue, settings=change(queue.settings)))

    async def tag(self, name: str, add: Mapping[str, str], remove: Sequence[str]) -> Queue:
        """Adds and removes tags of a queue; returns the changed queue. Raises NoSuchQueue."""

        def change(queue: Queue) -> Queue:
            tags = {**queue.tags, **add}
            return replace(queue, tags={key: value for key, value in tags.items() if key not in remove})

        return await self._administration.alter(name, change)

    async def delete(self, name: str) -> None:
        """Deletes a queue and, unless it is attached to a topic, its messages. Raises NoSuchQueue."""
        queue = queue_of(self.image, name)
        if queue.is_attached:
            # First: a queue created again under this name must not find delivery state of this one.
            try:
                await self._control_all(queue, FORGET)
            except QueueUnavailable:
                if queue.is_same(self.queue(name)) and await self._metadata.is_stored(keys.topic(queue.topic_id)):
                    raise
                return  # it was deleted meanwhile, alone or with its topic
        await self._administration.delete(queue)

    async def purge(self, name: str) -> None:
        """Deletes all messages that are in the queue now; later messages may reuse their deduplication ids.

        Raises NoSuchQueue.
        """
        await self._control_all(queue_of(self.image, name), PURGE)

    # -- messages

    def send(self, queue: Queue, messages: Sequence[NewMessage]) -> Coroutine[Any, Any, list[Sent | PenstockError]]:
        """Sends messages; returns a result for each message, in the same order, once the messages are committed."""
        return self.router.send(queue, messages)

    async def receive(
        self, queue: Queue, *, max_messages: int, visibility_ms: int, wait_ms: int, attempt_id: str = ""
    ) -> list[Delivered]:
        """Receives messages; if there are none, waits up to `wait_ms`. Raises OverLimit if too many are in flight.

        If the task is cancelled, the deliveries are undone.
        """
        holder = self._holder(queue, attempt_id)
        receive_request = self.receive_request(queue, holder, max_messages, visibility_ms, bool(attempt_id))
        return await self.receivers.receive(queue, receive_request, wait_ms)

    def make_undo(self, queue: Queue, messages: Sequence[Delivered]) -> Callable[[], None] | None:
        """Returns a function that undoes these deliveries, so that they do not count; None if none can be undone.

        The function does not keep the messages themselves in memory.
        """
        items = [
            MessageAck(each.partition, each.offset, each.holder, AckType.UNDO)
            for each in messages
            if not each.is_repeat
        ]
        return (lambda: self._spawn(self.router.acknowledge(queue, items))) if items else None

    def undo(self, queue: Queue, messages: Sequence[Delivered]) -> None:
        """Undoes deliveries to a client that has disconnected: the messages are visible at once."""
        undo = self.make_undo(queue, messages)
        if undo is not None:
            undo()

    def _holder(self, queue: Queue, attempt_id: str) -> str:
        if not attempt_id:
            return next(self._holders)
        digest = hashlib.sha256(f"{queue.name}/{attempt_id}".encode()).hexdigest()
        return f"attempt.{digest[:ATTEMPT_CHARS]}"

    def receive_request(
        self, queue: Queue, holder: str, max_messages: int, visibility_ms: int, repeat: bool
    ) -> ReceiveRequest:
        return ReceiveRequest(
            group=queue.name,
            holder=holder,
            max_messages=max_messages,
            visibility_ms=visibility_ms,
            settings=self.delivery_settings(queue),
            delay_ms=queue.settings.delay_s * 1000,
            repeat=repeat,
        )

    def acknowledge(
        self, queue: Queue, items: Sequence[MessageAck]
    ) -> Coroutine[Any, Any, list[PenstockError | None]]:
        """Acknowledges messages; returns None or an error (NotHeld or a subclass) for each message, in order."""
        return self.router.acknowledge(queue, items)

    def delivery_settings(self, queue: Queue) -> DeliverySettings:
        """Returns the delivery settings of a queue, from its current settings and dead-letter queue."""
        image = self.image
        known = self._settings.get(queue.name)
        if known is not None and known[0] is image and known[1] is queue:
            return known[2]
        topic = image.topics.get(queue.topic_id)
        count = len(topic.partitions) if topic is not None else 1
        redrive = queue.settings.redrive
        target = find_queue(image, redrive.queue) if redrive is not None else None
        dead_letter = None
        if target is not None:
            dead_letter = DeadLetter(target.topic_id, len(image.topics[target.topic_id].partitions))
        made = DeliverySettings(
            max_deliveries=redrive.max_receive_count if redrive is not None and dead_letter is not None else 0,
            is_fifo=queue.settings.is_fifo,
            in_flight_max=share_of(IN_FLIGHT_MAX, count),
            lookahead_max=share_of(LOOKAHEAD_MAX, count),
            dead_letter=dead_letter,
        )
        if len(self._settings) >= _SETTINGS_CACHE_MAX:
            self._settings.clear()
        self._settings[queue.name] = image, queue, made
        return made

    # -- all partitions of a queue

    async def counts(self, queue: Queue) -> Counts:
        """Returns the number of messages of a queue by state. Raises QueueUnavailable."""
        return sum_counts((await self._control_all(queue, COUNT)).values())

    async def _control_all(self, queue: Queue, action: int) -> dict[int, Counts]:
        request = QueueControlRequest(action=action, queue=queue.name, topic_id=queue.topic_id)
        try:
            return await self.router.control_all(queue, request, partial(self.control_here, queue, action))
        except QueueUnavailable:
            raise
        except PenstockError as error:
            raise QueueUnavailable(str(error)) from error

    async def control_here(self, queue: Queue, action: int, partition: QueuePartition) -> Counts:
        """Runs an action on a partition led here: COUNT, PURGE or FORGET (remove the queue's delivery state). Returns
        the partition's message counts afterwards."""
        done: PendingReply[Any] = PendingReply()
        if action == PURGE:
            partition.purges.purge(queue.name, forgets_ids=queue.settings.is_fifo, then=done)
            await done
        elif action == FORGET:
            partition.runtime.submit(DeleteGroup(queue.name), done)
            await done
        counts = await self.counter.counts(partition, queue.name, queue.settings.delay_s * 1000)
        return self._move_tasks.adjust_counts(partition, counts)

    # -- move tasks

    async def start_move(self, source: Queue, destination: Queue | None, per_second: int) -> MoveTask:
        """Starts to move messages of a dead-letter queue to `destination`, or to their source queues if that is
        None. Raises MoveTaskRunning, NoRedriveSource."""
        return await self._move_tasks.start(source, destination, per_second)

    async def moves(self, source: Queue) -> list[MoveTask]:
        """Returns the last ten move tasks of a source queue, newest first."""
        return await self._move_tasks.list(source)

    async def cancel_move(self, handle: str) -> MoveTask:
        """Cancels a move task; returns the task with its progress. Raises NoSuchMoveTask."""
        return await self._move_tasks.cancel(handle)
