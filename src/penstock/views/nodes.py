"""Compiles a view's filter expression into nodes that yield TRUE, FALSE or UNKNOWN for every record. Pure."""

from collections.abc import Callable
from itertools import compress
from typing import Any, Final

from penstock.records import kernel
from penstock.records.layout import Buffer, Ints
from penstock.views.patterns import expression_of, pieces_of
from penstock.views.rows import (
    FALSE,
    IS_TRUE,
    IS_UNKNOWN,
    KNOWN_IS_TRUE,
    NEGATED,
    NOT_FALSE,
    NOT_TRUE,
    NOTHING,
    TRUE,
    UNKNOWN,
    Node,
    Rows,
)
from penstock.views.terms import (
    Among,
    And,
    Compare,
    Field,
    Header,
    IsNull,
    Like,
    Not,
    Op,
    Or,
    Partition,
    Path,
    Term,
    Timestamp,
    Value,
)

Cells = Callable[[Rows], tuple[Ints, Ints]]
"""Type of functions that return positions and lengths of one header, or of the key, by row; length < 0: null."""


def compiled(term: Term) -> Node:
    match term:
        case And(parts):
            return all_of([compiled(part) for part in parts])
        case Or(parts):
            return _any_of([compiled(part) for part in parts])
        case Not(part):
            node = compiled(part)
            return Node(lambda rows, live: node.states(rows, live).translate(NEGATED), node.is_costly)
        case Compare(field, op, value):
            return _compare(field, op, (value,))
        case Among(field, values):
            return _compare(field, Op.EQ, values)
        case Like(field, pattern, escape):
            return _like(field, pattern, escape)
        case IsNull(field):
            return _is_null(field)


def all_of(nodes: list[Node], *, top: bool = False) -> Node:
    """Combines nodes with AND, cheap nodes first. Rows that are FALSE in one node are not evaluated by the next. If
    `top`, this AND is the root of the expression: UNKNOWN rows cannot match either, and are not evaluated further."""
    ordered = sorted(nodes, key=lambda node: node.is_costly)
    still = IS_TRUE if top else NOT_FALSE
    if len(ordered) == 1:
        return ordered[0]

    def states(rows: Rows, live: Buffer | None) -> bytes:
        found = ordered[0].states(rows, live)
        for node in ordered[1:]:
            wanted = found.translate(still)
            live = wanted if live is None else kernel.active.both(wanted, live)
            if TRUE not in live:
                break
            more = node.states(rows, live)
            found = kernel.active.both(found, more if not top else _keep_unknown(more, found))
        return found

    return Node(states, ordered[-1].is_costly)


def _keep_unknown(more: bytes, found: bytes) -> bytes:
    """Returns `more` with TRUE for each row that is UNKNOWN in `found`, so that AND of the result and `found` is
    UNKNOWN for that row."""
    if UNKNOWN not in found:
        return more
    return kernel.active.either(more, found.translate(IS_UNKNOWN))


def _any_of(nodes: list[Node]) -> Node:
    ordered = sorted(nodes, key=lambda node: node.is_costly)

    def states(rows: Rows, live: Buffer | None) -> bytes:
        found = ordered[0].states(rows, live)
        for node in ordered[1:]:
            wanted = found.translate(NOT_TRUE)
            live = wanted if live is None else kernel.active.both(wanted, live)
            if TRUE not in live:
                break
            found = kernel.active.either(found, node.states(rows, live))
        return found

    return Node(states, ordered[-1].is_costly)


def _cells(field: Field) -> Cells:
    if isinstance(field, Header):
        name = field.name.encode()
        return lambda rows: rows.header(name)
    return lambda rows: (rows.columns.key_at, rows.columns.key_len)


def _compare(field: Field, op: Op, values: tuple[Value, ...]) -> Node:
    """Compares a field with a value. With several values: whether the field equals one of them."""
    if isinstance(field, Path):
        return _compare_path(field, op, values)
    if isinstance(field, Partition):
        return _constant(lambda rows: any(ORDER[op](rows.partition, value) for value in values))
    if isinstance(field, Timestamp):
        return _any_of([_compare_time(op, int(value)) for value in values])
    cells, first = _cells(field), values[0]
    if isinstance(first, bool):
        return _compare_flag(cells, op, {bool(value) for value in values})
    if isinstance(first, str):
        texts = tuple(str(value).encode() for value in values)
        return _compare_texts(cells, op, texts)
    numbers = tuple(value for value in values if not isinstance(value, str))

    def states(rows: Rows, live: Buffer | None) -> bytes:
        at, length = cells(rows)
        return kernel.active.match_numbers(rows.columns.body, at, length, live, op, numbers)

    return Node(states)


def _compare_texts(cells: Cells, op: Op, texts: tuple[bytes, ...]) -> Node:
    def one(rows: Rows, live: Buffer | None) -> bytes:
        at, length = cells(rows)
        return kernel.active.match_text(rows.columns.body, at, length, live, op, texts[0])

    def several(rows: Rows, live: Buffer | None) -> bytes:
        at, length = cells(rows)
        return kernel.active.match_texts(rows.columns.body, at, length, live, texts)

    return Node(one if len(texts) == 1 else several)


