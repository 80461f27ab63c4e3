"""A coordinator with a log in memory instead of a runtime; its members send what a test has them send."""

import struct
from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Any

from penstock.cluster.image import ClusterImage, PartitionState, Topic
from penstock.foundation.codes import ErrorCode
from penstock.foundation.decision import NO_PRODUCER, NO_TICKET, ClientRequest, Decision, StateRecord, Ticket
from penstock.foundation.errors import CoordinatorNotAvailable, PenstockError
from penstock.foundation.settings import Table
from penstock.groups.classic.group import ClassicGroup
from penstock.groups.coordinator import GroupCoordinator
from penstock.groups.settings import GROUP_SETTINGS, GroupSettings
from penstock.wire.messages.heartbeat import HeartbeatRequest
from penstock.wire.messages.join_group import JoinGroupRequest, JoinGroupRequestProtocol, JoinGroupResponse
from penstock.wire.messages.leave_group import LeaveGroupRequest, MemberIdentity
from penstock.wire.messages.offset_commit import (
    OffsetCommitRequest,
    OffsetCommitRequestPartition,
    OffsetCommitRequestTopic,
)
from penstock.wire.messages.offset_fetch import (
    OffsetFetchRequest,
    OffsetFetchRequestGroup,
    OffsetFetchRequestTopics,
    OffsetFetchResponseGroup,
)
from penstock.wire.messages.sync_group import SyncGroupRequest, SyncGroupRequestAssignment
from penstock.wire.messages.txn_offset_commit import (
    TxnOffsetCommitRequest,
    TxnOffsetCommitRequestPartition,
    TxnOffsetCommitRequestTopic,
)
from penstock.wire.schema import message_of

NOW_MS = 1_700_000_000_000
SESSION_MS = 10_000
REBALANCE_MS = 60_000
DELAY_MS = 3000
GROUP = "readers"
TXN_BY_NAMES = 5
"""The newest version of TxnOffsetCommit that names topics; in later ones they have ids."""


def settings_of(**changes: Any) -> GroupSettings:
    """What Kafka has by default, but for what is said."""
    defaults = Table(GROUP_SETTINGS).parse({})
    settings = GroupSettings.of(defaults.__getitem__)
    by_kind = dict(settings.by_kind)
    for name in [name for name in changes if not hasattr(settings, name)]:
        kind, _, rest = name.partition("_")
        by_kind[kind] = replace(by_kind[kind], **{rest: changes.pop(name)})
    return replace(settings, by_kind=by_kind, **changes)


def topic_of(name: str, count: int = 3, topic_id: bytes | None = None) -> Topic:
    state = PartitionState(replicas=(1,), leader=1, leader_epoch=0, isr=(1,))
    return Topic(
        topic_id=topic_id or name.encode().ljust(16, b"\1"), name=name, partitions=dict.fromkeys(range(count), state)
    )


def image_of(*topics: Topic) -> ClusterImage:
    return ClusterImage(
        topics={topic.topic_id: topic for topic in topics}, by_name={topic.name: topic for topic in topics}
    )


ORDERS = topic_of("orders")
PRICES = topic_of("prices")


@dataclass(frozen=True)
class Ended:
    """The end of a transaction, in the log."""

    producer_id: int
    committed: bool


