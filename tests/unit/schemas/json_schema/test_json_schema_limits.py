"""Hostile JSON Schemas: always a verdict or InvalidSchema, in time that grows with the size of the text only."""

import contextlib
import json
import subprocess
import sys
from collections.abc import Callable
from typing import Any

import pytest

from penstock.schemas.formats.format import InvalidSchema
from penstock.schemas.formats.json_schema import JsonSchema, parse
from penstock.schemas.formats.json_schema.comparison import COMPARISONS_MAX
from penstock.schemas.formats.json_schema.documents import DEPTH_MAX
from penstock.schemas.formats.json_schema.loading import NODES_MAX, TYPES_MAX
from tests.scaling import GROWTH_MAX, growth

DRAFT_7, MODERN = "http://json-schema.org/draft-07/schema#", "https://json-schema.org/draft/2020-12/schema"
Shape = Callable[[int, str], dict[str, Any]]
"""Makes a schema of a size; the text is `a` or `b`, so that two schemas differ."""


def definitions(count: int, make: Callable[[int], Any], last: Any) -> dict[str, Any]:
    named = {f"A{index}": make(index) for index in range(count)}
    return {"$ref": "#/definitions/A0", "definitions": named | {f"A{count}": last}}


def to(index: int) -> dict[str, str]:
    return {"$ref": f"#/definitions/A{index}"}


def closed(**properties: Any) -> dict[str, Any]:
    return {"type": "object", "properties": properties, "additionalProperties": False}


SHAPES: dict[str, Shape] = {
    "many properties": lambda size, text: {"properties": {f"{text}{index}": {} for index in range(size)}},
    "many patterns": lambda size, text: {"patternProperties": {f"^{text}{index}": {} for index in range(size)}},
    "a long enum": lambda size, text: {"enum": [f"{text}{index}" for index in range(size)]},
    "a long enum of objects": lambda size, text: {"enum": [{text: [index]} for index in range(size)]},
    "the same long union": lambda size, text: {"anyOf": [{"const": index} for index in range(size)]},
    "a union of nothing": lambda size, text: {"anyOf": [{}] * size},
    "many requirements": lambda size, text: {"required": [f"{text}{index}" for index in range(size)]},
    "many dependencies": lambda size, text: {"dependencies": {f"{text}{index}": ["x"] for index in range(size)}},
    "a long tuple": lambda size, text: {"items": [{"const": text}] * size},
    "a chain of definitions": lambda size, text: definitions(
        size, lambda index: closed(next=to(index + 1)), {"const": text}
    ),
    "a chain of references": lambda size, text: {"allOf": [definitions(size, lambda index: to(index + 1), {})]} | {
        "definitions": definitions(size, lambda index: to(index + 1), {})["definitions"]
    },
    "exponential references": lambda size, text: definitions(
        size, lambda index: closed(a=to(index + 1), b=to(index + 1), c=to(index + 1)), {"const": text}
    ),
    "a ring of recursive unions": lambda size, text: definitions(
        size, lambda index: closed(next={"oneOf": [{"type": "null"}, to((index + 1) % size)]}, v={"const": text}), {}
    ),
    "many identifiers": lambda size, text: {
        "definitions": {f"A{index}": {"$id": f"#{index}"} for index in range(size)},
        "allOf": [{"$ref": f"#{index}"} for index in range(size)],
    },
    "many pointers to one schema": lambda size, text: {
        "definitions": {"A": {"const": text}},
        "allOf": [{"$ref": "#/definitions/A"}] * size,
    },
    "unknown keywords": lambda size, text: {f"{text}{index}": {"type": index} for index in range(size)},
    "long names": lambda size, text: {"properties": {text * size: {"properties": {text * size: {"const": text}}}}},
}  # fmt: skip


def load(schema: Any, draft: str) -> JsonSchema:
    schema = parse(json.dumps({"$schema": draft, **schema}), {})
    return schema


@pytest.mark.slow
@pytest.mark.parametrize("draft", [DRAFT_7, MODERN])
@pytest.mark.parametrize("name", SHAPES)
def test_time_grows_with_the_size_of_the_schema(name: str, draft: str) -> None:
    shape = SHAPES[name]

    def work(size: int) -> Callable[[], object]:
        texts = [load(shape(size, text), draft).text for text in "ab"]

        def check() -> None:
            one, other = (parse(text, {}) for text in texts)
            one.normalized()
            with contextlib.suppress(InvalidSchema):
                one.validate(fields=True)
                other.differences(one)

        return check

    assert growth(work, 40) < GROWTH_MAX


@pytest.mark.parametrize("draft", [DRAFT_7, MODERN])
def test_pairs_of_recursive_definitions_are_compared_once(draft: str) -> None:
    """The number of pairs is the square of the number of definitions that all refer to one another."""
    count = 40

    def graph(closed_one: int) -> JsonSchema:
        properties = {f"p{index}": to(index) for index in range(count)}
        return load(
            definitions(
                count,
                lambda index: {
                    "type": "object",
                    "properties": properties,
                    "additionalProperties": index != closed_one,
                },
                {},
            ),
            draft,
        )

    assert graph(-1).differences(graph(3)) == []
    assert {found.kind for found in graph(3).differences(graph(-1))} >= {"ADDITIONAL_PROPERTIES_REMOVED"}


