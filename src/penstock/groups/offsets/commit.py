"""OffsetCommit and TxnOffsetCommit: who may write down where its group is, and where.

What stands against the commit as a whole is answered for every partition: the responses have no other place for it.
"""

from collections.abc import Callable, Sequence
from typing import Final

from penstock.cluster.image import Topic
from penstock.foundation.codes import ErrorCode
from penstock.foundation.decision import Ask, Decision, ProducerKey, Ticket
from penstock.foundation.errors import PenstockError
from penstock.groups.classic.group import ClassicGroup
from penstock.groups.consumer.errors import StaleMemberEpoch
from penstock.groups.consumer.group import ConsumerGroup
from penstock.groups.errors import GroupIdNotFound, IllegalGeneration, InvalidGroupId, UnsupportedVersion
from penstock.groups.group import Holder
from penstock.groups.offsets.committed import NO_EXPIRY, Committed
from penstock.groups.outbox import Outbox
from penstock.groups.share.group import ShareGroup
from penstock.groups.streams.group import StreamsGroup
from penstock.wire.messages.offset_commit import (
    OffsetCommitRequest,
    OffsetCommitRequestTopic,
    OffsetCommitResponse,
    OffsetCommitResponsePartition,
    OffsetCommitResponseTopic,
)
from penstock.wire.messages.txn_offset_commit import (
    TxnOffsetCommitRequest,
    TxnOffsetCommitRequestTopic,
    TxnOffsetCommitResponse,
    TxnOffsetCommitResponsePartition,
    TxnOffsetCommitResponseTopic,
)

EPOCHS_FROM_VERSION: Final = 9
"""Of OffsetCommit: a member epoch may stand in the place of the generation (KIP-848)."""
IDS_FROM_VERSION: Final = 10
"""Of OffsetCommit and OffsetFetch: topics go by their ids."""
IDS_IN_TRANSACTIONS_FROM: Final = 6
"""Of TxnOffsetCommit: topics go by their ids (KIP-1319)."""
NOBODY_SAID: Final = ("", -1, None)
"""The member, generation and instance of a transactional commit of a client from before KIP-447."""

Places = list[tuple[bytes, int]]
"""Partitions, by the ids of their topics."""
Where = tuple[OffsetCommitRequestTopic | TxnOffsetCommitRequestTopic, Topic | ErrorCode]
"""What is to be committed in a topic, and the topic; or what is said where there is none."""


def commit(held: Holder, ticket: Ticket, ask: Ask, now_ms: int) -> Decision:
    """OffsetCommit."""
    request: OffsetCommitRequest = ask.body
    out = Outbox()
    keep_ms = request.retention_time_ms
    codes = _write(
        held,
        out,
        request.group_id,
        [(topic, find_topic(held, topic, ask.version >= IDS_FROM_VERSION)) for topic in request.topics],
        lambda places: check_commit(held, request, places, ask.version, now_ms),
        now_ms,
        NO_EXPIRY if keep_ms < 0 else now_ms + keep_ms,
    )
    topics = []
    for topic, answers in zip(request.topics, codes, strict=True):
        partitions = [
            OffsetCommitResponsePartition(partition_index=wanted.partition_index, error_code=code)
            for wanted, code in zip(topic.partitions, answers, strict=True)
        ]
        topics.append(OffsetCommitResponseTopic(name=topic.name, topic_id=topic.topic_id, partitions=partitions))
    out.reply(ticket, OffsetCommitResponse(topics=topics))
    return out.decision()


def commit_in_transaction(held: Holder, ticket: Ticket, ask: Ask, now_ms: int) -> Decision:
    """TxnOffsetCommit: as above, but it counts only once the producer's transaction has committed."""
    request: TxnOffsetCommitRequest = ask.body
    if not request.group_id:
        raise InvalidGroupId("offsets are committed for a group, and its id is empty")
    out = Outbox()
    codes = _write(
        held,
        out,
        request.group_id,
        [(topic, find_topic(held, topic, ask.version >= IDS_IN_TRANSACTIONS_FROM)) for topic in request.topics],
        lambda places: _check_transactional(held, request, places),
        now_ms,
    )
    topics = []
    for topic, answers in zip(request.topics, codes, strict=True):
        partitions = [
            TxnOffsetCommitResponsePartition(partition_index=wanted.partition_index, error_code=code)
            for wanted, code in zip(topic.partitions, answers, strict=True)
        ]
        topics.append(TxnOffsetCommitResponseTopic(name=topic.name, topic_id=topic.topic_id, partitions=partitions))
    out.reply(ticket, TxnOffsetCommitResponse(throttle_time_ms=0, topics=topics))
    return out.decision(ProducerKey(request.producer_id, request.producer_epoch))


