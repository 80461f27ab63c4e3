"""Creates internal topics when they are first needed, with the settings that coordinators rely on."""

import contextlib
import logging
from dataclasses import replace
from typing import Final

from penstock.broker.broker import Broker
from penstock.broker.settings import SETTING_PREFIXES
from penstock.cluster.administration import create_topic
from penstock.cluster.internal_topics import CLEANUP_POLICY, COMPACT, check_configs
from penstock.cluster.placement import awaited_brokers, open_brokers
from penstock.cluster.topic_changes import NewTopic
from penstock.foundation.errors import (
    CoordinatorNotAvailable,
    InvalidPartitions,
    InvalidReplicaAssignment,
    InvalidReplicationFactor,
    TopicExists,
)
from penstock.foundation.ids import TRANSACTIONS_TOPIC

logger = logging.getLogger(__name__)

AWAY_MS: Final = 30_000
"""How long brokers that are away are waited for. A reassignment adds the replicas of what was made without them."""
_UNSET: Final = -1


def internal_topic(name: str, broker: Broker) -> NewTopic:
    """Returns an internal topic as brokers create it."""
    setting, prefix = broker.configs, SETTING_PREFIXES[name]
    factor = min(setting[prefix + "replication.factor"], len(open_brokers(broker.image)))
    configs = {
        CLEANUP_POLICY: COMPACT,
        "compression.type": "producer",
        "segment.bytes": str(setting[prefix + "segment.bytes"]),
    }
    if name == TRANSACTIONS_TOPIC:
        configs["min.insync.replicas"] = str(setting["transaction.state.log.min.isr"])
    return NewTopic(
        name=name, partitions=setting[prefix + "num.partitions"], replication_factor=factor, configs=configs
    )


def adopt_request(asked: NewTopic, broker: Broker) -> NewTopic:
    """Returns the internal topic that a client's CreateTopics may create: the brokers' own, with settings added.

    Raises InvalidPartitions, InvalidReplicationFactor, InvalidReplicaAssignment or InvalidConfig if the request wants
    it otherwise, and CoordinatorNotAvailable as `make_internal_topic` does.
    """
    own, prefix = internal_topic(asked.name, broker), SETTING_PREFIXES[asked.name]
    if asked.assignments:
        raise InvalidReplicaAssignment(f"topic {asked.name!r} is internal: create it without an assignment")
    if asked.partitions not in (_UNSET, own.partitions):
        raise InvalidPartitions(
            f"topic {asked.name!r} is internal and has {own.partitions} partitions ({prefix}num.partitions), asked "
            f"for {asked.partitions}; leave the number out"
        )
    if asked.replication_factor not in (_UNSET, own.replication_factor):
        raise InvalidReplicationFactor(
            f"topic {asked.name!r} is internal and has {own.replication_factor} replicas ({prefix}replication.factor"
            f" or as many as there are brokers), asked for {asked.replication_factor}; leave the number out"
        )
    configs = {**own.configs, **asked.configs}
    check_configs(asked.name, own.configs, configs)
    _await_brokers(asked.name, broker)
    return replace(own, configs=configs)


def _await_brokers(name: str, broker: Broker) -> None:
    """Raises CoordinatorNotAvailable while brokers are away that should have replicas; not for ever, or one that is
    lost would keep everybody waiting."""
    away = awaited_brokers(broker.image, broker.configs[SETTING_PREFIXES[name] + "replication.factor"])
    if not away:
        return
    now_ms = broker.clock.steady_ms()
    since_ms = broker.awaited.setdefault(name, now_ms)
    if now_ms - since_ms < AWAY_MS:
        raise CoordinatorNotAvailable(f"brokers {away} are away, which should have replicas; try again")
    logger.warning("internal_topic_made_without_brokers topic=%s away=%s", name, away)


async def make_internal_topic(name: str, broker: Broker) -> None:
    """Make it, and return when this broker's part of it can be used; nothing happens if it is there."""
    if name not in broker.image.by_name:
        _await_brokers(name, broker)
        topic_id = broker.new_topic_id()
        with contextlib.suppress(TopicExists):  # someone else asked for it a moment ago
            await create_topic(broker.metadata, internal_topic(name, broker), topic_id, broker.topic_defaults())
    for runtimes in (broker.groups, broker.transactions):
        if runtimes.topic == name:
            await runtimes.settle()
