"""ISR maintenance for the partitions led here: shrinks and expands ISRs, and resigns leadership of offline logs."""

import asyncio
import logging
from collections.abc import Coroutine, Sequence
from typing import Any, Final

from penstock.cluster import keys
from penstock.cluster.elections import without_data
from penstock.cluster.image import PartitionState
from penstock.cluster.metadata import Metadata
from penstock.coordination.store import Conflict, Put, Store
from penstock.foundation.clock import Clock
from penstock.foundation.errors import PenstockError
from penstock.foundation.ids import TopicIdPartition
from penstock.replication.isr_changes import IsrChange, begin, due_change, end
from penstock.replication.partition import Partition
from penstock.replication.partitions import Partitions

logger = logging.getLogger(__name__)

TICK_S: Final = 0.1
SLICE: Final = 500
PAUSE_S: Final = 0.025
"""Pause, in seconds, after each time slice of the ISR check: ten thousand partitions take half a second to check."""
GROUP_SIZE: Final = 64
"""Maximum number of partitions whose ISRs are changed in one transaction of the metadata store: a restarted broker
joins thousands of ISRs."""
IN_FLIGHT_MAX: Final = 8
"""Maximum number of transactions in flight that write ISRs to the metadata store."""
LINES_MAX: Final = 20
"""Maximum number of partitions per store transaction whose ISR change is logged in a line of its own."""


class IsrMaintenance:
    """Periodic task that writes due ISR changes to the metadata store: many per transaction or, after a conflict, one
    per transaction."""

    def __init__(self, *, partitions: Partitions, metadata: Metadata, store: Store, clock: Clock) -> None:
        self._partitions = partitions
        self._metadata = metadata
        self._store = store
        self._clock = clock
        self._in_flight: set[asyncio.Task[None]] = set()
        self._resigned: dict[TopicIdPartition, int] = {}
        """Partitions whose leadership this broker has resigned, with the version of their state at that time."""
        self.shrinks = 0
        self.grows = 0

    async def run(self) -> None:
        """Shrinks and expands ISRs, and resigns leadership of offline logs, every TICK_S seconds until cancelled."""
        while True:
            await asyncio.sleep(TICK_S)
            await self.tick()

    async def tick(self) -> None:
        """Shrinks and expands ISRs of led partitions, and resigns leadership of offline logs, in time slices."""
        led = [partition for table in self._partitions.by_id.values() for partition in table.values()]
        for first in range(0, len(led), SLICE):
            if first:
                await asyncio.sleep(PAUSE_S)
            if not self._check(led[first : first + SLICE]):
                return

    def _check(self, partitions: Sequence[Partition]) -> bool:
        """Starts store transactions that write due ISR changes, and that resign leadership of partitions whose logs
        are offline here. Returns False, and starts nothing, if too many transactions are in flight."""
        if len(self._in_flight) >= IN_FLIGHT_MAX:
            return False
        now_ms = self._clock.steady_ms()
        eligible = self._metadata.image.eligible()
        due: list[IsrChange] = []
        offline: list[tuple[TopicIdPartition, PartitionState]] = []
        for partition in partitions:
            if not partition.is_online:
                if not partition.is_lent and (state := self._to_resign(partition.tp)) is not None:
                    offline.append((partition.tp, state))
            elif (change := due_change(partition, now_ms, eligible)) is not None:
                due.append(change)
        for first in range(0, len(due), GROUP_SIZE):
            self._spawn(self._write_all(due[first : first + GROUP_SIZE]))
        for first in range(0, len(offline), GROUP_SIZE):
            self._spawn(self._resign(offline[first : first + GROUP_SIZE]))
        return True

    def _spawn(self, work: Coroutine[Any, Any, None]) -> None:
        task = asyncio.get_running_loop().create_task(work)
        self._in_flight.add(task)
        task.add_done_callback(self._in_flight.discard)

    def _to_resign(self, tp: TopicIdPartition) -> PartitionState | None:
        """Returns the current state of a led partition whose log is offline, so that the caller resigns
        leadership. None: no other replica is in the ISR, or leadership was already resigned in this state."""
        state = self._metadata.image.state(tp)
        if state is None or len(state.isr) == 1 or self._resigned.get(tp) == state.version:
            return None
        self._resigned[tp] = state.version
        return state

    async def _resign(self, led: Sequence[tuple[TopicIdPartition, PartitionState]]) -> None:
        """Resigns leadership of partitions in one store transaction; after a conflict, in one for each partition."""
        try:
            await self._store.transact(
                [
                    Put(keys.partition(*tp), without_data(state, state.leader).dump(), state.version)
                    for tp, state in led
                ]
            )
        except Conflict:
            if len(led) > 1:
                for one in led:
                    await self._resign([one])
            # A single one: the image is about to show the changed state.
        except PenstockError as error:
            logger.warning("leadership_not_resigned partitions=%d reason=%r", len(led), str(error))
            for tp, _ in led:
                self._resigned.pop(tp, None)

    async def _write_all(self, changes: Sequence[IsrChange]) -> None:
        if await self._write(changes) or len(changes) == 1:
            return
        for change in changes:
            again = due_change(change.partition, self._clock.steady_ms(), self._metadata.image.eligible())
            if again is not None:
                await self._write([again])

    async def _write(self, changes: Sequence[IsrChange]) -> bool:
        """Writes all ISR changes in one store transaction. Returns False, with nothing written, after a conflict."""
        changes = [change for change in changes if change.is_current]  # else another broker was elected meanwhile
        if not changes:
            return True
        conflict: Conflict | None = None
        ops = begin(changes, self._metadata.image)
        before = [len(change.lead.state.isr) for change in changes]
        try:
            await self._store.transact(ops)
        except Conflict as error:
            conflict = error
        except PenstockError as error:
            logger.warning("isr_change_failed partitions=%d reason=%r", len(changes), str(error))
        else:
            self._report(changes, before)
        finally:
            end(changes, conflict)
        return conflict is None

    def _report(self, changes: Sequence[IsrChange], before: Sequence[int]) -> None:
        for change, size in zip(changes, before, strict=True):
            self.shrinks += len(change.proposed.isr) < size
            self.grows += len(change.proposed.isr) >= size
        for change in changes[:LINES_MAX]:
            logger.info("isr_changed partition=%s isr=%s", change.partition.name, list(change.proposed.isr))
        if len(changes) > LINES_MAX:
            logger.info("isrs_changed more=%d", len(changes) - LINES_MAX)

    async def close(self) -> None:
        await asyncio.gather(*self._in_flight, return_exceptions=True)
