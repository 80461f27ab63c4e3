"""Regular expressions of clients."""

import pytest

from penstock.foundation.codes import ErrorCode
from penstock.foundation.errors import InvalidRegularExpression
from penstock.foundation.patterns import PATTERN_CHARS_MAX, Pattern


@pytest.mark.parametrize(
    ("pattern", "yes", "no"),
    [
        ("orders", ["orders"], ["order", "orders1", ""]),
        ("orders-.*", ["orders-", "orders-ä"], ["orders"]),
        ("a|bc", ["a", "bc"], ["b", "abc"]),
        ("^a$", ["a"], ["", "ab"]),
        ("(?i)Orders", ["ORDERS"], ["order"]),
    ],
)
def test_a_pattern_matches_whole_texts(pattern: str, yes: list[str], no: list[str]) -> None:
    compiled = Pattern(pattern)
    assert [text for text in yes if not compiled.matches(text)] == []
    assert [text for text in no if compiled.matches(text)] == []


@pytest.mark.parametrize(
    "pattern",
    [
        "(a",
        "*",
        "[b-a]",
        "(?=a)",
        r"(a)\1",
        "\ud800",
        "a" * (PATTERN_CHARS_MAX + 1),
        "(a{1000}){6}",
        "a{900}b{900}c{900}d{900}e{900}f{900}",
    ],
)
def test_a_pattern_that_makes_no_sense_or_too_much_of_it_is_refused(pattern: str) -> None:
    with pytest.raises(InvalidRegularExpression) as caught:
        Pattern(pattern)
    assert caught.value.code is ErrorCode.INVALID_REGULAR_EXPRESSION


def test_a_pattern_that_tries_every_way_takes_no_time() -> None:
    assert not Pattern("(a+)+(a|a)*(a|aa)*").matches("a" * 5000 + "b")
