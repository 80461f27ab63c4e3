"""A group that moves between the two protocols, classic and consumer (KIP-848)."""

from confluent_kafka import ConsumerGroupType

from penstock.foundation.codes import ErrorCode
from penstock.wire.messages.consumer_group_heartbeat import ConsumerGroupHeartbeatRequest
from tests.brokers import BrokerProcess

from .asking import join_request
from .driver_confluent import ConfluentDriver
from .grouping import crew, places_of
from .raw import RawClient
from .test_groups import PARTITIONS, numbered
from .test_groups_admin import describe, offsets_of


def test_an_empty_group_changes_its_protocol_and_keeps_its_offsets(group_broker: BrokerProcess, topic: str) -> None:
    driver = ConfluentDriver(group_broker.kafka)
    driver.create_topic(topic, PARTITIONS)
    places = places_of(topic, PARTITIONS)
    group = f"{topic}-group"
    with crew(group_broker.kafka, group, topics=(topic,)) as members:
        for number, kind in enumerate(("confluent-classic", "confluent-consumer") * 2):
            driver.produce(topic, numbered(60, start=60 * number))
            for _ in range(2):
                members.join(kind)
            members.wait_for_balance(places)
            members.wait_for(60 * (number + 1))
            expected = ConsumerGroupType.CONSUMER if kind == "confluent-consumer" else ConsumerGroupType.CLASSIC
            assert describe(driver, group).type is expected
            members.stop()
            assert offsets_of(driver, group) == dict.fromkeys(places, 10 * (number + 1))
    assert members.got() == {b"%d" % number: 1 for number in range(240)}


def test_a_classic_group_with_members_takes_none_of_the_newer_protocol(
    group_broker: BrokerProcess, group_raw: RawClient, topic: str
) -> None:
    """A group that has members does not change its protocol yet: whoever asks is told that there is no such one."""
    driver = ConfluentDriver(group_broker.kafka)
    driver.create_topic(topic, PARTITIONS)
    group, places = f"{topic}-group", places_of(topic, PARTITIONS)
    newer = ConsumerGroupHeartbeatRequest(
        group_id=group,
        member_id="newer",
        member_epoch=0,
        rebalance_timeout_ms=1000,
        subscribed_topic_names=(topic,),
        topic_partitions=(),
    )
    with crew(group_broker.kafka, group, topics=(topic,)) as members:
        members.join("confluent-classic")
        members.wait_for_balance(places)
        assert group_raw.ask(newer, 1).error_code == ErrorCode.GROUP_ID_NOT_FOUND
        driver.produce(topic, numbered(60))
        members.wait_for(60)
    assert group_raw.ask(newer, 1).error_code == ErrorCode.NONE
    assert members.got() == {b"%d" % number: 1 for number in range(60)}


def test_a_consumer_group_with_members_takes_none_of_the_classic_protocol(
    group_broker: BrokerProcess, group_raw: RawClient, topic: str
) -> None:
    driver = ConfluentDriver(group_broker.kafka)
    driver.create_topic(topic, PARTITIONS)
    group, places = f"{topic}-group", places_of(topic, PARTITIONS)
    with crew(group_broker.kafka, group, topics=(topic,)) as members:
        members.join("confluent-consumer")
        members.wait_for_balance(places)
        assert group_raw.ask(join_request(group, topic), 9).error_code == ErrorCode.INCONSISTENT_GROUP_PROTOCOL
        driver.produce(topic, numbered(60))
        members.wait_for(60)
    assert group_raw.ask(join_request(group, topic), 9).error_code == ErrorCode.MEMBER_ID_REQUIRED
    assert members.got() == {b"%d" % number: 1 for number in range(60)}
