"""Policies of queues: what other accounts may do."""

import json
from collections.abc import Callable
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from penstock.security.policies import POLICY_CHARS_MAX, Request, allows, denies
from penstock.security.policy_conditions import (
    CONDITIONS_MAX,
    CURRENT_TIME,
    EPOCH_TIME,
    PRINCIPAL_ACCOUNT,
    SECURE_TRANSPORT,
    SOURCE_IP,
)
from tests.scaling import GROWTH_MAX, growth

ARN = "arn:aws:sqs:eu-west-1:111122223333:jobs"
OTHER = "444455556666"
GRANT = {"Effect": "Allow", "Principal": {"AWS": OTHER}, "Action": "sqs:SendMessage", "Resource": ARN}


def may(*statements: Any, account: str = OTHER, action: str = "SendMessage", resource: str = ARN) -> bool:
    return allows(json.dumps({"Statement": list(statements)}), Request(account, action, resource))


def test_only_granted_actions_are_allowed() -> None:
    assert may(GRANT)
    assert allows(json.dumps({"Statement": GRANT}), Request(OTHER, "SendMessage", ARN)), "one that stands alone"
    assert not may(GRANT, action="ReceiveMessage")
    assert not may(GRANT, account="777788889999")
    assert not may(GRANT, resource=ARN + "2")
    assert not may()


@pytest.mark.parametrize(
    ("principal", "is_allowed"),
    [
        ("*", True),
        ({"AWS": "*"}, True),
        ({"AWS": OTHER}, True),
        ({"AWS": ["777788889999", OTHER]}, True),
        ({"AWS": f"arn:aws:iam::{OTHER}:root"}, True),
        ({"AWS": f"arn:aws-cn:iam::{OTHER}:root"}, True),
        ({"AWS": f"arn:aws:iam::{OTHER}:user/bob"}, False),
        ({"AWS": f"arn:aws:sts::{OTHER}:assumed-role/r/s"}, False),
        ({"AWS": f"arn:aws:iam::{OTHER}:root/x"}, False),
        ({"AWS": OTHER[:-1]}, False),
        ({"AWS": "4444*"}, False),
        ({"AWS": []}, False),
        ({"AWS": [5, None]}, False),
        ({"Service": "sns.amazonaws.com"}, False),
        ({}, False),
        (OTHER, False),
        (None, False),
        (["*"], False),
    ],
)
def test_principals_are_accounts(principal: Any, is_allowed: bool) -> None:
    assert may({**GRANT, "Principal": principal}) is is_allowed


@pytest.mark.parametrize(
    ("principal", "is_denied"),
    [
        ({"AWS": "AIDACKCEVSQ6C2EXAMPLE"}, True),
        ({"AWS": ["777788889999", "AIDACKCEVSQ6C2EXAMPLE"]}, True),
        ({"AWS": OTHER[:-1]}, True),
        ({"AWS": "arn:aws:iam::cloudfront:user/x"}, True),
        ({"CanonicalUser": "79a59df900b949e55d96a1e698fbacedfd6e09d98eacf8f8d5218e7cd47ef2be"}, True),
        ({"AWS": "777788889999"}, False),
        ({"AWS": "arn:aws:iam::777788889999:user/bob"}, False),
        ({"Service": "sns.amazonaws.com"}, False),
        ({"Federated": "cognito-identity.amazonaws.com"}, False),
    ],
)
def test_a_deny_for_a_principal_that_could_be_the_caller_applies(principal: Any, is_denied: bool) -> None:
    assert may(GRANT, {**GRANT, "Effect": "Deny", "Principal": principal}) is not is_denied
    assert may(GRANT, {**GRANT, "Effect": "Deny", "Principal": principal, "Action": "sqs:DeleteMessage"})


