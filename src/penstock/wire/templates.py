"""Templates of encoded messages that differ only in a few integers: only those integers are read and written."""

import struct
from collections.abc import Iterable
from typing import NamedTuple


class Template(NamedTuple):
    """The layout of messages that differ only in a few integers: constant bytes with the integers between them."""

    layout: struct.Struct
    fields: tuple[bytes | int, ...]
    """The constant bytes, and 0 for each integer: replace the zeros and pack with `layout` to build a message."""


def make_template(zeros: bytes, ones: bytes, codes: Iterable[str]) -> Template:
    r"""Builds a template from two encodings of a message: all integers 0, and all -1. `codes`: their struct codes.

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
