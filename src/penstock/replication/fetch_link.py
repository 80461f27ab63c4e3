"""Replica fetcher logic for one leader: builds Fetch requests and applies responses. Does no network I/O.

Requests are incremental (KIP-227): they list only partitions whose parameters changed since the last request.
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
"""A topic id and a partition index."""
BACKOFF_MIN_MS: Final = 10
BACKOFF_MAX_MS: Final = 320
"""Maximum backoff of a partition after errors, in milliseconds; the backoff doubles with each error."""
TRUNCATION_RETRY_MS: Final = 10
"""Delay, in milliseconds, before a truncation is retried while the log's I/O queue is busy."""

_SESSION_LOST: Final = frozenset(
    (
        ErrorCode.FETCH_SESSION_ID_NOT_FOUND,
        ErrorCode.INVALID_FETCH_SESSION_EPOCH,
        ErrorCode.FETCH_SESSION_TOPIC_ID_ERROR,
        ErrorCode.INCONSISTENT_TOPIC_ID,
    )
)


class _PartitionFetch(NamedTuple):
    """The parameters of one partition in the last Fetch request."""

    leader_epoch: int
    offset: int
    epoch: int
    start_offset: int
    bytes_max: int


class _Backoff(NamedTuple):
    """The time when a partition may be fetched again after an error, and the length of its backoff."""

    until_ms: int
    wait_ms: int


class FetchCounts(NamedTuple):
    """Number of bytes received and of offsets truncated with one Fetch response."""

    bytes: int
    truncated: int
    """Number of offsets removed by truncation."""


