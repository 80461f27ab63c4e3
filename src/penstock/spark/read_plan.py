"""Splits offset ranges into Spark tasks, and limits the size of micro-batches. No I/O."""

import math
from collections.abc import Iterable, Mapping
from typing import NamedTuple

from penstock.foundation.ids import TopicPartition
from penstock.spark.positions import Positions


class OffsetRange(NamedTuple):
    """Offsets of one partition from `start` to `end` (exclusive). Compaction may have left gaps in the range."""

    tp: TopicPartition
    start: int
    end: int

    @property
    def size(self) -> int:
        return self.end - self.start


def split(ranges: Iterable[OffsetRange], *, tasks_min: int | None, records_max: int | None) -> list[OffsetRange]:
    """Splits offset ranges into tasks of at most `records_max` offsets (None: no limit).

    If these are fewer than `tasks_min`, splits large ranges further, to about that number. Drops empty ranges.
    """
    found = [offset_range for offset_range in ranges if offset_range.size > 0]
    if records_max is not None:
        found = [part for offset_range in found for part in _cut(offset_range, -(-offset_range.size // records_max))]
    if tasks_min is None or len(found) >= tasks_min:
        return found
    total = sum(offset_range.size for offset_range in found)
    small = {offset_range for offset_range in found if _parts(offset_range.size, total, tasks_min) == 1}
    # Each small range gets one task; the large ones share the remaining tasks in proportion to their sizes.
    total -= sum(offset_range.size for offset_range in small)
    left = max(tasks_min - len(small), 1)
    return [
        part
        for offset_range in found
        for part in _cut(offset_range, 1 if offset_range in small else _parts(offset_range.size, total, left))
        if part.size > 0
    ]


def _parts(size: int, total: int, tasks: int) -> int:
    return max(math.floor(size / total * tasks + 0.5), 1)


def _cut(offset_range: OffsetRange, parts: int) -> list[OffsetRange]:
    """Splits an offset range into `parts` ranges whose sizes differ by at most one; the last are the larger."""
    found = []
    start = offset_range.start
    for part in range(parts):
        end = start + (offset_range.end - start) // (parts - part)
        found.append(OffsetRange(offset_range.tp, start, end))
        start = end
    return found


def limit_offsets(limit: int, start: Mapping[TopicPartition, int], end: Mapping[TopicPartition, int]) -> Positions:
    """Returns the end offsets of a micro-batch of about `limit` offsets (`maxOffsetsPerTrigger`).

    Each partition gets a share in proportion to its lag and at least one offset, as in Spark's Kafka source, so the
    total may exceed `limit` slightly. Every partition in `end` must be in `start`.
    """
    behind = {tp: last - start[tp] for tp, last in end.items() if last > start[tp]}
    total = sum(behind.values())
    if not total:
        return dict(end)
    found = dict(end)
    for tp, size in behind.items():
        share = limit * size / total
        found[tp] = min(end[tp], start[tp] + (math.ceil(share) if share < 1 else math.floor(share)))
    return found
