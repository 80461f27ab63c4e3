"""Groups as administrators see and change them, with every library that can."""

import pytest
from confluent_kafka import (
    ConsumerGroupState,
    ConsumerGroupTopicPartitions,
    ConsumerGroupType,
    KafkaException,
    TopicPartition,
)
from confluent_kafka.admin import ConsumerGroupDescription

from penstock.foundation.codes import ErrorCode
from tests.brokers import BrokerProcess

from .driver_aiokafka import AiokafkaDriver
from .driver_confluent import ConfluentDriver
from .driver_kafka_python import KafkaPythonDriver, MemberToRemove, OffsetAndMetadata, OffsetSpec
from .driver_kafka_python import TopicPartition as KafkaPythonPartition
from .drivers import refused
from .group_members import Place, crew, places_of
from .test_groups import PARTITIONS, numbered
from .test_groups_commits import ConfluentCommitter
from .waiting import PATIENCE_S, wait_until

TYPES = {"confluent-classic": ConsumerGroupType.CLASSIC, "confluent-consumer": ConsumerGroupType.CONSUMER}


def describe(driver: ConfluentDriver, group: str) -> ConsumerGroupDescription:
    """What a coordinator says of a group; librdkafka does not ask again if the group is being read back."""

    def answer() -> ConsumerGroupDescription | None:
        try:
            return driver.admin.describe_consumer_groups([group])[group].result(PATIENCE_S)
        except KafkaException as error:
            if error.args[0].code() != ErrorCode.COORDINATOR_LOAD_IN_PROGRESS:
                raise
        return None

    return wait_until(answer, f"{group} to be read back")


def listed(driver: ConfluentDriver, **filters: object) -> dict[str, tuple[ConsumerGroupState, ConsumerGroupType]]:
    found = driver.admin.list_consumer_groups(**filters).result(PATIENCE_S)
    assert found.errors == []
    return {one.group_id: (one.state, one.type) for one in found.valid}


def move(driver: ConfluentDriver, group: str, offsets: dict[Place, int]) -> dict[Place, ErrorCode]:
    """Set offsets; what the broker says of each."""
    wanted = ConsumerGroupTopicPartitions(group, [TopicPartition(*place, at) for place, at in offsets.items()])
    answer = driver.admin.alter_consumer_group_offsets([wanted])[group].result(PATIENCE_S)
    return {
        (one.topic, one.partition): ErrorCode(one.error.code() if one.error else 0) for one in answer.topic_partitions
    }


def offsets_of(driver: ConfluentDriver, group: str) -> dict[Place, int]:
    """All that a group has committed."""
    wanted = ConsumerGroupTopicPartitions(group)
    found = driver.admin.list_consumer_group_offsets([wanted])[group].result(PATIENCE_S)
    return {(one.topic, one.partition): one.offset for one in found.topic_partitions}


@pytest.mark.parametrize("kind", TYPES)
def test_a_group_is_described_with_its_members_and_what_they_have(
    group_broker: BrokerProcess, topic: str, kind: str
) -> None:
    driver = ConfluentDriver(group_broker.kafka)
    driver.create_topic(topic, PARTITIONS)
    group = f"{topic}-group"
    with crew(group_broker.kafka, group, topics=(topic,)) as members:
        one = members.join(kind, client_id="one", instance_id="static")
        other = members.join(kind, client_id="other")
        members.wait_for_balance(places_of(topic, PARTITIONS))
        wait_until(lambda: describe(driver, group).state is ConsumerGroupState.STABLE, "a stable group")
        found = describe(driver, group)
        assert (found.type, found.is_simple_consumer_group, found.coordinator.id) == (TYPES[kind], False, 1)
        assert found.partition_assignor == ("uniform" if kind == "confluent-consumer" else "range")
        described = {member.client_id: member for member in found.members}
        assert {
            name: {(at.topic, at.partition) for at in member.assignment.topic_partitions}
            for name, member in described.items()
        } == {"one": one.owned, "other": other.owned}
        assert (described["one"].group_instance_id, described["other"].group_instance_id) == ("static", None)
        assert {member.host for member in found.members} == {"/127.0.0.1"}  # as Java writes addresses
        assert all(member.member_id for member in found.members)
    assert group in listed(driver)


