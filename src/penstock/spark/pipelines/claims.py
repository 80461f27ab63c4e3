"""Claims dead letters for a redrive (acquires them by offset), so that each is sent back exactly once.

This holds even if the driver dies. Each redrive round claims messages under a unique name, and sends them in one
transactional write with this name as query id. If the driver dies, the next one finds the name in the claims and
fences the write. If it was committed, the messages are deleted, else released. See
docs/decisions/0030-redrive-claims-what-it-has-examined.md.
"""

import uuid
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from typing import Final, NamedTuple

from penstock.client.admin import Admin
from penstock.client.claims import (
    Claims,
    QueueLocation,
    Range,
    State,
    Survey,
    find_queue,
    merge_ranges,
    prepare_group,
)
from penstock.client.cluster import KafkaClient
from penstock.client.commit_set import close_query
from penstock.client.errors import ServerError
from penstock.foundation.codes import ErrorCode
from penstock.foundation.errors import PenstockError
from penstock.spark.pipelines.brokers import Brokers
from penstock.spark.pipelines.clusters import run_with_client
from penstock.spark.pipelines.dead_letters import OpenRanges

ROUND_PREFIX: Final = "redrive-"
"""Prefix of the names under which redrives claim dead letters; each round (transaction) has its own name."""
ONLY_BATCH: Final = 0
"""The batch id under which a redrive round writes its messages: each round writes only one batch."""
NEVER: Final = 1 << 62


class NoDeadLetters(PenstockError):
    """The dead-letter queue or topic does not exist."""


@dataclass(frozen=True, slots=True, kw_only=True)
class DeadLetters:
    """A dead-letter queue, or a dead-letter topic with the share group that tracks finished dead letters."""

    bootstrap: Brokers
    group: str
    topic: str
    topic_id: bytes
    partitions: tuple[int, ...]
    of_queue: bool
    is_fifo: bool = False


class Recovered(NamedTuple):
    """Result of `recover`: numbers of dead letters that interrupted redrives had claimed (acquired), by what became
    of them."""

    finished: int = 0
    """Number of dead letters that had been sent back, and that recovery has deleted."""
    returned: int = 0
    """Number of dead letters that had been claimed but not sent back, and that recovery has released."""
    lost: int = 0
    """Number of dead letters that had been sent back, but could not be deleted: another consumer received them."""


class Deleted(NamedTuple):
    done: int
    lost: int
    """Number of dead letters sent back but not deleted: another consumer received them after the claim expired."""


def open_queue(bootstrap: Brokers, name: str) -> DeadLetters:
    """Opens a dead-letter queue. Raises NoDeadLetters if it does not exist."""

    async def work(client: KafkaClient) -> DeadLetters:
        found = await _queue(client, name)
        topic = await Admin(client).topic(found.topic)
        return DeadLetters(
            bootstrap=bootstrap,
            group=name,
            topic=found.topic,
            topic_id=found.topic_id,
            partitions=tuple(sorted(topic.partitions)),
            of_queue=True,
            is_fifo=found.is_fifo,
        )

    return run_with_client(bootstrap, work)


def open_topic(bootstrap: Brokers, name: str, group: str, *, prepare: bool) -> DeadLetters:
    """Opens a dead-letter topic. If `prepare`, creates the share group that tracks finished dead letters."""

    async def work(client: KafkaClient) -> DeadLetters:
        topic = await Admin(client).topic(name)
        if prepare:
            await prepare_group(client, group=group, topic_id=topic.topic_id)
        return DeadLetters(
            bootstrap=bootstrap,
            group=group,
            topic=name,
            topic_id=topic.topic_id,
            partitions=tuple(sorted(topic.partitions)),
            of_queue=False,
        )

    return run_with_client(bootstrap, work)


async def _queue(client: KafkaClient, name: str) -> QueueLocation:
    try:
        return await find_queue(client, name)
    except ServerError as error:
        if error.code != ErrorCode.UNKNOWN_TOPIC_OR_PARTITION:
            raise
        raise NoDeadLetters(f"there is no queue {name!r}; see `penstock queue list`") from error


def find_queue_topics(bootstrap: Brokers, queues: Iterable[str]) -> dict[str, str]:
    """Returns the topic that stores each queue's messages, by queue name. Omits queues that do not exist."""

    async def work(client: KafkaClient) -> dict[str, str]:
        found = {}
        for name in queues:
            try:
                found[name] = (await find_queue(client, name)).topic
            except ServerError as error:
                if error.code != ErrorCode.UNKNOWN_TOPIC_OR_PARTITION:
                    raise
        return found

    return run_with_client(bootstrap, work)


def find_topics(bootstrap: Brokers, names: Iterable[str]) -> dict[str, str]:
    """Returns a mapping of each existing topic to itself: the counterpart of `find_queue_topics` for topics."""

    async def work(client: KafkaClient) -> dict[str, str]:
        known = {topic.name for topic in await Admin(client).topics()}
        return {name: name for name in names if name in known}

    return run_with_client(bootstrap, work)


