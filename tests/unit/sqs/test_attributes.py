"""Queue attributes: parsed into settings, and returned as they were set."""

import json
from typing import Any

import pytest

from penstock.cluster.queues import QueueSettings, Redrive, RedriveAllow
from penstock.sqs import errors, limits
from penstock.sqs.attributes import changed, new_settings, shown
from penstock.sqs.errors import SqsError

POLICY = '{"Version": "2012-10-17", "Statement": {"Sid": "one"}}'
DEAD = "arn:aws:sqs:eu-west-1:000000000000:dead"


def arn(name: str) -> str:
    return f"arn:aws:sqs:eu-west-1:000000000000:{name}"


def test_a_queue_without_attributes_has_awss_defaults() -> None:
    assert shown(new_settings({}), arn) == {
        "VisibilityTimeout": "30",
        "DelaySeconds": "0",
        "ReceiveMessageWaitTimeSeconds": "0",
        "MaximumMessageSize": "1048576",
        "MessageRetentionPeriod": "345600",
        "SqsManagedSseEnabled": "true",
    }


@pytest.mark.parametrize(
    "attributes",
    [
        {"VisibilityTimeout": "43200", "DelaySeconds": "900", "ReceiveMessageWaitTimeSeconds": "20"},
        {"MaximumMessageSize": "1024", "MessageRetentionPeriod": "60"},
        {"Policy": POLICY, "KmsMasterKeyId": "alias/aws/sqs"},
        {"KmsMasterKeyId": "alias/mine", "KmsDataKeyReusePeriodSeconds": "60", "SqsManagedSseEnabled": "false"},
        {"SqsManagedSseEnabled": "true"},
        {"SqsManagedSseEnabled": "false"},
        {"RedrivePolicy": f'{{"deadLetterTargetArn":"{DEAD}","maxReceiveCount":3}}'},
        {"RedriveAllowPolicy": '{"redrivePermission":"denyAll"}'},
        {"RedriveAllowPolicy": f'{{"redrivePermission":"byQueue","sourceQueueArns":["{DEAD}"]}}'},
        {"FifoQueue": "true", "ContentBasedDeduplication": "true"},
        {"FifoQueue": "true", "DeduplicationScope": "messageGroup", "FifoThroughputLimit": "perMessageGroupId"},
        {"PenstockPartitions": "7", "PenstockRetentionPeriod": "31536000"},
    ],
)
def test_attributes_are_returned_as_they_were_set(attributes: dict[str, str]) -> None:
    found = shown(new_settings(attributes), arn)
    assert {name: found[name] for name in attributes} == attributes


def test_settings_that_are_kept_come_back_the_same_from_the_store() -> None:
    settings = new_settings(
        {
            "FifoQueue": "true",
            "RedrivePolicy": json.dumps({"deadLetterTargetArn": DEAD, "maxReceiveCount": "7"}),
            "RedriveAllowPolicy": json.dumps({"redrivePermission": "byQueue", "sourceQueueArns": [DEAD]}),
            "Policy": POLICY,
        }
    )
    assert settings.redrive == Redrive(queue="dead", max_receive_count=7)
    assert settings.redrive_allow == RedriveAllow(permission="byQueue", queues=("dead",))
    assert QueueSettings.read(json.loads(json.dumps(settings.dump()))) == settings


@pytest.mark.parametrize(
    ("name", "values"),
    [
        ("VisibilityTimeout", ["-1", "43201", "x", "", "1.5", "٣"]),
        ("DelaySeconds", ["901", "-1"]),
        ("ReceiveMessageWaitTimeSeconds", ["21"]),
        ("MaximumMessageSize", ["1023", "1048577"]),
        ("MessageRetentionPeriod", ["59", "1209601", "9" * 30]),
        ("PenstockRetentionPeriod", ["59", str(limits.LONG_RETENTION_S.most + 1)]),
        ("PenstockPartitions", ["0", "1001"]),
        ("KmsDataKeyReusePeriodSeconds", ["59", "86401"]),
        ("SqsManagedSseEnabled", ["yes"]),
        ("Policy", ["x", "[]", "{}", '{"Statement": []}', '{"Statement": "x"}', '{"Statement": [1]}', "[" * 8000]),
        ("Policy", [POLICY + " " * limits.POLICY_BYTES_MAX]),
        ("KmsMasterKeyId", ["x" * (limits.OTHER_BYTES_MAX + 1)]),
    ],
)
def test_a_value_that_is_out_of_bounds_is_refused(name: str, values: list[str]) -> None:
    for value in values:
        with pytest.raises(SqsError, match=f"Invalid value for the parameter {name}") as raised:
            new_settings({name: value})
        assert raised.value.fault is errors.INVALID_ATTRIBUTE_VALUE


