"""A partition in the simulation of queues: its log, its companion log, and the machine that decides about it.

A failover leaves of both logs what is committed, and as much of the rest as some replica has; a batch is there whole
or not at all. Another broker has another clock.
"""

from collections import Counter
from collections.abc import Callable
from dataclasses import dataclass
from itertools import count
from random import Random
from typing import Any, cast

from penstock.broker.queues.purges import Purges
from penstock.foundation.decision import NO_PRODUCER, Decision, StateRecord
from penstock.foundation.errors import CoordinatorNotAvailable, PenstockError
from penstock.queues.commands import (
    Acknowledge,
    AckType,
    Acquire,
    CopyMessage,
    Destination,
    Fresh,
    NeedProducer,
    Purge,
    SetPosition,
    SetProducer,
    Trimmed,
)
from penstock.queues.deduplication import Deduplication
from penstock.queues.errors import AlreadyFinished
from penstock.queues.machine import QueueMachine
from penstock.queues.settings import DeliverySettings
from tests.simulation.clock import FakeClock
from tests.simulation.queue_ledger import FINISHES, Ledger, Meaning, accepted, leaving
from tests.simulation.queue_log import Log, Message
from tests.unit.queues.machine_harness import compacted, state_of

GROUP = "jobs"
WINDOWS = (3, 12, 60)
"""Messages that are read ahead."""
FIRST_BATCH = 3
"""Number of records that a batch holds at least: a position and both records of a split range, see positions.py."""
SKEW_MS = 400
RETRY_MS = 60


@dataclass(eq=False, slots=True)
class Pending:
    """A decision that is persisted, and not yet committed."""

    end: int
    meaning: Meaning
    answer: Callable[[Any], None] | None
    reply: Any
    effects: tuple[Any, ...]


