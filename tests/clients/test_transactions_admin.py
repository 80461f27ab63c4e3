"""Listing, describing and aborting transactions (KIP-664) with kafka-python."""

from collections.abc import Iterator

import pytest

from penstock.foundation.codes import ErrorCode
from tests.brokers import BrokerProcess

from .driver_confluent import ConfluentDriver
from .driver_kafka_python import AbortTransactionSpec, KafkaAdminClient, KafkaPythonDriver, TopicPartition
from .drivers import Outgoing, refused
from .test_transactions import Open, driver, send_all, transactor
from .transactional_producers import TRANSACTORS, Transactor, read_to_end
from .waiting import wait_until

__all__ = ["driver", "transactor"]


@pytest.fixture
def admin(group_broker: BrokerProcess) -> Iterator[KafkaAdminClient]:
    with KafkaPythonDriver(group_broker.kafka).admin() as client:
        yield client


@pytest.fixture(params=TRANSACTORS)
def ongoing(request: pytest.FixtureRequest, driver: ConfluentDriver, transactor: Open, topic: str) -> Transactor:
    """An open transaction in two of three partitions, of each library's producer in turn."""
    driver.create_topic(topic, 3)
    producer = transactor(request.param, topic, timeout_ms=50_000)
    producer.begin()
    send_all(producer, topic, b"one", b"two")
    send_all(producer, topic, b"three", partition=2)
    producer.flush()
    return producer


def states(admin: KafkaAdminClient, **filters: object) -> dict[str, str]:
    """The states of transactional ids, on all brokers."""
    return {
        found.transactional_id: found.state.value
        for each in admin.list_transactions(**filters).values()
        for found in each
    }


def test_a_transaction_is_described_from_its_beginning_to_its_end(
    admin: KafkaAdminClient, ongoing: Transactor, topic: str
) -> None:
    found = admin.describe_transactions([topic])[topic]
    assert (found.state.value, found.coordinator_id, found.transaction_timeout_ms) == ("Ongoing", 1, 50_000)
    assert found.transaction_start_time_ms > 0
    assert found.topic_partitions == {TopicPartition(topic, 0), TopicPartition(topic, 2)}
    ongoing.commit()
    wait_until(lambda: admin.describe_transactions([topic])[topic].state.value == "CompleteCommit", "it is committed")
    assert admin.describe_transactions([topic])[topic].topic_partitions == set()
    ongoing.begin()
    send_all(ongoing, topic, b"four")
    ongoing.flush()
    ongoing.abort()
    wait_until(lambda: admin.describe_transactions([topic])[topic].state.value == "CompleteAbort", "it is aborted")


def test_transactions_are_listed_by_state_producer_duration_and_name(
    admin: KafkaAdminClient, ongoing: Transactor, transactor: Open, topic: str
) -> None:
    transactor("confluent-kafka", f"{topic}-idle")
    both = {topic: "Ongoing", f"{topic}-idle": "Empty"}
    assert {name: state for name, state in states(admin).items() if name in both} == both
    pattern = f"{topic}(-idle)?"
    assert states(admin, transactional_id_pattern=pattern) == both
    assert states(admin, transactional_id_pattern=pattern, state_filters=["Ongoing"]) == {topic: "Ongoing"}
    assert states(admin, transactional_id_pattern=pattern, duration_filter_ms=0)[topic] == "Ongoing"
    assert topic not in states(admin, transactional_id_pattern=pattern, duration_filter_ms=3_600_000)
    producer_id = admin.describe_transactions([topic])[topic].producer_id
    assert states(admin, producer_id_filters=[producer_id]) == {topic: "Ongoing"}


def test_describe_producers_lists_open_transactions_of_a_partition(
    admin: KafkaAdminClient, ongoing: Transactor, driver: ConfluentDriver, topic: str
) -> None:
    place = TopicPartition(topic, 0)
    described = admin.describe_transactions([topic])[topic]
    (found,) = admin.describe_producers([place])[place].active_producers
    assert (found.producer_id, found.producer_epoch) == (described.producer_id, described.producer_epoch)
    assert (found.last_sequence, found.current_transaction_start_offset) == (1, 0)
    ongoing.commit()

    def open_since() -> set[int]:
        return {
            one.current_transaction_start_offset for one in admin.describe_producers([place])[place].active_producers
        }

    wait_until(lambda: open_since() == {-1}, "nothing is open")


def test_an_administrator_ends_what_hangs_in_one_partition(
    group_broker: BrokerProcess, admin: KafkaAdminClient, ongoing: Transactor, driver: ConfluentDriver, topic: str
) -> None:
    """The coordinator is not asked: where it has forgotten a transaction, it could not be ended otherwise."""
    driver.produce(topic, [Outgoing(value=b"after")])
    assert read_to_end(group_broker.kafka, topic) == []
    found = admin.describe_transactions([topic])[topic]
    admin.abort_transaction(AbortTransactionSpec(TopicPartition(topic, 0), found.producer_id, found.producer_epoch))
    assert read_to_end(group_broker.kafka, topic) == [b"after"]
    assert read_to_end(group_broker.kafka, topic, 2) == [], "the other partition waits on"
    ongoing.abort()
    wait_until(
        lambda: admin.describe_transactions([topic])[topic].state.value == "CompleteAbort",
        "the coordinator ends it too",
    )
    assert read_to_end(group_broker.kafka, topic) == [b"after"]


def test_an_administrator_cannot_end_it_for_a_producer_that_is_fenced(
    group_broker: BrokerProcess, admin: KafkaAdminClient, ongoing: Transactor, topic: str
) -> None:
    found = admin.describe_transactions([topic])[topic]
    stale = AbortTransactionSpec(TopicPartition(topic, 0), found.producer_id, found.producer_epoch - 1)
    with refused(KafkaPythonDriver(group_broker.kafka), ErrorCode.INVALID_PRODUCER_EPOCH):
        admin.abort_transaction(stale)
    ongoing.commit()
    wait_until(lambda: read_to_end(group_broker.kafka, topic) == [b"one", b"two"], "it is committed all the same")


def test_missing_transactions_are_not_described(
    group_broker: BrokerProcess, admin: KafkaAdminClient, driver: ConfluentDriver, topic: str
) -> None:
    with refused(KafkaPythonDriver(group_broker.kafka), ErrorCode.TRANSACTIONAL_ID_NOT_FOUND):
        admin.describe_transactions([f"{topic}-missing"])
    driver.create_topic(topic)
    assert admin.describe_producers([TopicPartition(topic, 0)])[TopicPartition(topic, 0)].active_producers == []
