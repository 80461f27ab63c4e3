"""Validates and creates topics, for CreateTopics and for streams groups."""

from penstock.broker.broker import Broker
from penstock.broker.config_admin import check_topic_configs
from penstock.broker.internal_topics import adopt_request
from penstock.broker.views.administration import check_no_ad_hoc
from penstock.cluster.administration import create_topic
from penstock.cluster.image import Topic
from penstock.cluster.topic_changes import NewTopic, check_create
from penstock.foundation.ids import INTERNAL_TOPICS


def check_new_topic(broker: Broker, wanted: NewTopic) -> NewTopic:
    """Validates a topic; returns its definition as it would be created. Raises a Kafka error if it is invalid."""
    if wanted.name in INTERNAL_TOPICS and wanted.name not in broker.image.by_name:
        wanted = adopt_request(wanted, broker)
    check_no_ad_hoc(wanted.name)
    check_topic_configs(wanted.configs, broker.configs)
    check_create(broker.image, wanted, broker.topic_defaults())
    return wanted


async def create_checked(broker: Broker, wanted: NewTopic) -> Topic:
    """Validates and creates a topic; returns it when it is in the metadata image. Raises a Kafka error on failure."""
    wanted = check_new_topic(broker, wanted)
    topic_id = broker.new_topic_id()
    await create_topic(broker.metadata, wanted, topic_id, broker.topic_defaults())
    return broker.image.topics[topic_id]
