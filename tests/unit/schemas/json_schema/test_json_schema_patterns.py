"""Regular expressions and URIs as Java reads them. Expected results are those of Java 17."""

import contextlib

import pytest

from penstock.schemas.formats.format import InvalidSchema
from penstock.schemas.formats.json_schema.regexes import PATTERN_CHARS_MAX, check_pattern, compile_pattern
from penstock.schemas.formats.json_schema.uris import InvalidUri, parse_uri, resolve_uri
from tests.scaling import GROWTH_MAX, growth

VALID = [
    *("", "a", "^[a-z]+$", "a{2}", "a{2,}", "a{2,3}?", "a*+", "{2}a", "a{2}{3}", "]", "}", "[]a]", "[^]a]",),
    *("[a-]", "[-a]", "[a&&b]", "[a-z&&[^b]]", "[[a]b]", "[a&&]", "(?i)a", "(?i:a)", "(?<n>a)\\k<n>",),
    *("(?:a)", "(?=a)", "(?!a)*", "(?>a)", "(?<=a{2})b", "(?<!ab)", "(?<=a+)", "(?<=[ab]{2,}c)", "\\1",),
    *("\\d\\w\\s\\h\\R\\b\\B\\A\\z\\Z\\G", "\\p{L}", "\\pL", "\\P{Lu}", "\\p{Alpha}", "\\p{IsLatin}",),
    *("\\x41", "\\x{1F600}", "\\u0041", "\\07", "\\cA", "\\/", "\\-", "\\Q[\\E", "\\Qa", "[\\d-z]", "^*",),
]  # fmt: skip
INVALID = [
    *("*", "+a", "a**", "a{", "a{,2}", "a{3,2}", "a{2", "(", ")", "(a", "a)", "[", "[a", "[]", "[^]",),
    *("[b-a]", "[a-\\d]", "(?", "(?y)", "(?<a", "(?<1>a)", "(?<n>a)(?<n>b)", "\\k<n>", "\\k", "\\", "\\y",),
    *("\\E", "[\\b]", "[\\1]", "\\p", "\\p{", "\\p{Xx}", "\\p{}", "\\x4", "\\u004", "\\0", "\\08", "\\c",),
    *("(?<=(ab)+)", "(?<=(?:ab){2,})", "(a)(?<=\\1)", "(?<n>a)(?<=\\k<n>)", "[&&]",),
]  # fmt: skip


@pytest.mark.parametrize("pattern", VALID)
def test_patterns_that_java_compiles_are_valid(pattern: str) -> None:
    check_pattern(pattern)


@pytest.mark.parametrize("pattern", INVALID)
def test_patterns_that_java_refuses_are_not_valid(pattern: str) -> None:
    with pytest.raises(InvalidSchema, match="regular expression"):
        check_pattern(pattern)


@pytest.mark.parametrize(
    ("pattern", "name", "expected"),
    [
        ("b", "abc", True),
        ("^b", "abc", False),
        ("\\u0062$", "ab", True),
        ("^x-\\p{L}+$", "x-é", True),
        ("a\\Z", "ba\n", True),
        ("a\\h", "a\tb", True),
        ("[^\\x{61}]", "a", False),
        ("(a*)*$", "a" * 5_000 + "b", True),
        ("(?=a)", "b", True),  # RE2 knows no lookahead: such a pattern matches all names
        ("a" * (PATTERN_CHARS_MAX + 1), "b", True),
    ],
)
def test_names_are_matched(pattern: str, name: str, expected: bool) -> None:
    assert compile_pattern(pattern)(name) is expected


@pytest.mark.parametrize(
    "unit", ["(", "(a)", "[", "[a-z]", "\\Q", "\\d", "a{2}", "(?<a>", "(?i)", "[a&&", "|", "\\Qx\\E"]
)
def test_checking_a_pattern_takes_linear_time(unit: str) -> None:
    def check(pattern: str) -> None:
        with contextlib.suppress(InvalidSchema):
            check_pattern(pattern)

    assert growth(lambda size: lambda pattern=unit * size: check(pattern), 2_000) < GROWTH_MAX


@pytest.mark.parametrize(
    ("base", "reference", "expected"),
    [
        ("http://e.com/a/b.json", "c.json", "http://e.com/a/c.json"),
        ("http://e.com/a/b.json", "#/x", "http://e.com/a/b.json#/x"),
        ("http://e.com/a/b.json#y", "#/x", "http://e.com/a/b.json#/x"),
        ("http://e.com/a/b.json?q=1", "#x", "http://e.com/a/b.json?q=1#x"),
        ("http://e.com/a/b.json", "/c/d", "http://e.com/c/d"),
        ("http://e.com/a/b.json", "../c", "http://e.com/c"),
        ("http://e.com/a/b.json", "../../c", "http://e.com/../c"),
        ("http://e.com/a/b.json", "./c/./d", "http://e.com/a/c/d"),
        ("http://e.com/a/b.json", "//f.com/c", "http://f.com/c"),
        ("http://e.com/a/b.json", "", "http://e.com/a/"),
        ("http://e.com/a/b.json", "?q", "http://e.com/a/?q"),
        ("http://e.com/a/b.json", "urn:a:b", "urn:a:b"),
        ("http://e.com", "a", "http://e.com/a"),
        ("mem://input", "a.json#/b", "mem://input/a.json#/b"),
        ("urn:a:b", "#/x", "#/x"),
        ("UNKNOWN", "#/x", "UNKNOWN#/x"),
        ("UNKNOWN", "a/b.json", "a/b.json"),
        ("a/b", "./c:d", "a/c:d"),
        ("a", "./c:d", "./c:d"),
        ("a/b", "ä%20", "a/ä%20"),
        ("file:///a/b", "c", "file:/a/c"),
        ("http://[::1]:80/a", "b", "http://[::1]:80/b"),
    ],
)
def test_references_are_resolved_as_java_resolves_them(base: str, reference: str, expected: str) -> None:
    assert resolve_uri(parse_uri(base), reference).text == expected


@pytest.mark.parametrize(
    "text",
    [
        *(
            "a b",
            "#/a b",
            "%zz",
            "%2",
            "a\\b",
            "a^b",
            "{a}",
            "a|b",
            '"a"',
            "<a>",
            "x:",
            ":a",
            "1x:a",
            "http://",
            "//",
        ),
        *("a[b]", "http://e.com/[a]", "#a#b", "a\u00a0b", "\x00", "http://a b/", "http://[::1"),
    ],
)
def test_texts_that_are_no_uris_to_java_are_refused(text: str) -> None:
    with pytest.raises(InvalidUri):
        parse_uri(text)
