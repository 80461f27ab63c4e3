"""Members of a group that migrates between the protocols: consumers of either, with real metadata and assignments."""

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
from penstock.wire.messages.join_group import JoinGroupRequest, JoinGroupRequestProtocol, JoinGroupResponse
from penstock.wire.messages.offset_commit import (
    OffsetCommitRequest,
    OffsetCommitRequestPartition,
    OffsetCommitRequestTopic,
)
from tests.simulation.classic_member import PARTITIONS, REQUEST_MS, TOPIC, ClassicMember, Pending
from tests.simulation.consumer_client import Consumer
from tests.simulation.group_machines import GROUP
from tests.simulation.group_simulation import Request

VERSION = 2
"""Of subscriptions and assignments: with the owned partitions, and their generation."""


def encode_subscription(owned: Iterable[int], generation: int) -> bytes:
    numbers = sorted(owned)
    topics = [AssignedTopic(topic=TOPIC, partitions=numbers)] if numbers else []
    value = ConsumerProtocolSubscription(
        topics=(TOPIC,), user_data=None, owned_partitions=topics, generation_id=generation
    )
    return VERSION.to_bytes(2, "big") + encode_bytes(value, VERSION)


def encode_assignment(numbers: Iterable[int]) -> bytes:
    topics = [AssignedTopic(topic=TOPIC, partitions=sorted(numbers))]
    value = ConsumerProtocolAssignment(assigned_partitions=topics, user_data=None)
    return VERSION.to_bytes(2, "big") + encode_bytes(value, VERSION)


def decode_assignment(assignment: bytes) -> set[int]:
    topics = read_assignment(assignment).assigned_partitions
    assert {entry.topic for entry in topics} <= {TOPIC}
    return {number for entry in topics for number in entry.partitions}


def assign_in_turn(metadata: dict[str, bytes], is_cooperative: bool) -> dict[str, bytes]:
    """Assigns partitions in turn; a cooperative leader leaves out those that another member has to revoke first."""
    owners: dict[int, tuple[int, str]] = {}
    for member_id, written in sorted(metadata.items()):
        subscription = read_subscription(written)
        for number in (number for entry in subscription.owned_partitions for number in entry.partitions):
            owners[number] = max(owners.get(number, (-1, "")), (subscription.generation_id, member_id))
    shared: dict[str, list[int]] = {member_id: [] for member_id in metadata}
    order = sorted(metadata)
    for number in range(PARTITIONS):
        wanted = order[number % len(order)]
        if not is_cooperative or owners.get(number, (-1, wanted))[1] == wanted:
            shared[wanted].append(number)
    return {member_id: encode_assignment(numbers) for member_id, numbers in shared.items()}


class ClassicConsumer(ClassicMember):
    """Eager: owns nothing while it joins. Or cooperative: keeps its partitions until an assignment lacks them."""

    transactional = 0.0

    def __init__(
        self, number: int, rng: Random, send: Callable[[Request], None], is_static: bool, is_cooperative: bool
    ) -> None:
        super().__init__(number, rng, send, is_static)
        self.is_cooperative = is_cooperative
        self.era = 0
        """The era of its last response: a group that was empty starts again with generation 1, in a new era."""
        self.assigned_in = (0, -1)
        """The era and the generation of its assignment."""
        self._metadata: dict[str, bytes] = {}

    @property
    def protocol(self) -> str:
        return "cooperative-sticky" if self.is_cooperative else "range"

    def claims(self) -> dict[int, tuple[int, int]]:
        return dict.fromkeys(self.owned, self.assigned_in) if self.believes else {}

    def _join(self, now_ms: int) -> None:
        if not self.is_cooperative:
            self._revoke(self.member_id)
        body = JoinGroupRequest(
            group_id=GROUP,
            session_timeout_ms=self.session_ms,
            rebalance_timeout_ms=self.rebalance_ms,
            member_id=self.member_id,
            group_instance_id=self.instance_id,
            protocol_type="consumer",
            protocols=[
                JoinGroupRequestProtocol(
                    name=self.protocol, metadata=encode_subscription(self.owned, self.assigned_in[1])
                )
            ],
        )
        self._ask("join", body, self.join_version, now_ms, 8000 + REQUEST_MS)

    def assign(self) -> dict[str, bytes]:
        return assign_in_turn(self._metadata, self.is_cooperative)

    def receive(self, number: int, response: Any, now_ms: int) -> None:
        code = response.code if isinstance(response, PenstockError) else getattr(response, "error_code", 0)
        if self.is_cooperative and code == ErrorCode.REBALANCE_IN_PROGRESS:
            pending = next((entry for entry in self._pending.values() if entry.number == number), None)
            if self.is_running and pending is not None:
                del self._pending[pending.kind]
                self.wants = "join"  # and keeps its partitions
            return
        super().receive(number, response, now_ms)

    def _on_success(self, pending: Pending, response: Any, now_ms: int) -> None:
        if pending.kind == "join":
            assert isinstance(response, JoinGroupResponse)
            self._metadata = {member.member_id: member.metadata for member in response.members}
        if pending.kind != "sync":
            super()._on_success(pending, response, now_ms)
            return
        assigned = decode_assignment(response.assignment)
        must_rejoin = self.is_cooperative and not self.owned <= assigned
        self.owned, self.believes = assigned, True
        self.assigned_in = (self.era, self.generation)
        self.last_answered_ms, self.next_heartbeat_ms = pending.sent_ms, now_ms
        self.wants = "join" if must_rejoin else "work"

    @property
    def stamp(self) -> str:
        return f"{self.era}.{self.generation}.{self.member_id}"


