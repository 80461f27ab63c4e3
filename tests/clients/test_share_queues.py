"""Share consumers and SQS receivers of one queue get the same messages."""

from collections.abc import Iterator
from typing import Any

import pytest
from confluent_kafka import AcknowledgeType

from penstock.foundation.codes import ErrorCode
from penstock.wire.messages.delete_groups import DeleteGroupsRequest
from penstock.wire.messages.delete_share_group_offsets import (
    DeleteShareGroupOffsetsRequest,
    DeleteShareGroupOffsetsRequestTopic,
)
from tests.brokers import BrokerProcess
from tests.sqs_clients import JSON, sqs_client

from .driver_confluent import ConfluentDriver
from .raw_members import find_coordinator
from .share_raw import ACCEPT, ShareMember, earliest
from .test_share_consumers import POLL_S, poll, share_consumer
from .waiting import wait_until


@pytest.fixture(scope="module")
def sqs(share_broker: BrokerProcess, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Any]:
    client = sqs_client(share_broker.http, JSON, tmp_path_factory.mktemp("models"))
    yield client
    client.close()


def create(sqs: Any, name: str, **attributes: str) -> str:
    url: str = sqs.create_queue(QueueName=name, Attributes=attributes)["QueueUrl"]
    return url


def counts(sqs: Any, url: str) -> tuple[int, int]:
    """Available, and in flight."""
    names = ["ApproximateNumberOfMessages", "ApproximateNumberOfMessagesNotVisible"]
    found = sqs.get_queue_attributes(QueueUrl=url, AttributeNames=names)["Attributes"]
    return int(found[names[0]]), int(found[names[1]])


def test_a_queue_is_worked_off_by_a_share_consumer_and_an_sqs_receiver_side_by_side(
    share_broker: BrokerProcess, sqs: Any, topic: str
) -> None:
    url = create(sqs, topic)
    for start in range(0, 40, 10):
        entries = [{"Id": str(number), "MessageBody": f"job-{number}"} for number in range(start, start + 10)]
        assert len(sqs.send_message_batch(QueueUrl=url, Entries=entries)["Successful"]) == 10
    done: list[str] = []
    shares = {"kafka": 0, "sqs": 0}
    with share_consumer(share_broker, topic, topic, max_poll_records=5) as consumer:

        def look() -> bool:
            values = [message.value().decode() for message in consumer.poll(POLL_S)]
            shares["kafka"] += len(values)
            received = sqs.receive_message(QueueUrl=url, MaxNumberOfMessages=3).get("Messages", [])
            for message in received:
                sqs.delete_message(QueueUrl=url, ReceiptHandle=message["ReceiptHandle"])
            shares["sqs"] += len(received)
            done.extend([*values, *(message["Body"] for message in received)])
            return len(done) >= 40

        wait_until(look, "all of it", timeout_s=40, seen=shares)
        assert not any(consumer.commit_sync(20).values())
    assert sorted(done) == sorted(f"job-{number}" for number in range(40)), "each message once"
    assert all(shares.values()), "both have worked"
    assert counts(sqs, url) == (0, 0)


def test_deliveries_by_share_groups_and_by_sqs_are_counted_together(
    share_broker: BrokerProcess, sqs: Any, topic: str
) -> None:
    url = create(sqs, topic, VisibilityTimeout="40")
    sqs.send_message(QueueUrl=url, MessageBody="job")
    with share_consumer(share_broker, topic, topic, share_acknowledgement_mode="explicit") as consumer:
        (message,) = poll(consumer, 1)
        assert (message.value(), message.delivery_count()) == (b"job", 1)
        assert counts(sqs, url) == (0, 1)
        consumer.acknowledge(message, AcknowledgeType.RELEASE)
        assert not any(consumer.commit_sync(20).values())
    received = sqs.receive_message(
        QueueUrl=url, WaitTimeSeconds=20, MessageSystemAttributeNames=["ApproximateReceiveCount"]
    )
    assert received["Messages"][0]["Attributes"] == {"ApproximateReceiveCount": "2"}


