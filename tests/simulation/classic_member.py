"""A simulated member of a classic group, as an eager consumer behaves.

It revokes its partitions before it joins again and when no heartbeat was answered for a whole session timeout by its
own clock. Until then it believes that its generation is current, and that it owns its share.
"""

import struct
from collections.abc import Callable
from random import Random
from typing import Any, NamedTuple

from penstock.foundation.codes import ErrorCode
from penstock.foundation.errors import PenstockError
from penstock.wire.messages.heartbeat import HeartbeatRequest
from penstock.wire.messages.join_group import JoinGroupRequest, JoinGroupRequestProtocol, JoinGroupResponse
from penstock.wire.messages.leave_group import LeaveGroupRequest, MemberIdentity
from penstock.wire.messages.offset_commit import (
    OffsetCommitRequest,
    OffsetCommitRequestPartition,
    OffsetCommitRequestTopic,
)
from penstock.wire.messages.sync_group import SyncGroupRequest, SyncGroupRequestAssignment
from penstock.wire.messages.txn_offset_commit import (
    TxnOffsetCommitRequest,
    TxnOffsetCommitRequestPartition,
    TxnOffsetCommitRequestTopic,
)
from tests.simulation.group_machines import GROUP
from tests.simulation.group_simulation import GroupClient, Request

TOPIC = "orders"
PARTITIONS = 7
HEARTBEAT_MS = 500
REQUEST_MS = 3000
"""How long a client waits for a response that is sent without delay."""
BACKOFF_MS = 100
REJOIN = (ErrorCode.UNKNOWN_MEMBER_ID, ErrorCode.FENCED_INSTANCE_ID)
"""The errors after which a member joins with a new member id."""
RETRIABLE = (ErrorCode.COORDINATOR_NOT_AVAILABLE, ErrorCode.NOT_COORDINATOR, ErrorCode.COORDINATOR_LOAD_IN_PROGRESS)


class Pending(NamedTuple):
    """A request that waits for its response."""

    number: int
    kind: str
    generation: int
    sent_ms: int
    until_ms: int


def round_robin(member_ids: list[str], partitions: int = PARTITIONS) -> dict[str, bytes]:
    """Assigns the partitions in turn."""
    shared: dict[str, list[int]] = {member_id: [] for member_id in member_ids}
    for number in range(partitions):
        shared[sorted(member_ids)[number % len(member_ids)]].append(number)
    return {member_id: struct.pack(f">{len(numbers)}i", *numbers) for member_id, numbers in shared.items()}


def decode_assignment(assignment: bytes) -> set[int]:
    return {number for (number,) in struct.iter_unpack(">i", assignment)}


