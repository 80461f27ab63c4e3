"""Mistakes that are made on purpose, so that it is seen that the simulation of delays finds them."""

from collections.abc import Callable
from typing import Any

from penstock.broker.delays.partition import DelayPartition
from penstock.foundation.clock import Clock
from penstock.log.log import Appended
from penstock.replication.partition import Partition

BUGS = {
    "does not look for what was delivered": "DeliveredOnceWhenDue",
    "notes what is not committed": "DeliveredOnceWhenDue",
    "copies what was aborted": "DeliveredOnceWhenDue",
    "lets late messages overtake": "DeliveredOnceWhenDue",
    "delivers too early": "NeverEarly",
    "cancels before it is committed": "CancelledNeverDelivered",
    "shows delayed records": "DeliveredOnceWhenDue",
    "acknowledges before the sync": "DeliveredOnceWhenDue",
    "counts on a node that lost power": "DeliveredOnceWhenDue",
}
"""Mistakes that are made on purpose, and what must find them."""
FLUSHES = {"acknowledges before the sync": "group", "counts on a node that lost power": "os"}
"""How a topic must be flushed for the bugs that only show after power loss."""


class HastyPartition(Partition):
    """A bug: it takes what is written for synced."""

    @property
    def durable_end(self) -> int:
        return self.log.end_offset

    def append(self, *args: Any, **options: Any) -> Appended:
        appended = super().append(*args, **options)
        self.mark_durable(self.log.end_offset)
        return appended

    def append_own(self, *args: Any, **options: Any) -> Appended:
        appended = super().append_own(*args, **options)
        self.mark_durable(self.log.end_offset)
        return appended


def plant_bug(bug: str, hosted: DelayPartition) -> None:
    """Make a mistake in what delivers delayed messages."""
    machine, runtime = hosted.machine, hosted.runtime
    if bug == "does not look for what was delivered":
        hosted._scan = lambda at, end, found: hosted._begin(None, end, None)  # type: ignore[method-assign]
    elif bug == "notes what is not committed":
        partition = hosted.partition

        def at_once(end: int, waiter: Callable[[], None]) -> None:
            mark, partition.high_watermark = partition.high_watermark, max(partition.high_watermark, end)
            waiter()
            partition.high_watermark = mark

        deliver = hosted._deliver

        def careless(entries: object) -> None:
            kept, partition.when_committed = partition.when_committed, at_once  # type: ignore[method-assign]
            deliver(entries)  # type: ignore[arg-type]
            partition.when_committed = kept  # type: ignore[method-assign]

        hosted._deliver = careless  # type: ignore[method-assign]
    elif bug == "copies what was aborted":
        hosted._copier._partition.log.aborted_between = lambda first, end: []  # type: ignore[method-assign]
    elif bug == "lets late messages overtake":
        copy = machine._copy

        def unranked(ticket: int, command: object) -> object:
            taken, machine._taken = machine._taken, {}
            try:
                return copy(ticket, command)  # type: ignore[arg-type]
            finally:
                machine._taken = taken

        machine._copy = unranked  # type: ignore[assignment, method-assign]
    elif bug == "delivers too early":
        right, ahead, append = hosted._clock, _Ahead(hosted._clock), hosted._append
        hosted._clock = ahead

        def append_now(messages: object) -> None:
            hosted._clock = right
            append(messages)  # type: ignore[arg-type]
            hosted._clock = ahead

        hosted._append = append_now  # type: ignore[method-assign]
    elif bug == "cancels before it is committed":
        submit = runtime.submit

        def hasty(command: object, answer: Callable[[object], None]) -> int:
            if type(command).__name__ != "Cancel":
                return submit(command, answer)
            decision = machine.decide(0, command, 0)
            answer(decision.replies[0].value)
            return submit(command, lambda reply: None)

        runtime.submit = hasty  # type: ignore[method-assign]
    elif bug == "shows delayed records":
        hosted._visibility.delayed_batches.of_batch = lambda batch, header, log: False  # type: ignore[method-assign]


class _Ahead:
    """A clock that is wrong."""

    def __init__(self, clock: Clock) -> None:
        self._clock = clock
        self.steady_ms = clock.steady_ms
        self.monotonic_s = clock.monotonic_s

    def now_ms(self) -> int:
        return self._clock.now_ms() + 400
