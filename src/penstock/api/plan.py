"""What subscribe() and exactly_once() were asked for: checked once, then opened, by a thread or for a task."""

import os
from collections.abc import Callable, Iterable
from dataclasses import dataclass
from functools import partial
from typing import Final
from uuid import uuid4

from penstock.api.commits import Commits, CommitsAfter, CommitsBefore, NoCommits
from penstock.api.errors import InvalidArgument
from penstock.api.exactly_once import CommitsWithin
from penstock.api.feed import Feed
from penstock.api.handled import HandledStore, IdempotentBy, handling
from penstock.api.intake import Intake, Reading
from penstock.api.lookup import From, Topics, Wanted, start_of
from penstock.api.progress import Progress
from penstock.api.resources import Resources
from penstock.api.settings import Delivery, Settings, check_positive, delivery_of
from penstock.api.wish import Wish, tags_of
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
    wish: Wish
    delivery: Delivery
    commit_every_s: float
    idempotent_by: IdempotentBy | None
    store: Store | None

    def open(self, resources: Resources) -> Feed:
        resources.check_open()
        settings, lookup, clock = resources.settings, resources.lookup, resources.clock
        progress = Progress()
        handled = handling(self.idempotent_by, self.store, self.reading.group)
        feed = Feed(settings, self.wish, progress, handled, clock)

        try:
            intake = Intake(settings, lookup, self.reading, feed, clock)
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


def subscribe_plan(
    settings: Settings,
    topics: Topics,
    *,
    group: str | None,
    delivery: str | None,
    from_: From,
    tags: str | Iterable[str] | None,
    limit: int | None,
    idle_timeout_s: float | None,
    max_in_flight: int,
    prefetch: int,
    processing_timeout_s: float,
    commit_every_s: float,
    idempotent_by: IdempotentBy | None,
    store: Store | None,
) -> SubscribePlan:
    promised = delivery_of(delivery, settings, Delivery.AT_LEAST_ONCE)
    if promised is Delivery.EXACTLY_ONCE and idempotent_by is None:
        raise InvalidArgument(
            "subscribe() cannot promise exactly-once for what the loop does elsewhere: a crash may come between that "
            "and the commit. For results that are published, use mq.process() or mq.exactly_once(); for effects "
            "elsewhere, give idempotent_by=, which passes over messages that were handled; or say "
            "delivery='at-least-once'"
        )
    check_positive("commit_every_s", commit_every_s)
    return SubscribePlan(
        reading=_reading(topics, group, from_, prefetch, processing_timeout_s, idle_timeout_s),
        wish=Wish(tags=tags_of(tags), limit=limit, idle_timeout_s=idle_timeout_s, max_in_flight=max_in_flight),
        delivery=promised,
        commit_every_s=commit_every_s,
        idempotent_by=idempotent_by,
        store=store,
    )


@dataclass(frozen=True, slots=True, kw_only=True)
class ExactlyOncePlan:
    """A loop to be that reads, transforms and publishes."""

    reading: Reading
    wish: Wish
    transactional_id: str
    transaction_timeout_s: float
    batch: int
    batch_s: float

    def open(self, resources: Resources) -> "Pipe":
        resources.check_open()
        settings, lookup, clock = resources.settings, resources.lookup, resources.clock
        writer = resources.writers.borrow(self.transactional_id, self.transaction_timeout_s)
        try:
            progress = Progress()
            feed = Feed(settings, self.wish, progress, None, clock)
            intake = Intake(settings, lookup, self.reading, feed, clock)
            commits = CommitsWithin(
                writer, intake.group_metadata, progress, batch=self.batch, batch_s=self.batch_s, clock=clock
            )
            feed.begin(intake, commits)
        except BaseException:
            resources.writers.give_back(writer, self.transaction_timeout_s)
            raise
        return Pipe(
            feed=feed,
            commits=commits,
            give_back=partial(resources.writers.give_back, writer, self.transaction_timeout_s),
        )


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


def exactly_once_plan(
    topics: Topics,
    *,
    group: str,
    from_: From,
    tags: str | Iterable[str] | None,
    limit: int | None,
    idle_timeout_s: float | None,
    batch: int,
    batch_s: float,
    transactional_id: str | None,
    transaction_timeout_s: float,
    processing_timeout_s: float,
) -> ExactlyOncePlan:
    if not group:
        raise InvalidArgument("exactly_once() needs group=: its offsets are what is committed with the messages")
    check_positive("batch", batch)
    check_positive("batch_s", batch_s)
    check_positive("transaction_timeout_s", transaction_timeout_s)
    if batch_s >= transaction_timeout_s:
        raise InvalidArgument(
            f"batch_s={batch_s:g} is not less than transaction_timeout_s={transaction_timeout_s:g}: "
            "every transaction would be too late"
        )
    return ExactlyOncePlan(
        reading=_reading(topics, group, from_, min(batch, PREFETCH), processing_timeout_s, idle_timeout_s),
        wish=Wish(tags=tags_of(tags), limit=limit, idle_timeout_s=idle_timeout_s),
        # Offsets are fenced by the group (KIP-447), so that the id need not be known beforehand.
        transactional_id=transactional_id or f"{group}-{uuid4()}",
        transaction_timeout_s=transaction_timeout_s,
        batch=batch,
        batch_s=batch_s,
    )


def _reading(
    topics: Topics,
    group: str | None,
    from_: From,
    prefetch: int,
    processing_timeout_s: float,
    idle_timeout_s: float | None,
) -> Reading:
    if group == "":
        raise InvalidArgument("group='' is no name; give one, or None to read alone")
    check_positive("prefetch", prefetch)
    check_positive("processing_timeout_s", processing_timeout_s)
    return Reading(
        wanted=Wanted(topics),
        group=group,
        start=start_of(from_),
        prefetch=prefetch,
        processing_timeout_s=processing_timeout_s,
        is_end_told=idle_timeout_s is not None,
    )
