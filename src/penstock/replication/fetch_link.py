"""What this broker follows of one other: what to ask it next, and what to do with its answer. Pure but for the logs.

Requests are incremental (KIP-227): a session remembers on the leader's side what does not change.
"""

import logging
from collections.abc import Callable, Iterable, Mapping
from typing import Final, NamedTuple

from penstock.foundation.codes import ErrorCode
from penstock.foundation.errors import PenstockError
from penstock.log.io_queue import Outcome
from penstock.log.removal import TornLog
from penstock.replication.follower import Following
from penstock.replication.partition import Partition
from penstock.replication.throttle import Throttle
from penstock.wire.messages.fetch import (
    FetchPartition,
    FetchRequest,
    FetchResponse,
    FetchTopic,
    ForgottenTopic,
    PartitionData,
    ReplicaState,
)

logger = logging.getLogger(__name__)

Key = tuple[bytes, int]
"""A partition, by its topic's id and its number."""
REST_MIN_MS: Final = 10
REST_MAX_MS: Final = 320
"""How long a partition is not asked for after an error, and after many: the image is about to say why."""
SYNC_MS: Final = 10
"""How soon it is looked again whether a sync has ended."""

_SESSION_LOST: Final = frozenset(
    (
        ErrorCode.FETCH_SESSION_ID_NOT_FOUND,
        ErrorCode.INVALID_FETCH_SESSION_EPOCH,
        ErrorCode.FETCH_SESSION_TOPIC_ID_ERROR,
        ErrorCode.INCONSISTENT_TOPIC_ID,
    )
)


class _Asked(NamedTuple):
    """What was last asked about a partition."""

    leader_epoch: int
    offset: int
    epoch: int
    start_offset: int
    bytes_max: int


class _Rest(NamedTuple):
    """When a partition may be asked for again, and how long that is after the error."""

    until_ms: int
    wait_ms: int


class Taken(NamedTuple):
    """What an answer has brought."""

    bytes: int
    cut: int
    """Offsets that were taken back."""


