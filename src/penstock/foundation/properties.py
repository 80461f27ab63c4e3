"""Java's properties files: `NAME=VALUE` lines, as the configuration files of Kafka's clients."""

import re
from pathlib import Path
from typing import Final

from penstock.foundation.errors import InvalidConfig


def read_properties(file: Path) -> dict[str, str]:
    """Reads a properties file, as Kafka's tools do with `--command-config`. Raises InvalidConfig."""
    try:
        text = file.read_text(encoding="utf-8")
    except OSError as error:
        raise InvalidConfig(f"cannot read {file}: {(error.strerror or str(error)).lower()}") from error
    except UnicodeDecodeError as error:
        raise InvalidConfig(f"{file} is not UTF-8 text; expected lines of NAME=VALUE") from error
    return parse_properties(text)


def parse_properties(text: str) -> dict[str, str]:
    r"""Parses Java's properties format: `NAME=VALUE` lines, `#` and `!` comments, and `\` before a line break.

    >>> parse_properties("# TLS\nsecurity.protocol=SSL\nssl.keystore.key=-----BEGIN \\\n  PRIVATE KEY-----\\nMII")
    {'security.protocol': 'SSL', 'ssl.keystore.key': '-----BEGIN PRIVATE KEY-----\nMII'}
    """
    found: dict[str, str] = {}
    lines = iter(text.splitlines())
    for raw in lines:
        line = raw.lstrip()
        if not line or line[0] in "#!":
            continue
        while _is_continued(line):
            line = line[:-1] + next(lines, "").lstrip()
        name, value = _split(line)
        found[_unescape(name)] = _unescape(value)
    return found


def _is_continued(line: str) -> bool:
    return (len(line) - len(line.rstrip("\\"))) % 2 == 1


def _split(line: str) -> tuple[str, str]:
    """Splits a line at the first `=`, `:` or white space that is not escaped."""
    at = 0
    while at < len(line) and line[at] not in "=: \t":
        at += 2 if line[at] == "\\" else 1
    rest = line[at:].lstrip()
    return line[:at], rest[1:].lstrip() if rest[:1] in ("=", ":") else rest


_HEX: Final = re.compile(r"[0-9A-Fa-f]{4}")
_ESCAPES: Final = {"n": "\n", "r": "\r", "t": "\t", "f": "\f"}


def _unescape(text: str) -> str:
    out: list[str] = []
    chars = iter(text)
    for char in chars:
        if char != "\\":
            out.append(char)
            continue
        escaped = next(chars, "")
        if escaped == "u":
            digits = "".join(next(chars, "") for _ in range(4))
            if not _HEX.fullmatch(digits):
                raise InvalidConfig(f"\\u{digits} is not a character; expected four hexadecimal digits")
            out.append(chr(int(digits, 16)))
        else:
            out.append(_ESCAPES.get(escaped, escaped))
    return "".join(out)
