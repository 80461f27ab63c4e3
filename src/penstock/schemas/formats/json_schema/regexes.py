"""Regular expressions of schemas: checks them by the rules of Java, and matches names in linear time.

A schema is valid only if Java compiles its patterns. They are matched by RE2, which takes linear time but knows
neither lookaround nor backreferences: a pattern that RE2 refuses counts as matching every name.
"""

import re
from collections.abc import Callable
from typing import Final

from penstock.schemas.formats.format import InvalidSchema

PATTERN_CHARS_MAX: Final = 20_000
"""Characters of a pattern that is matched; RE2 needs memory for each. Longer ones count as matching every name."""

_ESCAPES: Final = frozenset("adDefhHnrsStvVwW")
"""Letters after a backslash that stand for a character or a class, everywhere."""
_ASSERTIONS: Final = frozenset("AbBGRXzZ")
"""Letters after a backslash that are allowed outside of character classes only."""
_COUNT: Final = re.compile(r"\{([0-9]+)(,([0-9]*))?\}")
_GROUP_NAME: Final = re.compile(r"[A-Za-z][A-Za-z0-9]*")
_FLAGS: Final = re.compile(r"[imsducxU]*(?:-[imsducxU]*)?")
_HEX: Final = re.compile(r"\\(?:u[0-9A-Fa-f]{4}|x[0-9A-Fa-f]{2}|x\{[0-9A-Fa-f]{1,6}\})")
_FAMILY: Final = re.compile(r"\\[pP](?:\{([^}]+)\}|([^{]))")
_CATEGORY_NAMES: Final = (
    "C Cn Cc Cf Co Cs L Lu Ll Lt Lm Lo LC LD L1 M Mn Me Mc N Nd Nl No Z Zs Zl Zp P Pd Ps Pe Pc Po Pi Pf S Sm Sc Sk "
    "So all ASCII Alnum Alpha Blank Cntrl Digit Graph Lower Print Punct Space Upper XDigit"
)
_CATEGORIES: Final = frozenset(_CATEGORY_NAMES.split())
_LONG_CATEGORY: Final = re.compile(r"(?:Is|In|java)\w+|\w+=\w+")
_TRANSLATIONS: Final = re.compile(r"\\(?:u([0-9A-Fa-f]{4})|(Z)|(e)|(h)|.)", re.S)