class Place:
    """One partition of a queue, with changing leaders."""

    def __init__(
        self,
        destination: Destination,
        settings: DeliverySettings,
        rng: Random,
        clock: FakeClock,
        counts: Counter[str],
        numbers: "count[int]",
        *,
        make: Callable[[], QueueMachine] | None = None,
    ) -> None:
        self.destination = destination
        self.settings = settings
        self.rng = rng
        self.counts = counts
        self.log = Log()
        self.ledger = Ledger(self.log, is_fifo=settings.is_fifo)
        self.carrying: dict[CopyMessage, int] = {}
        """Moves that this leader carries out, and when it tries again."""
        self.finished: set[int] = set()
        """Messages that a worker said were done, and the machine said that it is well."""
        self.sent: list[tuple[CopyMessage, Message]] = []
        """Copies that were sent of late."""
        self.is_changed = True
        self.waiting: list[tuple[int, Any]] = []
        """Copies that were appended here, by their offsets, and what to say when they are committed."""
        self.disk_fails = 0.0
        self.answers_early = self.tears_batches = self.trusts_old = False
        self.purges_early = self.forgets_purges = False
        self.purged_to = 0
        """Up to where the queue was purged, by acknowledged purges."""
        self.old: QueueMachine | None = None
        """One that was elected, fell asleep, and does not know that it has been replaced."""
        self.incarnation = 0
        self._make = make or QueueMachine
        self._clock = clock
        self._skew_ms = 0
        self._window = rng.choice(WINDOWS)
        self._numbers = numbers
        self._records: list[StateRecord] = []
        self._safe = 0
        self._inside: set[int] = set()
        """Where the records cannot be cut, because they are in the middle of a batch."""
        self._pending: list[Pending] = []
        self.machine = self._make()
        self.machine.loaded(self.now_ms)
        self._begin()
        self.submit(SetPosition(GROUP, 0), None)
        self.commit(is_all=True)

    @property
    def now_ms(self) -> int:
        """The time by the clock of the leader."""
        return self._clock.now_ms() + self._skew_ms

    def _begin(self) -> None:
        """A leader begins: it serves the queue when all that it has read back is committed."""
        self._served_end = len(self._records)
        self._ids: Deduplication | None = None
        self._purges = Purges(cast(Any, self.log), cast(Any, self), self.machine)
        if self.forgets_purges:
            self._purges._committed.clear()

    # -- deduplication

    def purge(self) -> None:
        """Purges the queue; the response is sent when the purge is committed."""
        end = self.log.high_watermark

        def purged(reply: Any) -> None:
            if not isinstance(reply, PenstockError):
                self.counts["purges"] += 1
                self.purged_to = max(self.purged_to, end)

        if self._safe >= self._served_end:
            self._purges.purge(GROUP, forgets_ids=True, then=purged)

    def send_once(self, message: Message) -> None:
        """Take a message, unless one with its id was taken before."""
        if self._safe < self._served_end:
            return
        purged_to = self.machine.purged_to(GROUP) if self.purges_early else self._purges.purged_to(GROUP)
        ids, now_ms, name = self._ids, self._clock.steady_ms(), message.deduplication_id
        if ids is None:
            ids = self._ids = Deduplication()
            ids.forget_below(purged_to)
            for offset, entry in enumerate(self.log.entries):
                if entry.message.deduplication_id and offset >= self.log.start:
                    ids.add("", entry.message.deduplication_id, offset, entry.message.sent_ms, now_ms)
        ids.forget_below(purged_to)
        before = ids.find("", name, now_ms)
        assert before is None or before >= self.purged_to, (
            f"PurgeForgetsIds: {message} repeats {before}, the queue was purged up to {self.purged_to}"
        )
        self.counts["duplicates"] += before is not None
        if before is None:
            ids.add("", name, len(self.log.entries), now_ms, now_ms)
            self.log.append(message)

    # -- deciding

    def submit(self, command: Any, answer: Callable[[Any], None] | None) -> None:
        """Decides a command; the response is sent when it is committed, if the leader still runs then."""
        now_ms = self.now_ms
        try:
            decision = self.machine.decide(0, command, now_ms)
        except PenstockError as error:
            if answer is not None:
                answer(error)
            return
        (reply,) = decision.replies
        self._carry_out(decision, self._meaning(command, decision, reply.value, now_ms), reply.value, answer)

    def ask_old(self, command: Acknowledge, answer: Callable[[Any], None]) -> bool:
        """Asks a former leader, if there is one: it can commit nothing, and only answer from its state."""
        if self.old is None or self.rng.random() < 0.8:
            return False
        self.counts["old_leaders_asked"] += 1
        decision = self.old.decide(0, command, self.now_ms)
        if decision.persist or (decision.must_lead and not self.trusts_old):
            return True  # the client gets no response
        (reply,) = decision.replies
        for item, error in zip(command.items, reply.value, strict=True):
            if item.ack_type in FINISHES and isinstance(error, AlreadyFinished):  # which to clients is a yes
                self.ledger.acked_done.update({*range(item.first, item.last + 1)} - self.ledger.away)
        answer(reply.value)
        return True

    def acquire(self, command: Acquire, answer: Callable[[Any], None]) -> None:
        """With what there is to read, as the leader sees it."""
        delivery = self.machine.group(GROUP)
        assert delivery is not None
        end = max(delivery.end, self.log.start)
        last = min(end + self._window, self.log.high_watermark)
        fresh = tuple(
            Fresh(offset, message.due_ms, 1, message.group)
            for offset in range(end, last)
            for message in (self.log.entries[offset].message,)
        )
        has_more = last < self.log.high_watermark
        self.submit(
            command._replace(fresh=fresh, fresh_from=end, fresh_end=max(end, last), has_more=has_more), answer
        )

    def _meaning(self, command: Any, decision: Decision, reply: Any, now_ms: int) -> Meaning:
        match command:
            case Acquire():
                held = self.machine.group(GROUP)
                again = held.held_by(command.holder) if held is not None and command.repeat else []
                is_repeat = bool(again) and all(one.first in again for one in reply)
                return Meaning(now_ms, reply, (), leaving(decision.persist), is_repeat)
            case Acknowledge():
                return Meaning(now_ms, (), accepted(command, reply), leaving(decision.persist))
            case Purge():
                return Meaning(now_ms, leaving=leaving(decision.persist), purged_to=command.end)
        return Meaning(now_ms, leaving=leaving(decision.persist))

    def _carry_out(
        self, decision: Decision, meaning: Meaning, reply: Any, answer: Callable[[Any], None] | None
    ) -> None:
        if decision.persist:
            if self.rng.random() < self.disk_fails:
                self.counts["records_not_persisted"] += 1
                if answer is not None:
                    answer(CoordinatorNotAvailable("the disk is full"))
                return
            start, end = len(self._records), len(self._records) + len(decision.persist)
            self._records.extend(decision.persist)
            if decision.is_atomic and self.tears_batches and end - start > 1 and self.rng.random() < 0.2:
                del self._records[self.rng.randint(start + 1, end - 1) :]
                self._take_over()
                return
            self._inside.update(range(start + 1, end if decision.is_atomic else min(end, start + FIRST_BATCH)))
            for record in decision.persist:
                self.machine.apply(record, NO_PRODUCER)
            self.is_changed = True
            for item in meaning.settled:
                if item.ack_type is AckType.DONE:
                    self.finished.update(range(item.first, item.last + 1))
            self.finished.update(range(meaning.purged_to))
            self.ledger.purge_asked_to = max(self.ledger.purge_asked_to, meaning.purged_to)
        pending = Pending(len(self._records), meaning, answer, reply, decision.effects)
        self._pending.append(pending)
        if self.answers_early:
            self._deliver(pending)

    def commit(self, *, is_all: bool = False) -> None:
        """Some of what was appended is committed, in both logs; waiting requests are answered."""
        end = len(self._records)
        if is_all or self.rng.random() < 0.7:
            self._safe = end
            self.log.high_watermark = len(self.log.entries)
        else:
            self._safe = max(self._safe, self._uncut(self.rng.randint(self._safe, end)))
            self.log.high_watermark = self.rng.randint(self.log.high_watermark, len(self.log.entries))
        while self._pending and self._pending[0].end <= self._safe:
            pending = self._pending.pop(0)
            self.ledger.commit(pending.meaning)
            self._deliver(pending)

    def _deliver(self, pending: Pending) -> None:
        answer, pending.answer = pending.answer, None
        if answer is not None:
            self.ledger.acked_done.update(
                offset
                for item in pending.meaning.settled
                if item.ack_type is AckType.DONE
                for offset in range(item.first, item.last + 1)
            )
            answer(pending.reply)
        effects, pending.effects = pending.effects, ()
        for effect in effects:
            self._perform(effect)

    def _perform(self, effect: Any) -> None:
        if isinstance(effect, NeedProducer):
            self.submit(SetProducer(next(self._numbers)), None)
        else:
            self.carrying[effect] = self.now_ms

    def wake(self) -> None:
        at_ms = self.machine.wake_at_ms
        if at_ms is not None and at_ms <= self.now_ms:
            decision = self.machine.wake(self.now_ms)
            self._carry_out(decision, Meaning(self.now_ms, leaving=leaving(decision.persist)), None, None)

    # -- faults

    def _uncut(self, at: int) -> int:
        """Where a batch ends: here, or before."""
        while at in self._inside:
            at -= 1
        return at

    @property
    def at_risk(self) -> int:
        """What a failover is worth now: copies that are not committed before all else."""
        copies = len(self.log.entries) - self.log.high_watermark
        return 2 * (copies > 0) + (len(self._records) > self._safe) if self.rng.random() < 0.7 else 0

    def restart(self) -> None:
        """All is read back; what is committed may have been compacted before."""
        before = state_of(self.machine)
        self._take_over()
        assert state_of(self.machine) == before, "RecordsTellAll"

    def fail_over(self) -> list[Message]:
        """Another replica becomes the leader; returns the messages that it lacks: they were not acknowledged."""
        if self.rng.random() < 0.5:
            self.old = self._read_back(self._records[: self._safe])
        kept = self._uncut(self.rng.randint(self._safe, len(self._records)))
        self.counts["records_cut"] += len(self._records) - kept
        del self._records[kept:]
        end = self.rng.randint(self.log.high_watermark, len(self.log.entries))
        lost = self.log.elect(end, self._clock.now_ms())
        self.counts["copies_cut"] += len(lost)
        self._skew_ms = self.rng.randint(-SKEW_MS, SKEW_MS)
        self._take_over()
        return lost

    def _take_over(self) -> None:
        """Waiting clients get no response, but persisted records that survive will be committed."""
        self.incarnation += 1
        end = len(self._records)
        self._inside = {at for at in self._inside if at < end}
        self._pending = [
            Pending(pending.end, pending.meaning, None, None, ()) for pending in self._pending if pending.end <= end
        ]
        self.carrying.clear()
        self.waiting.clear()
        self.is_changed = True
        if self.rng.random() < 0.5:
            self._compact()
        self.machine = self._read_back(self._records)
        self._begin()

    def _read_back(self, records: list[StateRecord]) -> QueueMachine:
        machine = self._make()
        for record in records:
            machine.apply(StateRecord(key=record.key, value=record.value), NO_PRODUCER)
        machine.loaded(self.now_ms)
        return machine

    def _compact(self) -> None:
        """Of what is committed only the last record of each key is left."""
        kept = compacted(self._records[: self._safe])
        gone = self._safe - len(kept)
        self._records[: self._safe] = kept
        self._inside = {at - gone for at in self._inside if at > self._safe}
        for pending in self._pending:
            pending.end -= gone
        self._safe -= gone
        self.counts["records_compacted"] += gone

    def trim(self, start: int) -> None:
        """Retention deletes all messages below."""
        self.log.start = start
        self.ledger.trimmed = start

    def tell_trimmed(self) -> None:
        """The leader notices."""
        delivery = self.machine.group(GROUP)
        if delivery is not None and delivery.start < self.log.start:
            self.submit(Trimmed(GROUP, self.log.start), None)
            self.carrying = {one: at_ms for one, at_ms in self.carrying.items() if one.offset >= self.log.start}

    # -- what is moved

    def to_carry(self) -> list[tuple[CopyMessage, Message]]:
        """Copies that are to be sent, or sent again."""
        found = []
        for effect, at_ms in list(self.carrying.items()):
            if at_ms <= self.now_ms and effect.offset >= self.log.start:
                self.carrying[effect] = self.now_ms + RETRY_MS
                found.append((effect, self.log.entries[effect.offset].message.moved()))
        return found
