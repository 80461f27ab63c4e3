"""Hostile schemas are refused, or cost no more time than their size allows."""

import base64
from collections.abc import Callable
from contextlib import suppress

import pytest
from google.protobuf import descriptor_pb2

from penstock.schemas.formats.format import InvalidSchema
from penstock.schemas.formats.protobuf import ProtobufSchema, differences, limits, parse
from penstock.schemas.formats.protobuf.known_files import known_files
from tests.scaling import GROWTH_MAX, growth

DEEP = 10_000
WIDE = 300


def use(text: str, references: dict[str, str] | None = None) -> None:
    """Does all that the registry may do with a schema."""
    schema = parse(text, references or {})
    schema.formatted("ignore_extensions")
    with suppress(InvalidSchema):
        schema.differences(schema)
    with suppress(InvalidSchema):
        schema.validate(fields=True)


def many(template: str, count: int) -> str:
    return "".join(template.replace("#", str(number)) for number in range(1, count + 1))


@pytest.mark.parametrize(
    "text",
    [
        "message A {" * DEEP + "}" * DEEP,
        'syntax = "proto3"; message A { ' + "map<int32, " * DEEP + "A" + ">" * DEEP + " a = 1; }",
        "option a = " + "{a: " * DEEP + "1" + "}" * DEEP + ";",
        "option a = " + "[" * DEEP + "]" * DEEP + ";",
        "option (a)" + ".b" * DEEP + " = 1;",
        "message A { optional group B = 1 {" + "optional group C = 1 {" * DEEP,
    ],
)
def test_what_is_nested_too_deeply_is_refused(text: str) -> None:
    with pytest.raises(InvalidSchema, match=r"levels deep|contain a group"):
        parse(text, {})


def test_the_deepest_schema_that_is_allowed_can_be_used() -> None:
    use("message A {" * limits.NESTING_MAX + "}" * limits.NESTING_MAX)
    use("option a = " + "{a: " * limits.NESTING_MAX + "1" + "}" * limits.NESTING_MAX + ";")


def test_a_descriptor_that_is_nested_too_deeply_is_refused() -> None:
    serialized = b"\n\x01M"
    for _ in range(1000):
        serialized = b"\n\x01M\x1a" + _length(serialized) + serialized
    text = base64.b64encode(b'"' + _length(serialized) + serialized).decode()
    with pytest.raises(InvalidSchema, match="no Protobuf file descriptor"):
        parse(text, {})


def _length(data: bytes) -> bytes:
    length, out = len(data), bytearray()
    while length > 0x7F:
        out.append(length & 0x7F | 0x80)
        length >>= 7
    return bytes([*out, length])


def test_a_package_with_too_many_parts_is_refused() -> None:
    schema = parse(f"package {'a.' * DEEP}a; message A {{}}", {})
    with pytest.raises(InvalidSchema, match="parts"):
        schema.validate(fields=False)


def test_a_text_that_is_too_long_is_refused() -> None:
    with pytest.raises(InvalidSchema, match="characters"):
        parse(" " * (limits.TEXT_LENGTH_MAX + 1), {})


def test_a_text_that_gets_too_long_by_indentation_is_refused() -> None:
    text = "message A {" * 99 + "enum E {" + "A=1;" * 50_000 + "}" + "}" * 99
    with pytest.raises(InvalidSchema, match="when it is printed"):
        parse(text, {})


def test_a_text_that_gets_too_long_by_full_names_is_refused() -> None:
    package = "a" * 64_000
    schema = parse(f'syntax = "proto3"; package {package}; message A {{ {many("A f# = #;", 200)} }}', {})
    with pytest.raises(InvalidSchema, match="full names"):
        schema.normalized()


def test_full_names_that_take_too_much_memory_are_refused() -> None:
    schema = parse(f'syntax = "proto3"; package {"a" * 64_000}; message A {{ {many("int32 f# = #;", 1200)} }}', {})
    with pytest.raises(InvalidSchema, match="all full names together"):
        schema.formatted("serialized")


def test_too_many_references_are_refused() -> None:
    references = {f"{number}.proto": "" for number in range(limits.FILES_MAX + 1)}
    with pytest.raises(InvalidSchema, match="refers to at most"):
        parse("", references)


def test_references_with_fields_of_each_other_are_not_compared_over_and_over() -> None:
    """Each message uses the one before it three times: paths through them are 3 ** 40."""

    def references(type_: str) -> dict[str, str]:
        files = {"0.proto": f'syntax = "proto3"; message D0 {{ {type_} a = 1; }}'}
        for number in range(1, 40):
            used = f"D{number - 1}"
            fields = f"{used} a = 1; {used} b = 2; {used} c = 3;"
            files[f"{number}.proto"] = (
                f'syntax = "proto3"; import "{number - 1}.proto"; message D{number} {{ {fields} }}'
            )
        return files

    text = 'syntax = "proto3"; import "39.proto"; message X { D39 a = 1; }'
    old, new = parse(text, references("int32")), parse(text, references("string"))
    new.validate(fields=True)
    assert len(new.differences(old)) == 1 + 3 * 39 + 1


def test_a_long_chain_of_types_in_references_is_compared_without_recursion() -> None:
    def references(type_: str) -> dict[str, str]:
        chain = "".join(f"message C{number} {{ C{number - 1} a = 1; }}" for number in range(1, 3001))
        return {"c.proto": f'syntax = "proto3"; message C0 {{ {type_} a = 1; }} {chain}'}

    text = 'syntax = "proto3"; import "c.proto"; message X { C3000 a = 1; }'
    found = parse(text, references("string")).differences(parse(text, references("int32")))
    assert len(found) == limits.DIFFERENCES_MAX


