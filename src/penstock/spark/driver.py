"""The Kafka client of Spark's driver: lists partitions and offsets for planning, and commits group offsets.

Spark calls the planning methods one at a time in a separate process, so the event loop runs only during such a call.
"""

import asyncio
import time
from collections.abc import Callable, Collection, Coroutine, Mapping
from typing import Final, TypeVar

from penstock.client.cluster import KafkaClient, unknown_topic
from penstock.client.connection import ADVICE
from penstock.client.errors import ConnectionFailed, RequestTimedOut, ServerError
from penstock.client.metadata import TopicInfo
from penstock.client.offsets import NONE_FOUND, When, list_offsets
from penstock.foundation.codes import ErrorCode
from penstock.foundation.ids import TopicPartition
from penstock.spark.options import BOOTSTRAP
from penstock.spark.positions import Positions
from penstock.spark.read_options import ReadOptions

T = TypeVar("T")

MISSING_TOPIC_CODES: Final = frozenset({ErrorCode.UNKNOWN_TOPIC_OR_PARTITION, ErrorCode.UNKNOWN_TOPIC_ID})
Partitions = dict[TopicPartition, bytes]
"""The topic id of each topic-partition."""


class DriverClient:
    """A synchronous Kafka client for the driver, whose connections stay open between calls."""

    def __init__(self, options: ReadOptions) -> None:
        self._options = options
        self._loop: asyncio.AbstractEventLoop | None = None
        self._client: KafkaClient | None = None

    def partitions(self, *, require_all: bool = True) -> Partitions:
        """Returns the existing partitions that the options select. If `require_all`, raises if a topic is missing."""
        topics = self._run(lambda client: self._find_topics(client, require_all))
        wanted = self._options.selection.partitions
        for tp in sorted(wanted) if require_all else ():
            topics[tp.topic].partition(tp.partition)  # raises, with the partition count, if it does not exist
        return {
            tp: topic.topic_id
            for _, topic in sorted(topics.items())
            for tp in topic.tps
            if not wanted or tp in wanted
        }

    async def _find_topics(self, client: KafkaClient, require_all: bool) -> dict[str, TopicInfo]:
        selection = self._options.selection
        if selection.pattern is not None:
            from penstock.client.admin import Admin  # imported here: each stream starts a process, which imports this

            found = await Admin(client).topics()
            return {topic.name: topic for topic in found if not topic.is_internal and selection.matches(topic.name)}

        async def refresh() -> None:
            await client.refresh(selection.topic_names)

        try:
            await client.retrying(refresh)
        except ServerError as error:
            if error.code not in MISSING_TOPIC_CODES or require_all:
                raise
        topics = client.view.topics
        missing = [topic for topic in selection.topic_names if topic not in topics]
        if missing and require_all:
            raise unknown_topic(missing[0])
        return {topic: topics[topic] for topic in selection.topic_names if topic in topics}

    def earliest_offsets(self, tps: Collection[TopicPartition]) -> Positions:
        """Returns the log start offset of each partition, leaving out partitions that no longer exist."""
        return self._run_list_offsets(dict.fromkeys(tps, When.EARLIEST))

    def latest_offsets(self, tps: Collection[TopicPartition]) -> Positions:
        """Returns the last stable offset of each partition; for `read_uncommitted`, the high watermark."""
        return self._run_list_offsets(dict.fromkeys(tps, When.LATEST))

    def offsets_for_times(self, times_ms: Mapping[TopicPartition, int]) -> Positions:
        """Returns the offset of the first record at or after a time, by partition; omits partitions without one."""
        found = self._run_list_offsets(times_ms)
        return {tp: offset for tp, offset in found.items() if offset != NONE_FOUND}

    def _run_list_offsets(self, timestamps: Mapping[TopicPartition, int]) -> Positions:
        return self._run(lambda client: self._list_offsets(client, timestamps)) if timestamps else {}

    async def _list_offsets(self, client: KafkaClient, timestamps: Mapping[TopicPartition, int]) -> Positions:
        found: Positions = {}
        for when in set(timestamps.values()):
            tps = [tp for tp, wanted in timestamps.items() if wanted == when]
            try:
                listed = await list_offsets(client, tps, when, committed=self._options.committed)
            except ServerError as error:
                if error.code not in MISSING_TOPIC_CODES:
                    raise
                existing = await self._find_topics(client, require_all=False)
                tps = [tp for tp in tps if tp.topic in existing and tp.partition in existing[tp.topic].partitions]
                listed = await list_offsets(client, tps, when, committed=self._options.committed)
            found |= {tp: entry.offset for tp, entry in listed.items()}
        return found

    def commit_offsets(self, group: str, positions: Positions, timeout_s: float) -> None:
        """Commits offsets to a consumer group. Raises RequestTimedOut after `timeout_s`."""

        async def commit(client: KafkaClient) -> None:
            try:
                async with asyncio.timeout(timeout_s):
                    from penstock.client.groups import Groups  # imported here, as Admin is

                    await Groups(client).commit_offsets(group, positions)
            except TimeoutError:
                raise RequestTimedOut(f"offset commit to group {group!r} timed out after {timeout_s:g} s") from None

        self._run(commit)

    # -- event loop

    def _run(self, work: Callable[[KafkaClient], Coroutine[None, None, T]]) -> T:
        if self._loop is None:
            self._loop = asyncio.new_event_loop()
        try:
            client = self._client or self._connect(self._loop)
            return self._loop.run_until_complete(work(client))
        except ConnectionFailed as error:
            raise with_spark_advice(error) from None

    def _connect(self, loop: asyncio.AbstractEventLoop) -> KafkaClient:
        client = KafkaClient(self._options.bootstrap, settings=self._options.client)
        for left in reversed(range(self._options.connect_tries)):
            try:
                loop.run_until_complete(client.refresh())
                break
            except ConnectionFailed:
                if not left:
                    raise
                time.sleep(self._options.retry_interval_s)
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


def with_spark_advice(error: ConnectionFailed) -> ConnectionFailed:
    """Returns an error of the same type whose message ends with advice for Spark users."""
    advice = f"is a broker running there? See the option {BOOTSTRAP!r}; executors must reach the brokers too"
    return type(error)(f"{str(error).removesuffix(f'; {ADVICE}')}; {advice}")
