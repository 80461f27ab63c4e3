"""The log of a replica: online, offline, or lent to a disk thread that truncates it."""

from collections.abc import Callable

from penstock.foundation.errors import StorageError
from penstock.foundation.ids import TopicPartition
from penstock.log.io_queue import Outcome, Work
from penstock.log.log import Log


class ReplicaLog:
    """Base of Partition: its log and whether the log is online. `offline_reason` tells why it is not."""

    name: TopicPartition

    def __init__(self, log: Log | None) -> None:
        self._log = log
        self.held = log
        """The log, even while it is offline or lent to a disk thread: its files stay open until it is closed."""
        self.is_lent = False
        """Whether a disk thread owns the log: the replica is offline until the thread has finished."""
        self.offline_reason = ""
        self.allows_fast_path = False
        """Whether the fast path is allowed: appends are committed at once, and batches are not decompressed."""
        self.on_returned: Callable[[], None] = _ignore
        """Callback when a disk thread returns the log: the replica must apply changes that it has missed."""

    @property
    def log(self) -> Log:
        if self._log is None:
            raise StorageError(f"{self.name} is offline: {self.offline_reason}")
        return self._log

    @property
    def is_online(self) -> bool:
        return self._log is not None

    def _take_offline(self, reason: str) -> None:
        self.offline_reason = reason
        self._log = None
        self.is_lent = False
        self.allows_fast_path = False

    def _wake_all(self) -> None:
        """Wakes all waiters of the log."""

    def change_log(self, change: Callable[[], None], then: Callable[[Outcome], None]) -> None:
        """Changes the log by a job of its I/O queue, on a thread; the replica is offline until the job has ended.

        `then` is called when the log is online again, but not if the replica has been closed.
        """

        def begin() -> Work | None:
            if not self.is_online:
                return None
            self._take_offline("its log is being truncated")
            self.is_lent = True
            self._wake_all()
            return change

        def end(outcome: Outcome) -> None:
            if self.is_lent:
                self._log, self.is_lent, self.offline_reason = self.held, False, ""
                then(outcome)
                self.on_returned()

        self.log.io.add(begin, end)


def _ignore() -> None:
    """Default callback, which does nothing."""