@pytest.mark.parametrize("name", ["Nonsense", "QueueArn", "CreatedTimestamp", "ApproximateNumberOfMessages", "All"])
def test_attributes_that_cannot_be_set_are_unknown(name: str) -> None:
    with pytest.raises(SqsError, match=rf"Unknown Attribute {name}\.") as raised:
        new_settings({name: "1"})
    assert raised.value.fault is errors.INVALID_ATTRIBUTE_NAME


def test_a_standard_queue_has_no_attributes_of_a_fifo_queue() -> None:
    for name, said in (
        ("ContentBasedDeduplication", "Unknown Attribute ContentBasedDeduplication."),
        ("DeduplicationScope", "You can specify the DeduplicationScope only when FifoQueue is set to true."),
        ("FifoThroughputLimit", "You can specify the FifoThroughputLimit only when FifoQueue is set to true."),
    ):
        with pytest.raises(SqsError) as raised:
            new_settings({name: "true"})
        assert (raised.value.fault, raised.value.message) == (errors.INVALID_ATTRIBUTE_NAME, said)


def test_the_kind_of_a_queue_never_changes() -> None:
    with pytest.raises(SqsError, match="Modifying queue type is not supported") as raised:
        changed(QueueSettings(is_fifo=True), {"FifoQueue": "false"})
    assert raised.value.fault is errors.INVALID_ATTRIBUTE_VALUE
    for value in ("true", "false"):
        with pytest.raises(SqsError, match=r"Unknown Attribute FifoQueue\.") as raised:
            changed(QueueSettings(), {"FifoQueue": value})
        assert raised.value.fault is errors.INVALID_ATTRIBUTE_NAME
    assert changed(QueueSettings(is_fifo=True), {"FifoQueue": "true"}) == QueueSettings(is_fifo=True)
    with pytest.raises(SqsError, match="Unknown Attribute FifoQueue"):
        new_settings({"FifoQueue": "false"})


def test_high_throughput_needs_deduplication_by_message_group() -> None:
    with pytest.raises(SqsError, match="FifoThroughputLimit"):
        new_settings({"FifoQueue": "true", "FifoThroughputLimit": "perMessageGroupId"})


def test_the_number_of_partitions_is_for_new_queues() -> None:
    settings = new_settings({"PenstockPartitions": "3"})
    assert changed(settings, {"PenstockPartitions": "3"}) == settings
    with pytest.raises(SqsError, match="PenstockPartitions"):
        changed(settings, {"PenstockPartitions": "4"})


@pytest.mark.parametrize(
    ("policy", "said"),
    [
        ("nonsense", "not a valid JSON map"),
        ("[" * 100_000, "not a valid JSON map of at most 16384 characters"),
        (json.dumps({"maxReceiveCount": [[]] * 6000}), "not a valid JSON map of at most 16384 characters"),
        ("[]", "not a valid JSON map"),
        ({"maxReceiveCount": 1}, "mandatory attribute: deadLetterTargetArn"),
        ({"deadLetterTargetArn": DEAD}, "mandatory attribute: maxReceiveCount"),
        ({"deadLetterTargetArn": DEAD, "maxReceiveCount": 0}, "maxReceiveCount: 0, valid values are from 1 to 1000"),
        ({"deadLetterTargetArn": DEAD, "maxReceiveCount": 1001}, "maxReceiveCount: 1001"),
        ({"deadLetterTargetArn": DEAD, "maxReceiveCount": True}, "maxReceiveCount: True"),
        ({"deadLetterTargetArn": DEAD, "maxReceiveCount": 1.5}, "maxReceiveCount: 1.5"),
        ({"deadLetterTargetArn": "dead", "maxReceiveCount": 1}, "Invalid value for deadLetterTargetArn"),
        ({"deadLetterTargetArn": 5, "maxReceiveCount": 1}, "Invalid value for deadLetterTargetArn"),
        ({"deadLetterTargetArn": DEAD, "maxReceiveCount": 1, "more": 2}, "Only following attributes are supported"),
    ],
)
def test_a_redrive_policy_that_makes_no_sense_is_refused(policy: Any, said: str) -> None:
    text = policy if isinstance(policy, str) else json.dumps(policy)
    with pytest.raises(SqsError) as raised:
        new_settings({"RedrivePolicy": text})
    assert raised.value.fault is errors.INVALID_PARAMETER_VALUE
    assert said in raised.value.message
    assert len(raised.value.message) < 2000


