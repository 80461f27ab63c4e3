"""Percent-decoding: same results as urllib, much faster."""

from urllib.parse import quote_from_bytes, unquote_to_bytes

import pytest
from hypothesis import given
from hypothesis import strategies as st

from penstock.foundation.percent import unescape
from tests.scaling import GROWTH_MAX, cpu_s, growth

PIECES = st.sampled_from(
    [b"a", b"=", b"+", b"&", b"\xff", b"\n", b"\r\n", b" ", b"_", b"%41", b"%3D", b"%3d", b"%25"]
)


@given(st.lists(PIECES).map(b"".join))
def test_escapes_are_decoded_as_urllib_does(text: bytes) -> None:
    assert unescape(text) == unquote_to_bytes(text)


@given(st.binary().filter(lambda data: b"\0" not in data))
def test_an_escaped_text_is_decoded_to_the_original(data: bytes) -> None:
    assert unescape(quote_from_bytes(data).encode()) == data
    assert unescape(data.replace(b"%", b"%25")) == data


@pytest.mark.parametrize(
    "wrong", [b"%", b"%4", b"%4g", b"%g4", b"%%", b"%%41", b"%=41", b"%\n", b"%\r\n", b"%\r", b"% 41"]
)
@pytest.mark.parametrize("around", [b"", b"a", b"%41", b"=", b"\n", b"%3D"])
def test_a_wrong_escape_is_refused(wrong: bytes, around: bytes) -> None:
    assert unescape(around + wrong) is None
    assert unescape(wrong + b"-" + around) is None
    assert unescape(around + wrong + b"-" + around) is None


def test_a_nul_is_decoded_unless_there_is_an_equals_sign() -> None:
    assert unescape(b"a%00\0") == b"a\0\0"
    assert unescape(b"a=%00") is None
    assert unescape(b"a=\0") is None


@pytest.mark.parametrize("text", [b"%41", b"%", b"=%41", b"%C3%A9", b"a%3D="])
def test_it_takes_linear_time(text: bytes) -> None:
    assert growth(lambda size: lambda data=text * size: unescape(data), 10_000) < GROWTH_MAX


def test_it_takes_a_small_part_of_urllibs_time() -> None:
    text = b"%41" * 20_000
    assert cpu_s(lambda: unescape(text)) < cpu_s(lambda: unquote_to_bytes(text)) / 5
