"""Fetch: committed batches as they lie in the log, now or when there are enough of them."""

from collections.abc import Awaitable
from typing import Final

from penstock.broker.broker import Broker
from penstock.broker.call import Call
from penstock.broker.delayed_fetch import DelayedFetch, answer_large, read_cold
from penstock.broker.fetch_sessions import FetchPlan, Key
from penstock.broker.isolation import wants_committed
from penstock.broker.registry import handles
from penstock.broker.views.scan import Scan
from penstock.broker.views.view_fetch import answer_views, has_views
from penstock.foundation.codes import ErrorCode
from penstock.foundation.errors import NotLeaderOrFollower, OffsetNotAvailable, OffsetOutOfRange, PenstockError
from penstock.foundation.steps import Steps, run_steps
from penstock.log.disk import ColdRead
from penstock.log.log import Log
from penstock.records.batch import batches
from penstock.replication.errors import UnknownLeaderEpoch
from penstock.replication.follower_fetch import epoch_divergence, serve_follower
from penstock.replication.partition import Partition
from penstock.replication.settings import RACK_AWARE
from penstock.replication.visibility_filter import VisibilityFilter
from penstock.wire.keys import ApiKey
from penstock.wire.messages.fetch import (
    AbortedTransaction,
    EpochEndOffset,
    FetchableTopicResponse,
    FetchPartition,
    FetchRequest,
    FetchResponse,
    PartitionData,
    ReplicaState,
)
from penstock.wire.schema import Buffer

IDS_FROM: Final = 13
"""From this version on, requests have topic ids in place of names."""
LARGE_PARTITIONS: Final = 1000
"""A request for more partitions is read in time slices."""
STEP_MASK: Final = 63
"""Partitions between two points at which reading may be interrupted, less one."""


@handles(ApiKey.FETCH)
def fetch(request: FetchRequest, call: Call, broker: Broker) -> FetchResponse | Awaitable[FetchResponse] | None:
    try:
        is_stable = wants_committed(request.isolation_level)
        plan = broker.sessions.plan(request, broker.clock.now_ms(), by_id=call.version >= IDS_FROM)
    except PenstockError as error:
        return FetchResponse(throttle_time_ms=0, error_code=error.code, responses=())
    attempt = Attempt(request, plan, broker, is_stable)
    if broker.image.views and attempt.follower is None and has_views(plan, broker):
        answer_views(attempt, call)
        return None
    if attempt.is_large:
        return answer_large(attempt, call)
    attempt.read()
    if attempt.cold:
        return read_cold(attempt)
    if attempt.is_enough or request.max_wait_ms <= 0:
        return attempt.response()
    DelayedFetch(attempt, call)
    return None