@pytest.mark.parametrize(
    ("action", "is_allowed"),
    [
        ("SQS:SendMessage", True),
        ("sqs:sendmessage", True),
        ("sqs:*", True),
        ("*", True),
        ("sqs:Send*", True),
        ("sqs:Send?essage", True),
        (["sqs:ReceiveMessage", "sqs:Send*"], True),
        ("sqs:ReceiveMessage", False),
        ("sns:SendMessage", False),
        ("SendMessage", False),
        ("sqs:[S]endMessage", False),
        ("sqs:Send", False),
        ("", False),
        ([], False),
    ],
)
def test_actions_have_wildcards_and_no_case(action: Any, is_allowed: bool) -> None:
    assert may({**GRANT, "Action": action}) is is_allowed


@pytest.mark.parametrize(
    ("resource", "is_allowed"),
    [
        ("*", True),
        ("arn:aws:sqs:*:111122223333:jobs", True),
        ("arn:aws:sqs:us-east-1:111122223333:jobs", True),
        ("arn:aws:sqs:eu-west-1:111122223333:*", True),
        ("arn:aws:sqs:eu-west-1:111122223333:job?", True),
        (["arn:aws:sqs:eu-west-1:111122223333:other", ARN], True),
        ("arn:aws:sqs:eu-west-1:777788889999:jobs", False),
        ("arn:aws:sqs:eu-west-1:111122223333:JOBS", False),
        ("arn:aws:sqs:eu-west-1:111122223333:job", False),
        ("arn:aws:sqs:eu-west-1:111122223333:${aws:username}", False),
        ([], False),
        (5, False),
    ],
)
def test_resources_have_wildcards_and_their_region_does_not_count(resource: Any, is_allowed: bool) -> None:
    assert may({**GRANT, "Resource": resource}) is is_allowed


@pytest.mark.parametrize(
    "unknown",
    [
        {"Condition": "x"},
        {"Condition": {"StringEquals": {}}},
        {"Condition": {"StringEquals": {"aws:PrincipalAccount": []}}},
        {"Condition": {"StringEquals": {"aws:PrincipalTag/team": "x"}}},
        {"Condition": {"ForAnyValue:StringEquals": {"aws:PrincipalAccount": OTHER}}},
        {"Condition": {"StringEquals": {"aws:PrincipalAccount": "${aws:username}"}}},
        {"Condition": {"StringEquals": {"aws:PrincipalAccount": [OTHER, None]}}},
        {"Condition": {"StringEquals": {"aws:PrincipalAccount": [OTHER] * (CONDITIONS_MAX + 1)}}},
        {"Condition": {"Null": {"aws:SourceIp": "perhaps"}}},
        {"NotAction": "sqs:DeleteQueue"},  # beside Action
        {"NotResource": "x"},
        {"NotPrincipal": {"AWS": "1"}},
        {"Principal": None},
        {"Action": None},
        {"Resource": None},
        {"Resource": "${aws:username}"},
    ],
)
def test_unsupported_conditions_do_not_allow_but_do_deny(unknown: dict[str, Any]) -> None:
    assert not may({**GRANT, **unknown}), "an Allow does not apply"
    assert not may(GRANT, {**GRANT, "Effect": "Deny", **unknown}), "a Deny does"
    assert may(GRANT, {**GRANT, **unknown}), "what else is allowed stays so"


def test_a_deny_outweighs_every_allow_whichever_comes_first() -> None:
    deny = {**GRANT, "Effect": "Deny", "Principal": "*"}
    assert not may(GRANT, deny)
    assert not may(deny, GRANT)
    assert may(GRANT, {**deny, "Action": "sqs:DeleteMessage"})
    assert may(GRANT, {**deny, "Resource": ARN + "2"})
    assert may(GRANT, {**deny, "Principal": {"AWS": "777788889999"}})
    assert not may(GRANT, {**deny, "Principal": {"AWS": f"arn:aws:iam::{OTHER}:user/bob"}}), "keys have no users"
    assert may(GRANT, {"Condition": {}, **GRANT}), "an empty condition is none"


