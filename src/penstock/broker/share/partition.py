"""One partition of a share group: acquires, reads, acknowledges and releases messages (KIP-932)."""

import asyncio
from bisect import bisect_left
from collections.abc import Callable, Iterable, Sequence
from itertools import islice
from typing import Any, Final, NamedTuple

from penstock.broker.broker import Broker
from penstock.broker.queues.message_reader import readable_end
from penstock.broker.queues.partition import QueuePartition, Ranges, ReceiveRequest, Waiter
from penstock.broker.share.delivery_terms import DeliveryTerms
from penstock.cluster.topic_changes import check_may_share
from penstock.foundation.errors import InvalidRequest, NotLeaderOrFollower, OffsetNotAvailable, PenstockError
from penstock.foundation.ids import TopicIdPartition
from penstock.groups.group_configs import EARLIEST, reset_before_ms
from penstock.log.disk import ColdRead
from penstock.log.timestamp_lookup import find_time
from penstock.queues.commands import Acknowledge, Acknowledgement, AckType, ReleaseHolder, SetPosition
from penstock.queues.errors import OverLimit
from penstock.records.batch import batches
from penstock.replication.partition import Partition
from penstock.wire.messages.share_fetch import AcknowledgementBatch, AcquiredRecords
from penstock.wire.schema import Buffer

GAP: Final = 0
ACCEPT: Final = 1
RELEASE: Final = 2
REJECT: Final = 3
RENEW: Final = 4
_ACK_TYPES: Final = {
    GAP: AckType.DELETE,  # there is no message at that offset
    ACCEPT: AckType.DELETE,
    RELEASE: AckType.RELEASE,
    REJECT: AckType.REJECT,
    RENEW: AckType.RENEW,
}
READ_BYTES_MIN: Final = 16 << 10
READ_BYTES_MAX: Final = 1 << 20
READ_BYTES_EACH: Final = 2 << 10
"""Estimated size of a message, in bytes, from which the size of the first read is computed."""
COUNT_MAX: Final = 2**15 - 1

Then = Callable[[Any], None]