class FetchLink:
    """The partitions that this broker fetches from one leader."""

    def __init__(
        self,
        node_id: int,
        *,
        uses_sessions: bool = True,
        fetch_bytes: int = 1 << 20,
        throttle: Throttle | None = None,
    ) -> None:
        """`throttle`: limits the fetches of all lagging replicas on this broker, from all leaders together."""
        self._node_id = node_id
        self._uses_sessions = uses_sessions
        self._throttle = throttle or Throttle()
        self.fetch_bytes = fetch_bytes
        """Maximum bytes of one partition in one Fetch response."""
        self._partitions: dict[Key, Partition] = {}
        self._session_partitions: dict[Key, _PartitionFetch] = {}
        """The partitions in the leader's fetch session, with the parameters last sent."""
        self._backoffs: dict[Key, _Backoff] = {}
        """Partitions in backoff after an error."""
        self._throttled: dict[Key, None] = {}
        """Throttled partitions, in the order in which they are fetched."""
        self._session_id = 0
        self._session_epoch = 0

    def put(self, partition: Partition, is_lagging: bool = False) -> None:
        """Adds or updates a partition to fetch. `is_lagging`: whether this broker is not in the ISR; then its
        fetches are throttled if the topic lists this replica (KIP-73)."""
        key = partition.topic_id, partition.name.partition
        self._partitions[key] = partition
        if not (is_lagging and self._may_throttle(partition)):
            self._throttled.pop(key, None)
        elif key not in self._throttled:
            self._throttled[key] = None

    def drop(self, partition: Partition) -> None:
        """Stops fetching a partition."""
        key = partition.topic_id, partition.name.partition
        self._partitions.pop(key, None)
        self._throttled.pop(key, None)
        self._backoffs.pop(key, None)

    def _may_throttle(self, partition: Partition) -> bool:
        return (
            partition.is_online
            and (partition.name.partition, self._node_id) in partition.log.settings.follower_throttled
        )

    @property
    def is_idle(self) -> bool:
        return not self._partitions

    def reset_session(self) -> None:
        """Drops the fetch session after a new connection or a lost response: the next Fetch request is a full one."""
        self._session_id = self._session_epoch = 0
        self._session_partitions.clear()

    # -- asking

    def request(self, *, broker_epoch: int, max_wait_ms: int, max_bytes: int, now_ms: int) -> FetchRequest | None:
        """Returns the next Fetch request, or None if no partition can be fetched now."""
        wanted = {
            key: fetch
            for key, partition in self._partitions.items()
            if key not in self._throttled and (fetch := self._next_fetch(partition, now_ms, self.fetch_bytes))
        }
        wanted |= self._next_throttled(now_ms)
        if not wanted:
            return None
        if not self._uses_sessions:
            self._session_partitions.clear()
        changed = {key: fetch for key, fetch in wanted.items() if self._session_partitions.get(key) != fetch}
        gone = [key for key in self._session_partitions if key not in wanted]
        for key in gone:
            del self._session_partitions[key]
        self._session_partitions.update(changed)
        # A partition in backoff is fetched when it ends, not only when other partitions have new records.
        backoffs_ms = [backoff.until_ms - now_ms for backoff in self._backoffs.values() if backoff.until_ms > now_ms]
        return FetchRequest(
            replica_state=ReplicaState(replica_id=self._node_id, replica_epoch=broker_epoch),
            max_wait_ms=min(max_wait_ms, *backoffs_ms) if backoffs_ms else max_wait_ms,
            min_bytes=1,
            max_bytes=max_bytes,
            session_id=self._session_id,
            session_epoch=self._session_epoch if self._uses_sessions else -1,
            topics=self._topics(changed),
            forgotten_topics_data=[
                ForgottenTopic(topic_id=topic_id, partitions=numbers) for topic_id, numbers in _by_topic(gone).items()
            ],
        )

    def _next_throttled(self, now_ms: int) -> dict[Key, _PartitionFetch]:
        """Returns the throttled partitions to fetch now, round-robin, as far as the throttle allows."""
        found: dict[Key, _PartitionFetch] = {}
        available = self._throttle.available(now_ms) if self._throttled else 0
        for key in list(self._throttled):
            if available <= 0:
                break
            fetch = self._next_fetch(self._partitions[key], now_ms, min(available, self.fetch_bytes))
            if fetch is not None:
                found[key] = fetch
                available -= fetch.bytes_max
                self._throttled[key] = self._throttled.pop(key)
        return found

    def wait_ms(self, now_ms: int) -> int:
        """Returns the milliseconds until the throttle allows a fetch; 0 if some partition is not throttled."""
        if not self._throttled or len(self._throttled) < len(self._partitions):
            return 0
        return self._throttle.wait_ms(now_ms)

    def _next_fetch(self, partition: Partition, now_ms: int, bytes_max: int) -> _PartitionFetch | None:
        key = partition.topic_id, partition.name.partition
        backoff = self._backoffs.get(key)
        if backoff is not None and backoff.until_ms > now_ms:
            return None
        if partition.following is None or not partition.is_online:
            return None
        if not partition.is_durable:
            return None  # the fetch offset confirms that all records before it are durable
        offset, epoch = partition.following.position
        return _PartitionFetch(partition.leader_epoch, offset, epoch, partition.log.start_offset, bytes_max)

    def _topics(self, changed: Mapping[Key, _PartitionFetch]) -> list[FetchTopic]:
        found: dict[bytes, list[FetchPartition]] = {}
        for (topic_id, number), fetch in changed.items():
            found.setdefault(topic_id, []).append(
                FetchPartition(
                    partition=number,
                    current_leader_epoch=fetch.leader_epoch,
                    fetch_offset=fetch.offset,
                    last_fetched_epoch=fetch.epoch,
                    log_start_offset=fetch.start_offset,
                    partition_max_bytes=fetch.bytes_max,
                )
            )
        return [FetchTopic(topic_id=topic_id, partitions=partitions) for topic_id, partitions in found.items()]

    # -- answers

    def apply(self, response: FetchResponse, now_ms: int) -> FetchCounts:
        """Applies a Fetch response, partition by partition: an error of one partition does not affect the others."""
        if response.error_code != ErrorCode.NONE:
            self.reset_session()
            if response.error_code not in _SESSION_LOST:
                logger.warning("replica_fetch_refused error=%s", ErrorCode(response.error_code).name)
            return FetchCounts(0, 0)
        if self._uses_sessions:
            self._session_id = response.session_id
            self._session_epoch = self._session_epoch + 1 if response.session_id else 0
        got = truncated = throttled = 0
        for topic in response.responses:
            for data in topic.partitions:
                key = topic.topic_id, data.partition_index
                partition, fetch = self._partitions.get(key), self._session_partitions.get(key)
                if partition is None or fetch is None or not self._is_current(partition, fetch):
                    continue
                try:
                    truncated += self._apply_partition(key, partition, data, now_ms)
                except PenstockError as error:
                    self._back_off(key, now_ms)
                    logger.warning("replica_fetch_failed partition=%s reason=%r", partition.name, str(error))
                else:
                    size = len(data.records or b"")
                    got += size
                    throttled += size if key in self._throttled else 0
        if throttled:
            self._throttle.take(throttled, now_ms)
        return FetchCounts(got, truncated)

    @staticmethod
    def _is_current(partition: Partition, fetch: _PartitionFetch) -> bool:
        """Whether leader epoch and fetch offset of the partition are still the same as in the request."""
        following = partition.following
        return (
            following is not None
            and partition.is_online
            and partition.leader_epoch == fetch.leader_epoch
            and following.position.offset == fetch.offset
        )

    def _apply_partition(self, key: Key, partition: Partition, data: PartitionData, now_ms: int) -> int:
        following = partition.following
        assert following is not None
        truncated = 0
        if data.error_code == ErrorCode.OFFSET_OUT_OF_RANGE:
            truncated = self._handle_out_of_range(key, partition, following, data, now_ms)
        elif data.error_code != ErrorCode.NONE:
            self._back_off(key, now_ms)
        elif data.diverging_epoch is not None:
            if partition.log.io.is_busy or data.diverging_epoch.epoch < 0:
                self._backoffs[key] = _Backoff(now_ms + TRUNCATION_RETRY_MS, 0)
                self._session_partitions.pop(key, None)
                return 0
            target = following.diverged_at(data.diverging_epoch.epoch, data.diverging_epoch.end_offset)
            count = partition.log.end_offset - target
            self._truncate(key, partition, lambda: following.truncate(target, now_ms), now_ms)
            return count
        elif following.starts_inside_batch(data.records or b"", data.log_start_offset):
            self._restart_inside_batch(key, partition, following, data, now_ms)
            return 0
        else:
            try:
                following.take(data.records or b"", data.high_watermark, data.log_start_offset, now_ms)
            finally:
                if data.records:  # also after an error: it may concern a later batch than the first one
                    partition.flush_soon()
            self._backoffs.pop(key, None)
        partition.adopt_leader_high_watermark()
        return truncated

    def _back_off(self, key: Key, now_ms: int) -> None:
        """Backs off a partition after an error, twice as long with each error."""
        before = self._backoffs.get(key)
        wait_ms = BACKOFF_MIN_MS if before is None else min(max(BACKOFF_MIN_MS, 2 * before.wait_ms), BACKOFF_MAX_MS)
        self._backoffs[key] = _Backoff(now_ms + wait_ms, wait_ms)

    def _handle_out_of_range(
        self, key: Key, partition: Partition, following: Following, data: PartitionData, now_ms: int
    ) -> int:
        """Restarts the log at the leader's log start offset if that is above this log's end offset, else backs
        off. Returns the number of offsets that the restart removes."""
        log = partition.log
        if data.log_start_offset <= log.end_offset or log.io.is_busy:
            self._back_off(key, now_ms)
            return 0
        count = log.end_offset - log.start_offset
        self._truncate(key, partition, lambda: following.restart_at(data.log_start_offset, now_ms), now_ms)
        return count

    def _restart_inside_batch(
        self, key: Key, partition: Partition, following: Following, data: PartitionData, now_ms: int
    ) -> None:
        """Replaces the log by the fetched records, whose first batch contains the leader's log start offset."""
        if partition.log.io.is_busy:
            self._back_off(key, now_ms)
            return
        records = bytes(data.records or b"")  # a copy: the buffer is reused before a thread reads it
        mark, start = data.high_watermark, data.log_start_offset
        self._truncate(key, partition, lambda: following.restart_inside(records, mark, start, now_ms), now_ms)

    def _truncate(self, key: Key, partition: Partition, change: Callable[[], None], now_ms: int) -> None:
        """Runs `change`, which truncates the log, on a disk thread; the partition is not fetched until it ends."""

        def then(outcome: Outcome) -> None:
            if isinstance(outcome.error, TornLog):
                logger.error("partition_offline partition=%s reason=%r", partition.name, str(outcome.error))
                partition.go_offline(str(outcome.error))
                return
            if outcome.error is not None:
                self._back_off(key, now_ms)
                logger.warning("replica_fetch_failed partition=%s reason=%r", partition.name, str(outcome.error))
            partition.adopt_leader_high_watermark()
            partition.flush_soon()
            partition.on_durable(partition)

        partition.change_log(change, then)


def _by_topic(keys: Iterable[Key]) -> dict[bytes, list[int]]:
    found: dict[bytes, list[int]] = {}
    for topic_id, number in keys:
        found.setdefault(topic_id, []).append(number)
    return found
