"""confluent-kafka's share consumer works off topics and queues (KIP-932)."""

import json
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

import pytest
from confluent_kafka import AcknowledgeType, KafkaException, Message, ShareConsumer
from confluent_kafka.admin import ResourceType

from tests.brokers import BrokerProcess

from .driver_confluent import QUIET, ConfluentDriver
from .share_raw import earliest
from .waiting import wait_until

POLL_S = 0.2


@contextmanager
def share_consumer(broker: BrokerProcess, group: str, topic: str, **options: Any) -> Iterator[ShareConsumer]:
    """A consumer that has subscribed; its options by librdkafka's names with `_` for `.`."""
    named = {name.replace("_", "."): value for name, value in options.items()}
    with ShareConsumer({"bootstrap.servers": broker.kafka, "group.id": group, **QUIET, **named}) as consumer:
        consumer.subscribe([topic])
        yield consumer


def poll(consumer: ShareConsumer, count: int) -> list[Message]:
    """So many messages, however many polls that takes."""
    found: list[Message] = []

    def look() -> bool:
        for message in consumer.poll(POLL_S):
            assert message.error() is None
            found.append(message)
        return len(found) >= count

    wait_until(look, f"{count} messages", timeout_s=40, seen=found)
    return found


@pytest.fixture
def jobs(share_broker: BrokerProcess, topic: str) -> str:
    """A topic with two partitions, whose group begins at the beginning."""
    ConfluentDriver(share_broker.kafka).create_topic(topic, partitions=2)
    earliest(share_broker, f"g-{topic}")
    return topic


def produce(broker: BrokerProcess, topic: str, count: int, start: int = 0) -> set[bytes]:
    values = [f"job-{number}".encode() for number in range(start, start + count)]
    producer = ConfluentDriver(broker.kafka).producer()
    for value in values:
        producer.produce(topic, value)
    assert producer.flush(30) == 0
    return set(values)


def test_consumers_share_the_work_and_each_message_is_done_once(share_broker: BrokerProcess, jobs: str) -> None:
    with (
        share_consumer(share_broker, f"g-{jobs}", jobs, max_poll_records=10) as one,
        share_consumer(share_broker, f"g-{jobs}", jobs, max_poll_records=10) as two,
    ):
        sent = produce(share_broker, jobs, 200)
        done: list[bytes] = []
        shares = [0, 0]

        def look() -> bool:
            for index, consumer in enumerate((one, two)):
                values = [message.value() for message in consumer.poll(POLL_S)]
                shares[index] += len(values)
                done.extend(values)
            if len(done) < len(sent):
                return False
            if not all(shares):  # one was not assigned anything before the other was done: there is more work
                sent.update(produce(share_broker, jobs, 20, start=len(sent)))
            return all(shares)

        wait_until(look, "all of it, by both", timeout_s=40, seen=shares)
        assert sorted(done) == sorted(sent)
        assert not any((one.commit_sync(20) | two.commit_sync(20)).values())
    assert ConfluentDriver(share_broker.kafka).range(jobs)[0] == 0, "the topic keeps what it has"


def test_messages_are_accepted_released_and_rejected(share_broker: BrokerProcess, jobs: str) -> None:
    produce(share_broker, jobs, 3)
    group = f"g-{jobs}"
    with share_consumer(share_broker, group, jobs, share_acknowledgement_mode="explicit") as consumer:
        found = {message.value(): message for message in poll(consumer, 3)}
        assert {message.delivery_count() for message in found.values()} == {1}
        consumer.acknowledge(found[b"job-0"], AcknowledgeType.ACCEPT)
        consumer.acknowledge(found[b"job-1"], AcknowledgeType.RELEASE)
        consumer.acknowledge(found[b"job-2"], AcknowledgeType.REJECT)
        assert not any(consumer.commit_sync(20).values())
        (again,) = poll(consumer, 1)
        assert (again.value(), again.delivery_count()) == (b"job-1", 2)
        consumer.acknowledge(again)
        assert not any(consumer.commit_sync(20).values())
        assert list(consumer.poll(POLL_S)) == []


WORKER = """
import json, sys
from confluent_kafka import ShareConsumer
consumer = ShareConsumer({"bootstrap.servers": sys.argv[1], "group.id": sys.argv[2], "log_level": 0,
                          "share.acknowledgement.mode": "explicit"})
consumer.subscribe([sys.argv[3]])
found = []
while len(found) < 5:
    found += [message.value().decode() for message in consumer.poll(0.2)]
print(json.dumps(found), flush=True)
sys.stdin.read()
"""


def test_messages_of_a_killed_worker_are_redelivered_at_once(share_broker: BrokerProcess, jobs: str) -> None:
    short = [("share.session.timeout.ms", "SET", "3000")]
    ConfluentDriver(share_broker.kafka).incremental(ResourceType.GROUP, f"g-{jobs}", short)
    sent = produce(share_broker, jobs, 5)
    command = [sys.executable, "-c", WORKER, share_broker.kafka, f"g-{jobs}", jobs]
    with subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True) as worker:
        assert worker.stdout is not None
        assert {value.encode() for value in json.loads(worker.stdout.readline())} == sent
        worker.kill()
    # The lock lasts thirty seconds; the test does not wait for it.
    with share_consumer(share_broker, f"g-{jobs}", jobs) as consumer:
        found = poll(consumer, 5)
    assert {message.value() for message in found} == sent
    assert {message.delivery_count() for message in found} == {2}


def test_a_message_that_always_fails_becomes_a_dead_letter(share_broker: BrokerProcess, jobs: str) -> None:
    driver = ConfluentDriver(share_broker.kafka)
    driver.create_topic(f"dlq.{jobs}")
    changes = [
        ("errors.deadletterqueue.topic.name", "SET", f"dlq.{jobs}"),
        ("share.delivery.count.limit", "SET", "3"),
    ]
    driver.incremental(ResourceType.GROUP, f"g-{jobs}", changes)
    assert driver.configs(ResourceType.GROUP, f"g-{jobs}")["share.delivery.count.limit"].value == "3"
    produce(share_broker, jobs, 1)
    counts = []
    with share_consumer(share_broker, f"g-{jobs}", jobs, share_acknowledgement_mode="explicit") as consumer:
        for _ in range(3):
            (message,) = poll(consumer, 1)
            counts.append(message.delivery_count())
            consumer.acknowledge(message, AcknowledgeType.RELEASE)
            assert not any(consumer.commit_sync(20).values())
        assert list(consumer.poll(POLL_S)) == []
    assert counts == [1, 2, 3]
    (dead,) = driver.consume_from_start(f"dlq.{jobs}", 1)
    assert dead.value == b"job-0"


def test_the_name_of_a_consumer_group_is_refused(share_broker: BrokerProcess, jobs: str) -> None:
    driver = ConfluentDriver(share_broker.kafka)
    with driver.consumer(group_id=f"taken-{jobs}", group_protocol="consumer") as reader:
        reader.subscribe([jobs])
        wait_until(lambda: reader.poll(POLL_S) or reader.assignment(), "it is a member")
        with (
            share_consumer(share_broker, f"taken-{jobs}", jobs) as consumer,
            pytest.raises(KafkaException, match="GROUP_ID_NOT_FOUND"),
        ):
            wait_until(lambda: [message.error() for message in consumer.poll(POLL_S)], "it is refused")
