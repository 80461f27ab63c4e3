"""Simulated workers of queues: they die, acknowledge late or twice, release, and retry."""

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from penstock.foundation.errors import PenstockError
from penstock.queues.commands import Acknowledge, Acknowledgement, AckType, Acquire, Acquired
from tests.simulation.queue_partition import GROUP, Place

if TYPE_CHECKING:
    from tests.simulation.queue_run import QueueRun

FATES = {
    "done": 8,
    "delete": 4,
    "late": 3,
    "twice": 3,
    "dies": 4,
    "release": 3,
    "back off": 2,
    "renew": 3,
    "change": 3,
    "reject": 1,
    "undo": 1,
    "move": 2,
}
"""What a worker does with a message, with how often compared with the others."""
PATIENCE_MS = 120


@dataclass(eq=False, slots=True)
class Job:
    """A message in flight, and when it is acknowledged."""

    place: int
    holder: str
    first: int
    last: int
    at_ms: int
    ack_type: AckType
    then: AckType | None = None


class Worker:
    """Asks for messages of one queue, and works on them."""

    def __init__(self, run: "QueueRun", number: int, places: list[int], *, is_mover: bool = False) -> None:
        self.run = run
        self.number = number
        self.places = places
        self.is_mover = is_mover
        """Whether it moves messages to the other queue, as a move task does."""
        self.jobs: list[Job] = []
        self.next_ms = 0
        self.asked: dict[int, tuple[int, str]] = {}
        """By the number of a request, the place and the holder."""
        self._again: tuple[int, str] | None = None

    def act(self) -> None:
        rng, now_ms = self.run.rng, self.run.clock.now_ms()
        for job in [job for job in self.jobs if job.at_ms <= now_ms]:
            if job in self.jobs:  # or it went along with another one
                self.jobs.remove(job)
                self._say(job)
        if now_ms >= self.next_ms and len(self.jobs) < 8:
            self.next_ms = now_ms + rng.choice((10, 40, PATIENCE_MS))
            self._ask()

    def _ask(self) -> None:
        """Requests messages, or repeats a request that was not answered."""
        rng = self.run.rng
        number = next(self.run.numbers)
        repeat = self._again is not None and rng.random() < 0.5
        if repeat and self._again is not None:
            place, holder = self._again
        else:
            place, holder = rng.choice(self.places), f"w{self.number}-{number}"
        self._again = (place, holder)
        self.asked[number] = (place, holder)
        if len(self.asked) > 10:
            del self.asked[next(iter(self.asked))]
        at = self.run.places[place]
        command = Acquire(
            GROUP,
            holder,
            10 if self.run.is_calm else rng.choice((1, 1, 3, 10)),
            self.run.visibility_ms if rng.random() < 0.9 else 0,
            max_bytes=rng.choice((2, 100)),
            whole_ranges=not at.settings.is_fifo and rng.random() < 0.2,
            repeat=at.settings.is_fifo,
            settings=at.settings,
        )
        self.run.network.send(("worker", self.number), ("place", place), (number, command))

    def answered(self, number: int, value: Any) -> None:
        if number not in self.asked or isinstance(value, PenstockError):
            return
        place, holder = self.asked[number]
        if self._again == (place, holder):
            self._again = None
        for acquired in value:
            if isinstance(acquired, Acquired):
                self._take(place, holder, acquired)

    def _take(self, place: int, holder: str, acquired: Acquired) -> None:
        """One by one, or as they came."""
        rng, run = self.run.rng, self.run
        now_ms = run.clock.now_ms()
        step = acquired.last - acquired.first + 1 if rng.random() < 0.3 else 1
        for first in range(acquired.first, acquired.last + 1, step):
            last = min(first + step - 1, acquired.last)
            (fate,) = ("done",) if run.is_calm else rng.choices(list(FATES), list(FATES.values()))
            soon_ms = now_ms + (0 if run.is_calm else rng.choice((0, 20, 100, run.visibility_ms // 2)))
            late_ms = now_ms + run.visibility_ms + rng.choice((1, 100, 1000))
            any_ms = rng.choice((soon_ms, late_ms))
            change = AckType.RENEW if run.is_fifo else AckType.CHANGE
            jobs = {
                "done": [Job(place, holder, first, last, soon_ms, AckType.DONE)],
                "delete": [Job(place, holder, first, last, any_ms, AckType.DELETE)],
                "late": [Job(place, holder, first, last, late_ms, AckType.DONE)],
                "twice": [Job(place, holder, first, last, at_ms, AckType.DONE) for at_ms in (soon_ms, late_ms)],
                "dies": [],
                "release": [Job(place, holder, first, last, soon_ms, AckType.RELEASE)],
                "back off": [Job(place, holder, first, last, soon_ms, AckType.RELEASE, AckType.RELEASE)],
                "renew": [Job(place, holder, first, last, soon_ms, AckType.RENEW, AckType.DONE)],
                "change": [Job(place, holder, first, last, any_ms, change, AckType.DONE)],
                "reject": [Job(place, holder, first, last, soon_ms, AckType.REJECT)],
                "undo": [Job(place, holder, first, last, soon_ms, AckType.UNDO)],
                "move": [Job(place, holder, first, last, soon_ms, AckType.MOVE if self.is_mover else AckType.DONE)],
            }[fate]
            self.jobs.extend(jobs)

    def _say(self, job: Job) -> None:
        run, rng = self.run, self.run.rng
        at = run.places[job.place]
        due_ms = 0
        if job.ack_type in (AckType.RENEW, AckType.CHANGE):
            due_ms = at.now_ms + run.visibility_ms * rng.choice((0, 1, 2))
            item = Acknowledgement(job.first, job.last, job.holder, job.ack_type, due_ms)
            job.at_ms, job.ack_type, job.then = run.clock.now_ms() + rng.choice((50, 500)), AckType.DONE, None
            self.jobs.append(job)
            self._send(job, item)
            return
        if job.then is AckType.RELEASE:
            due_ms = at.now_ms + rng.choice((200, 2000))
        destination = run.move_to(job.place, job.first) if job.ack_type is AckType.MOVE else None
        self._send(job, Acknowledgement(job.first, job.last, job.holder, job.ack_type, due_ms, destination))

    def _send(self, job: Job, item: Acknowledgement) -> None:
        """Items of one place may come together."""
        at: Place = self.run.places[job.place]
        number = next(self.run.numbers)
        items = [item]
        if self.run.rng.random() < 0.3:
            others = [
                other
                for other in self.jobs
                if other.place == job.place and other is not job and other.ack_type is AckType.DONE
            ]
            for other in others:
                self.jobs.remove(other)
                items.append(Acknowledgement(other.first, other.last, other.holder, AckType.DONE))
        command = Acknowledge(GROUP, tuple(items), at.settings)
        self.run.network.send(("worker", self.number), ("place", job.place), (number, command))
