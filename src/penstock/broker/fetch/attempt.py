"""A Fetch request and the data last read for it: reads its partitions and builds the response."""

import asyncio
from typing import Final

from penstock.broker.broker import Broker
from penstock.broker.call import Call
from penstock.broker.fetch.follower_reads import FollowerReads
from penstock.broker.fetch.partition_readers import PartitionReader, read_visible
from penstock.broker.fetch.sessions import FetchPlan, Key
from penstock.foundation.acls import Operation, ResourceType
from penstock.foundation.codes import ErrorCode
from penstock.foundation.errors import OffsetNotAvailable, OffsetOutOfRange, PenstockError, TopicAuthorizationFailed
from penstock.foundation.steps import Steps, run_steps
from penstock.log.disk import ColdRead
from penstock.log.log import Log
from penstock.records.batch import batches
from penstock.replication.follower_fetch import epoch_divergence
from penstock.replication.partition import Partition
from penstock.replication.settings import RACK_AWARE
from penstock.replication.visibility_filter import VisibleRecords
from penstock.wire.messages.fetch import (
    AbortedTransaction,
    EpochEndOffset,
    FetchableTopicResponse,
    FetchPartition,
    FetchRequest,
    FetchResponse,
    PartitionData,
)
from penstock.wire.schema import Buffer

LARGE_PARTITIONS: Final = 1000
"""Maximum number of partitions of a request that is read without a pause; larger requests are read in time slices."""
STEP_MASK: Final = 63
"""Bit mask: reading may pause after every 64 (mask + 1) partitions."""
WARM_ATTEMPTS: Final = 3
"""Maximum number of attempts to load cold segments into the page cache and read again; then a read may block."""


class FetchAttempt:
    """A Fetch request and the records last read for it. Each read replaces the result of the previous read."""

    def __init__(self, request: FetchRequest, plan: FetchPlan, call: Call, broker: Broker, is_stable: bool) -> None:
        self.request = request
        self.plan = plan
        self._call = call
        self.broker = broker
        self.is_stable = is_stable
        self.follower = FollowerReads.of(request, broker)
        """Reader for the follower that sent the request; None if a consumer sent the request."""
        self.limit_bytes = min(max(0, request.max_bytes), broker.configs["fetch.max.bytes"])
        self.readers: dict[Key, PartitionReader] = {}
        """Readers of the partitions that belong to views; all other partitions are read from the log."""
        self.answers: list[tuple[Key, PartitionData]] = []
        self.cold: list[ColdRead] = []
        self.read_bytes = 0
        self.failed = False

    @property
    def is_large(self) -> bool:
        """Whether the request has so many partitions that they are read in time slices."""
        return len(self.plan.wanted) > LARGE_PARTITIONS

    @property
    def is_enough(self) -> bool:
        return self.failed or self.read_bytes >= self.request.min_bytes or not self.plan.wanted

    def find(self, key: Key) -> Partition:
        """Returns a requested partition; for a view (filtered virtual topic), that of its source topic. Raises a
        Kafka error if it is not found."""
        if self.follower is not None:
            return self.broker.followed_partition(*key)
        reader = self.readers.get(key)
        return self.broker.replica(*key) if reader is None else self.broker.replica("", reader.topic_id, key[2])

    def read(self, blocking: bool = False) -> None:
        """Reads all partitions again. Unless `blocking`, skips data that is not in the page cache, and adds a
        ColdRead, which can load that data on a thread, to `cold`."""
        run_steps(self._read_steps(blocking))

    async def read_sliced(self, blocking: bool = False) -> None:
        """Like `read`, but in time slices if there are many partitions."""
        if self.is_large:
            await self.broker.slices.run(self._read_steps(blocking))
        else:
            self.read(blocking)

    async def read_warm(self) -> None:
        """If the last read skipped data that is not in the page cache, loads that data on a thread and reads
        again, up to WARM_ATTEMPTS times. If data is still skipped, reads from disk on the event loop."""
        loop = asyncio.get_running_loop()
        for _ in range(WARM_ATTEMPTS):
            if not self.cold:
                return
            for cold in self.cold:
                await loop.run_in_executor(self.broker.threads, cold.warm)
            await self.read_sliced()
        if self.cold:
            await self.read_sliced(blocking=True)  # pages are evicted at once for lack of memory: block here

    def _read_steps(self, blocking: bool) -> Steps[None]:
        self.answers = []
        self.cold = []
        self.read_bytes = 0
        self.failed = False
        if self.follower is not None:
            self.follower.begin()
        for key, wanted in self.plan.wanted:
            try:
                data = self._read_one(key, wanted, blocking)
            except PenstockError as error:
                self.failed = True
                data = _error_data(wanted.partition, error)
            self.answers.append((key, data))
            if not len(self.answers) & STEP_MASK:
                yield

    def _read_one(self, key: Key, wanted: FetchPartition, blocking: bool) -> PartitionData:
        limit_bytes = min(wanted.partition_max_bytes, self.limit_bytes - self.read_bytes)
        # The first batch of a response is complete, however large: otherwise the consumer would be stuck.
        force = self.read_bytes == 0
        if self._call.authorizer is not None:
            self._check_allowed(key)
        partition = self.find(key)
        try:
            if self.follower is not None:
                data = self.follower.read(partition, key, wanted, limit_bytes, force=force, blocking=blocking)
                self.read_bytes += len(data.records or b"")
            else:
                data = self._read_for_consumer(partition, key, wanted, limit_bytes, force, blocking)
        except ColdRead as cold:
            self.cold.append(cold)
            return _partition_data(partition, wanted)
        except OffsetOutOfRange as error:
            self.failed = True
            return _error_data(wanted.partition, error, -1 if self.follower is None else partition.log.start_offset)
        # A consumer that must read elsewhere, and a log that must be truncated, get their answer at once.
        self.failed |= data.preferred_read_replica >= 0 or data.diverging_epoch is not None
        return data

    def _check_allowed(self, key: Key) -> None:
        """Raises TopicAuthorizationFailed if the client may not read the topic. Checked at each read: the permission
        may end while the request waits."""
        if self.follower is not None:
            is_allowed = self._call.allows_in_cluster(Operation.CLUSTER_ACTION)
        else:
            topic = None if key[0] else self.broker.image.shown.get(key[1])
            name = key[0] if topic is None else topic.name
            is_allowed = not name or self._call.allows(Operation.READ, ResourceType.TOPIC, name)
        if not is_allowed:
            raise TopicAuthorizationFailed(f"{self._call.principal} may not read this topic")

    def _read_for_consumer(
        self, partition: Partition, key: Key, wanted: FetchPartition, limit_bytes: int, force: bool, blocking: bool
    ) -> PartitionData:
        partition.check_epoch(wanted.current_leader_epoch)
        offset = wanted.fetch_offset
        if not partition.is_leader and offset > partition.high_watermark:
            raise OffsetNotAvailable(f"{partition.name} has not replicated offset {offset} to this broker yet")
        divergence = epoch_divergence(partition.log, wanted)
        if divergence is not None:
            return _partition_data(partition, wanted, divergence=divergence)
        nearest = self._nearest_replica(partition, offset)
        if nearest is not None:
            return _partition_data(partition, wanted, nearest=nearest)
        reader = self.readers.get(key)
        if reader is None:
            seen = read_visible(partition, offset, limit_bytes, blocking=blocking, force=force, stable=self.is_stable)
        else:
            seen = reader.read(partition, offset, limit_bytes, blocking=blocking, force=force, stable=self.is_stable)
        self.read_bytes += len(seen.records) if reader is None else reader.kept_bytes
        aborted = _aborted(partition.log, offset, seen) if self.is_stable else None
        return _partition_data(partition, wanted, seen, aborted)

    def _nearest_replica(self, partition: Partition, offset: int) -> int | None:
        """Returns a replica in the consumer's rack to redirect the consumer to, if this broker leads the partition
        and is in another rack; else None (KIP-392)."""
        rack, lead, brokers = self.request.rack_id, partition.leadership, self.broker.image.brokers
        if not rack or lead is None or self.broker.configs["replica.selector.class"] != RACK_AWARE:
            return None
        near = {node for node, known in brokers.items() if known.rack == rack}
        return None if self.broker.node_id in near else lead.nearest(offset, near)

    def response(self) -> FetchResponse:
        return run_steps(self.response_steps())

    def response_steps(self) -> Steps[FetchResponse]:
        """Like `response`, as a generator that can be run in time slices."""
        if self.follower is not None:
            self.follower.charge_throttle()
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


