"""Which topics hold messages back until they are due. Any other delivers a delayed message at once, unnoticed."""

from collections.abc import Callable, Iterable
from typing import Final

from penstock.api.errors import InvalidArgument
from penstock.foundation.delays import DELAY_HEADERS, HOLDS_BACK, how_to_hold_back

_TRUE: Final = "true"


def is_delayed(headers: Iterable[tuple[str, object]]) -> bool:
    """Whether headers say when a message is to be delivered."""
    return any(name in DELAY_HEADERS for name, _ in headers)


class HoldingTopics:
    """Asked once for each topic: one that holds messages back does so for good. Any thread may ask."""

    def __init__(self, config: Callable[[str, str], str | None]) -> None:
        self._config = config
        self._known: set[str] = set()

    def knows(self, topic: str) -> bool:
        """Whether it is known, without asking, that a topic holds messages back."""
        return topic in self._known

    def check(self, topic: str) -> None:
        """Raises InvalidArgument if a topic does not hold messages back, UnknownTopic if it is not there."""
        if self.knows(topic):
            return
        if self._config(topic, HOLDS_BACK) != _TRUE:
            raise InvalidArgument(how_to_hold_back(topic))
        self._known.add(topic)
