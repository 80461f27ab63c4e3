import json
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta, timezone
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from penstock.api.core.encoding import JSON, TEXT, encode, encode_value, time_ms
from penstock.api.core.message import Outgoing
from penstock.api.errors import InvalidArgument, InvalidValue
from penstock.foundation.codes import ErrorCode

JSON_VALUES = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats(allow_nan=False, allow_infinity=False) | st.text(),
    lambda inner: st.lists(inner) | st.dictionaries(st.text(), inner),
    max_leaves=20,
)


@dataclass
class Line:
    sku: str
    count: int


@dataclass(frozen=True, slots=True)
class Order:
    id: int
    lines: list[Line]


def test_bytes_go_as_they_are_and_say_nothing_of_their_kind() -> None:
    assert encode_value(b"\x00\xff") == (b"\x00\xff", None)
    assert encode_value(bytearray(b"ab")) == (b"ab", None)
    assert encode_value(memoryview(b"ab")[1:]) == (b"b", None)


def test_none_is_a_tombstone() -> None:
    assert encode_value(None) == (None, None)


def test_text_is_utf_8() -> None:
    assert encode_value("Größe") == ("Größe".encode(), TEXT)


@given(JSON_VALUES.filter(lambda value: value is not None and not isinstance(value, str)))
def test_anything_else_is_json_that_reads_back_the_same(value: Any) -> None:
    data, kind = encode_value(value)
    assert kind == JSON
    assert json.loads(data or b"") == value


def test_nested_dataclasses_are_json_objects() -> None:
    data, kind = encode_value({"order": Order(1, [Line("a", 2)])})
    assert kind == JSON
    assert json.loads(data or b"") == {"order": {"id": 1, "lines": [{"sku": "a", "count": 2}]}}


def test_json_is_compact_and_keeps_its_letters() -> None:
    assert encode_value({"a": "ü", "b": [1, 2]})[0] == '{"a":"ü","b":[1,2]}'.encode()


@pytest.mark.parametrize("value", [{1, 2}, object(), float("nan"), [float("inf")], datetime.now(UTC), Order, 1j])
def test_values_that_json_cannot_encode_are_refused_with_advice(value: object) -> None:
    with pytest.raises(InvalidValue, match=r"give bytes, str, or what json\.dumps takes") as caught:
        encode_value(value)
    assert caught.value.code is ErrorCode.INVALID_RECORD


def test_a_value_that_contains_itself_is_refused() -> None:
    value: list[object] = []
    value.append(value)
    with pytest.raises(InvalidValue):
        encode_value(value)


def test_letters_that_are_no_unicode_are_refused() -> None:
    with pytest.raises(InvalidValue, match="UTF-8"):
        encode_value("\ud800")
    with pytest.raises(InvalidValue, match="a key cannot be written"):
        encode("orders", Outgoing(b"", key="\ud800"))


def test_the_content_type_is_a_header_and_so_is_the_tag() -> None:
    encoded = encode("orders", Outgoing({"id": 1}, tag="eu", headers={"trace": "abc", "none": None}))
    assert encoded.headers == [("content-type", JSON), ("trace", b"abc"), ("none", None), ("tag", b"eu")]


def test_a_content_type_that_is_given_is_the_one() -> None:
    encoded = encode("orders", Outgoing({"id": 1}, headers=[("content-type", "application/vnd.x+json")]))
    assert encoded.headers == [("content-type", b"application/vnd.x+json")]


def test_a_header_may_come_more_than_once() -> None:
    assert encode("t", Outgoing(b"", headers=[("a", "1"), ("a", b"2")])).headers == [("a", b"1"), ("a", b"2")]


def test_a_header_that_is_no_text_is_refused_by_name() -> None:
    with pytest.raises(InvalidValue, match="header 'count' is a int"):
        encode("orders", Outgoing(b"", headers={"count": 1}))  # type: ignore[dict-item]


def test_keys_are_bytes_or_text() -> None:
    assert encode("orders", Outgoing(b"", key="42")).key == b"42"
    assert encode("orders", Outgoing(b"", key=b"\xff")).key == b"\xff"
    assert encode("orders", Outgoing(b"", key="")).key == b""
    assert encode("orders", Outgoing(b"")).key is None
    with pytest.raises(InvalidValue, match="a key is a int"):
        encode("orders", Outgoing(b"", key=42))  # type: ignore[arg-type]


def test_a_message_may_say_where_it_goes() -> None:
    assert encode("orders", Outgoing(b"")).topic == "orders"
    assert encode("orders", Outgoing(b"", topic="other")).topic == "other"


def test_a_partition_is_a_number_from_zero() -> None:
    assert encode("orders", Outgoing(b"")).partition == -1
    assert encode("orders", Outgoing(b"", partition=3)).partition == 3
    with pytest.raises(InvalidArgument, match="partition -1 is invalid"):
        encode("orders", Outgoing(b"", partition=-1))


@pytest.mark.parametrize(
    ("time", "expected"),
    [
        (datetime(2026, 1, 1, tzinfo=UTC), 1_767_225_600_000),
        (datetime(2026, 1, 1, 1, tzinfo=timezone(timedelta(hours=1))), 1_767_225_600_000),
        (datetime(2026, 1, 1, 0, 0, 0, 1500, tzinfo=UTC), 1_767_225_600_002),
        (1_767_225_600_001, 1_767_225_600_001),
    ],
)
def test_times_are_milliseconds_or_have_a_zone(time: datetime | int, expected: int) -> None:
    assert time_ms(time, "timestamp") == expected
    assert encode("orders", Outgoing(b"", timestamp=time)).timestamp_ms == expected


@pytest.mark.parametrize(
    ("time", "hint"),
    [
        (datetime(2026, 1, 1), "tzinfo=UTC"),
        (datetime(1969, 1, 1, tzinfo=UTC), "before 1970"),
        (-1, "before 1970"),
        (2**63, "too large"),
        (0, "mean now"),
    ],
)
def test_a_time_that_cannot_be_written_is_refused(time: datetime | int, hint: str) -> None:
    with pytest.raises(InvalidArgument, match=hint):
        encode("orders", Outgoing(b"", timestamp=time))