class SharePartition(NamedTuple):
    """A partition led by this broker, as a share group reads it. `delivery`: None until delivery state is loaded."""

    partition: Partition
    terms: DeliveryTerms
    delivery: QueuePartition | None

    @classmethod
    def find(cls, broker: Broker, group_id: str, tp: TopicIdPartition) -> "SharePartition":
        """Returns partition `tp` for a share group. Raises a Kafka error if this broker does not lead it, or if
        share groups cannot read it (internal topics, topics with delayed messages, FIFO queues)."""
        topic_id, number = tp
        partition = broker.partition("", topic_id, number)
        check_may_share(broker.image.topics[topic_id])
        terms = broker.share_terms.of(group_id, broker.image.topics[topic_id])
        queue_partitions = broker.queue_partitions
        return cls(
            partition, terms, queue_partitions.find(topic_id, number) if queue_partitions is not None else None
        )

    # -- acquiring

    def initialize_group(self, group_id: str, now_ms: int) -> None:
        """Sets the start offset of a new share group from its `share.auto.offset.reset`; does nothing if the group
        has a start offset. Raises OffsetNotAvailable while a new leader's high watermark is not current."""
        delivery = self.delivery
        if delivery is None or delivery.machine.group(group_id) is not None:
            return
        partition, offset_reset = self.partition, self.terms.offset_reset
        before_ms = reset_before_ms(offset_reset)
        if offset_reset == EARLIEST:
            offset = partition.log.start_offset
        elif not partition.is_settled:
            raise OffsetNotAvailable(
                f"{partition.name} has a new leader whose high watermark is not current yet; try again (KIP-207)"
            )
        else:
            found, end = None, readable_end(partition, stable=False)
            if before_ms is not None:
                found = find_time(partition.log, now_ms - before_ms, end)
            offset = end if found is None else found[1]
        # Applied at once: the next request finds the group.
        delivery.runtime.submit(SetPosition(group_id, offset), _ignore)

    def receive_request(
        self, group_id: str, member_id: str, max_records: int, max_bytes: int, is_strict: bool
    ) -> ReceiveRequest:
        return ReceiveRequest(
            group=group_id,
            holder=member_id,
            max_messages=min(max_records, self.terms.settings.in_flight_max),
            visibility_ms=self.terms.lock_ms,
            settings=self.terms.settings,
            delay_ms=self.terms.delay_ms,
            max_bytes=max_bytes,
            whole_ranges=not is_strict,
            is_stable=self.terms.is_stable,
            is_plain=self.terms.is_plain,
        )

    def is_ready(self, group_id: str) -> bool:
        """Whether the delivery state is loaded and the share group has a start offset."""
        return self.delivery is not None and self.delivery.machine.group(group_id) is not None

    def acquire(self, receive_request: ReceiveRequest, then: Callable[[Ranges | PenstockError], None]) -> None:
        """Acquires available messages; calls `then` with their ranges, or () if none can be acquired now."""
        if self.delivery is None or not self.is_ready(receive_request.group):
            then(())
        else:
            self.delivery.acquire(receive_request, lambda reply: then(() if isinstance(reply, OverLimit) else reply))

    def read(self, ranges: Ranges) -> "Read":
        """Returns the record batches that contain the messages of `ranges`, as stored in the log. Raises ColdRead if
        they are not in the page cache."""
        found = Read([], [])
        read_to = self.partition.log.start_offset  # older records are deleted: the member sees gaps
        for acquired in ranges:
            at = max(acquired.first, read_to)
            while at <= acquired.last:
                size = (acquired.last - at + 1) * READ_BYTES_EACH
                data = self.partition.read(at, max(READ_BYTES_MIN, min(size, READ_BYTES_MAX)))
                end, run_from, run_to = at, 0, 0
                for start, header in batches(data):
                    end = header.next_offset
                    if header.base_offset > acquired.last:
                        break
                    if end > at and not header.is_control:
                        if start != run_to:  # adjacent batches are sent as one piece
                            found.add(data, run_from, run_to)
                            run_from = start
                        run_to = start + header.size_bytes
                        found.ends.append(end - 1)
                        read_to = end
                found.add(data, run_from, run_to)
                if end <= at:
                    break  # compaction removed the rest
                at = end
        return found

    # -- acknowledging

    def acknowledge(
        self,
        group_id: str,
        member_id: str,
        acknowledged: Sequence[AcknowledgementBatch],
        then: Callable[[PenstockError | None], None],
    ) -> None:
        """Applies a member's acknowledgements; once they are committed, calls `then` with the first error or None."""
        if self.delivery is None:
            then(NotLeaderOrFollower(f"{self.partition.name} is loading its delivery state; try again"))
            return
        now_ms = self.delivery.now_ms
        items = tuple(
            Acknowledgement(
                first, last, member_id, _ACK_TYPES[kind], now_ms + self.terms.lock_ms if kind == RENEW else 0
            )
            for first, last, kind in runs_of(acknowledged)
        )
        if not self.terms.may_renew and any(item.ack_type is AckType.RENEW for item in items):
            then(
                InvalidRequest(
                    f"group {group_id!r} cannot renew acquisition locks: share.renew.acknowledge.enable is false"
                )
            )
            return

        def on_acknowledged(reply: Sequence[PenstockError | None] | PenstockError) -> None:
            if isinstance(reply, PenstockError):
                then(reply)
            else:
                then(next((error for error in reply if error is not None), None))

        self.delivery.acknowledge(Acknowledge(group_id, items, self.terms.settings), on_acknowledged)

    def release_member(self, group_id: str, member_id: str, *, is_undone: bool) -> None:
        """Releases all messages that a member has acquired. `is_undone`: whether the delivery is not counted."""
        delivery = self.delivery
        if delivery is None:
            return  # its acquisition locks expire

        def on_released(reply: Any) -> None:
            # One decision releases a limited number of messages: repeat for the rest.
            if isinstance(reply, int) and reply and not delivery.is_closed:
                self.release_member(group_id, member_id, is_undone=is_undone)
            delivery.check_waiters(group_id)

        delivery.runtime.submit(ReleaseHolder(group_id, member_id, is_undone), on_released)


class Read(NamedTuple):
    """Record batches read from the log for a ShareFetch response."""

    pieces: list[Buffer]
    ends: list[int]
    """The last offset of each record batch."""

    def add(self, data: Buffer, start: int, end: int) -> None:
        if start < end:
            self.pieces.append(data if end - start == len(data) else memoryview(data)[start:end])

    @property
    def records(self) -> Buffer:
        return self.pieces[0] if len(self.pieces) == 1 else b"".join(self.pieces)


NOTHING_READ: Final = Read([], [])


