"""Random Avro schemas and changes to them, as JSON values, and data for them."""

import copy
import struct
from typing import Any

from hypothesis import strategies as st

PRIMITIVES = ["null", "boolean", "int", "long", "float", "double", "bytes", "string"]
VALUES: dict[str, list[Any]] = {
    "null": [None],
    "boolean": [True, False],
    "int": [0, -(2**31)],
    "long": [1, 2**62],
    "float": [0.5],
    "double": [-1e300, 0.0],
    "bytes": [b"", b"\x7f\x00"],  # may be read as strings
    "string": ["", "x"],
}
DEFAULTS = {**{kind: values[0] for kind, values in VALUES.items()}, "bytes": "\u00ff"}


@st.composite
def schemas(draw: st.DrawFn, *, names: list[str] | None = None, depth: int = 0, in_union: bool = False) -> Any:
    """A schema whose named types are called T0, T1, …; `names`: those that are taken."""
    names = [] if names is None else names
    kinds = ["primitive"] * 3 + (["array", "map", "enum", "fixed", "record"] if depth < 4 else [])
    kind = draw(st.sampled_from(kinds + ([] if in_union or depth > 3 else ["union"])))
    if kind == "primitive":
        return draw(st.sampled_from(PRIMITIVES))
    if kind == "array":
        return {"type": "array", "items": draw(schemas(names=names, depth=depth + 1))}
    if kind == "map":
        return {"type": "map", "values": draw(schemas(names=names, depth=depth + 1))}
    if kind == "union":
        return draw(_unions(names, depth))
    name = f"T{len(names)}"
    names.append(name)
    schema: dict[str, Any] = {"type": kind, "name": name}
    if kind == "enum":
        schema["symbols"] = draw(st.lists(st.sampled_from("abcd"), min_size=1, unique=True))
        if draw(st.booleans()):
            schema["default"] = schema["symbols"][0]
    elif kind == "fixed":
        schema["size"] = draw(st.integers(0, 3))
    else:
        fields = draw(st.lists(st.sampled_from("fghijk"), max_size=4, unique=True))
        schema["fields"] = [draw(_fields(field, names, depth)) for field in fields]
    return schema


@st.composite
def records(draw: st.DrawFn) -> Any:
    """A record with some fields."""
    names = ["Top"]
    fields = draw(st.lists(st.sampled_from("fghijk"), min_size=1, max_size=4, unique=True))
    return {"type": "record", "name": "Top", "fields": [draw(_fields(field, names, 1)) for field in fields]}


@st.composite
def _unions(draw: st.DrawFn, names: list[str], depth: int) -> list[Any]:
    branches: dict[str, Any] = {}
    for _ in range(draw(st.integers(1, 4))):
        branch = draw(schemas(names=names, depth=depth + 1, in_union=True))
        branches.setdefault(branch if isinstance(branch, str) else branch.get("name", branch["type"]), branch)
    return list(branches.values())


@st.composite
def _fields(draw: st.DrawFn, name: str, names: list[str], depth: int) -> dict[str, Any]:
    field: dict[str, Any] = {"name": name, "type": draw(schemas(names=names, depth=depth + 1))}
    if draw(st.booleans()) and (default := default_of(field["type"])) is not ...:
        field["default"] = default
    return field


def default_of(schema: Any) -> Any:
    """A default for a type; `...` if it is a record, for which there may be none."""
    if isinstance(schema, list):
        return default_of(schema[0])
    if isinstance(schema, str):
        return DEFAULTS.get(schema, ...)
    match schema["type"]:
        case "array":
            return []
        case "map":
            return {}
        case "enum":
            return schema["symbols"][0]
        case "fixed":
            return "\u0001" * schema["size"]
        case _:
            return ...


@st.composite
def decorated(draw: st.DrawFn, schema: Any) -> Any:
    """The schema with docs, aliases, properties, namespaces and orders here and there."""
    schema = copy.deepcopy(schema)
    for node in _objects(schema):
        for key, values in {
            "doc": st.text(st.characters(codec="utf-8"), max_size=3),
            # ".D" is not among them: Java prints it as "D", which means another type within a namespace.
            "aliases": st.lists(st.sampled_from(["A", "B", "x.C"]), max_size=2),
            "namespace": st.sampled_from(["x", "x.y", ""]),
            "order": st.sampled_from(["ascending", "ignore"]),
            "logicalType": st.sampled_from(["date", "uuid", "map"]),
            "property": st.integers(-(2**63), 2**63 - 1) | st.floats(allow_nan=False, allow_infinity=False),
        }.items():
            if draw(st.integers(0, 9)) == 0:
                node.setdefault(key, draw(values))
    return schema


