"""OffsetCommit requests, encoded beforehand: groups of one member each, over as many connections."""

from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Final

from bench.blocking_client import BlockingClient, WrongAnswer
from bench.broker import KafkaBroker, topic_name
from bench.coordinators import GROUPS, ask_group, committed_offsets, delete_groups, records_kept
from bench.frames import CLIENT_ID, PRODUCE_ERROR_AT, Frame
from bench.load import Load, Sample
from bench.measure import settle
from bench.members import subscription
from bench.runs import Window
from penstock.foundation.codes import ErrorCode
from penstock.wire.frames import read_response, request_frame
from penstock.wire.keys import ApiKey
from penstock.wire.messages.join_group import JoinGroupRequest, JoinGroupRequestProtocol
from penstock.wire.messages.leave_group import LeaveGroupRequest, MemberIdentity
from penstock.wire.messages.offset_commit import (
    OffsetCommitRequest,
    OffsetCommitRequestPartition,
    OffsetCommitRequestTopic,
)
from penstock.wire.messages.sync_group import SyncGroupRequest, SyncGroupRequestAssignment

VERSION: Final = 9
"""The last that names topics, so that answers have the same layout everywhere."""
ERROR_AT: Final = 4 + PRODUCE_ERROR_AT
"""Of the first partition. As in the answer to Produce, but that the throttle time stands before."""
SESSION_MS: Final = 1_800_000
"""Members that do nothing between their runs are still members: the longest that brokers allow."""
_JOIN_VERSION: Final = 9
_SYNC_VERSION: Final = 5
_LEAVE_VERSION: Final = 5


@dataclass(frozen=True, slots=True, kw_only=True)
class Committer:
    """The only member of its group."""

    group: str
    member_id: str
    generation: int


@dataclass(frozen=True, slots=True, kw_only=True)
class Committers:
    """Groups that are ready to commit, and what they commit to."""

    broker: KafkaBroker
    topic: str
    each: tuple[Committer, ...]

    def commit(self, groups: int, partitions: int, window: Window, folder: Path) -> Sample:
        """Commit as fast as can be, one request in flight for each group; then look whether all was written down."""
        settle()
        busy = self.each[:groups]
        # A number that no run had before, so that finding it at the end is proof.
        offset = max(self._committed(busy[0], partitions)) + 1
        frames = [self._frame(one, offset + 1, partitions) for one in busy]
        first = self._frame(busy[0], offset, partitions)
        kept = records_kept(self.broker, GROUPS)
        answer_bytes = self._check_answer(first, partitions)
        load = Load(
            port=self.broker.port,
            frames=[replace(frame, answer_bytes=answer_bytes) for frame in frames],
            connections=groups,
            seconds=window.seconds,
            ramp_s=window.ramp_s,
            walk=False,
        )
        sample = load.run(folder, self.broker.pid, len(first.data))
        self._check_kept(busy, offset + 1, partitions, kept, sample.answered_total + 1)
        return sample

    def _frame(self, one: Committer, offset: int, partitions: int) -> Frame:
        rows = [
            OffsetCommitRequestPartition(partition_index=number, committed_offset=offset, committed_metadata="")
            for number in range(partitions)
        ]
        request = OffsetCommitRequest(
            group_id=one.group,
            generation_id_or_member_epoch=one.generation,
            member_id=one.member_id,
            topics=[OffsetCommitRequestTopic(name=self.topic, partitions=rows)],
        )
        data = b"".join(request_frame(request, VERSION, 1, CLIENT_ID))
        return Frame(data=data, error_at=ERROR_AT)

    def _check_answer(self, frame: Frame, partitions: int) -> int:
        """Send one request and read its answer with care. Its size: that of every answer that follows."""
        with BlockingClient(self.broker.port) as client:
            answer = client.exchange(frame.data)
        _, response = read_response(ApiKey.OFFSET_COMMIT, VERSION, answer)
        (topic,) = response.topics
        codes = [row.error_code for row in topic.partitions]
        if topic.name != self.topic or codes != [0] * partitions or answer[ERROR_AT : ERROR_AT + 2] != b"\0\0":
            raise WrongAnswer(f"{self.broker.name}: a commit to {self.topic} answered {topic}")
        return len(answer)

    def _check_kept(self, busy: Sequence[Committer], offset: int, partitions: int, kept: int, commits: int) -> None:
        """Checks that every acknowledged commit has a record for each partition, and is what OffsetFetch returns."""
        written = records_kept(self.broker, GROUPS) - kept
        if written != commits * partitions:
            raise WrongAnswer(
                f"{self.broker.name}: {commits} commits of {partitions} were acknowledged, {written} records are kept"
            )
        for one in busy:
            found = self._committed(one, partitions)
            if found != [offset] * partitions:
                raise WrongAnswer(f"{self.broker.name}: group {one.group} is at {found}, it committed {offset}")

    def _committed(self, one: Committer, partitions: int) -> list[int]:
        with BlockingClient(self.broker.port) as client:
            return committed_offsets(client, one.group, self.topic, range(partitions))


@contextmanager
def committers(broker: KafkaBroker, topic: str, groups: int) -> Iterator[Committers]:
    """So many groups of one classic member each. Their names spread them over all coordinators."""
    with BlockingClient(broker.port) as client:
        each = tuple(_join(client, f"commits-{topic_name()}", topic) for _ in range(groups))
    yield Committers(broker=broker, topic=topic, each=each)
    with BlockingClient(broker.port) as client:
        for one in each:
            gone = [MemberIdentity(member_id=one.member_id)]
            ask_group(client, LeaveGroupRequest(group_id=one.group, members=gone), _LEAVE_VERSION)
        delete_groups(client, [one.group for one in each])


def _join(client: BlockingClient, group: str, topic: str) -> Committer:
    committed_offsets(client, group, topic, (0,))  # its coordinator is ready when it answers
    member_id = ""
    while True:
        request = JoinGroupRequest(
            group_id=group,
            session_timeout_ms=SESSION_MS,
            rebalance_timeout_ms=SESSION_MS,
            member_id=member_id,
            protocol_type="consumer",
            protocols=[JoinGroupRequestProtocol(name="range", metadata=subscription(topic))],
        )
        joined = ask_group(client, request, _JOIN_VERSION)
        if joined.error_code == ErrorCode.MEMBER_ID_REQUIRED:
            member_id = joined.member_id
            continue
        break
    synced = ask_group(
        client,
        SyncGroupRequest(
            group_id=group,
            generation_id=joined.generation_id,
            member_id=member_id,
            protocol_type="consumer",
            protocol_name="range",
            assignments=[SyncGroupRequestAssignment(member_id=member_id, assignment=b"")],
        ),
        _SYNC_VERSION,
    )
    if joined.error_code or synced.error_code:
        raise WrongAnswer(f"group {group} cannot be joined: error {joined.error_code or synced.error_code}")
    return Committer(group=group, member_id=member_id, generation=joined.generation_id)
