"""Why data written with one version of a schema cannot be read with another."""

import pytest

from penstock.schemas.formats.format import InvalidSchema
from penstock.schemas.formats.protobuf import differences, parse


def compare(writer: str, reader: str, syntax: str = "proto3") -> list[tuple[str, str]]:
    """Returns the kind and the path of each difference."""
    head = f'syntax = "{syntax}";'
    found = parse(head + reader, {}).differences(parse(head + writer, {}))
    return [(each.kind, each.message.split("'")[1]) for each in found]


def test_a_difference_has_the_text_of_confluents_registry() -> None:
    reader, writer = (
        parse("message A { optional int32 a = 1; }", {}),
        parse("message A { optional string a = 1; }", {}),
    )
    (found,) = reader.differences(writer)
    assert found.describe("new", "old") == (
        '{errorType:"FIELD_SCALAR_KIND_CHANGED", description:"The kind of a SCALAR field at path \'#/A/1\' in the '
        'new schema does not match its kind in the old schema"}'
    )


@pytest.mark.parametrize(
    ("old", "new"),
    [
        ("int32", "int64"),
        ("int32", "bool"),
        ("uint64", "E"),
        ("E", "int32"),
        ("sint32", "sint64"),
        ("fixed32", "sfixed32"),
        ("string", "bytes"),
        ("map<string, int32>", "map<bytes, int32>".replace("bytes", "string")),
        ("map<int32, E>", "map<uint32, int64>"),
    ],
)
def test_types_with_the_same_encoding_are_compatible(old: str, new: str) -> None:
    rest = "enum E { X = 0; }"
    assert compare(f"message A {{ {old} a = 1; }} {rest}", f"message A {{ {new} a = 1; }} {rest}") == []


@pytest.mark.parametrize(
    ("old", "new", "kind"),
    [
        ("int32", "sint32", differences.FIELD_SCALAR_KIND_CHANGED),
        ("int32", "fixed32", differences.FIELD_SCALAR_KIND_CHANGED),
        ("float", "double", differences.FIELD_SCALAR_KIND_CHANGED),
        ("int32", "string", differences.FIELD_SCALAR_KIND_CHANGED),
        ("string", "B", differences.FIELD_KIND_CHANGED),
        ("B", "map<string, B>", differences.FIELD_KIND_CHANGED),
        ("B", "C", differences.FIELD_NAMED_TYPE_CHANGED),
        ("map<string, int32>", "map<string, string>", differences.FIELD_SCALAR_KIND_CHANGED),
        ("map<string, B>", "map<string, C>", differences.FIELD_NAMED_TYPE_CHANGED),
        ("google.protobuf.Any", "google.protobuf.Empty", differences.FIELD_NAMED_TYPE_CHANGED),
    ],
)
def test_types_with_different_encodings_are_not(old: str, new: str, kind: str) -> None:
    rest = "message B {} message C {}"
    writer, reader = (f"message A {{ {each} a = 1; }} {rest}" for each in (old, new))
    assert compare(writer, reader) == [(kind, "#/A/1")]


@pytest.mark.parametrize(
    ("writer", "reader"),
    [
        ("message A { int32 a = 1; }", "message A { int32 b = 1; }"),
        ("message A { int32 a = 1; }", "message A {}"),
        ("message A {}", "message A { int32 a = 1; }"),
        ("message A {} message B {}", "message B {} message A {}"),
        ("message A {}", "message A {} message B {}"),
        ("message A {} enum E { X = 0; Y = 1; }", "message A {} enum E { Z = 0; }"),
        ("message A {} enum E { X = 0; }", "message A {}"),
        ("message A { oneof o { int32 a = 1; string b = 2; } }", "message A {}"),
        ("message A { oneof o { int32 a = 1; } }", "message A { int32 a = 1; }"),
        ("message A { int32 a = 1; }", "message A { oneof o { int32 a = 1; string b = 2; } }"),
        ("message A { oneof o { int32 a = 1; } }", "message A { oneof p { int32 a = 1; } }"),
    ],
)
def test_compatible_changes_have_no_difference(writer: str, reader: str) -> None:
    assert compare(writer, reader) == []


def test_a_package_must_not_change() -> None:
    assert compare("package a; message A {}", "package b; message A {}") == [(differences.PACKAGE_CHANGED, "#/")]


def test_a_message_must_not_be_removed() -> None:
    writer = "message A { message B { message C {} } } message D {}"
    assert compare(writer, "message A { message B {} }") == [
        (differences.MESSAGE_REMOVED, "#/A/B/C"),
        (differences.MESSAGE_REMOVED, "#/D"),
    ]