def test_a_comparison_of_too_many_types_is_refused(monkeypatch: pytest.MonkeyPatch) -> None:
    schema = parse(f'syntax = "proto3"; message A {{ {many("int32 f# = #;", 100)} }}', {})
    monkeypatch.setattr(differences, "COMPARISONS_MAX", 100)
    assert schema.differences(schema) == []
    monkeypatch.setattr(differences, "COMPARISONS_MAX", 99)
    with pytest.raises(InvalidSchema, match="over 99 pairs of fields"):
        schema.differences(schema)


@pytest.mark.parametrize(
    "text",
    [
        f"message {'a' * 64_000} {{}}",
        f"message A {{ optional int32 {'a' * 64_000} = 1; }}",
        f"message {'a.' * 32_000}a {{}}",
        "message A { optional double a = 1 [default = nan]; }",
        f"message A {{ optional int32 a = {'1' * 64_000}; }}",
        f"option a = {'9' * 64_000};",
        "option a = 1e999999999;",
        f"option a = '{chr(92)}n{'x' * 64_000}';",
        "/*" * 10_000,
        "message A {}" + "/" * 10_001,
        "\0" * 10_000,
        "A" * 10_000,
    ],
)
def test_strange_schemas_are_used_or_refused(text: str) -> None:
    with suppress(InvalidSchema):
        use(text)


SHAPES: dict[str, Callable[[int], str]] = {
    "fields": lambda n: 'syntax = "proto3"; message A { ' + many("A f# = #; ", n) + "}",
    "fields of one number": lambda n: 'syntax = "proto3"; message A { ' + many("int32 f = 1; ", n) + "}",
    "messages": lambda n: many("message A# {} ", n),
    "nested messages": lambda n: "message A { " + many("message B# {} ", n) + "}",
    "constants": lambda n: "enum A { " + many("V# = #; ", n) + "}",
    "oneofs": lambda n: 'syntax = "proto3"; message A { ' + many("oneof o# { int32 f# = #; } ", n) + "}",
    "maps": lambda n: 'syntax = "proto3"; message A { ' + many("map<string, A> f# = #; ", n) + "}",
    "options": lambda n: many('option (a#).b = "x"; ', n),
    "options that are merged": lambda n: (
        'syntax = "proto3"; message A { ' + many('option (confluent.message_meta).tags = "t#"; ', n) + "}"
    ),
    "keys of an option": lambda n: "option a = {" + many("k: #, ", n) + "};",
    "strings": lambda n: "option a = " + many('"#" ', n) + ";",
    "escapes": lambda n: 'option a = "' + "\\n" * n + '";',
    "numbers": lambda n: "option a = [" + many("#.5, ", n) + "];",
    "reserved ranges": lambda n: "message A { reserved " + many("# to 9999999, ", n) + "1; }",
    "extensions": lambda n: "message A { extensions 1 to max; } " + many("extend A { optional A f# = #; } ", n),
    "defaults": lambda n: (
        f"enum E {{ {many('V# = #; ', n)} }} message A {{ {many('optional E f# = # [default = V#]; ', n)} }}"
    ),
    "methods": lambda n: "message A {} service S { " + many("rpc R# (A) returns (A); ", n) + "}",
    "imports": lambda n: many('import "#"; ', n),
    "comments": lambda n: "/* x */ // y\n" * n,
    "semicolons": lambda n: ";" * n,
}


@pytest.mark.slow
@pytest.mark.parametrize("shape", SHAPES)
def test_time_grows_with_the_size_of_a_schema(shape: str) -> None:
    known_files()

    def work(size: int) -> Callable[[], object]:
        text = SHAPES[shape](size)
        return lambda: use(text)

    assert growth(work, WIDE) < GROWTH_MAX


def test_time_grows_with_the_number_of_references() -> None:
    known_files()

    def work(size: int) -> Callable[[], object]:
        references = {
            f"{number}.proto": f'import public "{number - 1}.proto"; message M{number} {{}}' for number in range(size)
        }
        text = f'import "{size - 1}.proto"; message A {{ optional M0 a = 1; }}'
        return lambda: parse(text, references).normalized()

    assert growth(work, 40) < GROWTH_MAX


def test_time_grows_with_the_size_of_a_descriptor() -> None:
    def work(size: int) -> Callable[[], ProtobufSchema]:
        file = descriptor_pb2.FileDescriptorProto(syntax="proto3")
        message = file.message_type.add(name="M")
        for number in range(size):
            message.field.add(name=f"f{number}", number=number + 1, type=5, label=1, json_name=f"f{number}")
        text = base64.b64encode(file.SerializeToString()).decode()
        return lambda: parse(text, {})

    assert growth(work, WIDE) < GROWTH_MAX


@pytest.mark.parametrize(
    "text",
    [
        f"message A {{ optional int32 a = {'x' * 64_000}; }}",
        f"message A {{ optional {'x' * 64_000} a = 1; }}",
        f"message {'x' * 64_000}-{{}}",
    ],
)
def test_the_message_of_an_error_is_short_though_names_are_long(text: str) -> None:
    with pytest.raises(InvalidSchema) as caught:
        parse(text, {}).validate(fields=True)
    assert len(str(caught.value)) < 1000


def test_differences_in_messages_with_long_names_are_short() -> None:
    name = "x" * 64_000
    old, new = (
        parse(f'syntax = "proto3"; message {name} {{ {many(f"{type_} f# = #;", 500)} }}', {})
        for type_ in ("int32", "string")
    )
    found = new.differences(old)
    assert found
    assert sum(len(each.message) for each in found) < 1_000_000
