"""AWS JSON 1.0: decodes parameters from a JSON object, encodes results and errors; the action is in a header."""

import re
from typing import Any, Final

import orjson
import re2

from penstock.foundation.http import HttpResponse
from penstock.sqs.errors import SERIALIZATION, SqsError

CONTENT_TYPE: Final = "application/x-amz-json-1.0"
TARGET_PREFIX: Final = b"AmazonSQS."
STRINGS_MAX: Final = 4096
"""Maximum number of strings, including names, in a request body. Ten entries with ten attributes have under 1,000."""
STRUCTURE_BYTES_MAX: Final = 128 << 10
"""Maximum bytes of a body outside strings. Ten entries with ten attributes have 3,000, or 20,000 if indented."""
UNCHECKED_BYTES: Final = 320 << 10
"""Maximum size, in bytes, of a body that is parsed without counting its values first, because parsing it is fast."""
_SMALL_BYTES: Final = 16 << 10
"""Size, in bytes, above which `_count_names` finds duplicate names in a JSON body without backslashes: it reads the
body once, while a search with `bytes.count` reads it once for each name."""
_SEARCHED_BYTES_MAX: Final = 2 << 20
"""Up to this product of body size (bytes) and number of parameters, one `bytes.count` per parameter finds
duplicate parameters. Above it, `_count_names` finds them, which reads the body only once."""
_BACKSLASH: Final = ord("\\")
_LATIN1: Final = re2.Options()
_LATIN1.encoding = re2.Options.Encoding.LATIN1
_STRING: Final = re2.compile(rb'(?s)"(?:[^"\\]|\\.)*"', _LATIN1)
_SHORT_STRING: Final = re.compile(rb'(?s)"(?:[^"\\]|\\.){0,100}+"')
"""Matches a JSON string of up to 100 characters, without backtracking; for short strings it is faster than RE2."""


def decode(body: bytes) -> dict[str, Any]:
    """Returns the parameters of a request. Raises SerializationException, also if the outermost object has
    duplicate names, because parsers disagree on which value wins."""
    if not body:
        return {}
    count = None
    if len(body) > UNCHECKED_BYTES:
        count = _count_names(body)
        if count is None:
            raise _too_many_values()
    elif b"\\u" in body or (len(body) > _SMALL_BYTES and b"\\" not in body):
        count = _count_names(body)  # an escaped name does not look like its duplicate
    try:
        found = orjson.loads(body)
    except orjson.JSONDecodeError as error:
        raise SqsError(SERIALIZATION, f"The body is not JSON: {str(error)[:200]}") from None
    if type(found) is not dict:
        raise SqsError(
            SERIALIZATION, "Start of structure or map found where not expected: the body is not an object."
        )
    if count is None:
        if len(found) * len(body) <= _SEARCHED_BYTES_MAX:
            for name in found:
                # Quotes inside strings are escaped, so a quoted name is a name or an entire string.
                if body.count(b'"%s"' % name.encode()) != 1:
                    break
            else:
                return found
        count = _count_names(body)
    if count is None:
        raise _too_many_values()
    if count != len(found):
        raise SqsError(SERIALIZATION, "A parameter is given twice.")
    return found


def _too_many_values() -> SqsError:
    return SqsError(
        SERIALIZATION,
        f"The body has too many values: it may have {STRINGS_MAX} strings, and {STRUCTURE_BYTES_MAX} bytes besides.",
    )


def _count_names(body: bytes) -> int | None:
    """Returns the number of names in the outermost object, duplicates included; None if the body has too many
    values. Faster than parsing: a megabyte of empty lists takes a tenth of a second to parse."""
    count = depth = strings = size = end = 0
    while True:
        start = body.find(b'"', end)
        if start < 0:
            start = len(body)
        size += start - end
        if strings > STRINGS_MAX or size > STRUCTURE_BYTES_MAX:
            return None
        between = body[end:start]
        count += depth == 1 and between.lstrip().startswith(b":")
        if start == len(body):
            return count
        depth += between.count(b"{") + between.count(b"[") - between.count(b"}") - between.count(b"]")
        strings += 1
        end = body.find(b'"', start + 1) + 1
        if end and body[end - 2] == _BACKSLASH:  # a quote that is escaped, or follows an escaped backslash
            matched = _SHORT_STRING.match(body, start) or _STRING.match(body, start)
            end = matched.end() if matched is not None else 0
        if not end:
            return count  # an unterminated string: not JSON


def fragment(value: dict[str, Any]) -> orjson.Fragment:
    """Encodes one part of a result; `encode` embeds the encoded part unchanged."""
    return orjson.Fragment(orjson.dumps(value))


def encode(result: dict[str, Any] | None, request_id: bytes) -> HttpResponse:
    body = b"{}" if result is None else orjson.dumps(result)
    return HttpResponse(200, body, CONTENT_TYPE, b"x-amzn-requestid: %s\r\n" % request_id)


def encode_error(error: SqsError, request_id: bytes) -> HttpResponse:
    fault = error.fault
    body = orjson.dumps({"__type": fault.type, "message": _clean(error.message)})
    # For applications that check the codes of the older protocol.
    compatible = f"x-amzn-query-error: {fault.code};{fault.whose}\r\n".encode()
    return HttpResponse(fault.status, body, CONTENT_TYPE, compatible + b"x-amzn-requestid: %s\r\n" % request_id)


def _clean(text: str) -> str:
    """Replaces lone surrogates, which JSON cannot contain."""
    return text.encode("utf-8", "replace").decode()
