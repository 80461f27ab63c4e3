"""Which messages came before: the deduplication ids of the last five minutes. Pure.

The shell asks before it appends, and tells when it has; after a restart, or on another broker, it tells of all
records of the last five minutes again. A purge of the queue makes it forget the ids of all messages before it. Memory
is bounded: with more ids than that, messages are refused, and not taken twice.
"""

from collections import deque
from typing import Final, NamedTuple

from penstock.queues.errors import TooManyDeduplicationIds

WINDOW_MS: Final = 300_000
"""AWS's deduplication interval, from the time at which the original was sent."""
IDS_MAX: Final = 1_000_000
EXPIRED_MAX: Final = 1000
"""Ids that are forgotten at a time: a million of them may have expired, or be purged, since the last message."""


class Original(NamedTuple):
    """The message that others repeat."""

    offset: int
    sent_ms: int


class Deduplication:
    """The ids of one partition: of the queue as a whole, or of each message group on its own."""

    def __init__(self, *, is_by_group: bool = False, window_ms: int = WINDOW_MS, ids_max: int = IDS_MAX) -> None:
        self._is_by_group = is_by_group
        self._window_ms = window_ms
        self._ids_max = ids_max
        self._originals: dict[tuple[str, str], Original] = {}
        self._in_order: deque[tuple[tuple[str, str], Original]] = deque()
        """As they came, which is nearly in the order of their times; some are forgotten already."""
        self._forgotten_to = 0
        """Ids of messages below this offset do not count."""
        self._is_full_until_ms = 0
        """Until then the log has messages whose ids are not remembered: Kafka's producers have sent too many."""

    def __len__(self) -> int:
        return len(self._originals)

    def find(self, group: str, deduplication_id: str, now_ms: int) -> int | None:
        """The offset of the message that one with this id repeats, if there is one."""
        original = self._originals.get(self._key(group, deduplication_id))
        return original.offset if original is not None and self._holds(original, now_ms) else None

    def forget_below(self, offset: int) -> None:
        """Forget the ids of messages below an offset."""
        self._forgotten_to = offset

    def check_room(self, now_ms: int, count: int = 1) -> None:
        """Whether so many more can be remembered. Raises TooManyDeduplicationIds."""
        if self._is_full(now_ms, count):
            self.expire(now_ms)
            if self._is_full(now_ms, count):
                raise TooManyDeduplicationIds(
                    f"{len(self._in_order)} deduplication ids came within {self._window_ms // 1000} s, at most"
                    f" {self._ids_max} are remembered; send more slowly, or share the queue out"
                )

    def _is_full(self, now_ms: int, count: int) -> bool:
        return len(self._in_order) + count > self._ids_max or now_ms < self._is_full_until_ms

    def add(self, group: str, deduplication_id: str, offset: int, sent_ms: int, now_ms: int) -> None:
        """A message was appended, or is found in the log. What is too old, or purged, changes nothing.

        Repeated messages are not appended: if the log has an id twice, both are originals, and the later one holds
        the id for longer. That happens if a purge between them was lost, or if another leader's clock was ahead.
        """
        # A sender's clock may be ahead: that does not make its id hold for longer.
        original = Original(offset, min(sent_ms, now_ms))
        if not self._holds(original, now_ms):
            return
        if len(self._in_order) >= self._ids_max:
            self.expire(now_ms)
        if len(self._in_order) >= self._ids_max:
            self._is_full_until_ms = max(self._is_full_until_ms, original.sent_ms + self._window_ms)
            return
        key = self._key(group, deduplication_id)
        self._originals[key] = original
        self._in_order.append((key, original))
        self.expire(now_ms)

    def expire(self, now_ms: int) -> None:
        """Forget what is too old or purged, at most so much that it takes no time to speak of."""
        in_order = self._in_order
        for _ in range(min(EXPIRED_MAX, len(in_order))):
            if self._holds(in_order[0][1], now_ms):
                break
            key, original = in_order.popleft()
            if self._originals.get(key) is original:
                del self._originals[key]

    def _holds(self, original: Original, now_ms: int) -> bool:
        return now_ms - original.sent_ms < self._window_ms and original.offset >= self._forgotten_to

    def _key(self, group: str, deduplication_id: str) -> tuple[str, str]:
        return (group if self._is_by_group else "", deduplication_id)
