"""What holds for all Protobuf schemas and data."""

from base64 import b64decode, b64encode
from typing import Any

import pytest
from google.protobuf import descriptor_pb2
from google.protobuf.descriptor_pool import DescriptorPool
from google.protobuf.message_factory import GetMessageClass
from hypothesis import assume, event, given
from hypothesis import strategies as st

from penstock.schemas.formats.format import InvalidSchema
from penstock.schemas.formats.protobuf import ProtobufSchema, parse
from penstock.schemas.formats.protobuf.file_sets import file_descriptor_set
from tests.examples import examples

from .golden_cases import read_cases
from .schema_lab import SCALARS, SchemaModel, later_versions, schemas, values

PIECES = st.sampled_from(
    [
        *"{}[]()<>=;:,./\\\"'-",
        *("message ", "enum ", "oneof ", "map<", "option ", "optional ", "extend ", "group ", "reserved ", "to max"),
        *("a", "B.c", "1", "0x1", "-2", "1.5", '"x"', "/*", "*/", "//", "\n", " ", "é", "\0", "😀", "\\x"),
    ]
)


def message_class(schema: ProtobufSchema, name: str) -> Any:
    pool = DescriptorPool()
    for file in descriptor_pb2.FileDescriptorSet.FromString(file_descriptor_set(schema)).file:
        pool.Add(file)
    return GetMessageClass(pool.FindMessageTypeByName(name))


def parsed(model: SchemaModel) -> ProtobufSchema:
    return parse(model.text(), {})


@examples(100)
@given(schemas())
def test_a_stored_text_is_parsed_to_itself(model: SchemaModel) -> None:
    text = parsed(model).text
    assert parse(text, {}).text == text


@examples(100)
@given(schemas())
def test_a_normal_form_is_its_own_normal_form(model: SchemaModel) -> None:
    normal = parsed(model).normalized()
    assert parse(normal.text, {}).text == normal.text
    assert normal.normalized().text == normal.text


@examples(100)
@given(schemas(), st.randoms(use_true_random=False))
def test_the_order_of_fields_does_not_change_the_normal_form(model: SchemaModel, random: Any) -> None:
    shuffled = list(model.fields)
    random.shuffle(shuffled)
    again = SchemaModel(tuple(shuffled), model.package, model.nested)
    assert parsed(again).normalized().text == parsed(model).normalized().text


@examples(100)
@given(schemas())
def test_a_schema_can_read_its_own_data(model: SchemaModel) -> None:
    assert parsed(model).differences(parsed(model)) == []
    assert parsed(model).normalized().differences(parsed(model)) == []


@examples(100)
@given(schemas())
def test_a_schema_and_its_file_descriptor_have_the_same_normal_form(model: SchemaModel) -> None:
    schema = parsed(model)
    assert parse(schema.formatted("serialized"), {}).normalized().text == schema.normalized().text


@examples(300)
@given(st.data())
def test_compatible_schemas_read_fields_that_both_declare_alike_as_they_were_written(data: st.DataObject) -> None:
    old = data.draw(schemas(depth=2))
    new = data.draw(later_versions(old))
    writer, reader = parsed(old), parsed(new)
    found = reader.differences(writer)
    event("compatible" if not found else "incompatible")
    assume(not found)
    written = message_class(writer, "M")(**data.draw(values(old)))
    read = message_class(reader, "M").FromString(written.SerializeToString())
    by_number = {each.number: each for each in new.fields}
    for each in old.fields:
        kept = by_number.get(each.number)
        is_alike = kept is not None and (kept.type, kept.is_repeated) == (each.type, each.is_repeated)
        if is_alike and each.type in SCALARS:
            name = f"f{each.number}"
            # Of the fields of a oneof, the last one that was written counts: both sides agree on which that is.
            if each.one_of is None or written.WhichOneof(each.one_of) == name:
                assert getattr(read, name) == getattr(written, name)


@given(st.lists(PIECES, max_size=40).map("".join))
def test_any_text_is_parsed_or_refused(text: str) -> None:
    try:
        schema = parse(text, {})
        schema.formatted("ignore_extensions")
        schema.differences(schema)
        schema.validate(fields=True)
    except InvalidSchema:
        event("refused")


@given(st.data())
def test_any_change_of_a_valid_text_is_parsed_or_refused(data: st.DataObject) -> None:
    text = data.draw(st.sampled_from([case["text"] for case in read_cases("schemas")]))
    at = data.draw(st.integers(0, len(text)))
    end = data.draw(st.integers(at, min(len(text), at + 5)))
    changed = text[:at] + data.draw(st.lists(PIECES, max_size=3).map("".join)) + text[end:]
    try:
        schema = parse(changed, {})
        schema.formatted("ignore_extensions")
        schema.validate(fields=True)
        schema.formatted("serialized")
    except InvalidSchema:
        event("refused")


@given(st.binary(max_size=60))
def test_any_bytes_are_a_descriptor_or_refused(data: bytes) -> None:
    try:
        parse(b64encode(data).decode(), {}).validate(fields=True)
    except InvalidSchema:
        event("refused")


@pytest.mark.parametrize("case", [each for each in read_cases("schemas") if each["serialized"] is not None])
@examples(5)
@given(data=st.data())
def test_any_change_of_a_descriptor_is_parsed_or_refused(case: Any, data: st.DataObject) -> None:
    serialized = bytearray(b64decode(case["serialized"]))
    for _ in range(data.draw(st.integers(1, 4))):
        serialized[data.draw(st.integers(0, len(serialized) - 1))] = data.draw(st.integers(0, 255))
    try:
        schema = parse(b64encode(serialized).decode(), case.get("references", {}))
        schema.validate(fields=True)
        schema.formatted("serialized")
    except InvalidSchema:
        event("refused")
