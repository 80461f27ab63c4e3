"""The controller put to work: taken when there is none, followed while it is this broker, let go when it is not."""

import asyncio
import logging
from collections.abc import Callable, Sequence
from random import Random
from typing import Final

from penstock.client.retry import Backoff
from penstock.cluster import keys
from penstock.cluster.controller import Changed, Controller, ControllerSettings
from penstock.cluster.image import ClusterImage, Topic
from penstock.cluster.metadata import Metadata
from penstock.cluster.registration import has_control, plan_take_control
from penstock.coordination.store import Conflict, Op, Store, StoreUnavailable
from penstock.foundation.clock import Clock
from penstock.foundation.errors import PenstockError
from penstock.foundation.time_slices import TimeSlices

logger = logging.getLogger(__name__)

RETRY_FIRST_S: Final = 0.1
RETRY_MAX_S: Final = 3.0
_LINES_MAX: Final = 20
"""Partitions that are named one by one in the log."""


class Controlling:
    """Runs on every broker; only one of them decides."""

    def __init__(
        self,
        *,
        node_id: int,
        store: Store,
        metadata: Metadata,
        clock: Clock,
        is_unclean: Callable[[Topic], bool],
        settings: Callable[[], ControllerSettings] = ControllerSettings,
    ) -> None:
        self._node_id = node_id
        self._store = store
        self._metadata = metadata
        self._clock = clock
        self._is_unclean = is_unclean
        self._settings = settings
        self._slices = TimeSlices(clock.monotonic_s)
        self._controller: Controller | None = None
        self._epoch = 0
        self._changed = asyncio.Event()
        self._wake_at_ms: int | None = None
        metadata.listeners.append(self._follow)

    @property
    def is_active(self) -> bool:
        """Whether this broker is the controller."""
        return has_control(self._metadata.image, self._node_id, self._metadata.broker_epoch)

    def _follow(self, image: ClusterImage) -> None:
        self._changed.set()

    async def settle(self) -> None:
        """Do what there is to do: return when that is nothing, or somebody else's."""
        while await self._turn():
            pass

    async def run(self) -> None:
        """Until cancelled."""
        backoff = Backoff(Random(), first_s=RETRY_FIRST_S, max_s=RETRY_MAX_S)
        while True:
            try:
                await self.settle()
            except PenstockError as error:
                level = logging.WARNING if isinstance(error, StoreUnavailable) else logging.ERROR
                logger.log(level, "controller_waits reason=%r", str(error))
                await asyncio.sleep(backoff.next_s())
                continue
            backoff = Backoff(Random(), first_s=RETRY_FIRST_S, max_s=RETRY_MAX_S)
            await self._woken()

    async def _woken(self) -> None:
        """An image has come, or it is time for something."""
        wait_s = None if self._wake_at_ms is None else max(0, self._wake_at_ms - self._clock.steady_ms()) / 1000
        try:
            async with asyncio.timeout(wait_s):
                await self._changed.wait()
        except TimeoutError:
            pass

    async def _turn(self) -> bool:
        """One transaction at most; whether there may be more to do at once."""
        self._changed.clear()
        self._wake_at_ms = None
        image, broker_epoch = self._metadata.image, self._metadata.broker_epoch
        if not has_control(image, self._node_id, broker_epoch):
            self._let_go()
            return await self._write(plan_take_control(image, self._node_id, broker_epoch))
        controller = self._held(image)
        await self._slices.run(controller.look(image, self._clock.steady_ms()))
        orders = controller.orders(image, self._clock.steady_ms())
        self._wake_at_ms = orders.wake_at_ms
        written = await self._write(orders.ops)
        if written:
            self._report(orders.changes)
        return written

    async def _write(self, ops: Sequence[Op]) -> bool:
        if not ops:
            return False
        try:
            await self._store.transact(ops)
        except Conflict as conflict:
            logger.debug("controller_was_late key=%s", conflict.key)
            return self._changed.is_set()  # if not, the image is about to show what has changed
        return True

    def _held(self, image: ClusterImage) -> Controller:
        assert image.controller is not None
        if self._controller is None or self._epoch != image.controller.epoch:
            self._epoch = image.controller.epoch
            self._controller = Controller(
                epoch_version=image.versions[keys.CONTROLLER_EPOCH],
                is_unclean=self._is_unclean,
                settings=self._settings,
            )
            logger.info("controller_taken node_id=%d epoch=%d", self._node_id, self._epoch)
        return self._controller

    def _let_go(self) -> None:
        if self._controller is not None:
            logger.info("controller_lost node_id=%d epoch=%d", self._node_id, self._epoch)
            self._controller = None

    def _report(self, changes: Sequence[Changed]) -> None:
        if not changes:
            return
        named = [changed for changed in changes if changed.is_unclean or changed.goes_offline]
        for changed in named[:_LINES_MAX]:
            logger.warning(
                "%s partition=%s leader=%d isr=%s replicas=%s",
                "unclean_election" if changed.is_unclean else "partition_offline",
                self._name(changed),
                changed.after.leader,
                ",".join(map(str, changed.after.isr)),
                ",".join(map(str, changed.after.replicas)),
            )
        logger.info(
            "partitions_changed count=%d elections=%d offline=%d unclean=%d",
            len(changes),
            sum(changed.is_election for changed in changes),
            sum(changed.goes_offline for changed in changes),
            sum(changed.is_unclean for changed in changes),
        )

    def _name(self, changed: Changed) -> str:
        topic = self._metadata.image.topics.get(changed.place.topic_id)
        return f"{topic.name if topic else '?'}-{changed.place.number}"
