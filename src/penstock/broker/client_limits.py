"""What clients may take: meters of bytes, of time and of changes, by the quotas of users and client ids. Pure.

A client without a quota has no limits and costs nothing. All connections with the same quota share a meter.
"""

from collections.abc import Callable, Iterator
from dataclasses import dataclass
from itertools import islice
from typing import Any, Final

from penstock.cluster.client_quotas import CONSUMER_RATE, MUTATION_RATE, PRODUCER_RATE, REQUEST_PERCENTAGE, Quotas
from penstock.foundation.errors import ThrottlingQuotaExceeded
from penstock.foundation.quota_entities import CLIENT_ID, DEFAULT, USER, Entity
from penstock.wire.keys import ApiKey

WINDOW_S: Final = 10.0
"""A client may take what its quota allows in this time at once, as with Kafka's default windows."""
REQUEST_THROTTLE_MS_MAX: Final = 1000
"""Maximum time for which a request quota throttles a client, as in Kafka: the length of one window."""
METERS_MAX: Final = 10_000
"""Number of meters at which the older half is forgotten: clients choose their client ids."""
_USER_PREFIX: Final = "User:"


class Meter:
    """A token bucket. Its level may become negative; then the client waits until the debt is refilled."""

    __slots__ = ("_at_s", "_level", "rate")

    def __init__(self, rate: float) -> None:
        """`rate`: units per second."""
        self.rate = rate
        self._level = rate * WINDOW_S
        self._at_s = 0.0

    def take(self, count: float, now_s: float) -> None:
        self._refill(now_s)
        self._level -= count

    def take_if_available(self, now_s: float) -> bool:
        """Takes one unit, if the bucket has one."""
        self._refill(now_s)
        if self._level < 1:
            return False
        self._level -= 1
        return True

    def debt_ms(self, now_s: float) -> int:
        """Returns the milliseconds until the debt is refilled; 0 if there is none."""
        self._refill(now_s)
        return 0 if self._level >= 0 else int(-self._level / self.rate * 1000) + 1

    def _refill(self, now_s: float) -> None:
        passed_s = now_s - self._at_s
        self._at_s = now_s
        self._level = min(self._level + self.rate * passed_s, self.rate * WINDOW_S)


@dataclass(frozen=True, slots=True, kw_only=True)
class ClientLimits:
    """The meters of one client; None where it has no quota."""

    produced: Meter | None = None
    """In bytes per second."""
    fetched: Meter | None = None
    """In bytes per second."""
    busy: Meter | None = None
    """In seconds of the broker's time per second."""
    changed: Meter | None = None
    """In partitions that are created or deleted, per second."""

    def throttle_ms(self, api_key: int, request_bytes: int, response: Any, now_s: float) -> int:
        """Counts a request that is answered now, and returns for how long the client must pause."""
        found = 0
        if self.produced is not None and api_key == ApiKey.PRODUCE:
            self.produced.take(request_bytes, now_s)
            found = self.produced.debt_ms(now_s)
        elif self.fetched is not None and api_key in _FETCHES and response is not None:
            self.fetched.take(_record_bytes(response), now_s)
            found = self.fetched.debt_ms(now_s)
        elif self.changed is not None and api_key in STRICT_FROM:
            found = self.changed.debt_ms(now_s)
        if self.busy is not None:
            found = max(found, min(self.busy.debt_ms(now_s), REQUEST_THROTTLE_MS_MAX))
        return found

    def change(self, api_key: int, version: int, partitions: int, now_s: float) -> None:
        """Counts partitions that are about to be created or deleted. Raises ThrottlingQuotaExceeded (KIP-599)."""
        if self.changed is None:
            return
        wait_ms = self.changed.debt_ms(now_s)
        if wait_ms and version >= STRICT_FROM[api_key]:
            raise ThrottlingQuotaExceeded(f"{MUTATION_RATE} is exceeded; try again in {wait_ms} ms")
        self.changed.take(partitions, now_s)


def _record_bytes(response: Any) -> int:
    return sum(len(part.records or b"") for topic in response.responses for part in topic.partitions)


_FETCHES: Final = (ApiKey.FETCH, ApiKey.SHARE_FETCH)
STRICT_FROM: Final[dict[int, int]] = {ApiKey.CREATE_TOPICS: 6, ApiKey.CREATE_PARTITIONS: 3, ApiKey.DELETE_TOPICS: 5}
"""By API that changes partitions: the first version whose clients know ThrottlingQuotaExceeded. Older clients are
throttled afterwards."""
_NAMES: Final = {
    "produced": PRODUCER_RATE,
    "fetched": CONSUMER_RATE,
    "busy": REQUEST_PERCENTAGE,
    "changed": MUTATION_RATE,
}


class ClientQuotas:
    """Finds the limits of clients, by Kafka's order of precedence."""

    def __init__(self, quotas: Callable[[], Quotas]) -> None:
        """`quotas` returns the current quotas, and another mapping after every change."""
        self._current = quotas
        self._quotas: Quotas = {}
        self._meters: dict[tuple[str, Entity], Meter] = {}
        self._limits: dict[tuple[str, str], ClientLimits | None] = {}

    def limits_of(self, principal: str, client_id: str) -> ClientLimits | None:
        """Returns the limits of a client, None if it has no quota."""
        quotas = self._current()
        if quotas is not self._quotas:
            self._quotas = quotas
            self._limits.clear()
        if not quotas:
            return None
        key = principal, client_id
        if key not in self._limits:
            if len(self._limits) >= METERS_MAX:
                self._limits.clear()
            self._limits[key] = self._find(principal.removeprefix(_USER_PREFIX), client_id)
        return self._limits[key]

    def _find(self, user: str, client_id: str) -> ClientLimits | None:
        found = {field: self._meter(name, user, client_id) for field, name in _NAMES.items()}
        return ClientLimits(**found) if any(found.values()) else None

    def _meter(self, name: str, user: str, client_id: str) -> Meter | None:
        for entity in _by_precedence(user, client_id):
            value = self._quotas.get(entity, {}).get(name)
            if value is not None:
                return self._shared(name, _actual(entity, user, client_id), _rate(name, value))
        return None

    def _shared(self, name: str, actual: Entity, rate: float) -> Meter:
        """Returns the meter that all clients of an entity share; a changed rate applies to it at once."""
        meter = self._meters.get((name, actual))
        if meter is None:
            if len(self._meters) >= METERS_MAX:
                for key in list(islice(self._meters, METERS_MAX // 2)):
                    del self._meters[key]
            meter = self._meters[name, actual] = Meter(rate)
        meter.rate = rate
        return meter


def _rate(name: str, value: float) -> float:
    return value / 100 if name == REQUEST_PERCENTAGE else value


def _by_precedence(user: str, client_id: str) -> Iterator[Entity]:
    """Yields the entities whose quota may apply to a client, the strongest first."""
    for user_name in (user, DEFAULT):
        for client_name in (client_id, DEFAULT):
            yield (CLIENT_ID, client_name), (USER, user_name)
        yield ((USER, user_name),)
    for client_name in (client_id, DEFAULT):
        yield ((CLIENT_ID, client_name),)


def _actual(entity: Entity, user: str, client_id: str) -> Entity:
    """Returns the entity with names in place of defaults: each user has a default quota of its own."""
    names = {USER: user, CLIENT_ID: client_id}
    return tuple((kind, names[kind]) for kind, _ in entity)
