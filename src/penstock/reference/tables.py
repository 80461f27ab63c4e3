"""Markdown tables and number formatting for generated documentation."""

from collections.abc import Iterable


def table(head: Iterable[str], rows: Iterable[Iterable[str]]) -> str:
    names = list(head)
    lines = [names, ["---"] * len(names), *(list(row) for row in rows)]
    return "".join(f"| {' | '.join(cell.replace('|', chr(92) + '|') for cell in line)} |\n" for line in lines)


def size(count: int) -> str:
    """Formats a number of bytes in the largest unit that divides it.

    >>> size(4 << 20), size(96 << 10), size(1000)
    ('4 MiB', '96 KiB', '1,000 bytes')
    """
    for unit, name in ((1 << 20, "MiB"), (1 << 10, "KiB")):
        if count % unit == 0:
            return f"{count // unit:,} {name}"
    return f"{count:,} bytes"
