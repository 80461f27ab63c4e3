"""Dead letters taken in hand by a driver, so that each is sent back once, whoever dies meanwhile.

A round has a name of its own, which is two things: the holder of the letters that it has claimed, and the query that
they are written back under. So whatever a driver that died has left behind says how to go on with it: its query
is closed, then it is known for good whether its messages were sent; and either the letters are finished, or it is as
if they had never been claimed. See docs/decisions/0030-redrive-claims-what-it-has-examined.md.
"""

import uuid
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from typing import Final, NamedTuple

from penstock.client.admin import Admin
from penstock.client.claims import Claims, QueueFound, Range, State, Survey, find_queue, joined, prepare_group
from penstock.client.cluster import KafkaClient
from penstock.client.commit_set import close_query
from penstock.client.errors import ServerError
from penstock.foundation.codes import ErrorCode
from penstock.foundation.errors import PenstockError
from penstock.spark.pipelines.clusters import ask
from penstock.spark.pipelines.dead_letters import Spans

ROUND: Final = "redrive-"
"""How the names of rounds begin, and so those of holders that are known to be one."""
ONLY_BATCH: Final = 0
"""Of a round's query: it writes once."""
NEVER: Final = 1 << 62


class NoDeadLetters(PenstockError):
    """There is no such queue."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Box:
    """Where dead letters lie: a queue, or a plain topic with a share group that keeps what is done of it."""

    bootstrap: str
    group: str
    topic: str
    topic_id: bytes
    partitions: tuple[int, ...]
    of_queue: bool
    is_fifo: bool = False


class Recovered(NamedTuple):
    """What was left behind by drivers that died, and is set right."""

    finished: int = 0
    """Letters that had been sent back, and are deleted now."""
    returned: int = 0
    """Letters that had been claimed, and are not any more."""
    lost: int = 0
    """Letters that had been sent back, and were received by somebody else in this very moment."""


class Deleted(NamedTuple):
    done: int
    lost: int
    """Letters that were sent back, and that somebody else has received after the claim was over."""


def open_queue(bootstrap: str, name: str) -> Box:
    """The box of a dead-letter queue."""

    async def work(client: KafkaClient) -> Box:
        found = await _queue(client, name)
        topic = await Admin(client).topic(found.topic)
        return Box(
            bootstrap=bootstrap,
            group=name,
            topic=found.topic,
            topic_id=found.topic_id,
            partitions=tuple(sorted(topic.partitions)),
            of_queue=True,
            is_fifo=found.is_fifo,
        )

    return ask(bootstrap, work)


def open_topic(bootstrap: str, name: str, group: str, *, prepare: bool) -> Box:
    """The box of a share group's dead-letter topic; what is done of it, the group knows, which is made if need be."""

    async def work(client: KafkaClient) -> Box:
        topic = await Admin(client).topic(name)
        if prepare:
            await prepare_group(client, group=group, topic_id=topic.topic_id)
        return Box(
            bootstrap=bootstrap,
            group=group,
            topic=name,
            topic_id=topic.topic_id,
            partitions=tuple(sorted(topic.partitions)),
            of_queue=False,
        )

    return ask(bootstrap, work)


async def _queue(client: KafkaClient, name: str) -> QueueFound:
    try:
        return await find_queue(client, name)
    except ServerError as error:
        if error.code != ErrorCode.UNKNOWN_TOPIC_OR_PARTITION:
            raise
        raise NoDeadLetters(f"there is no queue {name!r}; `penstock queue list` shows which there are") from error


def topics_of(bootstrap: str, queues: Iterable[str]) -> dict[str, str]:
    """The topics that queues are on; those that are not there any more are left out."""

    async def work(client: KafkaClient) -> dict[str, str]:
        found = {}
        for name in queues:
            try:
                found[name] = (await find_queue(client, name)).topic
            except ServerError as error:
                if error.code != ErrorCode.UNKNOWN_TOPIC_OR_PARTITION:
                    raise
        return found

    return ask(bootstrap, work)