def test_a_required_field_must_be_neither_added_nor_removed() -> None:
    with_field, without = "message A { required int32 a = 1; }", "message A {}"
    assert compare(without, with_field, "proto2") == [(differences.REQUIRED_FIELD_ADDED, "#/A/1")]
    assert compare(with_field, without, "proto2") == [(differences.REQUIRED_FIELD_REMOVED, "#/A/1")]


def test_the_label_of_a_number_must_not_change_but_that_of_a_string_may() -> None:
    writer, reader = "message A { optional %s a = 1; }", "message A { repeated %s a = 1; }"
    label_changed = [(differences.FIELD_NUMERIC_LABEL_CHANGED, "#/A/1")]
    assert compare(writer % "int32", reader % "int32", "proto2") == label_changed
    assert compare(writer % "string", reader % "string", "proto2") == []


def test_one_field_of_a_oneof_must_not_be_removed() -> None:
    writer = "message A { oneof o { int32 a = 1; string b = 2; } }"
    reader = "message A { oneof o { int32 a = 1; } }"
    assert compare(writer, reader) == [(differences.ONEOF_FIELD_REMOVED, "#/A/o/2")]


def test_fields_that_could_be_set_together_must_not_move_into_a_oneof() -> None:
    apart = "message A { int32 a = 1; int32 b = 2; }"
    partly = "message A { int32 a = 1; oneof o { int32 b = 2; } }"
    together = "message A { oneof o { int32 a = 1; int32 b = 2; } }"
    assert compare(apart, together) == [(differences.MULTIPLE_FIELDS_MOVED_TO_ONEOF, "#/A/o")]
    assert compare(partly, together) == [(differences.FIELD_MOVED_TO_EXISTING_ONEOF, "#/A/o")]
    assert compare(together, apart) == []


def with_references(**files: str) -> dict[str, str]:
    return {f"{name}.proto": f'syntax = "proto3"; {text}' for name, text in files.items()}


ROOT = 'syntax = "proto3"; import "b.proto"; message A { B b = 1; }'


def test_a_change_in_a_reference_is_found_at_the_field_that_uses_it() -> None:
    old = parse(ROOT, with_references(b="message B { int32 x = 1; }"))
    new = parse(ROOT, with_references(b="message B { string x = 1; }"))
    assert [(each.kind, each.message.split("'")[1]) for each in new.differences(old)] == [
        (differences.FIELD_SCALAR_KIND_CHANGED, "#/B/1"),
        (differences.FIELD_NAMED_TYPE_CHANGED, "#/A/1"),
    ]
    assert new.differences(new) == []


def test_a_change_in_a_reference_of_a_reference_is_found() -> None:
    b = 'import "c.proto"; message B { C c = 1; }'
    old = parse(ROOT, with_references(c="message C { int32 x = 1; }", b=b))
    new = parse(ROOT, with_references(c="message C { string x = 1; }", b=b))
    assert [each.kind for each in new.differences(old)] == [
        differences.FIELD_SCALAR_KIND_CHANGED,
        differences.FIELD_NAMED_TYPE_CHANGED,
        differences.FIELD_NAMED_TYPE_CHANGED,
    ]


def test_types_that_use_each_other_are_compared_once() -> None:
    old, new = (
        with_references(b=f"message B {{ C c = 1; B b = 2; }} message C {{ B b = 1; {type_} x = 2; }}")
        for type_ in ("int32", "string")
    )
    found = parse(ROOT, new).differences(parse(ROOT, old))
    assert [each.kind for each in found].count(differences.FIELD_SCALAR_KIND_CHANGED) == 1


def test_a_type_that_moved_to_a_reference_is_compared() -> None:
    old = parse('syntax = "proto3"; message A { B b = 1; } message B { int32 x = 1; }', {})
    new = parse(ROOT, with_references(b="message B { string x = 1; }"))
    assert [each.kind for each in new.differences(old)] == [
        differences.FIELD_SCALAR_KIND_CHANGED,
        differences.FIELD_NAMED_TYPE_CHANGED,
        differences.MESSAGE_REMOVED,
    ]


def test_the_same_texts_with_the_same_references_have_no_difference() -> None:
    references = with_references(b="message B { B b = 1; map<string, B> c = 2; }")
    assert parse(ROOT, references).differences(parse(ROOT, references)) == []


def test_a_map_entry_without_key_and_value_cannot_be_compared() -> None:
    schema = parse("message A { repeated E e = 1; message E { option map_entry = true; } }", {})
    with pytest.raises(InvalidSchema):
        schema.differences(schema)