class World:
    """Does what a runtime does: persists, applies, replies, wakes."""

    def __init__(self, image: ClusterImage | None = None, **changes: Any) -> None:
        self.settings = settings_of(**changes)
        self.image = image_of(ORDERS, PRICES) if image is None else image
        self.now_ms = NOW_MS
        self.log: list[tuple[StateRecord, int] | Ended] = []
        self.replies: dict[Ticket, Any] = {}
        self.can_persist = True
        self.ids = 0
        self.tickets = 0
        self.machine = self._make()
        self.machine.loaded(self.now_ms)

    def _make(self) -> GroupCoordinator:
        return GroupCoordinator(settings=self.settings, image=self.image, new_member_id=self._new_member_id)

    def _new_member_id(self, name: str) -> str:
        self.ids += 1
        return f"{name}-{self.ids}"

    # -- what a runtime does

    def submit(self, body: Any, version: int | None = None, client_id: str = "client") -> Ticket:
        """Have a request decided, in the newest version if none is said; TxnOffsetCommit by the names of topics."""
        newest = TXN_BY_NAMES if isinstance(body, TxnOffsetCommitRequest) else message_of(type(body)).versions[-1]
        command = ClientRequest(
            body=body,
            version=newest if version is None else version,
            client_id=client_id,
            client_host="10.0.0.1",
        )
        self.tickets += 1
        ticket = self.tickets
        try:
            decision = self.machine.decide(ticket, command, self.now_ms)
        except PenstockError as error:
            self.replies[ticket] = error
        else:
            self.carry_out(decision)
        return ticket

    def tell(self, command: Any) -> Decision:
        decision = self.machine.decide(NO_TICKET, command, self.now_ms)
        self.carry_out(decision)
        return decision

    def carry_out(self, decision: Decision) -> None:
        for reply in decision.replies:
            assert reply.ticket not in self.replies, "no request is answered twice"
        if decision.persist and not self.can_persist:
            for reply in decision.replies:
                self.replies[reply.ticket] = CoordinatorNotAvailable("the log cannot be written")
            return
        producer_id = decision.transaction.producer_id if decision.transaction else NO_PRODUCER
        for record in decision.persist:
            self.log.append((record, producer_id))
            self.machine.apply(record, producer_id)
        for reply in decision.replies:
            self.replies[reply.ticket] = reply.value

    def advance(self, ms: int) -> None:
        """Let time pass, and do what is due meanwhile at the time it is due."""
        end_ms = self.now_ms + ms
        while (at_ms := self.machine.wake_at_ms) is not None and at_ms <= end_ms:
            self.now_ms = max(self.now_ms, at_ms)
            self.carry_out(self.machine.wake(self.now_ms))
        self.now_ms = end_ms

    def end_transaction(self, producer_id: int, committed: bool) -> None:
        self.log.append(Ended(producer_id, committed))
        self.machine.end_transaction(producer_id, committed)

    def restart(self) -> None:
        """Another coordinator, made of the log alone."""
        self.machine = self._make()
        for entry in self.log:
            if isinstance(entry, Ended):
                self.machine.end_transaction(entry.producer_id, entry.committed)
            else:
                self.machine.apply(*entry)
        self.machine.loaded(self.now_ms)

    # -- looking

    def call(self, body: Any, version: int | None = None, client_id: str = "client") -> Any:
        """Have a request decided that is answered at once."""
        return self.replies[self.submit(body, version, client_id)]

    def code(self, ticket: Ticket) -> ErrorCode:
        """How a ticket was answered."""
        reply = self.replies[ticket]
        return ErrorCode(reply.code if isinstance(reply, PenstockError) else reply.error_code)

    def refusal(self, body: Any, version: int | None = None) -> ErrorCode:
        return self.code(self.submit(body, version))

    def is_waiting(self, ticket: Ticket) -> bool:
        return ticket not in self.replies

    @property
    def group(self) -> ClassicGroup:
        group = self.machine.groups[GROUP]
        assert isinstance(group, ClassicGroup)
        return group

    @property
    def state(self) -> str:
        group = self.machine.groups.get(GROUP)
        return group.state_name if group else "Dead"

    # -- whole stories

    def admit(self, *names: str, **wanted: Any) -> list["Membership"]:
        """New members of a group, dynamic ones, joined and ready to sync."""
        tickets = [self.submit(join_of(**wanted), 3, client_id=name) for name in names]
        self.advance(2 * DELAY_MS)  # put off once, if others come after the first
        return [self.membership(ticket) for ticket in tickets]

    def membership(self, ticket: Ticket) -> "Membership":
        reply = self.replies[ticket]
        assert isinstance(reply, JoinGroupResponse), reply
        assert reply.error_code == 0, reply
        return Membership(reply.member_id, reply.generation_id, reply.leader == reply.member_id)

    def settle(self, memberships: Sequence["Membership"]) -> None:
        """All sync; each is assigned its own name."""
        leader = next(membership for membership in memberships if membership.leads)
        shared = {membership.member_id: membership.member_id.encode() for membership in memberships}
        tickets = [self.submit(sync_of(membership)) for membership in memberships if not membership.leads]
        assert self.code(self.submit(sync_of(leader, shared))) == ErrorCode.NONE
        for ticket in tickets:
            assert self.code(ticket) == ErrorCode.NONE

    def stable(self, *names: str, **wanted: Any) -> list["Membership"]:
        """A stable group of new dynamic members; the leader is the first."""
        memberships = self.admit(*names, **wanted)
        self.settle(memberships)
        assert self.state == "Stable"
        return memberships

    def fetched(self, *numbers: int, topic: str = "orders", require_stable: bool = False) -> list[Any]:
        """Committed offsets, or codes where there is an error."""
        wanted = OffsetFetchRequestTopics(name=topic, partition_indexes=numbers)
        request = OffsetFetchRequest(
            groups=[OffsetFetchRequestGroup(group_id=GROUP, topics=[wanted])], require_stable=require_stable
        )
        (found,) = self.call(request, 9).groups
        assert isinstance(found, OffsetFetchResponseGroup)
        return [
            ErrorCode(partition.error_code) if partition.error_code else partition.committed_offset
            for partition in found.topics[0].partitions
        ]


