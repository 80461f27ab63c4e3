"""Indents the JSON of a schema without changing its values."""

import json
import re
from collections.abc import Iterator
from typing import Final

_TOKEN: Final = re.compile(r'"(?:[^"\\]|\\.)*"|[{}\[\],:]|[^\s{}\[\],:"]+')
_INDENT: Final = "  "
_INLINE_CHARS_MAX: Final = 80
"""Maximum length of an array that is shown on one line."""
_CLOSING: Final = frozenset("}]")
_BRACKETS: Final = frozenset("{}[]")


def indent_json(text: str) -> str:
    """Returns JSON with one member a line. Strings and numbers stay exactly as they are; text that is not JSON is
    returned unchanged.

    >>> print(indent_json('{"type":["null","string"],"default":1.50}'))
    {
      "type": ["null", "string"],
      "default": 1.50
    }
    """
    try:
        json.loads(text)
    except (ValueError, RecursionError):
        return text
    return "".join(_pieces(_TOKEN.findall(text)))


def _pieces(tokens: list[str]) -> Iterator[str]:
    depth = index = 0
    while index < len(tokens):
        token = tokens[index]
        if token in ("{", "["):
            inline = _inline(tokens, index)
            if inline is not None:
                yield inline
                index = tokens.index("]" if token == "[" else "}", index) + 1
                continue
            depth += 1
            yield f"{token}\n{_INDENT * depth}"
        elif token in _CLOSING:
            depth -= 1
            yield f"\n{_INDENT * depth}{token}"
        elif token == ",":
            yield f",\n{_INDENT * depth}"
        else:
            yield ": " if token == ":" else token
        index += 1


def _inline(tokens: list[str], start: int) -> str | None:
    """Returns the text of a short array of plain values, or of an empty object; None for others."""
    text = tokens[start]
    for token in tokens[start + 1 :]:
        if token in _CLOSING:
            is_short = tokens[start] == "[" or tokens[start + 1] == token
            return text + token if is_short else None
        if token in _BRACKETS or len(text) > _INLINE_CHARS_MAX:
            return None
        text += ", " if token == "," else token
    return None