def test_groups_are_listed_by_state_and_type(group_broker: BrokerProcess, topic: str) -> None:
    driver = ConfluentDriver(group_broker.kafka)
    driver.create_topic(topic, 2)
    names = {kind: f"{topic}-{kind}" for kind in TYPES}
    empty = f"{topic}-empty"
    ConfluentCommitter(group_broker.kafka, empty).commit({(topic, 0): (1, "")})
    mine = {*names.values(), empty}

    def of_mine(**filters: object) -> dict[str, tuple[ConsumerGroupState, ConsumerGroupType]]:
        return {name: found for name, found in listed(driver, **filters).items() if name in mine}

    with (
        crew(group_broker.kafka, names["confluent-classic"], topics=(topic,)) as classic,
        crew(group_broker.kafka, names["confluent-consumer"], topics=(topic,)) as newer,
    ):
        classic.join("confluent-classic")
        newer.join("confluent-consumer")
        for members in (classic, newer):
            members.wait_for_balance(places_of(topic, 2))
        stable = {name: (ConsumerGroupState.STABLE, TYPES[kind]) for kind, name in names.items()}
        without_members = {empty: (ConsumerGroupState.EMPTY, ConsumerGroupType.CLASSIC)}
        wait_until(lambda: of_mine() == stable | without_members, "two stable groups")
        assert of_mine(states={ConsumerGroupState.STABLE}) == stable
        assert of_mine(states={ConsumerGroupState.EMPTY}) == without_members
        assert of_mine(types={ConsumerGroupType.CONSUMER}).keys() == {names["confluent-consumer"]}
        assert of_mine(types={ConsumerGroupType.CLASSIC}).keys() == {names["confluent-classic"], empty}
        assert of_mine(states={ConsumerGroupState.EMPTY}, types={ConsumerGroupType.CONSUMER}) == {}
    wait_until(lambda: {state for state, _ in of_mine().values()} == {ConsumerGroupState.EMPTY}, "empty groups")


def test_a_group_that_is_not_there_is_described_as_dead(group_broker: BrokerProcess) -> None:
    found = describe(ConfluentDriver(group_broker.kafka), "nowhere")
    assert (found.state, list(found.members)) == (ConsumerGroupState.DEAD, [])


@pytest.mark.parametrize("kind", TYPES)
def test_offsets_of_an_empty_group_can_be_moved_and_its_next_member_begins_there(
    group_broker: BrokerProcess, topic: str, kind: str
) -> None:
    driver = ConfluentDriver(group_broker.kafka)
    driver.create_topic(topic, PARTITIONS)
    driver.produce(topic, numbered(60))
    group, places = f"{topic}-group", places_of(topic, PARTITIONS)
    with crew(group_broker.kafka, group, topics=(topic,)) as members:
        first = members.join(kind)
        members.wait_for(60)
        assert move(driver, group, {places[0]: 3}) == {places[0]: ErrorCode.UNKNOWN_MEMBER_ID}
        members.leave(first)
        assert offsets_of(driver, group) == dict.fromkeys(places, 10)
        assert move(driver, group, {places[0]: 3, places[1]: 9}) == dict.fromkeys(places[:2], ErrorCode.NONE)
        assert offsets_of(driver, group) == {**dict.fromkeys(places, 10), places[0]: 3, places[1]: 9}
        second = members.join(kind)
        wait_until(lambda: len(second.got) == 8, "what lies beyond the moved offsets")
    assert sorted((got.place, got.offset) for got in second.got) == [
        *((places[0], offset) for offset in range(3, 10)),
        (places[1], 9),
    ]


@pytest.mark.parametrize("kind", TYPES)
def test_only_a_group_without_members_can_be_deleted(group_broker: BrokerProcess, topic: str, kind: str) -> None:
    driver = ConfluentDriver(group_broker.kafka)
    driver.create_topic(topic, 2)
    driver.produce(topic, [*numbered(2)])
    group = f"{topic}-group"

    def delete() -> None:
        driver.admin.delete_consumer_groups([group])[group].result(PATIENCE_S)

    with crew(group_broker.kafka, group, topics=(topic,)) as members:
        members.join(kind)
        members.wait_for(2)
        with refused(driver, ErrorCode.NON_EMPTY_GROUP):
            delete()
    assert offsets_of(driver, group) == dict.fromkeys(places_of(topic, 2), 1)
    delete()
    assert group not in listed(driver)
    assert offsets_of(driver, group) == {}
    with refused(driver, ErrorCode.GROUP_ID_NOT_FOUND):
        delete()


