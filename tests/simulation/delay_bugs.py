"""Mistakes that are made on purpose, so that it is seen that the simulation of delays finds them."""

from collections.abc import Callable

from penstock.broker.delays.partition import DelayPartition
from penstock.delays.commands import Take

BUGS = {
    "does not look for what was delivered": "DeliveredOnceWhenDue",
    "notes what is not committed": "DeliveredOnceWhenDue",
    "copies what was aborted": "DeliveredOnceWhenDue",
    "lets late messages overtake": "DeliveredOnceWhenDue",
    "delivers too early": "NeverEarly",
    "cancels before it is committed": "CancelledNeverDelivered",
    "shows delayed records": "DeliveredOnceWhenDue",
}
"""Mistakes that are made on purpose, and what must find them."""


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
        take = machine._take
        machine._take = lambda ticket, command: take(  # type: ignore[method-assign]
            ticket, Take(command.now_ms + 400, command.count_max)
        )
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
        hosted._veil.marks.of_batch = lambda batch, header, log: False  # type: ignore[method-assign]
