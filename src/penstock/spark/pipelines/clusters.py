"""Requests of pipelines to Kafka clusters: topics, offset ranges, trimming, and checks before Spark starts."""

import asyncio
from collections.abc import Awaitable, Callable, Iterable, Mapping
from random import Random
from typing import TypeVar

from penstock.client.admin import Admin, ConfigSource
from penstock.client.cluster import KafkaClient
from penstock.client.errors import ServerError
from penstock.client.groups import Groups
from penstock.client.metadata import TopicInfo
from penstock.client.offsets import LogRange, log_ranges
from penstock.foundation.codes import ErrorCode
from penstock.foundation.errors import PenstockError
from penstock.foundation.ids import TopicPartition
from penstock.spark.pipelines.brokers import Brokers
from penstock.spark.pipelines.document import PipelineInvalid, Problem, suggest
from penstock.spark.pipelines.pipeline import Need
from penstock.spark.read_options import TopicSelection

T = TypeVar("T")


def run_with_client(bootstrap: Brokers, work: Callable[[KafkaClient], Awaitable[T]]) -> T:
    """Runs `work` with a new, connected client on a new event loop, and returns its result."""

    async def connected() -> T:
        async with KafkaClient(str(bootstrap), settings=bootstrap.client_settings, rng=Random()) as client:
            return await work(client)

    return asyncio.run(connected())


def find_problems(needs: Iterable[Need]) -> list[Problem]:
    """Returns a problem for each unreachable cluster, and for each missing topic or consumer group, among `needs`."""
    problems: list[Problem] = []
    known: dict[Brokers, list[TopicInfo]] = {}
    unreachable: set[Brokers] = set()
    for need in needs:
        if need.bootstrap in unreachable:
            continue
        if need.bootstrap not in known:
            try:
                known[need.bootstrap] = list_topics(need.bootstrap)
            except PenstockError as error:
                unreachable.add(need.bootstrap)
                problems.append(Problem(need.location, f"no broker answers: {' '.join(error.message.split())}"))
                continue
        problems += _missing_topics(need, known[need.bootstrap])
        problems += _missing_groups(need)
    return problems


def _missing_topics(need: Need, known: list[TopicInfo]) -> Iterable[Problem]:
    names, visible = {topic.name for topic in known}, [topic.name for topic in known if not topic.is_internal]
    for topic, location in need.topics.items():
        if topic not in names:
            there = suggest(topic, visible) if visible else "there are no topics at all"
            advice = f"create it with `penstock topic create {topic}`"
            yield Problem(location, f"there is no topic {topic!r} on {need.bootstrap}; {there}; {advice}")
    if need.pattern is not None and not matching_topics(known, need.pattern):
        there = ", ".join(visible) or "none"
        yield Problem(need.location, f"no topic on {need.bootstrap} matches {need.pattern!r}; topics are {there}")


def _missing_groups(need: Need) -> Iterable[Problem]:
    if not need.groups:
        return
    known = [group.group for group in run_with_client(need.bootstrap, lambda client: Groups(client).list())]
    for group, location in need.groups.items():
        if group not in known:
            there = suggest(group, known) if known else "there are no groups at all"
            yield Problem(location, f"there is no consumer group {group!r} on {need.bootstrap}; {there}")


def check_needs(needs: Iterable[Need]) -> None:
    problems = find_problems(needs)
    if problems:
        raise PipelineInvalid(problems)


def list_topics(bootstrap: Brokers) -> list[TopicInfo]:
    return run_with_client(bootstrap, lambda client: Admin(client).topics())


def matching_topics(topics: Iterable[TopicInfo], pattern: str) -> list[str]:
    """Returns the names of the topics that the option `subscribePattern` of the data source selects."""
    selection = TopicSelection(pattern=pattern)
    return [topic.name for topic in topics if not topic.is_internal and selection.matches(topic.name)]


def describe_topics(bootstrap: Brokers, names: Iterable[str]) -> dict[str, TopicInfo]:
    """Returns the current metadata of topics, by name."""

    async def work(client: KafkaClient) -> dict[str, TopicInfo]:
        admin = Admin(client)
        return {name: await admin.topic(name) for name in names}

    return run_with_client(bootstrap, work)


def held_ranges(bootstrap: Brokers, names: Iterable[str]) -> dict[TopicPartition, LogRange]:
    """Returns the current log start and end offset of every partition of these topics."""

    async def work(client: KafkaClient) -> dict[TopicPartition, LogRange]:
        partitions = [part for name in names for part in (await client.topic(name)).tps]
        return await log_ranges(client, partitions)

    return run_with_client(bootstrap, work)


def trim(bootstrap: Brokers, before: Mapping[TopicPartition, int]) -> None:
    """Deletes the records before the given offset of each partition; skips partitions that start there or later."""

    async def work(client: KafkaClient) -> None:
        held = await log_ranges(client, list(before))
        wanted = {name: offset for name, offset in before.items() if held[name].start < offset <= held[name].end}
        if wanted:
            await Admin(client).trim(wanted)

    run_with_client(bootstrap, work)


def create_topic(bootstrap: Brokers, name: str, partitions: int, configs: Mapping[str, str] | None = None) -> bool:
    """Creates a topic unless it exists; returns whether it was created."""

    async def work(client: KafkaClient) -> bool:
        try:
            await Admin(client).create(name, partitions=partitions, configs=configs)
        except ServerError as error:
            if error.code != ErrorCode.TOPIC_ALREADY_EXISTS:
                raise
            return False
        return True

    return run_with_client(bootstrap, work)


def topic_configs(bootstrap: Brokers, name: str) -> dict[str, str]:
    """Returns the settings that were set on the topic itself, without settings that have the broker's default."""

    async def work(client: KafkaClient) -> dict[str, str]:
        entries = await Admin(client).configs(name)
        return {
            entry.name: entry.value
            for entry in entries
            if entry.source is ConfigSource.TOPIC and entry.value is not None
        }

    return run_with_client(bootstrap, work)
