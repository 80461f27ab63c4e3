"""Compares a reader's schema with a writer's, as Avro's `SchemaCompatibility` does in Confluent's registry.

Both walk the schemas in the same order and remember the result for each pair of schemas, with the place of the pair:
if it occurs twice, the result is reported twice, with the first place. A pair of recursive types counts as compatible
while it is being compared.
"""

from collections.abc import Iterable
from dataclasses import dataclass
from typing import Any, Final

from penstock.schemas.formats.avro import names
from penstock.schemas.formats.avro.messages import (
    FIXED_SIZE_MISMATCH,
    MISSING_ENUM_SYMBOLS,
    MISSING_UNION_BRANCH,
    NAME_MISMATCH,
    READER_FIELD_MISSING_DEFAULT_VALUE,
    TOO_COMPLEX,
    TYPE_MISMATCH,
    UNEXPECTED_EXCEPTION,
    Place,
    Problem,
    describe,
)
from penstock.schemas.formats.avro.model import (
    NAMED,
    Array,
    Definition,
    Enum,
    Field,
    Fixed,
    Map,
    Named,
    NoDefault,
    Primitive,
    Record,
    Reference,
    Schema,
    Types,
    Union,
    definition,
    kind_of,
)
from penstock.schemas.formats.avro.printer import print_schema
from penstock.schemas.formats.avro.recursion import Steps, run
from penstock.schemas.formats.format import Difference

EXACT_PAIRS_MAX: Final = 60_000
"""Up to this many pairs of schemas, every branch of a union is compared with every other, as in Java.

Beyond, branches are compared only if their names match: the others cannot be compatible, and there may be very many.
What differs then is the place that Java remembers for such a pair, and some recursive types inside such pairs, which
Java takes for compatible because it remembers an answer that it gave too early.
"""
COMPARISONS_MAX: Final = 250_000
"""A schema of 1 MB has some 50,000 schemas and fields; a hostile one could need billions of comparisons."""

SYMBOLS_PER_COMPARISON: Final = 32
"""Symbols of enums that are compared in the time of two schemas."""
CHARS_PER_COMPARISON: Final = 512
"""Characters of names, likewise."""

_PROMOTIONS: Final = {
    "long": ("int",),
    "float": ("int", "long"),
    "double": ("int", "long", "float"),
    "bytes": ("string",),
    "string": ("bytes",),
}
"""Primitive types of writers that a reader's type can hold."""

Problems = list[Any]
"""Problems, and lists of problems, which may stand in several lists: unfolded, they can be exponentially many."""


@dataclass(frozen=True, slots=True)
class Side:
    """The schema of the reader or of the writer."""

    schema: Schema
    types: Types
    size: int
    """The number of schemas and fields."""


class _Unreadable(Exception):
    """Ends the comparison: this is the only difference that is reported."""

    def __init__(self, difference: Difference) -> None:
        super().__init__(difference.message)
        self.difference = difference


def find_differences(reader: Side, writer: Side) -> list[Difference]:
    """Returns why data of the writer's schema cannot be read with the reader's; empty if it can."""
    comparison = _Comparison(reader, writer)
    try:
        return describe(run(comparison.compare("", reader.schema, writer.schema, None)))
    except _Unreadable as end:
        return [end.difference]


