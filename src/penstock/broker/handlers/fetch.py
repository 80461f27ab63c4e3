"""Fetch: returns committed record batches as stored in the log, at once or when min bytes are available."""

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
"""First Fetch version whose requests have topic ids rather than names."""
LARGE_PARTITIONS: Final = 1000
"""Maximum number of partitions of a request that is read at once; larger requests are read in time slices."""
STEP_MASK: Final = 63
"""Bit mask: reading may pause after every 64 (mask + 1) partitions."""


@handles(ApiKey.FETCH)
def fetch(request: FetchRequest, call: Call, broker: Broker) -> FetchResponse | Awaitable[FetchResponse] | None:
    try:
        is_stable = wants_committed(request.isolation_level)
        plan = broker.sessions.plan(request, broker.clock.now_ms(), by_id=call.version >= IDS_FROM)
    except PenstockError as error:
        return FetchResponse(throttle_time_ms=0, error_code=error.code, responses=())
    attempt = FetchAttempt(request, plan, broker, is_stable)
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


class FetchAttempt:
    """A Fetch request and the data last read for it; read again whenever the request has waited."""

    def __init__(self, request: FetchRequest, plan: FetchPlan, broker: Broker, is_stable: bool) -> None:
        self.request = request
        self.plan = plan
        self.broker = broker
        self.is_stable = is_stable
        self.follower = follower_of(request)
        self.limit_bytes = min(max(0, request.max_bytes), broker.configs["fetch.max.bytes"])
        self.answers: list[tuple[Key, PartitionData]] = []
        self.cold: list[ColdRead] = []
        self.read_bytes = 0
        self.throttled_bytes = 0
        self.scans: dict[Key, Scan] | None = None
        """Scan results of the requested partitions that belong to views (broker/views/)."""
        self.failures: dict[Key, PenstockError] = {}
        """Errors of scans of view partitions."""
        self.throttled: set[Key] = set()
        """Partitions from which a follower gets no bytes until the replication throttle allows more (KIP-73)."""
        self.failed = False

    @property
    def is_large(self) -> bool:
        """Whether the request has so many partitions that they are read in time slices."""
        return len(self.plan.wanted) > LARGE_PARTITIONS

    def read(self, blocking: bool = False) -> None:
        """Reads all requested partitions and replaces the results of the previous read."""
        run_steps(self.read_steps(blocking))

    def read_steps(self, blocking: bool = False) -> Steps[None]:
        """Like `read`, as a generator that can be run in time slices."""
        self.answers = []
        self.cold = []
        self.read_bytes = self.throttled_bytes = 0
        self.throttled = set()
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
        limit_bytes = min(wanted.partition_max_bytes, self.limit_bytes - self.read_bytes)
        if self.follower is not None:
            return self._read_for_follower(self.follower, key, wanted, limit_bytes, blocking)
        partition = self.find(key)
        partition.check_epoch(wanted.current_leader_epoch)
        log = partition.log
        if not partition.is_leader and wanted.fetch_offset > partition.high_watermark:
            raise OffsetNotAvailable(
                f"{partition.name} has not replicated offset {wanted.fetch_offset} to this broker yet"
            )
        divergence = epoch_divergence(log, wanted)
        if divergence is not None:
            self.failed = True
            return self._diverged(partition, wanted, divergence)
        nearer = self._nearest_replica(partition, wanted.fetch_offset)
        if nearer is not None:
            self.failed = True  # answer at once: the consumer must read from that replica
            return _empty_data(partition, wanted, nearer)
        if self.scans is not None and key in self.scans:
            if key in self.failures:
                raise self.failures[key]
            return self._read_view(self.scans[key], partition, wanted)
        if partition.visibility is not None:
            return self._read_filtered(partition, partition.visibility, wanted, limit_bytes, blocking)
        records: Buffer = b""
        try:
            # The first batch of a response is complete, however large: otherwise the consumer would be stuck.
            force = self.read_bytes == 0
            records = partition.read(
                wanted.fetch_offset, limit_bytes, blocking=blocking, force=force, stable=self.is_stable
            )
        except ColdRead as cold:
            self.cold.append(cold)
        self.read_bytes += len(records)
        return PartitionData(
            partition_index=wanted.partition,
            error_code=0,
            high_watermark=partition.high_watermark,
            last_stable_offset=partition.last_stable_offset,
            log_start_offset=log.start_offset,
            aborted_transactions=_aborted(log, wanted.fetch_offset, records) if self.is_stable else None,
            records=records,
        )

    def _read_view(self, scan: Scan, partition: Partition, wanted: FetchPartition) -> PartitionData:
        """Returns the records found by a view's scan, with an empty list of aborted transactions: the scan has
        already dropped aborted records."""
        self.read_bytes += scan.kept_bytes
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
        """Reads a topic with delayed messages: returns only the records that consumers may already see."""
        log, offset = partition.log, wanted.fetch_offset
        try:
            seen = visibility.read(
                offset, limit_bytes, blocking=blocking, force=self.read_bytes == 0, stable=self.is_stable
            )
        except ColdRead as cold:
            self.cold.append(cold)
            return _empty_data(partition, wanted)
        self.read_bytes += len(seen.records)
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
        """Returns the requested partition; for a view, the partition of its source topic. Raises Kafka's errors."""
        if self.scans is not None and key in self.scans:
            return self.broker.replica("", self.scans[key].topic_id, key[2])
        return self.broker.replica(*key) if self.follower is None else self.broker.followed_partition(*key)

    def _read_for_follower(
        self, follower: ReplicaState, key: Key, wanted: FetchPartition, limit_bytes: int, blocking: bool
    ) -> PartitionData:
        partition, now_ms, force = self.find(key), self.broker.clock.steady_ms(), self.read_bytes == 0
        self._check_follower(follower, partition, wanted)
        is_throttled = self._is_throttled(partition, follower)
        if is_throttled:
            allowed_bytes = self.broker.throttle.available(now_ms) - self.throttled_bytes
            limit_bytes, force = min(limit_bytes, allowed_bytes), force and allowed_bytes > 0
            if allowed_bytes <= 0:
                self.throttled.add(key)
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
            return _empty_data(partition, wanted)
        except OffsetOutOfRange as error:
            self.failed = True
            return _refusal(wanted.partition, error, partition.log.start_offset)
        size = len(data.records or b"")
        self.read_bytes += size
        self.throttled_bytes += size if is_throttled else 0
        self.failed |= data.diverging_epoch is not None
        return data

    def _check_follower(self, follower: ReplicaState, partition: Partition, wanted: FetchPartition) -> None:
        """Raises NotLeaderOrFollower or UnknownLeaderEpoch unless the follower is a replica and sent its current
        broker epoch.

        A follower's fetch position commits records. The leader may learn of a registration or a new replica later
        than the follower, which then retries (as in Kafka).
        """
        registered = self.broker.image.brokers.get(follower.replica_id)
        state = self.broker.image.state(partition.tp)
        is_leader = follower.replica_id == self.broker.node_id
        if is_leader or registered is None or registered.epoch != follower.replica_epoch:
            raise NotLeaderOrFollower(
                f"broker {follower.replica_id} is not registered with epoch {follower.replica_epoch} here"
            )
        if state is None or follower.replica_id not in state.replicas:
            reason = f"broker {follower.replica_id} has no replica of {partition.name}"
            raise UnknownLeaderEpoch(reason) if wanted.current_leader_epoch >= 0 else NotLeaderOrFollower(reason)

    def _is_throttled(self, partition: Partition, follower: ReplicaState) -> bool:
        """Whether the throttle applies: the topic is throttled here and the follower is not in the ISR (KIP-73)."""
        if (partition.name.partition, self.broker.node_id) not in partition.log.settings.leader_throttled:
            return False
        state = self.broker.image.state(partition.tp)
        return state is not None and follower.replica_id not in state.isr

    def _nearest_replica(self, partition: Partition, offset: int) -> int | None:
        """Returns a replica in the consumer's rack to redirect the consumer to, if this broker leads the partition
        and is in another rack; else None (KIP-392)."""
        rack, lead, brokers = self.request.rack_id, partition.leadership, self.broker.image.brokers
        if not rack or lead is None or self.broker.configs["replica.selector.class"] != RACK_AWARE:
            return None
        near = {node for node, known in brokers.items() if known.rack == rack}
        return None if self.broker.node_id in near else lead.nearest(offset, near)

    def _diverged(self, partition: Partition, wanted: FetchPartition, divergence: EpochEndOffset) -> PartitionData:
        """Returns data that reports where the fetcher's log diverges from this log (KIP-595)."""
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
        return self.failed or self.read_bytes >= self.request.min_bytes or not self.plan.wanted

    def response(self) -> FetchResponse:
        return run_steps(self.response_steps())

    def response_steps(self) -> Steps[FetchResponse]:
        """Like `response`, as a generator that can be run in time slices."""
        if self.throttled_bytes:
            self.broker.throttle.take(self.throttled_bytes, self.broker.clock.steady_ms())
        topics: dict[tuple[str, bytes], list[PartitionData]] = {}
        for number, (key, data) in enumerate(self.answers):
            if self.plan.must_include(key, data):
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
    """Returns id and epoch of the broker that sent the request; None if a consumer sent it."""
    if request.replica_state is not None:
        return request.replica_state if request.replica_state.replica_id >= 0 else None
    return ReplicaState(replica_id=request.replica_id) if request.replica_id >= 0 else None


def _empty_data(partition: Partition, wanted: FetchPartition, nearer: int = -1) -> PartitionData:
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
    """Returns the aborted transactions in these records, which the consumer must skip (KIP-98)."""
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
