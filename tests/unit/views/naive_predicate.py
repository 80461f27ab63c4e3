"""Evaluates expressions one record at a time: the reference for the compiled predicates."""

import json
import re
from typing import Any

from penstock.records.build import Record
from penstock.views.terms import (
    Among,
    And,
    Compare,
    Field,
    Header,
    IsNull,
    Key,
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

State = bool | None
NO_JSON = object()


def judge(term: Term, record: Record, partition: int) -> State:
    """True, false, or None where SQL says NULL."""
    match term:
        case And(parts):
            states = [judge(part, record, partition) for part in parts]
            return False if False in states else (None if None in states else True)
        case Or(parts):
            states = [judge(part, record, partition) for part in parts]
            return True if True in states else (None if None in states else False)
        case Not(part):
            state = judge(part, record, partition)
            return None if state is None else not state
        case Compare(field, op, value):
            return _any(_found(field, record, partition), [value], op)
        case Among(field, values):
            return _any(_found(field, record, partition), list(values), Op.EQ)
        case Like(field, pattern, escape):
            return _like(_found(field, record, partition), pattern, escape)
        case IsNull(field):
            found = _found(field, record, partition)
            return None if found is NO_JSON else found is None
    raise AssertionError(term)


def _found(field: Field, record: Record, partition: int) -> Any:
    match field:
        case Header(name):
            return next((value for key, value in record.headers if key == name), None)
        case Key():
            return record.key
        case Timestamp():
            return record.timestamp_ms
        case Partition():
            return partition
        case Path(steps):
            try:
                document = json.loads(record.value or b"")
            except ValueError:
                return NO_JSON
            for step in steps:
                try:
                    if not isinstance(document, dict if isinstance(step, str) else list):
                        return None
                    document = document[step]
                except (LookupError, TypeError):
                    return None
            return document
    raise AssertionError(field)


def _as(found: Any, value: Value) -> Any:
    """What was found, in the kind of a value; None if it is of another."""
    if isinstance(found, bytes):
        if isinstance(value, bool):
            return {b"true": True, b"false": False}.get(found.lower())
        if isinstance(value, str):
            return found
        if re.fullmatch(rb"[+-]?([0-9]+\.?[0-9]*|\.[0-9]+)([eE][+-]?[0-9]+)?", found) is None or len(found) > 64:
            return None
        return int(found) if re.fullmatch(rb"[+-]?[0-9]{1,18}", found) else float(found)
    if isinstance(value, bool) or isinstance(found, bool):
        return found if isinstance(value, bool) and isinstance(found, bool) else None
    if isinstance(value, str):
        return found if isinstance(found, str) else None
    return found if isinstance(found, int | float) else None


def _any(found: Any, values: list[Value], op: Op) -> State:
    states = []
    for value in values:
        have = _as(found, value)
        if have is None:
            return None
        want: Any = value.encode() if isinstance(have, bytes) and isinstance(value, str) else value
        order = (have > want) - (have < want)
        states.append(
            {
                Op.EQ: order == 0,
                Op.NE: order != 0,
                Op.LT: order < 0,
                Op.LE: order <= 0,
                Op.GT: order > 0,
                Op.GE: order >= 0,
            }[op]
        )
    return any(states)


def _like(found: Any, pattern: str, escape: str) -> State:
    if isinstance(found, bytes):
        found = found.decode()
    if not isinstance(found, str):
        return None
    made, letters = "", iter(pattern)
    for letter in letters:
        if escape and letter == escape:
            made += re.escape(next(letters))
        else:
            made += {"%": ".*", "_": "."}.get(letter) or re.escape(letter)
    return re.fullmatch(made, found, re.DOTALL) is not None
