"""`delivery.delay.ms`: how far consumers may see into a log whose every record is held back for a while."""

from collections import deque
from collections.abc import Callable
from typing import Final

from penstock.foundation.clock import Clock, Timer, behind_ms
from penstock.log.times import find_time
from penstock.replication.partition import Partition

BUCKETS: Final = 10_000
"""How many times are remembered at most: of a long delay each stands for a longer while."""
BUCKET_MS_MIN: Final = 5


class Holding:
    """Of one replica: when what was committed. What was there before it was made goes by the records' own times."""

    def __init__(self, partition: Partition, delay_ms: int, clock: Clock, timer: Timer) -> None:
        self._partition = partition
        self._clock = clock
        self._timer = timer
        self.delay_ms = delay_ms
        self._made_ms = behind_ms(clock)
        self._known_to = partition.log.end_offset
        """What was there before."""
        self._times: deque[tuple[int, int]] = deque()
        """Up to which offset all was committed at what time."""
        self._open_ms = 0
        """When the first of what is not in `_times` was committed."""
        self._noted_to = self._known_to
        self._visible = 0
        self._stop: Callable[[], None] | None = None
        self._ticket = partition.watch(self._on_news)

    def _on_news(self) -> None:
        self._ticket = self._partition.watch(self._on_news)
        self._note(behind_ms(self._clock))

    def _note(self, now_ms: int) -> None:
        mark = self._partition.high_watermark
        if self._open_ms and (now_ms - self._open_ms >= self._bucket_ms or now_ms < self._open_ms):
            self._times.append((self._noted_to, now_ms))
            self._open_ms = 0
        if mark > self._noted_to:
            self._noted_to = mark
            self._open_ms = self._open_ms or now_ms
            self._arm(self._bucket_ms + 1)

    @property
    def _bucket_ms(self) -> int:
        return max(BUCKET_MS_MIN, self.delay_ms // BUCKETS)

    def visible_to(self, limit: int) -> int:
        """Consumers may see what is below, and below `limit`."""
        now_ms = behind_ms(self._clock)
        self._note(now_ms)
        due_ms = now_ms - self.delay_ms
        seen = self._visible
        if seen < self._known_to:
            seen = self._old_to(due_ms)
        while self._times and self._times[0][1] <= due_ms:
            seen = max(seen, self._times.popleft()[0])
        self._visible = seen
        if seen < limit:
            self._arm(self._next_ms(now_ms))
        return min(seen, limit)

    def _old_to(self, due_ms: int) -> int:
        """Of what was there before, by the time index; not longer than if all of it had come when this was made."""
        log = self._partition.log
        if due_ms >= self._made_ms or self._known_to > log.end_offset:
            return self._known_to
        found = find_time(log, due_ms + 1, self._known_to)
        return self._known_to if found is None else max(self._visible, found[1])

    def _next_ms(self, now_ms: int) -> int:
        if self._visible < self._known_to:
            return min(1000, max(BUCKET_MS_MIN, self.delay_ms // 20))
        return max(1, self._times[0][1] + self.delay_ms - now_ms) if self._times else self._bucket_ms + 1

    def _arm(self, wait_ms: int) -> None:
        if self._stop is None:
            self._stop = self._timer(min(wait_ms, 1000) / 1000, self._look)

    def _look(self) -> None:
        self._stop = None
        partition = self._partition
        if partition.is_online:
            before = self._visible
            if self.visible_to(partition.high_watermark) > before:
                partition.tell_readers()

    def close(self) -> None:
        self._partition.unwatch(self._ticket)
        if self._stop is not None:
            self._stop()
            self._stop = None