class _Scanner:
    """Reads one pattern from left to right. Without recursion: groups may be nested as deep as the text allows."""

    def __init__(self, pattern: str) -> None:
        self._text = _without_quotes(pattern)
        self._at = 0
        self._names: set[str] = set()
        self._groups: list[bool] = []
        """Whether each open group is a look-behind."""

    def check(self) -> None:
        text = self._text
        while self._at < len(text):
            character = text[self._at]
            if character in "?*+":
                raise self._error(f"{character!r} has nothing to repeat")
            if character == "(":
                self._open_group()
                continue
            if character == ")":
                if not self._groups:
                    raise self._error("a ')' without '('")
                self._groups.pop()
                self._at += 1
            elif character == "[":
                self._character_class()
            elif character == "\\":
                self._escape(in_class=False)
            elif character == "|":
                self._at += 1
                continue
            elif character != "{":
                self._at += 1
            self._quantifier(after_group=character == ")")
        if self._groups:
            raise self._error("a group is not closed")

    def _quantifier(self, *, after_group: bool) -> None:
        character = self._text[self._at : self._at + 1]
        is_bounded = character in ("?", "")
        if character == "{":
            found = _COUNT.match(self._text, self._at)
            if found is None or len(found[1]) > 9 or len(found[3] or "") > 9:
                raise self._error("an illegal repetition; a literal brace is written \\{")
            is_bounded = found[2] is None or bool(found[3])
            if found[3] and int(found[3]) < int(found[1]):
                raise self._error("an illegal repetition range")
            self._at = found.end()
        elif character and character in "?*+":
            self._at += 1
        else:
            return
        if not is_bounded and after_group:
            self._check_outside_look_behind()
        if self._text[self._at : self._at + 1] in ("?", "+"):
            self._at += 1

    def _check_outside_look_behind(self) -> None:
        """Raises InvalidSchema in a look-behind group, where Java cannot tell the length of groups and references."""
        if self._groups and self._groups[-1]:
            raise self._error("a look-behind group without maximum length")

    def _open_group(self) -> None:
        text, start = self._text, self._at
        is_behind = False
        if text.startswith("(?<", start) and not text.startswith(("(?<=", "(?<!"), start):
            found = _GROUP_NAME.match(text, start + 3)
            if found is None or text[found.end() : found.end() + 1] != ">" or found[0] in self._names:
                raise self._error("a bad or repeated name of a group")
            self._names.add(found[0])
            self._at = found.end() + 1
        elif text.startswith("(?", start):
            is_behind = text.startswith("(?<", start)
            if text.startswith(("(?:", "(?=", "(?!", "(?>"), start):
                self._at = start + 3
            elif is_behind:
                self._at = start + 4
            else:
                found = _FLAGS.match(text, start + 2)
                end = found.end() if found else start + 2
                if text[end : end + 1] == ")":
                    self._at = end + 1
                    return
                if text[end : end + 1] != ":":
                    raise self._error("an unknown kind of group")
                self._at = end + 1
        else:
            self._at = start + 1
        self._groups.append(is_behind or (bool(self._groups) and self._groups[-1]))

    def _character_class(self) -> None:
        """Reads `[…]` with what is nested in it."""
        text, size = self._text, len(self._text)
        has_items = [False]
        self._skip_class_start()
        while has_items:
            if self._at >= size:
                raise self._error("a character class is not closed")
            character = text[self._at]
            if character == "]" and has_items[-1]:
                self._at += 1
                has_items.pop()
                if has_items:
                    has_items[-1] = True
            elif character == "[":
                has_items.append(False)
                self._skip_class_start()
            elif text.startswith("&&", self._at):
                self._at += 2
                if not has_items[-1] and text[self._at : self._at + 1] in ("]", "&", ""):
                    raise self._error("a bad intersection of character classes")
            else:
                self._class_range()
                has_items[-1] = True

    def _skip_class_start(self) -> None:
        self._at += 2 if self._text.startswith("[^", self._at) else 1

    def _class_range(self) -> None:
        first = self._class_character()
        text = self._text
        if (
            first is None
            or text[self._at : self._at + 1] != "-"
            or text[self._at + 1 : self._at + 2] in ("[", "]", "")
        ):
            return
        self._at += 1
        last = self._class_character()
        if last is None or last < first:
            raise self._error("an illegal range of characters")

    def _class_character(self) -> str | None:
        """Reads one character of a class and returns it; None if it stands for several."""
        if self._text[self._at] == "\\":
            return self._escape(in_class=True)
        self._at += 1
        return self._text[self._at - 1]

    def _escape(self, *, in_class: bool) -> str | None:
        text, start = self._text, self._at
        character = text[start + 1 : start + 2]
        self._at += 2
        if character in "pP" and character:
            self._family(start)
        elif character in "ux" and character:
            found = _HEX.match(text, start)
            if found is None:
                raise self._error("an illegal hexadecimal escape")
            self._at = found.end()
            code = int(found[0][2:].strip("{}"), 16)
            return chr(min(code, 0x10FFFF))
        elif character == "0":
            found = re.compile("[0-3][0-7]{0,2}|[0-7]{1,2}").match(text, self._at)
            if found is None:
                raise self._error("an illegal octal escape")
            self._at = found.end()
            return chr(int(found[0], 8))
        elif character == "c":
            if self._at >= len(text):
                raise self._error("an illegal control escape")
            self._at += 1
            return chr(ord(text[self._at - 1]) ^ 64)
        elif character == "k" and not in_class:
            found = re.compile("<([A-Za-z][A-Za-z0-9]*)>").match(text, self._at)
            if found is None or found[1] not in self._names:
                raise self._error("a reference to an unknown group")
            self._at = found.end()
            self._check_outside_look_behind()
        elif character in "123456789" and character:
            if in_class:
                raise self._error("a backreference in a character class")
            self._check_outside_look_behind()
        elif not character or (character.isascii() and character.isalpha()):
            if not character or (character not in _ESCAPES and (in_class or character not in _ASSERTIONS)):
                raise self._error(f"an illegal escape, \\{character}")
            return {"a": "\a", "e": "\x1b", "f": "\f", "n": "\n", "r": "\r", "t": "\t"}.get(character)
        else:
            return character
        return None

    def _family(self, start: int) -> None:
        found = _FAMILY.match(self._text, start)
        if found is None:
            raise self._error("an incomplete character family")
        name = found[1] or found[2]
        if name not in _CATEGORIES and (found[2] is not None or _LONG_CATEGORY.fullmatch(name) is None):
            raise self._error(f"an unknown character family, {name!r}")
        self._at = found.end()

    def _error(self, problem: str) -> InvalidSchema:
        return InvalidSchema(
            f"The regular expression {self._text[:100]!r} is not valid: {problem}, near index {self._at}."
        )


def check_pattern(pattern: str) -> None:
    """Raises InvalidSchema if Java refuses the pattern."""
    if not pattern.isalnum():
        _Scanner(pattern).check()


def compile_pattern(pattern: str) -> Callable[[str], bool]:
    """Returns a function that tells whether the pattern matches a part of a name."""
    import re2  # not at import time: a broker without schemas need not load it

    if len(pattern) > PATTERN_CHARS_MAX:
        return _matches_all
    options = re2.Options()
    options.log_errors = False
    try:
        compiled = re2.compile(_TRANSLATIONS.sub(_translate, pattern), options=options)
    except re2.error:
        return _matches_all
    return lambda name: compiled.search(name) is not None


def _matches_all(name: str) -> bool:
    return True


def _translate(found: re.Match[str]) -> str:
    code, end, escape, blank = found.groups()
    if code:
        return f"\\x{{{code}}}"
    if end:
        return "(?:\\n?\\z)"
    if escape:
        return "\\x1B"
    return "[ \\t]" if blank else found[0]


def _without_quotes(pattern: str) -> str:
    r"""Replaces text between \Q and \E by as many letters: no character in it has a meaning."""
    if "\\Q" not in pattern:
        return pattern
    parts: list[str] = []
    at = 0
    for found in re.compile(r"\\(?:Q(.*?)(?:\\E|$)|.)", re.S).finditer(pattern):
        if found[1] is not None:
            parts.append(pattern[at : found.start()] + "q" * len(found[1]))
            at = found.end()
    return "".join(parts) + pattern[at:]
