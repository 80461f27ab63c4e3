from typing import Any

import pytest

from penstock.api.core.message import Message
from penstock.api.errors import InvalidValue


def message(value: bytes | None = b"", **fields: Any) -> Message:
    given = {"topic": "orders", "partition": 1, "offset": 17, "timestamp_ms": 1, "key": None, "headers": ()}
    return Message(**{**given, "value": value, **fields})


def test_json_and_text_are_read_from_the_value() -> None:
    assert message(b'{"id": 1}').json() == {"id": 1}
    assert message("ü".encode()).text() == "ü"


def test_a_json_error_names_the_message_and_its_value() -> None:
    plain = message(b"hello", headers=(("content-type", b"text/plain"),))
    with pytest.raises(InvalidValue, match=r"offset 17 of partition orders-1 is not JSON .*text/plain"):
        plain.json()
    with pytest.raises(InvalidValue, match="content-type is missing"):
        message(b"\xff").json()
    with pytest.raises(InvalidValue, match="is not JSON"):
        message(b"[" * 100_000).json()


def test_a_value_that_is_not_utf8_raises() -> None:
    with pytest.raises(InvalidValue, match="is not UTF-8"):
        message(b"\xff").text()


def test_a_tombstone_has_no_value_to_read() -> None:
    for read in (message(None).json, message(None).text):
        with pytest.raises(InvalidValue, match="tombstone"):
            read()


def test_the_tag_is_the_last_header_of_that_name() -> None:
    assert message(headers=(("tag", b"eu"), ("x", b"y"), ("tag", b"uk"))).tag == "uk"
    assert message(headers=(("tag", None),)).tag is None
    assert message().tag is None
    assert message(headers=(("a", b"1"), ("a", b"2"))).header("a") == b"2"


def test_messages_are_equal_by_what_they_say_and_can_be_kept_in_sets() -> None:
    assert message(b"a") == message(b"a")
    assert len({message(b"a"), message(b"a"), message(b"b")}) == 2


def test_a_message_without_a_loop_can_be_finished() -> None:
    """Such as one that a user's own test creates."""
    message().done()
    message().retry()
