"""The broker logs what is created and deleted, so that an operator can see later what happened."""

import re

import penstock
from tests.brokers import BrokerProcess

from .driver_confluent import ConfluentDriver
from .drivers import Outgoing
from .waiting import PATIENCE_S


def test_topics_views_and_queues_are_logged_when_they_are_created_and_deleted(
    broker: BrokerProcess, confluent: ConfluentDriver, topic: str
) -> None:
    confluent.create_topic(topic, partitions=2)
    confluent.create_topic(f"{topic}-v", configs={"view.of": topic, "view.where": "tag = 'eu'"})
    confluent.create_topic(f"{topic}-w", configs={"view.of": topic, "view.where": "tag = 'us'"})
    with penstock.connect(broker.kafka) as mq:
        mq.create_queue(f"{topic}-q")
        mq.delete_queue(f"{topic}-q")
    confluent.delete_topic(f"{topic}-w")
    confluent.delete_topic(topic)
    lines = [line.partition("event=")[2] for line in broker.log.splitlines()]
    for wanted in (
        f"topic_created topic='{topic}' topic_id=.* partitions=2",
        f"view_created view='{topic}-v' topic='{topic}' where=\"tag = 'eu'\"",
        f"queue_created queue='{topic}-q' topic=",
        f"queue_deleted queue='{topic}-q'",
        f"view_dropped view='{topic}-w' topic='{topic}' reason=deleted",
        f"topic_deleted topic='{topic}' topic_id=",
        f"view_dropped view='{topic}-v' topic='{topic}' reason=topic_deleted",
    ):
        assert sum(re.match(wanted, line) is not None for line in lines) == 1, (wanted, lines)


def test_groups_are_logged_when_they_are_created_and_removed(group_broker: BrokerProcess, topic: str) -> None:
    driver = ConfluentDriver(group_broker.kafka)
    driver.create_topic(topic)
    driver.produce(topic, [Outgoing(key=None, value=b"x")])
    with penstock.connect(group_broker.kafka) as mq:
        assert [message.value for message in mq.subscribe(topic, group=f"{topic}-g", limit=1)] == [b"x"]
    driver.admin.delete_consumer_groups([f"{topic}-g"])[f"{topic}-g"].result(PATIENCE_S)
    lines = [line.partition("event=")[2] for line in group_broker.log.splitlines()]
    assert sum(line.startswith(f"group_created group_id='{topic}-g' type=") for line in lines) == 1, lines
    assert sum(line == f"group_removed group_id='{topic}-g'" for line in lines) == 1, lines
