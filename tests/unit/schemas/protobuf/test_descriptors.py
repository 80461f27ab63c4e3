"""File descriptors: as input, as `serialized` layout, and with all imports for Spark; message indexes."""

import base64
from typing import Any

import pytest
from google.protobuf import descriptor_pb2, struct_pb2, timestamp_pb2
from google.protobuf.descriptor_pool import DescriptorPool
from google.protobuf.message_factory import GetMessageClass
from opentelemetry.proto.metrics.v1 import metrics_pb2

from penstock.foundation.errors import CorruptMessage
from penstock.schemas.formats.format import InvalidSchema
from penstock.schemas.formats.protobuf import parse
from penstock.schemas.formats.protobuf.file_sets import file_descriptor_set
from penstock.schemas.formats.protobuf.known_files import known_files
from penstock.schemas.formats.protobuf.message_indexes import (
    message_name,
    read_message_indexes,
    write_message_indexes,
)

ORDER = """
syntax = "proto3";
package shop;
import "items.proto";
import "google/protobuf/timestamp.proto";
import "confluent/meta.proto";
message Order {
  string id = 1 [(confluent.field_meta) = {doc: "key", params: [{key: "b", value: "1"}, {key: "a", value: "2"}]}];
  repeated stock.Item items = 2;
  map<string, google.protobuf.Timestamp> times_by_step = 3;
  optional int32 priority = 4;
  oneof payment { string card = 5; int64 voucher = 6; }
  message Note { string text = 1; }
}
message Empty {}
"""
REFERENCES = {
    "colors.proto": 'syntax = "proto3"; package stock; enum Color { RED = 0; BLUE = 1; }',
    "items.proto": 'syntax = "proto3"; package stock; import "colors.proto"; message Item { Color color = 1; }',
}


def base64_of(file: Any) -> str:
    return base64.b64encode(file.SerializeToString()).decode()


def message_class(files: bytes, name: str) -> Any:
    pool = DescriptorPool()
    for file in descriptor_pb2.FileDescriptorSet.FromString(files).file:
        pool.Add(file)
    return GetMessageClass(pool.FindMessageTypeByName(name))


def test_a_schema_and_its_file_descriptor_have_the_same_normal_form() -> None:
    schema = parse(ORDER, REFERENCES)
    again = parse(schema.formatted("serialized"), REFERENCES)
    assert again.normalized().text == schema.normalized().text


@pytest.mark.parametrize("module", [timestamp_pb2, struct_pb2, descriptor_pb2])
def test_the_descriptors_of_generated_classes_are_stored_as_texts(module: Any) -> None:
    serialized = base64.b64encode(module.DESCRIPTOR.serialized_pb).decode()
    schema = parse(serialized, {})
    schema.validate(fields=True)
    assert parse(schema.text, {}).text == schema.text


def test_a_descriptor_with_references_to_descriptors_is_stored_as_confluents_clients_register_it() -> None:
    references: dict[str, str] = {}

    def add(file: Any) -> None:
        for each in file.dependencies:
            add(each)
            references[each.name] = base64.b64encode(each.serialized_pb).decode()

    add(metrics_pb2.DESCRIPTOR)
    schema = parse(base64.b64encode(metrics_pb2.DESCRIPTOR.serialized_pb).decode(), references)
    schema.validate(fields=True)
    assert "  oneof data {\n    .opentelemetry.proto.metrics.v1.Gauge gauge = 5;\n" in schema.text


def test_confluents_own_options_keep_the_order_of_parameters() -> None:
    text = parse(parse(ORDER, REFERENCES).formatted("serialized"), REFERENCES).text
    assert text.index('key: "b"') < text.index('key: "a"')


def test_padding_may_be_left_out_of_base64() -> None:
    file = descriptor_pb2.FileDescriptorProto(name="a", syntax="proto3")
    file.message_type.add(name="Message")
    texts = {parse(each, {}).text for each in (base64_of(file), base64_of(file).rstrip("="))}
    assert base64_of(file).endswith("=")
    assert texts == {'syntax = "proto3";\n\nmessage Message {}\n'}


def test_a_descriptor_of_an_edition_is_stored_without_syntax_as_in_confluents_registry() -> None:
    file = descriptor_pb2.FileDescriptorProto(name="a", syntax="editions", edition="EDITION_2023")
    message = file.message_type.add(name="M")
    message.field.add(name="f", number=1, type=5, label=1).options.features.field_presence = 2
    text = parse(base64_of(file), {}).text
    assert text == "\nmessage M {\n  optional int32 f = 1 [features = {\n    field_presence: IMPLICIT\n  }];\n}\n"


