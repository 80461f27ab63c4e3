"""Hostile schemas: each is refused or accepted in bounded time, and time grows with the length of the text."""

import json
from collections.abc import Callable

import pytest

from penstock.schemas.formats.avro import AvroSchema, compatibility, equality, parse, validation
from penstock.schemas.formats.avro.parser import NAMES_CHARS_MAX
from penstock.schemas.formats.avro.schema import TEXT_CHARS_MAX
from penstock.schemas.formats.format import InvalidSchema
from tests.scaling import GROWTH_MAX, growth

RECORD = '{"type":"record","name":"R","fields":['
NAMESPACE = "n" * 5000


def _list(begin: str, item: Callable[[int], str], end: str) -> Callable[[int], str]:
    return lambda count: begin + ",".join(item(number) for number in range(count)) + end


LARGE: dict[str, Callable[[int], str]] = {
    "fields": _list(RECORD, lambda n: f'{{"name":"f{n}","type":["null","string"],"default":null,"doc":"d"}}', "]}"),
    "records": _list(
        RECORD, lambda n: f'{{"name":"f{n}","type":{{"type":"record","name":"R{n}","fields":[]}}}}', "]}"
    ),
    "self references": _list(RECORD, lambda n: f'{{"name":"f{n}","type":"R"}}', "]}"),
    "forward references": _list(
        "[" + RECORD,
        lambda n: f'{{"name":"f{n}","type":"E"}}',
        ']},{"type":"enum","name":"E","symbols":["' + '","'.join(f"s{n}" for n in range(1000)) + '"]}]',
    ),
    "equal definitions": _list(
        RECORD, lambda n: f'{{"name":"f{n}","type":{{"type":"enum","name":"E","symbols":["a","b"]}}}}', "]}"
    ),
    "symbols": _list('{"type":"enum","name":"E","symbols":[', lambda n: f'"s{n}"', "]}"),
    "letters of other scripts": lambda count: f'{{"type":"fixed","size":1,"name":"{"é" * count}"}}',
    "aliases": _list('{"type":"record","name":"R","fields":[],"aliases":[', lambda n: f'"a{n}"', "]}"),
    "aliases of a field": _list(RECORD + '{"name":"f","type":"int","aliases":[', lambda n: f'"a{n}"', "]}]}"),
    "branches": _list("[", lambda n: f'{{"type":"fixed","name":"F{n}","size":1}}', "]"),
    "properties": _list('{"type":"array","items":"int",', lambda n: f'"p{n}":{{"a":[{n}]}}', "}"),
    "duplicate members": lambda count: '{"type":"int"' + ',"a":1' * count + "}",
    "numbers": _list('{"type":"int","p":[', lambda n: f"{n}e{n % 300}", "]}"),
    "floats as defaults": _list(RECORD, lambda n: f'{{"name":"f{n}","type":"float","default":0.{n}}}', "]}"),
    "defaults": _list(RECORD + '{"name":"f","type":{"type":"array","items":"int"},"default":[', str, "]}]}"),
    "escapes": lambda count: '{"type":"int","p":"' + "\\n" * count + '"}',
    "comments": lambda count: "/**//*/*/" * count + '"int"',
    "white space": lambda count: " \n" * count + '"int"',
    "a long doc": lambda count: '{"type":"int","doc":"' + "x" * count + '"}',
}


@pytest.mark.slow
@pytest.mark.parametrize("make", LARGE.values(), ids=LARGE)
def test_the_time_for_a_schema_grows_with_its_length(make: Callable[[int], str]) -> None:
    def work(count: int) -> Callable[[], object]:
        text = make(count)

        def use() -> None:
            schema = parse(text, {})
            assert schema.text
            schema.normalized()
            assert schema.is_same(parse(text, {}))
            schema.differences(schema)

        return use

    assert growth(work, 100) < GROWTH_MAX


def test_the_time_to_compare_unions_grows_with_their_length() -> None:
    def work(count: int) -> Callable[[], object]:
        one, other = (parse(LARGE["branches"](count + more), {}) for more in (0, 1))
        return lambda: (one.differences(other), other.differences(one))

    assert growth(work, 300) < GROWTH_MAX


def test_the_time_for_references_grows_with_their_number() -> None:
    def work(count: int) -> Callable[[], object]:
        references = {"R0": '{"type":"record","name":"R0","fields":[]}'}
        for number in range(1, count):
            uses = ",".join(f'{{"name":"f{use}","type":"R{number - 1}"}}' for use in range(2))
            references[f"R{number}"] = f'{{"type":"record","name":"R{number}","fields":[{uses}]}}'
        return lambda: parse(f'"R{count - 1}"', references)

    assert growth(work, 50) < GROWTH_MAX


@pytest.mark.parametrize("depth", [300, 333])
def test_schemas_may_be_nested_as_deeply_as_in_java(depth: int) -> None:
    text = '"int"'
    for level in range(depth):
        text = f'{{"type":"record","name":"R{level}","fields":[{{"name":"f","type":{text},"default":{{}}}}]}}'
    _use(parse(text, {}))