@pytest.mark.parametrize("draft", [DRAFT_7, MODERN])
@pytest.mark.parametrize("keyword", ["not", "additionalProperties", "items", "if", "contains", "propertyNames"])
def test_the_deepest_schemas_are_compared(draft: str, keyword: str) -> None:
    depth = DEPTH_MAX - 10
    text = f'{{"$schema":"{draft}","{keyword}":' + f'{{"{keyword}":' * (depth - 1) + "{}" + "}" * depth
    schema = parse(text, {})
    schema.validate(fields=True)
    assert schema.differences(parse(text, {})) == []
    assert schema.normalized().differences(schema) == []


@pytest.mark.parametrize("criterion", ["oneOf", "anyOf", "allOf"])
def test_nested_unions_are_compared_in_bounded_time(criterion: str) -> None:
    def nested(kind: str) -> JsonSchema:
        text = f'{{"{criterion}":[{{"type":"{kind}"}},{{"type":"array"}},' * 240 + "{}" + "]}" * 240
        return parse(text, {})

    assert nested("string").differences(nested("string")) == []
    nested("string").differences(nested("integer"))


def test_unions_with_too_many_members_are_not_compared() -> None:
    def union(numbers: range) -> JsonSchema:
        return parse(json.dumps({"anyOf": [{"enum": [number]} for number in numbers]}), {})

    others = union(range(-100, 0)).differences(union(range(100)))
    assert [found.kind for found in others] == ["COMBINED_TYPE_SUBSCHEMAS_CHANGED"]
    size = 2 * int(COMPARISONS_MAX**0.5)
    assert union(range(size)).differences(union(range(size))) == []
    with pytest.raises(InvalidSchema, match="too complex"):
        union(range(size)).differences(union(range(size - 1, -1, -1)))


def test_many_names_and_many_patterns_are_not_all_matched() -> None:
    patterns = {f"^x{index}$": {} for index in range(1_000)}
    names = {f"p{index}": {} for index in range(1_000)}
    writer = parse(
        json.dumps({"patternProperties": patterns, "properties": names, "additionalProperties": False}), {}
    )
    reader = parse(json.dumps({"patternProperties": patterns, "additionalProperties": False}), {})
    with pytest.raises(InvalidSchema, match="too complex"):
        reader.differences(writer)


@pytest.mark.parametrize("draft", [DRAFT_7, MODERN])
def test_the_number_of_schemas_is_bounded(draft: str) -> None:
    members = ",".join(["true"] * (NODES_MAX + 1))
    with pytest.raises(InvalidSchema, match="schemas"):
        parse(f'{{"$schema":"{draft}","allOf":[{members}]}}', {}).validate(fields=False)
    with pytest.raises(InvalidSchema, match="types"):
        load({"type": ["string"] * (TYPES_MAX + 1)}, draft).validate(fields=False)
    # The keywords of a type are loaded for each of its repetitions.
    properties = {f"p{index}": True for index in range(NODES_MAX // TYPES_MAX + 1)}
    repeated = {"type": ["object"] * TYPES_MAX, "properties": properties}
    if draft == DRAFT_7:
        with pytest.raises(InvalidSchema, match="schemas"):
            load(repeated, draft).validate(fields=False)
    else:
        load(repeated, draft).validate(fields=False)


@pytest.mark.parametrize("draft", [DRAFT_7, MODERN])
@pytest.mark.parametrize(
    ("one", "other"),
    [
        ("1e2147483647", "3e-2147483640"),
        ("1e-2147483647", "1e2147483647"),
        ("9" * 900, "7" * 900),
        ("9" * 900, "1e2147483647"),
        ("3e2147483647", "1" + "0" * 900),
    ],
)
@pytest.mark.parametrize("keyword", ["multipleOf", "minimum", "exclusiveMaximum"])
def test_huge_numbers_are_compared(draft: str, keyword: str, one: str, other: str) -> None:
    schemas = [parse(f'{{"$schema":"{draft}","{keyword}":{number}}}', {}) for number in (one, other)]
    for reader in schemas:
        for writer in schemas:
            try:
                found = reader.differences(writer)
            except InvalidSchema:
                assert (draft, keyword) == (DRAFT_7, "multipleOf")  # rounded to a double, it is zero
            else:
                assert reader is not writer or found == []


def test_references_that_lead_in_circles_are_valid() -> None:
    for draft in (DRAFT_7, MODERN):
        circle = {"definitions": {"A": to(0), "A0": {"$ref": "#/definitions/A"}}, "properties": {"a": to(0)}}
        schema = load(circle, draft)
        schema.validate(fields=True)
        assert schema.differences(load(circle, draft)) == []
    parse('{"$ref":"#"}', {}).validate(fields=True)
    others = {"a.json": '{"$ref":"b.json"}', "b.json": '{"$ref":"a.json"}'}
    parse('{"$ref":"a.json"}', others).validate(fields=True)


def test_importing_the_package_loads_no_library() -> None:
    code = "import sys, penstock.schemas.formats.json_schema as s; print(*sorted(sys.modules))"
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    loaded = {name.partition(".")[0] for name in done.stdout.split()}
    assert "penstock" in loaded
    assert loaded.isdisjoint({"re2", "jsonschema", "orjson", "fastjsonschema", "rpds"})
