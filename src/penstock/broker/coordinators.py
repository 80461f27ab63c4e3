"""Creates and updates the group and transaction coordinators that this broker runs."""

import logging
import secrets
import uuid
from collections.abc import Callable, Mapping
from concurrent.futures import Executor
from functools import partial
from typing import Any, ClassVar

from penstock.broker.configs import Configs
from penstock.broker.internal_topic_watch import InternalTopicWatch
from penstock.broker.peers import AskPeer
from penstock.broker.settings import PAUSED
from penstock.broker.transactions.markers import MarkerWriter
from penstock.cluster.image import ClusterImage, Topic
from penstock.foundation.clock import Clock, Timer
from penstock.foundation.ids import GROUPS_TOPIC, TRANSACTIONS_TOPIC
from penstock.foundation.spark_ids import coordinator_key
from penstock.groups.commands import TopicsChanged
from penstock.groups.coordinator import GroupCoordinator
from penstock.groups.settings import GroupSettings
from penstock.replication.partition import Partition
from penstock.replication.partitions import Partitions
from penstock.replication.runtimes import StateRuntimes
from penstock.transactions.commands import WriteMarkers
from penstock.transactions.coordinator import TransactionCoordinator
from penstock.transactions.settings import TransactionSettings

logger = logging.getLogger(__name__)


def new_member_id(client_id: str) -> str:
    """Returns a new group member id in Kafka's format."""
    return f"{client_id}-{uuid.UUID(bytes=secrets.token_bytes(16), version=4)}"


class Coordinators:
    """The group and transaction coordinators on this broker, kept up to date with the metadata image."""

    runtimes: ClassVar[type[StateRuntimes]] = StateRuntimes

    def __init__(
        self,
        *,
        node_id: int,
        partitions: Partitions,
        configs: Configs,
        clock: Clock,
        timer: Timer,
        threads: Executor,
        image: Callable[[], ClusterImage],
        ask: AskPeer,
        new_member_id: Callable[[str], str] = new_member_id,
    ) -> None:
        self._configs = configs
        self._image = image
        self._new_member_id = new_member_id
        self._shown: Mapping[bytes, Topic] = {}
        self._watch = InternalTopicWatch(configs)
        self.perform_for_groups: Callable[[Any], None] = _ignore
        """Performs an action that a group coordinator requests, such as creating topics (group_effects.py)."""
        markers = MarkerWriter(node_id=node_id, partitions=partitions, clock=clock, timer=timer, image=image, ask=ask)

        def write_soon(effect: WriteMarkers) -> None:
            """Writes transaction markers after EndTxn was answered: the producer does not wait for the markers."""
            timer(0, partial(markers.write, effect))

        self.groups = self.runtimes(
            topic=GROUPS_TOPIC,
            make=self._new_group_coordinator,
            partitions=partitions,
            clock=clock,
            timer=timer,
            threads=threads,
            perform=lambda effect: self.perform_for_groups(effect),
        )
        self.transactions = self.runtimes(
            topic=TRANSACTIONS_TOPIC,
            make=self._new_transaction_coordinator,
            partitions=partitions,
            clock=clock,
            timer=timer,
            threads=threads,
            perform=write_soon,
            hashed_by=coordinator_key,
        )
        markers.transactions = self.transactions

    def _new_group_coordinator(self, partition: Partition) -> GroupCoordinator:
        return GroupCoordinator(
            settings=GroupSettings.of(self._configs.__getitem__),
            image=self._image(),
            new_member_id=self._new_member_id,
        )

    def _new_transaction_coordinator(self, partition: Partition) -> TransactionCoordinator:
        return TransactionCoordinator(
            settings=TransactionSettings.of(self._configs.__getitem__), coordinator_epoch=partition.leader_epoch
        )

    def apply(self, image: ClusterImage) -> None:
        """Starts, stops and updates coordinators for a new metadata image. Call it after updating the partitions."""
        self._watch.apply(image)
        paused = self._configs[PAUSED]
        for runtimes in (self.groups, self.transactions):
            if runtimes.is_paused != (runtimes.topic in paused):
                runtimes.is_paused = not runtimes.is_paused
                logger.warning("coordinators_paused topic=%s paused=%s", runtimes.topic, runtimes.is_paused)
        self.groups.apply(image)
        self.transactions.apply(image)
        group_settings = GroupSettings.of(self._configs.__getitem__)
        transaction_settings = TransactionSettings.of(self._configs.__getitem__)
        for runtime in self.groups.all:
            assert isinstance(runtime.machine, GroupCoordinator)
            runtime.machine.settings, runtime.machine.image = group_settings, image
        for runtime in self.transactions.all:
            assert isinstance(runtime.machine, TransactionCoordinator)
            runtime.machine.settings = transaction_settings
            runtime.machine.coordinator_epoch = runtime.partition.leader_epoch
        before, self._shown = self._shown, image.shown
        gone = () if before is image.shown else before.keys() - image.shown.keys()
        deleted = frozenset(before[topic_id].name for topic_id in gone)
        self.groups.post_all(TopicsChanged(deleted=deleted))

    def close(self) -> None:
        self.groups.close()
        self.transactions.close()


def _ignore(effect: object) -> None:
    """Does nothing: the initial value of `Coordinators.perform_for_groups`."""
