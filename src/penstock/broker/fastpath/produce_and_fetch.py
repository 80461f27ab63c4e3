"""The express lane: requests that look like the one before are not decoded again.

A client sends the same request over and over: the same client id, topic and partition, the same settings; only the
correlation id and the records or the offset change. So the bytes around those are looked up as a whole, and lead to
what the general way found out about them the first time. The answer is made the same way, from the bytes that the
general encoder gave. Whatever is unusual (an error, a wait, a batch that must be opened) goes the general way, which
alone decides what is right: the lane only saves the way there.

Each connection has lanes of its own, one for each version of Produce, Fetch and OffsetCommit that it speaks; that of
OffsetCommit is in offset_commit.py.
"""

import struct
from collections.abc import Callable
from typing import Any, Final, NamedTuple

from penstock.broker.broker import Broker
from penstock.broker.fastpath import offset_commit
from penstock.broker.fastpath.counters import Lane
from penstock.broker.fastpath.offset_commit import ExpressCommit
from penstock.broker.isolation import wants_committed
from penstock.foundation.errors import PenstockError
from penstock.log.log import Log
from penstock.records.layout import HEADER_BYTES
from penstock.replication.partition import Partition
from penstock.wire.frames import response_frame
from penstock.wire.keys import ApiKey
from penstock.wire.messages.fetch import FetchableTopicResponse, FetchRequest, FetchResponse, PartitionData
from penstock.wire.messages.produce import (
    PartitionProduceResponse,
    ProduceRequest,
    ProduceResponse,
    TopicProduceResponse,
)
from penstock.wire.schema import Buffer, message_of
from penstock.wire.varint import uvarint

JOIN_BYTES_MAX: Final = 32 << 10
"""Answers up to this size are copied into one piece; larger ones are handed over in pieces."""
ROUTES_MAX: Final = 1000
"""Of one lane; then all are forgotten and learnt again."""
LANES: Final = {
    *((ApiKey.PRODUCE, version) for version in range(5, 14)),
    *((ApiKey.FETCH, version) for version in range(9, 19)),
    *((ApiKey.OFFSET_COMMIT, version) for version in offset_commit.VERSIONS),
}
"""Of Produce and Fetch, versions whose answers have the three offsets side by side."""
_HEADER_BYTES: Final = 8  # API key, version, correlation id
_MARK: Final = 0x1122334455667788
_MARKS: Final = struct.pack(">qqq", _MARK, _MARK, _MARK)
_INT32: Final = struct.Struct(">i")
_INT64: Final = struct.Struct(">q")
_PLACE: Final = struct.Struct(">iiq")  # partition, leader epoch, offset: as they stand in a fetch


class _Answer(NamedTuple):
    """An answer with holes: its length, the correlation id, and three offsets."""

    pack: Any  # the bound method of a Struct
    length: int
    before: bytes
    after: bytes


def _answer_like(response: Any, version: int, cut: int) -> _Answer:
    """Made from what the encoder gives; `cut` bytes at the end are left to the caller."""
    raw = b"".join(response_frame(response, version, 0))
    at = raw.index(_MARKS)
    before, after = raw[8:at], raw[at + len(_MARKS) : len(raw) - cut]
    return _Answer(struct.Struct(f">ii{len(before)}sqqq{len(after)}s").pack, len(raw) - 4, before, after)