class MigratingConsumer(Consumer):
    """A consumer of the consumer protocol, in a group that may not exist, or be a classic one, when it sends."""

    era = 0

    def __init__(self, **fields: Any) -> None:
        super().__init__(**fields)
        self.since: dict[TopicIdPartition, str] = {}
        """When each of its partitions was first assigned to it: the age of a commit (KIP-1251)."""

    def claims(self) -> dict[int, tuple[int, int]]:
        return {partition.partition: (self.era, epoch) for partition, epoch in self.owned.items()}

    def tick(self, now_ms: int) -> None:
        super().tick(now_ms)
        self._update_since()

    def receive(self, number: int, response: Any, now_ms: int) -> None:
        super().receive(number, response, now_ms)
        self._update_since()

    def _update_since(self) -> None:
        stamp = f"{self.era}.{self.epoch}.{self.member_id}"
        self.since = {partition: self.since.get(partition, stamp) for partition in self.owned}

    def _on_error(self, error: PenstockError, now_ms: int) -> None:
        match error.code:
            case ErrorCode.COORDINATOR_NOT_AVAILABLE | ErrorCode.NOT_COORDINATOR:
                self.reported = None
            case ErrorCode.GROUP_ID_NOT_FOUND:
                self.rejoin(now_ms)
                self.next_ms = now_ms + 500
            case _:
                super()._on_error(error, now_ms)


class ConsumerHost:
    """Runs one consumer after the other, of either protocol, under the same instance id if it has one."""

    transaction_is_open = False

    def __init__(self, number: int, rng: Random, send: Callable[[Request], None], is_static: bool) -> None:
        self.number = number
        self.rng = rng
        self.is_static = is_static
        self._send = send
        self._requests = 0
        self._consumers = 0
        self._sent: dict[int, tuple[int, int]] = {}
        """For each request: which consumer sent it, and its number there."""
        self.is_cooperative = False
        self.consumer_protocol = 0.5
        """The probability that the next consumer uses the consumer protocol."""
        self.consumer: ClassicConsumer | MigratingConsumer = self._new_classic()

    def _new_classic(self) -> ClassicConsumer:
        return ClassicConsumer(self.number, self.rng, self._sender(), self.is_static, self.is_cooperative)

    def _new_consumer(self, now_ms: int) -> MigratingConsumer:
        return MigratingConsumer(
            send=self._sender(),
            place=f"host {self.number}",
            member_id=f"modern-{self.number}-{self._consumers}",
            instance_id=f"instance-{self.number}" if self.is_static else None,
            version=1,
            request_timeout_ms=REQUEST_MS,
            rng=self.rng,
            names=frozenset({TOPIC}),
            next_ms=now_ms,
        )

    def _sender(self) -> Callable[[Request], None]:
        """Sends the requests of one consumer, numbered for this host."""
        self._consumers += 1
        consumer = self._consumers

        def send(request: Request) -> None:
            self._requests += 1
            self._sent[self._requests] = (consumer, request.number)
            self._send(request._replace(number=self._requests))

        return send

    @property
    def uses_consumer_protocol(self) -> bool:
        return isinstance(self.consumer, MigratingConsumer)

    @property
    def member_id(self) -> str:
        return self.consumer.member_id

    @property
    def is_running(self) -> bool:
        return self.consumer.is_running

    @property
    def is_stuck(self) -> bool:
        return self.consumer.is_stuck

    @is_stuck.setter
    def is_stuck(self, value: bool) -> None:
        self.consumer.is_stuck = value

    def claims(self) -> dict[int, tuple[int, int]]:
        """The partitions that its consumer believes to own, and the era and the epoch of the assignment."""
        return self.consumer.claims()

    def start(self, now_ms: int) -> None:
        if self.rng.random() < self.consumer_protocol:
            self.consumer = self._new_consumer(now_ms)
        else:
            self.consumer = self._new_classic()
            self.consumer.start(now_ms)

    def stop(self) -> None:
        self.consumer.stop()

    def leave(self, now_ms: int) -> None:
        if isinstance(self.consumer, MigratingConsumer):
            self.consumer.leave(AWAY if self.is_static and self.rng.random() < 0.5 else LEAVING)
        else:
            self.consumer.leave(now_ms)

    def reconnect(self) -> None:
        self.consumer.reconnect()

    def tick(self, now_ms: int) -> None:
        self.consumer.tick(now_ms)
        if isinstance(self.consumer, MigratingConsumer) and self.consumer.owned and self.rng.random() < 0.03:
            self._commit(self.consumer)

    def _commit(self, consumer: MigratingConsumer) -> None:
        """Commits offsets of all partitions of a consumer. Does not wait for the response."""
        self._requests += 1
        partitions = [
            OffsetCommitRequestPartition(
                partition_index=partition.partition, committed_offset=self._requests, committed_metadata=stamp
            )
            for partition, stamp in consumer.since.items()
        ]
        request = OffsetCommitRequest(
            group_id=GROUP,
            generation_id_or_member_epoch=consumer.epoch,
            member_id=consumer.member_id,
            topics=[OffsetCommitRequestTopic(name=TOPIC, partitions=partitions)],
        )
        self._send(Request(self._requests, request, 9))

    def receive(self, number: int, response: Any, now_ms: int) -> None:
        consumer, number = self._sent.pop(number, (0, 0))
        if consumer != self._consumers:
            return
        if isinstance(response, tuple):
            self.consumer.era, response = response
        self.consumer.receive(number, response, now_ms)
