"""Subscriptions to client metrics: the resource type CLIENT_METRICS of DescribeConfigs. Pure.

A subscription names metrics, how often clients push them, and which clients it is for. A client gets the union of all
subscriptions that match it, at the shortest of their intervals.
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
"""Metrics that one subscription names."""
VALUE_CHARS_MAX: Final = 10_000

CLIENT_METRICS_SETTINGS: Final = Table(
    [
        Setting(
            name="metrics",
            kind=Kind.LIST,
            default="",
            doc="Prefixes of the names of metrics that clients push; `*` stands for all.",
        ),
        Setting(
            name="interval.ms",
            kind=Kind.INT,
            default=str(INTERVAL_MS_DEFAULT),
            minimum=INTERVAL_MS_MIN,
            maximum=INTERVAL_MS_MAX,
            doc="How often clients push them.",
        ),
        Setting(
            name="match",
            kind=Kind.LIST,
            default="",
            doc="Which clients: a list of name=regular expression; empty for all. Names are client_instance_id, "
            "client_id, client_software_name, client_software_version, client_source_address and "
            "client_source_port. All of them must match.",
        ),
    ]
)


class Client(NamedTuple):
    """What the broker knows of a client, by the names that `match` uses."""

    client_instance_id: str
    client_id: str | None
    client_software_name: str | None
    client_software_version: str | None
    client_source_address: str
    client_source_port: str


@dataclass(frozen=True, slots=True)
class Subscription:
    """One subscription, parsed."""

    metrics: frozenset[str]
    interval_ms: int
    match: Mapping[str, Pattern]

    @classmethod
    def read(cls, settings: Mapping[str, str]) -> "Subscription":
        """Raises InvalidConfig or InvalidRequest, as Kafka does, unless these settings are right."""
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
        """Whether all patterns match. What is not known of a client matches nothing."""
        known = client._asdict()
        return all(known[name] is not None and pattern.matches(known[name]) for name, pattern in self.match.items())


def check_subscription(name: str, settings: Mapping[str, str], others: int) -> None:
    """Raises unless a subscription may have these settings. `others`: how many other subscriptions there are."""
    if not name:
        raise InvalidRequest("a subscription to client metrics needs a name; it is empty")
    if others >= SUBSCRIPTIONS_MAX:
        raise PolicyViolation(
            f"there are {others} subscriptions to client metrics; {SUBSCRIPTIONS_MAX} are allowed: delete one"
        )
    Subscription.read(settings)


class Wanted(NamedTuple):
    """What one client is asked to push."""

    metrics: tuple[str, ...]
    """Prefixes of names; ("*",) for all, nothing for none."""
    interval_ms: int

    def includes(self, name: str) -> bool:
        return self.metrics == (ALL_METRICS,) or name.startswith(self.metrics)


def wanted_of(client: Client, subscriptions: Iterable[Subscription]) -> Wanted:
    """The union of all subscriptions that are for this client. Every broker gets the same result."""
    metrics: set[str] = set()
    interval_ms = INTERVAL_MS_DEFAULT
    for subscription in subscriptions:
        if subscription.is_for(client):
            metrics |= subscription.metrics
            interval_ms = min(interval_ms, subscription.interval_ms)
    return Wanted((ALL_METRICS,) if ALL_METRICS in metrics else tuple(sorted(metrics)), interval_ms)


def _check_interval(text: str | None) -> None:
    """An interval that is a number and out of bounds is an invalid request, not an invalid setting."""
    if text is None or not text.strip().lstrip("-").isdecimal() or len(text) > 12:
        return
    if not INTERVAL_MS_MIN <= int(text) <= INTERVAL_MS_MAX:
        raise InvalidRequest(
            f"interval.ms={text} is not allowed; expected {INTERVAL_MS_MIN} to {INTERVAL_MS_MAX} (an hour)"
        )


def _refuse_repeated(name: str, parts: tuple[str, ...]) -> None:
    if len(set(parts)) != len(parts):
        raise InvalidConfig(f"{name} names something twice: {', '.join(parts)[:200]}")
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
