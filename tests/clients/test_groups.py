"""Consumer groups: every client library alone, and all of them together, share out the partitions of a topic."""

from itertools import pairwise

import pytest
from confluent_kafka.admin import NewPartitions

from tests.brokers import BrokerProcess

from .driver_confluent import ConfluentDriver
from .drivers import Outgoing
from .group_members import CLASSIC, COOPERATIVE, KINDS, ROUND_ROBIN, Load, crew, places_of
from .waiting import PATIENCE_S

PARTITIONS = 6
CREWS = {**{kind: (kind,) * 3 for kind in KINDS}, "all-libraries": CLASSIC}


@pytest.fixture(params=CREWS.values(), ids=CREWS)
def kinds(request: pytest.FixtureRequest) -> tuple[str, ...]:
    """The members of the group: three of one library, or one of each."""
    return request.param


def numbered(count: int, start: int = 0) -> list[Outgoing]:
    return [Outgoing(value=b"%d" % number, partition=number % PARTITIONS) for number in range(start, start + count)]


def test_a_calm_group_gets_every_message_once(
    group_broker: BrokerProcess, topic: str, kinds: tuple[str, ...]
) -> None:
    driver = ConfluentDriver(group_broker.kafka)
    driver.create_topic(topic, PARTITIONS)
    driver.produce(topic, numbered(300))
    with crew(group_broker.kafka, f"{topic}-group", topics=(topic,), assignor=ROUND_ROBIN) as members:
        for kind in kinds:
            members.join(kind)
        members.wait_for_balance(places_of(topic, PARTITIONS))
        driver.produce(topic, numbered(300, start=300))
        members.wait_for(600)
    assert members.got() == {b"%d" % number: 1 for number in range(600)}
    members.check_order()
    assert all(member.got for member in members.all)


def test_members_that_come_and_go_under_load_lose_and_repeat_nothing(
    group_broker: BrokerProcess, topic: str, kinds: tuple[str, ...]
) -> None:
    """The former owner of a partition commits when it is revoked, and the new owner starts there."""
    driver = ConfluentDriver(group_broker.kafka)
    driver.create_topic(topic, PARTITIONS)
    places = places_of(topic, PARTITIONS)
    first, second, third = kinds

    def produce(step: int) -> None:
        driver.produce(topic, numbered(20, start=20 * step))

    with crew(group_broker.kafka, f"{topic}-group", topics=(topic,), assignor=ROUND_ROBIN) as members:
        with Load(produce, pause_s=0.01) as load:
            one = members.join(first)
            members.wait_for_balance(places)
            members.wait_for_flow()
            for kind in (second, third):
                members.join(kind)
                members.wait_for_balance(places)
                members.wait_for_flow()
            members.leave(one)
            members.wait_for_balance(places)
            members.wait_for_flow()
            members.join(first)
            members.wait_for_balance(places)
        members.wait_for(20 * load.steps)
    members.check_once(20 * load.steps)
    members.check_order()


@pytest.mark.parametrize("kind", KINDS)
def test_more_members_than_partitions_leave_some_idle_until_they_are_needed(
    group_broker: BrokerProcess, topic: str, kind: str
) -> None:
    driver = ConfluentDriver(group_broker.kafka)
    driver.create_topic(topic, 2)
    with crew(group_broker.kafka, f"{topic}-group", topics=(topic,)) as members:
        for _ in range(3):
            members.join(kind)
        members.wait_for_balance(places_of(topic, 2))
        busy = next(member for member in members.present if member.owned)
        members.leave(busy)
        members.wait_for_balance(places_of(topic, 2))
        assert all(len(member.owned) == 1 for member in members.present)


