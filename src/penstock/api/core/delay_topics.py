"""Checks that a topic has delayed delivery enabled before a delayed message is published to it.

Brokers do not decompress batches of other topics: they would deliver the message at once.
"""

from collections.abc import Callable

from penstock.api.errors import InvalidArgument
from penstock.foundation.delays import HOLDS_BACK, how_to_hold_back


class HoldingTopics:
    """Topics known to have delayed.messages=true, which cannot be switched off again. Thread-safe."""

    def __init__(self, config: Callable[[str, str], str | None]) -> None:
        self._config = config
        self._known: set[str] = set()

    def knows(self, topic: str) -> bool:
        """Whether the topic has passed `check` before; makes no request."""
        return topic in self._known

    def check(self, topic: str) -> None:
        """Asks the cluster once for each topic. Raises InvalidArgument or UnknownTopic."""
        if self.knows(topic):
            return
        if self._config(topic, HOLDS_BACK) != "true":
            raise InvalidArgument(how_to_hold_back(topic))
        self._known.add(topic)