class ExpressProduce(Lane):
    """One version of Produce, for requests with one batch."""

    api_key = ApiKey.PRODUCE

    def __init__(self, version: int, now_ms: Callable[[], int]) -> None:
        super().__init__(version)
        self._now_ms = now_ms
        self._flexible = version >= message_of(ProduceRequest).flexible_from
        self._routes: dict[bytes, tuple[Partition, Log, _Answer]] = {}
        self._records_at = 0  # where, in a frame, the length of the records stood last time

    def handle(self, data: memoryview, at: int, stop: int, correlation_id: int, out: list[Buffer]) -> int:
        """Answer the frame between `at` and `stop`; how many bytes were put to `out`.

        0 if the general way must be taken: then nothing was done.
        """
        records_at = at + self._records_at
        route = self._routes.get(data[at + _HEADER_BYTES : records_at].tobytes())
        if route is None or stop - records_at < HEADER_BYTES:
            return 0
        partition, log, (pack, length, before, after) = route
        if not partition.is_express:
            return 0
        if self._flexible:
            size = data[records_at]
            records_at += 1
            if size > 127:
                size = size & 127 | data[records_at] << 7
                records_at += 1
                if size > 16383:
                    size = size & 16383 | data[records_at] << 14
                    records_at += 1
            end = records_at + size - 1
            if end + 3 != stop or data[end] or data[end + 1] or data[end + 2]:
                return 0  # tagged fields of partition, topic or request
        else:
            (size,) = _INT32.unpack_from(data, records_at)
            records_at += 4
            end = records_at + size
            if end != stop:
                return 0
        try:
            base, _, append_time_ms, _ = partition.append(data[records_at:end], self._now_ms())
        except PenstockError:
            return 0
        out.append(pack(length, correlation_id, before, base, append_time_ms, log.start_offset, after))
        return length + 4

    def learn(self, frame: memoryview, request: ProduceRequest, broker: Broker) -> None:
        """Remember a request that went the general way, if it is of the usual kind."""
        if request.transactional_id is not None or request.acks == 0 or len(request.topic_data) != 1:
            return
        (topic,) = request.topic_data
        if len(topic.partition_data) != 1 or not topic.partition_data[0].records:
            return
        (data,) = topic.partition_data
        assert data.records is not None
        size = len(data.records)
        at = len(frame) - size - (3 + len(uvarint(size + 1)) if self._flexible else 4)
        try:
            partition = broker.partition(topic.name, topic.topic_id, data.index)
        except PenstockError:
            return
        if partition.is_internal:
            return  # its refusal must not be taken for a request of the usual kind
        answer = PartitionProduceResponse(
            index=data.index, error_code=0, base_offset=_MARK, log_append_time_ms=_MARK, log_start_offset=_MARK
        )
        topics = [TopicProduceResponse(name=topic.name, topic_id=topic.topic_id, partition_responses=[answer])]
        if len(self._routes) >= ROUTES_MAX:
            self._routes.clear()
        made = _answer_like(ProduceResponse(responses=topics), self._version, cut=0)
        self._records_at = at
        self._routes[bytes(frame[_HEADER_BYTES:at])] = partition, partition.log, made


class _FetchRoute(NamedTuple):
    partition: Partition
    log: Log
    leader_epoch: int
    min_bytes: int
    max_bytes: int
    is_stable: bool
    """Whether only committed records are wanted."""
    answer: _Answer


