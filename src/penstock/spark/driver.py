"""The cluster as Spark's driver asks it: which partitions there are, what they hold, how far a group is.

Spark plans in a process of its own and calls one method after another, so that the event loop runs only while a
question is under way.
"""

import asyncio
import time
from collections.abc import Callable, Collection, Coroutine, Mapping
from typing import Final, TypeVar

from penstock.client.admin import Admin
from penstock.client.cluster import KafkaClient, unknown_topic
from penstock.client.connection import ADVICE
from penstock.client.errors import ConnectionFailed, RequestTimedOut, ServerError
from penstock.client.groups import Groups
from penstock.client.metadata import TopicInfo
from penstock.client.offsets import NONE_FOUND, When, list_offsets
from penstock.foundation.codes import ErrorCode
from penstock.foundation.ids import TopicPartition
from penstock.spark.options import BOOTSTRAP
from penstock.spark.positions import Positions
from penstock.spark.read_options import ReadOptions

T = TypeVar("T")

GONE: Final = frozenset({ErrorCode.UNKNOWN_TOPIC_OR_PARTITION, ErrorCode.UNKNOWN_TOPIC_ID})
Partitions = dict[TopicPartition, bytes]
"""Partitions with the id of their topic."""


class Driver:
    """Asks when it is asked, and keeps its connections in between."""

    def __init__(self, options: ReadOptions) -> None:
        self._options = options
        self._loop: asyncio.AbstractEventLoop | None = None
        self._client: KafkaClient | None = None

    def partitions(self, *, all_there: bool = True) -> Partitions:
        """What is to be read, as it is now. `all_there`: a topic that was named and does not exist is an error."""
        topics = self._ask(lambda client: self._topics(client, all_there))
        wanted = self._options.choice.partitions
        for name in sorted(wanted) if all_there else ():
            topics[name.topic].partition(name.partition)  # says how many there are, if not that one
        return {
            name: topic.topic_id
            for _, topic in sorted(topics.items())
            for name in topic.names
            if not wanted or name in wanted
        }

    async def _topics(self, client: KafkaClient, all_there: bool) -> dict[str, TopicInfo]:
        choice = self._options.choice
        if choice.pattern is not None:
            found = await Admin(client).topics()
            return {topic.name: topic for topic in found if not topic.is_internal and choice.covers(topic.name)}

        async def look() -> None:
            await client.refresh(choice.names)

        try:
            await client.retrying(look)
        except ServerError as error:
            if error.code not in GONE or all_there:
                raise
        topics = client.view.topics
        missing = [topic for topic in choice.names if topic not in topics]
        if missing and all_there:
            raise unknown_topic(missing[0])
        return {topic: topics[topic] for topic in choice.names if topic in topics}

    def earliest(self, names: Collection[TopicPartition]) -> Positions:
        """The first offset that each partition holds; those that were deleted meanwhile are left out."""
        return self._offsets(dict.fromkeys(names, When.EARLIEST))

    def latest(self, names: Collection[TopicPartition]) -> Positions:
        """The offset that comes next in each partition: after the last that may be read, by the isolation level."""
        return self._offsets(dict.fromkeys(names, When.LATEST))

    def at_times(self, times_ms: Mapping[TopicPartition, int]) -> Positions:
        """The first offset of that time or later; partitions that have none are left out."""
        found = self._offsets(times_ms)
        return {name: offset for name, offset in found.items() if offset != NONE_FOUND}

    def _offsets(self, whens: Mapping[TopicPartition, int]) -> Positions:
        return self._ask(lambda client: self._list(client, whens)) if whens else {}

    async def _list(self, client: KafkaClient, whens: Mapping[TopicPartition, int]) -> Positions:
        found: Positions = {}
        for when in set(whens.values()):
            names = [name for name, wanted in whens.items() if wanted == when]
            try:
                listed = await list_offsets(client, names, when, committed=self._options.committed)
            except ServerError as error:
                if error.code not in GONE:
                    raise
                there = await self._topics(client, all_there=False)
                names = [
                    name for name in names if name.topic in there and name.partition in there[name.topic].partitions
                ]
                listed = await list_offsets(client, names, when, committed=self._options.committed)
            found |= {name: entry.offset for name, entry in listed.items()}
        return found

    def commit(self, group: str, positions: Positions, timeout_s: float) -> None:
        """Tell the group how far the query is."""

        async def move(client: KafkaClient) -> None:
            try:
                async with asyncio.timeout(timeout_s):
                    await Groups(client).move(group, positions)
            except TimeoutError:
                raise RequestTimedOut(f"group {group!r} took no offsets within {timeout_s:g} s") from None

        self._ask(move)

    # -- the loop

    def _ask(self, question: Callable[[KafkaClient], Coroutine[None, None, T]]) -> T:
        if self._loop is None:
            self._loop = asyncio.new_event_loop()
        try:
            client = self._client or self._connect(self._loop)
            return self._loop.run_until_complete(question(client))
        except ConnectionFailed as error:
            raise unreachable(error) from None

    def _connect(self, loop: asyncio.AbstractEventLoop) -> KafkaClient:
        client = KafkaClient(self._options.bootstrap, settings=self._options.client)
        for left in reversed(range(self._options.tries)):
            try:
                loop.run_until_complete(client.refresh())
                break
            except ConnectionFailed:
                if not left:
                    raise
                time.sleep(self._options.try_again_s)
        self._client = client
        return client

    def close(self) -> None:
        loop, self._loop = self._loop, None
        client, self._client = self._client, None
        if loop is None:
            return
        if client is not None:
            loop.run_until_complete(client.close())
        loop.close()


def unreachable(error: ConnectionFailed) -> ConnectionFailed:
    """The same, with advice for people who use Spark."""
    advice = f"is a broker running there? See the option {BOOTSTRAP!r}; executors must reach the brokers too"
    return type(error)(f"{str(error).removesuffix(f'; {ADVICE}')}; {advice}")
