"""Members of a group that moves between the protocols: consumers of either, with real metadata and assignments."""

from collections.abc import Callable, Iterable
from random import Random
from typing import Any

from penstock.foundation.codes import ErrorCode
from penstock.foundation.errors import PenstockError
from penstock.foundation.ids import TopicIdPartition
from penstock.groups.classic.consumer_protocol import read_assignment, read_subscription
from penstock.groups.modern.members import AWAY, LEAVING
from penstock.wire.codec import encode_bytes
from penstock.wire.consumer_protocol import AssignedTopic, ConsumerProtocolAssignment, ConsumerProtocolSubscription
from penstock.wire.messages.consumer_group_heartbeat import ConsumerGroupHeartbeatResponse
from penstock.wire.messages.join_group import JoinGroupRequest, JoinGroupRequestProtocol, JoinGroupResponse
from penstock.wire.messages.offset_commit import (
    OffsetCommitRequest,
    OffsetCommitRequestPartition,
    OffsetCommitRequestTopic,
)
from tests.simulation.consumer_client import Consumer
from tests.simulation.group_member import GROUP, PARTITIONS, REQUEST_MS, TOPIC, Doing, Request, SimulatedMember

NEWER = "newer"
"""How the ids of members begin that speak the newer protocol."""
VERSION = 2
"""Of metadata and assignments: with what is owned, and since which generation."""


def write_subscription(owned: Iterable[int], generation: int) -> bytes:
    numbers = sorted(owned)
    topics = [AssignedTopic(topic=TOPIC, partitions=numbers)] if numbers else []
    value = ConsumerProtocolSubscription(
        topics=(TOPIC,), user_data=None, owned_partitions=topics, generation_id=generation
    )
    return VERSION.to_bytes(2, "big") + encode_bytes(value, VERSION)


def write_share(numbers: Iterable[int]) -> bytes:
    topics = [AssignedTopic(topic=TOPIC, partitions=sorted(numbers))]
    value = ConsumerProtocolAssignment(assigned_partitions=topics, user_data=None)
    return VERSION.to_bytes(2, "big") + encode_bytes(value, VERSION)


def read_share(assignment: bytes) -> set[int]:
    topics = read_assignment(assignment).assigned_partitions
    assert {entry.topic for entry in topics} <= {TOPIC}
    return {number for entry in topics for number in entry.partitions}


def share_out(metadata: dict[str, bytes], is_cooperative: bool) -> dict[str, bytes]:
    """Partitions in turn; a cooperative leader leaves out what another one has to give up first."""
    owners: dict[int, tuple[int, str]] = {}
    for member_id, written in sorted(metadata.items()):
        said = read_subscription(written)
        for number in (number for entry in said.owned_partitions for number in entry.partitions):
            owners[number] = max(owners.get(number, (-1, "")), (said.generation_id, member_id))
    shared: dict[str, list[int]] = {member_id: [] for member_id in metadata}
    order = sorted(metadata)
    for number in range(PARTITIONS):
        wanted = order[number % len(order)]
        if not is_cooperative or owners.get(number, (-1, wanted))[1] == wanted:
            shared[wanted].append(number)
    return {member_id: write_share(numbers) for member_id, numbers in shared.items()}


