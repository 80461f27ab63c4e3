"""Reads the wire format of Protobuf: tags, varints and lengths, and skips values of unknown fields."""

from typing import Final, NoReturn

from penstock.schemas.columns.layout import DEPTH_MAX
from penstock.schemas.columns.protobuf.plan import Wire
from penstock.schemas.columns.protobuf.problems import Problem

_VARINT_BYTES_MAX: Final = 10
_TAG_BYTES_MAX: Final = 5
_TAG_MAX: Final = 2**32 - 1
_MASK_64: Final = 2**64 - 1


class BadPayload(Exception):
    """A payload that cannot be decoded."""

    def __init__(self, problem: Problem, at: int, path: str = "") -> None:
        super().__init__(problem, at, path)
        self.problem = problem
        self.at = at
        self.path = path


class WireReader:
    """A position in a payload, and the end of the message that is read."""

    __slots__ = ("at", "data", "end")

    def __init__(self, data: bytes, at: int, end: int) -> None:
        self.data = data
        self.at = at
        self.end = end

    def varint(self) -> int:
        """Reads a varint of 64 bits; bits beyond are ignored, as everywhere."""
        start = self.at
        value = 0
        for at in range(start, min(start + _VARINT_BYTES_MAX, self.end)):
            byte = self.data[at]
            value |= (byte & 0x7F) << 7 * (at - start)
            if byte < 0x80:
                self.at = at + 1
                return value & _MASK_64
        self._fail(Problem.VARINT if self.end - start >= _VARINT_BYTES_MAX else Problem.TRUNCATED, start)

    def tag(self) -> tuple[int, int]:
        """Reads the number of a field and the wire type of its value."""
        start = self.at
        tag = self.varint()
        number, wire = tag >> 3, tag & 7
        if self.at - start > _TAG_BYTES_MAX or tag > _TAG_MAX or number == 0 or wire > Wire.FIXED32:
            self._fail(Problem.TAG, start)
        return number, wire

    def take(self, length: int) -> int:
        """Skips the next bytes, and returns where they start."""
        start = self.at
        if length > self.end - start:
            self._fail(Problem.TRUNCATED, start)
        self.at = start + length
        return start

    def fixed(self, size: int) -> int:
        start = self.take(size)
        return int.from_bytes(self.data[start : start + size], "little")

    def span(self) -> tuple[int, int]:
        """Reads a length; returns start and end of the value after it."""
        length = self.varint()
        start = self.take(length)
        return start, self.at

    def skip(self, number: int, wire: int) -> None:
        """Skips the value of a field, with everything in it if it is a group."""
        open_groups: list[int] = []
        while True:
            start = self.at
            match wire:
                case Wire.VARINT:
                    self.varint()
                case Wire.FIXED64:
                    self.take(8)
                case Wire.BYTES:
                    self.span()
                case Wire.FIXED32:
                    self.take(4)
                case Wire.GROUP_START:
                    if len(open_groups) == DEPTH_MAX:
                        self._fail(Problem.GROUP, start)
                    open_groups.append(number)
                case Wire.GROUP_END:
                    if not open_groups or open_groups.pop() != number:
                        self._fail(Problem.GROUP, start)
            if not open_groups:
                return
            if self.at == self.end:
                self._fail(Problem.GROUP, self.at)
            number, wire = self.tag()

    def skip_rest(self) -> None:
        """Skips all fields up to the end."""
        while self.at < self.end:
            self.skip(*self.tag())

    def _fail(self, problem: Problem, at: int) -> NoReturn:
        raise BadPayload(problem, at)
