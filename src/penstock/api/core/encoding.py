"""Encoding of messages: values to bytes with a content type, keys, headers, timestamps, delays. Pure."""

import json
from collections.abc import Mapping
from dataclasses import asdict, dataclass, is_dataclass
from datetime import datetime
from typing import Any, Final

from penstock.api.core.durations import seconds_of
from penstock.api.core.message import CONTENT_TYPE, TAG, Headers, Outgoing
from penstock.api.errors import InvalidArgument, InvalidValue
from penstock.foundation.delays import DELAY, DELAY_MAX_MS, DELIVER_AT, is_delayed
from penstock.foundation.settings import INT_MAX, LONG_MAX

JSON: Final = b"application/json"
TEXT: Final = b"text/plain; charset=utf-8"
ANY_PARTITION: Final = -1
NOW_MS: Final = 0
"""Timestamp value for which librdkafka fills in the current time."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Encoded:
    """A message encoded for librdkafka."""

    topic: str
    value: bytes | None
    key: bytes | None
    headers: list[tuple[str, str | bytes | None]]
    partition: int
    timestamp_ms: int
    is_delayed: bool = False
    """Whether the message has a header that requests delayed delivery."""


def encode(topic: str, message: object) -> Encoded:
    """Encodes a message for publishing to `topic`. The message is an Outgoing, or only a value.

    >>> encode("orders", Outgoing({"id": 1}, tag="eu")).headers
    [('content-type', b'application/json'), ('tag', b'eu')]
    """
    if not isinstance(message, Outgoing):
        message = Outgoing(message)
    value, kind = encode_value(message.value)
    headers = encode_headers(message.headers)
    if kind is not None and not any(name == CONTENT_TYPE for name, _ in headers):
        headers.insert(0, (CONTENT_TYPE, kind))
    if message.tag is not None:
        headers.append((TAG, _utf8(message.tag, "a tag")))
    if message.delay is not None or message.deliver_at is not None:
        headers.append(_delay_header(message))
    return Encoded(
        topic=message.topic or topic,
        value=value,
        key=_utf8(message.key, "a key") if message.key is not None else None,
        headers=headers,
        partition=_partition(message.partition),
        timestamp_ms=_timestamp_ms(message.timestamp),
        is_delayed=is_delayed(headers),
    )


def _delay_header(message: Outgoing) -> tuple[str, bytes]:
    if message.delay is not None and message.deliver_at is not None:
        raise InvalidArgument("delay and deliver_at exclude each other; give one of them")
    if message.deliver_at is not None:
        at_ms = time_ms(message.deliver_at, "deliver_at")
        return DELIVER_AT, b"%d" % at_ms
    assert message.delay is not None
    delay_ms = round(1000 * seconds_of(message.delay, "delay"))
    if delay_ms > DELAY_MAX_MS:
        raise InvalidArgument(f"delay={message.delay!r} is too long; at most 365 days are allowed")
    return DELAY, b"%dms" % delay_ms


def encode_value(value: object) -> tuple[bytes | None, bytes | None]:
    """Returns a value as bytes (None for a tombstone), and its content type (None for bytes and tombstones).

    >>> encode_value([1, "zwei"])
    (b'[1,"zwei"]', b'application/json')
    """
    if value is None or isinstance(value, bytes):
        return value, None
    if isinstance(value, bytearray | memoryview):
        return bytes(value), None
    if isinstance(value, str):
        return _utf8(value, "a value"), TEXT
    try:
        # NaN and infinities are not valid JSON: other languages cannot read them.
        text = json.dumps(value, ensure_ascii=False, allow_nan=False, separators=(",", ":"), default=_plain)
    except (TypeError, ValueError, RecursionError) as error:
        raise InvalidValue(
            f"a {type(value).__name__} cannot be written as JSON ({error}); give bytes, str, or what json.dumps takes"
        ) from error
    return _utf8(text, "a value"), JSON


def _plain(value: object) -> Any:
    if is_dataclass(value) and not isinstance(value, type):
        return asdict(value)
    raise TypeError(f"a {type(value).__name__} is not JSON")


def encode_headers(headers: Headers | None) -> list[tuple[str, str | bytes | None]]:
    if headers is None:
        return []
    pairs = headers.items() if isinstance(headers, Mapping) else headers
    return [(name, None if value is None else _utf8(value, f"header {name!r}")) for name, value in pairs]


def _utf8(text: str | bytes, what: str) -> bytes:
    if isinstance(text, bytes):
        return text
    if not isinstance(text, str):
        raise InvalidValue(f"{what} is a {type(text).__name__}; give str or bytes")
    try:
        return text.encode()
    except UnicodeEncodeError as error:
        raise InvalidValue(f"{what} cannot be written as UTF-8 ({error}); give bytes") from error


def _partition(partition: int | None) -> int:
    if partition is None:
        return ANY_PARTITION
    if not 0 <= partition <= INT_MAX:
        raise InvalidArgument(f"partition {partition} is invalid; give 0 or more, or None for any")
    return partition


def _timestamp_ms(timestamp: datetime | int | None) -> int:
    if timestamp is None:
        return NOW_MS
    found = time_ms(timestamp, "timestamp")
    if found == NOW_MS:
        raise InvalidArgument("timestamp=0 would mean now; the smallest timestamp is 1")
    return found


def time_ms(time: datetime | int, name: str) -> int:
    """Returns a time in milliseconds since 1970. Raises InvalidArgument for a datetime without a time zone.

    >>> time_ms(datetime.fromisoformat("2026-01-01T00:00:00Z"), "timestamp")
    1767225600000
    """
    if isinstance(time, datetime):
        if time.tzinfo is None:
            raise InvalidArgument(f"{name}={time!r} has no time zone; write datetime(…, tzinfo=UTC)")
        time = round(time.timestamp() * 1000)
    if not 0 <= time <= LONG_MAX:
        raise InvalidArgument(f"{name}={time} is before 1970, or too large")
    return time
