"""Carries out effects of group coordinators: changes of share-group delivery state, topics of streams groups."""

from typing import Any

from penstock.broker.broker import Broker
from penstock.broker.share.delivery_states import ShareGroupStates
from penstock.broker.streams_topics import StreamsTopics
from penstock.groups.commands import CreateStreamsTopics


class GroupEffects:
    def __init__(self, broker: Broker) -> None:
        self._share_states = ShareGroupStates(broker)
        self._streams_topics = StreamsTopics(broker)

    def perform(self, effect: Any) -> None:
        """Carries out one effect of a group coordinator. If it fails, the coordinator requests it again."""
        if isinstance(effect, CreateStreamsTopics):
            self._streams_topics.perform(effect)
        else:
            self._share_states.perform(effect)