class ClassicMember(GroupClient):
    protocol = "range"
    transactional = 0.3
    """The share of its commits that are parts of transactions."""
    commit_rate = 0.05
    """How often it commits when it could."""

    def __init__(self, number: int, rng: Random, send: Callable[[Request], None], is_static: bool) -> None:
        super().__init__(rng=rng, send=send, instance_id=f"instance-{number}" if is_static else None)
        self.number = number
        self.join_version = rng.choice((9, 9, 8, 5)) if is_static else rng.choice((9, 9, 6, 3))
        self.session_ms = rng.choice((6000, 7000))
        self.rebalance_ms = rng.choice((1000, 3000, 8000))
        self.generation = -1
        self.owned: set[int] = set()
        self.believes = False
        """Whether it believes that its generation is current."""
        self.last_answered_ms = 0
        """When the last heartbeat or sync without an error was sent."""
        self.wants = "join"
        self.rest_until_ms = 0
        self.next_heartbeat_ms = 0
        self.transaction_is_open = False
        self._sequence = 0
        self._pending: dict[str, Pending] = {}
        self._assignees: list[str] = []
        """The members to assign partitions to, if it is the leader."""

    def start(self, now_ms: int) -> None:
        self.is_running = True
        self.is_stuck = False
        self._revoke("")
        self.rest_until_ms = now_ms

    def stop(self) -> None:
        self.is_running = False
        self._revoke("")

    def leave(self, now_ms: int) -> None:
        members = [MemberIdentity(member_id=self.member_id, group_instance_id=self.instance_id, reason="enough")]
        self._ask("leave", LeaveGroupRequest(group_id=GROUP, members=members), 5, now_ms, REQUEST_MS)
        self.stop()

    def reconnect(self) -> None:
        self._pending.clear()

    def lose_request(self, number: int) -> None:
        """The connection breaks: this request is not answered."""
        for kind, pending in list(self._pending.items()):
            if pending.number == number:
                del self._pending[kind]

    def _revoke(self, member_id: str) -> None:
        """Revokes all partitions, to join again with this member id."""
        self.member_id = member_id
        self.believes = False
        self.owned = set()
        self.wants = "join"
        self._pending.clear()

    def tick(self, now_ms: int) -> None:
        if not self.is_running:
            return
        for kind, pending in list(self._pending.items()):
            if now_ms >= pending.until_ms:
                del self._pending[kind]
        if self.believes and now_ms - self.last_answered_ms >= self.session_ms:
            self._revoke(self.member_id)
        if now_ms < self.rest_until_ms:
            return
        if self.wants == "join" and "join" not in self._pending and not self.is_stuck:
            self._join(now_ms)
        elif self.wants == "sync" and "sync" not in self._pending and not self.is_stuck:
            self._sync(now_ms)
        elif self.wants == "work" or self.is_stuck:
            self._work(now_ms)

    def _ask(self, kind: str, body: Any, version: int, now_ms: int, wait_ms: int) -> None:
        self._pending[kind] = Pending(self.requests + 1, kind, self.generation, now_ms, now_ms + wait_ms)
        self.post(body, version)

    def _join(self, now_ms: int) -> None:
        self._revoke(self.member_id)
        body = JoinGroupRequest(
            group_id=GROUP,
            session_timeout_ms=self.session_ms,
            rebalance_timeout_ms=self.rebalance_ms,
            member_id=self.member_id,
            group_instance_id=self.instance_id,
            protocol_type="consumer",
            protocols=[JoinGroupRequestProtocol(name="range", metadata=b"any")],
        )
        # As real clients: longer than a rebalance may take. A lost response is noticed only then.
        self._ask("join", body, self.join_version, now_ms, 8000 + REQUEST_MS)

    def _sync(self, now_ms: int) -> None:
        shared = self.assign() if self._assignees else {}
        body = SyncGroupRequest(
            group_id=GROUP,
            generation_id=self.generation,
            member_id=self.member_id,
            group_instance_id=self.instance_id,
            protocol_type="consumer",
            protocol_name=self.protocol,
            assignments=[
                SyncGroupRequestAssignment(member_id=member_id, assignment=assignment)
                for member_id, assignment in shared.items()
            ],
        )
        self._ask("sync", body, 5, now_ms, 8000 + REQUEST_MS)

    def assign(self) -> dict[str, bytes]:
        return round_robin(self._assignees)

    def _work(self, now_ms: int) -> None:
        if now_ms >= self.next_heartbeat_ms and "heartbeat" not in self._pending:
            self.next_heartbeat_ms = now_ms + HEARTBEAT_MS
            body = HeartbeatRequest(
                group_id=GROUP,
                generation_id=self.generation,
                member_id=self.member_id,
                group_instance_id=self.instance_id,
            )
            self._ask("heartbeat", body, 4, now_ms, REQUEST_MS)
        if self.owned and "commit" not in self._pending and self.rng.random() < self.commit_rate:
            self._commit(now_ms)

    def _commit(self, now_ms: int) -> None:
        """The metadata of a committed offset has the generation in which it was committed."""
        self._sequence += 1
        numbers = self.rng.sample(sorted(self.owned), self.rng.randint(1, len(self.owned)))
        text = self.stamp
        if self.rng.random() < self.transactional:
            self.transaction_is_open = True
            partitions = [
                TxnOffsetCommitRequestPartition(
                    partition_index=number, committed_offset=self._sequence, committed_metadata=text
                )
                for number in numbers
            ]
            transactional = TxnOffsetCommitRequest(
                transactional_id=f"tx-{self.number}",
                group_id=GROUP,
                producer_id=self.number,
                producer_epoch=0,
                generation_id=self.generation,
                member_id=self.member_id,
                group_instance_id=self.instance_id,
                topics=[TxnOffsetCommitRequestTopic(name=TOPIC, partitions=partitions)],
            )
            self._ask("commit", transactional, 5, now_ms, REQUEST_MS)
            return
        plain = OffsetCommitRequest(
            group_id=GROUP,
            generation_id_or_member_epoch=self.generation,
            member_id=self.member_id,
            group_instance_id=self.instance_id,
            topics=[
                OffsetCommitRequestTopic(
                    name=TOPIC,
                    partitions=[
                        OffsetCommitRequestPartition(
                            partition_index=number, committed_offset=self._sequence, committed_metadata=text
                        )
                        for number in numbers
                    ],
                )
            ],
        )
        self._ask("commit", plain, 9, now_ms, REQUEST_MS)

    @property
    def stamp(self) -> str:
        """The metadata of a commit: how old it is."""
        return f"{self.generation}"

    def receive(self, number: int, response: Any, now_ms: int) -> None:
        pending = next((entry for entry in self._pending.values() if entry.number == number), None)
        if not self.is_running or pending is None:
            return
        del self._pending[pending.kind]
        code = _code_of(response)
        if pending.kind == "join" and code == ErrorCode.MEMBER_ID_REQUIRED:
            self.member_id = response.member_id
        elif code in RETRIABLE:
            self.rest_until_ms = now_ms + BACKOFF_MS
        elif code in REJOIN:
            self._revoke("")
            self.rest_until_ms = now_ms + BACKOFF_MS
        elif code == ErrorCode.NONE:
            self._on_success(pending, response, now_ms)
        elif pending.kind in ("join", "sync") or pending.generation == self.generation:
            self._revoke(self.member_id)
            self.rest_until_ms = now_ms + BACKOFF_MS

    def _on_success(self, pending: Pending, response: Any, now_ms: int) -> None:
        if pending.kind == "join":
            assert isinstance(response, JoinGroupResponse)
            self.member_id, self.generation = response.member_id, response.generation_id
            leads = response.leader == response.member_id and not response.skip_assignment
            self._assignees = [member.member_id for member in response.members] if leads else []
            self.wants = "sync"
        elif pending.kind == "sync":
            self.owned = decode_assignment(response.assignment)
            self.believes = True
            self.wants = "work"
            self.last_answered_ms = pending.sent_ms
            self.next_heartbeat_ms = now_ms
        elif pending.kind == "heartbeat" and pending.generation == self.generation:
            self.last_answered_ms = pending.sent_ms


def _code_of(response: Any) -> int:
    if isinstance(response, PenstockError):
        return response.code
    if hasattr(response, "topics"):
        codes = (entry.error_code for topic in response.topics for entry in topic.partitions)
        return next((code for code in codes if code), 0)
    code: int = response.error_code
    return code