@pytest.mark.parametrize(
    ("begin", "end"),
    [
        ('{"type":"array","items":', "}"),
        ('{"type":"map","values":', "}"),
        ("[", "]"),
        ('{"type":"int","p":[', "]}"),
        ('{"type":', "}"),
        (RECORD + '{"name":"f","type":', "}]}"),
    ],
)
@pytest.mark.parametrize("depth", [10_000, 100_000])
def test_deeper_nesting_is_refused(begin: str, end: str, depth: int) -> None:
    for text in (begin * depth, begin * depth + '"int"' + end * depth):
        with pytest.raises(InvalidSchema):
            parse(text, {})


def test_types_of_references_may_not_be_nested_too_deeply() -> None:
    def nested(name: str, depth: int, inner: str) -> str:
        for level in range(depth):
            field = f'{{"name":"f","type":{inner}}}'
            inner = f'{{"type":"record","name":"{name}{level}","fields":[{field}]}}'
        return inner

    references = {"a": nested("A", 200, '"int"')}
    # The outermost type is known by its name, those within it are defined where they are used first.
    assert parse(nested("B", 200, '"A199"'), references).text
    with pytest.raises(InvalidSchema, match="nested deeper"):
        parse(nested("B", 200, '"A198"'), references)
    deep = parse(nested("B", 200, '"A199"'), references)
    with pytest.raises(InvalidSchema, match="nested deeper"):
        deep.formatted("resolved")
    assert deep.differences(deep) == []


def _in_namespace(members: str, items: list[str]) -> str:
    return f'{{"type":"record","name":"R","namespace":"{NAMESPACE}",{members}:[{",".join(items)}]}}'


@pytest.mark.parametrize(
    "text",
    [
        _in_namespace('"fields":[],"aliases"', [f'"a{n}"' for n in range(5000)]),
        _in_namespace('"fields"', [f'{{"name":"f{n}","type":"R"}}' for n in range(5000)]),
        _in_namespace(
            '"fields"', [f'{{"name":"f{n}","type":{{"type":"fixed","name":"F{n}","size":1}}}}' for n in range(5000)]
        ),
    ],
    ids=["aliases", "references", "definitions"],
)
def test_a_long_namespace_must_not_be_used_too_often(text: str) -> None:
    assert 5000 * len(NAMESPACE) > NAMES_CHARS_MAX
    with pytest.raises(InvalidSchema, match="names of the schema"):
        parse(text, {})


def test_a_name_of_64_kb_may_be_used() -> None:
    name = "N" * 65536
    schema = parse(f'{{"type":"record","name":"{name}","fields":[{{"name":"{name}","type":["null","{name}"]}}]}}', {})
    _use(schema)
    schema.validate(fields=True)


def test_texts_that_are_too_long_are_refused() -> None:
    text = '"int"' + " " * (TEXT_CHARS_MAX // 2)
    assert parse(text, {}).text == '"int"'
    with pytest.raises(InvalidSchema, match="more than"):
        parse(text, {"a": text})


def _use(schema: AvroSchema) -> None:
    assert parse(schema.text, {}).text == schema.text
    assert schema.normalized().normalized().text == schema.normalized().text
    assert schema.differences(schema) == []
    assert schema.is_same(parse(schema.text, {}))


def _redefinitions(count: int) -> str:
    """Types within others, all defined again and again."""
    fields = ",".join(f'{{"name":"f{number}","type":"int"}}' for number in range(10))
    inner = f'{{"type":"record","name":"R0","fields":[{fields}]}}'
    for level in range(1, 100):
        inner = f'{{"type":"record","name":"R{level}","fields":[{{"name":"f","type":{inner}}}]}}'
    again = ",".join(f'{{"name":"g{number}","type":{inner}}}' for number in range(count))
    return f"{RECORD}{again}]}}"


def _namesakes(space: str, field: str, count: int) -> AvroSchema:
    branch = {"type": "record", "name": "R", "fields": [{"name": field, "type": "int"}]}
    return parse(json.dumps([{**branch, "namespace": f"{space}{number}"} for number in range(count)]), {})


def _arrays_of_records(count: int) -> AvroSchema:
    branches = [{"type": "record", "name": f"R{n}", "fields": [{"name": "x", "type": "int"}]} for n in range(count)]
    field = {"name": "f", "type": {"type": "array", "items": branches}, "default": [{"x": ""}] * count}
    return parse(json.dumps({"type": "record", "name": "Top", "fields": [field]}), {})


def test_the_time_for_types_that_are_defined_many_times_grows_with_their_number() -> None:
    def work(count: int) -> Callable[[], object]:
        text = _redefinitions(count)
        return lambda: parse(text, {})

    assert growth(work, 2) < GROWTH_MAX


def test_the_time_to_compare_records_of_one_name_is_limited(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(compatibility, "COMPARISONS_MAX", 5000)

    def work(count: int) -> Callable[[], object]:
        reader, writer = _namesakes("a", "x", count), _namesakes("b", "y", count)
        return lambda: reader.differences(writer)

    assert growth(work, 100) < GROWTH_MAX


def test_the_time_to_check_defaults_is_limited(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(validation, "CHECKS_MAX", 5000)

    def work(count: int) -> Callable[[], object]:
        schema = _arrays_of_records(count)

        def check() -> None:
            with pytest.raises(InvalidSchema):
                schema.validate(fields=False)

        return check

    assert growth(work, 100) < GROWTH_MAX


def test_the_time_to_compare_definitions_is_limited(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(equality, "COMPARISONS_MAX", 1000)
    with pytest.raises(InvalidSchema, match="comparisons"):
        parse(_redefinitions(20), {})
