"""Schemas as typed values, from which decoders are made."""

import json
from typing import Any

import pytest

from penstock.schemas.formats.avro import parse
from penstock.schemas.formats.avro.model import (
    NO_DEFAULT,
    Array,
    Definition,
    Enum,
    Field,
    Fixed,
    LogicalType,
    Map,
    Primitive,
    Record,
    Reference,
    Union,
    definition,
    kind_of,
)


def _root(schema: Any) -> Definition:
    return parse(json.dumps(schema), {}).root


def test_each_kind_of_schema_has_its_class() -> None:
    schema = parse(
        json.dumps(
            {
                "type": "record",
                "name": "a.R",
                "doc": "d",
                "aliases": ["S", "b.T"],
                "x": [1],
                "fields": [
                    {"name": "p", "type": "long"},
                    {"name": "a", "type": {"type": "array", "items": "string"}, "default": []},
                    {
                        "name": "m",
                        "type": {
                            "type": "map",
                            "values": {"type": "enum", "name": "E", "symbols": ["x", "y"], "default": "y"},
                        },
                    },
                    {
                        "name": "u",
                        "type": ["null", "R"],
                        "default": None,
                        "order": "ignore",
                        "aliases": ["v"],
                        "doc": "",
                    },
                    {"name": "f", "type": {"type": "fixed", "name": "F", "size": 3}},
                ],
            }
        ),
        {},
    )
    root = schema.root
    assert isinstance(root, Record)
    assert (root.name, root.doc, root.aliases, root.properties) == ("a.R", "d", ("a.S", "b.T"), {"x": [1]})
    long, array, map_, union, fixed = root.fields
    assert isinstance(long.type, Primitive)
    assert long.type.kind == "long"
    assert (long.default, long.order, long.doc, long.aliases) == (NO_DEFAULT, "ascending", None, ())
    assert isinstance(array.type, Array)
    assert array.default == []
    assert isinstance(map_.type, Map)
    assert isinstance(map_.type.values, Enum)
    assert (map_.type.values.name, map_.type.values.symbols, map_.type.values.default) == ("a.E", ("x", "y"), "y")
    assert isinstance(union.type, Union)
    assert (union.default, union.order, union.doc, union.aliases) == (None, "ignore", "", ("v",))
    null, reference = union.type.branches
    assert isinstance(null, Primitive)
    assert isinstance(reference, Reference)
    assert definition(reference, schema.types) is root
    assert definition(null, schema.types) is null
    assert isinstance(fixed.type, Fixed)
    assert (fixed.type.name, fixed.type.size) == ("a.F", 3)
    assert set(schema.types) == {"a.R", "a.E", "a.F"}
    kinds = [kind_of(field.type, schema.types) for field in root.fields]
    assert kinds == ["long", "array", "map", "union", "fixed"]


def test_types_of_references_are_in_the_model() -> None:
    schema = parse('["null","A"]', {"a": '{"type":"fixed","name":"A","size":2}'})
    assert isinstance(schema.root, Union)
    fixed = definition(schema.root.branches[1], schema.types)
    assert isinstance(fixed, Fixed)
    assert fixed.size == 2


def test_the_root_is_a_definition() -> None:
    root = parse('"A"', {"a": '{"type":"fixed","name":"A","size":2}'}).root
    assert isinstance(root, Fixed)


def test_defaults_of_floats_are_numbers() -> None:
    root = _root({"type": "record", "name": "R", "fields": [{"name": "f", "type": "float", "default": "1.5"}]})
    assert isinstance(root, Record)
    assert root.fields[0].default == 1.5


def _fixed(size: int) -> dict[str, Any]:
    return {"type": "fixed", "name": "F", "size": size}


@pytest.mark.parametrize(
    ("schema", "logical"),
    [
        ({"type": "int", "logicalType": "date"}, LogicalType("date")),
        ({"type": "int", "logicalType": "time-millis"}, LogicalType("time-millis")),
        ({"type": "long", "logicalType": "timestamp-micros"}, LogicalType("timestamp-micros")),
        ({"type": "long", "logicalType": "local-timestamp-nanos"}, LogicalType("local-timestamp-nanos")),
        ({"type": "string", "logicalType": "uuid"}, LogicalType("uuid")),
        ({**_fixed(16), "logicalType": "uuid"}, LogicalType("uuid")),
        ({**_fixed(12), "logicalType": "duration"}, LogicalType("duration")),
        ({"type": "bytes", "logicalType": "big-decimal"}, LogicalType("big-decimal")),
        ({"type": "bytes", "logicalType": "decimal", "precision": 4, "scale": 2}, LogicalType("decimal", 4, 2)),
        ({"type": "bytes", "logicalType": "decimal", "precision": 2147483647}, LogicalType("decimal", 2147483647)),
        ({**_fixed(4), "logicalType": "decimal", "precision": 9}, LogicalType("decimal", 9)),
        # not valid for the type
        ({"type": "int", "logicalType": "custom"}, None),
        ({"type": "int", "logicalType": 5}, None),
        ({"type": "long", "logicalType": "date"}, None),
        ({"type": "bytes", "logicalType": "uuid"}, None),
        ({**_fixed(15), "logicalType": "uuid"}, None),
        ({**_fixed(16), "logicalType": "duration"}, None),
        ({**_fixed(4), "logicalType": "decimal", "precision": 10}, None),
        ({**_fixed(0), "logicalType": "decimal", "precision": 1}, None),
        ({**_fixed(2**28 + 1), "logicalType": "decimal", "precision": 1}, None),
        ({"type": "bytes", "logicalType": "decimal"}, None),
        ({"type": "bytes", "logicalType": "decimal", "precision": 0}, None),
        ({"type": "bytes", "logicalType": "decimal", "precision": True}, None),
        ({"type": "bytes", "logicalType": "decimal", "precision": "4"}, None),
        ({"type": "bytes", "logicalType": "decimal", "precision": 4, "scale": 5}, None),
        ({"type": "bytes", "logicalType": "decimal", "precision": 4, "scale": -1}, None),
        ({"type": "bytes", "logicalType": "decimal", "precision": 2147483648}, None),
        ({"type": "string", "logicalType": "decimal", "precision": 4}, None),
        ({"type": "string", "logicalType": "uuid", "avro.java.string": "String"}, None),
    ],
)
def test_logical_types_are_in_the_model_if_they_are_valid(schema: Any, logical: LogicalType | None) -> None:
    root = _root(schema)
    assert isinstance(root, Primitive | Fixed)
    assert root.logical == logical


def test_the_model_is_immutable() -> None:
    root = _root({"type": "record", "name": "R", "fields": [{"name": "f", "type": "int"}]})
    assert isinstance(root, Record)
    with pytest.raises(AttributeError):
        root.name = "S"  # type: ignore[misc]
    assert isinstance(root.fields[0], Field)
    with pytest.raises(AttributeError):
        root.fields[0].default = 1  # type: ignore[misc]
