"""Does what the coordinators of groups want done, besides answering."""

from typing import Any

from penstock.broker.broker import Broker
from penstock.broker.share.delivery_states import ShareStates
from penstock.broker.streams_topics import StreamsTopics
from penstock.groups.commands import CreateStreamsTopics


class GroupEffects:
    def __init__(self, broker: Broker) -> None:
        self._share_states = ShareStates(broker)
        self._streams_topics = StreamsTopics(broker)

    def perform(self, effect: Any) -> None:
        """An effect of a group's coordinator. What fails is asked for again."""
        if isinstance(effect, CreateStreamsTopics):
            self._streams_topics.perform(effect)
        else:
            self._share_states.perform(effect)
