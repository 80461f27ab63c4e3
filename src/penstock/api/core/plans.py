"""Checked arguments of subscribe() and exactly_once(), as plans whose `open` method opens the subscription."""

import os
from dataclasses import dataclass
from functools import partial
from typing import Final, get_args
from uuid import uuid4

from penstock.api.core.cluster_lookup import From, Missing, Topics, TopicSelection, start_of
from penstock.api.core.commits import AtLeastOnceCommits, AtMostOnceCommits, CommitPolicy
from penstock.api.core.exactly_once import TransactionalCommits
from penstock.api.core.handled import HandledStore, IdempotentBy, create_handled_filter
from penstock.api.core.loop_options import LoopOptions
from penstock.api.core.message_buffer import MessageBuffer
from penstock.api.core.position_tracker import PositionTracker
from penstock.api.core.resources import Resources
from penstock.api.core.settings import Delivery, check_positive
from penstock.api.core.subscription_consumer import ReadOptions, SubscriptionConsumer
from penstock.api.core.views import check_where, with_views
from penstock.api.errors import InvalidArgument
from penstock.foundation.clock import Clock

COMMIT_EVERY_S: Final = 1.0
PREFETCH: Final = 500
BATCH: Final = 500
BATCH_S: Final = 0.5

Store = HandledStore | str | os.PathLike[str]


@dataclass(frozen=True, slots=True, kw_only=True)
class SubscribePlan:
    """The checked arguments of subscribe()."""

    read_options: ReadOptions
    loop_options: LoopOptions
    delivery: Delivery
    commit_every_s: float
    idempotent_by: IdempotentBy | None
    store: Store | None
    where: str | None = None

    def __post_init__(self) -> None:
        check_where(self.where, self.read_options)
        if self.read_options.group == "":
            raise InvalidArgument("group='' is not a name; give one, or None to read without a group")
        if self.delivery is Delivery.EXACTLY_ONCE and self.idempotent_by is None:
            raise InvalidArgument(
                "subscribe() cannot guarantee exactly-once for side effects of the loop: a crash may come between "
                "them and the commit. To publish results, use mq.process() or mq.exactly_once(); for other side "
                "effects, give idempotent_by=, which skips messages that were handled; or use "
                "delivery='at-least-once'"
            )
        check_positive("commit_every_s", self.commit_every_s)

    def open(self, resources: Resources) -> MessageBuffer[CommitPolicy]:
        resources.check_open()
        settings, lookup, clock = resources.settings, resources.lookup, resources.clock
        tracker = PositionTracker()
        read_options = self.read_options if self.where is None else with_views(self.read_options, self.where, lookup)
        handled = create_handled_filter(self.idempotent_by, self.store, self.read_options.group)
        buffer = MessageBuffer[CommitPolicy](settings, self.loop_options, tracker, handled, clock)
        try:
            consumer = SubscriptionConsumer(settings, lookup, read_options, buffer, clock)
        except BaseException:
            if handled is not None:
                handled.close()
            raise
        buffer.begin(consumer, self._commits(consumer, tracker, clock))
        return buffer

    def _commits(self, consumer: SubscriptionConsumer, tracker: PositionTracker, clock: Clock) -> CommitPolicy:
        if self.read_options.group is None:
            return CommitPolicy()
        if self.delivery is Delivery.AT_MOST_ONCE:
            return AtMostOnceCommits(consumer)
        return AtLeastOnceCommits(consumer, tracker, self.commit_every_s, clock)


@dataclass(frozen=True, slots=True, kw_only=True)
class ExactlyOncePlan:
    """The checked arguments of exactly_once()."""

    read_options: ReadOptions
    loop_options: LoopOptions
    transactional_id: str
    transaction_timeout_s: float
    batch: int
    batch_s: float

    def __post_init__(self) -> None:
        if not self.read_options.group:
            raise InvalidArgument("exactly_once() needs group=: its offsets are committed with the messages")
        check_positive("batch", self.batch)
        check_positive("batch_s", self.batch_s)
        check_positive("transaction_timeout_s", self.transaction_timeout_s)
        if self.batch_s >= self.transaction_timeout_s:
            raise InvalidArgument(
                f"batch_s={self.batch_s:g} is not less than transaction_timeout_s={self.transaction_timeout_s:g}: "
                "every transaction would time out"
            )

    def open(self, resources: Resources) -> MessageBuffer[TransactionalCommits]:
        resources.check_open()
        settings, lookup, clock = resources.settings, resources.lookup, resources.clock
        pool = resources.transactional_producers
        producer = pool.acquire(self.transactional_id, self.transaction_timeout_s)
        try:
            tracker = PositionTracker()
            buffer = MessageBuffer[TransactionalCommits](settings, self.loop_options, tracker, None, clock)
            consumer = SubscriptionConsumer(settings, lookup, self.read_options, buffer, clock)
            commits = TransactionalCommits(
                producer, consumer.group_metadata, tracker, batch=self.batch, batch_s=self.batch_s, clock=clock
            )
        except BaseException:
            pool.release(producer)
            raise
        buffer.begin(consumer, commits, on_close=partial(pool.release, producer))
        return buffer


def transactional_id_of(transactional_id: str | None, group: str) -> str:
    # Offset commits are fenced by the group (KIP-447), so a random id is sufficient.
    return transactional_id or f"{group}-{uuid4()}"


def parse_options(
    topics: Topics,
    group: str | None,
    from_: From,
    prefetch: int,
    processing_timeout_s: float,
    idle_timeout_s: float | None,
    missing: Missing,
) -> ReadOptions:
    check_positive("prefetch", prefetch)
    if missing not in get_args(Missing):
        known = ", ".join(map(repr, get_args(Missing)))
        raise InvalidArgument(f"missing={missing!r} is unknown; give one of {known}")
    check_positive("processing_timeout_s", processing_timeout_s)
    return ReadOptions(
        selection=TopicSelection(topics),
        group=group,
        start=start_of(from_),
        prefetch=prefetch,
        processing_timeout_s=processing_timeout_s,
        reports_end=idle_timeout_s is not None,
        missing=missing,
    )
