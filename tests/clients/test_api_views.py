"""Views with the Python API: named ones, and those of one subscription."""

import asyncio
from collections.abc import Iterator

import pytest

import penstock
from penstock import Connection
from penstock.foundation.view_names import ad_hoc_name
from tests.brokers import BrokerProcess

from .api_lab import IDLE_S, connect, new_group, new_topic, numbers
from .driver_confluent import ConfluentDriver

TAGS = ("eu", "us", "uk")


@pytest.fixture
def mq(group_broker: BrokerProcess) -> Iterator[Connection]:
    with connect(group_broker.kafka, refresh_s=0.2) as connection:
        yield connection


@pytest.fixture
def topic(group_broker: BrokerProcess, mq: Connection) -> str:
    name = new_topic(group_broker.kafka)
    for number in range(12):
        mq.publish(name, number, tag=TAGS[number % 3])
    return name


def test_a_subscription_with_a_condition_gets_what_matches(
    mq: Connection, group_broker: BrokerProcess, topic: str
) -> None:
    group = new_group()
    where = "tag IN ('eu', 'uk') AND timestamp > '2020-01-01'"
    assert numbers(mq.subscribe(topic, group=group, where=where, limit=3)) == [0, 2, 3]
    mq.publish(topic, 12, tag="eu")
    assert numbers(mq.subscribe(topic, group=group, where=where, idle_timeout_s=IDLE_S)) == [5, 6, 8, 9, 11, 12]
    assert numbers(mq.subscribe(topic, where="tag = 'us'", idle_timeout_s=IDLE_S)) == [1, 4, 7, 10]
    driver = ConfluentDriver(group_broker.kafka)
    assert driver.config(ad_hoc_name(topic, where), "view.of")[0] == topic
    assert ad_hoc_name(topic, where) not in driver.topics()


def test_a_view_is_made_read_and_dropped(mq: Connection, topic: str) -> None:
    view = f"{topic}-eu"
    mq.create_view(view, of=topic, where="$ >= 6 AND tag = 'eu'")
    assert numbers(mq.subscribe(view, idle_timeout_s=IDLE_S)) == [6, 9]
    with pytest.raises(penstock.PublishFailed):
        mq.publish(view, 1)
    mq.drop_view(view)
    with pytest.raises(penstock.UnknownTopic):
        mq.drop_view(view)
    with pytest.raises(penstock.InvalidArgument):
        mq.drop_view(topic)


def test_a_bad_condition_is_shown_with_the_place(mq: Connection, topic: str) -> None:
    with pytest.raises(penstock.InvalidArgument) as refused:
        mq.subscribe(topic, where="tag = 'eu' OR nonsense")
    *_, line, arrows = str(refused.value).splitlines()
    assert line[arrows.index("^") : arrows.rindex("^") + 1] == "nonsense"
    with pytest.raises(penstock.InvalidArgument):
        mq.subscribe(topic, where=" ")
    with pytest.raises(penstock.InvalidArgument):
        mq.subscribe("^any.*", where="tag = 'eu'")


def test_tasks_do_the_same(group_broker: BrokerProcess, topic: str) -> None:
    async def work() -> list[int]:
        async with penstock.connect_async(group_broker.kafka) as mq:
            await mq.create_view(f"{topic}-v", of=topic, where="tag = 'eu'")
            assert [each.json() async for each in mq.subscribe(f"{topic}-v", limit=2)] == [0, 3]
            await mq.drop_view(f"{topic}-v")
            return [each.json() async for each in mq.subscribe(topic, where="tag = 'uk'", limit=4)]

    assert asyncio.run(work()) == [2, 5, 8, 11]
