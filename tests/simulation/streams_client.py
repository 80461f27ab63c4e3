"""One thread of a Kafka Streams application that follows the client's side of KIP-1071, as Kafka's own does.

It says only what is new, and everything after it may have missed a response. It gives up tasks before it takes new
ones, says so with the next heartbeat, and drops everything when it is fenced.
"""

from collections.abc import Callable
from dataclasses import dataclass, field
from random import Random

from penstock.foundation.codes import ErrorCode
from penstock.foundation.errors import PenstockError
from penstock.groups.streams.requests import task_ids
from penstock.groups.streams.tasks import NO_TASKS, Role, Task, Tasks, tasks_of
from penstock.wire.messages.streams_group_heartbeat import (
    StreamsGroupHeartbeatRequest,
    StreamsGroupHeartbeatResponse,
    Topology,
)
from tests.simulation.consumer_client import HEARTBEAT_MS, REBALANCE_MS, SESSION_MS
from tests.simulation.streams_machine import GROUP


@dataclass(slots=True, kw_only=True)
class StreamsThread:
    place: str
    """Where it runs: its end of the network."""
    process_id: str
    member_id: str
    topology: Topology
    request_timeout_ms: int
    """After which it asks again. What it asked may arrive all the same."""
    rng: Random
    send: Callable[[int, StreamsGroupHeartbeatRequest], None]
    epoch: int = 0
    is_running: bool = True
    hangs: bool = False
    """It does not come back to give up tasks."""
    claims: dict[Task, int] = field(default_factory=dict)
    """What it believes to own, and the newest epoch in which it was told so."""
    wanted: Tasks = NO_TASKS
    """What it was last told to own."""
    said: Tasks | None = None
    """What the broker knows that it owns, as far as it knows; None if it has to say everything."""
    number: int = 0
    waiting: tuple[int, int, Tasks] | None = None
    """The request that it waits for: its number, when it was sent, and what it said."""
    heard_ms: int = 0
    """When the last request that was answered was sent: the broker counts its session from then, or from later."""
    next_ms: int = 0
    let_go_ms: int | None = None
    must_ack: bool = False

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
        self.claims = {task: self.claims.get(task, self.epoch) for task in self.wanted}
        self.must_ack = True

    def _beat(self, now_ms: int) -> None:
        owned = frozenset(self.claims)
        joins = self.epoch == 0
        full = joins or self.said is None
        tells = full or self.said != owned or self.must_ack
        self.number += 1
        request = StreamsGroupHeartbeatRequest(
            group_id=GROUP,
            member_id=self.member_id,
            member_epoch=self.epoch,
            endpoint_information_epoch=0,
            rebalance_timeout_ms=REBALANCE_MS if full else -1,
            topology=self.topology if joins else None,
            active_tasks=task_ids(Role.ACTIVE, owned) if tells else None,
            standby_tasks=task_ids(Role.STANDBY, owned) if tells else None,
            warmup_tasks=() if tells else None,
            process_id=self.process_id if full else None,
        )
        self.waiting = (self.number, now_ms, owned)
        self.must_ack = False
        self.next_ms = now_ms + HEARTBEAT_MS
        self.send(self.number, request)

    def receive(self, number: int, answer: StreamsGroupHeartbeatResponse | PenstockError, now_ms: int) -> None:
        if not self.is_running or self.waiting is None or self.waiting[0] != number:
            return  # of a request that it has given up on
        _, sent_ms, said = self.waiting
        self.waiting = None
        if isinstance(answer, PenstockError):
            self._refused(answer, now_ms)
            return
        self.said, self.heard_ms, self.epoch = said, sent_ms, answer.member_epoch
        if answer.active_tasks is not None and answer.standby_tasks is not None:
            self.wanted = tasks_of(Role.ACTIVE, answer.active_tasks) | tasks_of(Role.STANDBY, answer.standby_tasks)
            self.must_ack = True
        for task in self.claims:
            if task in self.wanted:
                self.claims[task] = self.epoch
        self._reconcile(now_ms)

    def _refused(self, error: PenstockError, now_ms: int) -> None:
        self.said = None
        if error.code in (ErrorCode.FENCED_MEMBER_EPOCH, ErrorCode.UNKNOWN_MEMBER_ID):
            self.start_over(now_ms)
        else:
            raise AssertionError(f"{self.place} is refused: {error!r}")

    def start_over(self, now_ms: int) -> None:
        """It owns nothing, and joins."""
        self.drop()
        self.epoch, self.said, self.waiting = 0, None, None
        self.next_ms = now_ms

    def reconnect(self) -> None:
        """What was under way is not answered, and it says everything once more."""
        self.waiting = self.said = None

    def drop(self) -> None:
        self.claims, self.wanted, self.let_go_ms, self.must_ack = {}, NO_TASKS, None, False

    def stop(self) -> None:
        """Its process is gone, and with it what it believed."""
        self.drop()
        self.is_running, self.waiting, self.said = False, None, None

    def leave(self) -> None:
        """It drops everything, says good-bye, and does not wait for an answer."""
        self.number += 1
        was = self.epoch
        self.stop()
        if was > 0:
            request = StreamsGroupHeartbeatRequest(
                group_id=GROUP, member_id=self.member_id, member_epoch=-1, endpoint_information_epoch=0
            )
            self.send(self.number, request)
