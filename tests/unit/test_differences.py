"""Differences from Kafka and AWS are in one table each, and every row names existing tests."""

import re
from pathlib import Path
from typing import NamedTuple

import pytest

ROOT = Path(__file__).parents[2]
CELL = re.compile(r"(?<!\\)\|")
SHOWN = re.compile(r"`([\w/]+\.py)::(test_\w+)`")
ROWS_MIN = 30


class Row(NamedTuple):
    what: str
    ours: str
    theirs: str
    why: str
    shown: str


def rows(page: str, heading: str) -> list[Row]:
    text = (ROOT / "docs" / page).read_text(encoding="utf-8")
    section = text.partition(f"\n## {heading}\n")[2].partition("\n## ")[0]
    lines = [line for line in section.splitlines() if line.startswith("|")]
    return [Row(*(cell.strip() for cell in CELL.split(line)[1:-1])) for line in lines[2:]]


TABLES = [("protocol.md", "Differences from Kafka"), ("sqs.md", "Differences from AWS")]
ALL = [pytest.param(row, id=f"{page}: {row.what}") for page, heading in TABLES for row in rows(page, heading)]


@pytest.mark.parametrize(("page", "heading"), TABLES)
def test_a_difference_is_listed_once(page: str, heading: str) -> None:
    named = [row.what for row in rows(page, heading)]
    assert len(named) >= ROWS_MIN
    assert len(set(named)) == len(named)


@pytest.mark.parametrize("row", ALL)
def test_a_difference_is_explained_and_shown_by_tests_that_exist(row: Row) -> None:
    assert all(row)
    tests = SHOWN.findall(row.shown)
    assert SHOWN.sub("", row.shown).strip(", ") == ""
    assert tests
    for path, name in tests:
        assert f"def {name}(" in (ROOT / "tests" / path).read_text(encoding="utf-8"), f"{path}::{name}"
