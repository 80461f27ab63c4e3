"""This broker's registration: made at the start, made again after a lost session, given up at the end."""

import asyncio
import contextlib
import logging
import secrets
from collections.abc import Awaitable, Callable, Coroutine
from dataclasses import replace
from random import Random
from typing import Any, Final

from penstock.client.retry import Backoff
from penstock.cluster import keys
from penstock.cluster.image import NO_EPOCH, ClusterImage, PartitionState, Place, Topic
from penstock.cluster.metadata import Metadata
from penstock.cluster.registration import (
    Identity,
    leave_isrs,
    lost_places,
    plan_cluster,
    plan_leave_isrs,
    plan_leaving,
    plan_register,
    plan_retire,
)
from penstock.coordination.store import Op, Store, StoreUnavailable
from penstock.foundation.errors import PenstockError
from penstock.foundation.ids import uuid_text

logger = logging.getLogger(__name__)

RETRY_FIRST_S: Final = 0.1
RETRY_MAX_S: Final = 3.0
PATIENCE_S: Final = 15.0
"""How long a broker that starts waits for a store that does not answer."""
GRACE_S: Final = 1.0
"""How long a broker whose registration is gone waits to hear why."""


class Membership:
    """Keeps a broker registered. `metadata.broker_epoch` is the epoch it has."""

    def __init__(
        self,
        *,
        store: Store,
        metadata: Metadata,
        identity: Identity,
        is_lost: Callable[[Topic, int], bool],
        may_lack: Callable[[Topic, int], bool],
        note_cluster: Callable[[str], Awaitable[None]],
        on_registered: Callable[[int], None],
        on_refused: Callable[[PenstockError], None],
    ) -> None:
        """`is_lost`: whether a partition's log was in the data folder and is gone. `may_lack`: whether the log of a
        partition may lack what was acknowledged. `note_cluster`: the folder belongs to this cluster from now on.
        `on_registered`: this is the broker's epoch from now on. `on_refused`: another process has become this broker,
        so this one must stop."""
        self._store = store
        self._metadata = metadata
        self._identity = identity
        self._is_lost = is_lost
        self._may_lack = may_lack
        self._note_cluster = note_cluster
        self._on_registered = on_registered
        self._on_refused = on_refused
        self._lost: dict[Place, int] = {}
        self._epochs: set[int] = set()
        """Those that this process has tried to register with."""
        self._is_new = True
        self._session_over = asyncio.Event()
        self._joining: asyncio.Task[None] | None = None
        self._is_over = False

    async def prepare(self) -> None:
        """Be nobody, so that nobody counts on what this broker has lost. Raises if the cluster refuses it."""
        await _patiently(self._prepare)

    async def _prepare(self) -> None:
        new_cluster_id = uuid_text(secrets.token_bytes(16))
        await self._metadata.change(lambda image: plan_cluster(image, self._identity, new_cluster_id))
        self._identity = replace(self._identity, cluster_id=self._metadata.image.cluster_id)
        await self._note_cluster(self._identity.cluster_id)
        await self._metadata.change(self._retirement)
        await self._leave_isrs()

    async def join(self) -> None:
        """Register for the first time in this process: from now on this broker may be elected."""
        await _patiently(self._register)
        self._is_new = False
        self._store.on_session_lost.append(self._session_lost)
        self._metadata.listeners.append(self._follow)
        self._follow(self._metadata.image)

    def _retirement(self, image: ClusterImage) -> list[Op]:
        plan_cluster(image, self._identity, "")  # refuses, should the store be another one by now
        return plan_retire(image, self._identity, None if self._is_new else self._epochs)

    async def _leave_isrs(self) -> None:
        """Before anyone can take this broker for in sync with what it has lost, or may have. What may lack something
        is still the best there is where nobody else is in sync."""
        node_id, begun = self._identity.node_id, set[Place]()
        states: dict[Place, PartitionState] = {}

        def plan(image: ClusterImage) -> list[Op]:
            nonlocal states
            states = leave_isrs(image, self._identity, is_doubtful, begun)
            return plan_leave_isrs(node_id, states)

        def is_doubtful(topic: Topic, number: int) -> bool:
            return self._is_lost(topic, number) or self._may_lack(topic, number)

        await self._metadata.change(plan)
        while states:
            begun.update(place for place, state in states.items() if node_id in state.isr)
            await self._metadata.change(plan)
        image = self._metadata.image
        self._lost = {
            place: state.leader_epoch
            for place, state in lost_places(image, self._identity, self._is_lost)
            if not state.in_memory
        }
        for place in self._lost:
            topic = image.topics[place.topic_id].name
            logger.error(
                "partition_lost partition=%s-%d reason='the last in-sync replica is gone'", topic, place.number
            )

    async def _register(self) -> None:
        node_id, epoch = self._identity.node_id, 1 + await self._metadata.reserve(keys.BROKER_EPOCHS, 1)
        self._epochs.add(epoch)
        while not self._has(epoch):
            await self._metadata.change(lambda image: [] if self._has(epoch) else self._retirement(image))
            await self._metadata.change(lambda image: plan_register(image, self._identity, epoch, self._lost))
        self._metadata.broker_epoch = epoch
        logger.info("broker_registered node_id=%d epoch=%d", node_id, epoch)
        self._on_registered(epoch)

    def _has(self, epoch: int) -> bool:
        known = self._metadata.image.brokers.get(self._identity.node_id)
        return known is not None and known.epoch == epoch

    # -- staying registered

    def _session_lost(self) -> None:
        self._session_over.set()
        self._join_again("the session is over")

    def _follow(self, image: ClusterImage) -> None:
        if self._joining is None and not self._has(self._metadata.broker_epoch):
            self._join_again("the registration is gone")

    def _join_again(self, reason: str) -> None:
        if self._joining is None and not self._is_over:
            node_id, epoch = self._identity.node_id, self._metadata.broker_epoch
            logger.warning("registration_lost node_id=%d epoch=%d reason=%r", node_id, epoch, reason)
            self._metadata.broker_epoch = NO_EPOCH
            self._joining = asyncio.get_running_loop().create_task(self._rejoin())

    async def _rejoin(self) -> None:
        """Under a new epoch, as soon as the store can be reached."""
        # A registration that goes while the session is there may have been taken away by another process, which is
        # about to put its own in the place.
        with contextlib.suppress(TimeoutError):
            async with asyncio.timeout(GRACE_S):
                await self._session_over.wait()
        self._session_over.clear()
        backoff = Backoff(Random(), first_s=RETRY_FIRST_S, max_s=RETRY_MAX_S)
        while True:
            try:
                await self._register()
            except StoreUnavailable as error:
                logger.warning("broker_not_registered reason=%r", str(error))
                await asyncio.sleep(backoff.next_s())
            except PenstockError as error:
                self._refuse(error)
                return
            else:
                break
        self._joining = None
        if self._session_over.is_set():
            self._join_again("the session is over")
        else:
            self._follow(self._metadata.image)

    def _refuse(self, error: PenstockError) -> None:
        self._is_over = True
        self._on_refused(error)

    # -- leaving

    async def leave(self, patience_s: float) -> None:
        """Say that this broker is about to stop, and wait until the others do without it."""
        node_id, epoch = self._identity.node_id, self._metadata.broker_epoch
        if self._is_over or self._joining is not None or self._metadata.image.may_stop(node_id):
            return
        try:
            async with asyncio.timeout(patience_s):
                await self._metadata.change(lambda image: plan_leaving(image, node_id, epoch))
                await self._metadata.until(lambda image: image.may_stop(node_id))
        except (TimeoutError, StoreUnavailable) as error:
            logger.warning("left_as_a_leader node_id=%d reason=%r", node_id, str(error))

    async def close(self) -> None:
        """No registration is made any more. The one that there is goes with the session."""
        self._is_over = True
        if self._joining is not None:
            self._joining.cancel()
            await asyncio.gather(self._joining, return_exceptions=True)


async def _patiently(work: Callable[[], Coroutine[Any, Any, None]]) -> None:
    """Do it again while the store does not answer, for a while."""
    backoff = Backoff(Random(), first_s=RETRY_FIRST_S, max_s=RETRY_MAX_S)
    clock = asyncio.get_running_loop().time
    give_up_at_s = clock() + PATIENCE_S
    while True:
        try:
            return await work()
        except StoreUnavailable as error:
            if clock() > give_up_at_s:
                raise
            logger.warning("store_does_not_answer reason=%r", str(error))
            await asyncio.sleep(backoff.next_s())
