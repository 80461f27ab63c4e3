"""A simulated member of a classic group: what a client does, over a network that may do anything to its requests.

It gives up its partitions before it joins again (eager), when it is told to, and when it has not been answered for a
whole session timeout by its own clock. Until then it believes in its generation, and that it owns its share.
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

GROUP = "readers"
TOPIC = "orders"
PARTITIONS = 7
HEARTBEAT_MS = 500
REQUEST_MS = 3000
"""How long a client waits for an answer that should come at once."""
BACKOFF_MS = 100
FORGET_ID = (ErrorCode.UNKNOWN_MEMBER_ID, ErrorCode.FENCED_INSTANCE_ID)
"""After these a member joins as a new one."""
TRY_AGAIN = (ErrorCode.COORDINATOR_NOT_AVAILABLE, ErrorCode.NOT_COORDINATOR, ErrorCode.COORDINATOR_LOAD_IN_PROGRESS)


class Request(NamedTuple):
    number: int
    body: Any
    version: int


class Doing(NamedTuple):
    """A request that the member waits for."""

    number: int
    kind: str
    generation: int
    sent_ms: int
    until_ms: int


def share_out(member_ids: list[str], partitions: int = PARTITIONS) -> dict[str, bytes]:
    """A trivial assignor: partitions in turn."""
    shared: dict[str, list[int]] = {member_id: [] for member_id in member_ids}
    for number in range(partitions):
        shared[sorted(member_ids)[number % len(member_ids)]].append(number)
    return {member_id: struct.pack(f">{len(numbers)}i", *numbers) for member_id, numbers in shared.items()}


def read_share(assignment: bytes) -> set[int]:
    return {number for (number,) in struct.iter_unpack(">i", assignment)}


class SimulatedMember:
    protocol = "range"
    transactional = 0.3
    """How many of its commits are parts of transactions."""
    eagerness = 0.05
    """How often it commits when it could."""

    def __init__(self, number: int, rng: Random, send: Callable[[Request], None], is_static: bool) -> None:
        self.number = number
        self.rng = rng
        self._send = send
        self.instance_id = f"instance-{number}" if is_static else None
        self.join_version = rng.choice((9, 9, 8, 5)) if is_static else rng.choice((9, 9, 6, 3))
        self.session_ms = rng.choice((6000, 7000))
        self.rebalance_ms = rng.choice((1000, 3000, 8000))
        self.is_up = False
        self.is_stuck = False
        """Whether it does nothing but send heartbeats: it neither joins nor syncs."""
        self.member_id = ""
        self.generation = -1
        self.owned: set[int] = set()
        self.believes = False
        self.heard_ms = 0
        """When the request was sent that was last answered well."""
        self.wants = "join"
        self.rest_until_ms = 0
        self.next_heartbeat_ms = 0
        self.transaction_is_open = False
        self._requests = 0
        self._sequence = 0
        self._doing: dict[str, Doing] = {}
        self._leads_over: list[str] = []

    # -- life and death

    def start(self, now_ms: int) -> None:
        self.is_up = True
        self.is_stuck = False
        self._lose_place("")
        self.rest_until_ms = now_ms

    def die(self) -> None:
        """The process is gone, and all that it knew; its instance id, if it has one, is in its configuration."""
        self.is_up = False
        self._lose_place("")

    def leave(self, now_ms: int) -> None:
        members = [MemberIdentity(member_id=self.member_id, group_instance_id=self.instance_id, reason="enough")]
        self._ask("leave", LeaveGroupRequest(group_id=GROUP, members=members), 5, now_ms, REQUEST_MS)
        self.die()

    def reconnect(self) -> None:
        """Whatever was under way is lost, and is asked again."""
        self._doing.clear()

    def lose_request(self, number: int) -> None:
        """Nobody will answer it: the connection is gone."""
        for kind, doing in list(self._doing.items()):
            if doing.number == number:
                del self._doing[kind]

    def _lose_place(self, member_id: str) -> None:
        """Own nothing, and join again."""
        self.member_id = member_id
        self.believes = False
        self.owned = set()
        self.wants = "join"
        self._doing.clear()

    # -- what it does on its own

    def tick(self, now_ms: int) -> None:
        if not self.is_up:
            return
        for kind, doing in list(self._doing.items()):
            if now_ms >= doing.until_ms:
                del self._doing[kind]
        if self.believes and now_ms - self.heard_ms >= self.session_ms:
            self._lose_place(self.member_id)
        if now_ms < self.rest_until_ms:
            return
        if self.wants == "join" and "join" not in self._doing and not self.is_stuck:
            self._join(now_ms)
        elif self.wants == "sync" and "sync" not in self._doing and not self.is_stuck:
            self._sync(now_ms)
        elif self.wants == "work" or self.is_stuck:
            self._work(now_ms)

    def _ask(self, kind: str, body: Any, version: int, now_ms: int, wait_ms: int) -> None:
        self._requests += 1
        self._doing[kind] = Doing(self._requests, kind, self.generation, now_ms, now_ms + wait_ms)
        self._send(Request(self._requests, body, version))

    def _join(self, now_ms: int) -> None:
        self._lose_place(self.member_id)
        body = JoinGroupRequest(
            group_id=GROUP,
            session_timeout_ms=self.session_ms,
            rebalance_timeout_ms=self.rebalance_ms,
            member_id=self.member_id,
            group_instance_id=self.instance_id,
            protocol_type="consumer",
            protocols=[JoinGroupRequestProtocol(name="range", metadata=b"any")],
        )
        # Longer than a rebalance may take, as real clients wait; a lost answer is noticed only then.
        self._ask("join", body, self.join_version, now_ms, 8000 + REQUEST_MS)

    def _sync(self, now_ms: int) -> None:
        shared = self.share() if self._leads_over else {}
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

    def share(self) -> dict[str, bytes]:
        return share_out(self._leads_over)

    def _work(self, now_ms: int) -> None:
        if now_ms >= self.next_heartbeat_ms and "heartbeat" not in self._doing:
            self.next_heartbeat_ms = now_ms + HEARTBEAT_MS
            body = HeartbeatRequest(
                group_id=GROUP,
                generation_id=self.generation,
                member_id=self.member_id,
                group_instance_id=self.instance_id,
            )
            self._ask("heartbeat", body, 4, now_ms, REQUEST_MS)
        if self.owned and "commit" not in self._doing and self.rng.random() < self.eagerness:
            self._commit(now_ms)

    def _commit(self, now_ms: int) -> None:
        """The text that goes with an offset says in which generation it was committed."""
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
        """How old a commit is."""
        return f"{self.generation}"

    # -- what it hears

    def on_reply(self, number: int, reply: Any, now_ms: int) -> None:
        """An answer to a request; one that is no longer waited for is ignored."""
        doing = next((entry for entry in self._doing.values() if entry.number == number), None)
        if not self.is_up or doing is None:
            return
        del self._doing[doing.kind]
        code = _code_of(reply)
        if doing.kind == "join" and code == ErrorCode.MEMBER_ID_REQUIRED:
            self.member_id = reply.member_id
        elif code in TRY_AGAIN:
            self.rest_until_ms = now_ms + BACKOFF_MS
        elif code in FORGET_ID:
            self._lose_place("")
            self.rest_until_ms = now_ms + BACKOFF_MS
        elif code == ErrorCode.NONE:
            self._on_success(doing, reply, now_ms)
        elif doing.kind in ("join", "sync") or doing.generation == self.generation:
            self._lose_place(self.member_id)
            self.rest_until_ms = now_ms + BACKOFF_MS

    def _on_success(self, doing: Doing, reply: Any, now_ms: int) -> None:
        if doing.kind == "join":
            assert isinstance(reply, JoinGroupResponse)
            self.member_id, self.generation = reply.member_id, reply.generation_id
            leads = reply.leader == reply.member_id and not reply.skip_assignment
            self._leads_over = [member.member_id for member in reply.members] if leads else []
            self.wants = "sync"
        elif doing.kind == "sync":
            self.owned = read_share(reply.assignment)
            self.believes = True
            self.wants = "work"
            self.heard_ms = doing.sent_ms
            self.next_heartbeat_ms = now_ms
        elif doing.kind == "heartbeat" and doing.generation == self.generation:
            self.heard_ms = doing.sent_ms


def _code_of(reply: Any) -> int:
    if isinstance(reply, PenstockError):
        return reply.code
    if hasattr(reply, "topics"):
        return next((entry.error_code for topic in reply.topics for entry in topic.partitions if entry.error_code), 0)
    code: int = reply.error_code
    return code