class _Comparison:
    def __init__(self, reader: Side, writer: Side) -> None:
        self._reader_types = reader.types
        self._writer_types = writer.types
        self._compares_all = reader.size * writer.size <= EXACT_PAIRS_MAX
        self._compared: dict[tuple[Definition, Definition], Problems] = {}
        """The result for each pair; no problems while the comparison is under way."""
        self._writer_fields: dict[Record, dict[str, Field]] = {}
        self._branches: dict[Union, _Branches] = {}
        self._count = 0

    def compare(self, token: str, reader: Schema, writer: Schema, place: Place | None) -> Steps[Problems]:
        """Compares two schemas at the place that the token names within the place around it."""
        problems = self._compare_leaves(token, reader, writer, place)
        if problems is None:
            pair = (definition(reader, self._reader_types), definition(writer, self._writer_types))
            self._compared[pair] = []
            self._compared[pair] = problems = yield self._compare(*pair, Place(place, token))
        return problems

    def _compare_leaves(self, token: str, reader: Schema, writer: Schema, place: Place | None) -> Problems | None:
        """Compares schemas of which one has no others in it, or returns the result that is known; None otherwise."""
        if isinstance(reader, Reference):
            reader = self._reader_types[reader.name]
        if isinstance(writer, Reference):
            writer = self._writer_types[writer.name]
        problems = self._compared.get((reader, writer))
        if problems is not None:
            return problems
        self._step()
        kind = type(reader)
        if kind is not type(writer):
            if kind is Union or isinstance(writer, Union):
                return None
            problems = self._compare_kinds(reader, writer, Place(place, token))
        elif isinstance(reader, Enum) and isinstance(writer, Enum):
            here = Place(place, token)
            self._step((len(reader.symbols) + len(writer.symbols)) // SYMBOLS_PER_COMPARISON)
            problems = self._compare_names(reader, writer, here) + _compare_symbols(reader, writer, here)
        elif isinstance(reader, Fixed) and isinstance(writer, Fixed):
            here = Place(place, token)
            problems = self._compare_names(reader, writer, here) + _compare_sizes(reader, writer, here)
        elif kind is Primitive:
            problems = self._compare_kinds(reader, writer, Place(place, token))
        else:
            return None
        self._compared[reader, writer] = problems
        return problems

    def _compare(self, reader: Definition, writer: Definition, place: Place) -> Steps[Problems]:
        problems: Problems = []
        match reader, writer:
            case (Record(), Record()):
                problems += self._compare_names(reader, writer, place)
                problems += yield self._compare_fields(reader, writer, Place(place, "fields"))
            case (Union(), Union()):
                kinds = self._branches_of(reader).kinds
                for number, branch in enumerate(writer.branches):
                    if isinstance(branch, Primitive) and branch.kind in kinds:
                        continue
                    if (yield self.compare("", reader, branch, None)):
                        problems.append(self._missing_branch(branch, Place(place, str(number))))
            case (_, Union()):
                for number, branch in enumerate(writer.branches):
                    problems.append((yield self.compare(str(number), reader, branch, place)))
                problems = [found for found in problems if found]
            case (Union(), _):
                for branch in self._candidates(reader, writer):
                    found = self._compare_leaves("", branch, writer, None)
                    if found is None:
                        found = yield self.compare("", branch, writer, None)
                    if not found:
                        return []
                problems.append(self._missing_branch(writer, place))
            case (Array(), Array()):
                problems = yield self.compare("items", reader.items, writer.items, place)
            case (Map(), Map()):
                problems = yield self.compare("values", reader.values, writer.values, place)
        return problems

    def _compare_kinds(self, reader: Definition, writer: Definition, place: Place) -> Problems:
        """Compares primitive types, or types of different kinds."""
        kind, writer_kind = kind_of(reader, self._reader_types), kind_of(writer, self._writer_types)
        if kind == writer_kind or writer_kind in _PROMOTIONS.get(kind, ()):
            return []
        message = f"reader type: {kind.upper()} not compatible with writer type: {writer_kind.upper()}"
        return [Problem(TYPE_MISMATCH, message, place)]

    def _compare_names(self, reader: Named, writer: Named, place: Place) -> Problems:
        """The simple names must be equal, or the writer's full name an alias of the reader's type."""
        self._step((len(reader.name) + len(writer.name)) // CHARS_PER_COMPARISON)
        if names.simple_name(reader.name) == names.simple_name(writer.name):
            return []
        # Java writes an alias without a namespace so that it never matches, if the type has a namespace.
        is_usable = "." in writer.name or "." not in reader.name
        self._step(len(reader.aliases) * (1 + len(writer.name) // CHARS_PER_COMPARISON))
        if is_usable and writer.name in reader.aliases:
            return []
        return [Problem(NAME_MISMATCH, f"expected: {writer.name}", Place(place, "name"))]

    def _compare_fields(self, reader: Record, writer: Record, place: Place) -> Steps[Problems]:
        problems: Problems = []
        for number, field in enumerate(reader.fields):
            writer_field = self._writer_field(writer, field, number)
            if writer_field is not None:
                if not _is_same_primitive(field.type, writer_field.type):
                    here = Place(place, str(number))
                    problems.append((yield self.compare("type", field.type, writer_field.type, here)))
            elif isinstance(field.default, NoDefault):
                here = Place(place, str(number))
                kind = definition(field.type, self._reader_types)
                if isinstance(kind, Enum) and kind.default is not None:
                    # Java compares the enum with the record, so that this is a type mismatch.
                    problems.append((yield self.compare("type", kind, writer, here)))
                else:
                    problems.append([Problem(READER_FIELD_MISSING_DEFAULT_VALUE, field.name, here)])
        return [found for found in problems if found]

    def _writer_field(self, writer: Record, field: Field, number: int) -> Field | None:
        """Returns the writer's field for a reader's field: of the same name, or of one of its aliases."""
        self._step(1 + len(field.aliases))
        if writer not in self._writer_fields:
            self._writer_fields[writer] = {each.name: each for each in writer.fields}
        fields = self._writer_fields[writer]
        found = [fields[name] for name in (field.name, *field.aliases) if name in fields]
        if len(found) > 1:
            kind = kind_of(field.type, self._reader_types).upper()
            text = print_schema(writer, self._writer_types)
            raise _Unreadable(
                Difference(
                    UNEXPECTED_EXCEPTION,
                    f"Unexpected exception during compatibility check: Reader record field {field.name} type:{kind} "
                    f"pos:{number} matches multiple fields in writer record schema {text}",
                )
            )
        return found[0] if found else None

    def _missing_branch(self, writer: Schema, place: Place) -> Problem:
        kind = kind_of(writer, self._writer_types).upper()
        return Problem(MISSING_UNION_BRANCH, f"reader union lacking writer type: {kind}", place)

    def _candidates(self, reader: Union, writer: Definition) -> Iterable[Schema]:
        """Returns the branches of a reader's union that may be able to read a writer's type."""
        return reader.branches if self._compares_all else self._branches_of(reader).candidates(writer)

    def _branches_of(self, union: Union) -> "_Branches":
        if union not in self._branches:
            self._branches[union] = _Branches(union, self._reader_types)
        return self._branches[union]

    def _step(self, count: int = 1) -> None:
        self._count += count
        if self._count > COMPARISONS_MAX:
            message = f"The schemas are too complex: to compare them takes more than {COMPARISONS_MAX} comparisons"
            raise _Unreadable(describe([Problem(TOO_COMPLEX, message, Place(None, ""))])[0])


class _Branches:
    """The branches of a reader's union, by the types of the writer that they may be able to read."""

    def __init__(self, union: Union, types: Types) -> None:
        self.kinds = {branch.kind for branch in union.branches if isinstance(branch, Primitive)}
        self._unnamed: list[Schema] = []
        self._named: dict[tuple[type, str], list[Schema]] = {}
        for branch in union.branches:
            found = definition(branch, types)
            if not isinstance(found, Record | Enum | Fixed):
                self._unnamed.append(found)
                continue
            # A full name and a simple name are the same only if there is no namespace.
            for name in dict.fromkeys((names.simple_name(found.name), *found.aliases)):
                self._named.setdefault((type(found), name), []).append(found)

    def candidates(self, writer: Definition) -> list[Schema]:
        if not isinstance(writer, NAMED):
            return self._unnamed
        keys = dict.fromkeys((names.simple_name(writer.name), writer.name))
        return [branch for key in keys for branch in self._named.get((type(writer), key), ())]


def _is_same_primitive(reader: Schema, writer: Schema) -> bool:
    """Whether both are one primitive type: the most frequent case, by far."""
    return isinstance(reader, Primitive) and isinstance(writer, Primitive) and reader.kind == writer.kind


def _compare_symbols(reader: Enum, writer: Enum, place: Place) -> Problems:
    missing = set(writer.symbols).difference(reader.symbols)
    if not missing or reader.default is not None:
        return []
    return [Problem(MISSING_ENUM_SYMBOLS, f"[{', '.join(sorted(missing))}]", Place(place, "symbols"))]


def _compare_sizes(reader: Fixed, writer: Fixed, place: Place) -> Problems:
    if reader.size == writer.size:
        return []
    message = f"expected: {writer.size}, found: {reader.size}"
    return [Problem(FIXED_SIZE_MISMATCH, message, Place(place, "size"))]
