"""PurgeQueue on one partition; a purge also makes the partition forget the deduplication ids of its messages.

The state machine applies a purge as soon as it is decided. But a purged deduplication id is accepted again only once
the purge is committed: if the purge were lost with this leader, both messages would remain.
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
    """Purges queues on one partition that this broker leads. Created once the loaded delivery state is committed."""

    def __init__(self, partition: Partition, runtime: StateRuntime, machine: QueueMachine) -> None:
        self._partition = partition
        self._runtime = runtime
        self._machine = machine
        self._committed = machine.purges()

    def purge(self, name: str, *, forgets_ids: bool, then: Callable[[Any], None]) -> None:
        """Purges a queue up to the last stable offset; calls `then` with the reply once the purge is committed.

        `forgets_ids`: whether later messages may reuse the deduplication ids of the purged messages.
        """
        end = self._partition.last_stable_offset

        def on_done(reply: Any) -> None:
            if forgets_ids and not isinstance(reply, PenstockError):
                mark = purge_mark(name)
                self._committed[mark] = max(end, self._committed.get(mark, 0))
            then(reply)

        self._runtime.submit(Purge(name, end, forgets_ids), on_done)

    def purged_to(self, name: str) -> int:
        """Returns the offset below which a queue's deduplication ids are forgotten because of purges."""
        # An unclean election lowers it, because new messages get the same offsets: see QueueMachine.
        return min(self._committed.get(purge_mark(name), 0), self._machine.purged_to(name))
