"""The processes that use the queues (senders, workers, share consumers), and their histories.

Whole processes of workers are killed and frozen; each life of one has notes of its own, which are the history.
"""

import math
import random
from collections import Counter
from collections.abc import Iterator, Mapping
from typing import Any, Final

from .checker import Outcome
from .cluster_broker import HTTP_PORT
from .cluster_faults import Draw, Fault, Faults, Heal
from .cluster_lab import Lab
from .processes import Child, Event
from .queue_checker import DeadLetter, Delivery, Move, QueueHistory, Send, Settlement, Verdict

STANDARD: Final = "jobs"
DEAD: Final = "dead"
LINE: Final = "line.fifo"
"""Deduplicated by message group, on several partitions."""
ONCE: Final = "once.fifo"
"""Deduplicated as a whole, on one partition."""
HOLD_S: Final = 8
WORKERS: Final = {STANDARD: (5, HOLD_S), LINE: (4, HOLD_S), ONCE: (2, HOLD_S)}
"""Of one process: how many there are for each queue, and for how long they take messages."""
PROCESSES: Final = 4
SHARERS: Final = 3
"""Of one process of share consumers, of which there are two: with all others they are fifty."""
MAX_RECEIVES: Final = 4
SENDING: Final = {
    "standard": {STANDARD: 4},
    "groups": {LINE: 24, ONCE: 8},
    "pause_s": 0.2,
    "group_pause_s": 2.0,
    "poison": 0.04,
}


class QueueClients:
    """Has them run, kills and freezes them, and knows in the end what they did."""

    def __init__(self, lab: Lab, seed: str) -> None:
        self._lab = lab
        self._seed = seed
        self._lives = 0
        self._all: list[Child] = []
        self.kills = 0
        self._counts: Counter[str] = Counter()
        self._counted: Counter[str] = Counter()
        """Of each life, how many of its events are in the counts."""
        self._slots: dict[str, Child | None] = {}
        self.sender = self._start("sender", "queue_sender", SENDING)
        for name in (*(f"w{number}" for number in range(PROCESSES)), "h0", "h1"):
            self.start(name)

    @property
    def names(self) -> list[str]:
        return list(self._slots)

    def start(self, name: str) -> None:
        """One more life of a process of workers."""
        if name.startswith("w"):
            child = self._start(name, "queue_worker", {"queues": WORKERS})
        else:
            options = {"queue": STANDARD, "count": SHARERS, "kafka": self._lab.bootstrap}
            child = self._start(name, "queue_share_consumer", options)
        self._slots[name] = child

    def _start(self, name: str, module: str, more: Mapping[str, object]) -> Child:
        self._lives += 1
        name = f"{name}-{self._lives}"
        http = [f"{broker.address}:{HTTP_PORT}" for broker in self._lab.brokers.values()]
        options = {"name": name, "seed": self._seed, "http": http, **more}
        child = Child(name, module, self._lab.folder, options)
        self._all.append(child)
        return child

    def kill(self, name: str) -> None:
        child = self._slots[name]
        assert child is not None, f"{name} does not run"
        child.kill()
        self._slots[name] = None
        self.kills += 1

    def child(self, name: str) -> Child:
        child = self._slots[name]
        assert child is not None, f"{name} does not run"
        return child

    def stop_workers(self) -> None:
        for child in self._slots.values():
            if child is not None:
                child.stop()

    def clear(self) -> None:
        for child in self._all:
            child.clear()

    # -- what they did

    def check(self) -> None:
        """Checks that processes have only ended by being killed."""
        for child in self._all:
            child.check()

    def _events(self, what: str) -> Iterator[Event]:
        for child in self._all:
            yield from (event for event in child.events() if event.what == what)

    def counts(self) -> Counter[str]:
        """How many messages were acknowledged, and how many deliveries there were, by queue."""
        for child in self._all:
            events = child.events()
            for event in events[self._counted[child.name] :]:
                if event.what == "sent" and event.details[5] == Outcome.OK:
                    self._counts[f"sent {event.details[0]}"] += 1
                elif event.what == "got":
                    self._counts[f"got {event.details[1]}"] += len(event.details[5])
            self._counted[child.name] = len(events)
        return Counter(self._counts)

    def trouble(self) -> list[str]:
        return [f"{event.details[0]}: {event.details[1]}" for event in self._events("trouble")]

    def history(self, dead: list[DeadLetter], moves: list[Move]) -> QueueHistory:
        settlements = [found for child in self._all for found in _settlements(child.events())]
        return QueueHistory(
            sends=[_send(*event.details) for event in self._events("sent")],
            deliveries=[found for event in self._events("got") for found in _deliveries(*event.details)],
            settlements=settlements,
            dead=dead,
            moves=moves,
            max_receives={STANDARD: MAX_RECEIVES},
        )

    # -- what goes wrong with them

    def faults(self) -> dict[str, Draw]:
        """More kinds of faults, as those of cluster_faults.py."""
        return {
            "kill-workers": lambda faults: self._killed(faults, "w"),
            "kill-more-workers": lambda faults: self._killed(faults, "w"),
            "kill-sharers": lambda faults: self._killed(faults, "h"),
            "freeze-workers": lambda faults: self._frozen(faults, "w"),
            "freeze-sharers": lambda faults: self._frozen(faults, "h"),
        }

    def _drawn(self, rng: random.Random, kind: str) -> str:
        return rng.choice([name for name in self._slots if name.startswith(kind)])

    def _killed(self, faults: Faults, kind: str) -> Fault:
        name = self._drawn(faults.rng, kind)

        def begin() -> Heal:
            self.kill(name)
            return lambda: self.start(name)

        lasts_s = faults.rng.uniform(0, 3)
        return Fault(what=f"{name} killed", touches=frozenset({name}), lasts_s=lasts_s, begin=begin)

    def _frozen(self, faults: Faults, kind: str) -> Fault:
        """For a moment, or until others have its messages."""
        name = self._drawn(faults.rng, kind)
        lasts_s = faults.rng.choice((faults.rng.uniform(0.2, 3), faults.rng.uniform(HOLD_S, 2 * HOLD_S)))

        def begin() -> Heal:
            child = self.child(name)
            child.freeze()
            return child.thaw

        return Fault(
            what=f"{name} frozen for {lasts_s:.1f} s", touches=frozenset({name}), lasts_s=lasts_s, begin=begin
        )