@pytest.mark.parametrize(
    "policy",
    ["", "x", "[]", "null", "{}", '{"Statement": 5}', '{"Statement": ["x"]}', "[" * 100_000, '{"Statement": [{}]}'],
)
def test_a_policy_that_cannot_be_read_allows_nothing(policy: str) -> None:
    assert not allows(policy, Request(OTHER, "SendMessage", ARN))


def test_a_statement_without_an_effect_is_one_that_denies() -> None:
    assert not may(GRANT, {"Effect": "Maybe"})
    assert not may(GRANT, "x")


def test_a_policy_that_is_too_long_allows_nothing() -> None:
    policy = json.dumps({"Statement": [GRANT]})
    assert allows(policy + " " * (POLICY_CHARS_MAX - len(policy)), Request(OTHER, "SendMessage", ARN))
    assert not allows(policy + " " * POLICY_CHARS_MAX, Request(OTHER, "SendMessage", ARN))


def test_many_wildcards_are_matched_in_linear_time() -> None:
    def work(count: int) -> Callable[[], object]:
        resource = "*a" * count + "b"
        return lambda: may({**GRANT, "Resource": resource}, resource="arn:aws:sqs:::" + "a" * 500)

    assert growth(work, 250) < GROWTH_MAX


FACTS = {
    SOURCE_IP: "192.0.2.7",
    SECURE_TRANSPORT: "true",
    PRINCIPAL_ACCOUNT: OTHER,
    CURRENT_TIME: "2026-11-19T12:00:00Z",
    EPOCH_TIME: "1795089600",
}


@pytest.mark.parametrize(
    ("condition", "holds"),
    [
        ({"IpAddress": {"aws:SourceIp": "192.0.2.0/24"}}, True),
        ({"IpAddress": {"aws:SourceIp": ["10.0.0.0/8", "192.0.2.7"]}}, True),
        ({"IpAddress": {"AWS:sourceIP": "198.51.100.0/24"}}, False),
        ({"IpAddress": {"aws:SourceIp": "nonsense"}}, False),
        ({"IpAddress": {"aws:SourceIp": "2001:db8::/32"}}, False),
        ({"NotIpAddress": {"aws:SourceIp": ["10.0.0.0/8", "172.16.0.0/12"]}}, True),
        ({"NotIpAddress": {"aws:SourceIp": ["10.0.0.0/8", "192.0.2.0/24"]}}, False),
        ({"Bool": {"aws:SecureTransport": "true"}}, True),
        ({"Bool": {"aws:SecureTransport": True}}, True),
        ({"bool": {"aws:securetransport": "false"}}, False),
        ({"StringEquals": {"aws:PrincipalAccount": ["1", OTHER]}}, True),
        ({"StringNotEquals": {"aws:PrincipalAccount": ["1", OTHER]}}, False),
        ({"StringLike": {"aws:PrincipalAccount": "4444*"}}, True),
        ({"StringNotLike": {"aws:PrincipalAccount": "5555*"}}, True),
        ({"NumericEquals": {"aws:PrincipalAccount": int(OTHER)}}, True),
        ({"DateGreaterThan": {"aws:CurrentTime": "2026-11-19T13:00:00+02:00"}}, True),
        ({"DateLessThan": {"aws:CurrentTime": "2026-11-19T11:59:59Z"}}, False),
        ({"DateLessThan": {"aws:CurrentTime": "tomorrow"}}, False),
        ({"DateLessThan": {"aws:EpochTime": "1795089601"}}, True),
        ({"NumericLessThan": {"aws:EpochTime": 1795089600}}, False),
        # Keys that this request does not have.
        ({"ArnEquals": {"aws:SourceArn": "arn:aws:sns:*:111122223333:news"}}, False),
        ({"ArnNotEquals": {"aws:SourceArn": "arn:aws:sns:*:111122223333:news"}}, True),
        ({"ArnLikeIfExists": {"aws:SourceArn": "arn:aws:sns:*:111122223333:news"}}, True),
        ({"StringEquals": {"aws:UserAgent": "boto3"}}, False),
        ({"Null": {"aws:SourceVpce": "true"}}, True),
        ({"Null": {"aws:SourceIp": "true"}}, False),
        ({"Null": {"aws:SourceIp": "false"}}, True),
        # All of them must hold.
        ({"Bool": {"aws:SecureTransport": "true"}, "IpAddress": {"aws:SourceIp": "10.0.0.0/8"}}, False),
        ({"IpAddress": {"aws:SourceIp": "192.0.2.7", "aws:SourceVpce": "x"}}, False),
    ],
)
def test_conditions_limit_what_statements_apply_to(condition: dict[str, Any], holds: bool) -> None:
    request = Request(OTHER, "SendMessage", ARN, lambda: FACTS)
    conditional = {**GRANT, "Condition": condition}
    assert allows(json.dumps({"Statement": [conditional]}), request) is holds
    deny = {**conditional, "Effect": "Deny"}
    assert allows(json.dumps({"Statement": [GRANT, deny]}), request) is not holds
    assert denies(json.dumps({"Statement": [deny]}), request) is holds


