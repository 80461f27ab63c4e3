"""The topics that the broker keeps its own state in, made when they are first needed."""

import contextlib
import logging
from typing import Final

from penstock.broker.broker import Broker
from penstock.cluster.administration import create_topic
from penstock.cluster.placement import awaited_brokers, open_brokers
from penstock.cluster.topics import NewTopic
from penstock.foundation.errors import CoordinatorNotAvailable, TopicExists

logger = logging.getLogger(__name__)

GROUPS_TOPIC: Final = "__consumer_offsets"
TRANSACTIONS_TOPIC: Final = "__transaction_state"
_PREFIXES: Final = {GROUPS_TOPIC: "offsets.topic.", TRANSACTIONS_TOPIC: "transaction.state.log."}
"""What the names of their settings begin with."""
AWAY_MS: Final = 30_000
"""How long brokers that are away are waited for. A reassignment adds the replicas of what was made without them."""


def _wanted(name: str, broker: Broker) -> NewTopic:
    setting, prefix = broker.configs, _PREFIXES[name]
    factor = min(setting[prefix + "replication.factor"], len(open_brokers(broker.image)))
    configs = {
        "cleanup.policy": "compact",
        "compression.type": "producer",
        "segment.bytes": str(setting[prefix + "segment.bytes"]),
    }
    if name == TRANSACTIONS_TOPIC:
        configs["min.insync.replicas"] = str(setting["transaction.state.log.min.isr"])
    return NewTopic(
        name=name, partitions=setting[prefix + "num.partitions"], replication_factor=factor, configs=configs
    )


def _await_brokers(name: str, broker: Broker) -> None:
    """Raises CoordinatorNotAvailable while brokers are away that should have replicas; not for ever, or one that is
    lost would keep everybody waiting."""
    away = awaited_brokers(broker.image, broker.configs[_PREFIXES[name] + "replication.factor"])
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
            await create_topic(broker.metadata, _wanted(name, broker), topic_id, broker.topic_defaults())
    for runtimes in (broker.groups, broker.transactions):
        if runtimes.topic == name:
            await runtimes.settle()
