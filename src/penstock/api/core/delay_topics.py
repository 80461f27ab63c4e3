"""Checks that a topic has delayed delivery enabled before a delayed message is published to it.

Brokers do not decompress batches of other topics: they would deliver the message at once.
"""

from collections.abc import Callable

from penstock.api.errors import InvalidArgument
from penstock.foundation.delays import DELAYED_MESSAGES_SETTING, delays_disabled_message


class DelayTopics:
    """Topics known to have delayed.messages=true, which cannot be switched off again. Thread-safe."""

    def __init__(self, config: Callable[[str, str], str | None]) -> None:
        self._config = config
        self._known: set[str] = set()

    def is_known(self, topic: str) -> bool:
        """Returns whether the topic has passed `check` before; makes no request."""
        return topic in self._known

    def check(self, topic: str) -> None:
        """Asks the cluster once for each topic. Raises InvalidArgument or UnknownTopic."""
        if self.is_known(topic):
            return
        if self._config(topic, DELAYED_MESSAGES_SETTING) != "true":
            raise InvalidArgument(delays_disabled_message(topic))
        self._known.add(topic)
