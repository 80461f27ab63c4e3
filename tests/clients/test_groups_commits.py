"""Committed offsets: kept for the next members, with their metadata, when the broker stops or is killed."""

import asyncio
import gc
import logging
import random
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from typing import Protocol

import pytest
from aiokafka.structs import OffsetAndMetadata as AiokafkaOffset
from confluent_kafka import TopicPartition

from tests.brokers import BrokerProcess

from .conftest import QUICK_GROUPS
from .driver_aiokafka import AiokafkaDriver
from .driver_aiokafka import TopicPartition as AiokafkaPartition
from .driver_confluent import ConfluentDriver
from .driver_kafka_python import KafkaPythonDriver, OffsetAndMetadata
from .driver_kafka_python import TopicPartition as KafkaPythonPartition
from .drivers import Outgoing
from .group_members import CLASSIC, KINDS, Crew, Place, crew, places_of
from .test_groups import PARTITIONS, numbered
from .test_restart import end
from .waiting import PATIENCE_S, wait_until

Commits = dict[Place, tuple[int, str]]
"""By partition, an offset and the text that was committed with it."""
NUL = "\0"
"""confluent-kafka ends the text that it commits with this, and reads any text up to the first one:
so the others write it too, and it is not compared."""
OWN_GROUPS = QUICK_GROUPS | {"offsets.topic.num.partitions": 5}


class Committer(Protocol):
    """Commits and looks up, without being a member: partitions are assigned by hand."""

    def __init__(self, bootstrap: str, group: str) -> None: ...

    def commit(self, commits: Mapping[Place, tuple[int, str]]) -> None: ...

    def committed(self, places: list[Place]) -> Commits:
        """Of those partitions of which there is a commit."""


class ConfluentCommitter:
    def __init__(self, bootstrap: str, group: str) -> None:
        self._driver = ConfluentDriver(bootstrap)
        self._group = group

    def commit(self, commits: Mapping[Place, tuple[int, str]]) -> None:
        wanted = [TopicPartition(*place, offset, metadata) for place, (offset, metadata) in commits.items()]
        with self._driver.consumer(group_id=self._group) as consumer:
            assert all(one.error is None for one in consumer.commit(offsets=wanted, asynchronous=False))

    def committed(self, places: list[Place]) -> Commits:
        with self._driver.consumer(group_id=self._group) as consumer:
            found = consumer.committed([TopicPartition(*place) for place in places], PATIENCE_S)
        return {(one.topic, one.partition): (one.offset, one.metadata or "") for one in found if one.offset >= 0}


class KafkaPythonCommitter:
    def __init__(self, bootstrap: str, group: str) -> None:
        self._driver = KafkaPythonDriver(bootstrap)
        self._group = group

    def commit(self, commits: Mapping[Place, tuple[int, str]]) -> None:
        with self._driver.consumer(group_id=self._group) as consumer:
            consumer.commit(
                {
                    KafkaPythonPartition(*place): OffsetAndMetadata(offset, metadata + NUL, -1)
                    for place, (offset, metadata) in commits.items()
                }
            )

    def committed(self, places: list[Place]) -> Commits:
        with self._driver.consumer(group_id=self._group) as consumer:
            found = {place: consumer.committed(KafkaPythonPartition(*place), metadata=True) for place in places}
        return {place: (one.offset, one.metadata.rstrip(NUL)) for place, one in found.items() if one is not None}


class AiokafkaCommitter:
    def __init__(self, bootstrap: str, group: str) -> None:
        self._driver = AiokafkaDriver(bootstrap)
        self._group = group

    def commit(self, commits: Mapping[Place, tuple[int, str]]) -> None:
        async def run() -> None:
            wanted = {
                AiokafkaPartition(*place): AiokafkaOffset(offset, text + NUL)
                for place, (offset, text) in commits.items()
            }
            async with self._driver.consumer(group_id=self._group) as consumer:
                consumer.assign(list(wanted))
                await consumer.commit(wanted)

        asyncio.run(run())

    def committed(self, places: list[Place]) -> Commits:
        """Its public API has no metadata; the answer that it reads has."""

        async def run() -> Commits:
            async with self._driver.consumer(group_id=self._group) as consumer:
                consumer.assign([AiokafkaPartition(*place) for place in places])
                found = await consumer._coordinator.fetch_committed_offsets(
                    [AiokafkaPartition(*place) for place in places]
                )
            return {(at.topic, at.partition): (one.offset, one.metadata.rstrip(NUL)) for at, one in found.items()}

        return asyncio.run(run())


COMMITTERS: dict[str, type[Committer]] = {
    "confluent-kafka": ConfluentCommitter,
    "kafka-python": KafkaPythonCommitter,
    "aiokafka": AiokafkaCommitter,
}


