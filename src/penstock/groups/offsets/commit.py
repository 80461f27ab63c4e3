"""OffsetCommit and TxnOffsetCommit: checks the member and persists committed offsets.

An error of the whole commit is reported for every partition: the responses have no top-level error code.
"""

from collections.abc import Callable, Sequence
from typing import Final

from penstock.cluster.image import Topic
from penstock.foundation.codes import ErrorCode
from penstock.foundation.decision import ClientRequest, Decision, ProducerKey, Ticket
from penstock.foundation.errors import PenstockError
from penstock.groups.classic.group import ClassicGroup
from penstock.groups.errors import (
    GroupIdNotFound,
    IllegalGeneration,
    InvalidGroupId,
    StaleMemberEpoch,
    UnsupportedVersion,
)
from penstock.groups.group import CoordinatorView
from penstock.groups.modern.reconciling_group import ReconcilingGroup
from penstock.groups.offsets.commit_responses import commit_response, txn_commit_response
from penstock.groups.offsets.committed import NO_EXPIRY, Committed
from penstock.groups.outbox import Outbox
from penstock.groups.share.group import ShareGroup
from penstock.wire.messages.offset_commit import OffsetCommitRequest, OffsetCommitRequestTopic
from penstock.wire.messages.txn_offset_commit import TxnOffsetCommitRequest, TxnOffsetCommitRequestTopic

EPOCHS_FROM_VERSION: Final = 9
"""First version of OffsetCommit in which the field generation may contain a member epoch (KIP-848)."""
IDS_FROM_VERSION: Final = 10
"""First version of OffsetCommit and OffsetFetch that identifies topics by topic id."""
TXN_IDS_FROM_VERSION: Final = 6
"""First version of TxnOffsetCommit that identifies topics by topic id (KIP-1319)."""
NO_IDENTITY: Final = ("", -1, None)
"""Member id, generation and instance id of a TxnOffsetCommit without member, as sent by clients before KIP-447."""

TopicPartitions = list[tuple[bytes, int]]
"""A collection of partitions, each a pair of topic id and partition index."""
ResolvedTopic = tuple[OffsetCommitRequestTopic | TxnOffsetCommitRequestTopic, Topic | ErrorCode]
"""A topic entry of the request and the topic that the entry names, or an error code if the topic does not exist."""


def commit(coordinator: CoordinatorView, ticket: Ticket, command: ClientRequest, now_ms: int) -> Decision:
    """Handles OffsetCommit; the response has an error code for every partition."""
    request: OffsetCommitRequest = command.body
    out = Outbox()
    keep_ms = request.retention_time_ms
    codes = _persist_offsets(
        coordinator,
        out,
        request.group_id,
        [(topic, find_topic(coordinator, topic, command.version >= IDS_FROM_VERSION)) for topic in request.topics],
        lambda tps: check_commit(coordinator, request, tps, command.version, now_ms),
        now_ms,
        NO_EXPIRY if keep_ms < 0 else now_ms + keep_ms,
    )
    out.reply(ticket, commit_response(request, codes))
    return out.decision()


def commit_in_transaction(
    coordinator: CoordinatorView, ticket: Ticket, command: ClientRequest, now_ms: int
) -> Decision:
    """Handles TxnOffsetCommit: the offsets become visible when the producer's transaction commits."""
    request: TxnOffsetCommitRequest = command.body
    if not request.group_id:
        raise InvalidGroupId("the group id is empty")
    out = Outbox()
    codes = _persist_offsets(
        coordinator,
        out,
        request.group_id,
        [
            (topic, find_topic(coordinator, topic, command.version >= TXN_IDS_FROM_VERSION))
            for topic in request.topics
        ],
        lambda tps: _check_transactional(coordinator, request, tps),
        now_ms,
    )
    out.reply(ticket, txn_commit_response(request, codes))
    return out.decision(ProducerKey(request.producer_id, request.producer_epoch))


def find_topic(
    coordinator: CoordinatorView, topic: OffsetCommitRequestTopic | TxnOffsetCommitRequestTopic, by_id: bool
) -> Topic | ErrorCode:
    """Returns the topic that an entry of a request names, or the error code if the topic does not exist."""
    if by_id:
        return coordinator.image.shown.get(topic.topic_id, ErrorCode.UNKNOWN_TOPIC_ID)
    return coordinator.image.shown_by_name.get(topic.name, ErrorCode.UNKNOWN_TOPIC_OR_PARTITION)


