"""Static members (KIP-345) restart without a rebalance."""

from collections.abc import Callable

import pytest

from tests.brokers import BrokerProcess

from .conftest import QUICK_GROUPS, SHORT_SESSIONS
from .driver_confluent import ConfluentDriver
from .group_members import CLASSIC, KINDS, Member, crew, places_of
from .test_groups import PARTITIONS, numbered
from .waiting import wait_until


@pytest.mark.parametrize("kind", KINDS)
def test_a_restarted_static_member_gets_its_assignment_back_without_a_rebalance(
    group_broker: BrokerProcess, topic: str, kind: str
) -> None:
    driver = ConfluentDriver(group_broker.kafka)
    driver.create_topic(topic, PARTITIONS)
    with crew(group_broker.kafka, f"{topic}-group", topics=(topic,)) as members:
        one = members.join(kind, instance_id="one")
        other = members.join(kind, instance_id="other")
        members.wait_for_balance(places_of(topic, PARTITIONS))
        driver.produce(topic, numbered(60))
        members.wait_for(60)
        shares, changes = (one.owned, other.owned), len(other.history)
        members.leave(one)
        again = members.join(kind, instance_id="one")
        members.wait_for_balance(places_of(topic, PARTITIONS))
        assert (again.owned, other.owned) == shares
        driver.produce(topic, numbered(60, start=60))
        members.wait_for(120)
        assert len(other.history) == changes
    assert members.got() == {b"%d" % number: 1 for number in range(120)}


def test_static_members_of_all_libraries_restart_in_turn(group_broker: BrokerProcess, topic: str) -> None:
    """One library after the other with the same instance id: the assignment does not depend on the library."""
    driver = ConfluentDriver(group_broker.kafka)
    driver.create_topic(topic, PARTITIONS)
    places = places_of(topic, PARTITIONS)
    with crew(group_broker.kafka, f"{topic}-group", topics=(topic,)) as members:
        # The watcher leads: a leader that comes back may join again when it learns of the topic (aiokafka does),
        # and that is a new generation at every broker.
        watcher = members.join("confluent-classic", instance_id="watcher")
        members.wait_for_balance(places)
        last: Member = members.join(CLASSIC[-1], instance_id="changing")
        members.wait_for_balance(places)
        shares, changes = (watcher.owned, last.owned), len(watcher.history)
        for kind in CLASSIC:
            members.leave(last)
            last = members.join(kind, instance_id="changing")
            members.wait_for_balance(places)
            assert (watcher.owned, last.owned) == shares
        assert len(watcher.history) == changes


@pytest.mark.parametrize("kind", KINDS)
def test_a_static_member_that_stays_away_is_removed_when_its_session_expires(
    own_broker: Callable[..., BrokerProcess], topic: str, kind: str
) -> None:
    broker = own_broker(QUICK_GROUPS | SHORT_SESSIONS)
    driver = ConfluentDriver(broker.kafka)
    driver.create_topic(topic, 2)
    with crew(broker.kafka, f"{topic}-group", topics=(topic,), session_ms=1000) as members:
        one = members.join(kind, instance_id="one")
        members.join(kind, instance_id="other")
        members.wait_for_balance(places_of(topic, 2))
        members.leave(one)
        members.wait_for_balance(places_of(topic, 2))


def test_of_two_members_with_one_instance_id_the_older_is_fenced(group_broker: BrokerProcess, topic: str) -> None:
    """With librdkafka: kafka-python notes that it is fenced and reads on, aiokafka commits without its name."""
    driver = ConfluentDriver(group_broker.kafka)
    driver.create_topic(topic, 2)
    with crew(group_broker.kafka, f"{topic}-group", topics=(topic,)) as members:
        older = members.join("confluent-classic", instance_id="same")
        members.wait_for_balance(places_of(topic, 2))
        newer = members.join("confluent-classic", instance_id="same")
        wait_until(lambda: newer.owned == set(places_of(topic, 2)), "the newer one has the partitions")
        with pytest.raises(AssertionError, match=r"(?i)fenced"):
            wait_until(lambda: older.check() or not older.is_alive(), "the older one is fenced")
        members.forget(older)


def test_with_the_newer_protocol_the_second_of_two_with_one_name_waits(
    group_broker: BrokerProcess, topic: str
) -> None:
    """UNRELEASED_INSTANCE_ID (KIP-848): a name is taken until its owner goes or is lost."""
    driver = ConfluentDriver(group_broker.kafka)
    driver.create_topic(topic, 2)
    with crew(group_broker.kafka, f"{topic}-group", topics=(topic,)) as members:
        older = members.join("confluent-consumer", instance_id="same")
        members.wait_for_balance(places_of(topic, 2))
        newer = members.join("confluent-consumer", instance_id="same")
        with pytest.raises(AssertionError, match="still used by another member"):
            wait_until(lambda: newer.check() or not newer.is_alive(), "the newer one is fenced")
        members.forget(newer)
        assert older.owned == set(places_of(topic, 2))
