"""Deadlines that move when the clock is set: visibility timeouts and delays last as long as they did. Pure.

They are persisted as times of the wall clock, so that the next leader can use them. The leader has to move them when
the clock is set, or messages would come back early, or late, by as much.
"""

from collections.abc import Mapping
from typing import Final

from penstock.queues.commands import Reschedule
from penstock.queues.delivery import Delivery
from penstock.queues.draft import Draft

RESCHEDULED_MAX: Final = 500
"""Of one decision: it is one batch."""


def reschedule(
    draft: Draft, deliveries: Mapping[str, Delivery], command: Reschedule, now_ms: int
) -> Reschedule | None:
    """Moves the next deadlines; returns the command for the rest, or None if there are no more."""
    left = RESCHEDULED_MAX
    is_reached = not command.group or command.group not in deliveries
    for name, delivery in deliveries.items():
        is_resumed = name == command.group
        is_reached = is_reached or is_resumed
        if not is_reached:
            continue
        if not is_resumed:
            delivery.set_clock_back(command.by_ms)
        for parcel in delivery.between(command.first if is_resumed else 0, delivery.end):
            if parcel.due_ms <= now_ms or parcel.move is not None:
                continue
            if not left:
                return command._replace(group=name, first=parcel.first)
            draft.put(delivery, parcel._replace(due_ms=max(1, parcel.due_ms + command.by_ms)))
            left -= 1
    return None
