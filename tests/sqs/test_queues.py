"""Queues with boto3 in both protocols: created, listed, changed, tagged, deleted."""

import json
import time
from typing import Any

import pytest

from .queue_calls import attributes_of, bodies, code_of, counts, message_of, receive, refused


def test_a_queue_is_created_found_and_deleted(sqs: Any, name: str) -> None:
    url = sqs.create_queue(QueueName=name)["QueueUrl"]
    assert url.endswith(f"/000000000000/{name}")
    assert sqs.get_queue_url(QueueName=name)["QueueUrl"] == url
    assert sqs.list_queues(QueueNamePrefix=name)["QueueUrls"] == [url]
    sqs.delete_queue(QueueUrl=url)
    assert "QueueUrls" not in sqs.list_queues(QueueNamePrefix=name)
    for ask in (
        lambda: sqs.get_queue_url(QueueName=name),
        lambda: sqs.send_message(QueueUrl=url, MessageBody="x"),
        lambda: sqs.delete_queue(QueueUrl=url),
    ):
        with refused() as raised:
            ask()
        assert code_of(raised) == "AWS.SimpleQueueService.NonExistentQueue"
    with pytest.raises(sqs.exceptions.QueueDoesNotExist):
        sqs.purge_queue(QueueUrl=url)


def test_the_url_is_that_of_the_host_that_was_asked(sqs: Any, queue: str) -> None:
    assert queue.startswith(sqs.meta.endpoint_url + "/")


def test_a_queue_that_is_there_is_given_again_if_it_is_the_same(sqs: Any, name: str) -> None:
    attributes = {"VisibilityTimeout": "17", "DelaySeconds": "1"}
    url = sqs.create_queue(QueueName=name, Attributes=attributes)["QueueUrl"]
    assert sqs.create_queue(QueueName=name, Attributes=attributes)["QueueUrl"] == url
    assert sqs.create_queue(QueueName=name)["QueueUrl"] == url
    with refused() as raised:
        sqs.create_queue(QueueName=name, Attributes={"VisibilityTimeout": "17", "DelaySeconds": "2"})
    assert code_of(raised) == "QueueAlreadyExists"
    assert message_of(raised) == (
        "A queue already exists with the same name and a different value for attribute DelaySeconds"
    )


def test_a_queue_can_be_made_again_at_once(sqs: Any, name: str, queue: str) -> None:
    sqs.send_message(QueueUrl=queue, MessageBody="of the first")
    sqs.delete_queue(QueueUrl=queue)
    again = sqs.create_queue(QueueName=name)["QueueUrl"]
    assert receive(sqs, again) == []
    sqs.send_message(QueueUrl=again, MessageBody="of the second")
    assert bodies(receive(sqs, again, wait_s=20)) == ["of the second"]


@pytest.mark.parametrize("bad", ["a b", "a" * 81, "ends.fifo", "a/b", "é"])
def test_a_name_that_aws_does_not_take_is_refused(sqs: Any, bad: str) -> None:
    with refused() as raised:
        sqs.create_queue(QueueName=bad)
    assert code_of(raised) == "InvalidParameterValue"


def test_a_fifo_queue_is_named_so(sqs: Any, name: str, fifo: str) -> None:
    assert attributes_of(sqs, fifo, "FifoQueue", "ContentBasedDeduplication") == {
        "FifoQueue": "true",
        "ContentBasedDeduplication": "false",
    }
    with refused() as raised:
        sqs.create_queue(QueueName=name, Attributes={"FifoQueue": "true"})
    assert code_of(raised) == "InvalidParameterValue"
    sqs.set_queue_attributes(QueueUrl=fifo, Attributes={"FifoQueue": "true"})
    with refused() as raised:
        sqs.set_queue_attributes(QueueUrl=fifo, Attributes={"FifoQueue": "false"})
    assert code_of(raised) == "InvalidAttributeValue"