@pytest.mark.parametrize("text", ["AAAA", "Cg", "Cg=", "C", "====", "CgE\n"])
def test_bytes_that_are_no_descriptor_are_refused(text: str) -> None:
    with pytest.raises(InvalidSchema):
        parse(text, {})


@pytest.mark.parametrize("name", ["two words", "a;} message B {", 'x"', ""])
def test_a_descriptor_whose_names_are_no_names_is_refused(name: str) -> None:
    file = descriptor_pb2.FileDescriptorProto(name="a", syntax="proto3")
    file.message_type.add(name="M").field.add(name=name, number=1, type=5, label=1)
    with pytest.raises(InvalidSchema):
        parse(base64_of(file), {})


def test_a_descriptor_with_a_text_that_is_not_utf_8_is_refused() -> None:
    with pytest.raises(InvalidSchema, match="UTF-8"):
        parse(base64.b64encode(b"\x12\x01\xff").decode(), {})


def test_a_descriptor_with_a_field_in_a_oneof_that_does_not_exist_is_refused() -> None:
    file = descriptor_pb2.FileDescriptorProto(name="a")
    file.message_type.add(name="M").field.add(name="f", number=1, type=5, label=1, oneof_index=0)
    with pytest.raises(InvalidSchema, match="oneof"):
        parse(base64_of(file), {})


def test_data_is_read_with_the_descriptors_of_a_schema_and_its_imports() -> None:
    files = file_descriptor_set(parse(ORDER, REFERENCES))
    order = message_class(files, "shop.Order")
    written = order(id="1", priority=0, card="x", items=[{"color": 1}])
    written.times_by_step["paid"].seconds = 5
    assert order.FromString(written.SerializeToString()) == written
    assert written.HasField("priority")


def test_a_file_descriptor_set_has_every_imported_file_before_those_that_import_it() -> None:
    files = descriptor_pb2.FileDescriptorSet.FromString(file_descriptor_set(parse(ORDER, REFERENCES))).file
    seen: set[str] = set()
    for file in files:
        assert seen.issuperset(file.dependency)
        seen.add(file.name)
    assert files[-1].name == "default"
    assert {"items.proto", "colors.proto", "google/protobuf/timestamp.proto"} < seen
    assert "google/type/money.proto" not in seen


def test_every_file_that_all_schemas_may_import_can_be_linked() -> None:
    imports = "".join(f'import "{path}"; ' for path in known_files())
    files = file_descriptor_set(parse(f"{imports} message A {{ optional google.type.Color c = 1; }}", {}))
    assert message_class(files, "A")(c={"red": 0.5}).c.red == 0.5
    assert message_class(files, "confluent.type.Decimal")(value=b"\x01", scale=2).scale == 2


def test_the_former_path_of_confluents_decimal_can_be_imported() -> None:
    text = 'syntax = "proto3"; import "confluent/types/decimal.proto"; message A { confluent.type.Decimal d = 1; }'
    assert message_class(file_descriptor_set(parse(text, {})), "A")(d={"precision": 3}).d.precision == 3


def test_confluents_python_client_can_load_the_serialized_layout() -> None:
    protobuf = pytest.importorskip("confluent_kafka.schema_registry.common.protobuf")
    pool = DescriptorPool()
    protobuf._init_pool(pool)
    for name in ("colors.proto", "items.proto"):
        pool.Add(protobuf._str_to_proto(name, parse(REFERENCES[name], REFERENCES).formatted("serialized")))
    pool.Add(protobuf._str_to_proto("default", parse(ORDER, REFERENCES).formatted("serialized")))
    assert GetMessageClass(pool.FindMessageTypeByName("shop.Order"))(id="1").id == "1"


@pytest.mark.parametrize(
    ("text", "problem"),
    [
        ('syntax = "proto3"; message A { int32 a = 1; int32 b = 1; }', "same number 1"),
        ('syntax = "proto3"; message A { int32 a = 1; int32 a = 2; }', "A.a is defined twice"),
        ('syntax = "proto3"; message A { int32 a = 0; }', "must be positive"),
        ("message A { optional google.protobuf.Any a = 1; }", "not defined in the file or in what it imports"),
        ("message A { optional int32 a = 1 [packed = true]; }", "packed"),
        ('message A { optional int32 a = 1 [default = "x"]; }', "no default value of type int32"),
        ("message A { optional A a = 1 [default = X]; }", "a message cannot have a default value"),
        ("message A { repeated int32 a = 1 [default = 1]; }", "a repeated field cannot have a default value"),
        ("message A { optional E a = 1 [default = B]; } enum E { A = 0; }", "'B' is no value of enum E"),
        ("enum E {}", "has no values"),
        ("message A {} extend A { optional int32 x = 1; }", "does not have extension number 1"),
        ("message a-b {}", "'a-b' is no name"),
        ("message A { message B {} enum B { X = 0; } }", "A.B is defined twice"),
        ("enum E { A = 0; } service S { rpc R (E) returns (E); }", "no message"),
        ("message A { optional int32 a = 1 [ctype = ROPE]; }", "'ROPE' is no value of option ctype"),
        ("message A { option features = X; }", "in braces"),
        ("message A { option (confluent.message_meta).doc = 5; }", "doc in one of Confluent's options"),
        ("message A { option (confluent.message_meta).tags = [5]; }", "a tag in one of Confluent's options"),
    ],
)
def test_what_java_cannot_build_classes_from_is_only_refused_with_checks_of_fields(text: str, problem: str) -> None:
    schema = parse(text, {})
    schema.validate(fields=False)
    with pytest.raises(InvalidSchema) as caught:
        schema.validate(fields=True)
    assert problem in str(caught.value)


