"""What pipelines ask of clusters themselves, before Spark and beside it."""

import asyncio
import re
from collections.abc import Awaitable, Callable, Iterable, Mapping
from random import Random
from typing import Final, TypeVar

from penstock.client.admin import Admin, ConfigSource
from penstock.client.cluster import ClientSettings, KafkaClient
from penstock.client.errors import ServerError
from penstock.client.groups import Groups
from penstock.client.metadata import TopicInfo
from penstock.client.offsets import Range, ranges
from penstock.foundation.codes import ErrorCode
from penstock.foundation.errors import PenstockError
from penstock.foundation.ids import TopicPartition
from penstock.spark.pipelines.document import PipelineInvalid, Problem, possible
from penstock.spark.pipelines.pipeline import Need

T = TypeVar("T")

_PATIENCE: Final = ClientSettings(retry_for_s=10.0)


def ask(bootstrap: str, work: Callable[[KafkaClient], Awaitable[T]]) -> T:
    """Run a client's work to its end, on an event loop of its own."""

    async def connected() -> T:
        async with KafkaClient(bootstrap, settings=_PATIENCE, rng=Random()) as client:
            return await work(client)

    return asyncio.run(connected())


def find_problems(needs: Iterable[Need]) -> list[Problem]:
    """Brokers that do not answer, and topics and groups that are not there."""
    problems: list[Problem] = []
    known: dict[str, list[str]] = {}
    silent: set[str] = set()
    for need in needs:
        if need.bootstrap in silent:
            continue
        if need.bootstrap not in known:
            try:
                known[need.bootstrap] = [topic.name for topic in list_topics(need.bootstrap)]
            except PenstockError as error:
                silent.add(need.bootstrap)
                problems.append(Problem(need.at, f"no broker answers: {' '.join(error.message.split())}"))
                continue
        problems += _missing(need, known[need.bootstrap])
        problems += _missing_groups(need)
    return problems


def _missing(need: Need, known: list[str]) -> Iterable[Problem]:
    visible = [name for name in known if not name.startswith("__")]
    for topic, place in need.topics.items():
        if topic not in known:
            there = possible(topic, visible) if visible else "there are no topics at all"
            advice = f"make it with `penstock topic create {topic}`"
            yield Problem(place, f"there is no topic {topic!r} on {need.bootstrap}; {there}; {advice}")
    if need.pattern is not None and not any(re.fullmatch(need.pattern, name) for name in known):
        there = ", ".join(visible) or "none"
        yield Problem(need.at, f"no topic on {need.bootstrap} matches {need.pattern!r}; there are {there}")


def _missing_groups(need: Need) -> Iterable[Problem]:
    if not need.groups:
        return
    known = [group.group for group in ask(need.bootstrap, lambda client: Groups(client).list())]
    for group, place in need.groups.items():
        if group not in known:
            there = possible(group, known) if known else "there are no groups at all"
            yield Problem(place, f"there is no consumer group {group!r} on {need.bootstrap}; {there}")


def check_needs(needs: Iterable[Need]) -> None:
    problems = find_problems(needs)
    if problems:
        raise PipelineInvalid(problems)


def list_topics(bootstrap: str) -> list[TopicInfo]:
    return ask(bootstrap, lambda client: Admin(client).topics())


def describe_topics(bootstrap: str, names: Iterable[str]) -> dict[str, TopicInfo]:
    """Those topics, as they are now."""

    async def work(client: KafkaClient) -> dict[str, TopicInfo]:
        admin = Admin(client)
        return {name: await admin.topic(name) for name in names}

    return ask(bootstrap, work)


def held_ranges(bootstrap: str, names: Iterable[str]) -> dict[TopicPartition, Range]:
    """What every partition of those topics holds now."""

    async def work(client: KafkaClient) -> dict[TopicPartition, Range]:
        partitions = [part for name in names for part in (await client.topic(name)).names]
        return await ranges(client, partitions)

    return ask(bootstrap, work)


def trim(bootstrap: str, before: Mapping[TopicPartition, int]) -> None:
    """Drop what lies before those offsets; partitions that begin later than that stay as they are."""

    async def work(client: KafkaClient) -> None:
        held = await ranges(client, list(before))
        wanted = {name: offset for name, offset in before.items() if held[name].start < offset <= held[name].end}
        if wanted:
            await Admin(client).trim(wanted)

    ask(bootstrap, work)


def create_topic(bootstrap: str, name: str, partitions: int, configs: Mapping[str, str] | None = None) -> bool:
    """Make a topic unless it is there; whether it was made."""

    async def work(client: KafkaClient) -> bool:
        try:
            await Admin(client).create(name, partitions=partitions, configs=configs)
        except ServerError as error:
            if error.code != ErrorCode.TOPIC_ALREADY_EXISTS:
                raise
            return False
        return True

    return ask(bootstrap, work)


def topic_configs(bootstrap: str, name: str) -> dict[str, str]:
    """The settings that a topic has of its own."""

    async def work(client: KafkaClient) -> dict[str, str]:
        entries = await Admin(client).configs(name)
        return {
            entry.name: entry.value
            for entry in entries
            if entry.source is ConfigSource.TOPIC and entry.value is not None
        }

    return ask(bootstrap, work)
