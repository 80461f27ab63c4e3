"""What holds for all schemas, checked with random ones and with a real decoder."""

import io
import json
from typing import Any

import fastavro
import pytest
from hypothesis import HealthCheck, event, given, settings
from hypothesis import strategies as st

from penstock.schemas.formats.avro import parse
from tests.examples import scaled
from tests.unit.schemas.avro.schema_strategies import changed, data, decorated, encode, records, schemas

SCHEMAS = schemas()
DECORATED = SCHEMAS.flatmap(decorated)
PAIRS = records().flatmap(lambda schema: st.tuples(changed(schema), st.just(schema)))
SLOW = settings(suppress_health_check=[HealthCheck.too_slow, HealthCheck.filter_too_much], deadline=None)
FAILING = {"TYPE_MISMATCH", "MISSING_ENUM_SYMBOLS", "READER_FIELD_MISSING_DEFAULT_VALUE", "MISSING_UNION_BRANCH"}
"""Differences that the decoder notices; it does not compare all names and sizes."""


@SLOW
@given(DECORATED, st.sampled_from([None, 2]))
def test_the_canonical_text_is_a_fixpoint(schema: Any, indent: int | None) -> None:
    parsed = parse(json.dumps(schema, indent=indent), {})
    again = parse(parsed.text, {})
    assert again.text == parsed.text
    assert again.formatted("resolved") == parsed.text


@SLOW
@given(DECORATED)
def test_the_normal_form_is_a_fixpoint(schema: Any) -> None:
    normalized = parse(json.dumps(schema), {}).normalized()
    assert normalized.normalized().text == normalized.text
    assert parse(normalized.text, {}).normalized().text == normalized.text


@SLOW
@given(DECORATED, st.randoms(use_true_random=False))
def test_the_order_of_members_does_not_change_the_normal_form(schema: Any, random: Any) -> None:
    def shuffled(value: Any) -> Any:
        if isinstance(value, list):
            return [shuffled(each) for each in value]
        if not isinstance(value, dict):
            return value
        members = list(value.items())
        random.shuffle(members)
        return {key: shuffled(member) for key, member in members}

    one, other = parse(json.dumps(schema), {}), parse(json.dumps(shuffled(schema)), {})
    assert one.normalized().text == other.normalized().text
    assert one.is_same(other)


@SLOW
@given(DECORATED)
def test_a_schema_can_read_itself_and_is_the_same_as_itself(schema: Any) -> None:
    one, other = (parse(json.dumps(schema), {}) for _ in range(2))
    assert one.differences(other) == []
    assert one.is_same(other)


@SLOW
@given(SCHEMAS)
def test_a_schema_with_fitting_defaults_may_be_registered(schema: Any) -> None:
    parse(json.dumps(schema), {}).validate(fields=True)


def _read_all(reader: Any, writer: Any) -> None:
    """Reads data of one schema with the other; raises an exception if that fails."""
    written_as, read_as = fastavro.parse_schema(writer), fastavro.parse_schema(reader)
    for value in data(writer):
        stream = io.BytesIO(encode(writer, value))
        fastavro.schemaless_reader(stream, written_as, read_as)
        assert stream.read() == b""


@settings(SLOW, max_examples=scaled(200))
@given(PAIRS)
def test_data_is_readable_if_and_only_if_there_are_no_differences(pair: tuple[Any, Any]) -> None:
    reader, writer = pair
    differences = parse(json.dumps(reader), {}).differences(parse(json.dumps(writer), {}))
    event(f"kinds: {sorted({each.kind for each in differences})}")
    if not differences:
        _read_all(reader, writer)
    elif any(each.kind in FAILING for each in differences):
        with pytest.raises(Exception):  # noqa: B017, PT011 - which one depends on the decoder
            _read_all(reader, writer)