def _claims(client: KafkaClient, dlq: DeadLetters) -> Claims:
    return Claims(client, group=dlq.group, topic=dlq.topic, topic_id=dlq.topic_id)


def recover(dlq: DeadLetters, rounds: str = ROUND_PREFIX) -> Recovered:
    """Ends the claims of rounds (transactions of a redrive) whose name begins with `rounds`: deletes messages that
    were sent, releases others. Closes each round first, so that a driver that still runs it cannot send."""

    async def work(client: KafkaClient) -> Recovered:
        claims = _claims(client, dlq)
        was_sent: dict[str, bool] = {}
        finished = returned = lost = 0
        for partition in dlq.partitions:
            left: dict[str, list[Range]] = {}
            for delivery_range in (await claims.survey(partition)).delivery_ranges:
                if delivery_range.holder.startswith(rounds) and delivery_range.state is not State.MOVING:
                    left.setdefault(delivery_range.holder, []).append((delivery_range.first, delivery_range.last))
            for holder, ranges in left.items():
                if holder not in was_sent:
                    was_sent[holder] = await close_query(client, query=holder) == ONLY_BATCH
                if was_sent[holder]:
                    settled = await claims.finish(partition, holder, ranges)
                    finished += settled.done
                    lost += sum(last - first + 1 for first, last in settled.lost)
                else:
                    returned += (await claims.undo(partition, holder, ranges)).done
        return Recovered(finished, returned, lost)

    return run_with_client(dlq.bootstrap, work)


def surveys(dlq: DeadLetters) -> dict[int, Survey]:
    """Returns a survey for each partition: the unfinished messages (in flight or not), as offset ranges with delivery
    counts."""

    async def work(client: KafkaClient) -> dict[int, Survey]:
        claims = _claims(client, dlq)
        return {partition: await claims.survey(partition) for partition in dlq.partitions}

    return run_with_client(dlq.bootstrap, work)


def open_ranges(survey: Survey) -> OpenRanges:
    """Converts the survey of a partition to OpenRanges, the form in which Spark tasks look up whether an offset is
    unfinished."""
    delivery_ranges = survey.delivery_ranges
    return OpenRanges(
        firsts=[delivery_range.first for delivery_range in delivery_ranges],
        lasts=[delivery_range.last for delivery_range in delivery_ranges],
        counts=[delivery_range.count for delivery_range in delivery_ranges],
        are_available=[delivery_range.state is State.AVAILABLE for delivery_range in delivery_ranges],
        undelivered_from=survey.undelivered_from,
    )


class Round:
    """One round of a redrive: dead letters that are claimed, sent back and deleted together."""

    def __init__(self, dlq: DeadLetters, hold_s: float) -> None:
        self.name: Final = f"{ROUND_PREFIX}{uuid.uuid4()}"
        self._box = dlq
        self._hold_ms = round(hold_s * 1000)
        self.taken: dict[int, list[Range]] = {}
        self._has_claimed = False

    @property
    def count(self) -> int:
        return sum(last - first + 1 for ranges in self.taken.values() for first, last in ranges)

    @property
    def spans(self) -> dict[int, OpenRanges]:
        return {
            partition: OpenRanges(
                firsts=[first for first, _ in ranges],
                lasts=[last for _, last in ranges],
                counts=[0] * len(ranges),
                are_available=[True] * len(ranges),
                undelivered_from=NEVER,
            )
            for partition, ranges in self.taken.items()
        }

    def claim(self, wanted: Mapping[int, Iterable[int]]) -> None:
        """Claims (acquires) the messages in `wanted`, offsets by partition; skips messages that are not available any
        more."""

        async def work(client: KafkaClient) -> None:
            claims = _claims(client, self._box)
            for partition, offsets in wanted.items():
                ranges = merge_ranges((offset, offset) for offset in offsets)
                taken = await claims.claim(partition, self.name, ranges, self._hold_ms)
                if taken:
                    self.taken[partition] = taken

        run_with_client(self._box.bootstrap, work)
        self._has_claimed = True

    def close(self) -> Deleted | None:
        """Deletes the round's messages and returns counts, if they were sent; else releases them and returns None.
        No Spark task can write for a closed round, even if the task still runs."""

        async def work(client: KafkaClient) -> Deleted | None:
            if await close_query(client, query=self.name) != ONLY_BATCH:
                return None
            claims = _claims(client, self._box)
            settled = [await claims.finish(partition, self.name, ranges) for partition, ranges in self.taken.items()]
            lost = sum(last - first + 1 for each in settled for first, last in each.lost)
            return Deleted(sum(each.done for each in settled), lost)

        if self._claimed_nothing:
            return Deleted(0, 0)
        deleted = run_with_client(self._box.bootstrap, work)
        if deleted is None:
            recover(self._box, self.name)
        return deleted

    @property
    def _claimed_nothing(self) -> bool:
        """Whether `claim` was called, but none of the wanted messages was still available."""
        return self._has_claimed and not self.taken
