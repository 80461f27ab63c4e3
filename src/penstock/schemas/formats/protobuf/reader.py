"""Reads words, strings and numbers of a .proto text, and skips blanks and comments.

It accepts exactly what Square's Wire accepts, which is the parser of Confluent's registry: a registry that takes over
the topic of schemas must find the same text. So words may contain dots and dashes, and escapes in strings are
characters.
"""

import re
from typing import Final, NoReturn

from penstock.schemas.formats.protobuf.errors import invalid

_WORD_CHARACTERS: Final = r"a-zA-Z0-9_.\-"
_BLANKS: Final = r"(?:[ \t\r\n]++|//[^\n]*+\n|// ?+[^\n]++\Z|/\*(?s:.*?)\*/)*+"
"""Blanks and comments. An empty line comment at the end of the text is not one: Wire refuses it."""
_SKIP: Final = re.compile(_BLANKS)
_SKIP_AND_WORD: Final = re.compile(rf"{_BLANKS}([{_WORD_CHARACTERS}]*+)")
_WORD: Final = re.compile(f"[{_WORD_CHARACTERS}]+")
_TRAILING: Final = re.compile(r"[ \t]*+(?:(?=[^ \t/])|//[^\n]*+\n?|/\*(?>(?s:.*?)\*/)[ \t]*+(?:\n|\Z))")
"""What may follow a field on its line."""
_BLANK_STARTS: Final = frozenset(" \t\r\n/")
_PLAIN: Final = {quote: re.compile(rf"[^{quote}\\]*+") for quote in "\"'"}
_ESCAPES: Final = {"a": "\a", "b": "\b", "f": "\f", "n": "\n", "r": "\r", "t": "\t", "v": "\v"}
_HEX: Final = re.compile("[0-9a-fA-F]{1,2}")
_OCTAL: Final = re.compile("[0-7]{1,3}")
_DECIMAL: Final = re.compile("(-?)0*([0-9]{1,10})")
_HEXADECIMAL: Final = re.compile("0[xX](-?)0*([0-9a-fA-F]{1,8})")
_INT_MAX: Final = 2**31 - 1
_END: Final = "\0"


class Reader:
    """A position in a text."""

    __slots__ = ("at", "length", "text")

    def __init__(self, text: str) -> None:
        self.text = text + _END  # so that the character at the position always exists
        self.length = len(text)
        self.at = 0

    def fail(self, problem: str, at: int | None = None) -> NoReturn:
        """Raises InvalidSchema with the line and column."""
        at = min(self.at if at is None else at, self.length)
        line = self.text.count("\n", 0, at) + 1
        column = at - self.text.rfind("\n", 0, at)
        raise invalid(f"line {line}, column {column}: {problem}")

    def skip_blanks(self) -> None:
        """Skips blanks and comments."""
        if self.text[self.at] in _BLANK_STARTS:
            found = _SKIP.match(self.text, self.at, self.length)
            assert found is not None
            self.at = found.end()
            if self.text[self.at] == "/":
                self.fail("expected a comment such as '// text' or '/* text */'")

    def is_at_end(self) -> bool:
        return self.at == self.length

    def peek(self) -> str:
        """Returns the next character that is not blank, and stays before it."""
        found = self.text[self.at]
        if found == " ":  # by far the most common blank
            self.at += 1
            found = self.text[self.at]
        if found in _BLANK_STARTS:
            self.skip_blanks()
            found = self.text[self.at]
        if found == _END and self.at == self.length:
            self.fail("the schema ends too early")
        return found

    def take(self, character: str) -> bool:
        """Reads a character if it is the next one."""
        if self.text[self.at] == character or self.peek() == character:
            self.at += 1
            return True
        return False

    def require(self, character: str) -> None:
        if not self.take(character):
            self.fail(f"expected {character!r}, but found {self.peek()!r}")

    def character(self) -> str:
        found = self.peek()
        self.at += 1
        return found

    def word(self, *, may_start_with_digit: bool = True) -> str:
        found = _SKIP_AND_WORD.match(self.text, self.at, self.length)
        assert found is not None
        word = found[1]
        self.at = found.end()
        if not word:
            self.fail("expected a word")
        if not may_start_with_digit and word[0] in "0123456789":
            self.fail("names of fields and constants cannot start with a digit", found.start(1))
        return word

    def name(self, *, may_start_with_digit: bool = True) -> str:
        """Reads a word, which may be in parentheses or brackets."""
        opening = self.peek()
        if opening not in "([":
            return self.word(may_start_with_digit=may_start_with_digit)
        self.at += 1
        word = self.word(may_start_with_digit=may_start_with_digit)
        self.require(")" if opening == "(" else "]")
        return word

    def integer(self) -> int:
        word = self.word()
        number = parse_int(word, may_be_hex=True)
        if number is None:
            self.fail(f"expected an integer, but found {word!r}", self.at - len(word))
        return number

    def string(self) -> str:
        """Reads a quoted string, and those that follow it: they are concatenated."""
        quote = self.character()
        if quote not in "\"'":
            self.fail("expected a string in quotes", self.at - 1)
        parts: list[str] = []
        while True:
            found = _PLAIN[quote].match(self.text, self.at, self.length)
            assert found is not None
            parts.append(found[0])
            self.at = found.end() + 1
            if self.at > self.length:
                self.fail("a string has no end")
            if self.text[self.at - 1] == "\\":
                parts.append(self._escape())
            elif self.peek() in "\"'":
                quote = self.character()
            else:
                return "".join(parts)

    def skip_trailing_comment(self) -> None:
        """Skips a comment on the rest of the line, after which nothing else may be written there."""
        found = _TRAILING.match(self.text, self.at, self.length)
        if found is None:
            self.fail("expected a comment up to the end of the line, or nothing")
        self.at = found.end()

    def _escape(self) -> str:
        if self.at == self.length:
            self.fail("a string has no end")
        character = self.text[self.at]
        if character in "xX":
            self.at += 1
            return self._code_point(_HEX, 16)
        if character in "01234567":
            return self._code_point(_OCTAL, 8)
        self.at += 1
        return _ESCAPES.get(character, character)

    def _code_point(self, digits: re.Pattern[str], radix: int) -> str:
        found = digits.match(self.text, self.at, self.length)
        if found is None:
            self.fail("expected a digit after \\x")
        self.at = found.end()
        return chr(int(found[0], radix))


def is_word(text: str) -> bool:
    return _WORD.fullmatch(text) is not None


def parse_int(word: str, *, may_be_hex: bool) -> int | None:
    """Returns a number of 32 bits with a sign, None for any other word."""
    radix = 10
    found = _DECIMAL.fullmatch(word)
    if found is None and may_be_hex:
        radix = 16
        found = _HEXADECIMAL.fullmatch(word)
    if found is None:
        return None
    number = int(found[2], radix) * (-1 if found[1] else 1)
    return number if -_INT_MAX - 1 <= number <= _INT_MAX else None
