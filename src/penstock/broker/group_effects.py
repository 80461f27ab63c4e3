"""Performs actions that group coordinators request: changes of share-group state, creation of streams topics."""

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
        """Performs one action requested by a group coordinator, which repeats the request if the action fails."""
        if isinstance(effect, CreateStreamsTopics):
            self._streams_topics.perform(effect)
        else:
            self._share_states.perform(effect)
