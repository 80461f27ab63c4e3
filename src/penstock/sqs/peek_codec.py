"""Messages that are shown by `/_aws/sqs/messages`, in JSON as LocalStack writes it: the elements of the XML answer.

An element that is there once is a value, one that is there several times is a list, and an empty one is null.
"""

from typing import Any, Final

import orjson

from penstock.foundation.http import HttpResponse
from penstock.sqs.errors import SqsError

CONTENT_TYPE: Final = "application/json"


def encode(action: str, result: dict[str, Any] | None, request_id: bytes) -> HttpResponse:
    shown = {name: value for name, value in (result or {}).items() if name != "Messages"}
    messages = (result or {}).get("Messages")
    if messages:
        shown["Message"] = _once_or_all(messages)
    metadata = {"RequestId": request_id.decode()}
    body = {f"{action}Response": {f"{action}Result": shown or None, "ResponseMetadata": metadata}}
    return _response(200, body, request_id)


def fragment(message: dict[str, Any]) -> orjson.Fragment:
    """Encodes one message ahead."""
    found = {name: value for name, value in message.items() if name not in ("Attributes", "MessageAttributes")}
    for member, element in (("Attributes", "Attribute"), ("MessageAttributes", "MessageAttribute")):
        if member in message:
            pairs = [{"Name": name, "Value": value} for name, value in message[member].items()]
            found[element] = _once_or_all(pairs)
    return orjson.Fragment(orjson.dumps(found))


def _once_or_all(values: list[Any]) -> Any:
    return values[0] if len(values) == 1 else values


def encode_error(error: SqsError, request_id: bytes) -> HttpResponse:
    fault, message = error.fault, error.message.encode("utf-8", "replace").decode()
    told = {"Type": fault.whose, "Code": fault.code, "Message": message, "Detail": None}
    return _response(fault.status, {"ErrorResponse": {"Error": told, "RequestId": request_id.decode()}}, request_id)


def _response(status: int, body: dict[str, Any], request_id: bytes) -> HttpResponse:
    return HttpResponse(status, orjson.dumps(body), CONTENT_TYPE, b"x-amzn-requestid: %s\r\n" % request_id)
