"""One seeded run of a queue and its dead letters: partitions that change leaders, workers that die, a bad network.

What is real: the machines, their records read back byte by byte, and the idempotence of the log that copies are
appended to. After every step:
- AckedMessageNeverRedelivered: a message whose deletion was acknowledged is never delivered again, by any leader;
- NoMessageLost: what is not finished by a worker is waiting, in a delivery range, or has a copy where it was moved
  to;
- GroupInOrder: of a FIFO queue's message group nothing is given out before all that came earlier is finished, or in
  flight at the same worker before it;
- NothingBehindInFlight: while a message of a group is in flight, neither it nor one behind it is delivered;
- DeadLetteredOnce: a message that is moved has one copy, and is given out no more where it was;
- PurgeForgetsIds: after a purge that was answered, a message with the id of one from before it is taken;
- TakenOnce: of two messages with one id, the second is taken only if the first is never given out again;
- RecordsTellAll: the records have the whole state of the machine.
Once the faults stop and workers do their work, everything is soon finished (EverythingEnds).
"""

from collections import Counter
from collections.abc import Callable
from itertools import count
from random import Random
from typing import Any

from penstock.foundation.errors import PenstockError
from penstock.queues.commands import Acknowledge, Acquire, CopyMessage, Destination
from penstock.queues.delivery_state import Chain, DeliveryState
from penstock.queues.machine import QueueMachine
from penstock.queues.settings import DeadLetter, DeliverySettings
from tests.simulation.clock import FakeClock
from tests.simulation.network import Conditions, FakeNetwork
from tests.simulation.queue_log import Message
from tests.simulation.queue_partition import GROUP, Place
from tests.simulation.queue_worker import Worker

SOURCE = b"source-topic-id!"
DEAD = b"dead-letters-id!"
FAULTS = {"restart": 2, "failover": 4, "death": 4, "disk": 2, "mended": 5, "jump": 2, "trim": 1, "stale": 4}
"""With how often each happens, compared with the others."""
CALM_MS = 120_000

Copy = tuple[int, int, CopyMessage, Message]
"""Where a copy comes from, in which incarnation of that place, and what it is."""


class OpenChains(dict[str, Chain]):
    """A bug: a message group that waits with no message in flight is treated as an unknown one."""

    def __contains__(self, group: object) -> bool:
        return super().__contains__(group) and self[str(group)].held > 0


class LooseDelivery(DeliveryState):
    """A bug: a message in flight holds back nothing behind it."""

    def is_timed(self, first: int) -> bool:
        return super().is_timed(first) and not self.ranges[first].holder


class PlantedMachine(QueueMachine):
    """With one of the bugs."""

    def __init__(self, bug: str) -> None:
        super().__init__()
        self._bug = bug

    def _delivery_of(self, name: str) -> DeliveryState:
        if name not in self._deliveries:
            self._deliveries[name] = LooseDelivery(name) if self._bug == "loose groups" else DeliveryState(name)
            if self._bug == "overtaking":
                self._deliveries[name].chains = OpenChains()
        return self._deliveries[name]


BUGS = {
    "early answers": "AckedMessageNeverRedelivered",
    "torn batches": "NoMessageLost",
    "overtaking": "GroupInOrder",
    "loose groups": "NothingBehindInFlight",
    "new numbers": "DeadLetteredOnce",
    "old leaders": "AckedMessageNeverRedelivered",
    "hasty purges": "TakenOnce",
    "forgotten purges": "PurgeForgetsIds",
}
"""Bugs that can be planted, and what must be seen of each."""


