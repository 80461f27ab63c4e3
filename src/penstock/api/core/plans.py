"""What subscribe() and exactly_once() were asked for: checked once, then opened, by a thread or for a task."""

import os
from collections.abc import Callable
from dataclasses import dataclass
from functools import partial
from typing import Final, get_args
from uuid import uuid4

from penstock.api.core.cluster_lookup import From, Missing, Topics, Wanted, start_of
from penstock.api.core.commits import Commits, CommitsAfter, CommitsBefore, NoCommits
from penstock.api.core.exactly_once import CommitsWithin
from penstock.api.core.feed import Feed
from penstock.api.core.handled import HandledStore, IdempotentBy, handling
from penstock.api.core.intake import Intake, Reading
from penstock.api.core.loop_options import LoopOptions
from penstock.api.core.progress import Progress
from penstock.api.core.resources import Resources
from penstock.api.core.settings import Delivery, check_positive
from penstock.api.core.views import check_where, through_views
from penstock.api.errors import InvalidArgument
from penstock.foundation.clock import Clock

COMMIT_EVERY_S: Final = 1.0
PREFETCH: Final = 500
BATCH: Final = 500
BATCH_S: Final = 0.5

Store = HandledStore | str | os.PathLike[str]


@dataclass(frozen=True, slots=True, kw_only=True)
class SubscribePlan:
    """A subscription to be."""

    reading: Reading
    loop_options: LoopOptions
    delivery: Delivery
    commit_every_s: float
    idempotent_by: IdempotentBy | None
    store: Store | None
    where: str | None = None

    def __post_init__(self) -> None:
        check_where(self.where, self.reading)
        if self.reading.group == "":
            raise InvalidArgument("group='' is no name; give one, or None to read alone")
        if self.delivery is Delivery.EXACTLY_ONCE and self.idempotent_by is None:
            raise InvalidArgument(
                "subscribe() cannot promise exactly-once for what the loop does elsewhere: a crash may come between "
                "that and the commit. For results that are published, use mq.process() or mq.exactly_once(); for "
                "effects elsewhere, give idempotent_by=, which passes over messages that were handled; or say "
                "delivery='at-least-once'"
            )
        check_positive("commit_every_s", self.commit_every_s)

    def open(self, resources: Resources) -> Feed:
        resources.check_open()
        settings, lookup, clock = resources.settings, resources.lookup, resources.clock
        progress = Progress()
        reading = self.reading if self.where is None else through_views(self.reading, self.where, lookup)
        handled = handling(self.idempotent_by, self.store, self.reading.group)
        feed = Feed(settings, self.loop_options, progress, handled, clock)
        try:
            intake = Intake(settings, lookup, reading, feed, clock)
        except BaseException:
            if handled is not None:
                handled.close()
            raise
        feed.begin(intake, self._commits(intake, progress, clock))
        return feed

    def _commits(self, intake: Intake, progress: Progress, clock: Clock) -> Commits:
        if self.reading.group is None:
            return NoCommits()
        if self.delivery is Delivery.AT_MOST_ONCE:
            return CommitsBefore(intake)
        return CommitsAfter(intake, progress, self.commit_every_s, clock)


@dataclass(frozen=True, slots=True, kw_only=True)
class ExactlyOncePlan:
    """A loop to be that reads, transforms and publishes."""

    reading: Reading
    loop_options: LoopOptions
    transactional_id: str
    transaction_timeout_s: float
    batch: int
    batch_s: float

    def __post_init__(self) -> None:
        if not self.reading.group:
            raise InvalidArgument("exactly_once() needs group=: its offsets are what is committed with the messages")
        check_positive("batch", self.batch)
        check_positive("batch_s", self.batch_s)
        check_positive("transaction_timeout_s", self.transaction_timeout_s)
        if self.batch_s >= self.transaction_timeout_s:
            raise InvalidArgument(
                f"batch_s={self.batch_s:g} is not less than transaction_timeout_s={self.transaction_timeout_s:g}: "
                "every transaction would be too late"
            )

    def open(self, resources: Resources) -> "Pipe":
        resources.check_open()
        settings, lookup, clock = resources.settings, resources.lookup, resources.clock
        writer = resources.writers.borrow(self.transactional_id, self.transaction_timeout_s)
        try:
            progress = Progress()
            feed = Feed(settings, self.loop_options, progress, None, clock)
            intake = Intake(settings, lookup, self.reading, feed, clock)
            commits = CommitsWithin(
                writer, intake.group_metadata, progress, batch=self.batch, batch_s=self.batch_s, clock=clock
            )
            feed.begin(intake, commits)
        except BaseException:
            resources.writers.give_back(writer)
            raise
        return Pipe(feed=feed, commits=commits, give_back=partial(resources.writers.give_back, writer))


@dataclass(frozen=True, slots=True, kw_only=True)
class Pipe:
    """Both ends of a loop that reads, transforms and publishes."""

    feed: Feed
    commits: CommitsWithin
    give_back: Callable[[], None]

    def close(self) -> None:
        try:
            self.feed.close()
        finally:
            self.give_back()


def transactional_id_of(transactional_id: str | None, group: str) -> str:
    # Offsets are fenced by the group (KIP-447), so that the id need not be known beforehand.
    return transactional_id or f"{group}-{uuid4()}"


def reading_of(
    topics: Topics,
    group: str | None,
    from_: From,
    prefetch: int,
    processing_timeout_s: float,
    idle_timeout_s: float | None,
    missing: Missing,
) -> Reading:
    check_positive("prefetch", prefetch)
    if missing not in get_args(Missing):
        known = ", ".join(map(repr, get_args(Missing)))
        raise InvalidArgument(f"missing={missing!r} is not known; give one of {known}")
    check_positive("processing_timeout_s", processing_timeout_s)
    return Reading(
        wanted=Wanted(topics),
        group=group,
        start=start_of(from_),
        prefetch=prefetch,
        processing_timeout_s=processing_timeout_s,
        is_end_told=idle_timeout_s is not None,
        missing=missing,
    )
