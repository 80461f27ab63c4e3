"""Checks that a topic has delayed delivery enabled before a delayed message is published to it.

In other topics, brokers do not decompress batches to find delays: they would deliver the message at once.
"""

from collections.abc import Callable

from penstock.api.errors import InvalidArgument
from penstock.foundation.delays import DELAYED_MESSAGES_SETTING, delays_disabled_message


class DelayTopics:
    """Cache of topics that have delayed.messages=true, a config that cannot be switched off. Thread-safe."""

    def __init__(self, config: Callable[[str, str], str | None]) -> None:
        self._config = config
        self._known: set[str] = set()

    def is_known(self, topic: str) -> bool:
        """Returns whether `check` has already found delayed.messages=true for this topic; makes no request."""
        return topic in self._known

    def check(self, topic: str) -> None:
        """Raises InvalidArgument unless the topic has delayed.messages=true, UnknownTopic if it does not exist."""
        if self.is_known(topic):
            return
        if self._config(topic, DELAYED_MESSAGES_SETTING) != "true":
            raise InvalidArgument(delays_disabled_message(topic))
        self._known.add(topic)