@dataclass(frozen=True)
class Membership:
    """What a member knows of its place in a group."""

    member_id: str
    generation: int
    leads: bool


# -- requests


def subscription(*topics: str, rest: bytes = b"\xff\xff\xff\xff") -> bytes:
    """What a consumer says of itself: version 1, its topics, and bytes of its own."""
    data = struct.pack(">hi", 1, len(topics))
    for topic in topics:
        data += struct.pack(">h", len(topic)) + topic.encode()
    return data + rest


def join_of(
    member_id: str = "",
    instance_id: str | None = None,
    protocols: Sequence[tuple[str, bytes]] = (("range", b"plain"),),
    protocol_type: str = "consumer",
    session_ms: int = SESSION_MS,
    rebalance_ms: int = REBALANCE_MS,
    group_id: str = GROUP,
) -> JoinGroupRequest:
    return JoinGroupRequest(
        group_id=group_id,
        session_timeout_ms=session_ms,
        rebalance_timeout_ms=rebalance_ms,
        member_id=member_id,
        group_instance_id=instance_id,
        protocol_type=protocol_type,
        protocols=[JoinGroupRequestProtocol(name=name, metadata=metadata) for name, metadata in protocols],
    )


def sync_of(
    membership: Membership,
    shared: dict[str, bytes] | None = None,
    instance_id: str | None = None,
    protocol_type: str | None = "consumer",
    protocol: str | None = "range",
    group_id: str = GROUP,
) -> SyncGroupRequest:
    return SyncGroupRequest(
        group_id=group_id,
        generation_id=membership.generation,
        member_id=membership.member_id,
        group_instance_id=instance_id,
        protocol_type=protocol_type,
        protocol_name=protocol,
        assignments=[
            SyncGroupRequestAssignment(member_id=member_id, assignment=assignment)
            for member_id, assignment in (shared or {}).items()
        ],
    )


def heartbeat_of(membership: Membership, instance_id: str | None = None, group_id: str = GROUP) -> HeartbeatRequest:
    return HeartbeatRequest(
        group_id=group_id,
        generation_id=membership.generation,
        member_id=membership.member_id,
        group_instance_id=instance_id,
    )


def leave_of(*member_ids: str, instance_id: str | None = None, group_id: str = GROUP) -> LeaveGroupRequest:
    members = [
        MemberIdentity(member_id=member_id, group_instance_id=instance_id, reason="done") for member_id in member_ids
    ]
    return LeaveGroupRequest(group_id=group_id, members=members)


def commit_of(
    offsets: dict[int, int],
    membership: Membership | None = None,
    topic: str = "orders",
    metadata: str | None = "",
    instance_id: str | None = None,
    group_id: str = GROUP,
    topic_id: bytes = bytes(16),
) -> OffsetCommitRequest:
    """A commit by a member, or by a client that is not a member."""
    return OffsetCommitRequest(
        group_id=group_id,
        generation_id_or_member_epoch=membership.generation if membership else -1,
        member_id=membership.member_id if membership else "",
        group_instance_id=instance_id,
        topics=[
            OffsetCommitRequestTopic(
                name=topic,
                topic_id=topic_id,
                partitions=[
                    OffsetCommitRequestPartition(
                        partition_index=number,
                        committed_offset=offset,
                        committed_leader_epoch=7,
                        committed_metadata=metadata,
                    )
                    for number, offset in offsets.items()
                ],
            )
        ],
    )


def txn_commit_of(
    offsets: dict[int, int],
    membership: Membership | None = None,
    producer_id: int = 1,
    topic: str = "orders",
    metadata: str | None = None,
    instance_id: str | None = None,
    group_id: str = GROUP,
) -> TxnOffsetCommitRequest:
    return TxnOffsetCommitRequest(
        transactional_id="tx",
        group_id=group_id,
        producer_id=producer_id,
        producer_epoch=0,
        generation_id=membership.generation if membership else -1,
        member_id=membership.member_id if membership else "",
        group_instance_id=instance_id,
        topics=[
            TxnOffsetCommitRequestTopic(
                name=topic,
                partitions=[
                    TxnOffsetCommitRequestPartition(
                        partition_index=number, committed_offset=offset, committed_metadata=metadata
                    )
                    for number, offset in offsets.items()
                ],
            )
        ],
    )


def codes_of(response: Any) -> list[ErrorCode]:
    """Of every partition in a response."""
    return [ErrorCode(partition.error_code) for topic in response.topics for partition in topic.partitions]