class Link:
    """The partitions that one broker leads and this one follows."""

    def __init__(
        self,
        node_id: int,
        *,
        uses_sessions: bool = True,
        fetch_bytes: int = 1 << 20,
        throttle: Throttle | None = None,
    ) -> None:
        """`throttle`: of all that this broker fetches while it lags, from whomever."""
        self._node_id = node_id
        self._uses_sessions = uses_sessions
        self._throttle = throttle or Throttle()
        self.fetch_bytes = fetch_bytes
        """Of one partition in one answer."""
        self._partitions: dict[Key, Partition] = {}
        self._told: dict[Key, _Asked] = {}
        """What the leader's session knows of each partition."""
        self._rests: dict[Key, _Rest] = {}
        """Partitions that are not asked for before a time."""
        self._throttled: dict[Key, None] = {}
        """Partitions that are fetched no faster than the throttle allows; whose turn it is comes first."""
        self._session_id = 0
        self._session_epoch = 0

    def put(self, partition: Partition, is_lagging: bool = False) -> None:
        """Follow a partition, or go on with it.

        `is_lagging`: this broker is not in its ISR. Where the topic says so, it is throttled then (KIP-73).
        """
        key = partition.topic_id, partition.name.partition
        self._partitions[key] = partition
        if not (is_lagging and self._may_throttle(partition)):
            self._throttled.pop(key, None)
        elif key not in self._throttled:
            self._throttled[key] = None

    def drop(self, partition: Partition) -> None:
        """Follow it no more."""
        key = partition.topic_id, partition.name.partition
        self._partitions.pop(key, None)
        self._throttled.pop(key, None)
        self._rests.pop(key, None)

    def _may_throttle(self, partition: Partition) -> bool:
        return (
            partition.is_online
            and (partition.name.partition, self._node_id) in partition.log.settings.follower_throttled
        )

    @property
    def is_idle(self) -> bool:
        return not self._partitions

    def forget(self) -> None:
        """The connection is another one, or an answer was lost: the next request says everything."""
        self._session_id = self._session_epoch = 0
        self._told.clear()

    # -- asking

    def request(self, *, broker_epoch: int, max_wait_ms: int, max_bytes: int, now_ms: int) -> FetchRequest | None:
        """The next request; None if nothing can be asked right now."""
        wanted = {
            key: asked
            for key, partition in self._partitions.items()
            if key not in self._throttled and (asked := self._ask(partition, now_ms, self.fetch_bytes))
        }
        wanted |= self._ask_throttled(now_ms)
        if not wanted:
            return None
        if not self._uses_sessions:
            self._told.clear()
        changed = {key: asked for key, asked in wanted.items() if self._told.get(key) != asked}
        gone = [key for key in self._told if key not in wanted]
        for key in gone:
            del self._told[key]
        self._told.update(changed)
        # What rests now is asked for when it may be, not only when there is something new of the others.
        rests_ms = [rest.until_ms - now_ms for rest in self._rests.values() if rest.until_ms > now_ms]
        return FetchRequest(
            replica_state=ReplicaState(replica_id=self._node_id, replica_epoch=broker_epoch),
            max_wait_ms=min(max_wait_ms, *rests_ms) if rests_ms else max_wait_ms,
            min_bytes=1,
            max_bytes=max_bytes,
            session_id=self._session_id,
            session_epoch=self._session_epoch if self._uses_sessions else -1,
            topics=self._topics(changed),
            forgotten_topics_data=[
                ForgottenTopic(topic_id=topic_id, partitions=numbers) for topic_id, numbers in _by_topic(gone).items()
            ],
        )

    def _ask_throttled(self, now_ms: int) -> dict[Key, _Asked]:
        """As many in turn as there is room for now."""
        found: dict[Key, _Asked] = {}
        room = self._throttle.room(now_ms) if self._throttled else 0
        for key in list(self._throttled):
            if room <= 0:
                break
            asked = self._ask(self._partitions[key], now_ms, min(room, self.fetch_bytes))
            if asked is not None:
                found[key] = asked
                room -= asked.bytes_max
                self._throttled[key] = self._throttled.pop(key)
        return found

    def wait_ms(self, now_ms: int) -> int:
        """How long until something may be asked for, if all that there is waits for the throttle; else 0."""
        if not self._throttled or len(self._throttled) < len(self._partitions):
            return 0
        return self._throttle.wait_ms(now_ms)

    def _ask(self, partition: Partition, now_ms: int, bytes_max: int) -> _Asked | None:
        key = partition.topic_id, partition.name.partition
        rest = self._rests.get(key)
        if partition.following is None or not partition.is_online or (rest is not None and rest.until_ms > now_ms):
            return None
        if not partition.is_durable:
            return None  # asking for more says that what it has is safe
        offset, epoch = partition.following.position
        return _Asked(partition.leader_epoch, offset, epoch, partition.log.start_offset, bytes_max)

    def _topics(self, changed: Mapping[Key, _Asked]) -> list[FetchTopic]:
        found: dict[bytes, list[FetchPartition]] = {}
        for (topic_id, number), asked in changed.items():
            found.setdefault(topic_id, []).append(
                FetchPartition(
                    partition=number,
                    current_leader_epoch=asked.leader_epoch,
                    fetch_offset=asked.offset,
                    last_fetched_epoch=asked.epoch,
                    log_start_offset=asked.start_offset,
                    partition_max_bytes=asked.bytes_max,
                )
            )
        return [FetchTopic(topic_id=topic_id, partitions=partitions) for topic_id, partitions in found.items()]

    # -- answers

    def take(self, response: FetchResponse, now_ms: int) -> Taken:
        """Do what an answer says, partition by partition: an error of one is its own."""
        if response.error_code != ErrorCode.NONE:
            self.forget()
            if response.error_code not in _SESSION_LOST:
                logger.warning("fetch_refused code=%s", ErrorCode(response.error_code).name)
            return Taken(0, 0)
        if self._uses_sessions:
            self._session_id = response.session_id
            self._session_epoch = self._session_epoch + 1 if response.session_id else 0
        got = cut = throttled = 0
        for topic in response.responses:
            for data in topic.partitions:
                key = topic.topic_id, data.partition_index
                partition, asked = self._partitions.get(key), self._told.get(key)
                if partition is None or asked is None or not self._is_current(partition, asked):
                    continue
                try:
                    cut += self._take_one(key, partition, data, now_ms)
                except PenstockError as error:
                    self._rest(key, now_ms)
                    logger.warning("not_followed partition=%s reason=%r", partition.name, str(error))
                else:
                    size = len(data.records or b"")
                    got += size
                    throttled += size if key in self._throttled else 0
        if throttled:
            self._throttle.take(throttled, now_ms)
        return Taken(got, cut)

    @staticmethod
    def _is_current(partition: Partition, asked: _Asked) -> bool:
        """Whether an answer is still about what the partition is."""
        following = partition.following
        return (
            following is not None
            and partition.is_online
            and partition.leader_epoch == asked.leader_epoch
            and following.position.offset == asked.offset
        )

    def _take_one(self, key: Key, partition: Partition, data: PartitionData, now_ms: int) -> int:
        following = partition.following
        assert following is not None
        cut = 0
        if data.error_code == ErrorCode.OFFSET_OUT_OF_RANGE:
            cut = self._start_over(key, partition, following, data, now_ms)
        elif data.error_code != ErrorCode.NONE:
            self._rest(key, now_ms)
        elif data.diverging_epoch is not None:
            if partition.log.io.is_busy or data.diverging_epoch.epoch < 0:
                self._rests[key] = _Rest(now_ms + SYNC_MS, 0)
                self._told.pop(key, None)
                return 0
            target = following.diverged_at(data.diverging_epoch.epoch, data.diverging_epoch.end_offset)
            count = partition.log.end_offset - target
            self._change(key, partition, lambda: following.cut(target, now_ms), now_ms)
            return count
        elif following.begins_inside(data.records or b"", data.log_start_offset):
            self._start_inside(key, partition, following, data, now_ms)
            return 0
        else:
            following.take(data.records or b"", data.high_watermark, data.log_start_offset, now_ms)
            self._rests.pop(key, None)
            if data.records:
                partition.took()
        partition.settle()
        return cut

    def _rest(self, key: Key, now_ms: int) -> None:
        """After an error: a little while, and longer each time."""
        before = self._rests.get(key)
        wait_ms = REST_MIN_MS if before is None else min(max(REST_MIN_MS, 2 * before.wait_ms), REST_MAX_MS)
        self._rests[key] = _Rest(now_ms + wait_ms, wait_ms)

    def _start_over(
        self, key: Key, partition: Partition, following: Following, data: PartitionData, now_ms: int
    ) -> int:
        """The leader has nothing at this offset. If that is because it has trimmed it, go on where it begins."""
        log = partition.log
        if data.log_start_offset <= log.end_offset or log.io.is_busy:
            self._rest(key, now_ms)
            return 0
        count = log.end_offset - log.start_offset
        self._change(key, partition, lambda: following.start_over(data.log_start_offset, now_ms), now_ms)
        return count

    def _start_inside(
        self, key: Key, partition: Partition, following: Following, data: PartitionData, now_ms: int
    ) -> None:
        """The leader's log begins in the middle of a batch, and this one has nothing of it: begin with all of it."""
        if partition.log.io.is_busy:
            self._rest(key, now_ms)
            return
        records = bytes(data.records or b"")  # its buffer is not kept until a thread gets to it
        mark, start = data.high_watermark, data.log_start_offset
        self._change(key, partition, lambda: following.start_inside(records, mark, start, now_ms), now_ms)

    def _change(self, key: Key, partition: Partition, change: Callable[[], None], now_ms: int) -> None:
        """Truncate a log, which waits for the disk: the partition is not asked for before that is done."""

        def then(outcome: Outcome) -> None:
            if isinstance(outcome.error, TornLog):
                logger.error("partition_offline partition=%s reason=%r", partition.name, str(outcome.error))
                partition.go_offline(str(outcome.error))
                return
            if outcome.error is not None:
                self._rest(key, now_ms)
                logger.warning("not_followed partition=%s reason=%r", partition.name, str(outcome.error))
            partition.settle()
            partition.took()
            partition.on_durable(partition)

        partition.change_log(change, then)


def _by_topic(keys: Iterable[Key]) -> dict[bytes, list[int]]:
    found: dict[bytes, list[int]] = {}
    for topic_id, number in keys:
        found.setdefault(topic_id, []).append(number)
    return found
