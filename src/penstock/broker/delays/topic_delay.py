"""Topic delay (`delivery.delay.ms`): computes the offset up to which consumers may read; hides later records."""

from collections import deque
from collections.abc import Callable
from typing import Final

from penstock.foundation.clock import Clock, Timer, conservative_now_ms
from penstock.log.disk import ColdRead
from penstock.log.timestamp_lookup import find_time
from penstock.replication.partition import Partition

BUCKETS: Final = 10_000
"""Maximum number of intervals that a delay period is divided into. One commit time is stored per interval."""
BUCKET_MS_MIN: Final = 5


class TopicDelay:
    """Computes which records of one replica are visible, from the times at which records were committed. Records
    that were in the log before this object was created are delayed by their timestamps instead."""

    def __init__(self, partition: Partition, delay_ms: int, clock: Clock, timer: Timer) -> None:
        self._partition = partition
        self._clock = clock
        self._timer = timer
        self.delay_ms = delay_ms
        self._created_ms = conservative_now_ms(clock)
        self._initial_end = partition.log.end_offset
        """The log end offset when this object was created."""
        self._times: deque[tuple[int, int]] = deque()
        """Pairs of an offset and the time by which all records below that offset were committed."""
        self._open_ms = 0
        """Commit time, in ms, of the first record whose commit time is not yet in `_times`; 0 if there is none."""
        self._recorded_to = self._initial_end
        self._visible = 0
        self._stop: Callable[[], None] | None = None
        self._ticket = partition.watch(self._on_growth)

    def _on_growth(self) -> None:
        self._ticket = self._partition.watch(self._on_growth)
        self._record_commit(conservative_now_ms(self._clock))

    def _record_commit(self, now_ms: int) -> None:
        mark = self._partition.high_watermark
        if self._open_ms and (now_ms - self._open_ms >= self._bucket_ms or now_ms < self._open_ms):
            self._times.append((self._recorded_to, now_ms))
            self._open_ms = 0
        if mark > self._recorded_to:
            self._recorded_to = mark
            self._open_ms = self._open_ms or now_ms
            self._arm(self._bucket_ms + 1)

    @property
    def _bucket_ms(self) -> int:
        return max(BUCKET_MS_MIN, self.delay_ms // BUCKETS)

    def visible_to(self, limit: int) -> int:
        """Returns the offset up to which consumers may read, at most `limit`."""
        now_ms = conservative_now_ms(self._clock)
        self._record_commit(now_ms)
        due_ms = now_ms - self.delay_ms
        visible = self._visible
        if visible < self._initial_end:
            visible = self._older_visible_to(due_ms)
        while self._times and self._times[0][1] <= due_ms:
            visible = max(visible, self._times.popleft()[0])
        self._visible = visible
        if visible < limit:
            self._arm(self._next_ms(now_ms))
        return min(visible, limit)

    def _older_visible_to(self, due_ms: int) -> int:
        """Returns the offset of the first record with a timestamp after `due_ms`, among the records that were in
        the log when this object was created; the end offset of these records if there is none."""
        log = self._partition.log
        if due_ms >= self._created_ms or self._initial_end > log.end_offset:
            return self._initial_end
        try:
            found = find_time(log, due_ms + 1, self._initial_end)
        except ColdRead as cold:
            log.io.add_warming(cold.warm)  # the next check tries again
            return self._visible
        return self._initial_end if found is None else max(self._visible, found[1])

    def _next_ms(self, now_ms: int) -> int:
        if self._visible < self._initial_end:
            return min(1000, max(BUCKET_MS_MIN, self.delay_ms // 20))
        return max(1, self._times[0][1] + self.delay_ms - now_ms) if self._times else self._bucket_ms + 1

    def _arm(self, wait_ms: int) -> None:
        if self._stop is None:
            self._stop = self._timer(min(wait_ms, 1000) / 1000, self._check)

    def _check(self) -> None:
        self._stop = None
        partition = self._partition
        if partition.is_online:
            before = self._visible
            if self.visible_to(partition.high_watermark) > before:
                partition.wake_consumers()

    def close(self) -> None:
        self._partition.unwatch(self._ticket)
        if self._stop is not None:
            self._stop()
            self._stop = None
