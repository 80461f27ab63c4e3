"""Shifts visibility timeouts and delays when the wall clock is stepped, so that their durations do not change.

Deadlines are persisted as wall-clock times, which are valid for the next leader; the leader itself measures time by a
steady clock. Without a shift, a message would become visible too early or too late by the size of the step.
"""

import logging
from typing import Any, Final

from penstock.broker.queues.partition import QueuePartition
from penstock.foundation.clock import Clock, Timer
from penstock.foundation.errors import PenstockError
from penstock.queues.commands import Reschedule

logger = logging.getLogger(__name__)

STEP_MS: Final = 1000
"""Smallest change of the wall clock between two checks, in ms, that counts as a step; clock slewing is slower."""
SKEW_MS: Final = 10_000
"""If the previous leader's clock was ahead of this broker's clock by more than this, in ms, visibility timeouts and
delays are shifted to end earlier."""
RETRY_S: Final = 1.0


class ClockSteps:
    """Detects steps of the wall clock, and then shifts visibility timeouts and delays in partitions that this broker
    leads."""

    def __init__(self, clock: Clock, timer: Timer) -> None:
        self._clock = clock
        self._timer = timer
        self._moving: set[QueuePartition] = set()

    def follow(self, partition: QueuePartition) -> None:
        """Shifts visibility timeouts and delays of a partition if the wall clock was stepped since the last call."""
        runtime = partition.runtime
        by_ms = self._clock.now_ms() - self._clock.steady_ms() - runtime.ahead_ms
        if abs(by_ms) < STEP_MS or partition in self._moving:
            return
        logger.warning("queue_clock_set partition=%s by_ms=%d", partition.partition.name, by_ms)
        if by_ms < 0:
            runtime.ahead_ms += by_ms  # first, so that no deadline expires before it is moved back
        self._move(partition, Reschedule(by_ms), by_ms if by_ms > 0 else 0)

    def check_last_leader(self, partition: QueuePartition) -> None:
        """Makes visibility timeouts and delays end earlier if the previous leader's clock was ahead of this broker's
        clock."""
        written_ms = max((segment.latest_ms for segment in partition.runtime.partition.log.segments[-1:]), default=-1)
        skew_ms = written_ms - partition.now_ms
        if skew_ms > SKEW_MS:
            logger.warning("last_leader_clock_ahead partition=%s by_ms=%d", partition.partition.name, skew_ms)
            self._move(partition, Reschedule(-skew_ms), 0)

    def _move(self, partition: QueuePartition, command: Reschedule, ahead_ms: int) -> None:
        """Shifts all visibility timeouts and delays of a partition by `command.by_ms`: submits `command`, then the
        command in each reply, and repeats a failed command. Finally advances the time by which the partition
        measures them by `ahead_ms`."""
        self._moving.add(partition)

        def on_reply(reply: Any) -> None:
            if partition.is_closed:
                self._moving.discard(partition)  # the next leader starts from its own wall clock
            elif isinstance(reply, PenstockError):
                self._timer(RETRY_S, lambda: self._move(partition, command, ahead_ms))
            elif isinstance(reply, Reschedule):
                self._timer(0, lambda: self._move(partition, reply, ahead_ms))
            else:
                partition.runtime.ahead_ms += ahead_ms
                self._moving.discard(partition)
                for name in partition.machine.groups:
                    partition.check_waiters(name)

        partition.runtime.submit(command, on_reply)
