"""The express lane of OffsetCommit: a member commits the same partitions over and over; only the numbers differ.

What does not differ is compared as a whole; the offsets and leader epochs between it are handed to the coordinator,
which checks, persists and applies them as it does any commit (`Recommit`, `StateRuntime.repeat`). What it answers
with when all is well is always the same. Everything else goes the general way, as in produce_and_fetch.py.
"""

import struct
from typing import Any, Final, NamedTuple

from penstock.broker.broker import Broker
from penstock.broker.fastpath.counters import Lane
from penstock.foundation.decision import Ask
from penstock.foundation.errors import PenstockError
from penstock.groups.coordinator import GroupCoordinator
from penstock.groups.offsets.repeated_commit import Recommit
from penstock.replication.runtime import StateRuntime
from penstock.replication.runtimes import StateRuntimes
from penstock.wire.codec import encode_bytes
from penstock.wire.frames import read_request_header, response_frame, skip_tags
from penstock.wire.keys import ApiKey
from penstock.wire.messages.offset_commit import (
    OffsetCommitRequest,
    OffsetCommitRequestPartition,
    OffsetCommitRequestTopic,
    OffsetCommitResponse,
    OffsetCommitResponsePartition,
    OffsetCommitResponseTopic,
)
from penstock.wire.schema import Buffer, message_of
from penstock.wire.templates import find_holes

VERSIONS: Final = range(6, 11)
"""Those that have leader epochs."""
SHAPES_MAX: Final = 16
"""Commits of one connection that are remembered; then all are forgotten and learnt again."""
_HEADER_BYTES: Final = 8  # API key, version, correlation id


class _Shape(NamedTuple):
    """A request with holes, what it asks for, and its answer, which has one: the correlation id."""

    unpack: Any  # the bound method of a Struct, as is `pack`
    fixed: tuple[bytes | int, ...]  # bytes, all of them
    groups: StateRuntimes
    number: int
    """Of the coordinator's partition: there may be more of them one day, and then others decide."""
    runtime: StateRuntime
    recommit: Recommit
    pack: Any
    length: int
    answer: bytes


class ExpressCommit(Lane):
    """One version of OffsetCommit."""

    api_key = ApiKey.OFFSET_COMMIT

    def __init__(self, version: int) -> None:
        super().__init__(version)
        self._flexible = version >= message_of(OffsetCommitRequest).flexible_from
        self._shapes: dict[int, _Shape] = {}
        """By the size of a frame."""
        self._last: Any = None
        """What the last request said that went the general way, but for its numbers."""

    def handle(self, data: memoryview, at: int, stop: int, correlation_id: int, out: list[Buffer]) -> int:
        """Answer the frame between `at` and `stop`; how many bytes were put to `out`, 0 as for Produce."""
        shape = self._shapes.get(stop - at)
        if shape is None:
            return 0
        unpack, fixed, groups, number, runtime, recommit, pack, length, answer = shape
        fields = unpack(data, at + _HEADER_BYTES)
        if fields[::3] != fixed or groups.partition_of(recommit.group_id) != number:
            return 0
        if not runtime.repeat(recommit, (fields[1::3], fields[2::3])):
            return 0
        out.append(pack(length, correlation_id, answer))
        return length + 4

    def learn(self, frame: memoryview, request: OffsetCommitRequest, broker: Broker) -> None:
        """Remember a commit that went the general way, once it has come twice: many come only once."""
        said = _same_for_all(request)
        if said != self._last:
            self._last = said
            return
        self._last = None
        try:
            runtime = broker.groups.find(request.group_id)
        except PenstockError:
            return
        if not runtime.may_repeat:
            return
        machine = runtime.machine
        assert isinstance(machine, GroupCoordinator)
        # Whoever asks is of no concern to a commit.
        ask = Ask(body=request, version=self._version, client_id="", client_host="")
        recommit = Recommit.of(machine, ask, broker.clock.steady_ms())
        start = self._body_at(frame)
        if recommit is None or encode_bytes(request, self._version) != frame[start:]:
            return  # not allowed, or not written as usual: there may be fields that we do not know
        head = bytes(frame[_HEADER_BYTES:start])
        zeros, ones = (head + encode_bytes(_numbered(request, number), self._version) for number in (0, -1))
        holes = find_holes(zeros, ones, "qi" * recommit.count)
        answer = b"".join(response_frame(_response(request), self._version, 0))[8:]
        if len(self._shapes) >= SHAPES_MAX:
            self._shapes.clear()
        self._shapes[len(frame)] = _Shape(
            holes.layout.unpack_from,
            holes.fields[::3],
            broker.groups,
            runtime.partition.name.partition,
            runtime,
            recommit,
            struct.Struct(f">ii{len(answer)}s").pack,
            len(answer) + 4,
            answer,
        )

    def _body_at(self, frame: memoryview) -> int:
        at = read_request_header(frame).body_at
        return skip_tags(frame, at) if self._flexible else at


def _same_for_all(request: OffsetCommitRequest) -> Any:
    """What must be the same for a commit to be of the same shape, as far as it ever changes."""
    return (
        request.member_id,
        request.generation_id_or_member_epoch,
        [(topic.name, topic.topic_id, len(topic.partitions)) for topic in request.topics],
        [
            (partition.partition_index, partition.committed_metadata)
            for topic in request.topics
            for partition in topic.partitions
        ],
    )


def _numbered(request: OffsetCommitRequest, number: int) -> OffsetCommitRequest:
    """The request with this in the place of all offsets and leader epochs."""
    topics = []
    for topic in request.topics:
        partitions = [
            OffsetCommitRequestPartition(
                partition_index=partition.partition_index,
                committed_offset=number,
                committed_leader_epoch=number,
                committed_metadata=partition.committed_metadata,
            )
            for partition in topic.partitions
        ]
        topics.append(OffsetCommitRequestTopic(name=topic.name, topic_id=topic.topic_id, partitions=partitions))
    return OffsetCommitRequest(
        group_id=request.group_id,
        generation_id_or_member_epoch=request.generation_id_or_member_epoch,
        member_id=request.member_id,
        group_instance_id=request.group_instance_id,
        topics=topics,
    )


def _response(request: OffsetCommitRequest) -> OffsetCommitResponse:
    """What is answered if all is well."""
    topics = []
    for topic in request.topics:
        partitions = [
            OffsetCommitResponsePartition(partition_index=partition.partition_index, error_code=0)
            for partition in topic.partitions
        ]
        topics.append(OffsetCommitResponseTopic(name=topic.name, topic_id=topic.topic_id, partitions=partitions))
    return OffsetCommitResponse(topics=topics)
