"""Signatures of our own requests, against botocore's."""

from datetime import UTC, datetime

import pytest
from botocore.auth import SigV4Auth
from botocore.awsrequest import AWSRequest
from botocore.credentials import Credentials
from hypothesis import given
from hypothesis import strategies as st

from penstock.client.signing import AccessKeys, keys_of, signed

KEYS = AccessKeys(access_key="AKIATEST", secret_key="a/secret+key", region="eu-west-1")
HEADERS = {
    "host": "queues.example.org:9324",
    "content-type": "application/x-amz-json-1.0",
    "x-amz-target": "AmazonSQS.SendMessage",
}


def by_botocore(headers: dict[str, str], body: bytes, keys: AccessKeys, stamp: str) -> str:
    request = AWSRequest("POST", f"http://{headers['host']}/", headers=headers, data=body)
    auth = SigV4Auth(Credentials(keys.access_key, keys.secret_key, keys.token or None), "sqs", keys.region)
    request.context["timestamp"] = stamp
    auth._modify_request_before_signing(request)
    text = auth.string_to_sign(request, auth.canonical_request(request))
    return auth.signature(text, request)


@given(body=st.binary(max_size=200), at_s=st.integers(10**9, 2 * 10**9), token=st.sampled_from(["", "a-token"]))
def test_a_request_is_signed_as_aws_clients_sign_it(body: bytes, at_s: int, token: str) -> None:
    keys = AccessKeys(access_key="AKIATEST", secret_key="a/secret+key", region="eu-west-1", token=token)
    found = signed(HEADERS, body, "/", keys, 1000 * at_s)
    stamp = datetime.fromtimestamp(at_s, UTC).strftime("%Y%m%dT%H%M%SZ")
    assert found["x-amz-date"] == stamp
    assert found["authorization"].rpartition("Signature=")[2] == by_botocore(HEADERS, body, keys, stamp)


def test_keys_that_are_given_win_over_the_environment() -> None:
    environment = {"AWS_ACCESS_KEY_ID": "A", "AWS_SECRET_ACCESS_KEY": "a", "AWS_SESSION_TOKEN": "t"}
    found = keys_of(environment, "B", "b")
    assert found is not None
    assert (found.access_key, found.secret_key, found.token) == ("B", "b", "")
    theirs = keys_of(environment)
    assert theirs is not None
    assert (theirs.access_key, theirs.token, theirs.region) == ("A", "t", "us-east-1")


def test_without_keys_nothing_is_signed_and_half_a_pair_is_refused() -> None:
    assert keys_of({}) is None
    assert keys_of({"AWS_SECRET_ACCESS_KEY": "a"}) is None
    with pytest.raises(ValueError, match="belong together"):
        keys_of({"AWS_SECRET_ACCESS_KEY": "a"}, "B", None)


def test_secrets_are_not_shown() -> None:
    assert "a/secret+key" not in repr(KEYS)
