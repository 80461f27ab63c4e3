"""The lexer of view filters: splits an SQL-like expression into tokens with their positions. Pure.

Every field and value is replaced by an index here: the SQL that the parser gets (`Words.sql`) contains only these
indexes, operators and a few keywords. So no header name can clash with a keyword, functions, subqueries and comments
cannot be written at all, and the position of each token in the text is known.
"""

import re
from dataclasses import dataclass
from typing import Final

from penstock.views.errors import BadExpression
from penstock.views.terms import Field, Header, Key, Partition, Path, Timestamp, Value

TEXT_MAX: Final = 4096
WORDS_MAX: Final = 1000
DEPTH_MAX: Final = 32
"""Maximum nesting depth of parentheses and of NOTs."""
KEYWORDS: Final = frozenset({"AND", "OR", "NOT", "IN", "LIKE", "ESCAPE", "BETWEEN", "IS", "NULL"})
_FIELDS: Final[dict[str, Field]] = {"key": Key(), "timestamp": Timestamp(), "partition": Partition()}
_MISSING: Final = {
    "offset": "a view keeps the offsets of its topic, and cannot filter by them",
    "value": "the value is parsed as JSON: write $.field for a field of it",
    "topic": "a view has only one topic",
    "headers": "write the name of the header itself, such as tag",
}
_INT64: Final = 2**63

_WORD: Final = re.compile(r"[A-Za-z_][A-Za-z0-9_]*(?:[.-][A-Za-z0-9_]+)*")
_NUMBER: Final = re.compile(r"[+-]?(?:[0-9]+(?:\.[0-9]*)?|\.[0-9]+)(?:[eE][+-]?[0-9]+)?")
_STRING: Final = re.compile(r"'((?:[^']|'')*)'")
_QUOTED: Final = re.compile(r'"((?:[^"]|"")*)"')
_OPERATOR: Final = re.compile(r"<>|!=|<=|>=|==|[=<>(),]")
_SPACE: Final = re.compile(r"\s+")
_STEP: Final = re.compile(
    r"""\.(?P<name>[A-Za-z_][A-Za-z0-9_-]*)|\."(?P<quoted>(?:[^"]|"")+)"|\[(?P<item>[0-9]{1,9})\]|\['(?P<text>(?:[^']|'')+)'\]"""
)


@dataclass(frozen=True, slots=True, kw_only=True)
class Word:
    """A token: a field, a value, an operator or a keyword."""

    start: int
    end: int
    sql: str
    field: Field | None = None
    value: Value | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class Words:
    text: str
    all: tuple[Word, ...]

    @property
    def sql(self) -> str:
        """The expression as the parser gets it, with tokens separated by one space."""
        return " ".join(word.sql for word in self.all)

    def at(self, position: int) -> Word:
        """Returns the token at a position in `sql`; for a position after the end, the last token."""
        end = 0
        for word in self.all:
            end += len(word.sql) + 1
            if position < end:
                return word
        return self.all[-1]


def read_words(text: str) -> Words:
    """Splits an expression into tokens. Raises BadExpression, with the position, for text that is not a token."""
    if len(text) > TEXT_MAX:
        raise BadExpression(
            f"an expression has at most {TEXT_MAX} characters, this one has {len(text)}", text, TEXT_MAX, TEXT_MAX + 1
        )
    words: list[Word] = []
    at = 0
    while at < len(text):
        space = _SPACE.match(text, at)
        if space is not None:
            at = space.end()
            continue
        word = _next(text, at, len(words))
        words.append(word)
        at = word.end
        if len(words) > WORDS_MAX:
            raise BadExpression(f"an expression has at most {WORDS_MAX} words", text, word.start, word.end)
    if not words:
        raise BadExpression("the expression is empty; write for example tag = 'eu'", text or " ")
    _check_depth(text, words)
    return Words(text=text, all=tuple(words))


def _next(text: str, at: int, number: int) -> Word:
    letter = text[at]
    if letter == "'":
        return _string(text, at, number)
    if letter == '"':
        return _quoted(text, at, number)
    if letter == "$":
        return _path(text, at, number)
    found = _NUMBER.match(text, at)
    if found is not None:
        return _number(text, at, found.end(), number)
    found = _WORD.match(text, at)
    if found is not None:
        return _word(text, found.group(), at, number)
    found = _OPERATOR.match(text, at)
    if found is not None:
        return Word(start=at, end=found.end(), sql=found.group())
    raise BadExpression(f"{letter!r} is not in the language of views", text, at, at + 1)


