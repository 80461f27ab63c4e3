"""Shifts deadlines after the wall clock was stepped, so that visibility timeouts and delays keep their length. Pure.

Deadlines are persisted as wall-clock times, so that the next leader can use them. Without a shift, messages would be
redelivered too early or too late.
"""

from collections.abc import Mapping
from typing import Final

from penstock.queues.commands import Reschedule
from penstock.queues.delivery_state import DeliveryState
from penstock.queues.draft import Draft

RESCHEDULED_MAX: Final = 500
"""Maximum number of delivery ranges (consecutive messages in one state) whose visibility timeout or delay one
Reschedule command shifts, so that its records fit into one batch."""


def reschedule(
    draft: Draft, deliveries: Mapping[str, DeliveryState], command: Reschedule, now_ms: int
) -> Reschedule | None:
    """Adds `command.by_ms` to visibility timeouts and delays that have not expired, of up to RESCHEDULED_MAX
    delivery ranges. Returns the command that continues with the other ranges, or None if there are none."""
    left = RESCHEDULED_MAX
    for name in sorted(name for name in deliveries if name >= command.group):  # the group may have been deleted
        delivery, is_resumed = deliveries[name], name == command.group
        if not is_resumed:
            delivery.set_clock_back(command.by_ms)
        for delivery_range in delivery.between(command.first if is_resumed else 0, delivery.end):
            if delivery_range.due_ms <= now_ms or delivery_range.move is not None:
                continue
            if not left:
                return command._replace(group=name, first=delivery_range.first)
            draft.put(delivery, delivery_range._replace(due_ms=max(1, delivery_range.due_ms + command.by_ms)))
            left -= 1
    return None
