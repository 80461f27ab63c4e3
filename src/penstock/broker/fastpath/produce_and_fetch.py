"""The fast path of Produce and Fetch: requests that look like an earlier request are not decoded again.

A client sends the same request over and over: the same client id, topic, partition and settings; only the
correlation id and the records or the offset change. A table maps the unchanging bytes to the partition that the
earlier request named. The response is encoded once as a template, into which new offsets are written.
Unusual requests (an error, a wait, a batch that must be decompressed) are decoded and handled as usual: the fast path
only saves decoding and encoding.

Each connection has its own fast paths, one for each version of Produce, Fetch and OffsetCommit that it uses; the fast
path for OffsetCommit is in offset_commit.py.
"""

import struct
from typing import Any, Final, NamedTuple

from penstock.broker.broker import Broker
from penstock.broker.fastpath import offset_commit
from penstock.broker.fastpath.counters import FastPath
from penstock.broker.fastpath.offset_commit import OffsetCommitFastPath
from penstock.broker.isolation import wants_committed
from penstock.broker.produce.validation import is_valid_now
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
"""Maximum size, in bytes, of fetched records that are copied into one buffer with the rest of the response."""
ROUTES_MAX: Final = 1000
"""Maximum number of different requests that one fast path remembers; all are forgotten when it is reached."""
FAST_PATH_VERSIONS: Final = {
    *((ApiKey.PRODUCE, version) for version in range(5, 14)),
    *((ApiKey.FETCH, version) for version in range(9, 19)),
    *((ApiKey.OFFSET_COMMIT, version) for version in offset_commit.VERSIONS),
}
"""The (API key, version) pairs that have a fast path."""
_HEADER_BYTES: Final = 8  # API key, version, correlation id
_PLACEHOLDER: Final = 0x1122334455667788
_PLACEHOLDERS: Final = struct.pack(">qqq", _PLACEHOLDER, _PLACEHOLDER, _PLACEHOLDER)
_INT32: Final = struct.Struct(">i")
_INT64: Final = struct.Struct(">q")
_FETCH_POSITION: Final = struct.Struct(">iiq")  # partition, leader epoch, offset, as in a fetch request


class _ResponseTemplate(NamedTuple):
    """An encoded response without the fields that `pack` fills in: length, correlation id, and three 64-bit numbers
    (in a fetch response three offsets; in a produce response base offset, append time and log start offset)."""

    pack: Any  # the bound method of a Struct
    length: int
    before: bytes
    after: bytes


def _response_template(response: Any, version: int, cut: int) -> _ResponseTemplate:
    """Encodes `response` as a template. Its three adjacent fields with value _PLACEHOLDER are filled in per
    request. The last `cut` bytes are left out: in a Fetch response, they depend on the records."""
    raw = b"".join(response_frame(response, version, 0))
    at = raw.index(_PLACEHOLDERS)
    before, after = raw[8:at], raw[at + len(_PLACEHOLDERS) : len(raw) - cut]
    return _ResponseTemplate(struct.Struct(f">ii{len(before)}sqqq{len(after)}s").pack, len(raw) - 4, before, after)


class ProduceFastPath(FastPath):
    """The fast path of one version of Produce, for requests with one batch."""

    api_key = ApiKey.PRODUCE

    def __init__(self, version: int, broker: Broker) -> None:
        super().__init__(version)
        self._broker = broker
        self._now_ms = broker.clock.now_ms
        self._flexible = version >= message_of(ProduceRequest).flexible_from
        self._routes: dict[bytes, tuple[Partition, Log, _ResponseTemplate]] = {}
        self._records_at = 0  # position of the records' length in the last frame

    def handle(self, data: memoryview, at: int, stop: int, correlation_id: int, out: list[Buffer]) -> int:
        """Handles the frame at `data[at:stop]`. Returns the number of bytes added to `out`.

        Returns 0, and has changed nothing, if the request must be decoded.
        """
        records_at = at + self._records_at
        route = self._routes.get(data[at + _HEADER_BYTES : records_at].tobytes())
        if route is None or stop - records_at < HEADER_BYTES:
            return 0
        partition, log, (pack, length, before, after) = route
        if not partition.allows_fast_path:
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
        if partition.validates_schemas and not is_valid_now(partition, data[records_at:end], self._broker):
            return 0
        try:
            base, _, append_time_ms, _ = partition.append(data[records_at:end], self._now_ms())
        except PenstockError:
            return 0
        out.append(pack(length, correlation_id, before, base, append_time_ms, log.start_offset, after))
        return length + 4

    def learn(self, frame: memoryview, request: ProduceRequest, broker: Broker) -> None:
        """Remembers the layout of a decoded request if the fast path can handle requests of that layout."""
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
        if partition.is_internal or not partition.allows_fast_path:
            return  # internal: its requests are refused, not appended
        answer = PartitionProduceResponse(
            index=data.index,
            error_code=0,
            base_offset=_PLACEHOLDER,
            log_append_time_ms=_PLACEHOLDER,
            log_start_offset=_PLACEHOLDER,
        )
        topics = [TopicProduceResponse(name=topic.name, topic_id=topic.topic_id, partition_responses=[answer])]
        if len(self._routes) >= ROUTES_MAX:
            self._routes.clear()
        made = _response_template(ProduceResponse(responses=topics), self._version, cut=0)
        self._records_at = at
        self._routes[bytes(frame[_HEADER_BYTES:at])] = partition, partition.log, made


