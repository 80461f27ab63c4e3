"""Strategies for Protobuf schemas, later versions of them, and data."""

from dataclasses import dataclass, field, replace
from typing import Any

from hypothesis import strategies as st

SCALARS = {
    "double": st.floats(allow_nan=False),
    "float": st.floats(allow_nan=False, width=32),
    "int32": st.integers(-(2**31), 2**31 - 1),
    "int64": st.integers(-(2**63), 2**63 - 1),
    "uint32": st.integers(0, 2**32 - 1),
    "uint64": st.integers(0, 2**64 - 1),
    "sint32": st.integers(-(2**31), 2**31 - 1),
    "sint64": st.integers(-(2**63), 2**63 - 1),
    "fixed32": st.integers(0, 2**32 - 1),
    "fixed64": st.integers(0, 2**64 - 1),
    "sfixed32": st.integers(-(2**31), 2**31 - 1),
    "sfixed64": st.integers(-(2**63), 2**63 - 1),
    "bool": st.booleans(),
    "string": st.text("abc", max_size=5),
    "bytes": st.text("abc", max_size=5).map(str.encode),
}
"""Values of strings and bytes are ASCII: each can be read as the other."""
KEYS = [name for name in SCALARS if name not in ("double", "float", "bytes")]
NAMED_TYPES = ("Leaf", "Tree", "Color", "google.protobuf.Duration")
FIXED_TYPES = (
    "message Leaf { int32 x = 1; } message Tree { Tree t = 1; Leaf l = 2; } enum Color { RED = 0; BLUE = 1; }"
)


@dataclass(frozen=True)
class FieldModel:
    number: int
    type: str
    is_repeated: bool = False
    one_of: str | None = None
    option: str = ""

    def text(self) -> str:
        label = "repeated " if self.is_repeated else ""
        return f"{label}{self.type} f{self.number} = {self.number}{self.option.replace('#', str(self.number))};"


@dataclass(frozen=True)
class SchemaModel:
    fields: tuple[FieldModel, ...] = ()
    package: str = ""
    nested: "tuple[SchemaModel, ...]" = field(default=())

    def body(self) -> str:
        lines = [each.text() for each in self.fields if each.one_of is None]
        for name in sorted({each.one_of for each in self.fields if each.one_of is not None}):
            members = " ".join(each.text() for each in self.fields if each.one_of == name)
            lines.append(f"oneof {name} {{ {members} }}")
        lines += [f"message N{number} {{ {each.body()} }}" for number, each in enumerate(self.nested)]
        return "\n".join(lines)

    def text(self) -> str:
        head = 'syntax = "proto3"; import "google/protobuf/duration.proto"; import "confluent/meta.proto";'
        package = f"package {self.package};" if self.package else ""
        return f"{head} {package} message M {{ {self.body()} }} {FIXED_TYPES}"


types = st.one_of(
    st.sampled_from(sorted(SCALARS)),
    st.sampled_from(NAMED_TYPES),
    st.builds("map<{}, {}>".format, st.sampled_from(KEYS), st.sampled_from([*sorted(SCALARS), *NAMED_TYPES])),
)
field_options = st.sampled_from(
    ["", "", "", " [deprecated = true]", ' [json_name = "x#", (confluent.field_meta).tags = "PII"]']
)


@st.composite
def fields(draw: st.DrawFn, number: int) -> FieldModel:
    type_ = draw(types)
    if type_.startswith("map"):
        return FieldModel(number, type_, option=draw(field_options))
    one_of = draw(st.sampled_from([None, None, "first", "second"]))
    return FieldModel(number, type_, one_of is None and draw(st.booleans()), one_of, draw(field_options))


@st.composite
def schemas(draw: st.DrawFn, depth: int = 0) -> SchemaModel:
    numbers = draw(st.lists(st.integers(1, 12), unique=True, max_size=6))
    nested = draw(st.lists(schemas(depth=depth + 1), max_size=2)) if depth < 2 else []
    return SchemaModel(
        tuple(draw(fields(number)) for number in numbers),
        draw(st.sampled_from(["", "a", "a.b"])) if depth == 0 else "",
        tuple(nested),
    )


@st.composite
def later_versions(draw: st.DrawFn, schema: SchemaModel) -> SchemaModel:
    """A schema with some fields changed, removed, moved into a oneof, or added."""
    changed = []
    for each in schema.fields:
        match draw(st.sampled_from(["keep", "keep", "keep", "remove", "move", "change"])):
            case "keep":
                changed.append(each)
            case "move" if not each.is_repeated and not each.type.startswith("map"):
                changed.append(replace(each, one_of=draw(st.sampled_from([None, "first", "second"]))))
            case "change":
                changed.append(draw(fields(each.number)))
    numbers = {each.number for each in changed}
    added = draw(st.lists(st.integers(1, 15).filter(lambda number: number not in numbers), unique=True, max_size=2))
    return replace(schema, fields=(*changed, *(draw(fields(number)) for number in added)))


@st.composite
def values(draw: st.DrawFn, schema: SchemaModel) -> dict[str, Any]:
    """Values of fields whose types are scalars."""
    found: dict[str, Any] = {}
    for each in schema.fields:
        strategy = SCALARS.get(each.type)
        if strategy is not None and draw(st.booleans()):
            found[f"f{each.number}"] = draw(st.lists(strategy, max_size=3) if each.is_repeated else strategy)
    return found