@pytest.mark.parametrize("kind", KINDS)
def test_a_topic_that_grows_while_it_is_read_is_read_whole(
    group_broker: BrokerProcess, topic: str, kind: str
) -> None:
    driver = ConfluentDriver(group_broker.kafka)
    driver.create_topic(topic, 2)
    with crew(group_broker.kafka, f"{topic}-group", topics=(topic,)) as members:
        for _ in range(2):
            members.join(kind)
        members.wait_for_balance(places_of(topic, 2))
        driver.admin.create_partitions([NewPartitions(topic, PARTITIONS)])[topic].result(PATIENCE_S)
        members.wait_for_balance(places_of(topic, PARTITIONS))
        driver.produce(topic, numbered(60))
        members.wait_for(60)
    assert members.got() == {b"%d" % number: 1 for number in range(60)}


@pytest.mark.parametrize("kind", KINDS)
def test_a_pattern_takes_in_topics_that_come_later(group_broker: BrokerProcess, topic: str, kind: str) -> None:
    driver = ConfluentDriver(group_broker.kafka)
    first, second, other = f"{topic}-eu", f"{topic}-us", f"other-{topic}-eu"
    for name in (first, other):
        driver.create_topic(name, 2)
    with crew(group_broker.kafka, f"{topic}-group", pattern=f"^{topic}-[a-z]+") as members:
        for _ in range(2):
            members.join(kind)
        members.wait_for_balance(places_of(first, 2))
        driver.create_topic(second, 2)
        members.wait_for_balance([*places_of(first, 2), *places_of(second, 2)])
        for name in (first, second, other):
            driver.produce(name, [Outgoing(value=name.encode(), partition=number) for number in range(2)])
        members.wait_for(4)
    assert members.got() == {first.encode(): 2, second.encode(): 2}


@pytest.mark.parametrize("kind", ["confluent-classic", "confluent-consumer"])
def test_a_topic_that_is_deleted_is_missed_and_the_others_are_read_on(
    group_broker: BrokerProcess, topic: str, kind: str
) -> None:
    """With librdkafka: the other two read on a topic that is gone until they end."""
    driver = ConfluentDriver(group_broker.kafka)
    gone, kept = f"{topic}-gone", f"{topic}-kept"
    for name in (gone, kept):
        driver.create_topic(name, 2)
    with crew(group_broker.kafka, f"{topic}-group", topics=(gone, kept)) as members:
        for _ in range(2):
            members.join(kind)
        members.wait_for_balance([*places_of(gone, 2), *places_of(kept, 2)])
        driver.delete_topic(gone)
        members.wait_for_balance(places_of(kept, 2))
        driver.produce(kept, [Outgoing(value=b"%d" % number, partition=number % 2) for number in range(20)])
        members.wait_for(20)
    assert members.got() == {b"%d" % number: 1 for number in range(20)}


@pytest.mark.parametrize(
    "kinds",
    [("confluent-classic",) * 3, ("kafka-python",) * 3, ("confluent-classic", "kafka-python", "confluent-classic")],
    ids="-".join,
)
def test_cooperative_members_keep_what_they_need_not_give_up(
    group_broker: BrokerProcess, topic: str, kinds: tuple[str, ...]
) -> None:
    """KIP-429: a rebalance takes a partition from its owner only if another one is to have it."""
    driver = ConfluentDriver(group_broker.kafka)
    driver.create_topic(topic, PARTITIONS)
    places = places_of(topic, PARTITIONS)
    with crew(group_broker.kafka, f"{topic}-group", topics=(topic,), assignor=COOPERATIVE) as members:
        one = members.join(kinds[0])
        members.wait_for_balance(places)
        for kind in kinds[1:]:
            members.join(kind)
            members.wait_for_balance(places)
        assert all(after <= before for before, after in pairwise(one.history[1:])), one.history
        kept = [member.owned for member in members.present[:2]]
        members.leave(members.present[2])
        members.wait_for_balance(places)
        assert all(member.owned > before for member, before in zip(members.present, kept, strict=True))
        driver.produce(topic, numbered(60))
        members.wait_for(60)
    assert members.got() == {b"%d" % number: 1 for number in range(60)}
