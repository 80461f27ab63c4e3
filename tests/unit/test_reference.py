"""The lists in the documentation are those of the code."""

from pathlib import Path

import pytest

from penstock.broker.registry import APIS, load_handlers
from penstock.reference import BLOCKS, NOT_SERVED, generated
from penstock.wire.keys import ApiKey

DOCS = Path(__file__).parents[2] / "docs"
PAGES = sorted(path.name for path in DOCS.glob("*.md"))


@pytest.mark.parametrize("page", PAGES)
def test_a_page_is_up_to_date(page: str) -> None:
    text = (DOCS / page).read_text(encoding="utf-8")
    assert text == generated(text), "run `make docs`"


def test_every_list_is_on_a_page() -> None:
    text = "".join((DOCS / page).read_text(encoding="utf-8") for page in PAGES)
    assert [name for name in BLOCKS if f"<!-- generated: {name} -->" not in text] == []


def test_every_api_is_served_or_it_is_said_why_not() -> None:
    load_handlers()
    assert set(APIS) | set(NOT_SERVED) == set(ApiKey)
    assert not set(APIS) & set(NOT_SERVED)
