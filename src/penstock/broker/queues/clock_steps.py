"""Follows the wall clock when it is set: the deadlines of messages in flight and delayed are moved along with it.

Deadlines are persisted as times of the wall clock, which the next leader shares; the leader itself measures them by a
steady clock. Without this a message would come back early, or stay hidden, by as much as the clock was set.
"""

import logging
from typing import Any, Final

from penstock.broker.queues.partition import QueuePartition
from penstock.foundation.clock import Clock, Timer
from penstock.foundation.errors import PenstockError
from penstock.queues.commands import Reschedule

logger = logging.getLogger(__name__)

STEP_MS: Final = 1000
"""What a clock that is only slewed does not gain or lose from look to look."""
SKEW_MS: Final = 10_000
"""How far the last leader's clock must have been ahead of this one for its deadlines to be moved."""
RETRY_S: Final = 1.0


class ClockSteps:
    """Compares the time of partitions that are led here with the wall clock."""

    def __init__(self, clock: Clock, timer: Timer) -> None:
        self._clock = clock
        self._timer = timer
        self._moving: set[QueuePartition] = set()

    def follow(self, partition: QueuePartition) -> None:
        """Moves the deadlines of a partition if the wall clock was set since they were last moved."""
        runtime = partition.runtime
        by_ms = self._clock.now_ms() - self._clock.steady_ms() - runtime.ahead_ms
        if abs(by_ms) < STEP_MS or partition in self._moving:
            return
        logger.warning("queue_clock_set partition=%s by_ms=%d", partition.partition.name, by_ms)
        if by_ms < 0:
            runtime.ahead_ms += by_ms  # first: deadlines that are moved back must not be over before they are
        self._move(partition, Reschedule(by_ms), by_ms if by_ms > 0 else 0)

    def check_last_leader(self, partition: QueuePartition) -> None:
        """Moves deadlines that a leader has set whose clock was ahead: nobody waits longer for it than it meant."""
        written_ms = max((segment.latest_ms for segment in partition.runtime.partition.log.segments[-1:]), default=-1)
        skew_ms = written_ms - partition.now_ms
        if skew_ms > SKEW_MS:
            logger.warning("last_leader_clock_ahead partition=%s by_ms=%d", partition.partition.name, skew_ms)
            self._move(partition, Reschedule(-skew_ms), 0)

    def _move(self, partition: QueuePartition, command: Reschedule, ahead_ms: int) -> None:
        """`ahead_ms`: what the partition's time is put forward by in the end."""
        self._moving.add(partition)

        def on_reply(reply: Any) -> None:
            if partition.is_closed:
                self._moving.discard(partition)  # the next leader begins at its own wall clock
            elif isinstance(reply, PenstockError):
                self._timer(RETRY_S, lambda: self._move(partition, command, ahead_ms))
            elif isinstance(reply, Reschedule):
                self._timer(0, lambda: self._move(partition, reply, ahead_ms))
            else:
                partition.runtime.ahead_ms += ahead_ms
                self._moving.discard(partition)
                for name in partition.machine.groups:
                    partition.look_soon(name)

        partition.runtime.submit(command, on_reply)