@pytest.mark.parametrize("empty", ["", "{}"])
def test_an_empty_policy_ends_the_one_that_was_there(empty: str) -> None:
    settings = QueueSettings(
        redrive=Redrive(queue="dead", max_receive_count=1), redrive_allow=RedriveAllow(permission="denyAll")
    )
    assert changed(settings, {"RedrivePolicy": empty, "RedriveAllowPolicy": empty}) == QueueSettings()


@pytest.mark.parametrize(
    "policy",
    [
        {"redrivePermission": "maybe"},
        {"redrivePermission": "byQueue"},
        {"redrivePermission": "allowAll", "sourceQueueArns": [DEAD]},
        {"redrivePermission": "byQueue", "sourceQueueArns": [DEAD] * 11},
        {"redrivePermission": "byQueue", "sourceQueueArns": ["dead"]},
        {"redrivePermission": "byQueue", "sourceQueueArns": DEAD},
        {"redrivePermission": "allowAll", "more": 1},
    ],
)
def test_a_redrive_allow_policy_that_makes_no_sense_is_refused(policy: dict[str, Any]) -> None:
    with pytest.raises(SqsError, match="RedriveAllowPolicy") as raised:
        new_settings({"RedriveAllowPolicy": json.dumps(policy)})
    assert raised.value.fault is errors.INVALID_PARAMETER_VALUE


def test_attributes_without_effect_are_kept_and_can_be_removed() -> None:
    settings = new_settings({"Policy": POLICY})
    assert settings.others == {"Policy": POLICY}
    assert changed(settings, {"Policy": ""}).others == {}


def encryption(settings: QueueSettings) -> dict[str, str]:
    return {name: value for name, value in shown(settings, arn).items() if name.startswith(("Kms", "SqsManaged"))}


def test_a_queue_has_one_kind_of_encryption() -> None:
    """As AWS shows it, recorded by LocalStack: a key of KMS ends the SSE of SQS's own, which stays off after it."""
    settings = changed(QueueSettings(), {"KmsMasterKeyId": "k", "KmsDataKeyReusePeriodSeconds": "6000"})
    assert encryption(settings) == {
        "KmsMasterKeyId": "k",
        "KmsDataKeyReusePeriodSeconds": "6000",
        "SqsManagedSseEnabled": "false",
    }
    without = changed(settings, {"KmsMasterKeyId": "", "KmsDataKeyReusePeriodSeconds": "300"})
    assert encryption(without) == {"SqsManagedSseEnabled": "false"}
    assert encryption(changed(settings, {"SqsManagedSseEnabled": "true"})) == {"SqsManagedSseEnabled": "true"}
    assert encryption(changed(QueueSettings(), {"KmsMasterKeyId": "k"})) == {
        "KmsMasterKeyId": "k",
        "KmsDataKeyReusePeriodSeconds": "300",
        "SqsManagedSseEnabled": "false",
    }
    made_before = QueueSettings(others={"KmsMasterKeyId": "k"})
    assert encryption(made_before)["SqsManagedSseEnabled"] == "false"


@pytest.mark.parametrize("enabled", ["true", "True"])
def test_two_kinds_of_encryption_at_once_are_refused(enabled: str) -> None:
    with pytest.raises(SqsError, match="You can either enable KMS SSE or SQS SSE") as raised:
        changed(QueueSettings(), {"SqsManagedSseEnabled": enabled, "KmsMasterKeyId": "k"})
    assert raised.value.fault is errors.INVALID_ATTRIBUTE_NAME
