"""Appends SQS messages to partitions led by this broker and replies when they are committed (SendMessage)."""

from collections.abc import Callable, Sequence
from typing import Final

from penstock.broker.queues.deduplication import DeduplicationIndex
from penstock.broker.queues.messages import NewMessage, QueueUnavailable, Sent
from penstock.foundation.clock import Clock, Timer
from penstock.foundation.errors import NotLeaderOrFollower, PenstockError
from penstock.log.admission import admit, may_decompress, must_decompress
from penstock.queues.messages import DEDUPLICATION_ID, MESSAGE_ID, message_id
from penstock.records.build import build_rows
from penstock.replication.partition import Partition

COMMIT_TIMEOUT_S: Final = 20.0
"""Maximum time, in seconds, to wait until a message is committed; then the sender gets an error."""

TakeSent = Callable[[list[Sent] | PenstockError], None]


class MessageAppender:
    """Appends messages to partition logs. Each call writes one record batch, which succeeds or fails as a whole."""

    def __init__(self, *, clock: Clock, timer: Timer) -> None:
        self._clock = clock
        self._timer = timer

    def send(
        self,
        partition: Partition,
        messages: Sequence[NewMessage],
        then: TakeSent,
        duplicates: DeduplicationIndex | None = None,
    ) -> None:
        """Appends messages, except duplicates according to `duplicates`; calls `then` when they are committed."""
        try:
            results = self._append(partition, messages, duplicates)
        except PenstockError as error:
            then(error)
            return
        end = 1 + max(sent.offset for sent in results)
        if partition.high_watermark >= end and partition.is_leader:
            then(results)
        else:
            _PendingCommit(partition, end, results, then, self._timer)

    def _append(
        self, partition: Partition, messages: Sequence[NewMessage], duplicates: DeduplicationIndex | None
    ) -> list[Sent]:
        """Appends messages as one batch; returns their results in order. Duplicates found in `duplicates` are not
        appended; their results have the original's offset. If it raises a Kafka error, nothing was appended."""
        if not partition.is_leader:
            raise NotLeaderOrFollower(f"{partition.name} is led by another broker now")
        partition.check_in_sync()
        now_ms = self._clock.now_ms()
        if duplicates is None:
            base = self._write(partition, messages, now_ms)
            return [_sent(partition, message, base + number) for number, message in enumerate(messages)]
        steady_ms = self._clock.steady_ms()  # the five minutes must not change when the wall clock is stepped
        before = [duplicates.find(message, steady_ms) for message in messages]
        fresh: dict[tuple[str, bytes | None], int] = {}
        wanted: list[NewMessage] = []
        for message, known in zip(messages, before, strict=True):
            key = duplicates.key(message)
            if known is None and key not in fresh:
                fresh[key] = len(wanted)
                wanted.append(message)
        duplicates.check_room(len(wanted), steady_ms)
        base = self._write(partition, wanted, now_ms) if wanted else 0
        results, first_seen = [], set[tuple[str, bytes | None]]()
        for message, known in zip(messages, before, strict=True):
            key = duplicates.key(message)
            offset = known if known is not None else base + fresh[key]
            is_duplicate = known is not None or key in first_seen
            if not is_duplicate:
                first_seen.add(key)
                duplicates.note(message, offset, steady_ms)
            results.append(_sent(partition, message, offset)._replace(is_duplicate=is_duplicate))
        return results

    @staticmethod
    def _write(partition: Partition, messages: Sequence[NewMessage], now_ms: int) -> int:
        """Appends the messages as one batch; returns the batch's base offset."""
        batch = build_rows([_row(message) for message in messages], now_ms)
        settings = partition.log.settings
        if may_decompress(settings) and must_decompress(batch, settings):
            batch = bytearray(admit(batch, settings))
        return partition.append_own(batch, now_ms).base_offset


def _row(message: NewMessage) -> tuple[bytes | None, bytes, Sequence[tuple[str, bytes | None]]]:
    headers = message.headers
    if message.deduplication_id:
        headers = (*headers, (DEDUPLICATION_ID, message.deduplication_id.encode()))
    return message.key, message.value, headers


def _sent(partition: Partition, message: NewMessage, offset: int) -> Sent:
    number = partition.name.partition
    known = next((text for name, text in message.headers if name == MESSAGE_ID and text), None)
    return Sent(
        number, offset, known.decode(errors="replace") if known else message_id(partition.topic_id, number, offset)
    )


class _PendingCommit:
    """Messages that are appended but not yet committed."""

    def __init__(self, partition: Partition, end: int, results: list[Sent], then: TakeSent, timer: Timer) -> None:
        self._partition = partition
        self._end = end
        self._results = results
        self._then: TakeSent | None = then
        self._stop = timer(COMMIT_TIMEOUT_S, self._finish)
        partition.when_committed(end, self._finish)

    def _finish(self) -> None:
        then, self._then = self._then, None
        if then is None:
            return
        self._stop()
        if self._partition.has_committed(self._end):
            then(self._results)
        else:
            then(QueueUnavailable(f"{self._partition.name} did not commit in time; the messages may be lost or not"))
