"""The headers by which producers delay a message."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from penstock.foundation.delays import (
    DELAY,
    DELAY_HEADERS,
    DELAY_LEVEL,
    DELAY_MAX_MS,
    DELIVER_AT,
    LEVELS_MS,
    BadDelay,
    DeliveryTime,
    check_delivery_time,
    parse_delivery_time,
)

NOW_MS = 1_800_000_000_000


@pytest.mark.parametrize(
    ("name", "text", "delivery_time"),
    [
        (DELAY, b"500ms", DeliveryTime(None, 500)),
        (DELAY, b"30s", DeliveryTime(None, 30_000)),
        (DELAY, b" 1.5m ", DeliveryTime(None, 90_000)),
        (DELAY, b"2h", DeliveryTime(None, 7_200_000)),
        (DELAY, b"365d", DeliveryTime(None, DELAY_MAX_MS)),
        (DELAY, b"0s", DeliveryTime(None, 0)),
        (DELAY_LEVEL, b"1", DeliveryTime(None, 1000)),
        (DELAY_LEVEL, b"18", DeliveryTime(None, 7_200_000)),
        (DELIVER_AT, b"1893456000000", DeliveryTime(1_893_456_000_000, 0)),
        (DELIVER_AT, b"0", DeliveryTime(0, 0)),
        (DELIVER_AT, b"2030-01-01T00:00:00Z", DeliveryTime(1_893_456_000_000, 0)),
        (DELIVER_AT, b"2030-01-01T02:00:00.5+02:00", DeliveryTime(1_893_456_000_500, 0)),
    ],
)
def test_times_and_delays_are_read(name: str, text: bytes, delivery_time: DeliveryTime) -> None:
    assert parse_delivery_time(name, text) == delivery_time
    check_delivery_time(delivery_time, delivery_time.at_ms or NOW_MS)


@pytest.mark.parametrize(
    ("name", "text"),
    [
        *((DELAY, text) for text in (b"", b"30", b"-1s", b"1 s", b"1y", b"1e3s", b"\xff", None, b"s", b"1ss")),
        *((DELAY_LEVEL, text) for text in (b"0", b"19", b"-1", b"1.5", b"x", b"", b"\xd9\xa1", None)),
        *((DELIVER_AT, text) for text in (b"", b"soon", b"-5", b"1800000000", b"2030-01-01", b"2030-01-01T00:00:00")),
        (DELIVER_AT, b"9" * 30),
        (DELIVER_AT, None),
    ],
)
def test_invalid_headers_are_refused(name: str, text: bytes | None) -> None:
    with pytest.raises(BadDelay):
        parse_delivery_time(name, text)


def test_nothing_is_delayed_for_more_than_a_year() -> None:
    check_delivery_time(DeliveryTime(NOW_MS + DELAY_MAX_MS, 0), NOW_MS)
    for delivery_time in (DeliveryTime(NOW_MS + DELAY_MAX_MS + 1, 0), DeliveryTime(None, DELAY_MAX_MS + 1)):
        with pytest.raises(BadDelay, match="365 days"):
            check_delivery_time(delivery_time, NOW_MS)


def test_levels_are_those_of_rocketmq() -> None:
    minutes = [60_000 * number for number in (*range(1, 11), 20, 30, 60, 120)]
    assert list(LEVELS_MS) == [1000, 5000, 10_000, 30_000, *minutes]


@given(name=st.sampled_from(DELAY_HEADERS), text=st.binary(max_size=40))
def test_any_bytes_are_a_time_or_refused(name: str, text: bytes) -> None:
    try:
        delivery_time = parse_delivery_time(name, text)
    except BadDelay:
        return
    assert delivery_time.due_ms(NOW_MS) >= 0
