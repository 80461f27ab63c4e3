"""Templates of messages that differ only in a few numbers: the fast path reads and writes just those."""

import struct
from collections.abc import Iterable
from typing import NamedTuple


class Template(NamedTuple):
    """The layout of such a message: constant bytes, and the numbers between them."""

    layout: struct.Struct
    fields: tuple[bytes | int, ...]
    """The unpacked fields of the layout, with every number 0."""


def make_template(zeros: bytes, ones: bytes, codes: Iterable[str]) -> Template:
    r"""Finds the numbers in a message, given with all of them 0 and with all of them -1; `codes` are struct codes.

    >>> template = make_template(b"at\0\0.", b"at\xff\xff.", "h")
    >>> template.layout.unpack(b"at\0\7.")
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
    return Template(layout, layout.unpack(zeros))
