"""Messages that are the same but for a few numbers: where those stand is found once, and then they are all that is
read or written."""

import struct
from collections.abc import Iterable
from typing import NamedTuple


class Holes(NamedTuple):
    """How to take such bytes apart and put them together: bytes that stay, and between them the numbers."""

    layout: struct.Struct
    fields: tuple[bytes | int, ...]
    """What the layout gives, and takes, where every number is 0."""


def find_holes(zeros: bytes, ones: bytes, codes: Iterable[str]) -> Holes:
    """Of the same message with all numbers 0, and with all of them -1; `codes` says how each is written.

    >>> holes = find_holes(b"at\\0\\0.", b"at\\xff\\xff.", "h")
    >>> holes.layout.unpack(b"at\\0\\7.")
    (b'at', 7, b'.')
    """
    mask = bytes(zero ^ one for zero, one in zip(zeros, ones, strict=True))
    parts, at = [">"], 0
    for code in codes:
        start = mask.index(b"\xff", at)
        if start > at:
            parts.append(f"{start - at}s")
        parts.append(code)
        at = start + struct.calcsize(">" + code)
    parts.append(f"{len(zeros) - at}s")  # there always is an end, if an empty one
    layout = struct.Struct("".join(parts))
    return Holes(layout, layout.unpack(zeros))
