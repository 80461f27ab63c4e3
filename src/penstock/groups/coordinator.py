"""The group coordinator: all groups that hash to one partition of `__consumer_offsets`.

Pure; see foundation/decision.py. A group is classic (classic/group.py), a consumer group (consumer/group.py), a share
group (share/group.py) or a streams group (streams/group.py). The coordinator finds, creates and removes groups, runs
their timers, and notifies them of topic changes.
"""

import logging
from collections.abc import Callable, Mapping
from functools import partial
from typing import Any, Final

from penstock.cluster.image import ClusterImage
from penstock.foundation.codes import ErrorCode
from penstock.foundation.decision import NOTHING, ClientRequest, Decision, Reply, StateRecord, Ticket
from penstock.foundation.errors import PenstockError
from penstock.foundation.timers import Timers
from penstock.groups import description, heartbeats, records
from penstock.groups.classic import join, sync_heartbeat_leave
from penstock.groups.classic.group import ClassicGroup
from penstock.groups.commands import ClientDisconnected, RemoveOffsets, StreamsTopicsRefused, TopicsChanged
from penstock.groups.consumer import classic_members
from penstock.groups.consumer.group import ConsumerGroup
from penstock.groups.consumer.records import ConsumerRecords
from penstock.groups.errors import (
    GroupIdNotFound,
    InconsistentGroupProtocol,
    InvalidGroupId,
    InvalidSessionTimeout,
    NonEmptyGroup,
    UnknownMemberId,
)
from penstock.groups.group import G, Group
from penstock.groups.modern.group import ModernGroup
from penstock.groups.offsets import commit as offset_commit
from penstock.groups.offsets import fetch as offset_fetch
from penstock.groups.offsets.committed import Offsets, offset_tombstone
from penstock.groups.offsets.expiration import ExpirationPass
from penstock.groups.outbox import Outbox
from penstock.groups.settings import GroupSettings
from penstock.groups.share import coordinator_requests as share_requests
from penstock.groups.share.group import ShareGroup
from penstock.groups.share.records import ShareRecords
from penstock.groups.streams.group import StreamsGroup
from penstock.groups.streams.records import StreamsRecords
from penstock.groups.topic_changes import TOMBSTONES_AT_ONCE, TopicChanges
from penstock.wire.messages.consumer_group_describe import ConsumerGroupDescribeRequest
from penstock.wire.messages.consumer_group_heartbeat import ConsumerGroupHeartbeatRequest
from penstock.wire.messages.delete_groups import DeletableGroupResult, DeleteGroupsRequest, DeleteGroupsResponse
from penstock.wire.messages.describe_groups import DescribeGroupsRequest, DescribeGroupsResponse
from penstock.wire.messages.heartbeat import HeartbeatRequest
from penstock.wire.messages.join_group import JoinGroupRequest
from penstock.wire.messages.leave_group import LeaveGroupRequest
from penstock.wire.messages.list_groups import ListGroupsRequest, ListGroupsResponse
from penstock.wire.messages.offset_commit import OffsetCommitRequest
from penstock.wire.messages.offset_delete import OffsetDeleteRequest
from penstock.wire.messages.offset_fetch import OffsetFetchRequest
from penstock.wire.messages.share_group_describe import ShareGroupDescribeRequest
from penstock.wire.messages.share_group_heartbeat import ShareGroupHeartbeatRequest
from penstock.wire.messages.streams_group_describe import StreamsGroupDescribeRequest
from penstock.wire.messages.streams_group_heartbeat import StreamsGroupHeartbeatRequest
from penstock.wire.messages.sync_group import SyncGroupRequest
from penstock.wire.messages.txn_offset_commit import TxnOffsetCommitRequest
from penstock.wire.state import kind_of, read_record

logger = logging.getLogger(__name__)

EXPIRATION: Final = ("", "expiration", "")
"""Timer key for the next time slice that expires offsets."""
TOPIC_CHANGES: Final = ("", "topics", "")
"""Timer key for the next time slice that updates groups after topics have changed."""
EXPIRATION_PAUSE_MS: Final = 1
MODERN_GROUPS: Final[Mapping[int, tuple[type[ModernGroup[Any, Any, Any]], type, type]]] = {
    kind: (of, *classes)
    for of, group_records in (
        (ConsumerGroup, ConsumerRecords),
        (ShareGroup, ShareRecords),
        (StreamsGroup, StreamsRecords),
    )
    for kind, classes in group_records.kinds.items()
}
"""Group class, key class and value class for each kind of record of consumer, share and streams groups."""


