import pytest
from hypothesis import given
from hypothesis import strategies as st

from penstock.foundation.address import Address
from penstock.foundation.durations import parse_duration

UNITS_S = {"ms": 0.001, "s": 1, "": 1, "m": 60, "min": 60, "h": 3600, "d": 86_400}


@given(number=st.integers(0, 10**6), unit=st.sampled_from(sorted(UNITS_S)), blank=st.sampled_from(["", " "]))
def test_a_duration_is_a_number_and_a_unit(number: int, unit: str, blank: str) -> None:
    assert parse_duration(f"{number}{blank}{unit}") == pytest.approx(number * UNITS_S[unit])


@pytest.mark.parametrize("text", ["", "s", "-1s", "1w", "1s 2m", "1e3", "٣s"])
def test_an_invalid_duration_is_refused_with_the_format(text: str) -> None:
    with pytest.raises(ValueError, match="30s, 5m, 2h, 1d"):
        parse_duration(text)


@pytest.mark.parametrize(
    ("listen", "found"), [("0.0.0.0:1", "q:1"), ("[::]:1", "q:1"), ("127.0.0.1:1", "127.0.0.1:1"), ("h:1", "h:1")]
)
def test_a_wildcard_address_is_advertised_as_the_given_host(listen: str, found: str) -> None:
    assert str(Address.parse(listen).advertised_as("q")) == found