class _FetchRoute(NamedTuple):
    partition: Partition
    log: Log
    leader_epoch: int
    min_bytes: int
    max_bytes: int
    is_stable: bool
    """Whether records are read only up to the last stable offset (read_committed)."""
    answer: _ResponseTemplate


class FetchFastPath(FastPath):
    """Fast path of one Fetch version: for requests for one partition, without a session, that need not wait."""

    api_key = ApiKey.FETCH

    def __init__(self, version: int) -> None:
        super().__init__(version)
        self._flexible = version >= message_of(FetchRequest).flexible_from
        self._routes: dict[bytes, _FetchRoute] = {}
        self._layouts: dict[int, Any] = {}
        """By frame size: function that unpacks a frame into (bytes before the offset, offset, bytes after it)."""
        self._size, self._number = -1, b""  # size of the last response's records, and its encoding

    def handle(self, data: memoryview, at: int, stop: int, correlation_id: int, out: list[Buffer]) -> int:
        """Handles the frame `data[at:stop]`. Returns the size added to `out`, or 0 if the frame must be decoded."""
        unpack = self._layouts.get(stop - at)
        if unpack is None:
            return 0
        head, offset, tail = unpack(data, at + _HEADER_BYTES)
        route = self._routes.get(head + tail)
        if route is None:
            return 0
        partition, log, leader_epoch, min_bytes, max_bytes, is_stable, (pack, length, before, after) = route
        if not partition.allows_fast_path or (leader_epoch >= 0 and leader_epoch != partition.leader_epoch):
            return 0
        mark = stable = limit = partition.high_watermark
        if log.has_transactions:
            stable = partition.last_stable_offset
            if is_stable:
                if offset <= log.newest_abort:
                    return 0  # the response must list aborted transactions
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
        """Remembers the layout of a decoded request if the fast path can handle requests of that layout."""
        if request.session_id != 0 or request.session_epoch != -1 or len(request.topics) != 1:
            return
        (topic,) = request.topics
        if len(topic.partitions) != 1 or topic.partitions[0].last_fetched_epoch != -1:
            return
        (wanted,) = topic.partitions
        raw = bytes(frame)
        position = _FETCH_POSITION.pack(wanted.partition, wanted.current_leader_epoch, wanted.fetch_offset)
        if raw.count(position) != 1:
            return
        try:
            is_stable = wants_committed(request.isolation_level)
            partition = broker.partition(topic.topic, topic.topic_id, wanted.partition)
        except PenstockError:
            return
        if not partition.allows_fast_path:
            return
        data = PartitionData(
            partition_index=wanted.partition,
            error_code=0,
            high_watermark=_PLACEHOLDER,
            last_stable_offset=_PLACEHOLDER,
            log_start_offset=_PLACEHOLDER,
            aborted_transactions=() if is_stable else None,
            records=b"",
        )
        topics = [FetchableTopicResponse(topic=topic.topic, topic_id=topic.topic_id, partitions=[data])]
        response = FetchResponse(throttle_time_ms=0, responses=topics)
        if len(self._routes) >= ROUTES_MAX:
            self._routes.clear()
            self._layouts.clear()
        at = raw.index(position) + 8
        self._layouts[len(raw)] = struct.Struct(f">{at - _HEADER_BYTES}sq{len(raw) - at - 8}s").unpack_from
        limit_bytes = min(wanted.partition_max_bytes, request.max_bytes, broker.configs["fetch.max.bytes"])
        self._routes[raw[_HEADER_BYTES:at] + raw[at + 8 :]] = _FetchRoute(
            partition,
            partition.log,
            wanted.current_leader_epoch,
            request.min_bytes,
            limit_bytes,
            is_stable,
            _response_template(response, self._version, cut=4),
        )


AnyFastPath = ProduceFastPath | FetchFastPath | OffsetCommitFastPath


def learn(fast_paths: dict[int, AnyFastPath], frame: memoryview, request: Any, broker: Broker) -> None:
    """Lets the fast path for the request's API version, if any, learn to answer similar requests without decoding.

    The keys of `fast_paths` are API key and version as one four-byte number, as in the request header.
    """
    kind: int
    (kind,) = _INT32.unpack_from(frame)
    fast_path = fast_paths.get(kind)
    if fast_path is None and (kind >> 16, kind & 0xFFFF) in FAST_PATH_VERSIONS:
        fast_path = fast_paths[kind] = _new_fast_path(kind >> 16, kind & 0xFFFF, broker)
    if fast_path is not None:
        fast_path.learn(frame, request, broker)


def _new_fast_path(api_key: int, version: int, broker: Broker) -> AnyFastPath:
    if api_key == ApiKey.PRODUCE:
        return ProduceFastPath(version, broker)
    return FetchFastPath(version) if api_key == ApiKey.FETCH else OffsetCommitFastPath(version)
