"""OffsetFetch and OffsetDelete: reads and deletes the committed offsets of groups."""

from collections.abc import Iterable, Sequence
from typing import Final

from penstock.foundation.codes import ErrorCode
from penstock.foundation.decision import ClientRequest, Decision, Ticket
from penstock.foundation.errors import PenstockError
from penstock.groups.classic.group import ClassicGroup
from penstock.groups.errors import GroupIdNotFound, InvalidGroupId, NonEmptyGroup
from penstock.groups.group import CoordinatorView, Group
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
"""First version of OffsetFetch with several groups in one request."""
NO_OFFSET: Final = -1


def fetch(coordinator: CoordinatorView, ticket: Ticket, command: ClientRequest, now_ms: int) -> Decision:
    """Handles OffsetFetch for one or several groups of this coordinator."""
    request: OffsetFetchRequest = command.body
    out = Outbox()
    if command.version >= GROUPS_FROM_VERSION:
        groups = [_fetch(coordinator, wanted, request.require_stable, command.version) for wanted in request.groups]
        out.reply(ticket, OffsetFetchResponse(groups=groups))
    else:
        topics = request.topics
        found = _fetch(
            coordinator,
            OffsetFetchRequestGroup(
                group_id=request.group_id,
                topics=None
                if topics is None
                else [OffsetFetchRequestTopics(name=t.name, partition_indexes=t.partition_indexes) for t in topics],
            ),
            request.require_stable,
            command.version,
        )
        out.reply(ticket, OffsetFetchResponse(topics=_topics_before_v8(found), error_code=found.error_code))
    # A replaced coordinator would return old offsets, from which a consumer would read again.
    return out.decision()._replace(must_lead=True)


def _topics_before_v8(found: OffsetFetchResponseGroup) -> list[OffsetFetchResponseTopic]:
    """Converts the response for one group to the topics of a response before version 8, which has no groups."""
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
    coordinator: CoordinatorView, wanted: OffsetFetchRequestGroup, require_stable: bool, version: int
) -> OffsetFetchResponseGroup:
    group = coordinator.groups.get(wanted.group_id)
    if group is not None:
        try:
            group.check_fetch(wanted.member_id, wanted.member_epoch)
        except PenstockError as error:
            return OffsetFetchResponseGroup(group_id=wanted.group_id, topics=(), error_code=error.code)
    reader = _OffsetReader(coordinator, wanted.group_id, require_stable, version >= IDS_FROM_VERSION)
    topics = reader.all() if wanted.topics is None else [reader.topic(topic) for topic in wanted.topics]
    return OffsetFetchResponseGroup(group_id=wanted.group_id, topics=topics)


class _OffsetReader:
    """Builds the part of an OffsetFetch response that is for one group."""

    def __init__(self, coordinator: CoordinatorView, group_id: str, require_stable: bool, by_id: bool) -> None:
        self._coordinator = coordinator
        self._group_id = group_id
        self._require_stable = require_stable
        self._by_id = by_id
        self._offsets = coordinator.offsets.of_group(group_id)

    def topic(self, wanted: OffsetFetchRequestTopics) -> OffsetFetchResponseTopics:
        image = self._coordinator.image
        known = image.shown.get(wanted.topic_id) if self._by_id else image.shown_by_name.get(wanted.name)
        if known is None and self._by_id:
            answers = [_no_offset(number, ErrorCode.UNKNOWN_TOPIC_ID) for number in wanted.partition_indexes]
            return OffsetFetchResponseTopics(topic_id=wanted.topic_id, partitions=answers)
        name, topic_id = (known.name, known.topic_id) if known else (wanted.name, NIL_UUID)
        return self._answer(name, topic_id, wanted.partition_indexes)

    def all(self) -> list[OffsetFetchResponseTopics]:
        """Returns all committed offsets of the group; omits deleted topics if the response has topic ids."""
        topics = []
        for name, table in self._offsets.items():
            known = self._coordinator.image.shown_by_name.get(name)
            if known is not None or not self._by_id:
                topics.append(self._answer(name, known.topic_id if known else NIL_UUID, table))
        return topics

    def _answer(self, name: str, topic_id: bytes, numbers: Iterable[int]) -> OffsetFetchResponseTopics:
        table = self._offsets.get(name, {})
        answers = []
        for number in numbers:
            committed = table.get(number)
            if self._require_stable and self._coordinator.offsets.is_pending(self._group_id, name, number):
                # The offset depends on an open transaction; the client has to retry after its end (KIP-447).
                answers.append(_no_offset(number, ErrorCode.UNSTABLE_OFFSET_COMMIT))
            elif committed is None or not committed.matches_topic(topic_id):
                answers.append(_no_offset(number))
            else:
                answers.append(_partition_response(number, committed))
        return OffsetFetchResponseTopics(name=name, topic_id=topic_id, partitions=answers)


def _partition_response(number: int, committed: Committed) -> OffsetFetchResponsePartitions:
    return OffsetFetchResponsePartitions(
        partition_index=number,
        committed_offset=committed.offset,
        committed_leader_epoch=committed.leader_epoch,
        metadata=committed.metadata,
        error_code=ErrorCode.NONE,
    )


def _no_offset(number: int, code: ErrorCode = ErrorCode.NONE) -> OffsetFetchResponsePartitions:
    return OffsetFetchResponsePartitions(
        partition_index=number, committed_offset=NO_OFFSET, metadata="", error_code=code
    )


# -- OffsetDelete


def delete(coordinator: CoordinatorView, ticket: Ticket, command: ClientRequest, now_ms: int) -> Decision:
    """Handles OffsetDelete: deletes committed offsets, except for topics that the group is subscribed to."""
    request: OffsetDeleteRequest = command.body
    if not request.group_id:
        raise InvalidGroupId("the group id is empty")
    group = coordinator.groups.get(request.group_id)
    if group is None or isinstance(group, ShareGroup):
        raise GroupIdNotFound(f"there is no group {request.group_id!r} that has offsets")
    if isinstance(group, ClassicGroup) and not group.is_empty and not group.is_of_consumers:
        raise NonEmptyGroup(f"members of group {request.group_id!r} have unknown subscriptions; stop them first")
    out = Outbox()
    topics = []
    for topic in request.topics:
        partitions = _delete(coordinator, out, group, request.group_id, topic)
        topics.append(OffsetDeleteResponseTopic(name=topic.name, partitions=partitions))
    out.reply(ticket, OffsetDeleteResponse(error_code=0, throttle_time_ms=0, topics=topics))
    return out.decision()


def _delete(
    coordinator: CoordinatorView, out: Outbox, group: Group, group_id: str, topic: OffsetDeleteRequestTopic
) -> Sequence[OffsetDeleteResponsePartition]:
    known, offsets = coordinator.image.shown_by_name.get(topic.name), coordinator.offsets
    is_read = group.subscribes_to(topic.name)
    answers = []
    for partition in topic.partitions:
        number = partition.partition_index
        code = ErrorCode.NONE
        if known is None or number not in known.partitions:
            code = ErrorCode.UNKNOWN_TOPIC_OR_PARTITION
        elif is_read:
            code = ErrorCode.GROUP_SUBSCRIBED_TO_TOPIC
        elif offsets.get(group_id, topic.name, number) or offsets.is_pending(group_id, topic.name, number):
            out.records.append(offset_tombstone(group_id, topic.name, number))
        answers.append(OffsetDeleteResponsePartition(partition_index=number, error_code=code))
    return answers
