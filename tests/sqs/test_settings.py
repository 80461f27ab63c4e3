"""Settings of the SQS API: account, region, and AWS's limits."""

from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from botocore import UNSIGNED

from tests.brokers import BrokerProcess
from tests.sqs_clients import PROTOCOLS, sqs_client

from .queue_calls import attributes_of, bodies, code_of, message_of, receive, refused
from .test_clock_set import ClockFile


@pytest.mark.parametrize("protocol", PROTOCOLS)
def test_the_account_and_the_region_can_be_set(
    own_broker: Callable[..., BrokerProcess], models: Path, protocol: str
) -> None:
    broker = own_broker(settings={"sqs.account.id": "123456789012", "sqs.region": "eu-central-1"})
    sqs: Any = sqs_client(broker.http, protocol, models, signature_version=UNSIGNED)
    dead = sqs.create_queue(QueueName="dead")["QueueUrl"]
    assert dead == f"http://{broker.http}/123456789012/dead"
    dead_arn = "arn:aws:sqs:eu-central-1:123456789012:dead"
    assert attributes_of(sqs, dead, "QueueArn") == {"QueueArn": dead_arn}
    policy = f'{{"deadLetterTargetArn":"{dead_arn}","maxReceiveCount":1}}'
    jobs = sqs.create_queue(QueueName="jobs", Attributes={"RedrivePolicy": policy})["QueueUrl"]
    assert attributes_of(sqs, jobs, "RedrivePolicy") == {"RedrivePolicy": policy}
    assert sqs.get_queue_url(QueueName="jobs", QueueOwnerAWSAccountId="123456789012")["QueueUrl"] == jobs
    sqs.send_message(QueueUrl=jobs, MessageBody="x")
    (found,) = receive(sqs, jobs, 1, 20, AttributeNames=["SenderId"], VisibilityTimeout=0)
    assert found["Attributes"] == {"SenderId": "123456789012"}
    receive(sqs, jobs)
    (found,) = receive(sqs, dead, 1, 20, AttributeNames=["DeadLetterQueueSourceArn"])
    assert found["Attributes"] == {"DeadLetterQueueSourceArn": "arn:aws:sqs:eu-central-1:123456789012:jobs"}
    signed: Any = sqs_client(broker.http, protocol, models, region="ap-south-1")
    assert attributes_of(signed, dead, "QueueArn") == {"QueueArn": "arn:aws:sqs:ap-south-1:123456789012:dead"}


def test_queues_of_before_are_in_the_account_that_is_set_now(tmp_path: Path, models: Path) -> None:
    (tmp_path / "broker").mkdir()
    broker = BrokerProcess(tmp_path / "broker").start()
    before: Any = sqs_client(broker.http, "json", models)
    url = before.create_queue(QueueName="jobs")["QueueUrl"]
    before.send_message(QueueUrl=url, MessageBody="kept")
    broker.stop()
    broker = BrokerProcess(tmp_path / "broker", {"sqs.account.id": "123456789012"}).start()
    after: Any = sqs_client(broker.http, "json", models)
    assert after.list_queues()["QueueUrls"] == [f"http://{broker.http}/123456789012/jobs"]
    assert bodies(receive(after, url.replace("/000000000000/", "/123456789012/"), 1, 20)) == ["kept"]
    broker.stop()


@pytest.mark.parametrize(
    ("settings", "said"),
    [
        ({"sqs.account.id": "12345"}, "expected an account id of 12 digits"),
        ({"sqs.region": "Europe"}, "expected the name of a region such as eu-west-1"),
        ({"sqs.limits": "none"}, "expected relaxed or strict"),
    ],
)
def test_a_broker_does_not_start_with_a_setting_that_makes_no_sense(
    tmp_path: Path, settings: dict[str, str], said: str
) -> None:
    with pytest.raises(AssertionError, match=said):
        BrokerProcess(tmp_path, settings).start()


@pytest.mark.parametrize("protocol", PROTOCOLS)
def test_strict_limits_are_those_of_aws(
    own_broker: Callable[..., BrokerProcess], tmp_path: Path, models: Path, protocol: str
) -> None:
    clock = ClockFile(tmp_path / "clock")
    broker = own_broker(settings={"sqs.limits": "strict"}, environment=clock.environment)
    sqs: Any = sqs_client(broker.http, protocol, models)
    url = sqs.create_queue(QueueName="jobs")["QueueUrl"]
    other = sqs.create_queue(QueueName="other")["QueueUrl"]
    sqs.purge_queue(QueueUrl=url)
    sqs.purge_queue(QueueUrl=other)
    with refused() as raised:
        sqs.purge_queue(QueueUrl=url)
    assert code_of(raised) == "AWS.SimpleQueueService.PurgeQueueInProgress"
    assert message_of(raised) == "Only one PurgeQueue operation on jobs is allowed every 60 seconds."
    assert raised.value.response["ResponseMetadata"]["HTTPStatusCode"] == 403
    clock.set_by(61)
    sqs.purge_queue(QueueUrl=url)
    sqs.delete_queue(QueueUrl=url)
    with refused() as raised:
        sqs.create_queue(QueueName="jobs")
    assert code_of(raised) == "AWS.SimpleQueueService.QueueDeletedRecently"
    assert message_of(raised) == (
        "You must wait 60 seconds after deleting a queue before you can create another with the same name."
    )
    assert sqs.create_queue(QueueName="other")["QueueUrl"] == other, "one that is there is given as ever"
    clock.set_by(122)
    assert sqs.create_queue(QueueName="jobs")["QueueUrl"] == url
