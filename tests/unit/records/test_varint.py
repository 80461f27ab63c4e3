import pytest
from hypothesis import given
from hypothesis import strategies as st

from penstock.foundation.errors import CorruptMessage
from penstock.records.varint import decode_varint, decode_varlong, encode_varint


@pytest.mark.parametrize(
    ("value", "encoded"),
    [(0, "00"), (-1, "01"), (1, "02"), (-64, "7f"), (64, "8001"), (300, "d804"), (2**31 - 1, "feffffff0f")],
)
def test_numbers_are_zigzag_encoded_seven_bits_a_byte(value: int, encoded: str) -> None:
    assert encode_varint(value).hex() == encoded


@given(st.integers(-(2**31), 2**31 - 1), st.binary(max_size=3))
def test_a_length_reads_back_and_says_where_it_ends(value: int, rest: bytes) -> None:
    encoded = encode_varint(value)
    assert decode_varint(b"." + encoded + rest, 1) == (value, 1 + len(encoded))


@given(st.integers(-(2**63), 2**63 - 1), st.binary(max_size=3))
def test_a_timestamp_delta_reads_back_and_says_where_it_ends(value: int, rest: bytes) -> None:
    encoded = encode_varint(value)
    assert decode_varlong(b"." + encoded + rest, 1) == (value, 1 + len(encoded))


@pytest.mark.parametrize("encoded", ["ffffffff10", "ffffffffff01", "808080808000"])
def test_a_length_of_more_than_32_bits_is_refused(encoded: str) -> None:
    with pytest.raises(CorruptMessage, match="too long"):
        decode_varint(bytes.fromhex(encoded), 0)


def test_a_timestamp_delta_of_more_than_64_bits_is_refused() -> None:
    with pytest.raises(CorruptMessage, match="too long"):
        decode_varlong(b"\xff" * 9 + b"\x02", 0)
