"""The generated lists in the documentation are up to date."""

import re
from pathlib import Path

import pytest

from penstock.broker.registry import APIS, load_handlers
from penstock.foundation.codes import ErrorCode
from penstock.reference.blocks import BLOCKS, generated
from penstock.reference.kafka import NOT_SERVED
from penstock.reference.kafka_errors import NEVER, WHEN
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


def test_it_is_said_of_every_error_code_when_it_is_answered() -> None:
    assert set(WHEN) | set(NEVER) | {ErrorCode.NONE} == set(ErrorCode)
    assert not set(WHEN) & set(NEVER)


def test_a_code_that_is_answered_is_in_the_code_of_brokers() -> None:
    rooms = ("broker", "cluster", "foundation/errors", "groups", "log", "queues", "records", "replication", "sqs")
    rooms = (*rooms, "security", "telemetry", "transactions", "views")
    source = Path(__file__).parents[2] / "src" / "penstock"
    found = {
        name
        for path in source.rglob("*.py")
        if str(path.relative_to(source)).startswith(rooms)
        for name in re.findall(r"ErrorCode\.([A-Z_]+)", path.read_text(encoding="utf-8"))
    }
    assert [code.name for code in WHEN if code.name not in found] == []


def test_every_file_that_a_page_names_exists() -> None:
    root = DOCS.parent
    files = [path.relative_to(root).as_posix() for path in (*root.glob("src/**/*.py"), *root.glob("tests/**/*.py"))]
    missing = [
        f"{page}: {name}"
        for page in PAGES
        for name in re.findall(r"`([a-z_/]+\.py)`", (DOCS / page).read_text(encoding="utf-8"))
        if not any(file.endswith(f"/{name}") or file == name for file in files)
    ]
    assert missing == ["sqs.md: tests/aws/services/sqs/test_sqs.py"], "a file of LocalStack is the only other one"