class ClassicConsumer(SimulatedMember):
    """Eager: it owns nothing while it joins. Or cooperative: it keeps what it has until it is told to give it up."""

    def __init__(
        self, number: int, rng: Random, send: Callable[[Request], None], is_static: bool, is_cooperative: bool
    ) -> None:
        super().__init__(number, rng, send, is_static)
        self.is_cooperative = is_cooperative
        self.era = 0
        """Which life of the group it was last told of: a group that was empty counts from the beginning again."""
        self.claimed_in = (0, -1)
        """The era and the generation that it owns its share in."""
        self._metadata: dict[str, bytes] = {}

    @property
    def protocol(self) -> str:
        return "cooperative-sticky" if self.is_cooperative else "range"

    @property
    def claims(self) -> set[int]:
        return self.owned

    def _join(self, now_ms: int) -> None:
        if not self.is_cooperative:
            self._lose_place(self.member_id)
        body = JoinGroupRequest(
            group_id=GROUP,
            session_timeout_ms=self.session_ms,
            rebalance_timeout_ms=self.rebalance_ms,
            member_id=self.member_id,
            group_instance_id=self.instance_id,
            protocol_type="consumer",
            protocols=[
                JoinGroupRequestProtocol(
                    name=self.protocol, metadata=write_subscription(self.owned, self.claimed_in[1])
                )
            ],
        )
        self._ask("join", body, self.join_version, now_ms, 8000 + REQUEST_MS)

    def share(self) -> dict[str, bytes]:
        return share_out(self._metadata, self.is_cooperative)

    def on_reply(self, number: int, reply: Any, now_ms: int) -> None:
        code = reply.code if isinstance(reply, PenstockError) else getattr(reply, "error_code", 0)
        if self.is_cooperative and code == ErrorCode.REBALANCE_IN_PROGRESS:
            doing = next((entry for entry in self._doing.values() if entry.number == number), None)
            if self.is_up and doing is not None:
                del self._doing[doing.kind]
                self.wants = "join"  # with all that it owns
            return
        super().on_reply(number, reply, now_ms)

    def _on_success(self, doing: Doing, reply: Any, now_ms: int) -> None:
        if doing.kind == "join":
            assert isinstance(reply, JoinGroupResponse)
            self._metadata = {member.member_id: member.metadata for member in reply.members}
        if doing.kind != "sync":
            super()._on_success(doing, reply, now_ms)
            return
        given = read_share(reply.assignment)
        must_say = self.is_cooperative and not self.owned <= given
        self.owned, self.believes = given, True
        self.claimed_in = (self.era, self.generation)
        self.heard_ms, self.next_heartbeat_ms = doing.sent_ms, now_ms
        self.wants = "join" if must_say else "work"

    @property
    def stamp(self) -> str:
        return f"{self.era}.{self.generation}.{self.member_id}"


class NewerConsumer(Consumer):
    """A consumer of the newer protocol, in a group that may be gone, or of the other kind, when it asks."""

    era = 0

    def __init__(self, **fields: Any) -> None:
        super().__init__(**fields)
        self.since: dict[TopicIdPartition, str] = {}
        """When it was first told that it owns each of its partitions: a commit is as old as that (KIP-1251)."""

    def tick(self, now_ms: int) -> None:
        super().tick(now_ms)
        self._note()

    def receive(self, number: int, answer: ConsumerGroupHeartbeatResponse | PenstockError, now_ms: int) -> None:
        super().receive(number, answer, now_ms)
        self._note()

    def _note(self) -> None:
        stamp = f"{self.era}.{self.epoch}.{self.member_id}"
        self.since = {place: self.since.get(place, stamp) for place in self.claims}

    def _refused(self, error: PenstockError, now_ms: int) -> None:
        match error.code:
            case ErrorCode.COORDINATOR_NOT_AVAILABLE | ErrorCode.NOT_COORDINATOR:
                self.said = None
            case ErrorCode.GROUP_ID_NOT_FOUND:
                self.start_over(now_ms)
                self.next_ms = now_ms + 500
            case _:
                super()._refused(error, now_ms)


