"""Rules for schemas of arrays. As for objects, the content model decides about added and removed items."""

from typing import Any, Final

from penstock.schemas.formats.json_schema.comparison import Finder, Steps
from penstock.schemas.formats.json_schema.limit_numbers import to_int
from penstock.schemas.formats.json_schema.limit_rules import compare_limit, compare_limits
from penstock.schemas.formats.json_schema.object_rules import (
    compare_additional,
    compare_unevaluated,
    schema_of_additional,
)
from penstock.schemas.formats.json_schema.schema_nodes import ArrayNode, EmptyNode, FalseNode

_SIZES: Final = (("items_max", "maxItems", "MAX_ITEMS"), ("items_min", "minItems", "MIN_ITEMS"))


def compare_arrays(found: Finder, writer: ArrayNode, reader: ArrayNode) -> Steps:
    findings = yield writer.items, reader.items
    found.add_below("items", findings)
    yield from _compare_prefix(found, writer, reader)
    yield from compare_additional(found, writer, reader, "additionalItems", "ADDITIONAL_ITEMS")
    yield from compare_unevaluated(found, writer, reader, "unevaluatedItems", "UNEVALUATED_ITEMS")
    compare_limits(found, writer, reader, _SIZES)
    if reader.is_unique and not writer.is_unique:
        found.add("uniqueItems", "UNIQUE_ITEMS_ADDED")
    compare_limit(found, _int(writer.contains_max), _int(reader.contains_max), "maxContains", "MAX_CONTAINS")
    compare_limit(found, _int(writer.contains_min), _int(reader.contains_min), "minContains", "MIN_CONTAINS")


def _compare_prefix(found: Finder, writer: ArrayNode, reader: ArrayNode) -> Steps:
    """Compares the schemas of items by position."""
    shared = min(len(writer.prefix), len(reader.prefix))
    for index in range(shared):
        findings = yield writer.prefix[index], reader.prefix[index]
        found.add_below(f"items/{index}", findings)
    for index in range(shared, len(writer.prefix)):
        old, path = writer.prefix[index], f"items/{index}"
        if _is_open(reader):
            continue
        covering = schema_of_additional(reader)
        if covering is not None:
            findings = yield old, covering
            found.add_below(path, findings)
            if findings:
                found.add(path, "ITEM_REMOVED_NOT_COVERED_BY_PARTIALLY_OPEN_CONTENT_MODEL")
        elif not isinstance(old, FalseNode):
            found.add(path, "ITEM_REMOVED_FROM_CLOSED_CONTENT_MODEL")
    for index in range(shared, len(reader.prefix)):
        new, path = reader.prefix[index], f"items/{index}"
        if _is_open(writer):
            if not isinstance(new, EmptyNode):
                found.add(path, "ITEM_ADDED_TO_OPEN_CONTENT_MODEL")
            continue
        covering = schema_of_additional(writer)
        if covering is not None:
            findings = yield covering, new
            found.add_below(path, findings)
            if findings:
                found.add(path, "ITEM_ADDED_NOT_COVERED_BY_PARTIALLY_OPEN_CONTENT_MODEL")


def _is_open(node: ArrayNode) -> bool:
    return (
        node.allows_additional
        and node.additional is None
        and (node.unevaluated is None or isinstance(node.unevaluated, EmptyNode))
    )


def _int(value: Any) -> int | None:
    return None if value is None else to_int(value)
