"""How many Kafka connections a host may have, and open per second: max.connections.per.ip and its quota (KIP-612)."""

from collections import Counter
from collections.abc import Callable
from functools import lru_cache
from typing import Any, Final

from penstock.broker.client_limits import Meter
from penstock.cluster.client_quotas import CONNECTION_RATE, Quotas
from penstock.foundation.quota_entities import DEFAULT, IP

PER_HOST: Final = "max.connections.per.ip"
OVERRIDES: Final = "max.connections.per.ip.overrides"
METERS_MAX: Final = 10_000
"""Number of hosts whose connections per second are counted; above it, all counts begin anew."""
_MAPPED: Final = "::ffff:"


class HostLimits:
    """Counts the connections of each host."""

    def __init__(self, setting: Callable[[str], Any], quotas: Callable[[], Quotas]) -> None:
        """`setting` returns the current value of a broker setting."""
        self._setting = setting
        self._quotas = quotas
        self._counts: Counter[str] = Counter()
        self._meters: dict[str, Meter] = {}

    def admit(self, host: str, now_s: float) -> str:
        """Counts a new connection; returns why it must be closed instead, or an empty text."""
        host = host.removeprefix(_MAPPED)
        limit = _overrides(self._setting(OVERRIDES)).get(host, self._setting(PER_HOST))
        if self._counts[host] >= limit:
            return "too_many_of_host"
        if not self._is_slow_enough(host, now_s):
            return "too_fast_of_host"
        self._counts[host] += 1
        return ""

    def leave(self, host: str) -> None:
        """A connection that was admitted has ended."""
        host = host.removeprefix(_MAPPED)
        self._counts[host] -= 1
        if self._counts[host] <= 0:
            del self._counts[host]

    def _is_slow_enough(self, host: str, now_s: float) -> bool:
        quotas = self._quotas()
        if not quotas:
            return True
        rate = quotas.get(((IP, host),), quotas.get(((IP, DEFAULT),), {})).get(CONNECTION_RATE)
        if rate is None:
            return True
        meter = self._meters.get(host)
        if meter is None or meter.rate != rate:
            if len(self._meters) >= METERS_MAX:
                self._meters.clear()
            meter = self._meters[host] = Meter(rate)
        return meter.take_if_available(now_s)


@lru_cache(maxsize=4)
def _overrides(text: str) -> dict[str, int]:
    """Parses `HOST:COUNT,HOST:COUNT`.

    >>> _overrides("10.0.0.1:5, fd00::1:7")
    {'10.0.0.1': 5, 'fd00::1': 7}
    """
    pairs = (each.strip().rpartition(":") for each in text.split(",") if each.strip())
    return {host: int(count) for host, _, count in pairs}