class Seat:
    """Where one consumer runs after the other, of this protocol or that, under the same instance id if it has one."""

    transaction_is_open = False

    def __init__(self, number: int, rng: Random, send: Callable[[Request], None], is_static: bool) -> None:
        self.number = number
        self.rng = rng
        self._send = send
        self.is_static = is_static
        self._lives = 0
        self._requests = 0
        self._asked: dict[int, tuple[int, int]] = {}
        """For each request that set out from here: in which life, and its number there."""
        self.is_cooperative = False
        self.newer = 0.5
        """How likely the next one speaks the newer protocol."""
        self.consumer: ClassicConsumer | NewerConsumer = self._classic()

    def _classic(self) -> ClassicConsumer:
        member = ClassicConsumer(self.number, self.rng, self._sender(), self.is_static, self.is_cooperative)
        member.transactional = 0.0
        return member

    def _newer(self, now_ms: int) -> NewerConsumer:
        send = self._sender()
        return NewerConsumer(
            place=f"seat {self.number}",
            member_id=f"{NEWER}-{self.number}-{self._lives}",
            instance_id=f"instance-{self.number}" if self.is_static else None,
            version=1,
            request_timeout_ms=REQUEST_MS,
            rng=self.rng,
            send=lambda number, body: send(Request(number, body, 1)),
            names=frozenset({TOPIC}),
            next_ms=now_ms,
        )

    def _sender(self) -> Callable[[Request], None]:
        """Sends requests of this life."""
        self._lives += 1
        life = self._lives

        def send(request: Request) -> None:
            self._requests += 1
            self._asked[self._requests] = (life, request.number)
            self._send(Request(self._requests, request.body, request.version))

        return send

    # -- what it is now

    @property
    def is_newer(self) -> bool:
        return isinstance(self.consumer, NewerConsumer)

    @property
    def member_id(self) -> str:
        return self.consumer.member_id

    @property
    def is_up(self) -> bool:
        return self.consumer.is_running if isinstance(self.consumer, NewerConsumer) else self.consumer.is_up

    @property
    def is_stuck(self) -> bool:
        return self.consumer.hangs if isinstance(self.consumer, NewerConsumer) else self.consumer.is_stuck

    @is_stuck.setter
    def is_stuck(self, value: bool) -> None:
        if isinstance(self.consumer, NewerConsumer):
            self.consumer.hangs = value
        else:
            self.consumer.is_stuck = value

    def claims(self) -> dict[int, tuple[int, int]]:
        """The partitions that it believes to own, and the era and the epoch in which it was last told so."""
        if isinstance(self.consumer, NewerConsumer):
            return {place.partition: (self.consumer.era, epoch) for place, epoch in self.consumer.claims.items()}
        return dict.fromkeys(self.consumer.owned, self.consumer.claimed_in) if self.consumer.believes else {}

    # -- what it does, and what happens to it

    def start(self, now_ms: int) -> None:
        if self.rng.random() < self.newer:
            self.consumer = self._newer(now_ms)
        else:
            self.consumer = self._classic()
            self.consumer.start(now_ms)

    def die(self) -> None:
        if isinstance(self.consumer, NewerConsumer):
            self.consumer.stop()
        else:
            self.consumer.die()

    def leave(self, now_ms: int) -> None:
        if isinstance(self.consumer, NewerConsumer):
            self.consumer.leave(AWAY if self.is_static and self.rng.random() < 0.5 else LEAVING)
        else:
            self.consumer.leave(now_ms)

    def reconnect(self) -> None:
        self.consumer.reconnect()

    def tick(self, now_ms: int) -> None:
        self.consumer.tick(now_ms)
        if isinstance(self.consumer, NewerConsumer) and self.consumer.claims and self.rng.random() < 0.03:
            self._commit(self.consumer)

    def _commit(self, consumer: NewerConsumer) -> None:
        """A consumer of the newer protocol commits what it owns, and does not wait for an answer."""
        self._requests += 1
        partitions = [
            OffsetCommitRequestPartition(
                partition_index=place.partition, committed_offset=self._requests, committed_metadata=stamp
            )
            for place, stamp in consumer.since.items()
        ]
        request = OffsetCommitRequest(
            group_id=GROUP,
            generation_id_or_member_epoch=consumer.epoch,
            member_id=consumer.member_id,
            topics=[OffsetCommitRequestTopic(name=TOPIC, partitions=partitions)],
        )
        self._send(Request(self._requests, request, 9))

    def on_reply(self, number: int, reply: Any, now_ms: int) -> None:
        life, number = self._asked.pop(number, (0, 0))
        if life != self._lives:
            return
        if isinstance(reply, tuple):
            self.consumer.era, reply = reply
        if isinstance(self.consumer, NewerConsumer):
            self.consumer.receive(number, reply, now_ms)
        else:
            self.consumer.on_reply(number, reply, now_ms)
