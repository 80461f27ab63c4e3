"""Keeping the ISRs of what this broker leads: who falls behind is taken out, who has caught up is taken in."""

import asyncio
import logging
from collections.abc import Coroutine, Sequence
from dataclasses import replace
from typing import Any, Final

from penstock.cluster import keys
from penstock.cluster.elections import without_data
from penstock.cluster.image import PartitionState, Place
from penstock.cluster.metadata import Metadata
from penstock.coordination.store import Check, Conflict, Op, Put, Store
from penstock.foundation.clock import Clock
from penstock.foundation.errors import PenstockError
from penstock.replication.leadership import IsrWish, Leadership
from penstock.replication.partition import Partition
from penstock.replication.partitions import Partitions

logger = logging.getLogger(__name__)

TICK_S: Final = 0.1
SLICE: Final = 500
PAUSE_S: Final = 0.025
"""After so many partitions other things are done for a while: a round of ten thousand takes half a second."""
AT_ONCE: Final = 64
"""Changes that are written at a time."""


class IsrKeeper:
    """One task. Every change is a transaction of its own: one that fails keeps no other from happening."""

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
        now_ms = self._clock.steady_ms()
        eligible = self._metadata.image.eligible()
        for partition in partitions:
            lead = partition.leadership
            if lead is None and partition.is_online:
                continue
            if len(self._asking) >= AT_ONCE:
                return False
            if not partition.is_online:
                if not partition.is_lent:
                    self._resign(partition.place)
            elif lead is not None and (wish := lead.wish(now_ms, eligible)) is not None:
                self._spawn(self._ask(partition, lead, wish))
        return True

    def _spawn(self, work: Coroutine[Any, Any, None]) -> None:
        task = asyncio.get_running_loop().create_task(work)
        self._asking.add(task)
        task.add_done_callback(self._asking.discard)

    def _resign(self, place: Place) -> None:
        """A leader whose log is offline leaves the partition to others that are in sync, if there are some."""
        state = self._metadata.image.state(place)
        if state is not None and len(state.isr) > 1 and self._resigned.get(place) != state.version:
            self._resigned[place] = state.version
            self._spawn(self._give_up(place, state))

    async def _give_up(self, place: Place, state: PartitionState) -> None:
        try:
            put = Put(keys.partition(*place), without_data(state, state.leader).dump(), state.version)
            await self._store.transact([put])
        except Conflict:
            pass  # the image is about to show what has changed
        except PenstockError as error:
            logger.warning("not_resigned partition=%d reason=%r", place.number, str(error))
            self._resigned.pop(place, None)

    async def _ask(self, partition: Partition, lead: Leadership, wish: IsrWish) -> None:
        if partition.leadership is not lead:
            return  # another broker was elected before this task began
        image = self._metadata.image
        key = keys.partition(*partition.place)
        ops: list[Op] = [Put(key, replace(lead.state, isr=wish.isr).dump(), wish.version)]
        for epoch in wish.joining.values():
            name = keys.incarnation(epoch)
            ops.append(Check(name, image.version(name)))
        lead.asks(wish)
        is_outdated = False
        try:
            await self._store.transact(ops)
        except Conflict as conflict:
            is_outdated = conflict.key == key
        except PenstockError as error:
            logger.warning("isr_not_changed partition=%s reason=%r", partition.name, str(error))
        else:
            shrinks = len(wish.isr) < len(lead.state.isr)
            self.shrinks += shrinks
            self.grows += not shrinks
            logger.info("isr_changed partition=%s isr=%s", partition.name, list(wish.isr))
        finally:
            lead.answered(wish, is_outdated=is_outdated)

    async def close(self) -> None:
        await asyncio.gather(*self._asking, return_exceptions=True)
