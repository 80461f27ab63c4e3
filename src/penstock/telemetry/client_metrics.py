"""Metric values pushed by clients (KIP-714), with legal Prometheus names and labels. Pure.

Names and labels come from clients: they are sanitised, cannot collide with the broker's own metrics, and their
number is limited.
"""

import re
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, field
from itertools import islice
from typing import Final, NamedTuple

from penstock.foundation.steps import Steps
from penstock.telemetry.otlp import Labels, Point

PREFIX: Final = "penstock_client_"
OWN_LABELS: Final = frozenset({"client_id", "client_instance_id"})
"""Names of labels that the broker sets and that clients cannot set."""
RESERVED_NAMES: Final = frozenset({PREFIX, PREFIX + "info"})
SERIES_PER_CLIENT_MAX: Final = 2000
_ILLEGAL: Final = re.compile(r"[^a-zA-Z0-9_]+")
_STEP_POINTS: Final = 32

Series = dict[Labels, float]


class NamedPoints(NamedTuple):
    """The data points of one push with the same exported metric name; `points` has them by labels."""

    is_counter: bool
    points: dict[Labels, Point]


@dataclass(slots=True)
class Family:
    """The values of one metric, by client instance id and labels."""

    name: str
    is_counter: bool
    by_client: dict[bytes, Series] = field(default_factory=dict)

    def samples(self) -> Iterator[tuple[bytes, Labels, float]]:
        """Yields instance id, labels and value for all clients. Values may change while the generator runs."""
        for client in list(self.by_client):
            for labels, value in list(self.by_client.get(client, {}).items()):
                yield client, labels, value


class ClientMetrics:
    """The metric values in the latest push of every client."""

    def __init__(self) -> None:
        self.families: dict[str, Family] = {}
        """Metric families by exported (Prometheus) name."""
        self._names: dict[bytes, set[str]] = {}
        """Names of the families in which a client has values, by client instance id."""
        self.series = 0
        self.dropped = 0
        """Number of values not stored: above a limit, or because the name is used by a metric of another type."""

    def replace(self, client: bytes, by_name: Mapping[str, NamedPoints], series_max: int) -> None:
        """Replaces all values of a client. Drops series above `series_max`, the maximum for all clients together."""
        before = {name: self.families[name].by_client[client] for name in self._names.get(client, ())}
        self.forget(client)
        free = min(SERIES_PER_CLIENT_MAX, series_max - self.series)
        for name, named in by_name.items():
            family = self.families.get(name)
            is_other_kind = family is not None and family.is_counter is not named.is_counter
            points = [] if is_other_kind else list(islice(named.points.items(), max(free, 0)))
            self.dropped += len(named.points) - len(points)
            free -= len(points)
            if points:
                totals = before.get(name, {})
                self._store(
                    client, name, named.is_counter, {key: _total(each, totals.get(key)) for key, each in points}
                )

    def forget(self, client: bytes) -> None:
        """Removes all values of a client."""
        for name in self._names.pop(client, ()):
            family = self.families[name]
            self.series -= len(family.by_client.pop(client))
            if not family.by_client:
                del self.families[name]

    def _store(self, client: bytes, name: str, is_counter: bool, series: Series) -> None:
        family = self.families.get(name)
        if family is None:
            family = self.families[name] = Family(name, is_counter)
        family.by_client[client] = series
        self._names.setdefault(client, set()).add(name)
        self.series += len(series)


def group_by_name(points: Iterable[Point]) -> Steps[dict[str, NamedPoints]]:
    """Groups the data points of a push by exported name; a generator that yields regularly."""
    by_name: dict[str, NamedPoints] = {}
    for number, point in enumerate(points, 1):
        name = shown_name(point.name, point.is_counter)
        if name not in RESERVED_NAMES:
            found = by_name.setdefault(name, NamedPoints(point.is_counter, {}))
            if found.is_counter is point.is_counter:
                found.points[shown_labels(point.labels)] = point
        if number % _STEP_POINTS == 0:
            yield
    return by_name


def _total(point: Point, before: float | None) -> float:
    """Returns the cumulative value that Prometheus needs: adds a delta to the total `before`."""
    return point.value + (before or 0.0) if point.is_counter and point.is_delta else point.value


def shown_name(name: str, is_counter: bool) -> str:
    """Returns the Prometheus name of a client's metric.

    >>> shown_name("org.apache.kafka.producer.record.send.total", True)
    'penstock_client_producer_record_send_total'
    """
    legal = _ILLEGAL.sub("_", name.removeprefix("org.apache.kafka.")).strip("_")
    return PREFIX + (legal.removesuffix("_total") + "_total" if is_counter else legal)


def shown_labels(labels: Labels) -> Labels:
    """Returns the labels with legal Prometheus names, without labels that the broker sets."""
    legal = [(_ILLEGAL.sub("_", name).strip("_"), value) for name, value in labels]
    kept = {("_" + name if name[:1].isdigit() else name): value for name, value in legal if name}
    return tuple(sorted((name, value) for name, value in kept.items() if name not in OWN_LABELS))
