"""Reasons why a Protobuf payload cannot be decoded. The compiled decoder has the same numbers."""

from enum import IntEnum
from typing import Final


class Problem(IntEnum):
    TRUNCATED = 1
    VARINT = 2
    TAG = 3
    GROUP = 4
    TEXT = 5
    ENUM = 6
    TIME = 7
    REQUIRED = 8
    INDEXES = 9
    MESSAGE = 10


_TEXTS: Final = {
    Problem.TRUNCATED: "the value ends after its message or payload does",
    Problem.VARINT: "a varint has more than 10 bytes",
    Problem.TAG: "expected a field number and a wire type",
    Problem.GROUP: "a group has no end or no start, or is nested too deeply",
    Problem.TEXT: "the string is not valid UTF-8",
    Problem.ENUM: "the enum does not have this number",
    Problem.TIME: "the time does not fit into 64 bits of microseconds",
    Problem.REQUIRED: "the required field is missing",
    Problem.INDEXES: "expected message indexes before the message",
    Problem.MESSAGE: "the message indexes name another message",
}


def describe(problem: int, path: str, at: int) -> str:
    """Returns the reason with the field's path, if there is a field, and the position in the payload."""
    field = f"field {path!r}, " if path else ""
    return f"{field}byte {at}: {_TEXTS[Problem(problem)]}"
