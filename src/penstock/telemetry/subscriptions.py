"""Subscriptions to client metrics (KIP-714): settings of the resource type CLIENT_METRICS. Pure.

A subscription selects metrics, a push interval, and clients. A client pushes the metrics of all subscriptions that
match it, at the shortest of their intervals.
"""

from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from typing import Final, NamedTuple

from penstock.foundation.errors import InvalidConfig, InvalidRegularExpression, InvalidRequest, PolicyViolation
from penstock.foundation.patterns import Pattern
from penstock.foundation.settings import Kind, Setting, Table

ALL_METRICS: Final = "*"
INTERVAL_MS_DEFAULT: Final = 300_000
INTERVAL_MS_MIN: Final = 100
INTERVAL_MS_MAX: Final = 3_600_000
SUBSCRIPTIONS_MAX: Final = 500
PARTS_MAX: Final = 500
"""Maximum number of metric prefixes, and of match patterns, in one subscription."""
VALUE_CHARS_MAX: Final = 10_000

CLIENT_METRICS_SETTINGS: Final = Table(
    [
        Setting(
            name="metrics",
            kind=Kind.LIST,
            default="",
            doc="Prefixes of the names of metrics that clients push; `*` for all.",
        ),
        Setting(
            name="interval.ms",
            kind=Kind.INT,
            default=str(INTERVAL_MS_DEFAULT),
            minimum=INTERVAL_MS_MIN,
            maximum=INTERVAL_MS_MAX,
            doc="Interval between two pushes of a client.",
        ),
        Setting(
            name="match",
            kind=Kind.LIST,
            default="",
            doc="Which clients: a list of name=regular expression, all of which must match; empty for all. Names are "
            "client_instance_id, client_id, client_software_name, client_software_version, client_source_address and "
            "client_source_port.",
        ),
    ]
)


class Client(NamedTuple):
    """Properties of a client, named as in the setting `match`; a property is None if it is unknown."""

    client_instance_id: str
    client_id: str | None
    client_software_name: str | None
    client_software_version: str | None
    client_source_address: str
    client_source_port: str


@dataclass(frozen=True, slots=True)
class Subscription:
    """One parsed subscription to client metrics: which metrics are pushed, how often, and by which clients."""

    metrics: frozenset[str]
    interval_ms: int
    match: Mapping[str, Pattern]

    @classmethod
    def read(cls, settings: Mapping[str, str]) -> "Subscription":
        """Parses the settings of a subscription. Raises InvalidConfig or InvalidRequest, as Kafka does."""
        for name, text in settings.items():
            if name not in CLIENT_METRICS_SETTINGS.by_name:
                known = ", ".join(CLIENT_METRICS_SETTINGS.by_name)
                raise InvalidRequest(f"unknown setting of client metrics: {name}; known are {known}")
            if len(text) > VALUE_CHARS_MAX:
                raise InvalidConfig(f"{name} has {len(text)} characters; {VALUE_CHARS_MAX} are allowed")
        _check_interval(settings.get("interval.ms"))
        parsed = CLIENT_METRICS_SETTINGS.parse(settings)
        _refuse_repeated("metrics", parsed["metrics"])
        _refuse_repeated("match", parsed["match"])
        return cls(frozenset(parsed["metrics"]), parsed["interval.ms"], _patterns(parsed["match"]))

    def is_for(self, client: Client) -> bool:
        """Returns whether every pattern in `match` matches the client; a property that is None does not match."""
        known = client._asdict()
        return all(known[name] is not None and pattern.matches(known[name]) for name, pattern in self.match.items())


def check_subscription(name: str, settings: Mapping[str, str], others: int) -> None:
    """Raises an error if the subscription is invalid, or `others`, the number of existing ones, is at its limit."""
    if not name:
        raise InvalidRequest("a subscription to client metrics needs a name; it is empty")
    if others >= SUBSCRIPTIONS_MAX:
        raise PolicyViolation(
            f"there are {others} subscriptions to client metrics; {SUBSCRIPTIONS_MAX} are allowed: delete one"
        )
    Subscription.read(settings)


class PushSettings(NamedTuple):
    """The metrics that one client has to push, and the push interval."""

    metrics: tuple[str, ...]
    """Prefixes of metric names; ("*",) for all metrics, empty for none."""
    interval_ms: int

    def includes(self, name: str) -> bool:
        return self.metrics == (ALL_METRICS,) or name.startswith(self.metrics)


def push_settings_for(client: Client, subscriptions: Iterable[Subscription]) -> PushSettings:
    """Returns all metrics of the subscriptions that match the client, with the shortest of their push intervals."""
    metrics: set[str] = set()
    interval_ms = INTERVAL_MS_DEFAULT
    for subscription in subscriptions:
        if subscription.is_for(client):
            metrics |= subscription.metrics
            interval_ms = min(interval_ms, subscription.interval_ms)
    return PushSettings((ALL_METRICS,) if ALL_METRICS in metrics else tuple(sorted(metrics)), interval_ms)


def _check_interval(text: str | None) -> None:
    """Raises InvalidRequest for an interval out of bounds, as Kafka does (and not InvalidConfig)."""
    if text is None or not text.strip().lstrip("-").isdecimal() or len(text) > 12:
        return
    if not INTERVAL_MS_MIN <= int(text) <= INTERVAL_MS_MAX:
        raise InvalidRequest(
            f"interval.ms={text} is not allowed; expected {INTERVAL_MS_MIN} to {INTERVAL_MS_MAX} (an hour)"
        )


def _refuse_repeated(name: str, parts: tuple[str, ...]) -> None:
    if len(set(parts)) != len(parts):
        raise InvalidConfig(f"{name} has duplicate entries: {', '.join(parts)[:200]}")
    if len(parts) > PARTS_MAX:
        raise InvalidConfig(f"{name} has {len(parts)} entries; {PARTS_MAX} are allowed")


def _patterns(parts: Iterable[str]) -> dict[str, Pattern]:
    found: dict[str, Pattern] = {}
    for part in parts:
        name, separator, text = part.partition("=")
        if not separator or "=" in text or not text or name.strip() not in Client._fields:
            known = ", ".join(Client._fields)
            raise InvalidConfig(f"match={part!r} is not allowed; expected name=expression, the name one of {known}")
        try:
            found[name.strip()] = Pattern(text.strip())
        except InvalidRegularExpression as error:
            raise InvalidConfig(f"match={part!r} is not allowed: {error}") from None
    return found
