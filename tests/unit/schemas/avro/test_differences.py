"""Reasons why data of one schema cannot be read with another."""

import json
from typing import Any

import pytest

from penstock.schemas.formats.avro import AvroSchema, compatibility, messages, parse
from penstock.schemas.formats.avro.messages import DIFFERENCES_MAX
from penstock.schemas.formats.avro.names import PRIMITIVES
from tests.unit.schemas.avro.golden_files import golden

CASES = golden("differences")
TYPES = sorted(PRIMITIVES)


@pytest.mark.parametrize("case", CASES.values(), ids=CASES)
def test_differences_are_those_of_confluents_registry(case: dict[str, Any]) -> None:
    differences = parse(case["reader"], {}).differences(parse(case["writer"], {}))
    assert [each.describe("new", "old") for each in differences] == case["messages"]
    for each in differences:
        assert each.kind == "UNEXPECTED_EXCEPTION" or each.message.startswith(f"{{errorType:'{each.kind}',")


@pytest.mark.parametrize("case", CASES.values(), ids=CASES)
def test_verdicts_are_the_same_if_branches_are_found_by_name(
    case: dict[str, Any], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(compatibility, "EXACT_PAIRS_MAX", -1)
    differences = parse(case["reader"], {}).differences(parse(case["writer"], {}))
    assert [each.describe("new", "old") for each in differences] == case["messages"]


@pytest.mark.parametrize("reader", TYPES)
@pytest.mark.parametrize("writer", TYPES)
def test_primitive_types_are_promoted_as_the_specification_says(reader: str, writer: str) -> None:
    is_readable = not parse(json.dumps(reader), {}).differences(parse(json.dumps(writer), {}))
    assert is_readable == (f"{writer} as {reader}" in golden("promotions"))


def test_references_are_compared_by_what_they_mean() -> None:
    text = '{"type":"record","name":"R","fields":[{"name":"f","type":"F"}]}'
    one, other = (parse(text, {"f": f'{{"type":"fixed","name":"F","size":{size}}}'}) for size in (1, 2))
    assert [each.kind for each in one.differences(other)] == ["FIXED_SIZE_MISMATCH"]
    assert one.differences(one) == []


def _shared(depth: int, leaf: str) -> AvroSchema:
    """Records with two fields each, whose type is the next record: so the leaf is used 2**depth times."""
    references = {"R0": json.dumps({"type": "record", "name": "R0", "fields": [{"name": "f", "type": leaf}]})}
    for level in range(1, depth):
        fields = [{"name": name, "type": f"R{level - 1}"} for name in ("a", "b")]
        references[f"R{level}"] = json.dumps({"type": "record", "name": f"R{level}", "fields": fields})
    return parse(json.dumps(f"R{depth - 1}"), references)


def test_differences_that_are_exponentially_many_are_cut_short() -> None:
    differences = _shared(40, "int").differences(_shared(40, "string"))
    assert len(differences) == DIFFERENCES_MAX
    assert {each.kind for each in differences} == {"TYPE_MISMATCH"}


def test_long_messages_are_cut_short(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(messages, "MESSAGES_CHARS_MAX", 1000)

    def enums(symbols: list[str]) -> AvroSchema:
        types = [{"type": "enum", "name": f"E{number}", "symbols": symbols} for number in range(9)]
        fields = [{"name": f"f{number}", "type": enum} for number, enum in enumerate(types)]
        return parse(json.dumps({"type": "record", "name": "R", "fields": fields}), {})

    differences = enums(["a"]).differences(enums([f"symbol_{number:03}" for number in range(20)]))
    assert [each.kind for each in differences] == ["MISSING_ENUM_SYMBOLS"] * 2
    assert sum(len(each.message) for each in differences) > 1000


def test_schemas_that_take_too_long_to_compare_are_incompatible() -> None:
    def records(space: str, field: str) -> str:
        record = {"type": "record", "name": "R", "fields": [{"name": field, "type": "int"}]}
        return json.dumps([{**record, "namespace": f"{space}{number}"} for number in range(800)])

    [difference] = parse(records("a", "x"), {}).differences(parse(records("b", "y"), {}))
    assert difference.kind == "TOO_COMPLEX"
    assert difference.describe("new", "old").startswith(
        "{errorType:'TOO_COMPLEX', description:'The new schema cannot"
    )


def test_large_unions_are_compared_by_name() -> None:
    def events(count: int, extra: dict[str, Any]) -> str:
        fields = [{"name": f"f{number}", "type": ["null", "string"], "default": None} for number in range(5)]
        branches = [{"type": "record", "name": f"E{number}", "fields": fields} for number in range(count)]
        branches[7] = {**branches[7], "fields": [*fields, extra]}
        return json.dumps(branches)

    old = parse(events(300, {"name": "x", "type": "int"}), {})
    assert parse(events(310, {"name": "x", "type": "long"}), {}).differences(old) == []
    [missing] = parse(events(300, {"name": "y", "type": "int"}), {}).differences(old)
    assert missing.describe("new", "old") == (
        "{errorType:'MISSING_UNION_BRANCH', description:'The new schema is missing a type inside a union field at "
        "path '/7' in the old schema', additionalInfo:'reader union lacking writer type: RECORD'}"
    )
    [lost] = parse(events(299, {"name": "x", "type": "int"}), {}).differences(old)
    assert "path '/299'" in lost.message
