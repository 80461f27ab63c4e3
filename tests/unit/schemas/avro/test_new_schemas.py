"""Rules that only new schemas must obey."""

import json
from typing import Any

import pytest

from penstock.schemas.formats.avro import parse, validation
from penstock.schemas.formats.format import InvalidSchema
from tests.unit.schemas.avro.golden_files import golden, parse_case

CASES = golden("new")


@pytest.mark.parametrize("case", CASES.values(), ids=CASES)
@pytest.mark.parametrize("fields", [False, True])
def test_a_new_schema_is_valid_if_it_is_in_java(case: dict[str, Any], fields: bool) -> None:
    schema = parse_case(case)
    if case["is_valid"]:
        schema.validate(fields=fields)
    else:
        with pytest.raises(InvalidSchema):
            schema.validate(fields=fields)


@pytest.mark.parametrize(
    "schema",
    [
        [
            {"type": "record", "name": "R", "fields": [{"name": "f", "type": "E", "default": "a"}]},
            {"type": "enum", "name": "E", "symbols": ["a"]},
        ],
        {"type": "record", "name": "R", "fields": [{"name": "f", "type": ["R", "null"], "default": {"f": None}}]},
    ],
    ids=["a default of a type that is defined further down", "a default that is a record of its own kind"],
)
def test_defaults_are_checked_with_all_types_known(schema: Any) -> None:
    """Java refuses these: it checks defaults while some types are not known yet. It accepts their canonical text."""
    parse(json.dumps(schema), {}).validate(fields=False)


def test_defaults_that_are_nested_without_end_are_refused() -> None:
    one = {"name": "o", "type": "Other", "default": {}}
    other = {"type": "record", "name": "Other", "fields": [{"name": "r", "type": "R", "default": {}}]}
    schema = [{"type": "record", "name": "R", "fields": [one]}, other]
    with pytest.raises(InvalidSchema, match="default that is not a value of its type"):
        parse(json.dumps(schema), {}).validate(fields=False)


def test_defaults_of_defaults_are_checked_once_each() -> None:
    records: list[dict[str, Any]] = [
        {"type": "record", "name": "R0", "fields": [{"name": "a", "type": "int", "default": 1}]}
    ]
    for number in range(1, 60):
        field = {"type": f"R{number - 1}", "default": {}}
        records.append(
            {"type": "record", "name": f"R{number}", "fields": [{"name": "a", **field}, {"name": "b", **field}]}
        )
    parse(json.dumps(records), {}).validate(fields=False)
    records[0]["fields"][0]["default"] = "x"
    with pytest.raises(InvalidSchema, match="'a' of record 'R"):
        parse(json.dumps(records), {}).validate(fields=False)


def test_defaults_that_take_too_long_to_check_are_refused(monkeypatch: pytest.MonkeyPatch) -> None:
    field = {"name": "f", "type": {"type": "array", "items": ["int", "string"]}, "default": ["x"] * 10}
    schema = parse(json.dumps({"type": "record", "name": "R", "fields": [field]}), {})
    schema.validate(fields=False)
    monkeypatch.setattr(validation, "CHECKS_MAX", 20)
    with pytest.raises(InvalidSchema, match="comparisons"):
        schema.validate(fields=False)