def _partition_data(
    partition: Partition,
    wanted: FetchPartition,
    seen: VisibleRecords | None = None,
    aborted: list[AbortedTransaction] | None = None,
    divergence: EpochEndOffset | None = None,
    nearest: int = -1,
) -> PartitionData:
    """Returns a partition's part of the response: the records, or the offset to truncate to (KIP-595), or the
    replica to read from (KIP-392)."""
    records: Buffer = b""
    if seen is None:
        mark, last_stable = partition.high_watermark, partition.last_stable_offset
    else:
        records, mark, last_stable, _ = seen
    return PartitionData(
        partition_index=wanted.partition,
        error_code=0,
        high_watermark=mark,
        last_stable_offset=last_stable,
        log_start_offset=partition.log.start_offset,
        diverging_epoch=divergence,
        aborted_transactions=aborted,
        preferred_read_replica=nearest,
        records=records,
    )


def _aborted(log: Log, offset: int, seen: VisibleRecords) -> list[AbortedTransaction]:
    """Returns the aborted transactions in the records `seen`, which the consumer must skip (KIP-98)."""
    if seen.is_changed or offset > log.newest_abort or not seen.records:
        return []
    end = offset
    for _, header in batches(seen.records):
        end = header.next_offset
    return [
        AbortedTransaction(producer_id=found.producer_id, first_offset=found.first_offset)
        for found in log.aborted_between(offset, end)
    ]


def _error_data(number: int, error: PenstockError, start_offset: int = -1) -> PartitionData:
    return PartitionData(
        partition_index=number,
        error_code=error.code if error.code != ErrorCode.NONE else ErrorCode.UNKNOWN_SERVER_ERROR,
        high_watermark=-1,
        log_start_offset=start_offset,
        aborted_transactions=None,
        records=b"",
    )