class Attempt:
    """One look at all the partitions that a request wants."""

    def __init__(self, request: FetchRequest, plan: FetchPlan, broker: Broker, is_stable: bool) -> None:
        self.request = request
        self.plan = plan
        self.broker = broker
        self.is_stable = is_stable
        self.follower = follower_of(request)
        self.limit_bytes = min(max(0, request.max_bytes), broker.configs["fetch.max.bytes"])
        self.answers: list[tuple[Key, PartitionData]] = []
        self.cold: list[ColdRead] = []
        self.got_bytes = 0
        self.throttled_bytes = 0
        self.scans: dict[Key, Scan] | None = None
        """How far the partitions of views have been looked through, where there are any (broker/views/)."""
        self.failures: dict[Key, PenstockError] = {}
        """What looking through some of them has come to."""
        self.held_back: set[Key] = set()
        """Partitions that a follower gets nothing of before it may have more (KIP-73)."""
        self.failed = False

    @property
    def is_large(self) -> bool:
        """Whether reading all partitions takes so long that it is done in time slices."""
        return len(self.plan.wanted) > LARGE_PARTITIONS

    def read(self, blocking: bool = False) -> None:
        """Read everything anew."""
        run_steps(self.read_steps(blocking))

    def read_steps(self, blocking: bool = False) -> Steps[None]:
        """As `read`, interruptible."""
        self.answers = []
        self.cold = []
        self.got_bytes = self.throttled_bytes = 0
        self.held_back = set()
        self.failed = False
        for key, wanted in self.plan.wanted:
            try:
                data = self._read_one(key, wanted, blocking)
            except PenstockError as error:
                self.failed = True
                data = _refusal(wanted.partition, error)
            self.answers.append((key, data))
            if not len(self.answers) & STEP_MASK:
                yield

    def _read_one(self, key: Key, wanted: FetchPartition, blocking: bool) -> PartitionData:
        limit_bytes = min(wanted.partition_max_bytes, self.limit_bytes - self.got_bytes)
        if self.follower is not None:
            return self._serve(self.follower, key, wanted, limit_bytes, blocking)
        partition = self.find(key)
        partition.check_epoch(wanted.current_leader_epoch)
        log = partition.log
        if not partition.is_leader and wanted.fetch_offset > partition.high_watermark:
            raise OffsetNotAvailable(f"{partition.name} is not at offset {wanted.fetch_offset} on this replica yet")
        divergence = epoch_divergence(log, wanted)
        if divergence is not None:
            self.failed = True
            return self._diverged(partition, wanted, divergence)
        nearer = self._nearer(partition, wanted.fetch_offset)
        if nearer is not None:
            self.failed = True  # there is nothing to wait for here
            return _nothing_yet(partition, wanted, nearer)
        if self.scans is not None and key in self.scans:
            if key in self.failures:
                raise self.failures[key]
            return self._viewed(self.scans[key], partition, wanted)
        if partition.visibility is not None:
            return self._read_filtered(partition, partition.visibility, wanted, limit_bytes, blocking)
        records: Buffer = b""
        try:
            # The first batch of an answer comes whole, however large: else its consumer would stand still.
            force = self.got_bytes == 0
            records = partition.read(
                wanted.fetch_offset, limit_bytes, blocking=blocking, force=force, stable=self.is_stable
            )
        except ColdRead as cold:
            self.cold.append(cold)
        self.got_bytes += len(records)
        return PartitionData(
            partition_index=wanted.partition,
            error_code=0,
            high_watermark=partition.high_watermark,
            last_stable_offset=partition.last_stable_offset,
            log_start_offset=log.start_offset,
            aborted_transactions=_aborted(log, wanted.fetch_offset, records) if self.is_stable else None,
            records=records,
        )

    def _viewed(self, scan: Scan, partition: Partition, wanted: FetchPartition) -> PartitionData:
        """What was found. What was aborted has been left out already, so that none of it is named."""
        self.got_bytes += scan.kept_bytes
        mark, visibility = partition.high_watermark, partition.visibility
        if visibility is not None:
            mark = visibility.visible_to(mark)
        return PartitionData(
            partition_index=wanted.partition,
            error_code=0,
            high_watermark=mark,
            last_stable_offset=min(mark, partition.last_stable_offset),
            log_start_offset=partition.log.start_offset,
            aborted_transactions=[] if self.is_stable else None,
            records=scan.records,
        )

    def _read_filtered(
        self,
        partition: Partition,
        visibility: VisibilityFilter,
        wanted: FetchPartition,
        limit_bytes: int,
        blocking: bool,
    ) -> PartitionData:
        """Of a topic whose messages are delayed: what consumers may see by now."""
        log, offset = partition.log, wanted.fetch_offset
        try:
            seen = visibility.read(
                offset, limit_bytes, blocking=blocking, force=self.got_bytes == 0, stable=self.is_stable
            )
        except ColdRead as cold:
            self.cold.append(cold)
            return _nothing_yet(partition, wanted)
        self.got_bytes += len(seen.records)
        aborted: list[AbortedTransaction] | None = None
        if self.is_stable:
            aborted = [] if seen.is_changed else _aborted(log, offset, seen.records)
        return PartitionData(
            partition_index=wanted.partition,
            error_code=0,
            high_watermark=seen.high_watermark,
            last_stable_offset=seen.last_stable_offset,
            log_start_offset=log.start_offset,
            aborted_transactions=aborted,
            records=seen.records,
        )

    def find(self, key: Key) -> Partition:
        """The partition that is asked for; of a view, that of its topic. Raises Kafka's errors."""
        if self.scans is not None and key in self.scans:
            return self.broker.replica("", self.scans[key].topic_id, key[2])
        return self.broker.replica(*key) if self.follower is None else self.broker.followed(*key)

    def _serve(
        self, follower: ReplicaState, key: Key, wanted: FetchPartition, limit_bytes: int, blocking: bool
    ) -> PartitionData:
        partition, now_ms, force = self.find(key), self.broker.clock.steady_ms(), self.got_bytes == 0
        self._check_follower(follower, partition, wanted)
        is_throttled = self._is_throttled(partition, follower)
        if is_throttled:
            room = self.broker.throttle.room(now_ms) - self.throttled_bytes
            limit_bytes, force = min(limit_bytes, room), force and room > 0
            if room <= 0:
                self.held_back.add(key)
        try:
            data = serve_follower(
                partition,
                wanted,
                follower,
                limit_bytes,
                now_ms,
                force=force,
                blocking=blocking,
            )
        except ColdRead as cold:
            self.cold.append(cold)
            return _nothing_yet(partition, wanted)
        except OffsetOutOfRange as error:
            self.failed = True
            return _refusal(wanted.partition, error, partition.log.start_offset)
        size = len(data.records or b"")
        self.got_bytes += size
        self.throttled_bytes += size if is_throttled else 0
        self.failed |= data.diverging_epoch is not None
        return data

    def _check_follower(self, follower: ReplicaState, partition: Partition, wanted: FetchPartition) -> None:
        """A follower's fetch commits records, so it must be a replica's, in that broker's present registration.

        A leader may hear of a registration or of a new replica later than the follower: it comes again (as in Kafka).
        """
        registered = self.broker.image.brokers.get(follower.replica_id)
        state = self.broker.image.state(partition.place)
        is_leader = follower.replica_id == self.broker.node_id
        if is_leader or registered is None or registered.epoch != follower.replica_epoch:
            raise NotLeaderOrFollower(
                f"broker {follower.replica_id} is not registered with epoch {follower.replica_epoch} here"
            )
        if state is None or follower.replica_id not in state.replicas:
            reason = f"broker {follower.replica_id} has no replica of {partition.name}"
            raise UnknownLeaderEpoch(reason) if wanted.current_leader_epoch >= 0 else NotLeaderOrFollower(reason)

    def _is_throttled(self, partition: Partition, follower: ReplicaState) -> bool:
        """Whether the topic throttles this broker as a leader, and the follower is not in sync (KIP-73)."""
        if (partition.name.partition, self.broker.node_id) not in partition.log.settings.leader_throttled:
            return False
        state = self.broker.image.state(partition.place)
        return state is not None and follower.replica_id not in state.isr

    def _nearer(self, partition: Partition, offset: int) -> int | None:
        """A replica in the reader's rack, if this broker leads and is in another one (KIP-392)."""
        rack, lead, brokers = self.request.rack_id, partition.leadership, self.broker.image.brokers
        if not rack or lead is None or self.broker.configs["replica.selector.class"] != RACK_AWARE:
            return None
        near = {node for node, known in brokers.items() if known.rack == rack}
        return None if self.broker.node_id in near else lead.nearest(offset, near)

    def _diverged(self, partition: Partition, wanted: FetchPartition, divergence: EpochEndOffset) -> PartitionData:
        """The reader's last batch is not in this log: tell it where the two part (KIP-595)."""
        return PartitionData(
            partition_index=wanted.partition,
            error_code=0,
            high_watermark=partition.high_watermark,
            last_stable_offset=partition.last_stable_offset,
            log_start_offset=partition.log.start_offset,
            diverging_epoch=divergence,
            aborted_transactions=None,
            records=b"",
        )

    @property
    def is_enough(self) -> bool:
        return self.failed or self.got_bytes >= self.request.min_bytes or not self.plan.wanted

    def response(self) -> FetchResponse:
        return run_steps(self.response_steps())

    def response_steps(self) -> Steps[FetchResponse]:
        """As `response`, interruptible."""
        if self.throttled_bytes:
            self.broker.throttle.take(self.throttled_bytes, self.broker.clock.steady_ms())
        topics: dict[tuple[str, bytes], list[PartitionData]] = {}
        for number, (key, data) in enumerate(self.answers):
            if self.plan.must_tell(key, data):
                topics.setdefault(key[:2], []).append(data)
            if number & STEP_MASK == STEP_MASK:
                yield
        return FetchResponse(
            throttle_time_ms=0,
            session_id=self.plan.session_id,
            responses=[
                FetchableTopicResponse(topic=name, topic_id=topic_id, partitions=partitions)
                for (name, topic_id), partitions in topics.items()
            ],
        )