class ShareWaiter(Waiter):
    """A ShareFetch that waits at all its partitions of one topic; the first partition with messages answers it."""

    __slots__ = ("at",)

    def __init__(self, receive_request: ReceiveRequest) -> None:
        super().__init__(receive_request, _ignore)
        self.at: QueuePartition | None = None
        """The partition at which messages were last requested."""

    def ask(self, partition: QueuePartition, then: Then) -> None:
        def on_acquired(reply: Ranges | PenstockError) -> None:
            self.at = partition
            then(reply)

        if partition.machine.group(self.receive_request.group) is None:
            then(())  # the group was deleted meanwhile, and must not be created again
        else:
            partition.acquire(self.receive_request, on_acquired)

    def undo(self, partition: QueuePartition, found: Ranges) -> None:
        undo(partition, self.receive_request.group, self.receive_request.holder, found)


def undo(partition: QueuePartition, group_id: str, member_id: str, ranges: Ranges) -> None:
    """Releases acquired messages that did not reach the member; the delivery is not counted."""
    if ranges and not partition.is_closed:
        items = tuple(Acknowledgement(one.first, one.last, member_id, AckType.UNDO) for one in ranges)
        partition.acknowledge(Acknowledge(group_id, items), _ignore)


def check_acknowledged(acknowledged: Sequence[AcknowledgementBatch], *, version: int, is_renew: bool) -> None:
    """Raises InvalidRequest if offsets do not increase, or `version` or `is_renew` forbids an acknowledge type."""
    before = -1
    for batch in acknowledged:
        first, last, kinds = batch.first_offset, batch.last_offset, batch.acknowledge_types
        if first > last or first <= before:
            raise InvalidRequest(
                f"acknowledged offsets {first} to {last} follow {before}; expected increasing offsets"
            )
        if len(kinds) != 1 and len(kinds) != last - first + 1:
            raise InvalidRequest(
                f"offsets {first} to {last} have {len(kinds)} acknowledge types; expected 1, or one per offset"
            )
        known = RENEW if version >= 2 else REJECT
        if not all(GAP <= kind <= known for kind in kinds):
            raise InvalidRequest(f"unknown acknowledge type in {sorted(set(kinds))}; expected {GAP} to {known}")
        if RENEW in kinds and not is_renew:
            raise InvalidRequest("acknowledge type RENEW needs a request with is_renew_ack set (KIP-1222)")
        before = last


def runs_of(acknowledged: Iterable[AcknowledgementBatch]) -> list[tuple[int, int, int]]:
    """Returns runs of equal acknowledge types, each as (first offset, last offset, acknowledge type)."""
    found: list[tuple[int, int, int]] = []
    for batch in acknowledged:
        kinds = batch.acknowledge_types
        if len(kinds) == 1:
            found.append((batch.first_offset, batch.last_offset, kinds[0]))
            continue
        first = batch.first_offset
        for index, kind in enumerate(kinds):
            if index and kind != kinds[index - 1]:
                found.append((first, batch.first_offset + index - 1, kinds[index - 1]))
                first = batch.first_offset + index
        found.append((first, batch.last_offset, kinds[-1]))
    return found


def acquired_records(ranges: Ranges, ends: Sequence[int], batch_size: int) -> list[AcquiredRecords]:
    """Returns the acquired ranges for the response, split at batch ends into parts of about `batch_size` records.

    `ends`: the last offset of each record batch, in order.
    """
    found = []
    for acquired in ranges:
        first, count = acquired.first, min(acquired.count, COUNT_MAX)
        for end in islice(ends, bisect_left(ends, first), bisect_left(ends, acquired.last)):
            if end - first + 1 >= batch_size > 0:
                found.append(AcquiredRecords(first_offset=first, last_offset=end, delivery_count=count))
                first = end + 1
        found.append(AcquiredRecords(first_offset=first, last_offset=acquired.last, delivery_count=count))
    return found


def warm(broker: Broker, cold: ColdRead, then: Callable[[], None], on_error: Callable[[PenstockError], None]) -> None:
    """Loads a cold segment into the page cache on a thread, then calls `then`, or `on_error` with the error."""

    async def read() -> PenstockError | None:
        try:
            await asyncio.get_running_loop().run_in_executor(broker.threads, cold.warm)
        except PenstockError as error:
            return error
        return None

    broker.run(read(), lambda error: then() if error is None else on_error(error))


def _ignore(reply: object) -> None:
    pass