class GroupCoordinator:
    """The state machine of the group coordinator. The broker replaces `settings`, and `image` (the cluster metadata),
    when they change."""

    def __init__(self, *, settings: GroupSettings, image: ClusterImage, new_member_id: Callable[[str], str]) -> None:
        self.settings = settings
        self.image = image
        self.new_member_id = new_member_id
        self.timers: Final[Timers[tuple[str, str, str]]] = Timers()
        self.groups: dict[str, Group] = {}
        """All groups, by group id. A group exists while it has members, pending member ids, records or offsets."""
        self.offsets: Final = Offsets()
        self._uncommitted_groups: dict[str, Group] = {}
        """Groups that are added to `groups` once the records of the last decision are persisted."""
        self._is_loaded = False
        """Whether all records were replayed; from then on, created and removed groups are logged."""
        self._topic_changes = TopicChanges(self)
        self._expiration_pass: ExpirationPass | None = None
        self._handlers: dict[type, Callable[[Ticket, ClientRequest, int], Decision]] = {
            JoinGroupRequest: self._join,
            SyncGroupRequest: self._sync,
            HeartbeatRequest: self._heartbeat,
            LeaveGroupRequest: self._leave,
            OffsetCommitRequest: partial(offset_commit.commit, self),
            TxnOffsetCommitRequest: partial(offset_commit.commit_in_transaction, self),
            OffsetFetchRequest: partial(offset_fetch.fetch, self),
            OffsetDeleteRequest: partial(offset_fetch.delete, self),
            DescribeGroupsRequest: self._describe,
            ListGroupsRequest: self._list,
            DeleteGroupsRequest: self._delete,
            ConsumerGroupHeartbeatRequest: partial(heartbeats.consumer_heartbeat, self),
            ConsumerGroupDescribeRequest: partial(description.describe_modern, self, ConsumerGroup),
            ShareGroupHeartbeatRequest: partial(heartbeats.share_heartbeat, self),
            ShareGroupDescribeRequest: partial(description.describe_modern, self, ShareGroup),
            StreamsGroupHeartbeatRequest: partial(heartbeats.streams_heartbeat, self),
            StreamsGroupDescribeRequest: partial(description.describe_modern, self, StreamsGroup),
        }

    # -- the state machine

    def decide(self, ticket: Ticket, command: Any, now_ms: int) -> Decision:
        self._uncommitted_groups.clear()
        if isinstance(command, TopicsChanged):
            self._topic_changes.on_new_image(command.deleted)
            return self._on_topics_changed(now_ms)
        if isinstance(command, RemoveOffsets):
            return self._remove_offsets(ticket, command.group_id)
        if isinstance(command, ClientDisconnected):
            group = self.groups.get(command.group_id)
            if isinstance(group, ClassicGroup):  # in others no request waits
                group.on_disconnect(command.ticket, now_ms)
            return NOTHING
        if isinstance(command, StreamsTopicsRefused):
            group = self.groups.get(command.group_id)
            if isinstance(group, StreamsGroup):
                group.creation_error = command.reason
            return NOTHING
        if not isinstance(command, ClientRequest):
            return share_requests.decide(self, ticket, command, now_ms)
        return self._handlers[type(command.body)](ticket, command, now_ms)

    def wake(self, now_ms: int) -> Decision:
        """Runs due timers until one returns a decision, which must be persisted before the next timer runs."""
        self._uncommitted_groups.clear()
        while True:
            key = self.timers.take(now_ms)
            if key is None:
                return NOTHING
            decision = self._run_timer(key, now_ms)
            if decision != NOTHING:
                return decision

    def _run_timer(self, key: tuple[str, str, str], now_ms: int) -> Decision:
        if key == EXPIRATION:
            return self._expire_offsets(now_ms)
        if key == TOPIC_CHANGES:
            return self._on_topics_changed(now_ms)
        group_id, kind, member_id = key
        group = self.groups.get(group_id)
        if group is None:
            return NOTHING
        decision = group.on_timer(kind, member_id, now_ms)
        self.create_or_remove_group(group_id)
        return decision

    @property
    def wake_at_ms(self) -> int | None:
        """Time of the next wake-up, in ms; may be earlier than the next due timer. None if there are no timers."""
        return self.timers.next_ms_lower_bound

    def loaded(self, now_ms: int) -> None:
        self._is_loaded = True
        for group in self.groups.values():
            group.loaded(now_ms)
        self.timers.set(EXPIRATION, now_ms + self.settings.offsets_check_interval_ms)

    def apply(self, record: StateRecord, producer_id: int) -> None:
        kind = kind_of(record.key)
        if kind == records.OFFSET_COMMIT:
            key, offset = read_record(record, records.OffsetCommitKey, records.OffsetCommitValue)
            self.offsets.apply(key, offset, producer_id)
            if offset is None or key.group not in self.groups:
                self.create_or_remove_group(key.group)
        elif kind == records.GROUP_METADATA:
            self._apply_classic(record)
        elif kind in MODERN_GROUPS:
            self._apply_modern(kind, record)

    def end_transaction(self, producer_id: int, committed: bool) -> None:
        for group_id in self.offsets.end_transaction(producer_id, committed):
            self.create_or_remove_group(group_id)

    # -- groups

    def _apply_classic(self, record: StateRecord) -> None:
        key, value = read_record(record, records.GroupKey, records.GroupMetadataValue)
        group_id = key.group
        group = self.groups.get(group_id)
        if value is not None and not isinstance(group, ClassicGroup):
            group = ClassicGroup(group_id, self)
            self._put_group(group)
        if isinstance(group, ClassicGroup):
            group.apply_record(records.GROUP_METADATA, key, value)
            if value is None:
                self._remove_group(group_id)
        self.create_or_remove_group(group_id)

    def _apply_modern(self, kind: int, record: StateRecord) -> None:
        """Applies a record of a consumer, share or streams group; replaces a group of another kind with this id."""
        of, key_class, value_class = MODERN_GROUPS[kind]
        key: Any
        value: Any
        key, value = read_record(record, key_class, value_class)
        group = self.groups.get(key.group)
        if value is not None and not isinstance(group, of):
            if isinstance(group, ClassicGroup):
                group.cancel_timers()
            group = self._uncommitted_groups.get(key.group) or of(key.group, self)
            self._put_group(group)
        if isinstance(group, of):
            group.apply_record(kind, key, value)
            if kind == group.records.group_kind and value is None:
                self._remove_group(key.group)
        self.create_or_remove_group(key.group)

    def create_or_remove_group(self, group_id: str) -> None:
        """Creates an empty classic group if this id has committed offsets but no group; removes a classic group
        that has no members, no pending member ids, no metadata record and no offsets."""
        group = self.groups.get(group_id)
        has_offsets = self.offsets.has_any(group_id)
        if group is None and has_offsets:
            self._put_group(ClassicGroup(group_id, self))
        elif isinstance(group, ClassicGroup) and group.is_vacant and not has_offsets:
            self._remove_group(group_id)

    def _put_group(self, group: Group) -> None:
        if self._is_loaded and self.groups.get(group.group_id) is not group:
            kind = group.kind if isinstance(group, ModernGroup) else description.CLASSIC_TYPE
            logger.info("group_created group_id=%r type=%s", group.group_id, kind)
        self.groups[group.group_id] = group

    def _remove_group(self, group_id: str) -> None:
        del self.groups[group_id]
        if self._is_loaded:
            logger.info("group_removed group_id=%r", group_id)

    def new_group(self, of: type[G], group_id: str) -> G:
        group = self._uncommitted_groups[group_id] = of(group_id, self)
        return group

    def settings_of(self, group_id: str) -> GroupSettings:
        overrides = self.image.group_configs.get(group_id)
        return self.settings if overrides is None else self.settings.of_group(overrides)

    # -- classic protocol

    def _join(self, ticket: Ticket, command: ClientRequest, now_ms: int) -> Decision:
        request: JoinGroupRequest = command.body
        _check_group_id(request.group_id)
        low_ms, high_ms = self.settings.session_timeout_min_ms, self.settings.session_timeout_max_ms
        if not low_ms <= request.session_timeout_ms <= high_ms:
            raise InvalidSessionTimeout(
                f"session timeout {request.session_timeout_ms} ms; expected {low_ms} to {high_ms} ms"
            )
        out = Outbox()
        group = self.groups.get(request.group_id)
        if isinstance(group, ConsumerGroup) and not group.is_empty:
            return classic_members.join(group, ticket, command, now_ms)
        if isinstance(group, ShareGroup) or (isinstance(group, StreamsGroup) and not group.is_empty):
            raise InconsistentGroupProtocol(f"{request.group_id!r} is a share or streams group; use another group id")
        if not isinstance(group, ClassicGroup):
            if request.member_id:
                raise UnknownMemberId(f"{request.member_id!r} is not a member of {request.group_id!r}; join again")
            # An empty group changes its kind; if this is not persisted, only the record of an empty group is lost.
            out.records += group.tombstones() if group else ()
            group = ClassicGroup(request.group_id, self)
        join.join(group, out, ticket, command, self.new_member_id, now_ms)
        self._put_group(group)
        return out.decision()

    def _sync(self, ticket: Ticket, command: ClientRequest, now_ms: int) -> Decision:
        group = self._group_of_member(command.body.group_id)
        if isinstance(group, ConsumerGroup):
            return classic_members.sync(group, ticket, command, now_ms)
        out = Outbox()
        sync_heartbeat_leave.sync(group, out, ticket, command, now_ms)
        return out.decision()

    def _heartbeat(self, ticket: Ticket, command: ClientRequest, now_ms: int) -> Decision:
        group = self._group_of_member(command.body.group_id)
        if isinstance(group, ConsumerGroup):
            return classic_members.heartbeat(group, ticket, command, now_ms)
        out = Outbox()
        sync_heartbeat_leave.heartbeat(group, out, ticket, command, now_ms)
        return out.decision()

    def _leave(self, ticket: Ticket, command: ClientRequest, now_ms: int) -> Decision:
        group_id = command.body.group_id
        _check_group_id(group_id)
        group = self.groups.get(group_id)
        if isinstance(group, ConsumerGroup):
            return classic_members.leave(group, ticket, command, now_ms)
        out = Outbox()
        sync_heartbeat_leave.leave(group if isinstance(group, ClassicGroup) else None, out, ticket, command, now_ms)
        self.create_or_remove_group(group_id)
        return out.decision()

    def _group_of_member(self, group_id: str) -> ClassicGroup | ConsumerGroup:
        """Returns the classic or consumer group with this id. Raises UnknownMemberId if there is no such group."""
        _check_group_id(group_id)
        group = self.groups.get(group_id)
        if not isinstance(group, ClassicGroup | ConsumerGroup):
            raise UnknownMemberId(f"there is no group {group_id!r}; join first")
        return group

    # -- administration

    def _describe(self, ticket: Ticket, command: ClientRequest, now_ms: int) -> Decision:
        request: DescribeGroupsRequest = command.body
        groups = [
            description.describe(group_id, self.groups.get(group_id), command.version) for group_id in request.groups
        ]
        return _reply(ticket, DescribeGroupsResponse(groups=groups))

    def _list(self, ticket: Ticket, command: ClientRequest, now_ms: int) -> Decision:
        entries = (description.listed_group(group_id, group) for group_id, group in self.groups.items())
        wanted = list(filter(description.filter_of(command.body), entries))
        return _reply(ticket, ListGroupsResponse(error_code=0, groups=wanted))

    def _delete(self, ticket: Ticket, command: ClientRequest, now_ms: int) -> Decision:
        request: DeleteGroupsRequest = command.body
        if len(request.groups_names) == 1 and isinstance(self.groups.get(request.groups_names[0]), ShareGroup):
            return share_requests.delete(self, ticket, request.groups_names[0], now_ms)
        out = Outbox()
        results = []
        for group_id in dict.fromkeys(request.groups_names):
            code, why = ErrorCode.NONE, None
            try:
                out.records += self._group_tombstones(group_id)
            except PenstockError as error:
                code, why = error.code, error.message
            results.append(DeletableGroupResult(group_id=group_id, error_code=code, error_message=why))
        out.reply(ticket, DeleteGroupsResponse(throttle_time_ms=0, results=results))
        return out.decision()

    def _remove_offsets(self, ticket: Ticket, group_id: str) -> Decision:
        self._check_deletable(group_id)
        tps = self.offsets.partitions_of(group_id)
        going = tps[:TOMBSTONES_AT_ONCE] if len(tps) > TOMBSTONES_AT_ONCE else []
        persist = tuple(offset_tombstone(group_id, *tp) for tp in going)
        return Decision(persist=persist, replies=(Reply(ticket, len(going)),))

    def _check_deletable(self, group_id: str) -> Group:
        group = self.groups.get(group_id)
        if group is None:
            raise GroupIdNotFound(f"there is no group {group_id!r}")
        if not group.is_empty or isinstance(group, ShareGroup):  # share groups are deleted one at a time
            raise NonEmptyGroup(f"group {group_id!r} has members; stop them first")
        return group

    def _group_tombstones(self, group_id: str) -> list[StateRecord]:
        group = self._check_deletable(group_id)
        tombstones = [offset_tombstone(group_id, *tp) for tp in self.offsets.partitions_of(group_id)]
        return [*tombstones, *group.tombstones()]

    # -- background work

    def _on_topics_changed(self, now_ms: int) -> Decision:
        result = self._topic_changes.run_slice(now_ms)
        if result.next_ms is not None:
            self.timers.set(TOPIC_CHANGES, result.next_ms)
        return Decision(persist=result.records)

    def _expire_offsets(self, now_ms: int) -> Decision:
        if self._expiration_pass is None:
            self._expiration_pass = ExpirationPass(self)
        tombstones = self._expiration_pass.run_slice(now_ms)
        if self._expiration_pass.is_over:
            self._expiration_pass = None
            self.timers.set(EXPIRATION, now_ms + self.settings.offsets_check_interval_ms)
        else:
            self.timers.set(EXPIRATION, now_ms + EXPIRATION_PAUSE_MS)
        return Decision(persist=tombstones)


def _check_group_id(group_id: str) -> None:
    if not group_id:
        raise InvalidGroupId("the group id is empty")


def _reply(ticket: Ticket, response: Any) -> Decision:
    return Decision(replies=(Reply(ticket=ticket, value=response),))
