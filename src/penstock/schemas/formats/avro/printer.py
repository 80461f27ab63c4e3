"""Prints schemas as Java's `Schema.toString` does: the text that Confluent's registry stores."""

from collections.abc import Iterable
from typing import Final

from penstock.schemas.formats.avro import names
from penstock.schemas.formats.avro.json_text import check_depth, quote, write_json
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
    Schema,
    Types,
    Union,
    definition,
)
from penstock.schemas.formats.avro.recursion import Steps, run

_RECORD_DEPTH: Final = 3
"""The type of a field is in the object of the record, in its array of fields, and in the object of the field."""


def print_schema(schema: Schema, types: Types, known: Iterable[str] = ()) -> str:
    """Returns the text of a schema. Named types are defined at their first use, but those `known` elsewhere.

    Raises InvalidSchema if the text is nested too deeply.
    """
    printer = _Printer(types, set(known))
    run(printer.schema(schema, "", 0))
    return "".join(printer.parts)


class _Printer:
    def __init__(self, types: Types, known: set[str]) -> None:
        self.parts: list[str] = []
        self._types = types
        self._known = known

    def schema(self, schema: Schema, namespace: str, depth: int) -> Steps[None]:
        """Prints a schema within a namespace, and at a depth of objects and arrays."""
        found = definition(schema, self._types)
        if self._leaf(found, namespace, depth):
            return
        add = self.parts.append
        check_depth(depth + 1)
        if isinstance(found, Record):
            yield self._record(found, namespace, depth)
        elif isinstance(found, Union):
            add("[")
            for number, branch in enumerate(found.branches):
                add("," if number else "")
                if not self._leaf(branch, namespace, depth + 1):
                    yield self.schema(branch, namespace, depth + 1)
            add("]")
        elif isinstance(found, Array):
            add('{"type":"array","items":')
            yield self.schema(found.items, namespace, depth + 1)
            self._properties(found.properties, depth + 1)
            add("}")
        elif isinstance(found, Map):
            add('{"type":"map","values":')
            yield self.schema(found.values, namespace, depth + 1)
            self._properties(found.properties, depth + 1)
            add("}")

    def _leaf(self, schema: Schema, namespace: str, depth: int) -> bool:
        """Prints a schema without other schemas in it, or the name of a type that is known; returns whether it is."""
        schema = definition(schema, self._types)
        if isinstance(schema, Primitive):
            if schema.properties is None:
                self.parts.append(f'"{schema.kind}"')
            else:
                check_depth(depth + 1)
                self.parts.append(f'{{"type":"{schema.kind}"')
                self._properties(schema.properties, depth + 1)
                self.parts.append("}")
            return True
        if not isinstance(schema, Record | Enum | Fixed):
            return False
        if schema.name in self._known:
            self.parts.append(quote(names.name_within(schema.name, namespace)))
            return True
        if isinstance(schema, Record):
            return False
        self._known.add(schema.name)
        check_depth(depth + 1)
        self._heading("enum" if isinstance(schema, Enum) else "fixed", schema, namespace)
        if isinstance(schema, Enum):
            check_depth(depth + 2)
            self.parts.append(f',"symbols":[{",".join(map(quote, schema.symbols))}]')
            if schema.default is not None:
                self.parts.append(f',"default":{quote(schema.default)}')
        else:
            self.parts.append(f',"size":{schema.size}')
        self._ending(schema, depth)
        return True

    def _record(self, record: Record, namespace: str, depth: int) -> Steps[None]:
        self._known.add(record.name)
        add = self.parts.append
        self._heading("error" if record.is_error else "record", record, namespace)
        check_depth(depth + (_RECORD_DEPTH if record.fields else 2))
        add(',"fields":[')
        own_namespace = names.namespace_of(record.name)
        for number, field in enumerate(record.fields):
            add(f'{"," if number else ""}{{"name":{quote(field.name)},"type":')
            if not self._leaf(field.type, own_namespace, depth + _RECORD_DEPTH):
                yield self.schema(field.type, own_namespace, depth + _RECORD_DEPTH)
            self._field(field, depth + _RECORD_DEPTH)
            add("}")
        add("]")
        self._ending(record, depth)

    def _field(self, field: Field, depth: int) -> None:
        """Prints what follows the type of a field."""
        add = self.parts.append
        if field.doc is not None:
            add(f',"doc":{quote(field.doc)}')
        if not isinstance(field.default, NoDefault):
            add(f',"default":{write_json(field.default, depth)}')
        if field.order != "ascending":
            add(f',"order":"{field.order}"')
        if field.aliases:
            check_depth(depth + 1)
            add(f',"aliases":[{",".join(map(quote, field.aliases))}]')
        self._properties(field.properties, depth)

    def _heading(self, kind: str, schema: Named, namespace: str) -> None:
        """Prints the beginning of a named type: its name, and its namespace if it is not that around it."""
        own, _, name = schema.name.rpartition(".")
        self.parts.append(f'{{"type":"{kind}","name":{quote(name)}')
        if own != namespace:
            self.parts.append(f',"namespace":{quote(own)}')
        if schema.doc is not None:
            self.parts.append(f',"doc":{quote(schema.doc)}')

    def _ending(self, schema: Named, depth: int) -> None:
        """Prints the end of a named type that stands at this depth."""
        self._properties(schema.properties, depth + 1)
        if schema.aliases:
            check_depth(depth + 2)
            namespace = names.namespace_of(schema.name)
            aliases = (quote(names.name_within(alias, namespace)) for alias in schema.aliases)
            self.parts.append(f',"aliases":[{",".join(aliases)}]')
        self.parts.append("}")

    def _properties(self, properties: Properties | None, depth: int) -> None:
        """Prints properties of an object whose members are at this depth."""
        if properties is not None:
            for name, value in properties.items():
                self.parts.append(f",{quote(name)}:{write_json(value, depth)}")
