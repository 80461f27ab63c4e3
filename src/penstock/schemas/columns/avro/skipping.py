"""Compiles the instructions that skip values which the reader's schema does not have."""

from __future__ import annotations

from penstock.schemas.columns.avro.operations import Read
from penstock.schemas.columns.avro.program import ProgramWriter
from penstock.schemas.columns.codec import IncompatibleTypes
from penstock.schemas.columns.layout import DEPTH_MAX
from penstock.schemas.formats.avro.model import (
    Array,
    Enum,
    Fixed,
    Map,
    Primitive,
    Record,
    Schema,
    Types,
    Union,
    definition,
)

_BYTES = {"null": 0, "boolean": 1, "float": 4, "double": 8}
_VARINTS = ("int", "long")
_BYTES_MAX = 2**31


def item_bytes(schema: Schema, types: Types) -> int:
    """Returns the least number of bytes that a value takes."""
    return _Sizes(types).of(schema)


class _Sizes:
    def __init__(self, types: Types) -> None:
        self._types = types
        self._records: dict[str, int] = {}

    def of(self, schema: Schema, depth: int = 0) -> int:
        found = definition(schema, self._types)
        match found:
            case Primitive():
                return _BYTES.get(found.kind, 1)
            case Fixed():
                return found.size
            case Record() if depth < DEPTH_MAX:
                if found.name not in self._records:
                    # A record in itself, without a union or list between, has no values: any size will do.
                    self._records[found.name] = 1
                    size = sum(self.of(field.type, depth + 1) for field in found.fields)
                    self._records[found.name] = min(size, _BYTES_MAX)
                return self._records[found.name]
        return 1


class SkipWriter:
    """Adds instructions that skip values. Those for a record are shared by all its uses: it may contain itself."""

    def __init__(self, program: ProgramWriter, types: Types) -> None:
        self._program = program
        self._types = types
        self._records: dict[str, int] = {}
        """Numbers of the records that are skipped. Until `add_records`, CALL has the number."""

    def skip(self, schema: Schema, path: str, depth: int = 0) -> None:
        """Adds instructions that skip a value."""
        if depth > DEPTH_MAX:
            raise IncompatibleTypes(f"{path}: the writer's schema is nested more than {DEPTH_MAX} types deep")
        add = self._program.add
        found = definition(schema, self._types)
        match found:
            case Primitive() if found.kind in _BYTES:
                self._skip_bytes(_BYTES[found.kind], path)
            case Primitive():
                add(Read.SKIP_VARINT if found.kind in _VARINTS else Read.SKIP_BYTES, path)
            case Enum():
                add(Read.SKIP_VARINT, path)
            case Fixed():
                self._skip_bytes(found.size, path)
            case Array():
                self._skip_items(found.items, path, depth, is_map=False)
            case Map():
                self._skip_items(found.values, path, depth, is_map=True)
            case Union():
                self._skip_union(found, path, depth)
            case Record():
                add(Read.CALL, path, a=self._records.setdefault(found.name, len(self._records)))

    def add_records(self) -> None:
        """Adds the instructions for all records that are skipped. Call it once, after the END of all others."""
        starts: list[int] = []
        while len(starts) < len(self._records):
            name = list(self._records)[len(starts)]
            starts.append(self._program.next_step)
            record = self._types[name]
            assert isinstance(record, Record)
            for field in record.fields:
                self.skip(field.type, f"{name}.{field.name}")
            self._program.add(Read.END, name)
        self._program.link(Read.CALL, starts)

    def _skip_bytes(self, size: int, path: str) -> None:
        if size:
            self._program.add(Read.SKIP, path, a=size)

    def _skip_items(self, items: Schema, path: str, depth: int, *, is_map: bool) -> None:
        start = self._program.add(Read.SKIP_LIST, path, b=item_bytes(items, self._types) + is_map)
        if is_map:
            self._program.add(Read.SKIP_BYTES, path)
        self.skip(items, path, depth + 1)
        self._program.add(Read.END, path)
        self._program.set_a(start)

    def _skip_union(self, union: Union, path: str, depth: int) -> None:
        self._program.add(Read.UNION, path, a=len(union.branches))
        jumps = [self._program.add(Read.JUMP, path) for _ in union.branches]
        ends = []
        for jump, branch in zip(jumps, union.branches, strict=True):
            self._program.set_a(jump)
            self.skip(branch, path, depth + 1)
            ends.append(self._program.add(Read.JUMP, path))
        for end in ends:
            self._program.set_a(end)
