"""The expression language: its syntax, and errors with their position."""

import contextlib
import subprocess
import sys
from typing import Any

import pytest
import sqlglot
from hypothesis import given
from hypothesis import strategies as st
from sqlglot import exp

from penstock.views.errors import BadExpression
from penstock.views.lexer import TEXT_MAX
from penstock.views.parser import header_names, parse
from penstock.views.terms import (
    Among,
    And,
    Compare,
    Header,
    IsNull,
    Key,
    Like,
    Not,
    Op,
    Or,
    Partition,
    Path,
    Term,
    Timestamp,
)

TAG = Header("tag")


@pytest.mark.parametrize(
    ("text", "term"),
    [
        ("tag = 'eu'", Compare(TAG, Op.EQ, "eu")),
        ("tag == 'it''s'", Compare(TAG, Op.EQ, "it's")),
        ("3 < priority", Compare(Header("priority"), Op.GT, 3)),
        ("x-trace.id <> -2.5e1", Compare(Header("x-trace.id"), Op.NE, -25.0)),
        ('"key" != TRUE', Compare(Header("key"), Op.NE, True)),
        ("KEY >= 'a'", Compare(Key(), Op.GE, "a")),
        ("partition in (1, 2)", Among(Partition(), (1, 2))),
        ("tag NOT IN ('a')", Not(Among(TAG, ("a",)))),
        ("timestamp < '1970-01-01T00:00:01.5Z'", Compare(Timestamp(), Op.LT, 1500)),
        ("timestamp < '1970-01-01T02:00:00+02:00'", Compare(Timestamp(), Op.LT, 0)),
        ("tag LIKE 'a%'", Like(TAG, "a%")),
        ("tag NOT LIKE 'a!%' ESCAPE '!'", Not(Like(TAG, "a!%", "!"))),
        ("tag IS NOT NULL", Not(IsNull(TAG))),
        ("n BETWEEN 1 AND 2", And((Compare(Header("n"), Op.GE, 1), Compare(Header("n"), Op.LE, 2)))),
        ("$.a.\"b c\"[0]['d'] = 1", Compare(Path(("a", "b c", 0, "d")), Op.EQ, 1)),
        ("$ = TRUE", Compare(Path(()), Op.EQ, True)),
        (
            "a = 1 OR b = 2 AND NOT (c = 3 OR d = 4)",
            Or(
                (
                    Compare(Header("a"), Op.EQ, 1),
                    And(
                        (
                            Compare(Header("b"), Op.EQ, 2),
                            Not(Or((Compare(Header("c"), Op.EQ, 3), Compare(Header("d"), Op.EQ, 4)))),
                        )
                    ),
                )
            ),
        ),
        ("select = 1 AND case = 2 AND date = 'x'", None),
    ],
)
def test_the_language(text: str, term: Term | None) -> None:
    found = parse(text)
    assert term is None or found == term


@pytest.mark.parametrize(
    ("text", "marked"),
    [
        ("upper(tag) = 'EU'", "upper"),
        ("tag = 'a' AND offset > 3", "offset"),
        ("a = 5 = 6", "a = 5"),
        ("a b", "a b"),
        ("a = b", "b"),
        ("'a' = 'b'", "'a'"),
        ("a IS TRUE", "a IS TRUE"),
        ("a || 'b' = 1", "|"),
        ("a = 1; b = 2", ";"),
        ("a IN ()", "a"),
        ("a IN (1, 'x')", "a"),
        ("a + 1 > 2", "+"),
        ("a = 1 -- all", "-"),
        ("a = /* b */ 1", "/"),
        ("a = 0x10", "0x"),
        ("tag", "tag"),
        ("a = 'open", "'"),
        ('a = 1 AND "open', '"'),
        ("a = (SELECT 1)", "1"),
        ("a LIKE 'x!' ESCAPE '!'", "'x!'"),
        ("a LIKE 'x' ESCAPE '!!'", "'!!'"),
        ("a LIKE 5", "5"),
        ("timestamp LIKE '1%'", "timestamp"),
        ("timestamp > 'yesterday'", "'yesterday'"),
        ("timestamp > 1.5", "1.5"),
        ("partition = 'x'", "'x'"),
        ("a > TRUE", "a"),
        ("a = 1 AND AND b = 2", "AND"),
        ("$..a = 1", "."),
        ("a BETWEEN 1 AND 'x'", "a BETWEEN 1 AND 'x'"),
        ("a = 99999999999999999999", "99999999999999999999"),
        ("a = 1e999", "1e999"),
        ("a = 'x' AND b = \ud800", "\ud800"),
    ],
)
def test_unsupported_syntax_is_refused_with_its_position(text: str, marked: str) -> None:
    with pytest.raises(BadExpression) as refused:
        parse(text)
    error = refused.value
    assert text[error.start : error.end] == marked
    _, line, arrows = str(error).splitlines()
    assert arrows.count("^") == len(marked)
    assert line[arrows.index("^") : arrows.index("^") + len(marked)].strip() in marked


@pytest.mark.parametrize(
    "text",
    [
        "",
        "   ",
        "a = NULL",
        "(" * 33 + "a = 1" + ")" * 33,
        "NOT " * 33 + "a = 1",
        "a = '" + "x" * TEXT_MAX + "'",
        " OR ".join(f"a = {n}" for n in range(201)),
        "a IN (" + ",".join(["1"] * 600) + ")",
        "a LIKE '" + "x" * 257 + "'",
        "$" + ".a" * 33 + " = 1",
        "(((a = 1)",
    ],
)
def test_everything_has_a_bound(text: str) -> None:
    with pytest.raises(BadExpression):
        parse(text)


def test_the_largest_that_is_allowed_is_read() -> None:
    text = " OR ".join(f"a = {n}" for n in range(200))
    assert isinstance(found := parse(text), Or)
    assert len(found.parts) == 200
    assert header_names(found) == ["a"]


@given(st.text(max_size=40) | st.text("ab'\"=<>()$.[]0-, ANDORNTIKELS", max_size=40))
def test_any_text_is_read_or_refused(text: str) -> None:
    with contextlib.suppress(BadExpression):
        parse(text)


@pytest.mark.parametrize(
    ("text", "kind"),
    [
        ("tag LIKE 'a%'", "Like"),
        ("tag LIKE 'a!%' ESCAPE '!'", "Like"),
        ("tag IN ('a', 'b')", "In"),
        ("n BETWEEN 1 AND 2", "Between"),
        ("NOT n > 1", "GT"),
        ("a = 1 AND b = 2 AND c = 3", "And"),
    ],
)
def test_a_tree_that_says_more_than_is_read_is_refused(monkeypatch: pytest.MonkeyPatch, text: str, kind: str) -> None:
    """Like `negate`, which older versions of the parser lack: `tag NOT LIKE 'a%'` would have lost its NOT."""
    read = sqlglot.parse

    def newer(text: str) -> list[Any]:
        (tree,) = read(text)
        list(tree.find_all(getattr(exp, kind)))[-1].set("inverted", True)
        return [tree]

    parse(text)
    monkeypatch.setattr(sqlglot, "parse", newer)
    with pytest.raises(BadExpression, match="not in the language"):
        parse(text)


def test_the_parser_is_loaded_when_it_is_needed() -> None:
    code = "import sys, penstock.node, penstock.views.predicate; sys.exit('sqlglot' in sys.modules)"
    assert subprocess.run([sys.executable, "-c", code], check=False).returncode == 0
