"""Protobuf schemas have the same texts, file descriptors and differences as in Confluent's registry."""

from collections.abc import Callable, Mapping
from typing import Any

import pytest

from penstock.schemas.formats.format import InvalidSchema
from penstock.schemas.formats.protobuf import ProtobufSchema, parse

from .golden_cases import read_cases

SCHEMAS = read_cases("schemas")
CORNER_CASES = read_cases("corner_cases")
DIFFERENCES = read_cases("differences")


def result(work: Callable[[], str]) -> str | None:
    try:
        return work()
    except InvalidSchema:
        return None


def parsed(case: Mapping[str, Any]) -> ProtobufSchema | None:
    try:
        return parse(case["text"], case.get("references", {}))
    except InvalidSchema:
        return None


@pytest.mark.parametrize("case", [*SCHEMAS, *CORNER_CASES])
def test_the_stored_text_is_that_of_confluents_registry(case: Mapping[str, Any]) -> None:
    schema = parsed(case)
    assert (schema and schema.text) == case["canonical"]


@pytest.mark.parametrize("case", [each for each in (*SCHEMAS, *CORNER_CASES) if each["canonical"] is not None])
def test_the_normal_form_is_that_of_confluents_registry(case: Mapping[str, Any]) -> None:
    schema = parsed(case)
    assert schema is not None
    assert result(lambda: schema.normalized().text) == case["normalized"]


@pytest.mark.parametrize(
    "case", [each for each in (*SCHEMAS, *CORNER_CASES) if "serialized" in each and each["canonical"]]
)
def test_other_layouts_are_those_of_confluents_registry(case: Mapping[str, Any]) -> None:
    schema = parsed(case)
    assert schema is not None
    assert schema.formatted("ignore_extensions") == case.get("ignore_extensions", case["canonical"])
    assert result(lambda: schema.formatted("serialized")) == case["serialized"]


@pytest.mark.parametrize("case", DIFFERENCES)
def test_differences_are_those_of_confluents_registry(case: Mapping[str, Any]) -> None:
    writer = parse(case["writer"], case.get("writer_references", {}))
    reader = parse(case["reader"], case.get("reader_references", {}))
    found = [each.describe("%s", "%s") for each in reader.differences(writer)]
    assert sorted(found) == case["differences"]


def test_the_cases_have_every_result() -> None:
    kinds = {line.split('"')[1] for case in DIFFERENCES for line in case["differences"]}
    assert len(kinds) >= 8
    assert any(not case["differences"] for case in DIFFERENCES)
    for name in ("canonical", "normalized", "serialized"):
        assert {case[name] is None for case in SCHEMAS} == {True, False}
