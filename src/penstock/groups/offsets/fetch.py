"""OffsetFetch and OffsetDelete: where groups are, and forgetting it."""

from collections.abc import Iterable, Sequence
from typing import Final

from penstock.foundation.codes import ErrorCode
from penstock.foundation.decision import Ask, Decision, Ticket
from penstock.foundation.errors import PenstockError
from penstock.groups.classic.group import ClassicGroup
from penstock.groups.errors import GroupIdNotFound, InvalidGroupId, NonEmptyGroup
from penstock.groups.group import Group, Holder
from penstock.groups.offsets.commit import IDS_FROM_VERSION
from penstock.groups.offsets.committed import Committed, offset_tombstone
from penstock.groups.outbox import Outbox
from penstock.groups.share.group import ShareGroup
from penstock.wire.messages.offset_delete import (
    OffsetDeleteRequest,
    OffsetDeleteRequestTopic,
    OffsetDeleteResponse,
    OffsetDeleteResponsePartition,
    OffsetDeleteResponseTopic,
)
from penstock.wire.messages.offset_fetch import (
    OffsetFetchRequest,
    OffsetFetchRequestGroup,
    OffsetFetchRequestTopics,
    OffsetFetchResponse,
    OffsetFetchResponseGroup,
    OffsetFetchResponsePartition,
    OffsetFetchResponsePartitions,
    OffsetFetchResponseTopic,
    OffsetFetchResponseTopics,
)
from penstock.wire.schema import NIL_UUID

GROUPS_FROM_VERSION: Final = 8
"""Of OffsetFetch: several groups in one request."""
NO_OFFSET: Final = -1


def fetch(held: Holder, ticket: Ticket, ask: Ask) -> Decision:
    """OffsetFetch, for one group or several that live here."""
    request: OffsetFetchRequest = ask.body
    out = Outbox()
    if ask.version >= GROUPS_FROM_VERSION:
        groups = [_fetch(held, wanted, request.require_stable, ask.version) for wanted in request.groups]
        out.reply(ticket, OffsetFetchResponse(groups=groups))
    else:
        topics = request.topics
        found = _fetch(
            held,
            OffsetFetchRequestGroup(
                group_id=request.group_id,
                topics=None
                if topics is None
                else [OffsetFetchRequestTopics(name=t.name, partition_indexes=t.partition_indexes) for t in topics],
            ),
            request.require_stable,
            ask.version,
        )
        out.reply(ticket, OffsetFetchResponse(topics=_as_before(found), error_code=found.error_code))
    # A coordinator that has been replaced would give old offsets, and a consumer would begin again there.
    return out.decision()._replace(must_lead=True)


def _as_before(found: OffsetFetchResponseGroup) -> list[OffsetFetchResponseTopic]:
    """The topics of one group, as versions say it that know one group only."""
    return [
        OffsetFetchResponseTopic(
            name=topic.name,
            partitions=[
                OffsetFetchResponsePartition(
                    partition_index=partition.partition_index,
                    committed_offset=partition.committed_offset,
                    committed_leader_epoch=partition.committed_leader_epoch,
                    metadata=partition.metadata,
                    error_code=partition.error_code,
                )
                for partition in topic.partitions
            ],
        )
        for topic in found.topics
    ]


def _fetch(
    held: Holder, wanted: OffsetFetchRequestGroup, require_stable: bool, version: int
) -> OffsetFetchResponseGroup:
    group = held.groups.get(wanted.group_id)
    if group is not None:
        try:
            group.check_fetch(wanted.member_id, wanted.member_epoch)
        except PenstockError as error:
            return OffsetFetchResponseGroup(group_id=wanted.group_id, topics=(), error_code=error.code)
    reading = _Reading(held, wanted.group_id, require_stable, version >= IDS_FROM_VERSION)
    topics = reading.all() if wanted.topics is None else [reading.topic(topic) for topic in wanted.topics]
    return OffsetFetchResponseGroup(group_id=wanted.group_id, topics=topics)