def _of_value(start: int, end: int, number: int, value: Value) -> Word:
    return Word(start=start, end=end, sql=f"'{number}'", value=value)


def _of_field(start: int, end: int, number: int, field: Field) -> Word:
    return Word(start=start, end=end, sql=f'"{number}"', field=field)


def _string(text: str, at: int, number: int) -> Word:
    found = _STRING.match(text, at)
    if found is None:
        raise BadExpression("this string has no closing quote; write a quote inside it twice", text, at, at + 1)
    return _of_value(at, found.end(), number, _encodable(text, at, found.end(), found.group(1).replace("''", "'")))


def _encodable(text: str, start: int, end: int, value: str) -> str:
    try:
        value.encode()
    except UnicodeEncodeError as error:
        raise BadExpression("this text is not valid Unicode", text, start, end) from error
    return value


def _quoted(text: str, at: int, number: int) -> Word:
    found = _QUOTED.match(text, at)
    if found is None:
        raise BadExpression('this name has no closing quote; write a " inside it twice', text, at, at + 1)
    name = _encodable(text, at, found.end(), found.group(1).replace('""', '"'))
    return _of_field(at, found.end(), number, Header(name))


def _path(text: str, at: int, number: int) -> Word:
    steps: list[str | int] = []
    end = at + 1
    while (found := _STEP.match(text, end)) is not None:
        end = found.end()
        if found["item"] is not None:
            steps.append(int(found["item"]))
        else:
            plain = found["name"] or (found["quoted"] or "").replace('""', '"') or found["text"].replace("''", "'")
            steps.append(_encodable(text, at, end, plain))
        if len(steps) > DEPTH_MAX:
            raise BadExpression(f"a path has at most {DEPTH_MAX} steps", text, at, end)
    if end < len(text) and (text[end] in ".[$" or text[end].isalnum()):
        raise BadExpression("expected .name, .\"any name\", [0] or ['any name'] in a path", text, end, end + 1)
    return _of_field(at, end, number, Path(tuple(steps)))


def _number(text: str, start: int, end: int, number: int) -> Word:
    if end < len(text) and (text[end].isalnum() or text[end] in "._"):
        raise BadExpression("a number cannot contain letters; put a string in quotes", text, start, end + 1)
    written = text[start:end]
    if written.lstrip("+-").isdigit():
        whole = int(written)
        if not -_INT64 <= whole < _INT64:
            raise BadExpression("a whole number has at most 63 bits", text, start, end)
        return _of_value(start, end, number, whole)
    value = float(written)
    if value in (float("inf"), float("-inf")):
        raise BadExpression("this number is too large", text, start, end)
    return _of_value(start, end, number, value)


def _word(text: str, name: str, at: int, number: int) -> Word:
    end, upper = at + len(name), name.upper()
    if upper in KEYWORDS:
        return Word(start=at, end=end, sql=upper)
    if upper in ("TRUE", "FALSE"):
        return _of_value(at, end, number, upper == "TRUE")
    if text[end : end + 1] == "(" or text[end:].lstrip().startswith("("):
        raise BadExpression(f"there is no function {name!r} in a view; compare fields with values", text, at, end)
    field = _FIELDS.get(name.lower())
    if field is not None:
        return _of_field(at, end, number, field)
    if name.lower() in _MISSING:
        raise BadExpression(
            f'{_MISSING[name.lower()]} (a header of that name is written in quotes: "{name}")', text, at, end
        )
    return _of_field(at, end, number, Header(name))


def _check_depth(text: str, words: list[Word]) -> None:
    """Raises BadExpression if the nesting is too deep: the parser is recursive."""
    depth = nots = 0
    for word in words:
        depth += {"(": 1, ")": -1}.get(word.sql, 0)
        nots = nots + 1 if word.sql == "NOT" else (0 if word.sql != "(" else nots)
        if depth > DEPTH_MAX or nots > DEPTH_MAX:
            raise BadExpression(f"an expression is at most {DEPTH_MAX} levels deep", text, word.start, word.end)
