"""Purges of the queues of one partition, and which deduplication ids they have made the partition forget.

The machine knows a purge as soon as it is decided. A message with an id from before it is taken only once the purge
is committed: if it were lost with this leader, both messages would be there.
"""

from collections.abc import Callable
from typing import Any

from penstock.foundation.errors import PenstockError
from penstock.queues.commands import Purge
from penstock.queues.machine import QueueMachine
from penstock.queues.records import purge_mark
from penstock.replication.partition import Partition
from penstock.replication.runtime import StateRuntime


class Purges:
    """Purges of one partition that this broker leads. Make it when the loaded delivery state is committed."""

    def __init__(self, partition: Partition, runtime: StateRuntime, machine: QueueMachine) -> None:
        self._partition = partition
        self._runtime = runtime
        self._machine = machine
        self._committed = machine.purges()

    def purge(self, name: str, *, forgets_ids: bool, then: Callable[[Any], None]) -> None:
        """Purges a queue up to the last stable offset; `then` gets the reply once it is committed.

        `forgets_ids`: whether messages that are sent later may have the deduplication ids of those that are purged.
        """
        end = self._partition.last_stable_offset

        def on_done(reply: Any) -> None:
            if forgets_ids and not isinstance(reply, PenstockError):
                mark = purge_mark(name)
                self._committed[mark] = max(end, self._committed.get(mark, 0))
            then(reply)

        self._runtime.submit(Purge(name, end, forgets_ids), on_done)

    def purged_to(self, name: str) -> int:
        """Returns the offset below which the deduplication ids of a queue's messages are forgotten."""
        # An unclean election takes it back, because other messages get the same offsets: see QueueMachine.
        return min(self._committed.get(purge_mark(name), 0), self._machine.purged_to(name))
