"""A group that moves between the two protocols, classic and consumer (KIP-848)."""

from collections.abc import Callable

import pytest
from confluent_kafka import ConsumerGroupState, ConsumerGroupType

from penstock.foundation.codes import ErrorCode
from penstock.wire.messages.consumer_group_describe import ConsumerGroupDescribeRequest
from penstock.wire.messages.consumer_group_heartbeat import ConsumerGroupHeartbeatRequest
from tests.brokers import BrokerProcess

from .conftest import QUICK_GROUPS, SHORT_SESSIONS
from .driver_confluent import ConfluentDriver
from .group_members import CLASSIC, COOPERATIVE, RANGE, ROUND_ROBIN, Load, Member, crew, places_of
from .raw import RawClient
from .test_groups import PARTITIONS, numbered
from .test_groups_admin import describe, offsets_of
from .waiting import wait_until


def test_an_empty_group_changes_its_protocol_and_keeps_its_offsets(group_broker: BrokerProcess, topic: str) -> None:
    driver = ConfluentDriver(group_broker.kafka)
    driver.create_topic(topic, PARTITIONS)
    places = places_of(topic, PARTITIONS)
    group = f"{topic}-group"
    with crew(group_broker.kafka, group, topics=(topic,)) as members:
        for number, kind in enumerate(("confluent-classic", "confluent-consumer") * 2):
            driver.produce(topic, numbered(60, start=60 * number))
            for _ in range(2):
                members.join(kind, commits_at_once=True)
            members.wait_for_balance(places)
            members.wait_for(60 * (number + 1))
            expected = ConsumerGroupType.CONSUMER if kind == "confluent-consumer" else ConsumerGroupType.CLASSIC
            assert describe(driver, group).type is expected
            wanted = dict.fromkeys(places, 10 * (number + 1))
            wait_until(lambda wanted=wanted: offsets_of(driver, group) == wanted, "all is committed")
            members.stop()
            assert offsets_of(driver, group) == wanted
    assert members.got() == {b"%d" % number: 1 for number in range(240)}


def _wait_for_rest(driver: ConfluentDriver, group: str, kind: ConsumerGroupType) -> None:
    """The group is of this kind, and everybody has what is meant for it."""

    def rests() -> bool:
        found = describe(driver, group)
        return found.type is kind and found.state is ConsumerGroupState.STABLE

    wait_until(rests, f"{group} to be {kind.name} and stable")


@pytest.mark.parametrize("assignor", [ROUND_ROBIN, RANGE, COOPERATIVE])
def test_members_are_replaced_one_by_one_under_load_upwards_and_back(
    group_broker: BrokerProcess, topic: str, assignor: str
) -> None:
    """A rolling upgrade, and a rolling downgrade; the other libraries know nothing of the newer protocol and stay."""
    driver = ConfluentDriver(group_broker.kafka)
    driver.create_topic(topic, PARTITIONS)
    places, group = places_of(topic, PARTITIONS), f"{topic}-group"
    staying = ("kafka-python",) if assignor == COOPERATIVE else ("aiokafka", "kafka-python")

    def produce(step: int) -> None:
        driver.produce(topic, numbered(20, start=20 * step))

    with crew(group_broker.kafka, group, topics=(topic,), assignor=assignor) as members:

        def settle(kind: ConsumerGroupType) -> None:
            members.wait_for_balance(places)
            _wait_for_rest(driver, group, kind)
            members.wait_for_flow()

        with Load(produce, pause_s=0.01) as load:
            moving = [members.join("confluent-classic") for _ in range(2)]
            for kind in staying:
                members.join(kind)
            settle(ConsumerGroupType.CLASSIC)
            for kind in ("confluent-consumer", "confluent-classic"):
                for index, old in enumerate(moving):
                    moving[index] = members.join(kind)
                    settle(ConsumerGroupType.CONSUMER)
                    members.leave(old)
                    is_last = kind == "confluent-classic" and index == len(moving) - 1
                    settle(ConsumerGroupType.CLASSIC if is_last else ConsumerGroupType.CONSUMER)
        members.wait_for(20 * load.steps)
    members.check_once(20 * load.steps)
    members.check_order()


def test_a_cooperative_group_of_librdkafka_is_upgraded(group_broker: BrokerProcess, topic: str) -> None:
    """Its leader copies the user data of each subscription into the assignment."""
    driver = ConfluentDriver(group_broker.kafka)
    driver.create_topic(topic, PARTITIONS)
    places, group = places_of(topic, PARTITIONS), f"{topic}-group"
    with crew(group_broker.kafka, group, topics=(topic,), assignor=COOPERATIVE) as members:
        for kind in ("confluent-classic", "confluent-classic", "confluent-consumer"):
            members.join(kind)
            members.wait_for_balance(places)
        _wait_for_rest(driver, group, ConsumerGroupType.CONSUMER)