def test_all_attributes_are_shown(sqs: Any, name: str) -> None:
    before_s = int(time.time())
    url = sqs.create_queue(QueueName=name, Attributes={"Policy": '{"Statement": [{"Sid": "<kept> & shown"}]}'})[
        "QueueUrl"
    ]
    found = attributes_of(sqs, url)
    created_s = int(found.pop("CreatedTimestamp"))
    assert before_s - 1 <= created_s <= time.time() + 1
    assert int(found.pop("LastModifiedTimestamp")) == created_s
    assert found == {
        "ApproximateNumberOfMessages": "0",
        "ApproximateNumberOfMessagesNotVisible": "0",
        "ApproximateNumberOfMessagesDelayed": "0",
        "DelaySeconds": "0",
        "MaximumMessageSize": "1048576",
        "MessageRetentionPeriod": "345600",
        "Policy": '{"Statement": [{"Sid": "<kept> & shown"}]}',
        "QueueArn": f"arn:aws:sqs:eu-west-1:000000000000:{name}",
        "ReceiveMessageWaitTimeSeconds": "0",
        "SqsManagedSseEnabled": "true",
        "VisibilityTimeout": "30",
    }
    assert "Attributes" not in sqs.get_queue_attributes(QueueUrl=url)
    assert attributes_of(sqs, url, "DelaySeconds", "VisibilityTimeout") == {
        "DelaySeconds": "0",
        "VisibilityTimeout": "30",
    }
    with refused() as raised:
        attributes_of(sqs, url, "Nonsense")
    assert code_of(raised) == "InvalidAttributeName"


def test_attributes_are_changed_one_by_one(sqs: Any, queue: str) -> None:
    before = attributes_of(sqs, queue)
    sqs.set_queue_attributes(QueueUrl=queue, Attributes={"VisibilityTimeout": "5", "KmsMasterKeyId": "alias/x"})
    after = attributes_of(sqs, queue)
    assert {name for name in after if after[name] != before.get(name)} - {"LastModifiedTimestamp"} == {
        "VisibilityTimeout",
        "KmsMasterKeyId",
        "KmsDataKeyReusePeriodSeconds",
        "SqsManagedSseEnabled",
    }
    for name, value, code in (
        ("VisibilityTimeout", "-1", "InvalidAttributeValue"),
        ("MaximumMessageSize", "1", "InvalidAttributeValue"),
        ("Nonsense", "1", "InvalidAttributeName"),
        ("ContentBasedDeduplication", "true", "InvalidAttributeName"),
        ("FifoQueue", "true", "InvalidAttributeName"),
        ("FifoQueue", "false", "InvalidAttributeName"),
        ("RedrivePolicy", "nonsense", "InvalidParameterValue"),
    ):
        with refused() as raised:
            sqs.set_queue_attributes(QueueUrl=queue, Attributes={name: value})
        assert code_of(raised) == code
    assert attributes_of(sqs, queue) == after


def test_queues_are_listed_a_page_at_a_time(sqs: Any, name: str) -> None:
    urls = [sqs.create_queue(QueueName=f"{name}-{letter}")["QueueUrl"] for letter in "cabde"]
    first = sqs.list_queues(QueueNamePrefix=f"{name}-", MaxResults=2)
    assert first["QueueUrls"] == sorted(urls)[:2]
    pages = sqs.get_paginator("list_queues").paginate(QueueNamePrefix=f"{name}-", PaginationConfig={"PageSize": 2})
    assert [url for page in pages for url in page["QueueUrls"]] == sorted(urls)
    with refused() as raised:
        sqs.list_queues(MaxResults=1001)
    assert code_of(raised) == "InvalidParameterValue"


def test_the_owner_of_a_queue_can_be_named(sqs: Any, name: str, queue: str) -> None:
    assert sqs.get_queue_url(QueueName=name, QueueOwnerAWSAccountId="000000000000")["QueueUrl"] == queue
    with refused() as raised:
        sqs.get_queue_url(QueueName=name, QueueOwnerAWSAccountId="111122223333")
    assert code_of(raised) == "AWS.SimpleQueueService.NonExistentQueue"