def find_topic(
    held: Holder, topic: OffsetCommitRequestTopic | TxnOffsetCommitRequestTopic, by_id: bool
) -> Topic | ErrorCode:
    """The topic that a client means, or what it is told if there is none."""
    if by_id:
        return held.image.shown.get(topic.topic_id, ErrorCode.UNKNOWN_TOPIC_ID)
    return held.image.shown_by_name.get(topic.name, ErrorCode.UNKNOWN_TOPIC_OR_PARTITION)


def _write(
    held: Holder,
    out: Outbox,
    group_id: str,
    wanted: Sequence[Where],
    check: Callable[[Places], None],
    now_ms: int,
    expires_ms: int = NO_EXPIRY,
) -> list[list[int]]:
    """Have offsets persisted. The error codes, by topic and partition."""
    places = [
        (topic.topic_id, partition.partition_index)
        for entry, topic in wanted
        if isinstance(topic, Topic)
        for partition in entry.partitions
        if partition.partition_index in topic.partitions
    ]
    # Who may commit is looked at only if there is something to commit to, as in Kafka.
    refusal = _code_of(check, places) if places else ErrorCode.NONE
    codes = []
    for entry, topic in wanted:
        answers: list[int] = []
        for partition in entry.partitions:
            metadata = partition.committed_metadata or ""
            if isinstance(topic, ErrorCode):
                answers.append(topic)
            elif partition.partition_index not in topic.partitions:
                answers.append(ErrorCode.UNKNOWN_TOPIC_OR_PARTITION)
            elif refusal:
                answers.append(refusal)
            elif len(metadata) > held.settings.metadata_bytes_max:
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


def _code_of(check: Callable[[Places], None], places: Places) -> int:
    try:
        check(places)
    except PenstockError as error:
        return error.code
    return ErrorCode.NONE


# -- who may commit


def check_commit(held: Holder, request: OffsetCommitRequest, places: Places, version: int, now_ms: int) -> None:
    """Raises what stands against an OffsetCommit as a whole. A classic member that may commit has been heard of."""
    who = (request.member_id, request.generation_id_or_member_epoch, request.group_instance_id)
    group = held.groups.get(request.group_id)
    if group is None:
        if request.generation_id_or_member_epoch < 0:
            return  # someone who reads without being a member of anything: offsets alone make a group
        if version >= EPOCHS_FROM_VERSION:
            raise GroupIdNotFound(f"there is no group {request.group_id!r}")
        raise IllegalGeneration(f"there is no group {request.group_id!r}")
    if isinstance(group, ConsumerGroup):
        speaker = group.state.members.get(request.member_id)
        if version < EPOCHS_FROM_VERSION and speaker is not None and speaker.classic is None:
            raise UnsupportedVersion(f"members of consumer groups need OffsetCommit v{EPOCHS_FROM_VERSION} or newer")
        group.check_commit(*who, places)
    elif isinstance(group, StreamsGroup):
        if version < EPOCHS_FROM_VERSION and request.member_id in group.state.members:
            raise UnsupportedVersion(f"members of streams groups need OffsetCommit v{EPOCHS_FROM_VERSION} or newer")
        group.check_commit(*who, places)
    elif isinstance(group, ClassicGroup):
        group.check_commit(*who)
        member = group.roster.get(request.member_id)
        if member is not None:
            group.heard(member, now_ms)
    else:
        raise GroupIdNotFound(f"{request.group_id!r} is a share group, not a consumer group")


def _check_transactional(held: Holder, request: TxnOffsetCommitRequest, places: Places) -> None:
    """Since KIP-447 a producer says for which member, and in which generation, it commits."""
    who = (request.member_id, request.generation_id, request.group_instance_id)
    group = held.groups.get(request.group_id)
    if group is None:
        if request.generation_id >= 0:
            raise IllegalGeneration(f"there is no group {request.group_id!r}")
    elif isinstance(group, ClassicGroup):
        group.check_commit(*who, transactional=True)
    elif isinstance(group, ConsumerGroup | StreamsGroup) and who != NOBODY_SAID:
        try:
            group.check_commit(*who, places)
        except StaleMemberEpoch as error:
            raise IllegalGeneration(error.message) from error  # producers know of generations only
    elif isinstance(group, ShareGroup):
        raise GroupIdNotFound(f"{request.group_id!r} is a share group, not a consumer group")
