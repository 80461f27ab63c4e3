"""Generates decoders from schemas: `decode(buf, at, left)` returns the value and the position after it.

`left` limits the array elements and tagged fields of the whole message: each costs time and memory, and a frame of a
few megabytes can claim millions. A hostile frame can make a decoder raise struct.error, IndexError, ValueError or
TooManyElements, or return a position past the end of the buffer; nothing else. See `codec.decode`, which turns the
first three into MalformedRequest.

A sliced decoder is the same function as a generator: it yields after every `STEP_ELEMENTS` elements.
"""

import struct
from collections.abc import Callable
from typing import Any, Final

from penstock.foundation.steps import Steps
from penstock.wire.codegen import FIXED, SourceWriter
from penstock.wire.schema import Buffer, Field, carries_records, fields_of
from penstock.wire.varint import TAGS_MAX, read_uvarint_tail, skip_tagged_fields

Decoder = Callable[[Buffer, int, int], tuple[Any, int]]
SlicedDecoder = Callable[[Buffer, int, int], Steps[tuple[Any, int]]]
STRING_BYTES_MAX: Final = 0x7FFF
"""Maximum length of a string, in bytes; as in Kafka also for strings whose length is a varint."""


# Most strings and arrays are short. For those, a prebuilt struct reads a string faster than slicing the buffer, and
# a prebuilt range saves creating one, which takes as long as reading a small struct.
_SHORT: Final = 128
_TEXT: Final = tuple(struct.Struct(f"{size}s").unpack_from for size in range(_SHORT))
_RANGES: Final = tuple(range(size) for size in range(_SHORT))


def make_decoder(cls: type, version: int, flexible: bool) -> Decoder:
    """Generates the decoder of a message class for one version."""
    made: Decoder = _compile(cls, version, flexible, is_sliced=False)
    return made


def make_sliced_decoder(cls: type, version: int, flexible: bool) -> SlicedDecoder:
    """Generates the interruptible decoder of a message class for one version, for messages with many elements."""
    made: SlicedDecoder = _compile(cls, version, flexible, is_sliced=True)
    return made


def _compile(cls: type, version: int, flexible: bool, is_sliced: bool) -> Any:
    scope = {
        "tail": read_uvarint_tail,
        "skip": skip_tagged_fields,
        "unpack": struct.unpack_from,
        "TEXT": _TEXT,
        "RANGES": _RANGES,
    }
    writer = _DecoderWriter(version, flexible, scope, is_sliced=is_sliced)
    with writer.block("def decode(buf, at, left):"):
        writer.emit("limit = len(buf)")
        writer.begin()
        if carries_records(cls):
            writer.emit("view = buf if type(buf) is memoryview else memoryview(buf)")
        writer.struct(cls, 0)
        writer.emit("return o0, at")
    return writer.compile("decode", f"decode {cls.__name__}")