def _send(queue: str, value: str, group: str, began_s: float, ended_s: float, outcome: str, message_id: str) -> Send:
    return Send(
        queue=queue,
        value=value,
        group=group,
        began_s=began_s,
        ended_s=ended_s,
        outcome=Outcome(outcome),
        message_id=message_id,
    )


def _deliveries(
    call: str, queue: str, began_s: float, ended_s: float, hold_s: float, lines: list[list[Any]]
) -> Iterator[Delivery]:
    for key, value, message_id, count, group, sequence in lines:
        yield Delivery(
            key=key,
            call=call,
            queue=queue,
            value=value,
            began_s=began_s,
            ended_s=ended_s,
            count=count,
            hold_s=hold_s,
            message_id=message_id,
            group=group,
            sequence=sequence,
        )


def _settlements(events: list[Event]) -> Iterator[Settlement]:
    """The history of one process. The calls in flight when it was killed have unknown outcomes."""
    begun: dict[str, tuple[Verdict, float, float]] = {}
    for event in events:
        if event.what == "try":
            key, verdict, began_s, hold_s = event.details
            begun[key] = Verdict(verdict), began_s, hold_s
        elif event.what == "end":
            key, ended_s, outcome = event.details
            yield _settlement(key, *begun.pop(key), ended_s, Outcome(outcome))
    for key, tried in begun.items():
        yield _settlement(key, *tried, math.inf, Outcome.INFO)


def _settlement(
    key: str, verdict: Verdict, began_s: float, hold_s: float, ended_s: float, outcome: Outcome
) -> Settlement:
    return Settlement(key=key, verdict=verdict, began_s=began_s, ended_s=ended_s, outcome=outcome, hold_s=hold_s)