def _persist_offsets(
    coordinator: CoordinatorView,
    out: Outbox,
    group_id: str,
    wanted: Sequence[ResolvedTopic],
    check: Callable[[TopicPartitions], None],
    now_ms: int,
    expires_ms: int = NO_EXPIRY,
) -> list[list[int]]:
    """Adds a record to `out` for each valid offset; returns an error code for each partition of each topic.
    `check` raises an error if the member may not commit; all existing partitions then get its error code."""
    tps = [
        (topic.topic_id, partition.partition_index)
        for entry, topic in wanted
        if isinstance(topic, Topic)
        for partition in entry.partitions
        if partition.partition_index in topic.partitions
    ]
    # The member is checked only if there is something to commit, as in Kafka.
    member_error = _error_code(check, tps) if tps else ErrorCode.NONE
    codes = []
    for entry, topic in wanted:
        answers: list[int] = []
        for partition in entry.partitions:
            metadata = partition.committed_metadata or ""
            if isinstance(topic, ErrorCode):
                answers.append(topic)
            elif partition.partition_index not in topic.partitions:
                answers.append(ErrorCode.UNKNOWN_TOPIC_OR_PARTITION)
            elif member_error:
                answers.append(member_error)
            elif len(metadata) > coordinator.settings.metadata_bytes_max:
                answers.append(ErrorCode.OFFSET_METADATA_TOO_LARGE)
            else:
                answers.append(ErrorCode.NONE)
                committed = Committed(
                    offset=partition.committed_offset,
                    leader_epoch=partition.committed_leader_epoch,
                    metadata=metadata,
                    committed_ms=now_ms,
                    expires_ms=expires_ms,
                    topic_id=topic.topic_id,
                )
                out.records.append(committed.to_record(group_id, topic.name, partition.partition_index))
        codes.append(answers)
    return codes


def _error_code(check: Callable[[TopicPartitions], None], tps: TopicPartitions) -> int:
    try:
        check(tps)
    except PenstockError as error:
        return error.code
    return ErrorCode.NONE


# -- checks


def check_commit(
    coordinator: CoordinatorView, request: OffsetCommitRequest, tps: TopicPartitions, version: int, now_ms: int
) -> None:
    """Raises an error unless the member may commit offsets of `tps`. Restarts a classic member's session timeout."""
    member_id, epoch = request.member_id, request.generation_id_or_member_epoch
    group = coordinator.groups.get(request.group_id)
    if group is None:
        if epoch < 0:
            return  # a standalone consumer: its offsets create a group
        if version >= EPOCHS_FROM_VERSION:
            raise GroupIdNotFound(f"there is no group {request.group_id!r}")
        raise IllegalGeneration(f"there is no group {request.group_id!r}")
    if isinstance(group, ReconcilingGroup):
        if version < EPOCHS_FROM_VERSION and group.is_modern_member(member_id):
            raise UnsupportedVersion(
                f"members of {group.kind} groups need OffsetCommit v{EPOCHS_FROM_VERSION} or newer"
            )
        group.check_commit(member_id, epoch, tps)
    elif isinstance(group, ClassicGroup):
        group.check_commit(member_id, epoch, request.group_instance_id)
        member = group.roster.get(member_id)
        if member is not None:
            group.restart_session_timer(member, now_ms)
    else:
        raise GroupIdNotFound(f"{request.group_id!r} is a share group, not a consumer group")


def _check_transactional(coordinator: CoordinatorView, request: TxnOffsetCommitRequest, tps: TopicPartitions) -> None:
    """Raises an error unless the member, if the request names one (KIP-447), may commit in a transaction."""
    identity = (request.member_id, request.generation_id, request.group_instance_id)
    group = coordinator.groups.get(request.group_id)
    if group is None:
        if request.generation_id >= 0:
            raise IllegalGeneration(f"there is no group {request.group_id!r}")
    elif isinstance(group, ClassicGroup):
        group.check_commit(*identity, transactional=True)
    elif isinstance(group, ReconcilingGroup) and identity != NO_IDENTITY:
        try:
            group.check_commit(request.member_id, request.generation_id, tps)
        except StaleMemberEpoch as error:
            raise IllegalGeneration(error.message) from error  # producers only handle this error
    elif isinstance(group, ShareGroup):
        raise GroupIdNotFound(f"{request.group_id!r} is a share group, not a consumer group")
