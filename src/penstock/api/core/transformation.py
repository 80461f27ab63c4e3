"""What a transformation gives back, as messages: for process()."""

from collections.abc import Callable, Iterable
from dataclasses import dataclass, replace
from typing import TypeAlias

from penstock.api.core.encoding import Encoded, encode
from penstock.api.core.message import Message, Outgoing
from penstock.api.errors import InvalidArgument

Transform: TypeAlias = Callable[[Message], object]
"""Gives a value, an Outgoing, a list of those, or None for nothing. In AsyncConnection it may be a coroutine."""
Route: TypeAlias = str | Callable[[Message], str]
"""Where results go: a topic, or a function from the message that was read to one."""


@dataclass(frozen=True, slots=True)
class Work:
    """What process() does with each message."""

    transform: Transform
    to: Route

    def results(self, given: object, message: Message) -> list[Encoded]:
        """The messages that a message gives rise to. They keep its key, unless they say otherwise.

        >>> read = Message(topic="in", partition=0, offset=0, timestamp_ms=1, key=b"42", value=b"", headers=())
        >>> work = Work(lambda message: [{"a": 1}, b"raw"], "out")
        >>> [(each.topic, each.key, each.value) for each in work.results(work.transform(read), read)]
        [('out', b'42', b'{"a":1}'), ('out', b'42', b'raw')]
        """
        each_of: Iterable[object] = given if isinstance(given, list | tuple) else [given]
        found = []
        for value in each_of:
            if value is None:
                continue
            outgoing = value if isinstance(value, Outgoing) else Outgoing(value)
            if outgoing.key is None:
                outgoing = replace(outgoing, key=message.key)
            found.append(encode(outgoing.topic or self._topic(message), outgoing))
        return found

    def _topic(self, message: Message) -> str:
        topic = self.to if isinstance(self.to, str) else self.to(message)
        if not isinstance(topic, str) or not topic:
            raise InvalidArgument(f"the route of a message gave {topic!r}; it must give the name of a topic")
        return topic
