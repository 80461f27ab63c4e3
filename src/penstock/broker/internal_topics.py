"""The topics that the broker keeps its own state in, made when they are first needed."""

import contextlib
from typing import Final

from penstock.broker.broker import Broker
from penstock.cluster.administration import create_topic
from penstock.cluster.placement import open_brokers
from penstock.cluster.topics import NewTopic
from penstock.foundation.errors import TopicExists

GROUPS_TOPIC: Final = "__consumer_offsets"
TRANSACTIONS_TOPIC: Final = "__transaction_state"


def _wanted(name: str, broker: Broker) -> NewTopic:
    setting = broker.configs
    prefix = "offsets.topic." if name == GROUPS_TOPIC else "transaction.state.log."
    # As many as there can be: a reassignment raises the number when more brokers have joined.
    factor = min(setting[prefix + "replication.factor"], len(open_brokers(broker.image)))
    configs = {
        "cleanup.policy": "compact",
        "compression.type": "producer",
        "segment.bytes": str(setting[prefix + "segment.bytes"]),
    }
    if name == TRANSACTIONS_TOPIC:
        configs["min.insync.replicas"] = str(min(setting["transaction.state.log.min.isr"], factor))
    return NewTopic(
        name=name, partitions=setting[prefix + "num.partitions"], replication_factor=factor, configs=configs
    )


async def make_internal_topic(name: str, broker: Broker) -> None:
    """Make it, and return when this broker's part of it can be used; nothing happens if it is there."""
    if name not in broker.image.by_name:
        topic_id = broker.new_topic_id()
        with contextlib.suppress(TopicExists):  # someone else asked for it a moment ago
            await create_topic(broker.metadata, _wanted(name, broker), topic_id, broker.topic_defaults())
    for runtimes in (broker.groups, broker.transactions):
        if runtimes.topic == name:
            await runtimes.settle()
