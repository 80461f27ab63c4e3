"""Messages of differences between schemas, in the layout of Confluent's registry."""

from collections.abc import Iterator
from typing import Any, Final, NamedTuple, Optional

from penstock.schemas.formats.format import READER, WRITER, Difference

DIFFERENCES_MAX: Final = 1000
"""Differences that are reported. Types that are used in many places can have exponentially many."""
MESSAGES_CHARS_MAX: Final = 1_000_000
"""Length of the messages after which no more are made: some name the whole enum."""

FIXED_SIZE_MISMATCH: Final = "FIXED_SIZE_MISMATCH"
MISSING_ENUM_SYMBOLS: Final = "MISSING_ENUM_SYMBOLS"
MISSING_UNION_BRANCH: Final = "MISSING_UNION_BRANCH"
NAME_MISMATCH: Final = "NAME_MISMATCH"
READER_FIELD_MISSING_DEFAULT_VALUE: Final = "READER_FIELD_MISSING_DEFAULT_VALUE"
TYPE_MISMATCH: Final = "TYPE_MISMATCH"
TOO_COMPLEX: Final = "TOO_COMPLEX"
"""Penstock's own: Confluent's registry would compare for a very long time."""
UNEXPECTED_EXCEPTION: Final = "UNEXPECTED_EXCEPTION"
"""Of a message that Confluent's registry shows in another layout."""

_DESCRIPTIONS: Final = {
    FIXED_SIZE_MISMATCH: "The size of FIXED type field at path '{path}' in the {reader} schema does not match with "
    "the {writer} schema",
    TYPE_MISMATCH: "The type (path '{path}') of a field in the {reader} schema does not match with the {writer} "
    "schema",
    NAME_MISMATCH: "The name of the schema has changed (path '{path}')",
    MISSING_ENUM_SYMBOLS: "The {reader} schema is missing enum symbols '{detail}' at path '{path}' in the {writer} "
    "schema",
    MISSING_UNION_BRANCH: "The {reader} schema is missing a type inside a union field at path '{path}' in the "
    "{writer} schema",
    READER_FIELD_MISSING_DEFAULT_VALUE: "The field '{detail}' at path '{path}' in the {reader} schema has no default "
    "value and is missing in the {writer} schema",
    TOO_COMPLEX: "The {reader} schema cannot be compared with the {writer} schema",
}


class Place(NamedTuple):
    """A place in the reader's schema: a token within the place around it."""

    around: Optional["Place"]
    token: str


class Problem(NamedTuple):
    """One reason why a schema cannot be read."""

    kind: str
    detail: str
    place: Place


def describe(problems: list[Any]) -> list[Difference]:
    """Returns the differences for problems and lists of problems, in order: as many as are allowed."""
    differences: list[Difference] = []
    length = 0
    for problem in _unfold(problems):
        description = _DESCRIPTIONS[problem.kind].format(
            path=_path(problem.place), detail=problem.detail, reader=READER, writer=WRITER
        )
        message = f"{{errorType:'{problem.kind}', description:'{description}', additionalInfo:'{problem.detail}'}}"
        differences.append(Difference(problem.kind, message))
        length += len(message)
        if len(differences) == DIFFERENCES_MAX or length > MESSAGES_CHARS_MAX:
            break
    return differences


def _unfold(problems: list[Any]) -> Iterator[Problem]:
    pending = [iter(problems)]
    while pending:
        for problem in pending[-1]:
            if isinstance(problem, Problem):
                yield problem
            else:
                pending.append(iter(problem))
                break
        else:
            pending.pop()


def _path(place: Place) -> str:
    """Returns the path without the outermost token, as a JSON pointer: it consists of numbers and words."""
    tokens: list[str] = []
    while place.around is not None:
        tokens.append(place.token)
        place = place.around
    return "/" + "/".join(reversed(tokens))
