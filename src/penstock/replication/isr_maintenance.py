"""Keeping the ISRs of what this broker leads: who falls behind is taken out, who has caught up is taken in."""

import asyncio
import logging
from collections.abc import Coroutine, Sequence
from typing import Any, Final

from penstock.cluster import keys
from penstock.cluster.elections import without_data
from penstock.cluster.image import PartitionState, Place
from penstock.cluster.metadata import Metadata
from penstock.coordination.store import Conflict, Put, Store
from penstock.foundation.clock import Clock
from penstock.foundation.errors import PenstockError
from penstock.replication.isr_changes import IsrChange, begin, due_change, end
from penstock.replication.partition import Partition
from penstock.replication.partitions import Partitions

logger = logging.getLogger(__name__)

TICK_S: Final = 0.1
SLICE: Final = 500
PAUSE_S: Final = 0.025
"""After so many partitions other things are done for a while: a round of ten thousand takes half a second."""
GROUP: Final = 64
"""Partitions whose ISRs are changed in one transaction. A broker that comes back joins thousands of ISRs."""
AT_ONCE: Final = 8
"""Transactions that are written at a time."""
LINES_MAX: Final = 20
"""Partitions of one transaction that are named in the log."""


class IsrKeeper:
    """One task. Changes are written in groups. Where one change is outdated, the others are written one by one."""

    def __init__(self, *, partitions: Partitions, metadata: Metadata, store: Store, clock: Clock) -> None:
        self._partitions = partitions
        self._metadata = metadata
        self._store = store
        self._clock = clock
        self._asking: set[asyncio.Task[None]] = set()
        self._resigned: dict[Place, int] = {}
        """Partitions that were left to others, and the version of their states then."""
        self.shrinks = 0
        self.grows = 0

    async def run(self) -> None:
        """Until cancelled."""
        while True:
            await asyncio.sleep(TICK_S)
            await self.tick()

    async def tick(self) -> None:
        """One round of all partitions that are led here, in slices."""
        led = [partition for table in self._partitions.by_id.values() for partition in table.values()]
        for first in range(0, len(led), SLICE):
            if first:
                await asyncio.sleep(PAUSE_S)
            if not self._look_at(led[first : first + SLICE]):
                return

    def _look_at(self, partitions: Sequence[Partition]) -> bool:
        """Begin the changes that are due; false if no more may be begun."""
        if len(self._asking) >= AT_ONCE:
            return False
        now_ms = self._clock.steady_ms()
        eligible = self._metadata.image.eligible()
        due: list[IsrChange] = []
        offline: list[tuple[Place, PartitionState]] = []
        for partition in partitions:
            if not partition.is_online:
                if not partition.is_lent and (state := self._to_resign(partition.place)) is not None:
                    offline.append((partition.place, state))
            elif (change := due_change(partition, now_ms, eligible)) is not None:
                due.append(change)
        for first in range(0, len(due), GROUP):
            self._spawn(self._ask(due[first : first + GROUP]))
        for first in range(0, len(offline), GROUP):
            self._spawn(self._resign(offline[first : first + GROUP]))
        return True

    def _spawn(self, work: Coroutine[Any, Any, None]) -> None:
        task = asyncio.get_running_loop().create_task(work)
        self._asking.add(task)
        task.add_done_callback(self._asking.discard)

    def _to_resign(self, place: Place) -> PartitionState | None:
        """The state of a partition whose log is offline, if it is to be left to others that are in sync."""
        state = self._metadata.image.state(place)
        if state is None or len(state.isr) == 1 or self._resigned.get(place) == state.version:
            return None
        self._resigned[place] = state.version
        return state

    async def _resign(self, led: Sequence[tuple[Place, PartitionState]]) -> None:
        """Leave partitions to others: all in one transaction, or, where one has changed meanwhile, one by one."""
        try:
            await self._store.transact(
                [
                    Put(keys.partition(*place), without_data(state, state.leader).dump(), state.version)
                    for place, state in led
                ]
            )
        except Conflict:
            if len(led) > 1:
                for one in led:
                    await self._resign([one])
            # Of a single one, the image is about to show what has changed.
        except PenstockError as error:
            logger.warning("not_resigned partitions=%d reason=%r", len(led), str(error))
            for place, _ in led:
                self._resigned.pop(place, None)

    async def _ask(self, changes: Sequence[IsrChange]) -> None:
        if await self._write(changes) or len(changes) == 1:
            return
        for change in changes:
            again = due_change(change.partition, self._clock.steady_ms(), self._metadata.image.eligible())
            if again is not None:
                await self._write([again])

    async def _write(self, changes: Sequence[IsrChange]) -> bool:
        """Write all changes or none; false if one of them was outdated."""
        changes = [change for change in changes if change.is_current]  # or another broker was elected meanwhile
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
            logger.warning("isrs_not_changed partitions=%d reason=%r", len(changes), str(error))
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
        await asyncio.gather(*self._asking, return_exceptions=True)
