"""Runs SQS message move tasks: redrives the messages of a dead-letter queue to their sources or another queue.

A task is in the metadata store, so every broker sees it. Each partition of the source queue is moved by its leader,
so a task survives failover; the leader of partition 0 detects when the task is complete.
"""

import asyncio
import logging
import secrets
from collections.abc import Awaitable, Callable, Container, Coroutine, Hashable, Sequence
from dataclasses import replace
from functools import partial
from typing import Any, Final, TypeVar

from penstock.broker.queues.messages import (
    Delivered,
    MoveTaskRunning,
    NoRedriveSource,
    NoSuchMoveTask,
)
from penstock.broker.queues.partition import QueuePartition, ReceiveRequest
from penstock.broker.queues.partitions import QueuePartitions
from penstock.broker.queues.pending_reply import PendingReply
from penstock.client.partitioner import partition_of_key
from penstock.cluster.image import ClusterImage
from penstock.cluster.metadata import Metadata
from penstock.cluster.queue_changes import find_queue, moves_of, plan_moves, queue_of, sources_of
from penstock.cluster.queues import MoveStatus, MoveTask, Queue
from penstock.coordination.store import Op
from penstock.foundation.clock import Clock
from penstock.foundation.errors import PenstockError
from penstock.queues.commands import Acknowledge, Acknowledgement, AckType, Counts, Destination, ReleaseHolder
from penstock.queues.messages import SOURCE_ARN
from penstock.queues.settings import DeliverySettings

logger = logging.getLogger(__name__)

BATCH_MAX: Final = 10
COPYING_MAX: Final = 100
"""Maximum number of messages per partition that wait to be copied; above it a move task takes no more messages."""
POLL_S: Final = 0.25
RETRY_S: Final = 1.0
VISIBILITY_MS: Final = 60_000
UNKNOWN_SOURCE: Final = "CouldNotDetermineMessageSource"
NO_SUCH_QUEUE: Final = "AWS.SimpleQueueService.NonExistentQueue"

K = TypeVar("K", bound=Hashable)
CountAll = Callable[[Queue], Awaitable[Counts]]


