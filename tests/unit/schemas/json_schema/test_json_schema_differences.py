"""Differences between JSON Schemas. The golden verdicts are those of Confluent's registry."""

import json
import random
from pathlib import Path
from typing import Any

import pytest

from penstock.schemas.formats.json_schema import parse
from penstock.schemas.formats.json_schema.comparison import FINDINGS_MAX, REPORT_CHARS_MAX
from penstock.schemas.formats.json_schema.kinds import COMPATIBLE, describe

GOLDEN = json.loads((Path(__file__).parent / "golden_differences.json").read_text(encoding="utf-8"))
DRAFT_7, MODERN = "http://json-schema.org/draft-07/schema#", "https://json-schema.org/draft/2020-12/schema"


def differences(reader: Any, writer: Any, *, is_lenient: bool = False) -> list[str]:
    """Returns kinds and paths."""
    found = load(reader).differences(load(writer), is_lenient=is_lenient)
    return sorted(f"{kind} {message[message.index('#/') : message.rindex(chr(39))]}" for kind, message in found)


def load(schema: Any) -> Any:
    return parse(schema if isinstance(schema, str) else json.dumps(schema), {})


@pytest.mark.parametrize("case", GOLDEN, ids=[case["name"] for case in GOLDEN])
def test_verdicts_are_those_of_confluents_registry(case: dict[str, Any]) -> None:
    found = load(case["reader"]).differences(load(case["writer"]))
    assert sorted(f"{kind} {_path(kind, message)}" for kind, message in found) == case["differences"]
    lenient = load(case["reader"]).differences(load(case["writer"]), is_lenient=True)
    expected = case.get("lenient", case["differences"])
    assert sorted(f"{kind} {_path(kind, message)}" for kind, message in lenient) == expected


def _path(kind: str, message: str) -> str:
    """Returns the path of a message, after checking its layout."""
    path = message[message.index("'#/") + 1 :].partition("'")[0]
    assert message == describe(kind, path)
    assert message.startswith(f'{{errorType:"{kind}", description:"')
    assert message.endswith('"}')
    return path


@pytest.mark.parametrize("schema", [case["writer"] for case in GOLDEN[::3]])
def test_a_schema_reads_its_own_data(schema: str) -> None:
    assert load(schema).differences(load(schema)) == []


def test_every_incompatible_kind_has_a_sentence() -> None:
    kinds = {kind for case in GOLDEN for kind, *_ in map(str.split, case["differences"])}
    kinds |= {"MIN_PROPERTIES_ADDED", "MAX_PROPERTIES_ADDED", "MAX_ITEMS_ADDED", "MAX_CONTAINS_DECREASED"}
    assert len(kinds) > 50
    assert kinds.isdisjoint(COMPATIBLE)
    for kind in kinds:
        assert "'#/a'" in describe(kind, "#/a")


def test_descriptions_and_order_do_not_count() -> None:
    one = {"title": "a", "type": "object", "properties": {"x": {"type": "string"}, "y": {"type": "integer"}}}
    other = {"properties": {"y": {"type": "integer"}, "x": {"type": "string"}}, "type": "object", "$comment": "b"}
    assert differences(one, other) == differences(other, one) == []


def test_comparing_drafts_compares_what_they_mean() -> None:
    body = {"type": "object", "properties": {"a": {"type": ["string", "null"]}}}
    assert differences({"$schema": MODERN, **body}, {"$schema": DRAFT_7, **body}) == []


def test_a_property_that_no_pattern_of_re2_can_match_is_covered_by_lookaround() -> None:
    def schema(**properties: Any) -> dict[str, Any]:
        patterns = {"^(?!x)": {"type": "string"}}
        return {
            "type": "object",
            "patternProperties": patterns,
            "properties": properties,
            "additionalProperties": False,
        }

    assert differences(schema(a={"type": "string"}), schema()) == []
    assert "TYPE_CHANGED #/properties/a" in differences(schema(a={"type": "number"}), schema())


def test_messages_are_bounded_in_number_and_size() -> None:
    names = [f"p{index}" for index in range(2 * FINDINGS_MAX)]
    writer = {"type": "object", "properties": {name: {"type": "string"} for name in names}}
    reader = {"type": "object", "properties": {name: {"type": "integer"} for name in names}}
    assert len(load(reader).differences(load(writer))) == FINDINGS_MAX
    size = 4_000
    definitions: dict[str, Any] = {
        f"A{index}": {"type": "object", "properties": {f"n{index}": {"$ref": f"#/definitions/A{index + 1}"}}}
        for index in range(size)
    }

    def chain(last: str) -> Any:
        return load({"$ref": "#/definitions/A0", "definitions": definitions | {f"A{size}": {"type": last}}})

    (found,) = chain("string").differences(chain("integer"))
    assert found.kind == "TYPE_CHANGED"
    assert len(found.message) < REPORT_CHARS_MAX + 1_000


def test_unions_are_matched_by_exchanging_partners() -> None:
    """Each member of the writer has two partners, of which greedy choices would leave none for the last one."""
    rng = random.Random(7)
    for _ in range(20):
        size = rng.randrange(3, 9)
        writer = [{"enum": [index]} for index in range(size)]
        reader = [{"enum": [index, (index + 1) % size]} for index in range(size)]
        rng.shuffle(reader)
        rng.shuffle(writer)
        assert differences({"anyOf": reader}, {"anyOf": writer}) == []
        reader[0] = {"enum": ["other"]}
        assert differences({"anyOf": reader}, {"anyOf": writer}) == ["COMBINED_TYPE_SUBSCHEMAS_CHANGED #/"]
