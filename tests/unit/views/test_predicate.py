"""Compiled predicates against a naive evaluation, for both kernels."""

import json
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from penstock.records.build import Record, build_batch
from penstock.records.columns import decode_columns
from penstock.views.predicate import PORTION_ROWS, Matching, compile_expression, compile_term
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
from tests.unit.views.naive_predicate import judge

pytestmark = pytest.mark.usefixtures("twin")

NUMBERS = [
    "1",
    "2",
    "-3",
    "007",
    "2.5",
    "1e2",
    "+4",
    ".5",
    "5.",
    "9007199254740993",
    "1" * 30,
    "-9223372036854775808",
]
TEXTS = [
    "eu",
    "uk",
    "",
    "e",
    "euro",
    "TRUE",
    "false",
    "x y",
    "ä",
    "äö",
    "a%b",
    "a_b",
    *NUMBERS,
    "1e",
    "0x1",
    " 1",
    "--1",
]
WORDS = st.sampled_from(TEXTS) | st.text("eu%_ä1.", max_size=5)
NUMBER = st.integers(-5, 5) | st.sampled_from([2.5, 100.0, 9007199254740992, 9007199254740993, 1e30, -(2**63)])
FIELDS = st.sampled_from([Header("tag"), Header("n"), Key()])
PATHS = st.sampled_from([Path(("a",)), Path(("a", "b")), Path(("list", 1)), Path(())])
JSON = st.recursive(
    st.none() | st.booleans() | st.integers(-3, 3) | st.sampled_from([1.5, "eu", "uk", "", "ä", "1"]),
    lambda inner: (
        st.lists(inner, max_size=3) | st.dictionaries(st.sampled_from(["a", "b", "list"]), inner, max_size=3)
    ),
    max_leaves=6,
)


def _like(draw: st.DrawFn) -> tuple[str, str]:
    escape = draw(st.sampled_from(["", "!"]))
    pattern = draw(st.text("eu%_ä!", max_size=6))
    return (pattern, "") if escape and pattern.count("!") % 2 and pattern.endswith("!") else (pattern, escape)


@st.composite
def leaves(draw: st.DrawFn) -> Term:
    field = draw(FIELDS | PATHS)
    kind = draw(st.sampled_from(["text", "number", "flag", "texts", "numbers", "like", "null", "time", "partition"]))
    op = draw(st.sampled_from(Op))
    match kind:
        case "text":
            return Compare(field, op, draw(WORDS))
        case "number":
            return Compare(field, op, draw(NUMBER))
        case "flag" if not isinstance(field, Key):
            return Compare(field, draw(st.sampled_from([Op.EQ, Op.NE])), draw(st.booleans()))
        case "texts":
            return Among(field, tuple(draw(st.lists(WORDS, min_size=1, max_size=12))))
        case "numbers":
            return Among(field, tuple(draw(st.lists(NUMBER, min_size=1, max_size=3))))
        case "like":
            pattern, escape = _like(draw)
            return Like(field, pattern.replace("!", "") if not escape else pattern, escape)
        case "time":
            return Compare(Timestamp(), op, draw(st.integers(0, 5)))
        case "partition":
            return Among(Partition(), tuple(draw(st.lists(st.integers(0, 3), min_size=1, max_size=2))))
    return IsNull(field)


TERMS = st.recursive(
    leaves(),
    lambda inner: (
        st.lists(inner, min_size=2, max_size=3).map(lambda parts: And(tuple(parts)))
        | st.lists(inner, min_size=2, max_size=3).map(lambda parts: Or(tuple(parts)))
        | inner.map(Not)
    ),
    max_leaves=8,
)
CELLS = st.none() | WORDS.map(str.encode)
RECORDS = st.lists(
    st.builds(
        Record,
        key=CELLS,
        value=JSON.map(lambda found: json.dumps(found).encode()) | st.sampled_from([None, b"", b"no json", b"{"]),
        headers=st.lists(st.tuples(st.sampled_from(["tag", "n", "other"]), CELLS), max_size=3).map(tuple),
        timestamp_ms=st.integers(0, 5),
    ),
    min_size=1,
    max_size=8,
)


def done(matching: Matching) -> Matching:
    for _ in matching:
        pass
    return matching


