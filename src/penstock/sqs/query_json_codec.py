"""JSON responses of the Query protocol, which SQS sends for `Accept: application/json` (used by API Gateway).

A response has the members of the XML response. A member without a value is null, and a map is a list of objects with
name and value. query_codec.py decodes the parameters.
"""

from typing import Any, Final

import orjson

from penstock.foundation.http import HttpRequest, HttpResponse
from penstock.sqs import query_codec
from penstock.sqs.errors import UNKNOWN_OPERATION, SqsError

CONTENT_TYPE: Final = "application/json"
_SENT: Final = (
    "MD5OfMessageAttributes",
    "MD5OfMessageBody",
    "MD5OfMessageSystemAttributes",
    "MessageId",
    "SequenceNumber",
)
_BATCH: Final = ("Failed", "Successful")
MEMBERS: Final[dict[str, tuple[str, ...]]] = {
    "CancelMessageMoveTask": ("ApproximateNumberOfMessagesMoved",),
    "ChangeMessageVisibilityBatch": _BATCH,
    "CreateQueue": ("QueueUrl",),
    "DeleteMessageBatch": _BATCH,
    "GetQueueAttributes": ("Attributes",),
    "GetQueueUrl": ("QueueUrl",),
    "ListDeadLetterSourceQueues": ("NextToken", "queueUrls"),
    "ListMessageMoveTasks": ("Results",),
    "ListQueueTags": ("Tags",),
    "ListQueues": ("NextExclusiveStartQueueName", "NextToken", "queueUrls"),
    "ReceiveMessage": ("messages",),
    "SendMessage": _SENT,
    "SendMessageBatch": _BATCH,
    "StartMessageMoveTask": ("TaskHandle",),
}
"""Names of the members of each action's result, by action."""
_RENAMED: Final = {"Messages": "messages", "QueueUrls": "queueUrls"}
_MESSAGE: Final = (
    "Attributes",
    "Body",
    "MD5OfBody",
    "MD5OfMessageAttributes",
    "MessageAttributes",
    "MessageId",
    "ReceiptHandle",
)
_VALUE: Final = ("BinaryListValues", "BinaryValue", "DataType", "StringListValues", "StringValue")


def is_wanted(request: HttpRequest) -> bool:
    """Whether the client prefers JSON: its Accept header contains application/json, and no XML type before it."""
    accept = request.headers.get(b"accept")
    if accept is None:
        return False
    before, found, _ = accept.lower().partition(b"application/json")
    return bool(found) and b"xml" not in before


def encode(action: str, result: dict[str, Any] | None, request_id: bytes) -> HttpResponse:
    response: dict[str, Any] = {"ResponseMetadata": {"RequestId": request_id.decode()}}
    if result is not None:
        response[f"{action}Result"] = _result(action, result)
    return _response(200, {f"{action}Response": response}, request_id)


def _result(action: str, result: dict[str, Any]) -> dict[str, Any]:
    found: dict[str, Any] = dict.fromkeys(MEMBERS[action])
    for name, value in result.items():
        if name == "Messages":
            value = [each if type(each) is orjson.Fragment else _message(each) for each in value]
        elif name == "Successful" and action == "SendMessageBatch":
            value = [dict.fromkeys(_SENT) | each for each in value]
        elif name == "Attributes":
            value = _pairs(value)
        elif name == "Tags":
            value = _pairs(value, "Key")
        found[_RENAMED.get(name, name)] = value
    return found


def _message(message: dict[str, Any]) -> dict[str, Any]:
    found: dict[str, Any] = dict.fromkeys(_MESSAGE) | message
    if found["Attributes"] is not None:
        found["Attributes"] = _pairs(found["Attributes"])
    if found["MessageAttributes"] is not None:
        values = {name: dict.fromkeys(_VALUE) | value for name, value in found["MessageAttributes"].items()}
        found["MessageAttributes"] = _pairs(values)
    return found


def _pairs(values: dict[str, Any], key: str = "Name") -> list[dict[str, Any]]:
    return [{key: name, "Value": value} for name, value in values.items()]


def fragment(message: dict[str, Any]) -> orjson.Fragment:
    """Encodes one message; `encode` embeds the encoded message unchanged."""
    return orjson.Fragment(orjson.dumps(_message(message), option=orjson.OPT_SORT_KEYS))


def encode_error(error: SqsError, request_id: bytes) -> HttpResponse:
    if error.fault is UNKNOWN_OPERATION:  # AWS always answers with XML
        return query_codec.encode_error(error, request_id)
    fault, message = error.fault, query_codec.error_message(error).encode("utf-8", "replace").decode()
    info = {"Code": fault.code, "Message": message, "Type": fault.whose}
    return _response(fault.status, {"Error": info, "RequestId": request_id.decode()}, request_id)


def _response(status: int, body: dict[str, Any], request_id: bytes) -> HttpResponse:
    data = orjson.dumps(body, option=orjson.OPT_SORT_KEYS)
    return HttpResponse(status, data, CONTENT_TYPE, b"x-amzn-requestid: %s\r\n" % request_id)
