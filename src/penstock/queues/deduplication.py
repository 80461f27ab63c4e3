"""Deduplication ids of the last five minutes. Pure.

The caller looks up an id before it appends a message, and adds the id afterwards; a new leader adds the ids of all
records of the last five minutes. A purge frees the ids of the purged messages. Memory is bounded: when there are too
many ids, new messages are refused rather than possibly accepted twice.
"""

from collections import deque
from typing import Final, NamedTuple

from penstock.queues.errors import TooManyDeduplicationIds

WINDOW_MS: Final = 300_000
"""The deduplication interval of AWS, in milliseconds since the original message was sent."""
IDS_MAX: Final = 1_000_000
EXPIRED_MAX: Final = 1000
"""Maximum number of ids that one call of `expire` drops, to limit its duration: up to a million ids may have expired
since the last message."""


class Original(NamedTuple):
    """The first message with a deduplication id; later messages with the same id are its duplicates."""

    offset: int
    sent_ms: int


class Deduplication:
    """Deduplication ids of one partition; an id is unique per queue, or per message group (`is_by_group`)."""

    def __init__(self, *, is_by_group: bool = False, window_ms: int = WINDOW_MS, ids_max: int = IDS_MAX) -> None:
        self._is_by_group = is_by_group
        self._window_ms = window_ms
        self._ids_max = ids_max
        self._originals: dict[tuple[str, str], Original] = {}
        self._in_order: deque[tuple[tuple[str, str], Original]] = deque()
        """Keys (see `_key`) and their original messages, in order of arrival, which is nearly that of `sent_ms`.
        If a key was added twice, both entries are here; `_originals` has only the later one."""
        self._forgotten_to = 0
        """The offset below which messages were purged: their ids can be used again."""
        self._is_full_until_ms = 0
        """New messages are refused until this time, because the ids of some recent messages did not fit into
        memory: duplicates of these would be accepted."""

    def __len__(self) -> int:
        return len(self._originals)

    def find(self, group: str, deduplication_id: str, now_ms: int) -> int | None:
        """Returns the offset of the original message if this id is a duplicate, else None."""
        original = self._originals.get(self._key(group, deduplication_id))
        return original.offset if original is not None and self._holds(original, now_ms) else None

    def forget_below(self, offset: int) -> None:
        """Frees the ids of messages below an offset, because they were purged."""
        self._forgotten_to = offset

    def check_room(self, now_ms: int, count: int = 1) -> None:
        """Raises TooManyDeduplicationIds if `count` more ids do not fit into memory."""
        if self._is_full(now_ms, count):
            self.expire(now_ms)
            if self._is_full(now_ms, count):
                raise TooManyDeduplicationIds(
                    f"{len(self._in_order)} deduplication ids came within {self._window_ms // 1000} s, at most"
                    f" {self._ids_max} are remembered; send more slowly, or use several queues"
                )

    def _is_full(self, now_ms: int, count: int) -> bool:
        return len(self._in_order) + count > self._ids_max or now_ms < self._is_full_until_ms

    def add(self, group: str, deduplication_id: str, offset: int, sent_ms: int, now_ms: int) -> None:
        """Adds the id of a message that was appended, or read from the log; ignores it if it is expired or purged.

        If the log has an id twice, the later message counts as the original. That happens if a purge between the two
        messages was lost, or if the clock of another leader was ahead.
        """
        # The clock of a sender may be ahead: its id does not last longer for that.
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
        """Drops expired and purged ids, at most EXPIRED_MAX per call."""
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