def _has_trap(term: Term) -> bool:
    """A pattern that ends in its escape character: the parser refuses it."""
    match term:
        case And(parts) | Or(parts):
            return any(map(_has_trap, parts))
        case Not(part):
            return _has_trap(part)
        case Like(_, pattern, escape):
            return bool(escape) and pattern.replace(2 * escape, "").endswith(escape)
    return False


@given(TERMS.filter(lambda term: not _has_trap(term)), RECORDS, st.integers(0, 3))
def test_a_naive_judge_finds_the_same_records(term: Term, records: list[Record], partition: int) -> None:
    columns = decode_columns(build_batch(records))
    found = done(compile_term("", term).matching(columns, partition))
    expected = [judge(term, record, partition) for record in records]
    assert [bool(each) for each in found.mask] == [each is True for each in expected]
    assert found.unknown <= sum(each is not True for each in expected)


@given(TERMS.filter(lambda term: not _has_trap(term)), RECORDS, st.integers(0, 8))
def test_records_before_the_first_one_do_not_match(term: Term, records: list[Record], first: int) -> None:
    first = min(first, len(records))
    columns = decode_columns(build_batch(records))
    found = done(compile_term("", term).matching(columns, 0, first))
    expected = [row >= first and judge(term, each, 0) is True for row, each in enumerate(records)]
    assert [bool(each) for each in found.mask] == expected


def tagged(*tags: bytes | None, **fields: Any) -> list[Record]:
    return [Record(key=None, value=None, timestamp_ms=0, headers=(("tag", tag),), **fields) for tag in tags]


def matches(expression: str, records: list[Record], partition: int = 0) -> list[int]:
    found = done(compile_expression(expression).matching(decode_columns(build_batch(records)), partition))
    return [row for row, byte in enumerate(found.mask) if byte]


def test_records_that_cannot_be_evaluated_are_counted_and_do_not_match() -> None:
    records = [*tagged(b"3", b"x", None), Record(key=None, value=None, timestamp_ms=0)]
    found = done(compile_expression("tag > 2").matching(decode_columns(build_batch(records)), 0))
    assert (found.mask, found.unknown) == (bytes([1, 0, 0, 0]), 3)
    assert matches("NOT tag > 2", records) == []
    assert matches("tag IS NULL", records) == [2, 3]


def test_json_is_opened_only_where_the_rest_is_true(monkeypatch: pytest.MonkeyPatch) -> None:
    opened: list[int] = []
    from penstock.views import rows

    real = rows._parse_json
    monkeypatch.setattr(rows, "_parse_json", lambda body, found, row: opened.append(row) or real(body, found, row))
    records = [
        Record(key=None, value=b'{"n": %d}' % n, timestamp_ms=0, headers=(("tag", b"eu" if n % 10 == 0 else b"us"),))
        for n in range(50)
    ]
    assert matches("$.n >= 20 AND tag = 'eu'", records) == [20, 30, 40]
    assert len(opened) == 5


def test_costly_evaluation_is_done_in_portions() -> None:
    records = [Record(key=None, value=b'{"n": 1}', timestamp_ms=0)] * (3 * PORTION_ROWS + 1)
    matching = compile_expression("$.n = 1").matching(decode_columns(build_batch(records)), 0)
    assert len(list(matching)) == 4
    assert matching.mask == b"\x01" * len(records)
    assert len(list(compile_expression("tag = 'eu'").matching(decode_columns(build_batch(records)), 0))) == 0


@pytest.mark.parametrize("pattern", ["%" + "a%" * 100 + "b", "_%" * 60 + "b", "%" + "a" * 200 + "b"])
def test_no_pattern_takes_long(pattern: str) -> None:
    records = tagged(b"a" * 20_000, b"a" * 20_000 + b"b")
    assert matches(f"tag LIKE '{pattern}'", records) == [1]


def test_a_partition_is_known_before_any_record_is() -> None:
    assert matches("partition IN (1, 2)", tagged(b"a", b"b"), 2) == [0, 1]
    assert matches("partition > 2", tagged(b"a", b"b"), 2) == []


def test_whole_numbers_are_compared_exactly() -> None:
    records = tagged(b"9007199254740993", b"9007199254740992", b"1e400", b"-1e400")
    assert matches("tag = 9007199254740993", records) == [0]
    assert matches("tag > 5.5", records) == [0, 1, 2]
