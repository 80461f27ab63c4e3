"""When offsets are committed: after the work, before it, or never. (Within a transaction: see exactly_once.py.)"""

import logging
from collections.abc import Collection
from typing import Final, Protocol

from penstock.api.core.message import Message
from penstock.api.core.progress import Offsets, Progress
from penstock.api.errors import ApiError, InvalidArgument
from penstock.foundation.clock import Clock
from penstock.foundation.ids import TopicPartition

NEVER_S: Final = float("inf")

log = logging.getLogger("penstock.api")


class Committer(Protocol):
    """What an Intake does for us."""

    def commit(self, offsets: Offsets) -> None: ...

    def commit_now(self, offsets: Offsets) -> dict[TopicPartition, ApiError]: ...


class Commits(Protocol):
    """Decides when to commit. What it returns as messages was not committed, and is to be handed over again."""

    def clear(self, arrived: Collection[Message]) -> bool:
        """These have arrived: may they be handed over?"""

    def handed(self, message: Message | None) -> None:
        """A message is in somebody's hands now; None: one was passed over."""

    def wait_s(self) -> float:
        """How long until there is something to do."""

    def work(self) -> list[Message]:
        """Do what is due."""

    def retry(self, message: Message) -> bool:
        """Whether this message will be handed over again by what `work` returns."""

    def revoked(self, places: Collection[TopicPartition], unread: Offsets) -> list[Message]:
        """These partitions go now. `unread`: from where on their messages have not been handed over."""

    def lost(self, places: Collection[TopicPartition]) -> list[Message]:
        """These partitions are gone."""

    def conclude(self) -> list[Message]:
        """Everything is finished: commit it, and wait for that."""

    def close(self, unread: Offsets) -> None:
        """It ends here, whatever is finished and whatever is not."""


class NoCommits:
    """Nobody asks how far we have come."""

    def clear(self, arrived: Collection[Message]) -> bool:
        return True

    def handed(self, message: Message | None) -> None:
        pass

    def wait_s(self) -> float:
        return NEVER_S

    def work(self) -> list[Message]:
        return []

    def retry(self, message: Message) -> bool:
        return False

    def revoked(self, places: Collection[TopicPartition], unread: Offsets) -> list[Message]:
        return []

    def lost(self, places: Collection[TopicPartition]) -> list[Message]:
        return []

    def conclude(self) -> list[Message]:
        return []

    def close(self, unread: Offsets) -> None:
        pass


class CommitsAfter(NoCommits):
    """At least once: what is finished is committed every so often, and when partitions go."""

    def __init__(self, committer: Committer, progress: Progress, every_s: float, clock: Clock) -> None:
        self._committer = committer
        self._progress = progress
        self._every_s = every_s
        self._clock = clock
        self._next_s = NEVER_S

    def handed(self, message: Message | None) -> None:
        if self._next_s == NEVER_S:
            self._next_s = self._clock.monotonic_s() + self._every_s

    def wait_s(self) -> float:
        return max(0.0, self._next_s - self._clock.monotonic_s())

    def work(self) -> list[Message]:
        if self.wait_s() == 0:
            with self._progress.lock:
                offsets = self._progress.due()
                self._progress.ask(offsets)
            if offsets:
                self._committer.commit(offsets)
            # Even if nothing is handed over meanwhile: something may be finished by then, or a commit have failed.
            self._next_s = self._clock.monotonic_s() + self._every_s
        return []

    def revoked(self, places: Collection[TopicPartition], unread: Offsets) -> list[Message]:
        self._commit_now(places)
        return []

    def conclude(self) -> list[Message]:
        self._commit_now(None)
        return []

    def close(self, unread: Offsets) -> None:
        self.conclude()

    def _commit_now(self, places: Collection[TopicPartition] | None) -> None:
        with self._progress.lock:
            offsets = self._progress.due(places, even_if_asked=True)
            self._progress.ask(offsets)
        if not offsets:
            return
        failed = self._committer.commit_now(offsets)
        with self._progress.lock:
            for place, offset in offsets.items():
                self._progress.settle(place, offset, place not in failed)
        for place, error in failed.items():
            log.warning("commit_failed partition=%s hint='messages come again' reason=%r", place, str(error))


class CommitsBefore(NoCommits):
    """At most once: what has arrived is committed, and only then handed over."""

    def __init__(self, committer: Committer) -> None:
        self._committer = committer

    def clear(self, arrived: Collection[Message]) -> bool:
        ends = {TopicPartition(message.topic, message.partition): message.offset + 1 for message in arrived}
        failed = self._committer.commit_now(ends)
        for place, error in failed.items():
            log.warning("commit_failed partition=%s hint='is tried again' reason=%r", place, str(error))
        return not failed

    def retry(self, message: Message) -> bool:
        raise InvalidArgument(
            "at most once, a message is committed before it is handed over, and cannot come again; "
            "subscribe with delivery='at-least-once' to use retry()"
        )

    def revoked(self, places: Collection[TopicPartition], unread: Offsets) -> list[Message]:
        self._give_back({place: offset for place, offset in unread.items() if place in places})
        return []

    def close(self, unread: Offsets) -> None:
        self._give_back(unread)

    def _give_back(self, unread: Offsets) -> None:
        """What nobody has seen was committed too early: whoever comes next shall see it."""
        if unread:
            failed = self._committer.commit_now(unread)
            for place, error in failed.items():
                log.warning(
                    "messages_dropped partition=%s from_offset=%d reason=%r", place, unread[place], str(error)
                )
