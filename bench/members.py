"""Members of consumer groups that only join, get an assignment and send heartbeats: they read nothing.

They learn of a change with their next heartbeat, as any member of either protocol does, and then act at once. A
member may be made to send a heartbeat at once: what is left is the coordinator's time.
"""

import asyncio
import itertools
import random
import struct
import uuid
from abc import ABC, abstractmethod
from collections.abc import Iterable, Sequence
from typing import Any, Final

from bench.blocking_client import WrongAnswer
from penstock.client.connection import Connection
from penstock.foundation.codes import ErrorCode
from penstock.wire.messages.consumer_group_heartbeat import ConsumerGroupHeartbeatRequest, TopicPartitions
from penstock.wire.messages.heartbeat import HeartbeatRequest
from penstock.wire.messages.join_group import JoinGroupRequest, JoinGroupRequestProtocol, JoinGroupResponse
from penstock.wire.messages.leave_group import LeaveGroupRequest, MemberIdentity
from penstock.wire.messages.sync_group import SyncGroupRequest, SyncGroupRequestAssignment

HEARTBEAT_S: Final = 0.1
"""While nothing happens."""
SOON_S: Final = 0.02
"""While shares move. Real members are heard every 3 s (classic) or 5 s: that would be all there is to see."""
JITTER: Final = 0.2
SESSION_MS: Final = 30_000
REBALANCE_MS: Final = 60_000
_LEAVING: Final = -1
_HEAD: Final = struct.Struct(">h")
_COUNT: Final = struct.Struct(">i")


class Shares:
    """The owners of partitions, as the members themselves see it."""

    def __init__(self, partitions: int) -> None:
        self.partitions: Final = partitions
        self._held: dict[int, tuple[int, frozenset[int]]] = {}
        self._expected = 0
        self._is_settled = asyncio.Event()

    async def settled(self, members: int) -> None:
        """Waits until so many members are in one generation, and every partition has an owner."""
        self._expected = members
        self._is_settled.clear()
        self._look()
        await self._is_settled.wait()

    @property
    def is_settled(self) -> bool:
        return self._is_settled.is_set()

    def take(self, number: int, generation: int, partitions: Iterable[int]) -> None:
        self._held[number] = generation, frozenset(partitions)
        self._look()

    def lose(self, number: int) -> None:
        self._held.pop(number, None)

    def _look(self) -> None:
        if len(self._held) != self._expected or len({generation for generation, _ in self._held.values()}) != 1:
            return
        parts = [share for _, share in self._held.values()]
        if all(parts) and sum(map(len, parts)) == self.partitions == len(frozenset().union(*parts)):
            self._is_settled.set()


class Member(ABC):
    """One member with a connection of its own."""

    def __init__(self, number: int, group: str, topic: str, topic_id: bytes, shares: Shares, rng: random.Random):
        self.number: Final = number
        self._group = group
        self._topic = topic
        self._topic_id = topic_id
        self._shares = shares
        self._rng = rng
        self.connection: Connection | None = None
        self._member_id = ""
        self._rest: asyncio.Future[None] | None = None

    @abstractmethod
    async def live(self) -> None:
        """Be a member until cancelled."""

    @abstractmethod
    async def leave(self) -> None:
        """Leaves the group. `live` is cancelled before."""

    async def _ask(self, request: Any) -> Any:
        assert self.connection is not None
        return await self.connection.request(request)

    async def _pause(self) -> None:
        loop = asyncio.get_running_loop()
        self._rest = loop.create_future()
        wait_s = HEARTBEAT_S if self._shares.is_settled else SOON_S
        alarm = loop.call_later(wait_s * self._rng.uniform(1 - JITTER, 1 + JITTER), self.call_on)
        try:
            await self._rest
        finally:
            alarm.cancel()

    def call_on(self) -> None:
        """Have it be heard of now."""
        if self._rest is not None and not self._rest.done():
            self._rest.set_result(None)

    def _check(self, code: int, what: str) -> None:
        if code:
            raise WrongAnswer(f"member {self.number}: {what} answered {ErrorCode(code).name}")


