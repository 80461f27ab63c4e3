"""Broker registration: registers at startup and after a lost session, and leaves in a controlled shutdown."""

import asyncio
import contextlib
import logging
import secrets
from collections.abc import Awaitable, Callable, Coroutine
from dataclasses import replace
from random import Random
from typing import Any, Final, TypeVar

from penstock.client.retry import Backoff
from penstock.cluster import keys
from penstock.cluster.image import NO_EPOCH, ClusterImage, PartitionState, Topic
from penstock.cluster.metadata import Metadata
from penstock.cluster.registration import (
    Identity,
    leave_isrs,
    lost_partitions,
    plan_cluster,
    plan_leave_isrs,
    plan_leaving,
    plan_register,
    plan_retire,
)
from penstock.coordination.store import Op, Store, StoreDamaged, StoreUnavailable
from penstock.foundation.errors import PenstockError
from penstock.foundation.ids import TopicIdPartition, uuid_text

logger = logging.getLogger(__name__)
T = TypeVar("T")

RETRY_FIRST_S: Final = 0.1
RETRY_MAX_S: Final = 3.0
STORE_TIMEOUT_S: Final = 30.0
"""How long, in seconds, a starting broker waits for a coordination store that does not answer."""
GRACE_S: Final = 1.0
"""How long, in seconds, a broker that lost its registration waits for its session to expire before it registers."""