@pytest.mark.parametrize("library", COMMITTERS)
def test_commits_of_one_library_are_fetched_by_every_library(
    group_broker: BrokerProcess, topic: str, library: str, rng: random.Random
) -> None:
    ConfluentDriver(group_broker.kafka).create_topic(topic, PARTITIONS)
    group, places = f"{topic}-group", places_of(topic, PARTITIONS)
    commits = {place: (rng.randrange(2**40), rng.choice(["", "plain", "snö ☃", "x" * 4000])) for place in places[1:]}
    committer = COMMITTERS[library](group_broker.kafka, group)
    committer.commit(dict.fromkeys(places[1:], (7, "first")))
    committer.commit(commits)
    for name, other in COMMITTERS.items():
        assert other(group_broker.kafka, group).committed(places) == commits, name


@pytest.mark.parametrize("how", ["stopped", "killed"])
def test_commits_outlive_the_broker(own_broker: Callable[..., BrokerProcess], how: str, rng: random.Random) -> None:
    """Of many groups, in all partitions of the topic that they are kept in; the last one counts."""
    broker = own_broker(OWN_GROUPS)
    ConfluentDriver(broker.kafka).create_topic("orders", PARTITIONS)
    places = places_of("orders", PARTITIONS)
    expected: dict[str, Commits] = {}
    for number in range(12):
        group, committer = f"group-{number}", rng.choice(list(COMMITTERS.values()))
        for _ in range(3):
            commits = {place: (rng.randrange(2**40), f"{rng.random()}") for place in rng.sample(places, 3)}
            committer(broker.kafka, group).commit(commits)
            expected[group] = expected.get(group, {}) | commits
    for _ in range(2):
        end(broker, how)
        broker.start()
        for group, commits in expected.items():
            assert ConfluentCommitter(broker.kafka, group).committed(places) == commits


def test_a_member_goes_on_where_the_one_before_has_left(group_broker: BrokerProcess, topic: str) -> None:
    """One member at a time, of every library and both protocols."""
    driver = ConfluentDriver(group_broker.kafka)
    driver.create_topic(topic, PARTITIONS)
    with crew(group_broker.kafka, f"{topic}-group", topics=(topic,)) as members:
        for number, kind in enumerate((*KINDS, *reversed(KINDS))):
            driver.produce(topic, numbered(12, start=12 * number))
            member = members.join(kind)
            members.wait_for(12 * (number + 1))
            members.leave(member)
            assert [got.value for got in sorted(member.got, key=lambda got: int(got.value))] == [
                b"%d" % at for at in range(12 * number, 12 * number + 12)
            ]


@contextmanager
def steady(members: Crew) -> Iterator[None]:
    """Within this block no member may gain or lose a partition, not even for a moment."""
    before = [list(member.history) for member in members.present]
    yield
    assert [member.history for member in members.present] == before


@pytest.mark.parametrize("kind", ["confluent-classic", "confluent-consumer"])
def test_members_do_not_notice_that_their_broker_was_killed(
    own_broker: Callable[..., BrokerProcess], kind: str
) -> None:
    """The group is read back as it was: there is no rebalance, and nothing is read twice."""
    broker = own_broker(OWN_GROUPS)
    driver = ConfluentDriver(broker.kafka)
    driver.create_topic("orders", PARTITIONS)
    with crew(broker.kafka, "group", topics=("orders",)) as members:
        for _ in range(3):
            members.join(kind)
        members.wait_for_balance(places_of("orders", PARTITIONS))
        driver.produce("orders", numbered(60))
        members.wait_for(60)
        with steady(members):
            for number in range(1, 3):
                broker.kill()
                broker.start()
                driver.produce("orders", numbered(60, start=60 * number))
                members.wait_for(60 * (number + 1))
    assert members.got() == {b"%d" % number: 1 for number in range(180)}


@pytest.mark.parametrize("kind", CLASSIC[1:])
def test_members_come_back_to_a_broker_that_was_killed(
    own_broker: Callable[..., BrokerProcess], kind: str, caplog: pytest.LogCaptureFixture
) -> None:
    """These libraries look for the coordinator again; nothing is lost, and nothing was left uncommitted."""
    caplog.set_level(logging.CRITICAL, logger="kafka")  # what it logs would hold those sockets beyond the test
    broker = own_broker(OWN_GROUPS)
    driver = ConfluentDriver(broker.kafka)
    driver.create_topic("orders", PARTITIONS)
    with crew(broker.kafka, "group", topics=("orders",)) as members:
        for _ in range(2):
            members.join(kind)
        members.wait_for_balance(places_of("orders", PARTITIONS))
        driver.produce("orders", numbered(60))
        members.wait_for(60)
        ends = dict.fromkeys(places_of("orders", PARTITIONS), (10, ""))
        wait_until(
            lambda: ConfluentCommitter(broker.kafka, "group").committed(list(ends)) == ends, "all is committed"
        )
        broker.kill()
        broker.start()
        driver.produce("orders", [Outgoing(value=b"after", partition=number) for number in range(PARTITIONS)])
        members.wait_for(60 + PARTITIONS)
    assert members.got() == {b"after": PARTITIONS, **{b"%d" % number: 1 for number in range(60)}}
    gc.collect()  # while those warnings are ignored