class MoveTasks:
    """Starts, cancels and lists move tasks; runs them for the partitions led by this broker."""

    def __init__(
        self,
        *,
        metadata: Metadata,
        partitions: QueuePartitions,
        settings_of: Callable[[Queue], DeliverySettings],
        count: CountAll,
        clock: Clock,
    ) -> None:
        self._metadata = metadata
        self._partitions = partitions
        self._settings_of = settings_of
        self._count = count
        self._clock = clock
        self._runners: dict[tuple[str, QueuePartition], asyncio.Task[None]] = {}
        self._watchers: dict[str, asyncio.Task[None]] = {}
        self._busy: set[QueuePartition] = set()
        """Partitions on which a task may have received messages that it is about to move."""
        partitions.on_ready.append(lambda partition: self.apply(metadata.image))

    # -- requests

    async def start(self, source: Queue, destination: Queue | None, per_second: int) -> MoveTask:
        """Starts to move the messages of `source` to `destination`, or back to their source queues if that is
        None. Raises MoveTaskRunning, and NoRedriveSource if `source` is not a dead-letter queue."""
        if not sources_of(self._metadata.image, source.name):
            raise NoRedriveSource(f"queue {source.name!r} is not the dead-letter queue of any queue")
        counts = await self._count(source)
        task = MoveTask(
            handle=secrets.token_hex(16),
            source=source.name,
            topic_id=source.topic_id,
            destination=destination.name if destination is not None else "",
            per_second=per_second,
            started_ms=self._clock.now_ms(),
            to_move=counts.available + counts.delayed + counts.moving,
        )

        def plan(image: ClusterImage) -> list[Op]:
            known = moves_of(image, queue_of(image, source.name))
            if task in known:
                return []
            if any(each.status is MoveStatus.RUNNING for each in known):
                raise MoveTaskRunning(f"queue {source.name!r} already has a running move task")
            return plan_moves(image, source, task)

        await self._metadata.change(plan)
        return task

    async def list(self, source: Queue) -> "list[MoveTask]":
        """Returns the last ten tasks of a source queue with their progress, newest first."""
        tasks = moves_of(self._metadata.image, source)
        return [await self._with_progress(source, task) for task in tasks]

    async def _with_progress(self, source: Queue, task: MoveTask) -> MoveTask:
        if task.status is not MoveStatus.RUNNING:
            return task
        return _with_moved(task, await self._count(source))

    async def cancel(self, handle: str) -> MoveTask:
        """Cancels a task; messages that are already being copied still arrive. Raises NoSuchMoveTask."""
        image = self._metadata.image
        found = next((task for tasks in image.queue_moves.values() for task in tasks if task.handle == handle), None)
        source = find_queue(image, found.source) if found is not None else None
        if found is None or source is None or found.status is not MoveStatus.RUNNING:
            raise NoSuchMoveTask(f"no move task with handle {handle!r} is running")
        current = await self._with_progress(source, found)
        await self._end(source, replace(current, status=MoveStatus.CANCELLED))
        return current

    async def _end(self, source: Queue, task: MoveTask) -> None:
        """Stores the final status of a task, unless the task has already ended."""

        def plan(image: ClusterImage) -> list[Op]:
            running = [each for each in moves_of(image, source) if each.status is MoveStatus.RUNNING]
            if find_queue(image, source.name) is None or task.handle not in {each.handle for each in running}:
                return []
            return plan_moves(image, source, task)

        await self._metadata.change(plan)

    # -- running

    def apply(self, image: ClusterImage) -> None:
        """On the partitions led by this broker, starts the tasks that are RUNNING in `image` and stops all others."""
        wanted: dict[tuple[str, QueuePartition], tuple[Queue, MoveTask]] = {}
        watched: dict[str, tuple[Queue, MoveTask]] = {}
        for name in image.queue_moves:
            queue = find_queue(image, name)
            for task in moves_of(image, queue) if queue is not None else ():
                if queue is None or task.status is not MoveStatus.RUNNING:
                    continue
                for partition in self._partitions.of_topic(queue.topic_id):
                    wanted[task.handle, partition] = queue, task
                    if partition.number == 0:
                        watched[task.handle] = queue, task
        _cancel_unwanted(self._runners, wanted)
        self._busy.intersection_update(partition for _, partition in wanted)
        _cancel_unwanted(self._watchers, watched)
        loop = asyncio.get_running_loop() if wanted else None
        for key, (queue, task) in wanted.items():
            if key not in self._runners and loop is not None:
                self._busy.add(key[1])
                self._runners[key] = loop.create_task(_retry_until_done(partial(self._run, key[1], queue, task)))
        for handle, (queue, task) in watched.items():
            if handle not in self._watchers and loop is not None:
                self._watchers[handle] = loop.create_task(_retry_until_done(partial(self._watch, queue, task)))

    async def _run(self, partition: QueuePartition, queue: Queue, task: MoveTask) -> None:
        """Moves the messages of one partition until the task ends."""
        topic = self._metadata.image.topics.get(queue.topic_id)
        rate = task.per_second / len(topic.partitions) if topic is not None else 0
        # A move must not send messages to a dead-letter queue again.
        settings = self._settings_of(queue)._replace(max_deliveries=0)
        receive_request = ReceiveRequest(queue.name, f"move-{task.handle}", BATCH_MAX, VISIBILITY_MS, settings)
        if rate:
            receive_request = receive_request._replace(max_messages=max(1, min(BATCH_MAX, int(rate))))
        if partition.is_closed:
            return
        # The previous leader may have left messages in flight under this holder.
        released: PendingReply[object] = PendingReply()
        partition.runtime.submit(ReleaseHolder(queue.name, receive_request.holder, True), released)
        await released
        while not partition.is_closed:
            self._busy.discard(partition)
            delivery = partition.machine.group(queue.name)
            if delivery is not None and delivery.counts(partition.now_ms).moving > COPYING_MAX:
                await asyncio.sleep(POLL_S / 10)
                continue
            self._busy.add(partition)
            received: PendingReply[list[Delivered]] = PendingReply()
            partition.receive(receive_request, received)
            messages = await received
            if not messages:
                self._busy.discard(partition)
                await asyncio.sleep(POLL_S)
                continue
            await self._move(partition, queue, task, messages, settings)
            await asyncio.sleep(len(messages) / rate if rate else 0)

    async def _move(
        self,
        partition: QueuePartition,
        queue: Queue,
        task: MoveTask,
        messages: Sequence[Delivered],
        settings: DeliverySettings,
    ) -> None:
        items, failure = [], ""
        for message in messages:
            destination = self._destination(task, message)
            if isinstance(destination, str):
                failure = destination
                items.append(Acknowledgement(message.offset, message.offset, message.holder, AckType.UNDO))
            else:
                items.append(
                    Acknowledgement(
                        message.offset, message.offset, message.holder, AckType.MOVE, destination=destination
                    )
                )
        acknowledged: PendingReply[object] = PendingReply()
        partition.acknowledge(Acknowledge(queue.name, tuple(items), settings), acknowledged)
        await acknowledged
        if failure:
            current = await self._with_progress(queue, task)
            await self._end(queue, replace(current, status=MoveStatus.FAILED, failure=failure))

    def _destination(self, task: MoveTask, message: Delivered) -> Destination | str:
        """Returns the destination of a message; if there is none, the failure reason as a string."""
        image, name = self._metadata.image, task.destination
        if not name:
            origin = next((text for header, text in message.headers if header == SOURCE_ARN and text), None)
            if origin is not None:
                name = origin.decode(errors="replace").rpartition(":")[2]
            else:
                sources = sources_of(image, task.source)
                if len(sources) != 1:
                    return UNKNOWN_SOURCE
                name = sources[0].name
        target = find_queue(image, name)
        if target is None:
            return NO_SUCH_QUEUE
        count = len(image.topics[target.topic_id].partitions)
        if message.key is not None and target.settings.is_fifo:
            return Destination(target.topic_id, partition_of_key(message.key, count))
        return Destination(target.topic_id, message.offset % count)

    def adjust_counts(self, partition: QueuePartition, counts: Counts) -> Counts:
        """Returns `counts`, with messages that a move task has just received counted as moving, not as in flight."""
        if partition not in self._busy:
            return counts
        held = min(BATCH_MAX, counts.in_flight)
        return counts._replace(in_flight=counts.in_flight - held, moving=counts.moving + held)

    async def _watch(self, queue: Queue, task: MoveTask) -> None:
        """Ends the task as completed once two checks in a row find the queue empty: one check may miss a message."""
        times_empty = 0
        while times_empty < 2:
            await asyncio.sleep(POLL_S)
            try:
                counts = await self._count(queue)
            except PenstockError:
                times_empty = 0
                continue
            is_empty = not (counts.available or counts.delayed or counts.moving)
            times_empty = times_empty + 1 if is_empty else 0
        await self._end(queue, replace(_with_moved(task, counts), status=MoveStatus.COMPLETED))

    async def close(self) -> None:
        tasks = [*self._runners.values(), *self._watchers.values()]
        for each in tasks:
            each.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)


def _cancel_unwanted(running: dict[K, asyncio.Task[None]], wanted: Container[K]) -> None:
    """Cancels tasks whose key is not in `wanted`, and removes tasks that have ended."""
    for key in [known for known, task in running.items() if known not in wanted or task.done()]:
        running.pop(key).cancel()


def _with_moved(task: MoveTask, left: Counts) -> MoveTask:
    """Returns the task with its `moved` count: the messages at its start minus the messages `left` in its source."""
    return replace(task, moved=max(task.moved, task.to_move - left.available - left.delayed - left.moving))


async def _retry_until_done(work: Callable[[], Coroutine[Any, Any, None]]) -> None:
    """Runs `work`; runs it again after each PenstockError, because no other broker would do the work."""
    while True:
        try:
            await work()
        except PenstockError as error:
            logger.warning("move_task_retried reason=%r", str(error))
            await asyncio.sleep(RETRY_S)
        else:
            return
