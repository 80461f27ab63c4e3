"""Parses a view's filter expression into terms: sqlglot builds the tree, this file rejects unsupported SQL. Pure.

sqlglot is imported only when the first expression is parsed: it takes longer to load than a broker takes to start.
"""

from collections.abc import Callable, Iterator
from datetime import UTC, datetime
from typing import Any, Final

from penstock.views.errors import BadExpression
from penstock.views.lexer import DEPTH_MAX, Word, Words, read_words
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
    Term,
    Timestamp,
    Value,
)

TERMS_MAX: Final = 200
PATTERN_MAX: Final = 256
"""Maximum length of a LIKE pattern, in characters."""
UNKNOWN: Final = "this is not in the language of views"
_ARGUMENTS: Final = frozenset({"this", "expression", "expressions", "low", "high", "negate", "query"})
"""Supported arguments of sqlglot's tree nodes. sqlglot adds arguments in new releases (such as `negate`): a node
with other arguments is rejected, because it might be misread."""


def parse(text: str) -> Term:
    """Returns the syntax tree of a view's filter, like `tag IN ('eu', 'uk') AND priority > 3`. Raises
    BadExpression."""
    words = read_words(text)
    return _Reader(words).read(_tree(words))


def _tree(words: Words) -> Any:
    import sqlglot
    from sqlglot.errors import ParseError, TokenError

    try:
        found = sqlglot.parse(words.sql)
    except ParseError as error:
        position = error.errors[0].get("col", 1) if error.errors else 1
        raise _bad(
            words, words.at(position - 1), "syntax error here: a field, a comparison, AND or OR is missing"
        ) from error
    except TokenError as error:
        raise BadExpression("syntax error", words.text) from error
    except RecursionError as error:
        raise BadExpression(f"an expression is at most {DEPTH_MAX} levels deep", words.text) from error
    if len(found) != 1 or found[0] is None:
        raise BadExpression("exactly one expression is expected", words.text)
    return found[0]


def _bad(words: Words, word: Word, problem: str) -> BadExpression:
    return BadExpression(problem, words.text, word.start, word.end)


