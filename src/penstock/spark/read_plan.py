"""What a batch reads, and in which tasks: sums over offsets, without IO."""

import math
from collections.abc import Iterable, Mapping
from typing import NamedTuple

from penstock.foundation.ids import TopicPartition
from penstock.spark.positions import Positions


class Span(NamedTuple):
    """Offsets of one partition: from `start` up to, and without, `end`. Compaction may have left gaps in it."""

    name: TopicPartition
    start: int
    end: int

    @property
    def size(self) -> int:
        return self.end - self.start


def split(spans: Iterable[Span], *, tasks_min: int | None, records_max: int | None) -> list[Span]:
    """Spans for about `tasks_min` tasks or more, none of more than `records_max`; as Spark's Kafka source cuts them.

    Large ones are cut in proportion to their size, small ones stay whole; empty ones are left out.
    """
    found = [span for span in spans if span.size > 0]
    if records_max is not None:
        found = [part for span in found for part in _cut(span, -(-span.size // records_max))]
    if tasks_min is None or len(found) >= tasks_min:
        return found
    total = sum(span.size for span in found)
    small = {span for span in found if _parts(span.size, total, tasks_min) == 1}
    # Small ones have a task each: the large ones share what is left of the tasks, and only their own size counts.
    total -= sum(span.size for span in small)
    left = max(tasks_min - len(small), 1)
    return [
        part
        for span in found
        for part in _cut(span, 1 if span in small else _parts(span.size, total, left))
        if part.size > 0
    ]


def _parts(size: int, total: int, tasks: int) -> int:
    return max(math.floor(size / total * tasks + 0.5), 1)


def _cut(span: Span, parts: int) -> list[Span]:
    """Equal parts, as far as whole numbers can be; the last ones have the rest."""
    found = []
    start = span.start
    for part in range(parts):
        end = start + (span.end - start) // (parts - part)
        found.append(Span(span.name, start, end))
        start = end
    return found


def share_out(limit: int, start: Mapping[TopicPartition, int], end: Mapping[TopicPartition, int]) -> Positions:
    """How far each partition gets if all of them together may get only `limit` offsets further.

    Each has a share by how far behind it is, and at least one offset: as in Spark's Kafka source, small ones are not
    starved, so that it may be a few more than `limit`. Every partition of `end` must be in `start`.
    """
    behind = {name: last - start[name] for name, last in end.items() if last > start[name]}
    total = sum(behind.values())
    if not total:
        return dict(end)
    found = dict(end)
    for name, size in behind.items():
        share = limit * size / total
        found[name] = min(end[name], start[name] + (math.ceil(share) if share < 1 else math.floor(share)))
    return found
