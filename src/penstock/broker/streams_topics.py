"""Creates the internal topics of streams groups: repartition topics and changelogs (KIP-1071)."""

import logging
from typing import Final

from penstock.broker.broker import Broker
from penstock.broker.new_topics import create_checked
from penstock.cluster.topic_changes import NewTopic
from penstock.foundation.codes import ErrorCode
from penstock.foundation.errors import PenstockError
from penstock.groups.commands import CreateStreamsTopics, StreamsTopicsRefused
from penstock.groups.streams.topology import InternalTopic

logger = logging.getLogger(__name__)

REASONS_SHOWN: Final = 3
DEFAULT_REPLICAS: Final = -1


class StreamsTopics:
    """Creates the topics that group coordinators request for streams groups (CreateStreamsTopics)."""

    def __init__(self, broker: Broker) -> None:
        self._broker = broker
        self._creating: set[str] = set()
        """Ids of the streams groups whose topics are being created."""

    def perform(self, effect: CreateStreamsTopics) -> None:
        """Starts to create a streams group's topics, unless creation is in progress. The group repeats the request
        until the topics exist."""
        if effect.group_id not in self._creating:
            self._creating.add(effect.group_id)
            self._broker.metadata.spawn(self._create(effect))

    async def _create(self, effect: CreateStreamsTopics) -> None:
        reasons = []
        try:
            for topic in effect.topics:
                try:
                    await create_checked(self._broker, _new_topic(topic))
                except PenstockError as error:
                    if error.code != ErrorCode.TOPIC_ALREADY_EXISTS:
                        reasons.append(f"{topic.name} ({error.message})")
        finally:
            self._creating.discard(effect.group_id)
        if reasons:
            logger.warning("streams_topics_not_created group=%r reasons=%r", effect.group_id, reasons[:REASONS_SHOWN])
            rest = len(reasons) - REASONS_SHOWN
            text = ", ".join(reasons[:REASONS_SHOWN]) + (f" and {rest} more" if rest > 0 else "")
            refused = StreamsTopicsRefused(group_id=effect.group_id, reason=text)
            self._broker.groups.submit(effect.group_id, refused, _ignore)


def _new_topic(topic: InternalTopic) -> NewTopic:
    return NewTopic(
        name=topic.name,
        partitions=topic.partitions,
        replication_factor=topic.replication_factor or DEFAULT_REPLICAS,
        assignments={},
        configs=dict(topic.configs),
    )


def _ignore(answer: object) -> None:
    """Ignores the coordinator's reply: the group itself reports the error to its members."""