def test_replacing_static_members_by_ones_of_the_other_protocol_does_not_disturb_others(
    group_broker: BrokerProcess, topic: str
) -> None:
    """Under its name a member takes over what it had, whichever protocol it speaks now."""
    driver = ConfluentDriver(group_broker.kafka)
    driver.create_topic(topic, PARTITIONS)
    places, group = places_of(topic, PARTITIONS), f"{topic}-group"
    with crew(group_broker.kafka, group, topics=(topic,)) as members:
        watcher = members.join("confluent-consumer", instance_id="watcher")
        members.wait_for_balance(places)
        moving: Member = members.join("confluent-classic", instance_id="moving")
        members.wait_for_balance(places)
        _wait_for_rest(driver, group, ConsumerGroupType.CONSUMER)
        shares, changes = (watcher.owned, moving.owned), len(watcher.history)
        for number, kind in enumerate(("confluent-consumer", "kafka-python", "confluent-consumer", "aiokafka")):
            driver.produce(topic, numbered(60, start=60 * number))
            members.wait_for(60 * (number + 1))
            members.leave(moving)
            moving = members.join(kind, instance_id="moving")
            members.wait_for_balance(places)
            assert (watcher.owned, moving.owned) == shares
        driver.produce(topic, numbered(60, start=240))
        members.wait_for(300)
        assert len(watcher.history) == changes
    assert members.got() == {b"%d" % number: 1 for number in range(300)}


def newer(group: str, topic: str, member_id: str = "newer", epoch: int = 0) -> ConsumerGroupHeartbeatRequest:
    """A heartbeat of a member that a test speaks for itself."""
    return ConsumerGroupHeartbeatRequest(
        group_id=group,
        member_id=member_id,
        member_epoch=epoch,
        rebalance_timeout_ms=1000,
        subscribed_topic_names=(topic,),
        topic_partitions=(),
    )


def test_a_member_of_the_newer_protocol_that_dies_leaves_a_classic_group_behind(
    own_broker: Callable[..., BrokerProcess], topic: str
) -> None:
    broker = own_broker(QUICK_GROUPS | SHORT_SESSIONS)
    driver = ConfluentDriver(broker.kafka)
    driver.create_topic(topic, PARTITIONS)
    places, group = places_of(topic, PARTITIONS), f"{topic}-group"
    with crew(broker.kafka, group, topics=(topic,)) as members, RawClient(broker.address) as raw:
        for kind in CLASSIC:
            members.join(kind)
        members.wait_for_balance(places)
        assert raw.ask(newer(group, topic), 1).error_code == ErrorCode.NONE
        request = ConsumerGroupDescribeRequest(group_ids=(group,), include_authorized_operations=False)
        (found,) = raw.ask(request, 1).groups
        assert sorted(member.member_type for member in found.members) == [0, 0, 0, 1]
        # It is never heard of again: its share is given to the others when its session is over.
        wait_until(lambda: describe(driver, group).type is ConsumerGroupType.CLASSIC, "a classic group again")
        members.wait_for_balance(places)
        driver.produce(topic, numbered(60))
        members.wait_for(60)
        assert raw.ask(newer(group, topic, epoch=2), 1).error_code == ErrorCode.GROUP_ID_NOT_FOUND
    assert members.got() == {b"%d" % number: 1 for number in range(60)}


def test_a_group_of_both_protocols_goes_on_after_its_coordinator_was_killed(
    own_broker: Callable[..., BrokerProcess], topic: str
) -> None:
    broker = own_broker(QUICK_GROUPS)
    driver = ConfluentDriver(broker.kafka)
    driver.create_topic(topic, PARTITIONS)
    places, group = places_of(topic, PARTITIONS), f"{topic}-group"
    with crew(broker.kafka, group, topics=(topic,)) as members:
        # First the classic ones: aiokafka gives up if its group moves while it waits to join for the first time. (And
        # kafka-python does not close its sockets to a broker that is gone.)
        for kind in ("confluent-classic", "aiokafka"):
            members.join(kind)
        members.wait_for_balance(places)
        members.join("confluent-consumer")
        members.wait_for_balance(places)
        _wait_for_rest(driver, group, ConsumerGroupType.CONSUMER)
        driver.produce(topic, numbered(60))
        members.wait_for(60)
        broker.kill()
        broker.start()
        members.wait_for_balance(places)
        _wait_for_rest(driver, group, ConsumerGroupType.CONSUMER)
        driver.produce(topic, numbered(60, start=60))
        members.wait_for(120)
        for member in list(members.present):
            members.leave(member)  # one by one: the last is the one whose leaving would make the group a classic one
    # At least once: what was not committed when the broker died is read again.
    assert set(members.got()) == {b"%d" % number for number in range(120)}


def test_a_group_that_may_not_move_does_not(own_broker: Callable[..., BrokerProcess], topic: str) -> None:
    broker = own_broker({**QUICK_GROUPS, "group.consumer.migration.policy": "disabled"})
    driver = ConfluentDriver(broker.kafka)
    driver.create_topic(topic, PARTITIONS)
    places, group = places_of(topic, PARTITIONS), f"{topic}-group"
    with crew(broker.kafka, group, topics=(topic,)) as members, RawClient(broker.address) as raw:
        members.join("confluent-classic")
        members.wait_for_balance(places)
        assert raw.ask(newer(group, topic), 1).error_code == ErrorCode.GROUP_ID_NOT_FOUND
        driver.produce(topic, numbered(60))
        members.wait_for(60)
        members.stop()
        wait_until(lambda: describe(driver, group).state is ConsumerGroupState.EMPTY, "an empty group")
        # Members of the classic protocol may join a consumer group all the same, and may be left alone in it.
        first = members.join("confluent-consumer")
        members.wait_for_balance(places)
        members.join("aiokafka")
        members.wait_for_balance(places)
        members.leave(first)
        members.wait_for_balance(places)
        assert describe(driver, group).type is ConsumerGroupType.CONSUMER
        driver.produce(topic, numbered(60, start=60))
        members.wait_for(120)
    assert members.got() == {b"%d" % number: 1 for number in range(120)}
