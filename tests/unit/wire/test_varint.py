import pytest
from hypothesis import given
from hypothesis import strategies as st

from penstock.wire.varint import TAGS_MAX, UVARINT, read_uvarint, skip_tagged_fields, uvarint


@pytest.mark.parametrize(
    ("value", "data"),
    [
        (0, "00"),
        (1, "01"),
        (127, "7f"),
        (128, "8001"),
        (300, "ac02"),
        (16383, "ff7f"),
        (16384, "808001"),
        (2**28, "8080808001"),
        (2**31 - 1, "ffffffff07"),
        (2**32 - 1, "ffffffff0f"),
    ],
)
def test_known_values_and_their_bytes(value: int, data: str) -> None:
    assert uvarint(value).hex() == data
    assert read_uvarint(bytes.fromhex(data), 0) == (value, len(data) // 2)


@given(st.integers(0, 2**32 - 1), st.binary(max_size=3), st.binary(max_size=3))
def test_a_varint_is_read_back_at_any_position(value: int, before: bytes, after: bytes) -> None:
    data = before + uvarint(value) + after
    end = len(data) - len(after)
    assert read_uvarint(data, len(before)) == (value, end)
    assert read_uvarint(memoryview(data), len(before)) == (value, end)


def test_small_values_are_ready_made() -> None:
    assert [data[0] for data in UVARINT] == list(range(128))


def test_a_sixth_byte_is_refused() -> None:
    with pytest.raises(ValueError, match="more than five bytes"):
        read_uvarint(b"\xff" * 5 + b"\x00", 0)


def test_bits_above_the_thirty_second_are_dropped_as_kafka_drops_them() -> None:
    assert read_uvarint(b"\xff\xff\xff\xff\x7f", 0) == (2**32 - 1, 5)


@pytest.mark.parametrize("size", range(5))
def test_a_value_that_does_not_end_is_refused(size: int) -> None:
    with pytest.raises(IndexError):
        read_uvarint(b"\x80" * size, 0)


def test_as_many_tagged_fields_as_are_allowed_are_skipped() -> None:
    fields = b"\x05\x02ab" * TAGS_MAX
    assert skip_tagged_fields(fields, 0, TAGS_MAX) == len(fields)
    with pytest.raises(ValueError, match=f"{TAGS_MAX + 1} tagged fields"):
        skip_tagged_fields(fields + b"\x05\x00", 0, TAGS_MAX + 1)
