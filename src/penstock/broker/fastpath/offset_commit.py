"""The fast path of OffsetCommit: repeated commits of the same partitions, where only the offsets differ.

The constant bytes are compared as a whole; the offsets and leader epochs between them are passed to the coordinator,
which checks, persists and applies them like any commit (`RepeatedCommit`, `StateRuntime.repeat`). The response to a
successful commit is always the same. All other requests are decoded, as in produce_and_fetch.py.
"""

import struct
from typing import Any, Final, NamedTuple

from penstock.broker.broker import Broker
from penstock.broker.fastpath.counters import FastPath
from penstock.foundation.decision import ClientRequest
from penstock.foundation.errors import PenstockError
from penstock.groups.coordinator import GroupCoordinator
from penstock.groups.offsets.commit_responses import commit_response, same_code
from penstock.groups.offsets.repeated_commit import RepeatedCommit
from penstock.replication.runtime import StateRuntime
from penstock.replication.runtimes import StateRuntimes
from penstock.wire.codec import encode_bytes
from penstock.wire.frames import read_request_header, response_frame, skip_tags
from penstock.wire.keys import ApiKey
from penstock.wire.messages.offset_commit import (
    OffsetCommitRequest,
    OffsetCommitRequestPartition,
    OffsetCommitRequestTopic,
)
from penstock.wire.schema import Buffer, message_of
from penstock.wire.templates import make_template

VERSIONS: Final = range(6, 11)
"""OffsetCommit versions that the fast path handles: those with leader epochs."""
TEMPLATES_MAX: Final = 16
"""Maximum number of OffsetCommit requests that one fast path remembers; all are forgotten when it is reached."""
_HEADER_BYTES: Final = 8  # API key, version, correlation id


class _CommitTemplate(NamedTuple):
    """Layouts of a repeated OffsetCommit request and its response, and the command that commits the offsets."""

    unpack: Any  # the bound method of a Struct, as is `pack`
    fixed: tuple[bytes | int, ...]  # all of them bytes
    groups: StateRuntimes
    number: int
    """Index of the __consumer_offsets partition that the group belonged to when the template was made."""
    runtime: StateRuntime
    recommit: RepeatedCommit
    pack: Any
    length: int
    answer: bytes


class OffsetCommitFastPath(FastPath):
    """The fast path of one version of OffsetCommit."""

    api_key = ApiKey.OFFSET_COMMIT

    def __init__(self, version: int) -> None:
        super().__init__(version)
        self._flexible = version >= message_of(OffsetCommitRequest).flexible_from
        self._templates: dict[int, _CommitTemplate] = {}
        """By frame size: a known request. A frame that differs only in offsets and leader epochs is not decoded."""
        self._last: Any = None
        """The last decoded request, without its offsets and leader epochs."""

    def handle(self, data: memoryview, at: int, stop: int, correlation_id: int, out: list[Buffer]) -> int:
        """Handles the frame `data[at:stop]`. Returns the size added to `out`, or 0 if the frame must be decoded."""
        template = self._templates.get(stop - at)
        if template is None:
            return 0
        unpack, fixed, groups, number, runtime, recommit, pack, length, answer = template
        fields = unpack(data, at + _HEADER_BYTES)
        if fields[::3] != fixed or groups.partition_of(recommit.group_id) != number:
            return 0
        if not runtime.repeat(recommit, (fields[1::3], fields[2::3])):
            return 0
        out.append(pack(length, correlation_id, answer))
        return length + 4

    def learn(self, frame: memoryview, request: OffsetCommitRequest, broker: Broker) -> None:
        """If a commit repeats the last one, with any offsets, stores it so that `handle` need not decode it again."""
        fixed_part = _fixed_part(request)
        if fixed_part != self._last:
            self._last = fixed_part
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
        # A commit does not depend on the client.
        command = ClientRequest(body=request, version=self._version, client_id="", client_host="")
        recommit = RepeatedCommit.of(machine, command, broker.clock.steady_ms())
        start = self._body_at(frame)
        if recommit is None or encode_bytes(request, self._version) != frame[start:]:
            return  # refused, or encoded unusually: there may be unknown fields
        head = bytes(frame[_HEADER_BYTES:start])
        zeros, ones = (head + encode_bytes(_with_numbers(request, number), self._version) for number in (0, -1))
        template = make_template(zeros, ones, "qi" * recommit.count)
        answer = b"".join(response_frame(commit_response(request, same_code(0)), self._version, 0))[8:]
        if len(self._templates) >= TEMPLATES_MAX:
            self._templates.clear()
        self._templates[len(frame)] = _CommitTemplate(
            template.layout.unpack_from,
            template.fields[::3],
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


def _fixed_part(request: OffsetCommitRequest) -> Any:
    """Returns fields that are equal if a client repeats a commit with other offsets and leader epochs."""
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


def _with_numbers(request: OffsetCommitRequest, number: int) -> OffsetCommitRequest:
    """Returns the request with `number` in place of all offsets and leader epochs."""
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
