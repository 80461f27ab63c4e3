"""One consumer that follows the client's side of KIP-848, as Kafka's own does, and is no better than it.

It says only what is new, and everything after it may have missed a response. It gives up partitions before it takes
new ones, says so with the next heartbeat, and drops everything when it is fenced.
"""

from collections.abc import Callable
from dataclasses import dataclass, field
from random import Random
from typing import Any

from penstock.foundation.codes import ErrorCode
from penstock.foundation.errors import PenstockError
from penstock.foundation.ids import TopicIdPartition
from penstock.groups.modern.members import by_topic
from penstock.wire.messages.consumer_group_heartbeat import (
    ConsumerGroupHeartbeatRequest,
    ConsumerGroupHeartbeatResponse,
    TopicPartitions,
)
from tests.simulation.consumer_machine import GROUP

HEARTBEAT_MS = 1000
SESSION_MS = 10_000
REBALANCE_MS = 6000

Places = frozenset[TopicIdPartition]


@dataclass(frozen=True, slots=True, kw_only=True)
class Said:
    """What the broker knows of a consumer, as far as the consumer knows."""

    names: frozenset[str]
    regex: str
    owned: Places


@dataclass(slots=True, kw_only=True)
class Consumer:
    place: str
    """Where it runs: its end of the network."""
    member_id: str
    instance_id: str | None
    version: int
    request_timeout_ms: int
    """After which it asks again. What it asked may arrive all the same."""
    rng: Random
    send: Callable[[int, ConsumerGroupHeartbeatRequest], None]
    names: frozenset[str] = frozenset()
    regex: str = ""
    epoch: int = 0
    is_running: bool = True
    hangs: bool = False
    """Its application does not come back to give up partitions."""
    claims: dict[TopicIdPartition, int] = field(default_factory=dict)
    """What it believes to own, and the newest epoch in which it was told so."""
    wanted: Places = frozenset()
    """What it was last told to own."""
    said: Said | None = None
    number: int = 0
    waiting: tuple[int, int, Said] | None = None
    """The request that it waits for: its number, when it was sent, and what it said."""
    heard_ms: int = 0
    """When the last request that was answered was sent: the broker counts its session from then, or from later."""
    next_ms: int = 0
    let_go_ms: int | None = None
    must_ack: bool = False

    # -- its own time

    def tick(self, now_ms: int) -> None:
        if not self.is_running:
            return
        if self.epoch > 0 and now_ms >= self.heard_ms + SESSION_MS:
            self.start_over(now_ms)
        if self.waiting is not None and now_ms >= self.waiting[1] + self.request_timeout_ms:
            self.waiting, self.said = None, None
        self._reconcile(now_ms)
        if self.waiting is None and (self.must_ack or now_ms >= self.next_ms):
            self._beat(now_ms)

    def _reconcile(self, now_ms: int) -> None:
        """Give up, then take, then say so."""
        if self.epoch <= 0 or set(self.claims) == self.wanted:
            self.let_go_ms = None
            return
        if not self.claims.keys() <= self.wanted:
            if self.let_go_ms is None:
                self.let_go_ms = now_ms + self.rng.choice((0, 0, 200, 2000))
            if self.hangs or now_ms < self.let_go_ms:
                return
        self.let_go_ms = None
        self.claims = {place: self.claims.get(place, self.epoch) for place in self.wanted}
        self.must_ack = True

    def _beat(self, now_ms: int) -> None:
        owned = frozenset(self.claims)
        said = Said(names=self.names, regex=self.regex, owned=owned)
        joins, known = self.epoch == 0, self.said
        full = joins or known is None
        self.number += 1
        request = ConsumerGroupHeartbeatRequest(
            group_id=GROUP,
            member_id=self.member_id,
            member_epoch=self.epoch,
            instance_id=self.instance_id,
            rebalance_timeout_ms=REBALANCE_MS if full else -1,
            subscribed_topic_names=sorted(self.names) if full or known.names != self.names else None,
            subscribed_topic_regex=self.regex if full or known.regex != self.regex else None,
            topic_partitions=_wire(owned) if full or known.owned != owned or self.must_ack else None,
        )
        self.waiting = (self.number, now_ms, said)
        self.must_ack = False
        self.next_ms = now_ms + HEARTBEAT_MS
        self.send(self.number, request)

    # -- what it is told

    def receive(self, number: int, answer: ConsumerGroupHeartbeatResponse | PenstockError, now_ms: int) -> None:
        if not self.is_running or self.waiting is None or self.waiting[0] != number:
            return  # of a request that it has given up on
        _, sent_ms, said = self.waiting
        self.waiting = None
        if isinstance(answer, PenstockError):
            self._refused(answer, now_ms)
            return
        self.said, self.heard_ms = said, sent_ms
        self.member_id, self.epoch = answer.member_id or self.member_id, answer.member_epoch
        if answer.assignment is not None:
            self.wanted = frozenset(
                TopicIdPartition(topic.topic_id, number)
                for topic in answer.assignment.topic_partitions
                for number in topic.partitions
            )
            self.must_ack = True
        for place in self.claims:
            if place in self.wanted:
                self.claims[place] = self.epoch
        self._reconcile(now_ms)

    def _refused(self, error: PenstockError, now_ms: int) -> None:
        self.said = None
        match error.code:
            case ErrorCode.FENCED_MEMBER_EPOCH | ErrorCode.UNKNOWN_MEMBER_ID | ErrorCode.FENCED_INSTANCE_ID:
                self.start_over(now_ms)
            case ErrorCode.UNRELEASED_INSTANCE_ID:
                assert self.epoch == 0, "only who joins can find its instance id in use"
            case _:
                raise AssertionError(f"{self.place} is refused: {error!r}")

    # -- what happens to it

    def start_over(self, now_ms: int) -> None:
        """It owns nothing, and joins."""
        self.drop()
        self.epoch, self.said, self.waiting = 0, None, None
        self.next_ms = now_ms

    def reconnect(self) -> None:
        """What was under way is not answered, and it says everything once more."""
        self.waiting = self.said = None

    def drop(self) -> None:
        self.claims, self.wanted, self.let_go_ms, self.must_ack = {}, frozenset(), None, False

    def stop(self) -> None:
        """Its process is gone, and with it what it believed."""
        self.drop()
        self.is_running, self.waiting, self.said = False, None, None

    def leave(self, epoch: int) -> None:
        """It drops everything, says good-bye, and does not wait for an answer."""
        self.number += 1
        was = self.epoch
        self.stop()
        if was > 0:
            self.send(
                self.number,
                ConsumerGroupHeartbeatRequest(
                    group_id=GROUP, member_id=self.member_id, member_epoch=epoch, instance_id=self.instance_id
                ),
            )


def _wire(owned: Places) -> list[Any]:
    return [TopicPartitions(topic_id=topic_id, partitions=numbers) for topic_id, numbers in by_topic(owned).items()]
