"""Move tasks: the messages of a queue, most of the time dead letters, on their way back or elsewhere.

A task is a note in the store, which every broker sees. Whoever leads a partition of the queue moves what is there, so
that a task outlives any of them; the leader of the first partition finds out when it is over.
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
from penstock.broker.queues.outcome import Outcome
from penstock.broker.queues.partition import QueuePartition, ReceiveRequest
from penstock.broker.queues.partitions import QueuePartitions
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

AT_ONCE: Final = 10
UNDER_WAY_MAX: Final = 100
"""Messages of a partition that wait for their turn to be carried away."""
LOOK_S: Final = 0.25
AGAIN_S: Final = 1.0
HELD_MS: Final = 60_000
UNKNOWN_SOURCE: Final = "CouldNotDetermineMessageSource"
GONE: Final = "AWS.SimpleQueueService.NonExistentQueue"

K = TypeVar("K", bound=Hashable)
CountAll = Callable[[Queue], Awaitable[Counts]]


class MoveTasks:
    """Starts, cancels and lists them; runs those of the partitions that are led here."""

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
        """Where messages may be held that are about to be moved."""
        partitions.on_ready.append(lambda partition: self.apply(metadata.image))

    # -- asked

    async def start(self, source: Queue, destination: Queue | None, per_second: int) -> MoveTask:
        """Begin. Raises MoveTaskRunning, and NoRedriveSource if nobody's dead letters come here."""
        if not sources_of(self._metadata.image, source.name):
            raise NoRedriveSource(f"queue {source.name!r} is no queue's dead-letter queue")
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
                raise MoveTaskRunning(f"messages of queue {source.name!r} are being moved already")
            return plan_moves(image, source, task)

        await self._metadata.change(plan)
        return task

    async def list(self, source: Queue) -> "list[MoveTask]":
        """The last ten, the newest first, and how far they are."""
        tasks = moves_of(self._metadata.image, source)
        return [await self._measured(source, task) for task in tasks]

    async def _measured(self, source: Queue, task: MoveTask) -> MoveTask:
        if task.status is not MoveStatus.RUNNING:
            return task
        return _with_moved(task, await self._count(source))

    async def cancel(self, handle: str) -> MoveTask:
        """Stop moving; what is under way arrives. Raises NoSuchMoveTask."""
        image = self._metadata.image
        found = next((task for tasks in image.queue_moves.values() for task in tasks if task.handle == handle), None)
        source = find_queue(image, found.source) if found is not None else None
        if found is None or source is None or found.status is not MoveStatus.RUNNING:
            raise NoSuchMoveTask(f"no task with the handle {handle!r} is running")
        measured = await self._measured(source, found)
        await self._end(source, replace(measured, status=MoveStatus.CANCELLED))
        return measured

    async def _end(self, source: Queue, task: MoveTask) -> None:
        """Note how a task has ended, unless it has already."""

        def plan(image: ClusterImage) -> list[Op]:
            running = [each for each in moves_of(image, source) if each.status is MoveStatus.RUNNING]
            if find_queue(image, source.name) is None or task.handle not in {each.handle for each in running}:
                return []
            return plan_moves(image, source, task)

        await self._metadata.change(plan)

    # -- run

    def apply(self, image: ClusterImage) -> None:
        """Run what is to be run here, and nothing else."""
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
        _retain(self._runners, wanted)
        self._busy.intersection_update(partition for _, partition in wanted)
        _retain(self._watchers, watched)
        loop = asyncio.get_running_loop() if wanted else None
        for key, (queue, task) in wanted.items():
            if key not in self._runners and loop is not None:
                self._busy.add(key[1])
                self._runners[key] = loop.create_task(_until_done(partial(self._run, key[1], queue, task)))
        for handle, (queue, task) in watched.items():
            if handle not in self._watchers and loop is not None:
                self._watchers[handle] = loop.create_task(_until_done(partial(self._watch, queue, task)))

    async def _run(self, partition: QueuePartition, queue: Queue, task: MoveTask) -> None:
        """Move what there is on one partition, until the task is over."""
        topic = self._metadata.image.topics.get(queue.topic_id)
        rate = task.per_second / len(topic.partitions) if topic is not None else 0
        # Nothing that is moved back counts as a delivery that was one too many.
        settings = self._settings_of(queue)._replace(max_deliveries=0)
        receive_request = ReceiveRequest(queue.name, f"move-{task.handle}", AT_ONCE, HELD_MS, settings)
        if rate:
            receive_request = receive_request._replace(max_messages=max(1, min(AT_ONCE, int(rate))))
        if partition.is_closed:
            return
        # Whoever led before may have had some in hand.
        given: Outcome[object] = Outcome()
        partition.runtime.submit(ReleaseHolder(queue.name, receive_request.holder, True), given)
        await _answered(given)
        while not partition.is_closed:
            self._busy.discard(partition)
            delivery = partition.machine.group(queue.name)
            if delivery is not None and delivery.counts(partition.now_ms).moving > UNDER_WAY_MAX:
                await asyncio.sleep(LOOK_S / 10)
                continue
            self._busy.add(partition)
            outcome: Outcome[list[Delivered]] = Outcome()
            partition.receive(receive_request, outcome)
            messages: list[Delivered] = await _answered(outcome)
            if not messages:
                self._busy.discard(partition)
                await asyncio.sleep(LOOK_S)
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
        outcome: Outcome[object] = Outcome()
        partition.acknowledge(Acknowledge(queue.name, tuple(items), settings), outcome)
        await _answered(outcome)
        if failure:
            measured = await self._measured(queue, task)
            await self._end(queue, replace(measured, status=MoveStatus.FAILED, failure=failure))

    def _destination(self, task: MoveTask, message: Delivered) -> Destination | str:
        """Where a message goes, or why nobody can say."""
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
            return GONE
        count = len(image.topics[target.topic_id].partitions)
        if message.key is not None and target.settings.is_fifo:
            return Destination(target.topic_id, partition_of_key(message.key, count))
        return Destination(target.topic_id, message.offset % count)

    def counted(self, partition: QueuePartition, counts: Counts) -> Counts:
        """The counts of a partition, where what a task has in hand is on its way and not in flight."""
        if partition not in self._busy:
            return counts
        held = min(AT_ONCE, counts.in_flight)
        return counts._replace(in_flight=counts.in_flight - held, moving=counts.moving + held)

    async def _watch(self, queue: Queue, task: MoveTask) -> None:
        """Find out when nothing is left: twice in a row, for a message may be on its way between two looks."""
        times_empty = 0
        while times_empty < 2:
            await asyncio.sleep(LOOK_S)
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


def _retain(running: dict[K, asyncio.Task[None]], wanted: Container[K]) -> None:
    """End what is not wanted any more, and forget what has ended."""
    for key in [known for known, task in running.items() if known not in wanted or task.done()]:
        running.pop(key).cancel()


async def _answered(outcome: Outcome[Any]) -> Any:
    """What was asked for, now or later. Raises the error that stands in its place."""
    found = outcome.result()
    return await found if isinstance(found, asyncio.Future) else found


def _with_moved(task: MoveTask, left: Counts) -> MoveTask:
    """What is gone was moved; what came meanwhile makes it fewer for a while."""
    return replace(task, moved=max(task.moved, task.to_move - left.available - left.delayed - left.moving))


async def _until_done(work: Callable[[], Coroutine[Any, Any, None]]) -> None:
    """Begin again when something could not be reached: nobody else would, while this broker leads."""
    while True:
        try:
            await work()
        except PenstockError as error:
            logger.warning("move_task_begins_again reason=%r", str(error))
            await asyncio.sleep(AGAIN_S)
        else:
            return