@st.composite
def changed(draw: st.DrawFn, schema: Any) -> Any:
    """The schema after a few of the changes that people make."""
    schema = copy.deepcopy(schema)
    for _ in range(draw(st.integers(0, 3))):
        if changes := [(node, change) for node in _objects(schema) for change in _changes(node)]:
            node, change = draw(st.sampled_from(changes))
            _change(node, change, draw(st.sampled_from(PRIMITIVES)))
    return schema


def _changes(node: dict[str, Any]) -> list[str]:
    """Changes that can be made to a schema or field."""
    is_primitive = node["type"] in PRIMITIVES
    possible = {
        "add a field": "fields" in node and all(field["name"] != "new" for field in node["fields"]),
        "add a field with a default": "fields" in node and all(field["name"] != "new" for field in node["fields"]),
        "remove a field": bool(node.get("fields")),
        "remove the default": "default" in node,
        "change the type": is_primitive,
        "allow null": is_primitive and node["type"] != "null",
        "change the symbols": "symbols" in node,
        "change the size": "size" in node,
    }
    return [change for change, is_possible in possible.items() if is_possible]


def _change(node: dict[str, Any], change: str, kind: str) -> None:
    match change:
        case "add a field":
            node["fields"].append({"name": "new", "type": kind})
        case "add a field with a default":
            node["fields"].append({"name": "new", "type": kind, "default": DEFAULTS[kind]})
        case "remove a field":
            node["fields"].pop()
        case "remove the default":
            del node["default"]
        case "change the symbols":
            node["symbols"] = [*node["symbols"][:1], "z"]
        case "change the size":
            node["size"] += 1
        case _:
            node["type"] = kind if change == "change the type" else ["null", node["type"]]
            node.pop("default", None)


def _objects(schema: Any) -> list[dict[str, Any]]:
    """All objects of a schema that are schemas or fields."""
    found: list[dict[str, Any]] = []
    pending = [schema]
    while pending:
        node = pending.pop()
        if isinstance(node, list):
            pending.extend(node)
        elif isinstance(node, dict):
            found.append(node)
            pending.extend(node[key] for key in ("type", "items", "values", "fields") if key in node)
    return found


def data(schema: Any) -> list[Any]:
    """Values of a schema that together have every branch of each union and every symbol of each enum.

    A value of a union is a pair: the index of the branch, and its value.
    """
    if isinstance(schema, list):
        return [(index, value) for index, branch in enumerate(schema) for value in data(branch)]
    if isinstance(schema, str):
        return VALUES[schema]
    match schema["type"]:
        case "array":
            return [[], data(schema["items"])]
        case "map":
            return [{}, {str(number): value for number, value in enumerate(data(schema["values"]))}]
        case "enum":
            return list(schema["symbols"])
        case "fixed":
            return [b"\x02" * schema["size"]]
        case "record":
            columns = {field["name"]: data(field["type"]) for field in schema["fields"]}
            count = max((len(values) for values in columns.values()), default=1)
            return [{name: values[row % len(values)] for name, values in columns.items()} for row in range(count)]
        case kind:
            return data(kind)


def encode(schema: Any, value: Any) -> bytes:
    """Encodes a value as Avro's specification says."""
    if isinstance(schema, list):
        index, inner = value
        return _long(index) + encode(schema[index], inner)
    kind = schema if isinstance(schema, str) else schema["type"]
    match kind:
        case "null":
            return b""
        case "boolean":
            return bytes([value])
        case "int" | "long":
            return _long(value)
        case "float" | "double":
            return struct.pack("<f" if kind == "float" else "<d", value)
        case "bytes" | "string":
            encoded = value.encode() if kind == "string" else value
            return _long(len(encoded)) + encoded
        case "fixed":
            return bytes(value)
        case "enum":
            return _long(schema["symbols"].index(value))
        case "array":
            items = b"".join(encode(schema["items"], item) for item in value)
            return (_long(len(value)) + items if value else b"") + _long(0)
        case "map":
            members = b"".join(encode("string", key) + encode(schema["values"], each) for key, each in value.items())
            return (_long(len(value)) + members if value else b"") + _long(0)
        case "record":
            return b"".join(encode(field["type"], value[field["name"]]) for field in schema["fields"])
        case _:
            return encode(kind, value)


def _long(value: int) -> bytes:
    """Encodes an integer with the sign in its last bit, seven bits in each byte."""
    rest = value << 1 if value >= 0 else (-value << 1) - 1
    encoded = bytearray()
    while rest > 0x7F:
        encoded.append(rest & 0x7F | 0x80)
        rest >>= 7
    return bytes([*encoded, rest])
