"""The values that clients have pushed, by metric and client, as Prometheus shows them. Pure.

Names and labels come from clients: they are made legal, cannot be mistaken for the broker's own metrics, and are
bounded in number.
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
"""Labels that the broker sets itself."""
RESERVED_NAMES: Final = frozenset({PREFIX, PREFIX + "info"})
SERIES_PER_CLIENT_MAX: Final = 2000
_ILLEGAL: Final = re.compile(r"[^a-zA-Z0-9_]+")
_STEP_POINTS: Final = 32

Series = dict[Labels, float]


class Draft(NamedTuple):
    """The values of one push that have one name."""

    is_counter: bool
    points: dict[Labels, Point]


@dataclass(slots=True)
class Family:
    """All values of one metric."""

    name: str
    is_counter: bool
    by_client: dict[bytes, Series] = field(default_factory=dict)

    def samples(self) -> Iterator[tuple[bytes, Labels, float]]:
        """Yields the values of all clients. They may change meanwhile."""
        for client in list(self.by_client):
            for labels, value in list(self.by_client.get(client, {}).items()):
                yield client, labels, value


class Collected:
    """The values of the last push of every client."""

    def __init__(self) -> None:
        self.families: dict[str, Family] = {}
        """By the name that is shown."""
        self._names: dict[bytes, set[str]] = {}
        """In which families a client has values."""
        self.series = 0
        self.dropped = 0
        """Values that were not kept: there were too many, or their name is that of a metric of another kind."""

    def replace(self, client: bytes, drafts: Mapping[str, Draft], series_max: int) -> None:
        """A client's values are these now. `series_max`: of all clients together."""
        before = {name: self.families[name].by_client[client] for name in self._names.get(client, ())}
        self.forget(client)
        room = min(SERIES_PER_CLIENT_MAX, series_max - self.series)
        for name, draft in drafts.items():
            family = self.families.get(name)
            is_other_kind = family is not None and family.is_counter is not draft.is_counter
            points = [] if is_other_kind else list(islice(draft.points.items(), max(room, 0)))
            self.dropped += len(draft.points) - len(points)
            room -= len(points)
            if points:
                totals = before.get(name, {})
                self._put(
                    client, name, draft.is_counter, {key: _total(each, totals.get(key)) for key, each in points}
                )

    def forget(self, client: bytes) -> None:
        """A client is gone."""
        for name in self._names.pop(client, ()):
            family = self.families[name]
            self.series -= len(family.by_client.pop(client))
            if not family.by_client:
                del self.families[name]

    def _put(self, client: bytes, name: str, is_counter: bool, series: Series) -> None:
        family = self.families.get(name)
        if family is None:
            family = self.families[name] = Family(name, is_counter)
        family.by_client[client] = series
        self._names.setdefault(client, set()).add(name)
        self.series += len(series)


def draft(points: Iterable[Point]) -> Steps[dict[str, Draft]]:
    """The values of a push, by the names that are shown. Yields where there may be a break."""
    drafts: dict[str, Draft] = {}
    for number, point in enumerate(points, 1):
        name = shown_name(point.name, point.is_counter)
        if name not in RESERVED_NAMES:
            found = drafts.setdefault(name, Draft(point.is_counter, {}))
            if found.is_counter is point.is_counter:
                found.points[shown_labels(point.labels)] = point
        if number % _STEP_POINTS == 0:
            yield
    return drafts


def _total(point: Point, before: float | None) -> float:
    """Prometheus wants totals: what has been added since the last push is added to the total so far."""
    return point.value + (before or 0.0) if point.is_counter and point.is_delta else point.value


def shown_name(name: str, is_counter: bool) -> str:
    """The name of a metric as Prometheus has it.

    >>> shown_name("org.apache.kafka.producer.record.send.total", True)
    'penstock_client_producer_record_send_total'
    """
    legal = _ILLEGAL.sub("_", name.removeprefix("org.apache.kafka.")).strip("_")
    return PREFIX + (legal.removesuffix("_total") + "_total" if is_counter else legal)


def shown_labels(labels: Labels) -> Labels:
    """Labels with legal names, without those that the broker sets itself."""
    legal = [(_ILLEGAL.sub("_", name).strip("_"), value) for name, value in labels]
    kept = {("_" + name if name[:1].isdigit() else name): value for name, value in legal if name}
    return tuple(sorted((name, value) for name, value in kept.items() if name not in OWN_LABELS))
