"""Deduplication of messages sent to a FIFO queue within five minutes, for one partition (MessageDeduplicationId).

The index is in the leader's memory. Before a new leader accepts messages, it builds the index from the last five
minutes of the log, except messages before the last purge; the delivery state stores that purge (purges.py).
"""

import asyncio
from collections.abc import Callable
from concurrent.futures import Executor
from typing import Final

from penstock.broker.queues.messages import NewMessage
from penstock.foundation.clock import Clock
from penstock.foundation.errors import NotLeaderOrFollower, PenstockError
from penstock.log.disk import ColdRead
from penstock.log.timestamp_lookup import find_time
from penstock.queues.deduplication import WINDOW_MS, Deduplication
from penstock.queues.messages import DEDUPLICATION_ID
from penstock.records.batch import batches
from penstock.records.columns import decode_columns, header_column
from penstock.replication.partition import Partition

LOAD_BYTES: Final = 24 << 10
_HEADER: Final = DEDUPLICATION_ID.encode()
Key = tuple[str, bytes | None]


class DeduplicationIndex:
    """The deduplication ids of messages in one partition that this broker leads."""

    def __init__(
        self,
        partition: Partition,
        *,
        is_by_group: bool,
        clock: Clock,
        threads: Executor,
        window_ms: int = WINDOW_MS,
    ) -> None:
        self._partition = partition
        self._window_ms = window_ms
        self.is_by_group: Final = is_by_group
        self._clock = clock
        self._threads = threads
        self._index = Deduplication(is_by_group=is_by_group, window_ms=window_ms)
        self._at: int | None = None
        self._end = 0
        """The offset up to which the log must be read to load all ids; `_at`: the offset up to which it was read."""
        self._began_ms = 0
        self.is_loaded = False
        self._error: PenstockError | None = None
        self._waiting: list[Callable[[PenstockError | None], None]] = []
        self._task: asyncio.Task[None] | None = None

    # -- loading

    def when_loaded(self, then: Callable[[PenstockError | None], None]) -> None:
        """Calls `then` when the ids in the log are loaded, possibly at once: with None, or with the error."""
        if self.is_loaded:
            then(None)
            return
        self._waiting.append(then)
        if self._task is None:
            self._task = asyncio.get_running_loop().create_task(self._load())
            self._task.add_done_callback(self._on_loaded)

    async def _load(self) -> None:
        has_more = True
        while has_more:
            try:
                has_more = self.read_back()
            except ColdRead as cold:
                await asyncio.get_running_loop().run_in_executor(self._threads, cold.warm)
            await asyncio.sleep(0)

    def read_back(self) -> bool:
        """Reads ids from the next part of the log; returns whether anything was read. Raises ColdRead if the data is
        not in the page cache."""
        if self._at is None:
            log, self._began_ms = self._partition.log, self._clock.steady_ms()
            self._end = log.end_offset
            first = find_time(log, self._began_ms - self._window_ms, self._end)
            self._at = self._end if first is None else first[1]
        if self._at >= self._end:
            return False
        before, self._at = self._at, self._read(self._at, self._end, self._began_ms)
        return self._at > before

    def _read(self, offset: int, end: int, now_ms: int) -> int:
        """Reads the log once and adds the ids found; returns the offset after the records read."""
        data = self._partition.log.read(offset, LOAD_BYTES, end)
        for at, header in batches(data):
            offset = header.next_offset
            if header.is_control or not header.count:
                continue
            try:
                columns = decode_columns(bytes(data[at : at + header.size_bytes]))
            except PenstockError:
                continue  # a producer has sent an undecodable batch, which holds no message
            values_at, values_len = header_column(columns, _HEADER)
            for row in range(columns.count):
                if values_len[row] > 0:
                    text = bytes(columns.body[values_at[row] : values_at[row] + values_len[row]])
                    group, name = _text(columns.key(row)), text.decode(errors="replace")
                    self._index.add(group, name, columns.offsets[row], columns.timestamps[row], now_ms)
        return offset

    def _on_loaded(self, task: "asyncio.Task[None]") -> None:
        error = NotLeaderOrFollower("the deduplication index was replaced") if task.cancelled() else task.exception()
        if error is not None and not isinstance(error, PenstockError):
            raise error
        self._task = None
        self.is_loaded = error is None
        waiting, self._waiting = self._waiting, []
        for then in waiting:
            then(error)

    def close(self) -> None:
        """Cancels loading if it is in progress: sends that wait for it fail with NotLeaderOrFollower."""
        if self._task is not None:
            self._task.cancel()

    # -- index

    def key(self, message: NewMessage) -> Key:
        """Returns the deduplication key: messages with the same key are duplicates."""
        return message.deduplication_id, message.key if self.is_by_group else None

    def find(self, message: NewMessage, now_ms: int) -> int | None:
        """Returns the offset of the original message if this is a duplicate, else None."""
        return self._index.find(_text(message.key), message.deduplication_id, now_ms)

    def forget_below(self, offset: int) -> None:
        """Removes the ids of messages below an offset, because these messages were purged (PurgeQueue)."""
        self._index.forget_below(offset)

    def check_room(self, count: int, now_ms: int) -> None:
        self._index.check_room(now_ms, count)

    def note(self, message: NewMessage, offset: int, now_ms: int) -> None:
        self._index.add(_text(message.key), message.deduplication_id, offset, now_ms, now_ms)


def _text(key: bytes | None) -> str:
    return (key or b"").decode(errors="replace")
