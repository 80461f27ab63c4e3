"""AWS JSON 1.0: parameters as one JSON object, the action in a header; results and errors likewise."""

import json
from typing import Any, Final

import orjson

from penstock.foundation.http import HttpResponse
from penstock.sqs.errors import SERIALIZATION, SqsError

CONTENT_TYPE: Final = "application/x-amz-json-1.0"
TARGET_PREFIX: Final = b"AmazonSQS."


def decode(body: bytes) -> dict[str, Any]:
    """The parameters of a request. What is no object, nested too deep, or says a thing twice is refused."""
    if not body:
        return {}
    try:
        found = orjson.loads(body)
    except orjson.JSONDecodeError as error:
        raise SqsError(SERIALIZATION, f"The body is not JSON: {str(error)[:200]}") from None
    if type(found) is not dict:
        raise SqsError(
            SERIALIZATION, "Start of structure or map found where not expected: the body is not an object."
        )
    for name in found:
        # A quote within a text is escaped, so that a name in quotes is a name, or all of some text.
        if body.count(b'"%s"' % name.encode()) != 1:
            _check_names(body)
            break
    return found


def _check_names(body: bytes) -> None:
    """Find what is given twice, which of two readers may take one for the other."""

    def look(pairs: list[tuple[str, Any]]) -> None:
        names = [name for name, _ in pairs]
        if len(set(names)) != len(names):
            twice = next(name for name in names if names.count(name) > 1)
            raise SqsError(SERIALIZATION, f"{twice[:100]!r} is given twice.")

    try:
        json.loads(body, object_pairs_hook=look)
    except (ValueError, RecursionError):  # it takes a little less than orjson does
        raise SqsError(SERIALIZATION, "The body is nested too deep, or has numbers that are too long.") from None


def encode(result: dict[str, Any] | None, request_id: bytes) -> HttpResponse:
    body = b"{}" if result is None else orjson.dumps(result)
    return HttpResponse(200, body, CONTENT_TYPE, b"x-amzn-requestid: %s\r\n" % request_id)


def encode_error(error: SqsError, request_id: bytes) -> HttpResponse:
    fault = error.fault
    body = orjson.dumps({"__type": fault.type, "message": _clean(error.message)})
    # For SDKs whose users look for the codes of the older protocol.
    compatible = f"x-amzn-query-error: {fault.code};{fault.whose}\r\n".encode()
    return HttpResponse(fault.status, body, CONTENT_TYPE, compatible + b"x-amzn-requestid: %s\r\n" % request_id)


def _clean(text: str) -> str:
    """Without lone surrogates, which no JSON can carry."""
    return text.encode("utf-8", "replace").decode()
