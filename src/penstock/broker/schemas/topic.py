"""Creates the schema registry's topic when a first schema or setting is stored."""

import contextlib

from penstock.broker.broker import Broker
from penstock.cluster.administration import create_topic
from penstock.cluster.placement import open_brokers
from penstock.cluster.topic_changes import NewTopic
from penstock.foundation.errors import TopicExists
from penstock.foundation.ids import SCHEMAS_TOPIC
from penstock.log.setting_table import BROKERS, WRITE_ACCESS

REPLICATION_FACTOR = "schema.registry.topic.replication.factor"


async def create_schemas_topic(broker: Broker) -> None:
    """Creates `_schemas` unless it exists; returns when its state machine is loaded, if this broker leads it."""
    async with broker.internal_topic_locks[SCHEMAS_TOPIC]:
        if SCHEMAS_TOPIC not in broker.image.by_name:
            factor = min(broker.configs[REPLICATION_FACTOR], len(open_brokers(broker.image)))
            configs = {
                "cleanup.policy": "compact",
                "compression.type": "producer",
                "min.insync.replicas": str(min(2, factor)),
                WRITE_ACCESS: BROKERS,
            }
            wanted = NewTopic(name=SCHEMAS_TOPIC, partitions=1, replication_factor=factor, configs=configs)
            with contextlib.suppress(TopicExists):  # another broker created it a moment ago
                await create_topic(broker.metadata, wanted, broker.new_topic_id(), broker.topic_defaults())
        assert broker.schema_registry is not None
        await broker.schema_registry.runtimes.wait_loaded()
