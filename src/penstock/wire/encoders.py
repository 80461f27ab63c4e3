"""Generates encoders from schemas: `encode(o, out, left)` appends the encoded parts of message `o` to the list `out`.

Record batches are not copied. More than `left` array elements raise TooManyElements. A sliced encoder is the same
function as a generator, for messages with many elements: it yields after every `STEP_ELEMENTS` elements.
"""

import struct
from collections.abc import Callable
from typing import Any, Final

from penstock.foundation.steps import Steps
from penstock.wire.codegen import FIXED, SourceWriter
from penstock.wire.schema import Buffer, Field
from penstock.wire.varint import UVARINT, uvarint

Encoder = Callable[[Any, list[Buffer], int], None]
SlicedEncoder = Callable[[Any, list[Buffer], int], Steps[None]]
UNBOUNDED: Final = 2**62


def make_encoder(cls: type, version: int, flexible: bool) -> Encoder:
    """Generates the encoder of a message class for one version."""
    made: Encoder = _compile(cls, version, flexible, is_sliced=False)
    return made


def make_sliced_encoder(cls: type, version: int, flexible: bool) -> SlicedEncoder:
    """Generates the interruptible encoder of a message class for one version, for messages with many elements."""
    made: SlicedEncoder = _compile(cls, version, flexible, is_sliced=True)
    return made


def _compile(cls: type, version: int, flexible: bool, is_sliced: bool) -> Any:
    writer = _EncoderWriter(version, flexible, _scope(), is_sliced=is_sliced)
    with writer.block("def encode(o0, out, left):"):
        writer.emit("add = out.append")
        writer.begin()
        writer.struct(cls, 0)
    return writer.compile("encode", f"encode {cls.__name__}")


def _make_tag_encoder(tag: int, field: Field, version: int) -> Callable[[Any], bytes]:
    """Returns a function that encodes a tagged field: its tag, its size and its value."""
    writer = _EncoderWriter(version, flexible=True, scope=_scope())
    with writer.block("def encode(o0, out, left):"):
        writer.emit("add = out.append")
        writer.field(field, "o0", 0)
    encode: Encoder = writer.compile("encode", f"encode {field.name}")

    def encode_tag(value: Any) -> bytes:
        parts: list[Buffer] = []
        encode(value, parts, UNBOUNDED)
        body = b"".join(parts)
        return uvarint(tag) + uvarint(len(body)) + body

    return encode_tag


def _scope() -> dict[str, Any]:
    return {"uvarint": uvarint, "UVARINT": UVARINT, "pack": struct.pack}


