"""Messages of topics: Outgoing (to publish), Published (its position), Message (received)."""

import json
from collections.abc import Iterable, Mapping
from dataclasses import KW_ONLY, dataclass, field
from datetime import datetime
from typing import Any, Final, Protocol

from penstock.api.core.durations import Duration
from penstock.api.core.position_tracker import PartitionPosition
from penstock.api.errors import InvalidValue

TAG: Final = "tag"
"""The header that holds the tag of a message."""
CONTENT_TYPE: Final = "content-type"
"""The header that holds the content type of the value."""

Headers = Mapping[str, str | bytes | None] | Iterable[tuple[str, str | bytes | None]]
"""Message headers: a mapping such as `{"trace": "abc"}`, or pairs if a name occurs more than once."""


@dataclass(frozen=True, slots=True)
class Outgoing:
    """A message to publish, for publish_many and process: a value with optional key, headers, tag and delay.

    >>> Outgoing({"id": 1}, key="42", tag="eu").key
    '42'
    """

    value: object
    """The message value: bytes and str are sent as they are, None is a tombstone, the rest is encoded as JSON."""
    _: KW_ONLY
    key: str | bytes | None = None
    headers: Headers | None = None
    tag: str | None = None
    partition: int | None = None
    timestamp: datetime | int | None = None
    """Timestamp of the message: a datetime with a time zone, or milliseconds since 1970. None: now."""
    topic: str | None = None
    """Topic to publish to, in place of the topic that the call names; None: the topic of the call."""
    delay: Duration | None = None
    """Delay before delivery, on a topic with delayed.messages=true: seconds, a timedelta, or text like "30s"."""
    deliver_at: datetime | int | None = None
    """Time of delivery, on a topic with delayed.messages=true; an alternative to `delay`."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Published:
    """The topic, partition and offset of a published message.

    >>> Published(topic="orders", partition=0, offset=17, timestamp_ms=1767225600000).offset
    17
    """

    topic: str
    partition: int
    offset: int | None
    """Offset of the message; None with at-most-once delivery, which waits for no acknowledgement."""
    timestamp_ms: int


class MessageSource(Protocol):
    """Interface that carries out the done() and retry() calls of a message."""

    def finish(self, message: "Message") -> None: ...

    def retry(self, message: "Message", delay_s: float) -> None: ...


@dataclass(frozen=True, slots=True, kw_only=True)
class Message:
    """A message received from a topic.

    for message in mq.subscribe("orders", group="billing"):
        print(message.offset, message.tag, message.json()["id"])
    """

    topic: str
    partition: int
    offset: int
    timestamp_ms: int
    key: bytes | None
    value: bytes | None
    """The message value; None is a tombstone, which deletes the message key on a compacted topic."""
    headers: tuple[tuple[str, bytes | None], ...]
    attempt: int = 1
    """Delivery attempt: 1 at the first delivery, and one more at each redelivery by this subscription."""
    _position: PartitionPosition | None = field(default=None, repr=False, compare=False)
    _source: MessageSource | None = field(default=None, repr=False, compare=False)

    @property
    def tag(self) -> str | None:
        """The tag of the message, or None.

        mq.publish("orders", {"id": 1}, tag="eu")  # message.tag == "eu"
        """
        tag = self.header(TAG)
        return None if tag is None else tag.decode(errors="replace")

    def header(self, name: str) -> bytes | None:
        """Returns the value of a header, the last if the name occurs several times; None if there is no such header.

        message.header("content-type")  # b"application/json"
        """
        return next((value for key, value in reversed(self.headers) if key == name), None)

    def json(self) -> Any:
        """Returns the value decoded as JSON. Raises InvalidValue if the value is not JSON.

        message.json()["id"]
        """
        try:
            return json.loads(self._some_value)
        except (ValueError, RecursionError) as error:
            kind = (self.header(CONTENT_TYPE) or b"missing").decode(errors="replace")
            raise InvalidValue(
                f"{self._where} is not JSON ({error}); its content-type is {kind}; message.value has its bytes"
            ) from error

    def text(self) -> str:
        """Returns the value decoded as UTF-8. Raises InvalidValue if the value is not UTF-8.

        message.text().splitlines()
        """
        try:
            return self._some_value.decode()
        except UnicodeDecodeError as error:
            raise InvalidValue(f"{self._where} is not UTF-8 ({error}); message.value has its bytes") from error

    @property
    def _some_value(self) -> bytes:
        if self.value is None:
            raise InvalidValue(f"{self._where} has no value: it is a tombstone; check message.value first")
        return self.value

    @property
    def _where(self) -> str:
        return f"the message at offset {self.offset} of partition {self.topic}-{self.partition}"

    def done(self) -> None:
        """Marks this message as finished, so that its offset can be committed.

        The loop does this automatically when it requests the next message. Call done() before a `break`, and with
        max_in_flight above 1; any thread may call it.

        for message in mq.subscribe("orders", group="billing"):
            if handle(message) is LAST:
                message.done()
                break
        """
        if self._source is not None:
            self._source.finish(self)

    def retry(self, delay_s: float = 0.0) -> None:
        """Delivers this message again after `delay_s` seconds. Its offset is not committed before it is finished.

        except TimeoutError:
            message.retry(delay_s=2 ** message.attempt)
        """
        if self._source is not None:
            self._source.retry(self, delay_s)