class _Reader:
    """Converts sqlglot's syntax tree to a Term. Raises BadExpression for unsupported SQL, and if a field or value of
    the text does not occur in the Term: then an operator is missing in the text."""

    def __init__(self, words: Words) -> None:
        from sqlglot import exp

        self._exp = exp
        self._words = words
        self._used: set[int] = set()
        self._terms = 0
        self._compared: dict[type, Op] = {
            exp.EQ: Op.EQ,
            exp.NEQ: Op.NE,
            exp.LT: Op.LT,
            exp.LTE: Op.LE,
            exp.GT: Op.GT,
            exp.GTE: Op.GE,
        }
        self._readers: dict[type, Callable[[Any], Term]] = {
            exp.Paren: lambda node: self._term(node.this),
            exp.Not: lambda node: Not(self._term(node.this)),
            exp.And: lambda node: And(self._parts(node, exp.And)),
            exp.Or: lambda node: Or(self._parts(node, exp.Or)),
            exp.In: self._in_list,
            exp.Between: self._between,
            exp.Like: lambda node: self._like(node, ""),
            exp.Escape: self._escaped,
            exp.Is: self._is_null,
            **dict.fromkeys(self._compared, self._compare),
        }

    def read(self, tree: Any) -> Term:
        term = self._term(tree)
        for number, word in enumerate(self._words.all):
            if (word.field is not None or word.value is not None) and number not in self._used:
                raise _bad(self._words, word, "unexpected here: AND, OR or a comparison is missing before it")
        return term

    def _term(self, node: Any) -> Term:
        self._check_known(node)
        reader = self._readers.get(type(node))
        if reader is not None:
            return reader(node)
        if isinstance(node, self._exp.Column | self._exp.Literal):
            raise self._error(node, "a comparison is missing; for a header that is true or false write name = TRUE")
        raise self._error(node, UNKNOWN)

    def _check_known(self, node: Any) -> None:
        """Raises BadExpression if a node of a supported type has an argument that is not supported."""
        if type(node) in self._readers and not _ARGUMENTS.issuperset(
            name for name, value in node.args.items() if value
        ):
            raise self._error(node, UNKNOWN)

    def _error(self, node: Any, problem: str) -> BadExpression:
        """Returns an error whose position covers all tokens of the node."""
        words = [self._words.all[number] for number in _numbers(node, self._exp)]
        if not words:
            return BadExpression(problem, self._words.text)
        return BadExpression(
            problem, self._words.text, min(word.start for word in words), max(word.end for word in words)
        )

    def _parts(self, node: Any, kind: Any) -> tuple[Term, ...]:
        """Returns the operands of a chain of ANDs or ORs, without recursion: the chain may be long."""
        parts = []
        while isinstance(node, kind):
            self._check_known(node)
            parts.append(node.expression)
            node = node.this
        parts.append(node)
        return tuple(self._term(part) for part in reversed(parts))

    def _word(self, node: Any) -> Word:
        """Returns the token of the field or value that a node represents."""
        exp = self._exp
        if isinstance(node, exp.Column) and isinstance(node.this, exp.Identifier) and not node.args.get("table"):
            number = int(node.this.this)
        elif isinstance(node, exp.Literal):
            number = int(node.this)
        elif isinstance(node, exp.Null):
            raise BadExpression(
                "a comparison with NULL is never true; write IS NULL or IS NOT NULL", self._words.text
            )
        else:
            raise self._error(node, "a field or a value is expected here")
        self._used.add(number)
        return self._words.all[number]

    def _field(self, node: Any) -> tuple[Field, Word]:
        word = self._word(node)
        if word.field is None:
            raise _bad(self._words, word, "a field is expected here: a header, key, timestamp, partition or $.path")
        self._terms += 1
        if self._terms > TERMS_MAX:
            raise _bad(self._words, word, f"an expression has at most {TERMS_MAX} comparisons")
        return word.field, word

    def _value(self, node: Any, field: Field) -> Value:
        word = self._word(node)
        if word.value is None:
            raise _bad(
                self._words, word, "a value is expected here: fields are compared with values, not with fields"
            )
        return self._convert(field, word)

    def _convert(self, field: Field, word: Word) -> Value:
        """Returns the value converted for comparison with the field; for timestamps, ISO 8601 times are accepted."""
        value = word.value
        assert value is not None
        if isinstance(field, Timestamp):
            if isinstance(value, str):
                return self._time(word, value)
            if isinstance(value, bool) or not isinstance(value, int):
                raise _bad(self._words, word, "a timestamp is whole milliseconds, or a time: '2026-01-31T09:30:00Z'")
        if isinstance(field, Partition) and (isinstance(value, bool) or not isinstance(value, int)):
            raise _bad(self._words, word, "a partition is a whole number")
        if isinstance(field, Key) and isinstance(value, bool):
            raise _bad(self._words, word, "a key is a text or a number")
        return value

    def _time(self, word: Word, text: str) -> int:
        try:
            found = datetime.fromisoformat(text)
        except ValueError as error:
            raise _bad(self._words, word, "not a valid time; write '2026-01-31T09:30:00Z' or milliseconds") from error
        found = found if found.tzinfo is not None else found.replace(tzinfo=UTC)
        epoch = datetime(1970, 1, 1, tzinfo=UTC)
        delta = found - epoch
        return (delta.days * 86_400 + delta.seconds) * 1000 + delta.microseconds // 1000

    def _compare(self, node: Any) -> Term:
        op, left, right = self._compared[type(node)], node.this, node.expression
        if isinstance(left, self._exp.Literal) and isinstance(right, self._exp.Column):
            left, right, op = right, left, op.mirrored
        field, word = self._field(left)
        value = self._value(right, field)
        if isinstance(value, bool) and op not in (Op.EQ, Op.NE):
            raise _bad(self._words, word, "TRUE and FALSE have no order: use = or <>")
        return Compare(field, op, value)

    def _in_list(self, node: Any) -> Term:
        field, word = self._field(node.this)
        if not node.expressions or node.args.get("query") is not None:
            raise _bad(self._words, word, "IN needs values in parentheses: tag IN ('eu', 'uk')")
        values = tuple(self._value(each, field) for each in node.expressions)
        if len({_kind(value) for value in values}) > 1:
            raise _bad(self._words, word, "the values of one IN are all texts, all numbers, or all TRUE and FALSE")
        return self._negated(node, Among(field, values))

    def _between(self, node: Any) -> Term:
        field, _ = self._field(node.this)
        low, high = self._value(node.args["low"], field), self._value(node.args["high"], field)
        if _kind(low) != _kind(high) or isinstance(low, bool):
            raise self._error(node, "BETWEEN needs two numbers, or two texts")
        return self._negated(node, And((Compare(field, Op.GE, low), Compare(field, Op.LE, high))))

    def _escaped(self, node: Any) -> Term:
        word = self._word(node.expression)
        if not isinstance(node.this, self._exp.Like):
            raise self._error(node, "ESCAPE follows a LIKE")
        self._check_known(node.this)
        if not isinstance(word.value, str) or len(word.value) != 1:
            raise _bad(self._words, word, "ESCAPE needs one character: LIKE '50!%' ESCAPE '!'")
        return self._like(node.this, word.value)

    def _like(self, node: Any, escape: str) -> Term:
        field, position = self._field(node.this)
        word = self._word(node.expression)
        if not isinstance(word.value, str):
            raise _bad(self._words, word, "LIKE needs a pattern in quotes")
        if isinstance(field, Timestamp | Partition):
            raise _bad(self._words, position, "LIKE works on texts only")
        if len(word.value) > PATTERN_MAX:
            raise _bad(self._words, word, f"a pattern has at most {PATTERN_MAX} characters")
        if escape and _ends_escaped(word.value, escape):
            raise _bad(self._words, word, "the pattern ends with its escape character; a character must follow it")
        return self._negated(node, Like(field, word.value, escape))

    def _is_null(self, node: Any) -> Term:
        field, _ = self._field(node.this)
        if not isinstance(node.expression, self._exp.Null):
            raise self._error(node, "expected NULL or NOT NULL after IS")
        return self._negated(node, IsNull(field))

    @staticmethod
    def _negated(node: Any, term: Term) -> Term:
        return Not(term) if node.args.get("negate") else term


def _numbers(node: Any, exp: Any) -> Iterator[int]:
    """Yields the indexes of the tokens that a part of sqlglot's syntax tree contains (the lexer has replaced fields
    and values by indexes)."""
    for each in node.walk():
        if isinstance(each, exp.Literal | exp.Identifier) and str(each.this).isdigit():
            yield int(each.this)


def _kind(value: Value) -> type:
    if isinstance(value, bool):
        return bool
    return str if isinstance(value, str) else float


def _ends_escaped(pattern: str, escape: str) -> bool:
    at = 0
    while at < len(pattern):
        if pattern[at] == escape:
            at += 1
            if at == len(pattern):
                return True
        at += 1
    return False


def fields_of(term: Term) -> Iterator[Field]:
    """Yields all fields that a filter expression compares, such as headers or JSON paths."""
    if isinstance(term, And | Or):
        for part in term.parts:
            yield from fields_of(part)
    elif isinstance(term, Not):
        yield from fields_of(term.part)
    else:
        yield term.field


def header_names(term: Term) -> list[str]:
    """Returns the names of the headers that an expression uses, each name once."""
    return list(dict.fromkeys(field.name for field in fields_of(term) if isinstance(field, Header)))
