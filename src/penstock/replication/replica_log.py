"""The log of a replica: online, offline, or lent to a thread that truncates it."""

from collections.abc import Callable

from penstock.foundation.errors import StorageError
from penstock.foundation.ids import TopicPartition
from penstock.log.io_queue import Outcome, Work
from penstock.log.log import Log


class ReplicaLog:
    """What a Partition is as far as its log goes. `offline_reason` says why there is none."""

    name: TopicPartition

    def __init__(self, log: Log | None) -> None:
        self._log = log
        self.held = log
        """The log, also while it is offline or lent: its files are open until whoever opened it closes it."""
        self.is_lent = False
        """Whether a thread has the log: then the replica is offline for a moment."""
        self.offline_reason = ""
        self.is_express = False
        """Whether appends are committed at once and batches stay closed, so that the express lane may be taken."""
        self.on_returned: Callable[[], None] = _ignore
        """Called when a log that was lent is back: what the replica was told meanwhile, it has to be told again."""

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
        self.is_express = False

    def _wake_all(self) -> None:
        """Tell everyone who waits for the log to look again."""

    def change_log(self, change: Callable[[], None], then: Callable[[Outcome], None]) -> None:
        """Have the log changed by a job of its queue, on a thread that owns it alone: the replica is offline then.

        `then` is called when it is back, and not if the replica went offline for good.
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
    """Nobody listens yet."""