class Membership:
    """Keeps a broker registered. Its current broker epoch is `metadata.broker_epoch`."""

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
        """`is_lost`: whether a partition's log is missing from the data folder. `may_lack`: whether a log may lack
        acknowledged records. `note_cluster`: saves the cluster id there. `on_registered`: called with the
        new broker epoch. `on_refused`: called if another process has registered as this broker, so this process
        must stop."""
        self._store = store
        self._metadata = metadata
        self._identity = identity
        self._is_lost = is_lost
        self._may_lack = may_lack
        self._note_cluster = note_cluster
        self._on_registered = on_registered
        self._on_refused = on_refused
        self._lost: dict[TopicIdPartition, int] = {}
        self._epochs: set[int] = set()
        """Broker epochs that this process has tried to register with."""
        self._is_new = True
        self._session_expired = asyncio.Event()
        self._joining: asyncio.Task[None] | None = None
        self._is_closed = False

    async def prepare(self) -> None:
        """Removes this broker's old registration, and leaves the ISRs of partitions whose data it lost. Creates
        the cluster if the store has none. Raises WrongCluster or NodeIdTaken."""
        await retry_store(self._prepare)

    async def _prepare(self) -> None:
        new_cluster_id = uuid_text(secrets.token_bytes(16))
        await self._metadata.change(lambda image: plan_cluster(image, self._identity, new_cluster_id))
        self._identity = replace(self._identity, cluster_id=self._metadata.image.cluster_id)
        await self._note_cluster(self._identity.cluster_id)
        await self._metadata.change(self._plan_retire)
        await self._leave_isrs()

    async def join(self) -> None:
        """Registers for the first time in this process: from now on this broker may be elected as leader."""
        await retry_store(self._register)
        self._is_new = False
        self._store.on_session_lost.append(self._session_lost)
        self._metadata.listeners.append(self._follow)
        self._follow(self._metadata.image)

    def _plan_retire(self, image: ClusterImage) -> list[Op]:
        plan_cluster(image, self._identity, "")  # raises if the store holds another cluster now
        return plan_retire(image, self._identity, None if self._is_new else self._epochs)

    async def _leave_isrs(self) -> None:
        """Leaves the ISRs of partitions whose records are lost or incomplete, before this broker counts as in
        sync. It stays in an ISR without other members: its incomplete log is the best one left."""
        node_id, begun = self._identity.node_id, set[TopicIdPartition]()
        states: dict[TopicIdPartition, PartitionState] = {}

        def plan(image: ClusterImage) -> list[Op]:
            nonlocal states
            states = leave_isrs(image, self._identity, is_doubtful, begun)
            return plan_leave_isrs(node_id, states)

        def is_doubtful(topic: Topic, number: int) -> bool:
            return self._is_lost(topic, number) or self._may_lack(topic, number)

        await self._metadata.change(plan)
        while states:
            begun.update(tp for tp, state in states.items() if node_id in state.isr)
            await self._metadata.change(plan)
        image = self._metadata.image
        self._lost = {
            tp: state.leader_epoch
            for tp, state in lost_partitions(image, self._identity, self._is_lost)
            if not state.in_memory
        }
        for tp in self._lost:
            topic = image.topics[tp.topic_id].name
            logger.error(
                "partition_lost partition=%s-%d reason='the last in-sync replica lost its log'", topic, tp.partition
            )

    async def _register(self) -> None:
        node_id, epoch = self._identity.node_id, 1 + await self._metadata.reserve(keys.BROKER_EPOCHS, 1)
        self._epochs.add(epoch)
        while not self._is_registered(epoch):
            await self._metadata.change(lambda image: [] if self._is_registered(epoch) else self._plan_retire(image))
            await self._metadata.change(lambda image: plan_register(image, self._identity, epoch, self._lost))
        self._metadata.broker_epoch = epoch
        logger.info("broker_registered node_id=%d epoch=%d", node_id, epoch)
        self._on_registered(epoch)

    def _is_registered(self, epoch: int) -> bool:
        known = self._metadata.image.brokers.get(self._identity.node_id)
        return known is not None and known.epoch == epoch

    # -- staying registered

    def _session_lost(self) -> None:
        self._session_expired.set()
        self._start_rejoin("the session has expired")

    def _follow(self, image: ClusterImage) -> None:
        if self._joining is None and not self._is_registered(self._metadata.broker_epoch):
            self._start_rejoin("the registration was removed")

    def _start_rejoin(self, reason: str) -> None:
        if self._joining is None and not self._is_closed:
            node_id, epoch = self._identity.node_id, self._metadata.broker_epoch
            logger.warning("registration_lost node_id=%d epoch=%d reason=%r", node_id, epoch, reason)
            self._metadata.broker_epoch = NO_EPOCH
            self._joining = asyncio.get_running_loop().create_task(self._rejoin())

    async def _rejoin(self) -> None:
        """Registers with a new broker epoch as soon as the store is reachable."""
        # A registration removed while the session lasts may have been removed by another process, which is about to
        # register in its place.
        with contextlib.suppress(TimeoutError):
            async with asyncio.timeout(GRACE_S):
                await self._session_expired.wait()
        self._session_expired.clear()
        backoff, reason = Backoff(Random(), first_s=RETRY_FIRST_S, max_s=RETRY_MAX_S), ""
        while True:
            try:
                await self._register()
            except StoreUnavailable as error:
                if str(error) != reason:  # once while it lasts
                    reason = str(error)
                    logger.warning("broker_not_registered reason=%r", reason)
                await asyncio.sleep(backoff.next_s())
            except PenstockError as error:
                self._refuse(error)
                return
            else:
                break
        self._joining = None
        if self._session_expired.is_set():
            self._start_rejoin("the session has expired")
        else:
            self._follow(self._metadata.image)

    def _refuse(self, error: PenstockError) -> None:
        self._is_closed = True
        self._on_refused(error)

    # -- leaving

    async def leave(self, timeout_s: float) -> None:
        """Announces the shutdown, then waits at most `timeout_s` seconds until other brokers have taken over
        leadership (controlled shutdown)."""
        node_id, epoch = self._identity.node_id, self._metadata.broker_epoch
        if self._is_closed or self._joining is not None or self._metadata.image.may_stop(node_id):
            return
        try:
            async with asyncio.timeout(timeout_s):
                await self._metadata.change(lambda image: plan_leaving(image, node_id, epoch))
                await self._metadata.until(lambda image: image.may_stop(node_id))
        except (TimeoutError, StoreUnavailable) as error:
            logger.warning("controlled_shutdown_failed node_id=%d reason=%r", node_id, str(error))

    async def close(self) -> None:
        """Stops registering. The current registration ends with the session."""
        self._is_closed = True
        if self._joining is not None:
            self._joining.cancel()
            await asyncio.gather(self._joining, return_exceptions=True)


async def retry_store(work: Callable[[], Coroutine[Any, Any, T]]) -> T:
    """Runs `work`; repeats it while the coordination store does not answer, for at most STORE_TIMEOUT_S. Raises
    StoreDamaged at once."""
    backoff = Backoff(Random(), first_s=RETRY_FIRST_S, max_s=RETRY_MAX_S)
    clock = asyncio.get_running_loop().time
    give_up_at_s = clock() + STORE_TIMEOUT_S
    while True:
        try:
            return await work()
        except StoreUnavailable as error:
            if isinstance(error, StoreDamaged) or clock() > give_up_at_s:
                raise
            logger.warning("store_unavailable reason=%r", str(error))
            await asyncio.sleep(backoff.next_s())