class _Reading:
    """Of one group's offsets, for one request."""

    def __init__(self, held: Holder, group_id: str, require_stable: bool, by_id: bool) -> None:
        self._held = held
        self._group_id = group_id
        self._require_stable = require_stable
        self._by_id = by_id
        self._offsets = held.offsets.of_group(group_id)

    def topic(self, wanted: OffsetFetchRequestTopics) -> OffsetFetchResponseTopics:
        image = self._held.image
        known = image.shown.get(wanted.topic_id) if self._by_id else image.shown_by_name.get(wanted.name)
        if known is None and self._by_id:
            answers = [_nothing(number, ErrorCode.UNKNOWN_TOPIC_ID) for number in wanted.partition_indexes]
            return OffsetFetchResponseTopics(topic_id=wanted.topic_id, partitions=answers)
        name, topic_id = (known.name, known.topic_id) if known else (wanted.name, NIL_UUID)
        return self._answer(name, topic_id, wanted.partition_indexes)

    def all(self) -> list[OffsetFetchResponseTopics]:
        """Whatever is committed. Those who want ids are not told of topics that have none any more."""
        topics = []
        for name, table in self._offsets.items():
            known = self._held.image.shown_by_name.get(name)
            if known is not None or not self._by_id:
                topics.append(self._answer(name, known.topic_id if known else NIL_UUID, table))
        return topics

    def _answer(self, name: str, topic_id: bytes, numbers: Iterable[int]) -> OffsetFetchResponseTopics:
        table = self._offsets.get(name, {})
        answers = []
        for number in numbers:
            committed = table.get(number)
            if self._require_stable and self._held.offsets.is_pending(self._group_id, name, number):
                # A transaction is about to say where the group is; whoever asks has to wait for it (KIP-447).
                answers.append(_nothing(number, ErrorCode.UNSTABLE_OFFSET_COMMIT))
            elif committed is None or not committed.is_of(topic_id):
                answers.append(_nothing(number))
            else:
                answers.append(_something(number, committed))
        return OffsetFetchResponseTopics(name=name, topic_id=topic_id, partitions=answers)


def _something(number: int, committed: Committed) -> OffsetFetchResponsePartitions:
    return OffsetFetchResponsePartitions(
        partition_index=number,
        committed_offset=committed.offset,
        committed_leader_epoch=committed.leader_epoch,
        metadata=committed.metadata,
        error_code=ErrorCode.NONE,
    )


def _nothing(number: int, code: ErrorCode = ErrorCode.NONE) -> OffsetFetchResponsePartitions:
    return OffsetFetchResponsePartitions(
        partition_index=number, committed_offset=NO_OFFSET, metadata="", error_code=code
    )


# -- OffsetDelete


def delete(held: Holder, ticket: Ticket, ask: Ask) -> Decision:
    """OffsetDelete: forget where a group is in partitions that it does not read."""
    request: OffsetDeleteRequest = ask.body
    if not request.group_id:
        raise InvalidGroupId("offsets are deleted from a group, and its id is empty")
    group = held.groups.get(request.group_id)
    if group is None or isinstance(group, ShareGroup):
        raise GroupIdNotFound(f"there is no group {request.group_id!r} that has offsets")
    if isinstance(group, ClassicGroup) and not group.is_empty and not group.is_of_consumers:
        raise NonEmptyGroup(f"group {request.group_id!r} has members, and what they read is not known")
    out = Outbox()
    topics = [
        OffsetDeleteResponseTopic(name=topic.name, partitions=_delete(held, out, group, request.group_id, topic))
        for topic in request.topics
    ]
    out.reply(ticket, OffsetDeleteResponse(error_code=0, throttle_time_ms=0, topics=topics))
    return out.decision()


def _delete(
    held: Holder, out: Outbox, group: Group, group_id: str, topic: OffsetDeleteRequestTopic
) -> Sequence[OffsetDeleteResponsePartition]:
    known = held.image.shown_by_name.get(topic.name)
    is_read = group.subscribes_to(topic.name)
    answers = []
    for partition in topic.partitions:
        number = partition.partition_index
        code = ErrorCode.NONE
        if known is None or number not in known.partitions:
            code = ErrorCode.UNKNOWN_TOPIC_OR_PARTITION
        elif is_read:
            code = ErrorCode.GROUP_SUBSCRIBED_TO_TOPIC
        elif held.offsets.get(group_id, topic.name, number) or held.offsets.is_pending(group_id, topic.name, number):
            out.records.append(offset_tombstone(group_id, topic.name, number))
        answers.append(OffsetDeleteResponsePartition(partition_index=number, error_code=code))
    return answers
