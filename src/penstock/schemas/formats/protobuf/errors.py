"""Errors of Protobuf schemas: InvalidSchema with a message of bounded length, since names in it may be very long."""

from typing import Final

from penstock.schemas.formats.format import InvalidSchema

_MESSAGE_LENGTH_MAX: Final = 600


def invalid(problem: str) -> InvalidSchema:
    """Returns the error for a problem. A message that is too long is cut in the middle."""
    if len(problem) > _MESSAGE_LENGTH_MAX:
        half = _MESSAGE_LENGTH_MAX // 2
        problem = f"{problem[:half]} ... {problem[-half:]}"
    return InvalidSchema(problem)
