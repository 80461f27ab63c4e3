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

MISSING_BROKERS_WAIT_MS: Final = 30_000
"""How long, in milliseconds, creation of an internal topic waits for brokers that should have replicas of it."""
_UNSET: Final = -1


def new_internal_topic(name: str, broker: Broker) -> NewTopic:
    """Returns the definition of an internal topic according to the broker settings."""
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
    """Returns the definition of an internal topic that a client asks to create: that of the broker settings, plus the
    topic settings in the request.

    Raises InvalidPartitions, InvalidReplicationFactor, InvalidReplicaAssignment or InvalidConfig if the request
    contradicts the broker settings, and CoordinatorNotAvailable while brokers that should have replicas are missing.
    """
    own, prefix = new_internal_topic(asked.name, broker), SETTING_PREFIXES[asked.name]
    if asked.assignments:
        raise InvalidReplicaAssignment(f"topic {asked.name!r} is internal; create it without a replica assignment")
    if asked.partitions not in (_UNSET, own.partitions):
        raise InvalidPartitions(
            f"topic {asked.name!r} is internal and has {own.partitions} partitions ({prefix}num.partitions); "
            f"requested {asked.partitions}; leave the number out"
        )
    if asked.replication_factor not in (_UNSET, own.replication_factor):
        raise InvalidReplicationFactor(
            f"topic {asked.name!r} is internal and has {own.replication_factor} replicas ({prefix}replication.factor"
            f" or as many as there are brokers), requested {asked.replication_factor}; leave the number out"
        )
    configs = {**own.configs, **asked.configs}
    check_configs(asked.name, own.configs, configs)
    _check_brokers_present(asked.name, broker)
    return replace(own, configs=configs)


def _check_brokers_present(name: str, broker: Broker) -> None:
    """Raises CoordinatorNotAvailable while brokers that should have replicas are not running, for at most
    MISSING_BROKERS_WAIT_MS: a lost broker must not block topic creation for ever."""
    missing_brokers = awaited_brokers(broker.image, broker.configs[SETTING_PREFIXES[name] + "replication.factor"])
    if not missing_brokers:
        broker.missing_brokers_since_ms.pop(name, None)
        return
    now_ms = broker.clock.steady_ms()
    since_ms = broker.missing_brokers_since_ms.setdefault(name, now_ms)
    if now_ms - since_ms < MISSING_BROKERS_WAIT_MS:
        raise CoordinatorNotAvailable(
            f"brokers {missing_brokers} should have replicas but are not running; try again"
        )
    logger.warning("internal_topic_created_without_brokers topic=%s missing=%s", name, missing_brokers)


async def create_internal_topic(name: str, broker: Broker) -> None:
    """Creates an internal topic unless it exists; returns when its coordinators on this broker are loaded."""
    async with broker.internal_topic_locks[name]:
        if name not in broker.image.by_name:
            _check_brokers_present(name, broker)
            wanted, topic_id = new_internal_topic(name, broker), broker.new_topic_id()
            with contextlib.suppress(TopicExists):  # a client of another broker created it a moment ago
                await create_topic(broker.metadata, wanted, topic_id, broker.topic_defaults())
        for runtimes in (broker.groups, broker.transactions):
            if runtimes.topic == name:
                await runtimes.wait_loaded()
