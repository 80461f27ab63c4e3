"""Compiles LIKE patterns for views; matching always takes linear time. Pure.

For headers and keys, a pattern without `_` is split at `%` into literal texts, which the compiled loops of
records/kernel.py find in order. Other patterns become regular expressions for RE2, which does not backtrack.
"""

from dataclasses import dataclass
from typing import Any

import re2


@dataclass(frozen=True, slots=True, kw_only=True)
class Pieces:
    """A pattern without `_`: literal texts that must occur in this order."""

    texts: tuple[bytes, ...]
    from_start: bool
    to_end: bool


def _split(pattern: str, escape: str) -> list[tuple[str, str]]:
    """Splits a LIKE pattern into (kind, text) pairs: ("text", literal text), ("%", "%") and ("_", "_")."""
    parts: list[tuple[str, str]] = []
    at = 0
    while at < len(pattern):
        letter = pattern[at]
        if escape and letter == escape:
            at += 1
            letter, kind = pattern[at], "text"
        else:
            kind = letter if letter in "%_" else "text"
        if kind == "text" and parts and parts[-1][0] == "text":
            parts[-1] = ("text", parts[-1][1] + letter)
        elif kind != "%" or not parts or parts[-1][0] != "%":
            parts.append((kind, letter))
        at += 1
    return parts


def pieces_of(pattern: str, escape: str) -> Pieces | None:
    """Returns the literal texts between the `%` of a LIKE pattern; None if `_` occurs without `escape` before it."""
    parts = _split(pattern, escape)
    if any(kind == "_" for kind, _ in parts):
        return None
    texts = tuple(text.encode() for kind, text in parts if kind == "text")
    if not texts:
        return Pieces(texts=(b"",), from_start=not parts, to_end=not parts)
    return Pieces(texts=texts, from_start=parts[0][0] == "text", to_end=parts[-1][0] == "text")


def expression_of(pattern: str, escape: str) -> Any:
    """Compiles a LIKE pattern to a regular expression for `fullmatch`. `escape`: its escape character, or empty."""
    options = re2.Options()
    options.dot_nl = True
    options.log_errors = False
    wild = {"%": ".*", "_": "."}
    return re2.compile(
        "".join(wild.get(kind) or re2.escape(text) for kind, text in _split(pattern, escape)), options=options
    )
