"""The transformation of process(): turns a message that was read into the messages to publish."""

from collections.abc import Callable, Iterable
from dataclasses import dataclass, replace
from typing import TypeAlias

from penstock.api.core.encoding import Encoded, encode
from penstock.api.core.message import Message, Outgoing
from penstock.api.errors import InvalidArgument

Transform: TypeAlias = Callable[[Message], object]
"""Function that returns a value, an Outgoing, a list of these, or None. In asyncio, may be a coroutine function."""
Route: TypeAlias = str | Callable[[Message], str]
"""The topic for the results, or a function that returns the topic for the message that was read."""


@dataclass(frozen=True, slots=True)
class Transformation:
    """The function and the target topic of process()."""

    transform: Transform
    to: Route

    def results(self, result: object, message: Message) -> list[Encoded]:
        """Encodes the results of one message. A result without a key gets the key of `message`.

        >>> read = Message(topic="in", partition=0, offset=0, timestamp_ms=1, key=b"42", value=b"", headers=())
        >>> work = Transformation(lambda message: [{"a": 1}, b"raw"], "out")
        >>> [(each.topic, each.key, each.value) for each in work.results(work.transform(read), read)]
        [('out', b'42', b'{"a":1}'), ('out', b'42', b'raw')]
        """
        values: Iterable[object] = result if isinstance(result, list | tuple) else [result]
        found = []
        for value in values:
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
            raise InvalidArgument(f"the route returned {topic!r} for a message; it must return the name of a topic")
        return topic
