"""Rules for limits: sizes, lengths and numbers that a keyword sets."""

from collections.abc import Iterable
from decimal import Decimal
from typing import Any

from penstock.schemas.formats.json_schema.comparison import Finder
from penstock.schemas.formats.json_schema.limit_numbers import is_multiple, to_double
from penstock.schemas.formats.json_schema.schema_nodes import Node


def compare_limits(found: Finder, writer: Node, reader: Node, limits: Iterable[tuple[str, str, str]]) -> None:
    """Compares limits, each with its slot in the node, its keyword and the beginning of its kinds."""
    for slot, keyword, kind in limits:
        compare_limit(found, getattr(writer, slot), getattr(reader, slot), keyword, kind)


def compare_limit(found: Finder, writer: Any, reader: Any, keyword: str, kind: str) -> None:
    if writer is None or reader is None:
        if writer is not reader:
            found.add(keyword, f"{kind}_ADDED" if writer is None else f"{kind}_REMOVED")
        return
    old, new = to_double(writer), to_double(reader)
    if old != new:
        found.add(keyword, f"{kind}_INCREASED" if old < new else f"{kind}_DECREASED")


def compare_multiples(found: Finder, writer: int | Decimal | None, reader: int | Decimal | None) -> None:
    """Compares `multipleOf`: readers may only become less strict, as from 4 to 2."""
    if writer is None or reader is None:
        if writer is not reader:
            found.add("multipleOf", "MULTIPLE_OF_ADDED" if writer is None else "MULTIPLE_OF_REMOVED")
    elif writer != reader:
        if is_multiple(reader, writer):
            found.add("multipleOf", "MULTIPLE_OF_EXPANDED")
        elif is_multiple(writer, reader):
            found.add("multipleOf", "MULTIPLE_OF_REDUCED")
        else:
            found.add("multipleOf", "MULTIPLE_OF_CHANGED")