class _EncoderWriter(SourceWriter):
    def flush(self) -> None:
        if self.run:
            self.emit(f"add({self.packed(self.run)})")
            self.run = []

    def packed(self, run: list[tuple[str, str]]) -> str:
        """Returns the source expression that packs a run of fields of fixed size."""
        if run == [("B", "0")]:
            return "b'\\0'"
        pack = struct.Struct(">" + "".join(code for code, _ in run)).pack
        return f"{self.name_for(pack, 'S')}({', '.join(value for _, value in run)})"

    def struct(self, cls: type, level: int) -> None:
        """Writes code that encodes the instance in variable `o<level>`; `level` is the nesting depth of structs."""
        for field in self.plain_fields(cls):
            self.field(field, f"o{level}.{field.name}", level)
        if self.flexible:
            self.tags(self.tagged_fields(cls), f"o{level}")
        self.flush()

    def field(self, field: Field, source: str, level: int) -> None:
        if field.is_array:
            self.array(field, source, level)
        elif field.kind in FIXED:
            self.run.append((FIXED[field.kind], source))
        elif field.struct is not None:
            self.nested(field, field.struct, source, level)
        elif field.kind == "string":
            self.value(field, source, "v", empty="''", encode=".encode()")
            # Strings are short: length and text make one part instead of two.
            self.length("h", " + v")
        else:
            self.value(field, source, "v", empty="b''")
            self.length("i")
            self.emit("add(v)")

    def value(self, field: Field, source: str, name: str, empty: str, encode: str = "") -> None:
        """Writes code that sets variable `name` to the value of expression `source`, and `n` to its length prefix.
        `empty`: expression used for null. `encode`: method call on the value, such as ".encode()"."""
        size, null = (f"len({name}) + 1", 0) if self.flexible else (f"len({name})", -1)
        if field.may_be_null(self.version):
            self.emit(f"{name} = {source}")
            self.emit(f"if {name} is None: {name} = {'b' * bool(encode)}{empty}; n = {null}")
            self.emit(f"else: {name} = {name}{encode}; n = {size}" if encode else f"else: n = {size}")
        else:
            # A null in a version where the field is not nullable becomes the empty value.
            chosen = f"({source} or {empty})" if field.ever_null else source
            self.emit(f"{name} = {chosen}{encode}")
            self.emit(f"n = {size}")

    def length(self, code: str, and_then: str = "") -> None:
        """Writes code that appends one bytes object: the fields pending in `self.run`, the length (variable `n` of
        the generated code) and the source `and_then`, such as " + v". `code`: struct code of `n`, if not a varint."""
        run, self.run = self.run, []
        if not self.flexible:
            self.emit(f"add({self.packed([*run, (code, 'n')])}{and_then})")
        elif not run:
            self.emit(f"add((UVARINT[n] if n < 128 else uvarint(n)){and_then})")
        else:
            short = self.packed([*run, ("B", "n")])
            self.emit(f"if n < 128: add({short}{and_then})")
            self.emit(f"else: add({self.packed(run)} + uvarint(n){and_then})")

    def nested(self, field: Field, cls: type, source: str, level: int) -> None:
        self.flush()
        self.emit(f"o{level + 1} = {source}")
        if not field.may_be_null(self.version):
            self.struct(cls, level + 1)
            return
        # A nullable struct has a byte before it, negative for null (KIP-893).
        self.emit(f"if o{level + 1} is None: add(b'\\xff')")
        with self.block("else:"):
            self.emit("add(b'\\x01')")
            self.struct(cls, level + 1)

    def array(self, field: Field, source: str, level: int) -> None:
        self.value(field, source, "items", empty="()")
        self.length("i")
        if field.kind == "uuid":
            self.emit("add(pack('16s' * len(items), *items))")
        elif field.kind in FIXED:
            self.emit(f"add(pack('>%d{FIXED[field.kind]}' % len(items), *items))")
        else:
            self.spend_elements("n")
            element = "item" if field.struct is None else f"o{level + 1}"
            with self.block(f"for {element} in items:"):
                if field.struct is not None:
                    self.struct(field.struct, level + 1)
                else:
                    self.field(field.element(), element, level)
                self.end_of_element()

    def tags(self, tagged: list[tuple[int, Field]], owner: str) -> None:
        """Writes code that encodes tagged fields in order of tag, and omits those that have their default value."""
        if not tagged:
            self.run.append(("B", "0"))
            return
        run, self.run = self.run, []
        tests = {tag: self.is_default(field, f"{owner}.{field.name}") for tag, field in tagged}
        self.emit(f"if {' and '.join(tests.values())}: add({self.packed([*run, ('B', '0')])})")
        with self.block("else:"):
            self.run = run
            self.flush()
            self.emit("found = []")
            for tag, field in tagged:
                encoder = self.name_for(_make_tag_encoder(tag, field, self.version), "T")
                self.emit(f"if not ({tests[tag]}): found.append({encoder}({owner}.{field.name}))")
            self.emit("add(uvarint(len(found)) + b''.join(found))")

    def is_default(self, field: Field, source: str) -> str:
        if field.initial is None:
            return f"{source} is None"
        if not field.is_array:
            return f"{source} == {self.name_for(field.initial, 'D')}"
        return f"{source} is not None and not {source}" if field.ever_null else f"not {source}"