def existing(bootstrap: str, names: Iterable[str]) -> dict[str, str]:
    """Those topics that are there."""

    async def work(client: KafkaClient) -> dict[str, str]:
        known = {topic.name for topic in await Admin(client).topics()}
        return {name: name for name in names if name in known}

    return ask(bootstrap, work)


def _claims(client: KafkaClient, box: Box) -> Claims:
    return Claims(client, group=box.group, topic=box.topic, topic_id=box.topic_id)


def recover(box: Box, rounds: str = ROUND) -> Recovered:
    """Finish what rounds whose names begin so have left behind; all, if nothing is said.

    A driver that is still at work finds its round closed, has sent nothing, and fails.
    """

    async def work(client: KafkaClient) -> Recovered:
        claims = _claims(client, box)
        was_sent: dict[str, bool] = {}
        finished = returned = lost = 0
        for partition in box.partitions:
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

    return ask(box.bootstrap, work)


def surveys(box: Box) -> dict[int, Survey]:
    """What is not finished, by partition."""

    async def work(client: KafkaClient) -> dict[int, Survey]:
        claims = _claims(client, box)
        return {partition: await claims.survey(partition) for partition in box.partitions}

    return ask(box.bootstrap, work)


def spans_of(survey: Survey) -> Spans:
    """A survey as tasks know it."""
    delivery_ranges = survey.delivery_ranges
    return Spans(
        firsts=[delivery_range.first for delivery_range in delivery_ranges],
        lasts=[delivery_range.last for delivery_range in delivery_ranges],
        counts=[delivery_range.count for delivery_range in delivery_ranges],
        are_free=[delivery_range.state is State.AVAILABLE for delivery_range in delivery_ranges],
        waits_from=survey.looked_to,
    )


class Round:
    """Some letters, claimed, sent back and deleted together."""

    def __init__(self, box: Box, hold_s: float) -> None:
        self.name: Final = f"{ROUND}{uuid.uuid4()}"
        self._box = box
        self._hold_ms = round(hold_s * 1000)
        self.taken: dict[int, list[Range]] = {}
        self._has_claimed = False

    @property
    def count(self) -> int:
        return sum(last - first + 1 for ranges in self.taken.values() for first, last in ranges)

    @property
    def spans(self) -> dict[int, Spans]:
        """What was taken, as tasks know it."""
        return {
            partition: Spans(
                firsts=[first for first, _ in ranges],
                lasts=[last for _, last in ranges],
                counts=[0] * len(ranges),
                are_free=[True] * len(ranges),
                waits_from=NEVER,
            )
            for partition, ranges in self.taken.items()
        }

    def claim(self, wanted: Mapping[int, Iterable[int]]) -> None:
        """Take letters in hand, as far as nobody else has them by now."""

        async def work(client: KafkaClient) -> None:
            claims = _claims(client, self._box)
            for partition, offsets in wanted.items():
                ranges = joined((offset, offset) for offset in offsets)
                taken = await claims.claim(partition, self.name, ranges, self._hold_ms)
                if taken:
                    self.taken[partition] = taken

        ask(self._box.bootstrap, work)
        self._has_claimed = True

    def close(self) -> Deleted | None:
        """Delete what was sent back. None: nothing was sent, nor will be; it is as if nothing had been claimed.

        A round stays closed, for tasks of it may be at work still.
        """

        async def work(client: KafkaClient) -> Deleted | None:
            if await close_query(client, query=self.name) != ONLY_BATCH:
                return None
            claims = _claims(client, self._box)
            settled = [await claims.finish(partition, self.name, ranges) for partition, ranges in self.taken.items()]
            lost = sum(last - first + 1 for each in settled for first, last in each.lost)
            return Deleted(sum(each.done for each in settled), lost)

        if self._is_done_with:
            return Deleted(0, 0)
        deleted = ask(self._box.bootstrap, work)
        if deleted is None:
            recover(self._box, self.name)
        return deleted

    @property
    def _is_done_with(self) -> bool:
        """Whether all was asked for, and there was nothing to be had."""
        return self._has_claimed and not self.taken
