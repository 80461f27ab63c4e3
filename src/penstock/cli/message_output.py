"""Output formats of consumed messages: value, line, JSON, or a template."""

import base64
import json
import re
from collections.abc import Callable
from typing import Final

import click

from penstock.cli.common import format_time
from penstock.foundation.ids import TopicPartition
from penstock.records.build import Record

Formatter = Callable[[TopicPartition, Record], bytes]
"""A function that returns the bytes to write for a record, including the line end."""

FIELDS: Final = ("topic", "partition", "offset", "timestamp", "time", "key", "value", "headers")
_PLACEHOLDER: Final = re.compile(r"\{(\w+)\}")
_ESCAPES: Final = {r"\n": "\n", r"\t": "\t", r"\0": "\0", r"\\": "\\"}
_ESCAPE: Final = re.compile(r"\\[nt0\\]")
# Control characters are escaped: a message must not control the terminal that shows it.
_CONTROL: Final = {code: f"\\x{code:02x}" for code in [*range(32), *range(127, 160)]} | {
    10: "\\n",
    9: "\\t",
    13: "\\r",
}


def formatter(text: str | None, is_terminal: bool) -> Formatter:
    """Returns the formatter `text`: value, line, json, or a template with {placeholders}; if None: line on a
    terminal, else value. Raises ValueError if `text` is none of these."""
    match text:
        case None:
            return line_formatter(is_terminal) if is_terminal else show_value
        case "value":
            return show_value
        case "line":
            return line_formatter(is_terminal)
        case "json":
            return show_json
    return _template(text)


def show_value(name: TopicPartition, record: Record) -> bytes:
    """Returns the record's raw value and a line end; only the line end if the value is null."""
    return (record.value or b"") + b"\n"


def line_formatter(is_terminal: bool) -> Formatter:
    """Returns a formatter that shows time, partition:offset, key, value and headers on one line."""

    def show(name: TopicPartition, record: Record) -> bytes:
        position = f"{format_time(record.timestamp_ms)} {name.partition}:{record.offset}"
        parts = [click.style(position, dim=True) if is_terminal else position]
        if record.key is not None:
            key = f"{printable(record.key)}:"
            parts.append(click.style(key, bold=True) if is_terminal else key)
        parts.append("(no value)" if record.value is None else printable(record.value))
        if record.headers:
            headers = " ".join(f"{printable(key.encode())}={_or_null(value)}" for key, value in record.headers)
            parts.append(click.style(f"[{headers}]", dim=True) if is_terminal else f"[{headers}]")
        return (" ".join(parts) + "\n").encode()

    return show


def printable(data: bytes) -> str:
    r"""Decodes UTF-8 to one line of text; escapes invalid bytes and control characters.

    >>> printable(b"caf\xc3\xa9\x1b[2J\xff")
    'café\\x1b[2J\\xff'
    """
    return data.decode("utf-8", "backslashreplace").translate(_CONTROL)


def _or_null(value: bytes | None) -> str:
    return "null" if value is None else printable(value)


def show_json(name: TopicPartition, record: Record) -> bytes:
    return (json.dumps(as_json(name, record), ensure_ascii=False) + "\n").encode()


def as_json(name: TopicPartition, record: Record) -> dict[str, object]:
    """Returns the record as a JSON object. Data that is not UTF-8 is in base64, marked by a member `encoding`."""
    found: dict[str, object] = {
        "topic": name.topic,
        "partition": name.partition,
        "offset": record.offset,
        "timestamp": record.timestamp_ms,
    }
    encoding: dict[str, str] = {}
    for part, data in (("key", record.key), ("value", record.value)):
        found[part], is_text = _text(data)
        if not is_text:
            encoding[part] = "base64"
    headers = []
    for key, data in record.headers:
        text, is_text = _text(data)
        headers.append({"name": key, "value": text} | ({} if is_text else {"encoding": "base64"}))
    found["headers"] = headers
    return found | ({"encoding": encoding} if encoding else {})


def _text(data: bytes | None) -> tuple[str | None, bool]:
    if data is None:
        return None, True
    try:
        return data.decode(), True
    except UnicodeDecodeError:
        return base64.b64encode(data).decode(), False


def _template(text: str) -> Formatter:
    unknown = [field for field in _PLACEHOLDER.findall(text) if field not in FIELDS]
    if unknown:
        raise ValueError(f"unknown {{{unknown[0]}}}; known are {', '.join(f'{{{field}}}' for field in FIELDS)}")
    if not _PLACEHOLDER.search(text):
        raise ValueError(f"{text!r} is not value, line, json, or a template with a {{placeholder}}")
    text = _ESCAPE.sub(lambda found: _ESCAPES[found[0]], text)
    # re.split with one group: literal, name, literal, name, …, literal
    pieces = _PLACEHOLDER.split(text)
    literals = [piece.encode() for piece in pieces[::2]]
    fields = pieces[1::2]

    def show(name: TopicPartition, record: Record) -> bytes:
        out = [literals[0]]
        for field, literal in zip(fields, literals[1:], strict=True):
            out += (_field(field, name, record), literal)
        return b"".join(out) + b"\n"

    return show


def _field(field: str, name: TopicPartition, record: Record) -> bytes:
    match field:
        case "key":
            return record.key or b""
        case "value":
            return record.value or b""
        case "topic":
            return name.topic.encode()
        case "partition":
            return str(name.partition).encode()
        case "offset":
            return str(record.offset).encode()
        case "timestamp":
            return str(record.timestamp_ms).encode()
        case "time":
            return format_time(record.timestamp_ms).encode()
        case _:
            return " ".join(f"{printable(key.encode())}={_or_null(value)}" for key, value in record.headers).encode()