def _compare_flag(cells: Cells, op: Op, flags: set[bool]) -> Node:
    """Returns a node that compares a header with TRUE or FALSE (`op`: EQ or NE). With both flags, it is TRUE for
    headers that are `true` or `false`, as in `IN (TRUE, FALSE)`. It is UNKNOWN for all other headers."""
    wanted = (op is Op.EQ) == (True in flags)

    def states(rows: Rows, live: Buffer | None) -> bytes:
        at, length = cells(rows)
        found = kernel.active.match_flag(rows.columns.body, at, length, live, wanted)
        return found.translate(KNOWN_IS_TRUE) if len(flags) > 1 else found

    return Node(states)


def _compare_time(op: Op, value: int) -> Node:
    return Node(lambda rows, live: kernel.active.match_ints(rows.columns.timestamps, live, op, value))


def _constant(holds: Callable[[Rows], bool]) -> Node:
    """Returns a node with the same result for all records of a partition."""
    return Node(lambda rows, live: bytes((holds(rows),)) * rows.count)


ORDER: Final[dict[Op, Callable[[Any, Any], bool]]] = {
    Op.EQ: lambda a, b: a == b,
    Op.NE: lambda a, b: a != b,
    Op.LT: lambda a, b: a < b,
    Op.LE: lambda a, b: a <= b,
    Op.GT: lambda a, b: a > b,
    Op.GE: lambda a, b: a >= b,
}


# -- nodes that need a Python object per record


def _each(state_of: Callable[[Rows, int], int]) -> Node:
    def states(rows: Rows, live: Buffer | None) -> bytes:
        found = bytearray(rows.count)
        wanted = range(rows.count) if live is None else compress(range(rows.count), live)
        for row in wanted:
            found[row] = state_of(rows, row)
        return bytes(found)

    return Node(states, is_costly=True)


def _at_path(document: Any, steps: tuple[str | int, ...]) -> Any:
    """Returns the JSON value at a path; None if it does not exist or is null."""
    for step in steps:
        if isinstance(step, str):
            document = document.get(step) if isinstance(document, dict) else None
        else:
            document = document[step] if isinstance(document, list) and step < len(document) else None
        if document is None:
            return None
    return document


def _is_same_type(found: Any, value: Value) -> bool:
    """Whether both are strings, both are numbers, or both are booleans."""
    if isinstance(value, bool) or isinstance(found, bool):
        return isinstance(value, bool) and isinstance(found, bool)
    return isinstance(found, str) if isinstance(value, str) else isinstance(found, int | float)


def _compare_path(field: Path, op: Op, values: tuple[Value, ...]) -> Node:
    steps, holds = field.steps, ORDER[op]

    def state_of(rows: Rows, row: int) -> int:
        document = rows.document(row)
        found = None if document is NOTHING else _at_path(document, steps)
        if found is None or not _is_same_type(found, values[0]):
            return UNKNOWN
        return TRUE if any(holds(found, value) for value in values) else FALSE

    return _each(state_of)


def _like(field: Field, pattern: str, escape: str) -> Node:
    pieces = pieces_of(pattern, escape)
    if isinstance(field, Path):
        return _like_path(field, expression_of(pattern, escape))
    cells = _cells(field)
    if pieces is None:
        return _like_expression(cells, expression_of(pattern, escape))

    def states(rows: Rows, live: Buffer | None) -> bytes:
        at, length = cells(rows)
        return kernel.active.match_pieces(
            rows.columns.body, at, length, live, pieces.texts, pieces.from_start, pieces.to_end
        )

    return Node(states)


def _like_path(field: Path, expression: Any) -> Node:
    def state_of(rows: Rows, row: int) -> int:
        document = rows.document(row)
        found = None if document is NOTHING else _at_path(document, field.steps)
        return int(expression.fullmatch(found) is not None) if isinstance(found, str) else UNKNOWN

    return _each(state_of)


def _like_expression(cells: Cells, expression: Any) -> Node:
    def state_of(rows: Rows, row: int) -> int:
        at, length = cells(rows)
        if length[row] < 0:
            return UNKNOWN
        try:
            text = str(rows.columns.body[at[row] : at[row] + length[row]], "utf-8")
        except UnicodeDecodeError:
            return UNKNOWN
        return int(expression.fullmatch(text) is not None)

    return _each(state_of)


def _is_null(field: Field) -> Node:
    if isinstance(field, Timestamp | Partition):
        return _constant(lambda rows: False)
    if isinstance(field, Path):
        steps = field.steps

        def state_of(rows: Rows, row: int) -> int:
            document = rows.document(row)
            return UNKNOWN if document is NOTHING else int(_at_path(document, steps) is None)

        return _each(state_of)
    cells = _cells(field)
    return Node(lambda rows, live: kernel.active.match_null(cells(rows)[1]))
