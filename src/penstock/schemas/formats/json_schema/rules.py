"""Rules for schemas of each type: which differences between writer and reader are there."""

from collections.abc import Iterator
from typing import Final

from penstock.schemas.formats.json_schema.array_rules import compare_arrays
from penstock.schemas.formats.json_schema.comparison import Finder, Steps
from penstock.schemas.formats.json_schema.documents import Json, print_document
from penstock.schemas.formats.json_schema.limit_numbers import to_double
from penstock.schemas.formats.json_schema.limit_rules import (
    compare_limit,
    compare_limits,
    compare_multiples,
)
from penstock.schemas.formats.json_schema.object_rules import compare_objects
from penstock.schemas.formats.json_schema.schema_nodes import (
    ArrayNode,
    CombinedNode,
    ConstNode,
    Criterion,
    EmptyNode,
    EnumNode,
    FalseNode,
    Node,
    NotNode,
    NumberNode,
    ObjectNode,
    StringNode,
)
from penstock.schemas.formats.json_schema.union_rules import compare_unions

_LENGTHS: Final = (("length_max", "maxLength", "MAX_LENGTH"), ("length_min", "minLength", "MIN_LENGTH"))
_NUMBERS: Final = (
    ("maximum", "maximum", "MAXIMUM"),
    ("minimum", "minimum", "MINIMUM"),
    ("exclusive_min", "exclusiveMinimum", "EXCLUSIVE_MINIMUM"),
)


def compare_pair(found: Finder, writer: Node, reader: Node) -> Steps:
    """Compares two schemas that are no references."""
    if isinstance(writer, CombinedNode) != isinstance(reader, CombinedNode):
        for pair in _single_pairs(writer, reader):
            if not (yield pair):
                return
    if type(writer) is not type(reader):
        # A writer of nothing and a reader of everything fit any schema. Kafka Connect's converter changed how it
        # writes decimals, which are bytes: these are the same type.
        is_bytes = writer.extra.get("connect.type") == reader.extra.get("connect.type") == "bytes"
        if not isinstance(writer, FalseNode) and not isinstance(reader, EmptyNode) and not is_bytes:
            found.add("", "TYPE_CHANGED")
        return
    match writer, reader:
        case StringNode(), StringNode():
            compare_limits(found, writer, reader, _LENGTHS)
            _compare_patterns(found, writer.pattern, reader.pattern)
        case NumberNode(), NumberNode():
            _compare_numbers(found, writer, reader)
        case ConstNode(), ConstNode():
            if _print(writer.value) != _print(reader.value):
                found.add("const", "ENUM_ARRAY_CHANGED")
        case EnumNode(), EnumNode():
            _compare_enums(found, writer, reader)
        case CombinedNode(), CombinedNode():
            yield from compare_unions(found, writer, reader)
        case NotNode(), NotNode():
            # What a reader excludes may become less: the excluded schemas are compared the other way around.
            findings = yield reader.member, writer.member
            found.add("not", "NOT_TYPE_EXTENDED" if findings else "NOT_TYPE_NARROWED")
        case ObjectNode(), ObjectNode():
            yield from compare_objects(found, writer, reader)
        case ArrayNode(), ArrayNode():
            yield from compare_arrays(found, writer, reader)


def _single_pairs(writer: Node, reader: Node) -> Iterator[tuple[Node, Node]]:
    """Yields pairs of a schema and a member of a combined schema, of which one must be compatible."""
    if isinstance(reader, CombinedNode):
        if len(reader.members) == 1 or reader.criterion is not Criterion.ALL:
            for member in reader.members:
                yield writer, member
    elif isinstance(writer, CombinedNode) and (len(writer.members) == 1 or writer.criterion is Criterion.ALL):
        for member in writer.members:
            yield member, reader


def _compare_patterns(found: Finder, writer: str | None, reader: str | None) -> None:
    if writer is None and reader is not None:
        found.add("pattern", "PATTERN_ADDED")
    elif reader is not None and writer != reader:
        found.add("pattern", "PATTERN_CHANGED")


def _compare_numbers(found: Finder, writer: NumberNode, reader: NumberNode) -> None:
    compare_limits(found, writer, reader, _NUMBERS)
    old, new = writer.exclusive_max, reader.exclusive_max
    if old is None or new is None:
        compare_limit(found, old, new, "exclusiveMaximum", "EXCLUSIVE_MAXIMUM")
    elif str(old) != str(new) and to_double(old) >= to_double(new):
        # Confluent's registry compares with the reader's `maximum`, if there is one.
        limit = new if reader.maximum is None else reader.maximum
        if to_double(old) > to_double(limit):
            found.add("exclusiveMaximum", "EXCLUSIVE_MAXIMUM_DECREASED")
    compare_multiples(found, writer.multiple_of, reader.multiple_of)
    if reader.is_integer and not writer.is_integer:
        found.add("", "TYPE_NARROWED")


def _compare_enums(found: Finder, writer: EnumNode, reader: EnumNode) -> None:
    old = {_print(value) for value in writer.values}
    new = {_print(value) for value in reader.values}
    if not old <= new:
        found.add("enum", "ENUM_ARRAY_NARROWED" if new < old else "ENUM_ARRAY_CHANGED")


def _print(value: Json) -> str:
    """Returns a text that is the same for equal values. As in Java, 1 and 1.0 are different."""
    return print_document(value, is_sorted=True)