@pytest.mark.parametrize(
    ("change", "applies"),
    [
        ({"NotAction": "sqs:DeleteQueue", "Action": None}, True),
        ({"NotAction": ["sqs:Send*"], "Action": None}, False),
        ({"NotAction": "s3:*", "Action": None}, True),
        ({"NotResource": ARN, "Resource": None}, False),
        ({"NotResource": ARN + "2", "Resource": None}, True),
        ({"NotPrincipal": {"AWS": OTHER}, "Principal": None}, False),
        ({"NotPrincipal": {"AWS": "777788889999"}, "Principal": None}, True),
        ({"NotPrincipal": "*", "Principal": None}, False),
    ],
)
def test_opposites_apply_to_all_others(change: dict[str, Any], applies: bool) -> None:
    changed = {name: value for name, value in {**GRANT, **change}.items() if value is not None}
    assert may(changed) is applies
    assert may(GRANT, {**changed, "Effect": "Deny"}) is not applies


def test_of_users_and_roles_a_not_principal_leaves_out_too_few_in_a_deny_and_too_many_in_an_allow() -> None:
    """Keys belong to accounts: which user of one signs is not known."""
    bob = {"NotPrincipal": {"AWS": f"arn:aws:iam::{OTHER}:user/bob"}}
    statement = {name: value for name, value in {**GRANT, **bob}.items() if name != "Principal"}
    assert not may(statement)
    assert not may(GRANT, {**statement, "Effect": "Deny"})


def test_the_own_account_is_denied_only_by_statements_that_are_understood() -> None:
    own = Request(ARN.split(":")[4], "SendMessage", ARN, lambda: FACTS)
    deny = {**GRANT, "Effect": "Deny", "Principal": "*"}
    assert denies(json.dumps({"Statement": [deny]}), own)
    assert not denies(json.dumps({"Statement": [GRANT]}), own)
    assert not denies(json.dumps({"Statement": [{**deny, "Principal": {"AWS": OTHER}}]}), own)
    assert not denies(json.dumps({"Statement": [{**deny, "Condition": {"Unknown": {"x": "y"}}}]}), own)
    assert not denies("nonsense", own)


ELEMENTS = ["Effect", "Principal", "NotPrincipal", "AWS", "Action", "NotAction", "Resource", "Condition"]
JSON = st.recursive(
    st.none() | st.booleans() | st.integers() | st.text(max_size=8) | st.sampled_from(["*", "Allow", "Deny", OTHER]),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.sampled_from(ELEMENTS), inner),
    max_leaves=20,
)


@given(JSON)
def test_any_statement_is_evaluated_and_never_allows_by_mistake(statement: Any) -> None:
    found = may(statement)
    if found:
        assert statement["Effect"] == "Allow"
        assert not statement.get("Condition")