class ExpressFetch(Lane):
    """One version of Fetch, for requests outside sessions, for one partition that has enough to give."""

    api_key = ApiKey.FETCH

    def __init__(self, version: int) -> None:
        super().__init__(version)
        self._flexible = version >= message_of(FetchRequest).flexible_from
        self._routes: dict[bytes, _FetchRoute] = {}
        self._shapes: dict[int, Any] = {}
        """By the size of a frame: how to take it apart into what is before the offset, the offset, and the rest."""
        self._size, self._number = -1, b""  # of the last answer's records, and how it is written

    def handle(self, data: memoryview, at: int, stop: int, correlation_id: int, out: list[Buffer]) -> int:
        """Answer the frame between `at` and `stop`; how many bytes were put to `out`, 0 as for Produce."""
        unpack = self._shapes.get(stop - at)
        if unpack is None:
            return 0
        head, offset, tail = unpack(data, at + _HEADER_BYTES)
        route = self._routes.get(head + tail)
        if route is None:
            return 0
        partition, log, leader_epoch, min_bytes, max_bytes, is_stable, (pack, length, before, after) = route
        if not partition.is_express or (leader_epoch >= 0 and leader_epoch != partition.leader_epoch):
            return 0
        mark = stable = limit = partition.high_watermark
        if log.has_transactions:
            stable = partition.last_stable_offset
            if is_stable:
                if offset <= log.newest_abort:
                    return 0  # what was aborted must be named
                limit = stable
        try:
            records = log.read(offset, max_bytes, limit)
        except PenstockError:
            return 0
        size = len(records)
        if size < min_bytes:
            return 0
        if not self._flexible:
            number, tags = _INT32.pack(size), b""
            length += size
        else:
            if size != self._size:
                self._size, self._number = size, uvarint(size + 1)
            number = self._number
            tags = b"\0\0\0"
            length += size + len(number) - 1
        front = pack(length, correlation_id, before, mark, stable, log.start_offset, after)
        if size < JOIN_BYTES_MAX:
            out.append(b"".join((front, number, records, tags)))
        else:
            out += (front + number, records, tags)
        return length + 4

    def learn(self, frame: memoryview, request: FetchRequest, broker: Broker) -> None:
        """Remember a request that went the general way, if it is of the usual kind."""
        if request.session_id != 0 or request.session_epoch != -1 or len(request.topics) != 1:
            return
        (topic,) = request.topics
        if len(topic.partitions) != 1 or topic.partitions[0].last_fetched_epoch != -1:
            return
        (wanted,) = topic.partitions
        raw = bytes(frame)
        place = _PLACE.pack(wanted.partition, wanted.current_leader_epoch, wanted.fetch_offset)
        if raw.count(place) != 1:
            return
        try:
            is_stable = wants_committed(request.isolation_level)
            partition = broker.partition(topic.topic, topic.topic_id, wanted.partition)
        except PenstockError:
            return
        data = PartitionData(
            partition_index=wanted.partition,
            error_code=0,
            high_watermark=_MARK,
            last_stable_offset=_MARK,
            log_start_offset=_MARK,
            aborted_transactions=() if is_stable else None,
            records=b"",
        )
        topics = [FetchableTopicResponse(topic=topic.topic, topic_id=topic.topic_id, partitions=[data])]
        response = FetchResponse(throttle_time_ms=0, responses=topics)
        if len(self._routes) >= ROUTES_MAX:
            self._routes.clear()
            self._shapes.clear()
        at = raw.index(place) + 8
        self._shapes[len(raw)] = struct.Struct(f">{at - _HEADER_BYTES}sq{len(raw) - at - 8}s").unpack_from
        limit_bytes = min(wanted.partition_max_bytes, request.max_bytes, broker.configs["fetch.max.bytes"])
        self._routes[raw[_HEADER_BYTES:at] + raw[at + 8 :]] = _FetchRoute(
            partition,
            partition.log,
            wanted.current_leader_epoch,
            request.min_bytes,
            limit_bytes,
            is_stable,
            _answer_like(response, self._version, cut=4),
        )


ExpressLane = ExpressProduce | ExpressFetch | ExpressCommit


def learn(lanes: dict[int, ExpressLane], frame: memoryview, request: Any, broker: Broker) -> None:
    """A request was answered at once: let one like it take a lane, if there are lanes for it.

    Lanes are found by API key and version, as one number of four bytes, as they stand in a request.
    """
    kind: int
    (kind,) = _INT32.unpack_from(frame)
    lane = lanes.get(kind)
    if lane is None and (kind >> 16, kind & 0xFFFF) in LANES:
        lane = lanes[kind] = _new_lane(kind >> 16, kind & 0xFFFF, broker)
    if lane is not None:
        lane.learn(frame, request, broker)


def _new_lane(api_key: int, version: int, broker: Broker) -> ExpressLane:
    if api_key == ApiKey.PRODUCE:
        return ExpressProduce(version, broker.clock.now_ms)
    return ExpressFetch(version) if api_key == ApiKey.FETCH else ExpressCommit(version)
