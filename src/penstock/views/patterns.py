"""LIKE patterns. Pure. No pattern can take more than linear time, whatever it is matched with.

Most are texts that must follow each other, which the kernel finds. One with `_` in it is a regular expression of RE2,
which does not backtrack.
"""

from dataclasses import dataclass
from typing import Any

import re2


@dataclass(frozen=True, slots=True, kw_only=True)
class Pieces:
    """A pattern without `_`: what must come one after another."""

    texts: tuple[bytes, ...]
    from_start: bool
    to_end: bool


def _split(pattern: str, escape: str) -> list[tuple[str, str]]:
    """Runs of plain text ("text", the text), and between them any text ("%") or one character ("_")."""
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
    """A pattern as pieces; None if there is a `_` in it."""
    parts = _split(pattern, escape)
    if any(kind == "_" for kind, _ in parts):
        return None
    texts = tuple(text.encode() for kind, text in parts if kind == "text")
    if not texts:
        return Pieces(texts=(b"",), from_start=not parts, to_end=not parts)
    return Pieces(texts=texts, from_start=parts[0][0] == "text", to_end=parts[-1][0] == "text")


def expression_of(pattern: str, escape: str) -> Any:
    """A pattern as a regular expression that matches the whole text."""
    options = re2.Options()
    options.dot_nl = True
    options.log_errors = False
    wild = {"%": ".*", "_": "."}
    return re2.compile(
        "".join(wild.get(kind) or re2.escape(text) for kind, text in _split(pattern, escape)), options=options
    )
