"""Statements of a queue's policy, added and removed."""

import json

import pytest

from penstock.sqs import errors, limits
from penstock.sqs.errors import SqsError
from penstock.sqs.permissions import check_actions, check_policy, principals_of, with_statement, without_statement
from penstock.sqs.registry import ACTIONS, load_actions

ARN = "arn:aws:sqs:eu-west-1:000000000000:jobs"
PRINCIPAL = "arn:aws:iam::111122223333:root"


def added(policy: str, label: str) -> str:
    return with_statement(policy, ARN, label, [PRINCIPAL], ["SendMessage"])


def test_statements_of_an_existing_policy_are_kept() -> None:
    written = {"Version": "2012-10-17", "Id": "mine", "Statement": {"Effect": "Deny", "Principal": "*"}}
    found = json.loads(added(json.dumps(written), "l"))
    assert (found["Version"], found["Id"]) == ("2012-10-17", "mine")
    assert found["Statement"][0] == written["Statement"]
    assert found["Statement"][1]["Sid"] == "l"
    assert json.loads(without_statement(json.dumps(found), "l")) == {**written, "Statement": [written["Statement"]]}


def test_a_policy_grows_to_its_limits_and_no_further() -> None:
    policy = ""
    for number in range(limits.POLICY_STATEMENTS_MAX):
        policy = added(policy, f"l{number}")
        check_policy(policy)
    with pytest.raises(SqsError, match="at most 20 statements") as raised:
        added(policy, "more")
    assert raised.value.fault is errors.OVER_LIMIT
    long = json.dumps({"Statement": [{"Sid": "x" * (limits.POLICY_BYTES_MAX - 100)}]})
    with pytest.raises(SqsError, match="at most 8192 bytes") as raised:
        added(long, "more")
    assert raised.value.fault is errors.OVER_LIMIT


@pytest.mark.parametrize("policy", ["x", "[]", "{}", '{"Statement": [1]}', "[" * 100_000, "{" * 8000])
def test_a_policy_that_cannot_be_read_is_not_edited(policy: str) -> None:
    for edit in (lambda: added(policy, "l"), lambda: without_statement(policy, "l")):
        with pytest.raises(SqsError) as raised:
            edit()
        assert raised.value.fault is errors.INVALID_ATTRIBUTE_VALUE


def test_an_account_is_named_once_and_there_are_fifty_at_most() -> None:
    assert principals_of(["111122223333", "x", "111122223333"]) == [PRINCIPAL]
    with pytest.raises(SqsError, match="51 Principals were found, maximum allowed is 50") as raised:
        principals_of(["111122223333"] * 51)
    assert raised.value.fault is errors.OVER_LIMIT


def test_actions_that_can_be_shared() -> None:
    """AWS: cross-account permissions do not apply to the actions of the second list."""
    load_actions()
    check_actions(["SendMessage", "ReceiveMessage", "DeleteMessage", "ChangeMessageVisibility"], list(ACTIONS))
    check_actions(["GetQueueAttributes", "GetQueueUrl", "PurgeQueue", "ListDeadLetterSourceQueues"], list(ACTIONS))
    for name in (
        "AddPermission",
        "CancelMessageMoveTask",
        "CreateQueue",
        "DeleteQueue",
        "ListMessageMoveTasks",
        "ListQueueTags",
        "ListQueues",
        "RemovePermission",
        "SetQueueAttributes",
        "StartMessageMoveTask",
        "TagQueue",
        "UntagQueue",
    ):
        with pytest.raises(SqsError, match="Only the queue owner is allowed"):
            check_actions([name], list(ACTIONS))
    with pytest.raises(SqsError, match="appropriate WSDL"):
        check_actions(["SendMessageBatch"], list(ACTIONS))
