"""What goes in and what comes out: Outgoing, Published, Message."""

import json
from collections.abc import Iterable, Mapping
from dataclasses import KW_ONLY, dataclass, field
from datetime import datetime
from typing import Any, Final, Protocol

from penstock.api.core.durations import Duration
from penstock.api.core.progress import Track
from penstock.api.errors import InvalidValue

TAG: Final = "tag"
"""The header that a message's tag is kept in."""
CONTENT_TYPE: Final = "content-type"
"""The header that says how a value is written."""

Headers = Mapping[str, str | bytes | None] | Iterable[tuple[str, str | bytes | None]]
"""`{"trace": "abc"}`, or pairs where a name comes more than once."""


@dataclass(frozen=True, slots=True)
class Outgoing:
    """A message to be, for publish_many and process: a value, and what else is to be said about it.

    >>> Outgoing({"id": 1}, key="42", tag="eu").key
    '42'
    """

    value: object
    """bytes and str as they are; None is a tombstone; anything else is written as JSON."""
    _: KW_ONLY
    key: str | bytes | None = None
    headers: Headers | None = None
    tag: str | None = None
    partition: int | None = None
    timestamp: datetime | int | None = None
    """A time with its zone, or milliseconds since 1970. None: now."""
    topic: str | None = None
    """Where to, if not where the call says."""
    delay: Duration | None = None
    """How long it is held back, on a topic with delayed.messages=true: seconds, a timedelta, or text as "30s"."""
    deliver_at: datetime | int | None = None
    """Or until when."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Published:
    """Where a message is.

    >>> Published(topic="orders", partition=0, offset=17, timestamp_ms=1767225600000).offset
    17
    """

    topic: str
    partition: int
    offset: int | None
    """None where nobody was asked: at most once."""
    timestamp_ms: int


class MessageSource(Protocol):
    """Where messages come from, and are given back."""

    def finish(self, message: "Message") -> None: ...

    def retry(self, message: "Message", delay_s: float) -> None: ...


@dataclass(frozen=True, slots=True, kw_only=True)
class Message:
    """A message that was read.

    for message in mq.subscribe("orders", group="billing"):
        print(message.offset, message.tag, message.json()["id"])
    """

    topic: str
    partition: int
    offset: int
    timestamp_ms: int
    key: bytes | None
    value: bytes | None
    """None is a tombstone: the end of its key, on a compacted topic."""
    headers: tuple[tuple[str, bytes | None], ...]
    attempt: int = 1
    """1, and one more every time that this subscription hands it over again."""
    _track: Track | None = field(default=None, repr=False, compare=False)
    _source: MessageSource | None = field(default=None, repr=False, compare=False)

    @property
    def tag(self) -> str | None:
        """The tag it was published with.

        mq.publish("orders", {"id": 1}, tag="eu")  # message.tag == "eu"
        """
        tag = self.header(TAG)
        return None if tag is None else tag.decode(errors="replace")

    def header(self, name: str) -> bytes | None:
        """The header of this name; the last one, if there are several.

        message.header("content-type")  # b"application/json"
        """
        return next((value for key, value in reversed(self.headers) if key == name), None)

    def json(self) -> Any:
        """The value, read as JSON.

        message.json()["id"]
        """
        try:
            return json.loads(self._some_value)
        except (ValueError, RecursionError) as error:
            kind = (self.header(CONTENT_TYPE) or b"not told").decode(errors="replace")
            raise InvalidValue(
                f"{self._where} is not JSON ({error}); its content-type is {kind}; message.value has its bytes"
            ) from error

    def text(self) -> str:
        """The value, read as UTF-8.

        message.text().splitlines()
        """
        try:
            return self._some_value.decode()
        except UnicodeDecodeError as error:
            raise InvalidValue(f"{self._where} is not UTF-8 ({error}); message.value has its bytes") from error

    @property
    def _some_value(self) -> bytes:
        if self.value is None:
            raise InvalidValue(f"{self._where} has no value: it is a tombstone; look at message.value first")
        return self.value

    @property
    def _where(self) -> str:
        return f"the message at offset {self.offset} of partition {self.topic}-{self.partition}"

    def done(self) -> None:
        """This message is finished, now. The loop says so by itself when it asks for the next one.

        Needed before a `break`, and with max_in_flight above 1; from any thread.

        for message in mq.subscribe("orders", group="billing"):
            if handle(message) is LAST:
                message.done()
                break
        """
        if self._source is not None:
            self._source.finish(self)

    def retry(self, delay_s: float = 0.0) -> None:
        """Hand this message over once more, after a while. Until it is finished, its offset is not committed.

        except TimeoutError:
            message.retry(delay_s=2 ** message.attempt)
        """
        if self._source is not None:
            self._source.retry(self, delay_s)
