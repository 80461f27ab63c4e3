"""Task that runs the controller: takes the role when it is free, writes decisions, resigns when the role is lost."""

import asyncio
import logging
from collections.abc import Callable, Sequence
from random import Random
from typing import Final

from penstock.client.retry import Backoff
from penstock.cluster import keys
from penstock.cluster.controller import Controller, ControllerSettings, PartitionChange
from penstock.cluster.image import ClusterImage, Topic
from penstock.cluster.metadata import Metadata
from penstock.cluster.registration import is_controller, plan_take_control
from penstock.coordination.store import Conflict, Op, Store, StoreUnavailable
from penstock.foundation.clock import Clock
from penstock.foundation.errors import PenstockError
from penstock.foundation.time_slices import TimeSlices

logger = logging.getLogger(__name__)

RETRY_FIRST_S: Final = 0.1
RETRY_MAX_S: Final = 3.0
_LINES_MAX: Final = 20
"""Maximum number of log lines per decision for partitions that go offline or have an unclean election."""


class ControllerFailed(PenstockError):
    """The controller task failed with an unexpected error."""


class ControllerTask:
    """The controller task of a broker. It runs on every broker, but only the elected controller makes decisions."""

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
        metadata.listeners.append(self._on_image)

    @property
    def is_active(self) -> bool:
        """Whether this broker is the controller."""
        return is_controller(self._metadata.image, self._node_id, self._metadata.broker_epoch)

    def _on_image(self, image: ClusterImage) -> None:
        self._changed.set()

    async def run_pending(self) -> None:
        """Runs pending controller work until idle or no longer controller."""
        while await self._run_once():
            pass

    async def run(self) -> None:
        """Takes the controller role when it is free, and writes decisions to the store while it has the role. Runs
        until cancelled."""
        backoff, reason = Backoff(Random(), first_s=RETRY_FIRST_S, max_s=RETRY_MAX_S), ""
        while True:
            try:
                await self.run_pending()
            except PenstockError as error:
                if str(error) != reason:  # once while it lasts
                    reason = str(error)
                    level = logging.WARNING if isinstance(error, StoreUnavailable) else logging.ERROR
                    logger.log(level, "controller_blocked reason=%r", reason)
                await asyncio.sleep(backoff.next_s())
                continue
            backoff, reason = Backoff(Random(), first_s=RETRY_FIRST_S, max_s=RETRY_MAX_S), ""
            await self._wait()

    async def _wait(self) -> None:
        """Waits for a new metadata image, or until the next decision is due."""
        wait_s = None if self._wake_at_ms is None else max(0, self._wake_at_ms - self._clock.steady_ms()) / 1000
        try:
            async with asyncio.timeout(wait_s):
                await self._changed.wait()
        except TimeoutError:
            pass

    async def _run_once(self) -> bool:
        """Writes one decision as controller, or takes the role if it is free. Returns whether work may be left."""
        self._changed.clear()
        self._wake_at_ms = None
        image, broker_epoch = self._metadata.image, self._metadata.broker_epoch
        if not is_controller(image, self._node_id, broker_epoch):
            self._resign()
            return await self._write(plan_take_control(image, self._node_id, broker_epoch))
        controller = self._take_role(image)
        await self._slices.run(controller.scan(image, self._clock.steady_ms()))
        decision = controller.next_decision(image, self._clock.steady_ms())
        self._wake_at_ms = decision.wake_at_ms
        written = await self._write(decision.ops)
        if written:
            self._report(decision.changes)
        return written

    async def _write(self, ops: Sequence[Op]) -> bool:
        if not ops:
            return False
        try:
            await self._store.transact(ops)
        except Conflict as conflict:
            logger.debug("controller_conflict key=%s", conflict.key)
            return self._changed.is_set()  # if not, the image is about to show the change
        return True

    def _take_role(self, image: ClusterImage) -> Controller:
        assert image.controller is not None
        if self._controller is None or self._epoch != image.controller.epoch:
            self._epoch = image.controller.epoch
            self._controller = Controller(
                epoch_version=image.versions[keys.CONTROLLER_EPOCH],
                is_unclean=self._is_unclean,
                settings=self._settings,
            )
            logger.info("became_controller node_id=%d epoch=%d", self._node_id, self._epoch)
        return self._controller

    def _resign(self) -> None:
        if self._controller is not None:
            logger.info("lost_controller node_id=%d epoch=%d", self._node_id, self._epoch)
            self._controller = None

    def _report(self, changes: Sequence[PartitionChange]) -> None:
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

    def _name(self, changed: PartitionChange) -> str:
        topic = self._metadata.image.topics.get(changed.tp.topic_id)
        return f"{topic.name if topic else '?'}-{changed.tp.partition}"
