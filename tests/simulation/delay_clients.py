"""Simulated clients of delayed messages: producers with and without transactions, and one that cancels."""

from collections.abc import Callable
from dataclasses import dataclass
from math import inf as INFINITY  # noqa: N812
from random import Random
from typing import Any, Protocol

from penstock.foundation.decision import ProducerKey
from penstock.foundation.delays import DELAY, DELIVER_AT
from penstock.foundation.errors import InvalidRecord, PenstockError
from penstock.log.admission import admit
from penstock.records.build import Record, build_batch
from tests.simulation.clock import FakeClock
from tests.simulation.delay_node import DelayNode

TRY_MS = 400
"""After which a request counts as lost."""


@dataclass(slots=True)
class Sent:
    """A message as its producer knows it."""

    uid: int
    deliver_at_ms: int | None = None
    delay_ms: int | None = None
    taken_in: int | None = None
    """When it was first appended, by the steady clock."""
    is_acked: bool = False
    is_aborted: bool = False
    is_cancelled: bool = False
    cancel_unknown: bool = False
    """Whether a client asked to cancel it, and the outcome is unknown."""
    offset: int | None = None

    @property
    def is_delayed(self) -> bool:
        return self.deliver_at_ms is not None or self.delay_ms is not None


class World(Protocol):
    clock: FakeClock
    sent: dict[int, Sent]

    def leader(self) -> DelayNode | None:
        """The leader as clients know it."""

    def on(self, node: DelayNode, action: Callable[[], None]) -> None:
        """Do something on a broker, which may die of it."""

    def is_lost(self) -> bool:
        """Whether a request, or its answer, is lost on the way."""


class Client:
    """An idempotent producer: one batch at a time, the same again until it is acknowledged."""

    def __init__(self, number: int, world: World, rng: Random, *, transactional: bool) -> None:
        self._world = world
        self._rng = rng
        self.producer = ProducerKey(100 + number, 0)
        self._sequence = 0
        self._is_transactional = transactional
        self._batch: list[Sent] = []
        self._tried_ms = 0
        self._open: list[Sent] = []
        """Of the transaction that is open."""
        self._ending: bool | None = None
        self.is_resting = False
        self.needs_from: float = INFINITY
        """Where the batch that it may send again is in the log: a replica that begins behind it does not know it."""

    @property
    def is_idle(self) -> bool:
        return not self._batch and not self._open and self._ending is None

    def step(self) -> None:
        now_ms = self._world.clock.steady_ms()
        if (self._batch or self._ending is not None) and now_ms - self._tried_ms < TRY_MS:
            return
        self._tried_ms = now_ms
        if self._ending is not None:
            self._end()
        elif self._batch:
            self._send()
        elif self._open and (self.is_resting or self._rng.random() < 0.3):
            self._ending = self._rng.random() < 0.6
            self._end()
        elif not self.is_resting:
            self._batch = [self._message() for _ in range(self._rng.choice((1, 1, 2, 5)))]
            self._send()

    def _message(self) -> Sent:
        sent = Sent(len(self._world.sent))
        now_ms, kind = self._world.clock.now_ms(), self._rng.random()
        if kind < 0.35:
            sent.delay_ms = self._rng.choice((0, 1, 100, 1000, 3000))
        elif kind < 0.8:
            sent.deliver_at_ms = now_ms + self._rng.choice((-5000, -1, 50, 700, 2000, 2000, 5000, 20_000))
        self._world.sent[sent.uid] = sent
        return sent

    def _record(self, sent: Sent, now_ms: int) -> Record:
        headers: tuple[tuple[str, bytes | None], ...] = ()
        if sent.delay_ms is not None:
            headers = ((DELAY, b"%dms" % sent.delay_ms),)
        elif sent.deliver_at_ms is not None:
            headers = ((DELIVER_AT, b"%d" % sent.deliver_at_ms),)
        return Record(key=b"k%d" % (sent.uid % 7), value=b"%d" % sent.uid, headers=headers, timestamp_ms=now_ms)

    def _send(self) -> None:
        leader = self._world.leader()
        if leader is None or self._world.is_lost():
            return
        sent, sequence = self._batch, self._sequence
        batch = build_batch(
            [self._record(one, 1_700_000_000_000) for one in sent],
            producer_id=self.producer.producer_id,
            producer_epoch=self.producer.epoch,
            base_sequence=sequence,
            transactional=self._is_transactional,
        )

        def produce() -> None:
            partition = leader.partition
            if not partition.is_leader:
                return
            steady_ms, now_ms = self._world.clock.steady_ms(), self._world.clock.now_ms()
            try:
                partition.check_in_sync()
                admitted = admit(batch, partition.log.settings, now_ms, leader.visibility.may_delay)
                appended = partition.append(bytearray(admitted), 1_700_000_000_000, may_begin=True)
            except InvalidRecord:
                raise
            except PenstockError:
                return
            if not appended.repeated:
                for one in sent:
                    one.taken_in = one.taken_in or steady_ms
            self.needs_from = min(self.needs_from, appended.base_offset)
            end = appended.last_offset + 1

            def committed() -> None:
                if partition.has_committed(end) and not self._world.is_lost():
                    self._on_acked(sent, sequence, appended.base_offset)

            partition.when_committed(end, committed)

        self._world.on(leader, produce)

    def _on_acked(self, sent: list[Sent], sequence: int, base: int) -> None:
        if sequence != self._sequence or sent is not self._batch:
            return
        self._sequence += len(sent)
        self._batch = []
        self.needs_from = INFINITY
        for at, one in enumerate(sent):
            one.offset = base + at
            one.is_acked = not self._is_transactional
        if self._is_transactional:
            self._open += sent

    def _end(self) -> None:
        leader, commits = self._world.leader(), self._ending
        if leader is None or self._world.is_lost():
            return
        assert commits is not None
        open_now = self._open

        def write() -> None:
            partition = leader.partition
            if not partition.is_leader:
                return
            try:
                partition.check_in_sync()
                appended = partition.write_marker(self.producer, commits, 1, 1_700_000_000_000)
            except PenstockError:
                return
            end = appended.last_offset + 1

            def committed() -> None:
                if partition.has_committed(end) and self._open is open_now and self._ending is not None:
                    self._ending = None
                    for one in open_now:
                        one.is_acked, one.is_aborted = commits, not commits
                    self._open = []

            partition.when_committed(end, committed)

        self._world.on(leader, write)


class Canceller:
    """Cancels messages; remembers the responses."""

    def __init__(self, world: World, rng: Random) -> None:
        self._world = world
        self._rng = rng

    def step(self) -> None:
        known = [sent for sent in self._world.sent.values() if sent.is_delayed and sent.offset is not None]
        leader = self._world.leader()
        if not known or leader is None or leader.hosted is None or self._world.is_lost():
            return
        sent = self._rng.choice(known[-30:])
        if sent.is_cancelled:
            return
        hosted = leader.hosted
        sent.cancel_unknown = True

        def take(reply: Any) -> None:
            if isinstance(reply, PenstockError) or self._world.is_lost():
                return
            assert sent.offset is not None
            if reply[sent.offset]:
                sent.is_cancelled = True

        self._world.on(leader, lambda: hosted.cancel([sent.offset or 0], take))