def follower_of(request: FetchRequest) -> ReplicaState | None:
    """The broker that asks, if it is one and no consumer."""
    if request.replica_state is not None:
        return request.replica_state if request.replica_state.replica_id >= 0 else None
    return ReplicaState(replica_id=request.replica_id) if request.replica_id >= 0 else None


def _nothing_yet(partition: Partition, wanted: FetchPartition, nearer: int = -1) -> PartitionData:
    return PartitionData(
        partition_index=wanted.partition,
        error_code=0,
        high_watermark=partition.high_watermark,
        last_stable_offset=partition.last_stable_offset,
        log_start_offset=partition.log.start_offset,
        aborted_transactions=None,
        preferred_read_replica=nearer,
        records=b"",
    )


def _aborted(log: Log, offset: int, records: Buffer) -> list[AbortedTransaction]:
    """What a reader must leave out of these records; the broker sends batches as they are (KIP-98)."""
    if offset > log.newest_abort or not records:
        return []
    end = offset
    for _, header in batches(records):
        end = header.next_offset
    return [
        AbortedTransaction(producer_id=found.producer_id, first_offset=found.first_offset)
        for found in log.aborted_between(offset, end)
    ]


def _refusal(number: int, error: PenstockError, start_offset: int = -1) -> PartitionData:
    return PartitionData(
        partition_index=number,
        error_code=error.code if error.code != ErrorCode.NONE else ErrorCode.UNKNOWN_SERVER_ERROR,
        high_watermark=-1,
        log_start_offset=start_offset,
        aborted_transactions=None,
        records=b"",
    )