def test_tags_are_set_replaced_and_taken_off(sqs: Any, name: str) -> None:
    url = sqs.create_queue(QueueName=name, tags={"team": "a", "stage": "test"})["QueueUrl"]
    assert sqs.list_queue_tags(QueueUrl=url)["Tags"] == {"team": "a", "stage": "test"}
    sqs.tag_queue(QueueUrl=url, Tags={"team": "b & <c>", "empty": ""})
    assert sqs.list_queue_tags(QueueUrl=url)["Tags"] == {"team": "b & <c>", "stage": "test", "empty": ""}
    sqs.untag_queue(QueueUrl=url, TagKeys=["team", "never"])
    assert sqs.list_queue_tags(QueueUrl=url)["Tags"] == {"stage": "test", "empty": ""}
    sqs.untag_queue(QueueUrl=url, TagKeys=["stage", "empty"])
    assert "Tags" not in sqs.list_queue_tags(QueueUrl=url)


def test_a_purged_queue_is_empty_and_goes_on(sqs: Any, queue: str) -> None:
    for number in range(5):
        sqs.send_message(QueueUrl=queue, MessageBody=str(number))
    held = receive(sqs, queue, 2, 20)
    assert len(held) == 2
    sqs.purge_queue(QueueUrl=queue)
    sqs.purge_queue(QueueUrl=queue)
    assert counts(sqs, queue) == (0, 0, 0)
    sqs.delete_message(QueueUrl=queue, ReceiptHandle=held[0]["ReceiptHandle"])
    sqs.send_message(QueueUrl=queue, MessageBody="after")
    assert bodies(receive(sqs, queue, wait_s=20)) == ["after"]


def test_permissions_are_statements_of_the_policy(sqs: Any, name: str, queue: str) -> None:
    arn = f"arn:aws:sqs:eu-west-1:000000000000:{name}"
    accounts = ["111122223333", "444455556666"]
    sqs.add_permission(QueueUrl=queue, Label="first", AWSAccountIds=accounts, Actions=["ReceiveMessage"])
    first = {
        "Sid": "first",
        "Effect": "Allow",
        "Principal": {"AWS": [f"arn:aws:iam::{account}:root" for account in accounts]},
        "Action": "SQS:ReceiveMessage",
        "Resource": arn,
    }
    policy = {"Version": "2008-10-17", "Id": f"{arn}/SQSDefaultPolicy", "Statement": [first]}
    assert json.loads(attributes_of(sqs, queue, "Policy")["Policy"]) == policy
    actions = ["SendMessage", "*"]
    sqs.add_permission(QueueUrl=queue, Label="second", AWSAccountIds=["111122223333", "none"], Actions=actions)
    second = {
        **first,
        "Sid": "second",
        "Principal": {"AWS": "arn:aws:iam::111122223333:root"},
        "Action": ["SQS:SendMessage", "SQS:*"],
    }
    assert json.loads(attributes_of(sqs, queue, "Policy")["Policy"])["Statement"] == [first, second]
    sqs.remove_permission(QueueUrl=queue, Label="first")
    assert json.loads(attributes_of(sqs, queue, "Policy")["Policy"]) == {**policy, "Statement": [second]}
    sqs.remove_permission(QueueUrl=queue, Label="second")
    assert "Policy" not in attributes_of(sqs, queue)


