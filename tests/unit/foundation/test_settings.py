"""Settings as data: how each kind is parsed, and its errors."""

import pytest

from penstock.foundation.errors import InvalidConfig
from penstock.foundation.settings import INT_MAX, LONG_MAX, Kind, Setting, Table


def setting(kind: Kind, **more: object) -> Setting:
    return Setting(name="it", kind=kind, default="", doc="…", **more)  # type: ignore[arg-type]


@pytest.mark.parametrize(
    ("kind", "text", "value"),
    [
        (Kind.BOOLEAN, "true", True),
        (Kind.BOOLEAN, "FALSE", False),
        (Kind.STRING, " a b ", "a b"),
        (Kind.SHORT, "-32768", -32768),
        (Kind.INT, str(INT_MAX), INT_MAX),
        (Kind.LONG, str(LONG_MAX), LONG_MAX),
        (Kind.LONG, " 7 ", 7),
        (Kind.DOUBLE, "0.5", 0.5),
        (Kind.DOUBLE, "1e3", 1000.0),
        (Kind.LIST, "a, b ,,c", ("a", "b", "c")),
        (Kind.LIST, "", ()),
    ],
)
def test_a_value_is_read_by_its_kind(kind: Kind, text: str, value: object) -> None:
    assert setting(kind).parse(text) == value


@pytest.mark.parametrize(
    ("kind", "text", "expected"),
    [
        (Kind.BOOLEAN, "yes", "true or false"),
        (Kind.BOOLEAN, "", "true or false"),
        (Kind.SHORT, "32768", "a whole number"),
        (Kind.INT, str(INT_MAX + 1), "a whole number"),
        (Kind.INT, "1.0", "a whole number"),
        (Kind.INT, "1_000", "a whole number"),
        (Kind.INT, "٣", "a whole number"),
        (Kind.INT, "0x10", "a whole number"),
        (Kind.LONG, str(LONG_MAX + 1), "a whole number"),
        (Kind.LONG, "", "a whole number"),
        (Kind.DOUBLE, "half", "a number"),
        (Kind.DOUBLE, "nan", "a number"),
        (Kind.DOUBLE, "1_0.5", "a number"),
    ],
)
def test_invalid_values_are_refused_with_the_expected_format(kind: Kind, text: str, expected: str) -> None:
    with pytest.raises(InvalidConfig, match=f"^it={text!r} is not allowed; expected {expected}"):
        setting(kind).parse(text)


def test_bounds_are_part_of_what_is_allowed() -> None:
    bounded = setting(Kind.INT, minimum=3, maximum=5)
    assert [bounded.parse(text) for text in ("3", "5")] == [3, 5]
    for text in ("2", "6"):
        with pytest.raises(InvalidConfig, match="expected a whole number at least 3 at most 5"):
            bounded.parse(text)


def test_a_text_matches_its_pattern_and_the_error_describes_it() -> None:
    digits = setting(Kind.STRING, pattern="[0-9]{2}", form="two digits")
    assert digits.parse(" 17 ") == "17"
    for text in ("1", "173", "1x", "17\n8", ""):
        with pytest.raises(InvalidConfig, match="expected two digits"):
            digits.parse(text)


def test_choices_are_all_that_is_allowed() -> None:
    one = setting(Kind.STRING, choices=("a", "b"))
    assert one.parse("b") == "b"
    with pytest.raises(InvalidConfig, match="expected a or b"):
        one.parse("c")
    several = setting(Kind.LIST, choices=("a", "b"))
    assert several.parse("b,a") == ("b", "a")
    with pytest.raises(InvalidConfig, match="expected a list of a or b"):
        several.parse("a,c")


def test_no_value_is_no_value() -> None:
    with pytest.raises(InvalidConfig, match="it has no value; expected a whole number"):
        setting(Kind.INT).parse(None)


TABLE = Table(
    [
        Setting(name="one", kind=Kind.INT, default="1", doc="…"),
        Setting(name="two", kind=Kind.LIST, default="a,b", doc="…"),
    ]
)


def test_a_table_gives_every_setting_its_value_or_its_default() -> None:
    assert TABLE.parse({}) == {"one": 1, "two": ("a", "b")}
    assert TABLE.parse({"one": "7"}) == {"one": 7, "two": ("a", "b")}
    assert [entry.name for entry in TABLE] == ["one", "two"]


def test_a_table_refuses_names_it_does_not_know() -> None:
    with pytest.raises(InvalidConfig, match="unknown setting 'three'; known are one, two"):
        TABLE.parse({"three": "3"})
    with pytest.raises(InvalidConfig, match="unknown setting"):
        TABLE.get("three")
    assert TABLE.get("one").default == "1"
