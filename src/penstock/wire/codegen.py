"""Code generation shared by decoders and encoders: writes Python source, and groups adjacent fixed-size fields.

Decoders and encoders walk a schema and write one function for a whole message, with nested structs inlined. Adjacent
fields of fixed size form a *run*: one `struct` call; the length of a string or array joins the run before it.
"""

from abc import ABC, abstractmethod
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any, Final

from penstock.wire.schema import Field, fields_of

FIXED: Final = {
    "bool": "?",
    "int8": "b",
    "int16": "h",
    "uint16": "H",
    "int32": "i",
    "uint32": "I",
    "int64": "q",
    "float64": "d",
    "uuid": "16s",
}


STEP_ELEMENTS: Final = 128
"""Number of array elements between two yields of an interruptible ("sliced") codec; a power of two."""


class TooManyElements(Exception):
    """A message has more array elements and tagged fields than the caller allows."""


class SourceWriter(ABC):
    """Writes the source of one function. A sliced function is a generator that yields every `STEP_ELEMENTS` items."""

    def __init__(self, version: int, flexible: bool, scope: dict[str, Any], is_sliced: bool = False) -> None:
        self.version = version
        self.flexible = flexible
        self.scope = scope | {"TooManyElements": TooManyElements}
        self.is_sliced = is_sliced
        self.lines: list[str] = []
        self.depth = 0
        self.run: list[tuple[str, str]] = []
        """Pending fields of fixed size: each is a struct code and the source expression to read into or to write."""

    def emit(self, text: str) -> None:
        self.lines.append("    " * self.depth + text)

    def begin(self) -> None:
        """Writes the first lines of a sliced function (generator that yields regularly); nothing for a plain one."""
        if self.is_sliced:
            self.emit("done = 0")
            self.emit("yield")

    def spend_elements(self, count: str) -> None:
        """Writes code that subtracts `count` from `left`, the number of elements that the message may still have."""
        self.emit(f"left -= {count}")
        self.emit("if left < 0: raise TooManyElements")

    def end_of_element(self) -> None:
        """Writes the last lines of a loop over array elements, where a sliced function (a generator) may yield."""
        if self.is_sliced:
            self.flush()
            self.emit("done += 1")
            self.emit(f"if not done & {STEP_ELEMENTS - 1}: yield")

    @abstractmethod
    def flush(self) -> None:
        """Writes the code that decodes or encodes the fixed-size fields in `run`, and empties `run`."""

    @contextmanager
    def block(self, head: str) -> Iterator[None]:
        self.emit(head)
        self.depth += 1
        start = len(self.lines)
        yield
        self.flush()
        if len(self.lines) == start:
            self.emit("pass")
        self.depth -= 1

    def name_for(self, value: Any, stem: str) -> str:
        """Adds a value to the function's globals and returns its name there: for values that have no literal."""
        name = f"{stem}{len(self.scope)}"
        self.scope[name] = value
        return name

    def plain_fields(self, cls: type) -> list[Field]:
        return [field for field in fields_of(cls) if field.exists_in(self.version) and field.tag is None]

    def tagged_fields(self, cls: type) -> list[tuple[int, Field]]:
        found = [
            (field.tag, field) for field in fields_of(cls) if field.exists_in(self.version) and field.tag is not None
        ]
        return sorted(found, key=lambda entry: entry[0])

    def compile(self, function: str, title: str) -> Any:
        exec(compile("\n".join(self.lines), f"<{title} v{self.version}>", "exec"), self.scope)
        return self.scope[function]