def test_a_queue_applies_its_own_settings_to_share_consumers(
    share_broker: BrokerProcess, sqs: Any, topic: str
) -> None:
    dead = create(sqs, f"dead-{topic}")
    arn = sqs.get_queue_attributes(QueueUrl=dead, AttributeNames=["QueueArn"])["Attributes"]["QueueArn"]
    policy = f'{{"deadLetterTargetArn":"{arn}","maxReceiveCount":"1"}}'
    url = create(sqs, topic, VisibilityTimeout="17", RedrivePolicy=policy)
    sqs.send_message(QueueUrl=url, MessageBody="poison")
    member = ShareMember(share_broker, topic, topic).join()
    got = member.ask(max_wait_ms=20_000)
    assert got.acquisition_lock_timeout_ms == 17_000
    assert got.responses[0].partitions[0].acquired_records[0].delivery_count == 1
    member.close_connection()  # it dies of it

    def look() -> Any:
        assert "Messages" not in sqs.receive_message(QueueUrl=url), "it is a dead letter by the next receive"
        return sqs.receive_message(QueueUrl=dead).get("Messages")

    (found,) = wait_until(look, "it is among the dead letters")
    assert found["Body"] == "poison"


def test_a_fifo_queue_is_refused_to_share_consumers(share_broker: BrokerProcess, sqs: Any, topic: str) -> None:
    create(sqs, f"{topic}.fifo", FifoQueue="true")
    member = ShareMember(share_broker, f"{topic}.fifo", f"{topic}.fifo")
    find_coordinator(member.raw, member.group)
    answer = member.beat(0, member.topic)
    assert answer.error_code == ErrorCode.INVALID_REQUEST
    assert "FIFO queue" in answer.error_message
    got = member.fetch()
    assert got[0].error == ErrorCode.INVALID_REQUEST, "nor to those who do not ask the coordinator"
    member.close_connection()


def test_a_queue_attached_to_a_topic_is_next_to_share_groups_of_other_names(
    share_broker: BrokerProcess, sqs: Any, topic: str
) -> None:
    url = create(sqs, topic)
    sqs.send_message(QueueUrl=url, MessageBody="for all")
    earliest(share_broker, f"audit-{topic}")
    member = ShareMember(share_broker, f"audit-{topic}", topic).join()
    assert member.take(1) == [0]
    assert member.acknowledge((0, 0, [ACCEPT])) == ErrorCode.NONE
    member.close_connection()
    assert counts(sqs, url) == (1, 0), "the queue has it still"
    assert [message.value for message in ConfluentDriver(share_broker.kafka).consume_from_start(topic, 1)] == [
        b"for all"
    ]


def test_a_queue_is_not_deleted_with_the_group_of_its_name(share_broker: BrokerProcess, sqs: Any, topic: str) -> None:
    url = create(sqs, topic)
    sqs.send_message(QueueUrl=url, MessageBody="first")
    member = ShareMember(share_broker, topic, topic).join()
    assert member.take(1) == [0]
    assert member.acknowledge((0, 0, [ACCEPT])) == ErrorCode.NONE
    assert member.described(0)[0].start_offset == 1
    member.beat(-1)
    topics = [DeleteShareGroupOffsetsRequestTopic(topic_name=topic)]
    (refused,) = member.raw.ask(DeleteShareGroupOffsetsRequest(group_id=topic, topics=topics), 0).responses
    assert refused.error_code == ErrorCode.INVALID_REQUEST
    (deleted,) = member.raw.ask(DeleteGroupsRequest(groups_names=(topic,)), 2).results
    assert deleted.error_code == ErrorCode.NONE
    assert "Messages" not in sqs.receive_message(QueueUrl=url), "what was done is done"
    assert member.described(0)[0].start_offset == 1, "a queue is a group without members, too"
    member.close_connection()
