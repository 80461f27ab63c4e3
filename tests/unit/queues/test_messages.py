"""Ids and receipts of messages."""

import uuid
from base64 import urlsafe_b64encode

import pytest
from hypothesis import HealthCheck, given
from hypothesis import strategies as st

from penstock.queues.errors import InvalidReceipt
from penstock.queues.messages import GROUP_BYTES_MAX, Receipt, message_group, message_id
from tests.examples import examples

TOPIC = bytes(range(16))
HANDLE = Receipt(TOPIC, 3, 77, "ada").to_handle()


def test_a_message_id_is_a_uuid_of_its_own() -> None:
    places = [(topic, partition, offset) for topic in (TOPIC, bytes(16)) for partition in (0, 1) for offset in (0, 1)]
    ids = {message_id(*harness) for harness in places}
    assert len(ids) == 8
    for text in ids:
        assert str(uuid.UUID(text)) == text
        assert uuid.UUID(text).variant == uuid.RFC_4122
        assert text[14] == "8"
    assert message_id(TOPIC, 1, 2) == message_id(TOPIC, 1, 2)


PARTITION = st.integers(0, 2**31 - 1)
OFFSET = st.integers(0, 2**63 - 1)


@examples(50, deadline=None, suppress_health_check=[HealthCheck.too_slow])
@given(st.binary(min_size=16, max_size=16), PARTITION, OFFSET, st.text("aé-7", min_size=1))
def test_a_receipt_is_read_as_it_was_given(topic: bytes, partition: int, offset: int, holder: str) -> None:
    receipt = Receipt(topic, partition, offset, holder)
    assert Receipt.of(receipt.to_handle()) == receipt


@pytest.mark.parametrize(
    "handle",
    [
        "",
        "receipt",
        "é" * 50,
        HANDLE[:-4],
        HANDLE + "====",
        HANDLE[:-8],
        " " + HANDLE,
        HANDLE.replace(HANDLE[0], "B", 1),
        urlsafe_b64encode(b"\x01" + TOPIC + b"\xff" * 12 + b"ada").decode(),
        urlsafe_b64encode(b"\x01" + TOPIC + bytes(12) + b"\xff").decode(),
        Receipt(TOPIC, 3, 77, "").to_handle(),
    ],
)
def test_a_receipt_that_is_none_of_ours_is_refused(handle: str) -> None:
    if handle == HANDLE[:-4]:  # cut in the holder's name, it is the receipt of another holder
        assert Receipt.of(handle).holder != "ada"
        return
    with pytest.raises(InvalidReceipt, match="receipt handle"):
        Receipt.of(handle)


def test_the_message_group_is_the_key() -> None:
    assert message_group(b"customer") == "customer"
    assert message_group(None) == message_group(b"") == ""
    assert message_group(b"\xff\x01") != message_group(b"\xfe\x01")


def test_long_keys_are_different_groups_if_they_differ_anywhere() -> None:
    long = b"x" * 5000
    groups = {message_group(key) for key in (long, long + b"a", long + b"b")}
    assert len(groups) == 3
    assert {len(group) for group in groups} == {GROUP_BYTES_MAX}
