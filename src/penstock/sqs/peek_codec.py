"""Encodes the messages of `/_aws/sqs/messages` in LocalStack's JSON form, which mirrors the XML elements.

An element that occurs once is a value, a repeated element is a list, and an empty element is null.
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
        shown["Message"] = _one_or_list(messages)
    metadata = {"RequestId": request_id.decode()}
    body = {f"{action}Response": {f"{action}Result": shown or None, "ResponseMetadata": metadata}}
    return _response(200, body, request_id)


def fragment(message: dict[str, Any]) -> orjson.Fragment:
    """Encodes one message to JSON; `encode` embeds the encoded message unchanged."""
    found = {name: value for name, value in message.items() if name not in ("Attributes", "MessageAttributes")}
    for member, element in (("Attributes", "Attribute"), ("MessageAttributes", "MessageAttribute")):
        if member in message:
            pairs = [{"Name": name, "Value": value} for name, value in message[member].items()]
            found[element] = _one_or_list(pairs)
    return orjson.Fragment(orjson.dumps(found))


def _one_or_list(values: list[Any]) -> Any:
    return values[0] if len(values) == 1 else values


def encode_error(error: SqsError, request_id: bytes) -> HttpResponse:
    fault, message = error.fault, error.message.encode("utf-8", "replace").decode()
    info = {"Type": fault.whose, "Code": fault.code, "Message": message, "Detail": None}
    return _response(fault.status, {"ErrorResponse": {"Error": info, "RequestId": request_id.decode()}}, request_id)


def _response(status: int, body: dict[str, Any], request_id: bytes) -> HttpResponse:
    return HttpResponse(status, orjson.dumps(body), CONTENT_TYPE, b"x-amzn-requestid: %s\r\n" % request_id)