class QueueRun:
    def __init__(self, seed: int, steps: int, *, bug: str = "") -> None:
        self.rng = Random(seed)
        self.steps = steps
        self.bug = bug
        self.clock = FakeClock()
        conditions = Conditions(
            delay_ms_max=self.rng.choice((5, 60)),
            loss=self.rng.choice((0.0, 0.05, 0.2)),
            repeat=self.rng.choice((0.0, 0.2)),
        )
        self.network = FakeNetwork(Random(self.rng.random()), self.clock, conditions)
        self.counts: Counter[str] = Counter()
        self.numbers = count(1)
        self.is_calm = False
        self.is_fifo = self.rng.random() < 0.5
        self.visibility_ms = self.rng.choice((150, 600, 2000))
        self.copies: dict[tuple[int, int], tuple[int, int]] = {}
        """Of each hop of each message, the place and the offset of the copy."""
        self.commit_chance = self.rng.choice((0.08, 0.3, 0.9))
        self.groups = self.rng.randint(1, 5)
        self.delays_ms = self.rng.choice(((0,), (0, 0, 3000), (500,), (0, 100, 900, 4000)))
        self.may_trim = self.rng.random() < 0.3
        self.purge_chance = self.rng.choice((0.0, 0.01, 0.03))
        self.places = self._make_places()
        sources = [number for number, place in enumerate(self.places) if place.destination.topic_id == SOURCE]
        dead = [number for number in range(len(self.places)) if number not in sources]
        self.sources = sources
        self.workers = [Worker(self, number, sources) for number in range(self.rng.randint(2, 4))]
        self.workers.append(Worker(self, 10, dead))
        if self.rng.random() < 0.5:
            self.workers.append(Worker(self, 11, dead, is_mover=True))

    def _make_places(self) -> list[Place]:
        letters = self.rng.randint(1, 2)
        settings = DeliverySettings(
            max_deliveries=self.rng.choice((0, 1, 3)),
            is_fifo=self.is_fifo,
            in_flight_max=self.rng.choice((4, 1000)),
            lookahead_max=self.rng.choice((6, 1000)),
            dead_letter=DeadLetter(DEAD, letters),
        )
        topics = [(SOURCE, settings)] * self.rng.randint(1, 3)
        topics += [(DEAD, DeliverySettings(is_fifo=self.is_fifo))] * letters
        places = []
        seen: Counter[bytes] = Counter()
        make: Callable[[], QueueMachine] | None = None
        if self.bug in ("overtaking", "loose groups"):
            make = lambda: PlantedMachine(self.bug)  # noqa: E731
        for topic_id, chosen in topics:
            destination = Destination(topic_id, seen[topic_id])
            seen[topic_id] += 1
            place = Place(destination, chosen, self.rng, self.clock, self.counts, self.numbers, make=make)
            place.answers_early = self.bug == "early answers"
            place.tears_batches = self.bug == "torn batches"
            place.trusts_old = self.bug == "old leaders"
            place.purges_early = self.bug == "hasty purges"
            place.forgets_purges = self.bug == "forgotten purges"
            places.append(place)
        return places

    def move_to(self, place: int, offset: int) -> Destination:
        """Where a move task takes a message: back to the partition of its group."""
        group = self.places[place].log.entries[offset].message.group
        return self.places[self.sources[self._home(group)]].destination

    def _home(self, group: str) -> int:
        return int(group[1:]) % len(self.sources)

    @property
    def faults(self) -> int:
        return sum(
            self.counts[kind] for kind in ("restarts", "failovers", "deaths", "jumps", "records_not_persisted")
        )

    # -- the run

    def run(self) -> None:
        for _ in range(self.steps):
            self._step(self.rng.choice((0, 1, 5, 10, 20, 40)))
            if self.rng.random() < 0.05:
                self._fault()
            self.counts["steps"] += 1
        self._calm_down()

    def _step(self, ms: int) -> None:
        self.clock.advance(ms)
        if not self.is_calm and self.rng.random() < 0.08:
            self._send_messages()
        if not self.is_calm and self.rng.random() < 0.06:
            self._send_once()
        if not self.is_calm and self.rng.random() < self.purge_chance:
            self.places[self.rng.choice(self.sources)].purge()
        for source, target, message in self.network.arrivals():
            self._arrive(source, target, message)
        for number, place in enumerate(self.places):
            place.wake()
            if self.is_calm or self.rng.random() < self.commit_chance:
                place.commit(is_all=self.is_calm)
            place.tell_trimmed()
            self._carry(number, place)
        for worker in self.workers:
            worker.act()
        self._check()

    def _send_messages(self) -> None:
        for _ in range(self.rng.choice((1, 1, 3))):
            group = f"g{self.rng.randrange(self.groups)}"
            home = self._home(group) if self.is_fifo else self.rng.randrange(len(self.sources))
            delay_ms = self.rng.choice(self.delays_ms)
            due_ms = self.clock.now_ms() + delay_ms if delay_ms else 0
            self.places[self.sources[home]].log.append(Message(next(self.numbers), group, due_ms))
            self.counts["sent"] += 1

    def _send_once(self) -> None:
        """A message with one of a few ids."""
        group, name = f"g{self.rng.randrange(self.groups)}", f"id-{self.rng.randrange(4)}"
        message = Message(next(self.numbers), group, 0, 0, name, self.clock.steady_ms())
        self.places[self.sources[self._home(group)]].send_once(message)

    def _calm_down(self) -> None:
        """The faults stop; workers do what they are there for."""
        self.is_calm = True
        self.network.conditions.loss = self.network.conditions.repeat = 0.0
        for place in self.places:
            place.disk_fails = 0.0
            place.old = None
        for worker in self.workers:
            worker.jobs.clear()
        until_ms = self.clock.now_ms() + CALM_MS
        while self.clock.now_ms() < until_ms and not self._is_over():
            self._step(20)
        for number, place in enumerate(self.places):
            left = self._unfinished(place)
            assert not left, f"EverythingEnds: {left[:5]} of place {number} are left, {place.carrying} in flight"
        self.counts["deliveries"] += sum(place.ledger.deliveries for place in self.places)
        self.counts["moved"] += len(self.copies)

    def _is_over(self) -> bool:
        return not any(self._unfinished(place) for place in self.places)

    def _unfinished(self, place: Place) -> list[int]:
        delivery = place.machine.group(GROUP)
        assert delivery is not None
        return [*delivery.ranges, *range(delivery.end, len(place.log.entries))]

    # -- faults

    def _fault(self) -> None:
        (kind,) = self.rng.choices(list(FAULTS), list(FAULTS.values()))
        place = self.rng.choice(self.places)
        if kind == "restart":
            self.counts["restarts"] += 1
            place.restart()
        elif kind == "failover":
            self.counts["failovers"] += 1
            place = max(self.rng.sample(self.places, len(self.places)), key=lambda one: one.at_risk)
            for lost in place.fail_over():
                self.copies.pop((lost.uid, lost.hops), None)
        elif kind == "death":
            self.counts["deaths"] += 1
            worker = self.rng.choice(self.workers)
            worker.jobs.clear()
            worker.asked.clear()
        elif kind == "disk":
            place.disk_fails = self.rng.choice((0.1, 0.5, 1.0))
        elif kind == "mended":
            place.disk_fails = 0.0
        elif kind == "jump":
            self.counts["jumps"] += 1
            self.clock.advance(self.rng.choice((500, 3000, 20_000)))
        elif kind == "trim" and self.may_trim and place.log.high_watermark:
            self.counts["trims"] += 1
            place.trim(max(place.log.start, self.rng.randrange(place.log.high_watermark)))
        elif kind == "stale":
            self._say_again(place)

    def _say_again(self, place: Place) -> None:
        """Copies that were sent long ago arrive once more."""
        for copy_effect, message in self.rng.sample(place.sent, min(len(place.sent), 3)):
            self.counts["copies_stale"] += 1
            self._append((self.places.index(place), -1, copy_effect, message))

    # -- messages

    def _arrive(self, source: Any, target: Any, message: Any) -> None:
        kind, number = target
        if kind == "worker":
            worker = next(worker for worker in self.workers if worker.number == number)
            worker.answered(*message)
        elif kind == "place":
            request, command = message
            place = self.places[number]

            def answer(value: Any) -> None:
                self.network.send(("place", number), source, (request, value))

            if isinstance(command, Acquire):
                place.acquire(command, answer)
            elif not (isinstance(command, Acknowledge) and place.ask_old(command, answer)):
                place.submit(command, answer)
        elif kind == "copies":
            self._append(message)
        else:
            self._copied(self.places[number], message)

    def _carry(self, number: int, place: Place) -> None:
        """Send the copies that are to be made, and say which of those that were made here are committed."""
        for copy_effect, message in place.to_carry():
            if self.bug == "new numbers" and place.incarnation % 2:
                producer = copy_effect.producer._replace(producer_id=copy_effect.producer.producer_id + 1_000_000)
                self.network.send(
                    ("place", number), ("copies", 0), (number, place.incarnation, copy_effect, (producer, message))
                )
                continue
            place.sent = [*place.sent[-20:], (copy_effect, message)]
            self.network.send(("place", number), ("copies", 0), (number, place.incarnation, copy_effect, message))
        for offset, copy in list(place.waiting):
            if offset < place.log.high_watermark:
                place.waiting.remove((offset, copy))
                self.network.send(("place", number), ("copied", copy[0]), copy)

    def _append(self, copy: Any) -> None:
        """A copy arrives where it belongs. What its log knows already is as good as new."""
        source, _, copy_effect, message = copy
        producer = copy_effect.producer
        if isinstance(message, tuple):
            producer, message = message
        number = next(at for at, place in enumerate(self.places) if place.destination == copy_effect.destination)
        place = self.places[number]
        try:
            offset, is_known = place.log.append_copy(message, producer, copy_effect.sequence, self.clock.now_ms())
        except PenstockError:
            self.counts["copies_refused"] += 1
            return
        if is_known:
            self.counts["copies_known"] += 1
        else:
            hop = (message.uid, message.hops)
            assert hop not in self.copies, f"DeadLetteredOnce: {message} of place {source} is there twice"
            self.copies[hop] = (number, offset)
        place.waiting.append((offset, copy))

    def _copied(self, place: Place, copy: Copy) -> None:
        copy_effect = copy[2]

        def answer(value: Any) -> None:
            if value is None:
                place.carrying.pop(copy_effect, None)

        place.submit(copy_effect.done(), answer)

    # -- what must hold

    def _check(self) -> None:
        for place in self.places:
            if not place.is_changed:
                continue
            place.is_changed = False
            delivery = place.machine.group(GROUP)
            assert delivery is not None
            there = set()
            for delivery_range in delivery.ranges.values():
                offsets = range(delivery_range.first, delivery_range.last + 1)
                assert there.isdisjoint(offsets), f"NoMessageLost: {delivery_range} is in two delivery ranges"
                there.update(offsets)
            for offset in range(place.log.start, delivery.end):
                if offset in there or offset in place.finished:
                    continue
                message = place.log.entries[offset].message
                number, at = self.copies.get((message.uid, message.hops + 1), (0, -1))
                is_moved = 0 <= at < self.places[number].log.high_watermark
                assert is_moved, f"NoMessageLost: {message} at {offset} is nowhere"
