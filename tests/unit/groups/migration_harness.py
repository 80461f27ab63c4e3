"""A group with members of both protocols: their requests and assignments."""

from collections.abc import Sequence
from typing import Any

from penstock.foundation.errors import PenstockError
from penstock.groups.classic.consumer_protocol import read_assignment
from penstock.groups.classic.group import ClassicGroup
from penstock.groups.consumer.group import ConsumerGroup
from penstock.groups.consumer.members import Member
from penstock.wire.codec import encode_bytes
from penstock.wire.consumer_protocol import AssignedTopic, ConsumerProtocolAssignment, ConsumerProtocolSubscription
from penstock.wire.messages.consumer_group_heartbeat import (
    ConsumerGroupHeartbeatRequest,
    ConsumerGroupHeartbeatResponse,
    TopicPartitions,
)
from penstock.wire.messages.join_group import JoinGroupResponse

from .coordinator_harness import GROUP, Membership, World, heartbeat_of, image_of, join_of, sync_of, topic_of

ORDERS = topic_of("orders", 4)
PRICES = topic_of("prices", 2)
RANGE = "range"
COOPERATIVE = "cooperative-sticky"

Owned = dict[str, list[int]]
"""Partitions by the names of their topics."""


def subscription(
    *topics: str, owned: Owned | None = None, version: int = 1, generation: int = -1, rack: str | None = None
) -> bytes:
    """What a consumer of the classic protocol says about itself."""
    said = ConsumerProtocolSubscription(
        topics=topics,
        user_data=None,
        owned_partitions=_wire(owned or {}),
        generation_id=generation,
        rack_id=rack,
    )
    return version.to_bytes(2, "big") + encode_bytes(said, version)


def assignment(owned: Owned, version: int = 1, user_data: bytes | None = None) -> bytes:
    """The assignment of a consumer of the classic protocol."""
    value = ConsumerProtocolAssignment(assigned_partitions=_wire(owned), user_data=user_data)
    return version.to_bytes(2, "big") + encode_bytes(value, version)


def _wire(owned: Owned) -> list[AssignedTopic]:
    return [AssignedTopic(topic=topic, partitions=numbers) for topic, numbers in owned.items()]


def assigned(written: bytes) -> Owned:
    return {entry.topic: list(entry.partitions) for entry in read_assignment(written).assigned_partitions}


class MigrationHarness(World):
    """Topics `orders` with four partitions and `prices` with two."""

    def __init__(self, **settings: Any) -> None:
        super().__init__(image_of(ORDERS, PRICES), **settings)

    # -- what is there

    @property
    def classic(self) -> ClassicGroup:
        return self.group

    @property
    def consumer(self) -> ConsumerGroup:
        group = self.machine.groups[GROUP]
        assert isinstance(group, ConsumerGroup), group
        return group

    @property
    def is_classic(self) -> bool:
        return isinstance(self.machine.groups[GROUP], ClassicGroup)

    def member(self, member_id: str) -> Member:
        return self.consumer.state.members[member_id]

    def held(self, member_id: str) -> Owned:
        """What the coordinator wants a member to have now."""
        found: Owned = {}
        for place in sorted(self.member(member_id).assigned):
            found.setdefault(self.image.topics[place.topic_id].name, []).append(place.partition)
        return found

    # -- a classic group

    def classics(self, shares: dict[str, Owned], protocol: str = RANGE, **wanted: Any) -> dict[str, Membership]:
        """A stable classic group in which each has its share, by the names of its members."""
        said = [(protocol, subscription("orders"))]
        memberships = dict(zip(shares, self.admit(*shares, protocols=said, **wanted), strict=True))
        leader = next(membership for membership in memberships.values() if membership.leads)
        given = {memberships[name].member_id: assignment(owned) for name, owned in shares.items()}
        for membership in memberships.values():
            if membership is not leader:
                self.submit(sync_of(membership, protocol=protocol))
        self.submit(sync_of(leader, given, protocol=protocol))
        assert self.state == "Stable"
        return memberships

    def mixed(
        self, shares: dict[str, Owned] | None = None, protocol: str = RANGE, **wanted: Any
    ) -> tuple[dict[str, Membership], ConsumerGroupHeartbeatResponse]:
        """A consumer group of classic members, which do not know that yet, and `new`, of the newer protocol."""
        memberships = self.classics(shares or {"a": {"orders": [0, 1]}, "b": {"orders": [2, 3]}}, protocol, **wanted)
        response = self.beat("new")
        self.advance(0)
        return memberships, response

    # -- what members of the newer protocol say

    def beat(self, member_id: str, epoch: int = 0, owned: Owned | None = None, **fields: Any) -> Any:
        answer = self.call(self.beat_of(member_id, epoch, owned, **fields), 1)
        assert isinstance(answer, ConsumerGroupHeartbeatResponse), answer
        return answer

    def beat_of(
        self, member_id: str, epoch: int = 0, owned: Owned | None = None, **fields: Any
    ) -> ConsumerGroupHeartbeatRequest:
        """A heartbeat; one that joins says all that it has to."""
        topics = {} if owned is None and epoch == 0 else owned
        if epoch == 0:
            fields = {"rebalance_timeout_ms": 60_000, "subscribed_topic_names": ("orders",), **fields}
        return ConsumerGroupHeartbeatRequest(
            group_id=GROUP,
            member_id=member_id,
            member_epoch=epoch,
            topic_partitions=None
            if topics is None
            else [
                TopicPartitions(topic_id=self.image.by_name[topic].topic_id, partitions=numbers)
                for topic, numbers in topics.items()
            ],
            **fields,
        )

    # -- what classic members of a consumer group say

    def join(
        self,
        member_id: str = "",
        owned: Owned | None = None,
        *,
        topics: Sequence[str] = ("orders",),
        protocol: str = RANGE,
        version: int = 9,
        **wanted: Any,
    ) -> Membership:
        """Join, or join again, and be answered at once."""
        said = subscription(*topics, owned=owned)
        reply = self.call(join_of(member_id, protocols=[(protocol, said)], **wanted), version)
        assert isinstance(reply, JoinGroupResponse), reply
        assert (reply.error_code, reply.leader, list(reply.members)) == (0, "", [])
        assert (reply.protocol_type, reply.protocol_name, reply.skip_assignment) == ("consumer", protocol, False)
        return Membership(reply.member_id, reply.generation_id, False)

    def sync(self, membership: Membership, protocol: str = RANGE, **wanted: Any) -> Owned:
        reply = self.call(sync_of(membership, protocol=protocol, **wanted))
        assert not isinstance(reply, PenstockError), reply
        assert (reply.error_code, reply.protocol_type, reply.protocol_name) == (0, "consumer", protocol)
        return assigned(reply.assignment)

    def hears(self, membership: Membership, **wanted: Any) -> int:
        """What a heartbeat is answered with."""
        return self.code(self.submit(heartbeat_of(membership, **wanted)))

    def settle_all(self, memberships: dict[str, Membership], newer: str = "new") -> dict[str, Membership]:
        """All members follow their assignments until nothing changes; returns the memberships of classic members."""
        for _ in range(5):
            for name, membership in memberships.items():
                memberships[name] = self.join(membership.member_id)
                self.sync(memberships[name])
            member = self.member(newer)
            self.beat(newer, member.epoch, self.held(newer))
        assert self.state == "Stable", self.state
        return memberships
