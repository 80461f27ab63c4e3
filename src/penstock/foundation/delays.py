"""The record headers of delayed messages: parses and checks delivery times. Pure.

`penstock-deliver-at` is a time, `penstock-delay` a duration, `penstock-delay-level` one of RocketMQ's delay levels.
"""

import re
from collections.abc import Iterable
from datetime import datetime
from typing import Final, NamedTuple

DELIVER_AT: Final = "penstock-deliver-at"
DELAY: Final = "penstock-delay"
DELAY_LEVEL: Final = "penstock-delay-level"
DELAY_HEADERS: Final = (DELIVER_AT, DELAY, DELAY_LEVEL)
DELAYED_MESSAGES_SETTING: Final = "delayed.messages"
"""Name of the topic setting that enables delayed delivery by record headers."""
COMMON_PREFIX: Final = b"penstock-del"
"""Common prefix of the three delay headers: a batch without these bytes has no delayed records."""

ORIGINAL_TIMESTAMP: Final = "penstock-original-timestamp"
"""Header of a delivered delayed message: the producer's timestamp, in milliseconds."""
DELAYED_FROM: Final = "penstock-delayed-from"
"""Header of a delivered delayed message: `<topic id>/<partition>/<offset>` of the original record."""
DUE_AT: Final = "penstock-due-at"
"""Header of a delivered delayed message: when it was due, in milliseconds since the epoch."""
BROKER_HEADERS: Final = (ORIGINAL_TIMESTAMP, DELAYED_FROM, DUE_AT)

DELAY_MAX_MS: Final = 365 * 86_400_000
LEVELS_MS: Final = tuple(
    1000 * seconds
    for seconds in (1, 5, 10, 30, 60, 120, 180, 240, 300, 360, 420, 480, 540, 600, 1200, 1800, 3600, 7200)
)
"""RocketMQ's delay levels, which the record header `penstock-delay-level` refers to: the delays of levels 1 (one
second) to 18 (two hours), in milliseconds."""

_DURATION: Final = re.compile(r"([0-9]{1,15}(?:\.[0-9]{1,6})?)(ms|s|m|h|d)")
_UNITS_MS: Final = {"ms": 1, "s": 1000, "m": 60_000, "h": 3_600_000, "d": 86_400_000}
_EPOCH_MS: Final = re.compile(r"[0-9]{1,18}")
_SECONDS_LIKE: Final = range(10**9, 10**11)
"""Rejected values of `penstock-deliver-at`: probably seconds; as milliseconds they are dates of 1970 to 1973."""


def is_delayed(headers: Iterable[tuple[str, object]]) -> bool:
    """Whether a record with these headers has a delay header."""
    return any(name in DELAY_HEADERS for name, _ in headers)


def delays_disabled_message(topic: str) -> str:
    """Returns the error message for a delayed message to a topic without delayed.messages=true."""
    return (
        f"topic {topic!r} does not delay messages: this one would be delivered at once. Set "
        f"{DELAYED_MESSAGES_SETTING}=true: `penstock topic alter {topic} --config {DELAYED_MESSAGES_SETTING}=true`"
    )


class BadDelay(ValueError):
    """The value of a delay header is not a valid delivery time."""


class DeliveryTime(NamedTuple):
    """When to deliver a record: at the time `at_ms`, or if that is None, `after_ms` after it was appended."""

    at_ms: int | None
    after_ms: int

    def due_ms(self, taken_in_ms: int) -> int:
        return self.at_ms if self.at_ms is not None else taken_in_ms + self.after_ms


def parse_delivery_time(name: str, value: bytes | None) -> DeliveryTime:
    """Parses the value of one delay header. Raises BadDelay with an explanation.

    >>> parse_delivery_time("penstock-delay", b"30s")
    DeliveryTime(at_ms=None, after_ms=30000)
    """
    text = "" if value is None else bytes(value).decode("ascii", "replace").strip()
    if name == DELIVER_AT:
        return DeliveryTime(_parse_time(text), 0)
    return DeliveryTime(None, _parse_delay(text) if name == DELAY else _parse_level(text))


def check_delivery_time(delivery_time: DeliveryTime, now_ms: int) -> None:
    """Raises BadDelay if the delivery time is further ahead than the maximum delay."""
    ahead_ms = delivery_time.due_ms(now_ms) - now_ms
    if ahead_ms > DELAY_MAX_MS:
        raise BadDelay(f"it is {ahead_ms // 86_400_000} days ahead; at most 365 days are allowed")


def _parse_time(text: str) -> int:
    if _EPOCH_MS.fullmatch(text):
        at_ms = int(text)
        if at_ms in _SECONDS_LIKE:
            raise BadDelay(f"{DELIVER_AT}={text} looks like seconds; use milliseconds since the epoch, or RFC 3339")
        return at_ms
    try:
        parsed = datetime.fromisoformat(text)
    except ValueError:
        parsed = None
    if parsed is None or "T" not in text.upper().replace(" ", "T"):
        raise BadDelay(
            f"{DELIVER_AT}={text!r} is not a time; use milliseconds since the epoch, or RFC 3339 as in"
            " 2030-01-31T08:00:00Z"
        )
    if parsed.tzinfo is None:
        raise BadDelay(f"{DELIVER_AT}={text!r} has no time zone; append Z or an offset such as +02:00")
    return round(parsed.timestamp() * 1000)


def _parse_delay(text: str) -> int:
    matched = _DURATION.fullmatch(text)
    if matched is None:
        raise BadDelay(f"{DELAY}={text!r} is not a duration; use for example 500ms, 30s, 5m, 2h or 7d")
    return round(float(matched[1]) * _UNITS_MS[matched[2]])


def _parse_level(text: str) -> int:
    if not (text.isascii() and text.isdecimal() and len(text) < 4 and 1 <= int(text) <= len(LEVELS_MS)):
        raise BadDelay(f"{DELAY_LEVEL}={text!r} is not a level; use 1 (1s) to {len(LEVELS_MS)} (2h)")
    return LEVELS_MS[int(text) - 1]