def test_a_private_import_of_an_import_is_not_visible_but_a_public_one_is() -> None:
    text = 'syntax = "proto3"; import "b.proto"; message A { C c = 1; }'
    c = 'syntax = "proto3"; message C {}'
    for word, is_visible in (("", False), ("public", True)):
        schema = parse(text, {"c.proto": c, "b.proto": f'syntax = "proto3"; import {word} "c.proto";'})
        if is_visible:
            schema.validate(fields=True)
        else:
            with pytest.raises(InvalidSchema, match="'C' is not defined"):
                schema.validate(fields=True)


def test_a_private_import_of_a_public_one_is_not_visible() -> None:
    references = {
        "d.proto": "message D {}",
        "c.proto": 'import "d.proto"; message C { optional D d = 1; }',
        "b.proto": 'import public "c.proto";',
    }
    parse('import "b.proto"; message A { optional C c = 1; }', references).validate(fields=True)
    with pytest.raises(InvalidSchema, match="'D' is not defined"):
        parse('import public "b.proto"; message A { optional D d = 1; }', references).validate(fields=True)


def test_two_files_must_not_define_the_same_type() -> None:
    text = 'import "b.proto"; message A {}'
    with pytest.raises(InvalidSchema, match="A is defined in two files"):
        parse(text, {"b.proto": "message A {}"}).validate(fields=True)


def test_files_that_import_each_other_are_refused() -> None:
    references = {"a.proto": 'import "b.proto";', "b.proto": 'import "a.proto";'}
    with pytest.raises(InvalidSchema, match="imports itself"):
        parse('import "a.proto"; message A {}', references).validate(fields=True)


def test_a_message_has_the_name_that_its_indexes_say() -> None:
    schema = parse(ORDER, REFERENCES)
    assert message_name(schema, [0]) == "shop.Order"
    assert message_name(schema, []) == "shop.Order"
    assert message_name(schema, [0, 0]) == "shop.Order.Note"
    assert message_name(schema, [1]) == "shop.Empty"
    assert message_name(schema, [2]) is None
    assert message_name(schema, [0, 1]) is None
    assert message_name(schema, [-1]) is None


def test_enums_do_not_count_in_message_indexes() -> None:
    schema = parse("enum E { X = 0; } message A { enum F { Y = 0; } message B {} }", {})
    assert message_name(schema, [0]) == "A"
    assert message_name(schema, [0, 0]) == "A.B"


def test_indexes_of_a_schema_that_only_imports_a_file_publicly_are_those_of_the_file() -> None:
    schema = parse('import public "b.proto";', {"b.proto": "package b; message B {}"})
    assert message_name(schema, [0]) == "b.B"


@pytest.mark.parametrize(
    ("data", "indexes"),
    [(b"\x00", (0,)), (b"\x02\x00", (0,)), (b"\x02\x02", (1,)), (b"\x04\x04\x00", (2, 0)), (b"\x02\x80\x01", (64,))],
)
def test_message_indexes_are_read(data: bytes, indexes: tuple[int, ...]) -> None:
    assert read_message_indexes(b"id" + data + b"rest", 2) == (indexes, 2 + len(data))


@pytest.mark.parametrize("indexes", [(0,), (1,), (0, 0), (2, 0, 70000)])
def test_message_indexes_that_were_written_are_read_back(indexes: tuple[int, ...]) -> None:
    data = write_message_indexes(indexes)
    assert read_message_indexes(data) == (indexes, len(data))


def test_the_first_message_has_one_zero_byte() -> None:
    assert write_message_indexes([0]) == b"\x00"


@pytest.mark.parametrize(
    "data", [b"", b"\x02", b"\x04\x00", b"\x01", b"\x02\x01", b"\xff\xff\xff\xff\x7f", b"\x90\x4e"]
)
def test_bytes_that_are_no_message_indexes_are_refused(data: bytes) -> None:
    with pytest.raises(CorruptMessage):
        read_message_indexes(data)