@pytest.mark.parametrize(
    ("changes", "code", "said"),
    [
        (
            {"Label": "taken"},
            "InvalidParameterValue",
            "Value taken for parameter Label is invalid. Reason: Already exists.",
        ),
        ({"Label": "a b"}, "InvalidParameterValue", "Can only include alphanumeric characters"),
        ({"Label": "a" * 81}, "InvalidParameterValue", "1 to 80 in length"),
        ({"Actions": []}, "MissingParameter", "The request must contain the parameter Actions."),
        ({"Actions": ["SendMessage"] * 8}, "OverLimit", "8 Actions were found, maximum allowed is 7."),
        (
            {"Actions": ["RemovePermission"]},
            "InvalidParameterValue",
            "Value SQS:RemovePermission for parameter ActionName is invalid. Reason: Only the queue owner is allowed "
            "to invoke this action.",
        ),
        (
            {"Actions": ["Nonsense"]},
            "InvalidParameterValue",
            "Value SQS:Nonsense for parameter ActionName is invalid. Reason: Please refer to the appropriate WSDL "
            "for a list of valid actions.",
        ),
        (
            {"AWSAccountIds": []},
            "InvalidParameterValue",
            "Value [] for parameter PrincipalId is invalid. Reason: Unable to verify.",
        ),
        ({"AWSAccountIds": ["1"]}, "InvalidParameterValue", "Value [1] for parameter PrincipalId is invalid."),
    ],
)
def test_a_permission_that_makes_no_sense_is_refused(
    sqs: Any, queue: str, changes: dict[str, Any], code: str, said: str
) -> None:
    wanted = {"QueueUrl": queue, "Label": "taken", "AWSAccountIds": ["111122223333"], "Actions": ["SendMessage"]}
    sqs.add_permission(**wanted)
    before = attributes_of(sqs, queue, "Policy")
    with refused() as raised:
        sqs.add_permission(**{**wanted, "Label": "other", **changes})
    assert code_of(raised) == code
    assert said in message_of(raised)
    assert attributes_of(sqs, queue, "Policy") == before
    with refused() as raised:
        sqs.remove_permission(QueueUrl=queue, Label="none")
    assert message_of(raised) == "Value none for parameter Label is invalid. Reason: can't find label."


def test_a_dead_letter_queue_must_be_there_of_the_same_kind_and_willing(
    sqs: Any, name: str, queue: str, fifo: str
) -> None:
    def policy(target: str) -> dict[str, str]:
        arn = f"arn:aws:sqs:eu-west-1:000000000000:{target}"
        return {"RedrivePolicy": json.dumps({"deadLetterTargetArn": arn, "maxReceiveCount": 2})}

    closed = sqs.create_queue(
        QueueName=f"{name}-closed", Attributes={"RedriveAllowPolicy": '{"redrivePermission":"denyAll"}'}
    )["QueueUrl"]
    for target in (f"{name}-none", f"{name}.fifo", name, f"{name}-closed"):
        with refused() as raised:
            sqs.set_queue_attributes(QueueUrl=queue, Attributes=policy(target))
        assert code_of(raised) == "InvalidParameterValue", target
        assert message_of(raised).startswith(
            f"Value {policy(target)['RedrivePolicy']} for parameter RedrivePolicy is"
        )
    with refused() as raised:
        sqs.create_queue(QueueName=f"{name}-self", Attributes=policy(f"{name}-self"))
    assert message_of(raised).endswith("Reason: Dead letter target does not exist.")
    sqs.set_queue_attributes(
        QueueUrl=closed,
        Attributes={
            "RedriveAllowPolicy": json.dumps(
                {
                    "redrivePermission": "byQueue",
                    "sourceQueueArns": [f"arn:aws:sqs:eu-west-1:000000000000:{name}"],
                }
            )
        },
    )
    sqs.set_queue_attributes(QueueUrl=queue, Attributes=policy(f"{name}-closed"))
    assert sqs.list_dead_letter_source_queues(QueueUrl=closed)["queueUrls"] == [queue]
    assert json.loads(attributes_of(sqs, queue)["RedrivePolicy"]) == {
        "deadLetterTargetArn": f"arn:aws:sqs:eu-west-1:000000000000:{name}-closed",
        "maxReceiveCount": 2,
    }
    sqs.set_queue_attributes(QueueUrl=queue, Attributes={"RedrivePolicy": ""})
    assert sqs.list_dead_letter_source_queues(QueueUrl=closed).get("queueUrls", []) == []


def test_penstocks_own_attributes_can_be_set(sqs: Any, name: str) -> None:
    url = sqs.create_queue(
        QueueName=name, Attributes={"PenstockPartitions": "3", "PenstockRetentionPeriod": "31536000"}
    )["QueueUrl"]
    found = attributes_of(sqs, url)
    assert (found["PenstockPartitions"], found["PenstockRetentionPeriod"]) == ("3", "31536000")
    sent = {sqs.send_message(QueueUrl=url, MessageBody=str(number))["MessageId"] for number in range(30)}
    assert len(sent) == 30
    assert counts(sqs, url) == (30, 0, 0)