class ClassicMember(Member):
    """All join, the leader assigns, all sync; again whenever a member joins or leaves."""

    async def live(self) -> None:
        while True:
            joined = await self._join()
            share = await self._sync(joined)
            if share is None:
                continue
            self._shares.take(self.number, joined.generation_id, share)
            await self._stay(joined.generation_id)
            self._shares.lose(self.number)

    async def _join(self) -> JoinGroupResponse:
        while True:
            request = JoinGroupRequest(
                group_id=self._group,
                session_timeout_ms=SESSION_MS,
                rebalance_timeout_ms=REBALANCE_MS,
                member_id=self._member_id,
                protocol_type="consumer",
                protocols=[JoinGroupRequestProtocol(name="range", metadata=subscription(self._topic))],
            )
            joined: JoinGroupResponse = await self._ask(request)
            if joined.error_code == ErrorCode.MEMBER_ID_REQUIRED:  # a name first, then the place (KIP-394)
                self._member_id = joined.member_id
                continue
            self._check(joined.error_code, "JoinGroup")
            return joined

    async def _sync(self, joined: JoinGroupResponse) -> Sequence[int] | None:
        """The share; None if the group has begun anew."""
        given = []
        if joined.leader == self._member_id:
            ids = sorted(member.member_id for member in joined.members)
            given = [
                SyncGroupRequestAssignment(member_id=member_id, assignment=assignment(self._topic, share))
                for member_id, share in zip(ids, ranges(self._shares.partitions, len(ids)), strict=True)
            ]
        request = SyncGroupRequest(
            group_id=self._group,
            generation_id=joined.generation_id,
            member_id=self._member_id,
            protocol_type="consumer",
            protocol_name="range",
            assignments=given,
        )
        synced = await self._ask(request)
        if synced.error_code == ErrorCode.REBALANCE_IN_PROGRESS:
            return None
        self._check(synced.error_code, "SyncGroup")
        return read_assignment(bytes(synced.assignment))

    async def _stay(self, generation: int) -> None:
        """Be heard of until the group begins anew."""
        request = HeartbeatRequest(group_id=self._group, generation_id=generation, member_id=self._member_id)
        while True:
            await self._pause()
            code = (await self._ask(request)).error_code
            if code == ErrorCode.REBALANCE_IN_PROGRESS:
                return
            self._check(code, "Heartbeat")

    async def leave(self) -> None:
        self._shares.lose(self.number)
        gone = await self._ask(
            LeaveGroupRequest(group_id=self._group, members=[MemberIdentity(member_id=self._member_id)])
        )
        self._check(gone.error_code or gone.members[0].error_code, "LeaveGroup")


class ConsumerMember(Member):
    """The coordinator shares out, and every heartbeat takes a member a step towards its share (KIP-848)."""

    async def live(self) -> None:
        self._member_id = str(uuid.UUID(int=self._rng.getrandbits(128)))
        epoch, share, news = 0, (), True
        while True:
            request = ConsumerGroupHeartbeatRequest(
                group_id=self._group,
                member_id=self._member_id,
                member_epoch=epoch,
                rebalance_timeout_ms=REBALANCE_MS if not epoch else -1,
                subscribed_topic_names=[self._topic] if not epoch else None,
                topic_partitions=self._places(share) if news else None,
            )
            response = await self._ask(request)
            self._check(response.error_code, "ConsumerGroupHeartbeat")
            news = response.assignment is not None
            if news:
                share = tuple(number for each in response.assignment.topic_partitions for number in each.partitions)
            if news or response.member_epoch != epoch:
                epoch = response.member_epoch
                self._shares.take(self.number, epoch, share)
            if not news:
                await self._pause()

    def _places(self, share: Sequence[int]) -> list[TopicPartitions]:
        return [TopicPartitions(topic_id=self._topic_id, partitions=share)] if share else []

    async def leave(self) -> None:
        self._shares.lose(self.number)
        request = ConsumerGroupHeartbeatRequest(
            group_id=self._group, member_id=self._member_id, member_epoch=_LEAVING, topic_partitions=None
        )
        self._check((await self._ask(request)).error_code, "ConsumerGroupHeartbeat")


PROTOCOLS: Final[dict[str, type[Member]]] = {"classic": ClassicMember, "consumer": ConsumerMember}


# -- what classic members say to each other


def subscription(topic: str) -> bytes:
    """ConsumerProtocolSubscription v0: one topic, no user data."""
    name = topic.encode()
    return _HEAD.pack(0) + _COUNT.pack(1) + _HEAD.pack(len(name)) + name + _COUNT.pack(-1)


def assignment(topic: str, partitions: Sequence[int]) -> bytes:
    """ConsumerProtocolAssignment v0: some partitions of one topic, no user data."""
    name = topic.encode()
    numbers = struct.pack(f">{len(partitions)}i", *partitions)
    return b"".join(
        (
            _HEAD.pack(0),
            _COUNT.pack(1),
            _HEAD.pack(len(name)),
            name,
            _COUNT.pack(len(partitions)),
            numbers,
            b"\xff" * 4,
        )
    )


def read_assignment(data: bytes) -> tuple[int, ...]:
    at = _HEAD.size + _COUNT.size
    at += _HEAD.size + _HEAD.unpack_from(data, at)[0]
    (count,) = _COUNT.unpack_from(data, at)
    return struct.unpack_from(f">{count}i", data, at + _COUNT.size)


def ranges(partitions: int, members: int) -> list[range]:
    """Shares of neighbours, the first ones larger where it does not come out even.

    >>> ranges(5, 2)
    [range(0, 3), range(3, 5)]
    """
    size, larger = divmod(partitions, members)
    starts = [number * size + min(number, larger) for number in range(members + 1)]
    return [range(begin, end) for begin, end in itertools.pairwise(starts)]
