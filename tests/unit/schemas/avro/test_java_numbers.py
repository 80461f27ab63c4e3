"""Numbers as Java prints and reads them."""

import math
import struct

import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from penstock.schemas.formats.avro.java_numbers import Single, parse_double, print_number, to_single


@pytest.mark.parametrize(
    ("value", "text"),
    [
        (0.0, "0.0"),
        (-0.0, "-0.0"),
        (1.0, "1.0"),
        (-123456.789, "-123456.789"),
        (0.001, "0.001"),
        (0.00099, "9.9E-4"),
        (9999999.0, "9999999.0"),
        (1e7, "1.0E7"),
        (12345678.9, "1.23456789E7"),
        (1e15, "1.0E15"),
        (1e23, "1.0E23"),
        (2e-323, "2.0E-323"),
        (1e-323, "9.9E-324"),
        (5e-324, "4.9E-324"),
        (2.2250738585072014e-308, "2.2250738585072014E-308"),
        (1.7976931348623157e308, "1.7976931348623157E308"),
        (math.inf, "Infinity"),
        (-math.inf, "-Infinity"),
        (math.nan, "NaN"),
    ],
)
def test_doubles_are_printed_as_java_21_does(value: float, text: str) -> None:
    assert print_number(value) == text


@pytest.mark.parametrize(
    ("value", "text"),
    [
        (0.1, "0.1"),
        (-0.0, "-0.0"),
        (16777217.0, "1.6777216E7"),
        (1.17549435e-38, "1.1754944E-38"),
        (3.4028235e38, "3.4028235E38"),
        (3.4028235677973366e38, "Infinity"),
        (-1e300, "-Infinity"),
        (1e-45, "1.4E-45"),
        (3e-45, "2.8E-45"),
        (8.41e21, "8.41E21"),
        (2.0**-44, "5.684342E-14"),
        (9999999.0, "9999999.0"),
        (123.456, "123.456"),
        (math.nan, "NaN"),
    ],
)
def test_floats_are_printed_as_java_21_does(value: float, text: str) -> None:
    assert print_number(to_single(value)) == text


@given(st.floats())
def test_a_printed_double_is_read_as_the_same(value: float) -> None:
    read = parse_double(print_number(value))
    assert read is not None
    assert struct.pack("<d", read) == struct.pack("<d", value) or (math.isnan(read) and math.isnan(value))


@given(st.floats(width=32))
@example(1.1754943508222875e-38)
def test_a_printed_float_is_read_as_the_same(value: float) -> None:
    single = to_single(value)
    assert isinstance(single, Single)
    read = parse_double(print_number(single))
    assert read is not None
    assert to_single(read) == value or math.isnan(value)
    assert len(print_number(single)) <= len("-1.17549435E-38")


@pytest.mark.parametrize(
    ("text", "value"),
    [
        ("1", 1.0),
        (" \t\x001.5\n ", 1.5),
        ("+.5f", 0.5),
        ("5.D", 5.0),
        ("1e3d", 1000.0),
        ("1E-400", 0.0),
        ("-1e400", -math.inf),
        ("Infinity", math.inf),
        ("-Infinity", -math.inf),
        ("0x1p3", 8.0),
        ("-0X.8P1f", -1.0),
        ("0x1.p-1", 0.5),
        ("-0x1p99999", -math.inf),
    ],
)
def test_texts_are_read_as_java_does(text: str, value: float) -> None:
    assert parse_double(text) == value


@pytest.mark.parametrize(
    "text",
    [
        "",
        " ",
        "x",
        "1x",
        "--1",
        "1_0",
        "0x1",
        "0x",
        "1e",
        ".",
        "nan",
        "inf",
        "infinity",
        "\xa01",
        "1L",
        "\u0661",
        "1" * 1001,
    ],
)
def test_texts_that_are_no_numbers_in_java_are_refused(text: str) -> None:
    assert parse_double(text) is None
