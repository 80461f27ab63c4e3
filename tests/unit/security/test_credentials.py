"""Credential files: their contents, and errors of invalid ones."""

import json

import pytest

from penstock.security.credentials import DEFAULT_OWNER, parse_credentials
from penstock.security.errors import InvalidCredentials

FULL = """
keys:
  - access_key: AKIAPAYMENTS
    secret: 4f0c9d8e7b6a
    owner: "111122223333"
    actions: [SendMessage, Receive*, "sqs:Delete?essage"]
    queues: [payments-*, audit]
  - access_key: AKIAADMIN
    secret: another-secret
"""


def test_a_key_has_an_account_and_permissions() -> None:
    keys = parse_credentials(FULL).keys
    payments, admin = keys["AKIAPAYMENTS"], keys["AKIAADMIN"]
    assert (payments.owner, admin.owner) == ("111122223333", DEFAULT_OWNER)
    assert [
        name for name in ("SendMessage", "ReceiveMessage", "DeleteMessage", "DeleteQueue") if payments.may(name)
    ] == [
        "SendMessage",
        "ReceiveMessage",
        "DeleteMessage",
    ]
    assert [name for name in ("payments-eu", "payments", "audit", "audit2") if payments.may_use(name)] == [
        "payments-eu",
        "audit",
    ]
    assert admin.may("DeleteQueue")
    assert admin.may_use("anything.fifo")


def test_json_is_read_as_well() -> None:
    text = json.dumps({"keys": [{"access_key": "AKIA1", "secret": "12345678", "queues": []}]})
    key = parse_credentials(text).keys["AKIA1"]
    assert key.may("SendMessage")
    assert not key.may_use("jobs"), "no pattern, no queue"


def test_a_short_secret_is_taken() -> None:
    assert parse_credentials("keys: [{access_key: test, secret: test}]").keys["test"].secret == "test"


def test_no_secret_is_ever_shown() -> None:
    assert "4f0c9d8e7b6a" not in repr(parse_credentials(FULL))


@pytest.mark.parametrize(
    ("text", "said"),
    [
        ("", "expected one list named 'keys'"),
        ("- a", "expected one list named 'keys'"),
        ("keys: {}", "expected one list named 'keys'"),
        ("keys: [", "line 1 is neither YAML nor JSON"),
        pytest.param("keys: " + "[" * 20_000, "it is nested too deeply", id="deep"),
        ("keys:\n  - [1]", "key 1: expected access_key and secret, got list"),
        ("keys:\n  - secret: 12345678x", "key 1: access_key is missing"),
        ("keys:\n  - {access_key: AK1, secret: ''}", "key 1: secret is missing"),
        ("keys:\n  - {access_key: AK1, secret: 12345678}", "secret is a number"),
        ("keys:\n  - {access_key: 'a b', secret: abcdefgh}", "access_key 'a b' is not 3 to 128"),
        ("keys:\n  - {access_key: AK1, secret: abcdefgh, owner: 111122223333}", "put it in quotes"),
        ("keys:\n  - {access_key: AK1, secret: abcdefgh, owner: 'a/b'}", "owner 'a/b' is not"),
        ("keys:\n  - {access_key: AK1, secret: abcdefgh, action: [x]}", "unknown field 'action'; known are"),
        ("keys:\n  - {access_key: AK1, secret: abcdefgh, actions: x}", "actions must be a list of patterns"),
        ("keys:\n  - {access_key: AK1, secret: abcdefgh, queues: [1]}", "queues must be a list of patterns"),
        (
            "keys:\n  - {access_key: AK1, secret: abcdefgh}\n  - {access_key: AK1, secret: abcdefgh}",
            "key 2: access_key 'AK1' is given twice",
        ),
    ],
)
def test_errors_of_a_file_are_reported_without_secrets(text: str, said: str) -> None:
    with pytest.raises(InvalidCredentials) as raised:
        parse_credentials(text)
    assert said in str(raised.value)
    assert "abcdefgh" not in str(raised.value)