def test_aiokafka_sees_groups_and_offsets(group_broker: BrokerProcess, topic: str) -> None:
    driver = AiokafkaDriver(group_broker.kafka)
    driver.create_topic(topic, 2)
    group = f"{topic}-group"
    with crew(group_broker.kafka, group, topics=(topic,)) as members:
        member = members.join("aiokafka", client_id="one")
        members.wait_for_balance(places_of(topic, 2))
        (answer,) = driver.administer(lambda admin: admin.describe_consumer_groups([group]))
        ((code, name, state, protocol_type, protocol, described, *_),) = answer.groups
        assert (code, name, state, protocol_type, protocol) == (0, group, "Stable", "consumer", "range")
        assert [client_id for _, client_id, *_ in described] == ["one"]
        assert (group, "consumer") in {
            (entry[0], entry[1]) for entry in driver.administer(lambda admin: admin.list_consumer_groups())
        }
        assert member.owned == set(places_of(topic, 2))
    ConfluentCommitter(group_broker.kafka, f"{group}-2").commit({(topic, 1): (7, "text")})
    found = driver.administer(lambda admin: admin.list_consumer_group_offsets(f"{group}-2"))
    assert {(at.topic, at.partition): (one.offset, one.metadata) for at, one in found.items()} == {
        (topic, 1): (7, "text\0")
    }


def test_kafka_python_sees_and_changes_groups(group_broker: BrokerProcess, topic: str) -> None:
    driver = KafkaPythonDriver(group_broker.kafka)
    driver.create_topic(topic, 2)
    driver.produce(topic, [*numbered(2)])
    group, places = f"{topic}-group", [KafkaPythonPartition(topic, number) for number in range(2)]
    with driver.admin() as admin:
        with crew(group_broker.kafka, group, topics=(topic,)) as members:
            members.join("kafka-python", client_id="one")
            members.wait_for(2)
            found = admin.describe_groups([group])[group]
            assert (found["error"], found["group_state"], found["protocol_data"]) == (None, "Stable", "range")
            assert [member["client_id"] for member in found["members"]] == ["one"]
            assert group in {one["group_id"] for one in admin.list_groups(states_filter=["Stable"])}
            assert group not in {one["group_id"] for one in admin.list_groups(types_filter=["consumer"])}
            refusals = admin.delete_group_offsets(group, places)
            assert {error.errno for error in refusals.values()} == {ErrorCode.GROUP_SUBSCRIBED_TO_TOPIC}
        assert admin.alter_group_offsets(group, {places[1]: OffsetAndMetadata(0, "again", -1)}).keys() == {places[1]}
        offsets = admin.list_group_offsets(group)[group]
        assert {at: (one.offset, one.metadata) for at, one in offsets.items()} == {
            places[0]: (1, ""),
            places[1]: (0, "again"),
        }
        reset = admin.reset_group_offsets(group, {places[1]: OffsetSpec.LATEST})
        assert reset[places[1]]["offset"] == 1
        deleted = admin.delete_group_offsets(group, places[:1])
        assert [error.errno for error in deleted.values()] == [0]
        assert admin.list_group_offsets(group)[group].keys() == {places[1]}
        admin.delete_groups([group])
        assert group not in {one["group_id"] for one in admin.list_groups()}


def test_an_administrator_can_remove_a_static_member(group_broker: BrokerProcess, topic: str) -> None:
    """KIP-345: the others need not wait until its session ends."""
    driver = KafkaPythonDriver(group_broker.kafka)
    driver.create_topic(topic, 2)
    group = f"{topic}-group"
    with crew(group_broker.kafka, group, topics=(topic,), session_ms=60_000) as members, driver.admin() as admin:
        gone = members.join("confluent-classic", instance_id="gone")
        members.join("confluent-classic", instance_id="here")
        members.wait_for_balance(places_of(topic, 2))
        members.leave(gone)
        removed = admin.remove_group_members(group, [MemberToRemove(group_instance_id="gone")])
        assert [error.errno for error in removed.values()] == [0]
        members.wait_for_balance(places_of(topic, 2))


def test_the_offsets_of_a_topic_go_with_it(group_broker: BrokerProcess, topic: str) -> None:
    driver = ConfluentDriver(group_broker.kafka)
    for name in (topic, f"{topic}-other"):
        driver.create_topic(name)
    group = f"{topic}-group"
    ConfluentCommitter(group_broker.kafka, group).commit({(topic, 0): (3, ""), (f"{topic}-other", 0): (4, "")})
    driver.delete_topic(topic)
    wait_until(lambda: offsets_of(driver, group) == {(f"{topic}-other", 0): 4}, "the offset is gone")
    driver.create_topic(topic)
    assert offsets_of(driver, group) == {(f"{topic}-other", 0): 4}