class _DecoderWriter(SourceWriter):
    def flush(self) -> None:
        if self.run == [("B", "n")]:
            self.run = []
            self.emit("n = buf[at]")
            self.emit("at += 1")
        elif self.run:
            packed = struct.Struct(">" + "".join(code for code, _ in self.run))
            targets = ", ".join(target for _, target in self.run)
            self.emit(f"{targets}, = {self.name_for(packed.unpack_from, 'S')}(buf, at)")
            self.emit(f"at += {packed.size}")
            self.run = []

    def struct(self, cls: type, level: int) -> None:
        """Writes code that decodes an instance into variable `o<level>`; `level` is the nesting depth of structs."""
        self.emit(f"o{level} = {self.name_for(cls.__new__, 'new')}({self.name_for(cls, 'C')})")
        for field in fields_of(cls):
            if field.tag is not None or not field.exists_in(self.version):
                self.emit(f"o{level}.{field.name} = {self.name_for(field.initial, 'D')}")
        for field in self.plain_fields(cls):
            self.field(field, f"o{level}.{field.name}", level)
        if self.flexible:
            self.run.append(("B", "n"))
            self.flush()
            with self.block("if n:"):
                self.tags(self.tagged_fields(cls), level)
        self.flush()

    def field(self, field: Field, target: str, level: int) -> None:
        if field.is_array:
            self.array(field, target, level)
        elif field.kind in FIXED:
            self.run.append((FIXED[field.kind], target))
        elif field.struct is not None:
            self.nested(field, field.struct, target, level)
        else:
            self.blob(field, target)

    def length(self, code: str) -> tuple[str, str]:
        """Writes code that reads a length into variable `n`: with struct code `code`, or a varint in flexible
        versions. Returns two source expressions: "is not null", and the length."""
        self.run.append(("B" if self.flexible else code, "n"))
        self.flush()
        if not self.flexible:
            return "n >= 0", "n"
        self.emit("if n > 127: n, at = tail(buf, at, n)")
        return "n", "n - 1"

    def null(self, field: Field, target: str) -> None:
        """Writes the `else` branch for null: it sets `target` to None, or raises if `field` is not nullable."""
        if not field.may_be_null(self.version):
            self.emit(f"else: raise ValueError('{field.name} must not be null')")
        elif self.flexible:
            self.emit(f"else: {target} = None")
        else:
            self.emit(f"elif n == -1: {target} = None")
            self.emit(f"else: raise ValueError('{field.name} has length %d' % n)")

    def blob(self, field: Field, target: str) -> None:
        is_value, size = self.length("h" if field.kind == "string" else "i")
        with self.block(f"if {is_value}:"):
            self.emit(f"end = at + {size}")
            if field.kind == "string" and self.flexible:
                self.emit(f"if n > {STRING_BYTES_MAX + 1}: raise ValueError('{field.name} has %d bytes' % n)")
            if field.kind == "string":
                self.emit(f"if n < {_SHORT}: {target} = TEXT[{size}](buf, at)[0].decode()")
                self.emit(f"else: {target} = str(buf[at:end], 'utf-8')")
            else:
                self.emit(f"{target} = {'bytes(buf[at:end])' if field.kind == 'bytes' else 'view[at:end]'}")
            self.emit("at = end")
        self.null(field, target)

    def nested(self, field: Field, cls: type, target: str, level: int) -> None:
        if not field.may_be_null(self.version):
            self.flush()
            self.struct(cls, level + 1)
            self.emit(f"{target} = o{level + 1}")
            return
        # A nullable struct has a byte before it: negative for null (KIP-893).
        self.run.append(("b", "n"))
        self.flush()
        self.emit(f"if n < 0: {target} = None")
        with self.block("else:"):
            self.struct(cls, level + 1)
            self.emit(f"{target} = o{level + 1}")

    def array(self, field: Field, target: str, level: int) -> None:
        is_value, size = self.length("i")
        with self.block(f"if {is_value}:"):
            # Every element takes at least one byte: rejects a hostile count before looping or allocating.
            self.emit(f"if n > limit: raise ValueError('{field.name} has %d elements' % n)")
            self.spend_elements("n")
            if field.kind in FIXED:
                self.fixed_array(field, target, size)
            else:
                self.emit(f"{target} = items{level} = []")
                with self.block(f"for _ in RANGES[{size}] if n < {_SHORT} else range({size}):"):
                    self.element(field, level)
                    self.end_of_element()
        self.null(field, target)

    def element(self, field: Field, level: int) -> None:
        if field.struct is not None:
            self.struct(field.struct, level + 1)
            self.emit(f"items{level}.append(o{level + 1})")
        else:
            self.blob(field.element(), "item")
            self.emit(f"items{level}.append(item)")

    def fixed_array(self, field: Field, target: str, size: str) -> None:
        code = FIXED[field.kind]
        self.emit(f"end = at + ({size}) * {struct.calcsize('>' + code)}")
        if field.kind == "uuid":
            self.emit("if end > limit: raise ValueError('an array of UUIDs ends after its frame')")
            self.emit(f"{target} = [bytes(buf[i:i + 16]) for i in range(at, end, 16)]")
        else:
            self.emit(f"{target} = list(unpack('>%d{code}' % ({size}), buf, at))")
        self.emit("at = end")

    def tags(self, tagged: list[tuple[int, Field]], level: int) -> None:
        """Writes code that reads `n` tagged fields (`n` is a variable) and skips fields that are not in `tagged`."""
        self.emit("if n > 127: n, at = tail(buf, at, n)")
        self.spend_elements("n")
        if not tagged:
            self.emit("at = skip(buf, at, n)")
            return
        self.emit(f"if n > {TAGS_MAX}: raise ValueError('%d tagged fields' % n)")
        with self.block("for _ in range(n):"):
            for name in (f"tag{level}", "n"):
                self.emit(f"{name} = buf[at]")
                self.emit("at += 1")
                self.emit(f"if {name} > 127: {name}, at = tail(buf, at, {name})")
            self.emit(f"end{level} = at + n")
            for index, (tag, field) in enumerate(tagged):
                with self.block(f"{'elif' if index else 'if'} tag{level} == {tag}:"):
                    self.field(field, f"o{level}.{field.name}", level)
            # A value longer than its size would let each of many tags read the rest of the frame.
            self.emit(f"if at > end{level}: raise ValueError('tag %d is longer than its size' % tag{level})")
            self.emit(f"at = end{level}")
