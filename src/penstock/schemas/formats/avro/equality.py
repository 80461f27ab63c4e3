"""Compares schemas for equality, as `Schema.equals` does in Java, or as Confluent's registry does."""

from collections.abc import Collection
from typing import Final

from penstock.schemas.formats.avro.json_text import Json, is_same_json
from penstock.schemas.formats.avro.model import (
    Array,
    Enum,
    Field,
    Fixed,
    Map,
    Named,
    NoDefault,
    Primitive,
    Properties,
    Record,
    Reference,
    Schema,
    Types,
    Union,
    definition,
)
from penstock.schemas.formats.format import InvalidSchema

COMPARISONS_MAX: Final = 500_000
"""A schema of 1 MB has some 50,000 schemas and fields; types that are defined many times need more comparisons."""


class SameSchemas:
    """Compares schemas, each with the types that its references mean. Remembers the records that are the same."""

    def __init__(
        self, types: Types, other_types: Types, *, with_docs: bool, never_same: Collection[Reference] = ()
    ) -> None:
        self._types = types
        self._other_types = other_types
        self._with_docs = with_docs
        """Whether aliases, docs and defaults of enums count: they do not in Java, but they do in the registry."""
        self._never_same = never_same
        """References that are the same as nothing: those to types that are not defined yet."""
        self._seen: set[tuple[Named, Named]] = set()
        """Pairs that are the same, unless one of the comparisons under way finds a difference."""
        self._count = 0

    def is_same(self, one: Schema, other: Schema) -> bool:
        """Whether two schemas are the same. Once the answer is no, later answers mean nothing.

        Raises InvalidSchema if that takes too long.
        """
        pairs = [(one, other)]
        while pairs:
            a, b = pairs.pop()
            if a in self._never_same or b in self._never_same:
                if a is not b:
                    return False
                continue
            a, b = definition(a, self._types), definition(b, self._other_types)
            if a is not b and not self._compare(a, b, pairs):
                return False
            self._count += 1
            if self._count > COMPARISONS_MAX:
                raise InvalidSchema(f"To compare the definitions takes more than {COMPARISONS_MAX} comparisons.")
        return True

    def _compare(self, a: Schema, b: Schema, pairs: list[tuple[Schema, Schema]]) -> bool:
        """Whether two schemas may be the same; adds the pairs of their parts that have to be, too."""
        match a, b:
            case (Record() | Enum() | Fixed(), Record() | Enum() | Fixed()):
                return (a, b) in self._seen or self._compare_types(a, b, pairs)
            case (Primitive(), Primitive()):
                return a.kind == b.kind and same_properties(a.properties, b.properties)
            case (Array(), Array()):
                pairs.append((a.items, b.items))
                return same_properties(a.properties, b.properties)
            case (Map(), Map()):
                pairs.append((a.values, b.values))
                return same_properties(a.properties, b.properties)
            case (Union(), Union()):
                pairs.extend(zip(a.branches, b.branches, strict=False))
                return len(a.branches) == len(b.branches)
            case _:
                return False

    def _compare_types(self, a: Named, b: Named, pairs: list[tuple[Schema, Schema]]) -> bool:
        self._seen.add((a, b))
        if a.name != b.name or not same_properties(a.properties, b.properties):
            return False
        if self._with_docs and (a.doc != b.doc or set(a.aliases) != set(b.aliases)):
            return False
        match a, b:
            case (Record(), Record()):
                pairs.extend((one.type, other.type) for one, other in zip(a.fields, b.fields, strict=False))
                return len(a.fields) == len(b.fields) and all(map(self._is_same_field, a.fields, b.fields))
            case (Enum(), Enum()):
                return a.symbols == b.symbols and (a.default == b.default or not self._with_docs)
            case (Fixed(), Fixed()):
                return a.size == b.size
            case _:
                return False

    def _is_same_field(self, a: Field, b: Field) -> bool:
        return (
            a.name == b.name
            and a.order == b.order
            and _is_same_default(a.default, b.default)
            and same_properties(a.properties, b.properties)
            and (not self._with_docs or (a.doc == b.doc and set(a.aliases) == set(b.aliases)))
        )


def same_properties(one: Properties | None, other: Properties | None) -> bool:
    """Whether two schemas or fields have the same properties, in any order."""
    return one is other or is_same_json(dict(one or {}), dict(other or {}))


def _is_same_default(one: Json | NoDefault, other: Json | NoDefault) -> bool:
    if isinstance(one, NoDefault) or isinstance(other, NoDefault):
        return one is other
    return is_same_json(one, other)
