"""The Query protocol: decodes URL and form parameters with numbered names, encodes results and errors as XML.

Actions see parameters and results in the form of the JSON protocol: `SendMessageBatchRequestEntry.2.Id=b` becomes
the `Id` of the second element of `Entries`.
"""

import re
from typing import Any, Final
from xml.sax.saxutils import escape

from penstock.foundation.http import HttpRequest, HttpResponse
from penstock.foundation.percent import unescape
from penstock.sqs import checks
from penstock.sqs.errors import (
    INVALID_PARAMETER_VALUE,
    MALFORMED_QUERY,
    NO_SUCH_QUEUE,
    UNKNOWN_OPERATION,
    SqsError,
    invalid_parameter,
)
from penstock.sqs.limits import PARAMETER_PARTS_MAX, PARAMETERS_MAX

CONTENT_TYPE: Final = "text/xml"
_NAMESPACE: Final = b"http://queue.amazonaws.com/doc/2012-11-05/"
_INTEGER: Final = re.compile(r"-?[0-9]{1,18}")
_INDEX: Final = re.compile(r"[0-9]{1,9}")
_NO_XML: Final = re.compile(r"[^\t\n\r\x20-\ud7ff\ue000-\ufffd\U00010000-\U0010ffff]")
"""Matches a character that XML does not allow. Message bodies that contain one are already encoded in base64."""

_INTEGERS: Final = {
    "DelaySeconds",
    "MaxNumberOfMessages",
    "MaxNumberOfMessagesPerSecond",
    "MaxResults",
    "VisibilityTimeout",
    "WaitTimeSeconds",
}
_LISTS: Final = {
    "ActionName": "Actions",
    "AttributeName": "AttributeNames",
    "AWSAccountId": "AWSAccountIds",
    "ChangeMessageVisibilityBatchRequestEntry": "Entries",
    "DeleteMessageBatchRequestEntry": "Entries",
    "MessageAttributeName": "MessageAttributeNames",
    "MessageSystemAttributeName": "MessageSystemAttributeNames",
    "SendMessageBatchRequestEntry": "Entries",
    "TagKey": "TagKeys",
}
_LIST_MEMBERS: Final = frozenset(_LISTS.values())
_MAPS: Final = {
    "Attribute": ("Attributes", "Name"),
    "MessageAttribute": ("MessageAttributes", "Name"),
    "MessageSystemAttribute": ("MessageSystemAttributes", "Name"),
    "Tag": ("Tags", "Key"),
}
_MAP_MEMBERS: Final = frozenset(member for member, _ in _MAPS.values())
_OWN: Final = {"Version", "SignatureMethod", "SignatureVersion", "AWSAccessKeyId", "Timestamp", "Expires"}

_LIST_ELEMENTS: Final = {
    "Failed": "BatchResultErrorEntry",
    "Messages": "Message",
    "QueueUrls": "QueueUrl",
    "Results": "ListMessageMoveTasksResultEntry",
    "queueUrls": "QueueUrl",
}
_MAP_ELEMENTS: Final = {
    "Attributes": ("Attribute", "Name"),
    "MessageAttributes": ("MessageAttribute", "Name"),
    "Tags": ("Tag", "Key"),
}


def decode(request: HttpRequest) -> tuple[str, dict[str, Any]]:
    """Returns the action ("" if none is named) and the parameters in JSON form, from the query string and the form
    body. If QueueUrl is missing, the URL path takes its place."""
    action, tree = "", dict[str, Any]()
    pairs = _pairs(request.query.encode("latin-1")) if request.query else []
    if request.method != b"GET":
        pairs += _pairs(request.body)
    for name, value in pairs:
        if name == "Action":
            action = value
        elif name not in _OWN and not name.startswith("X-Amz-"):
            _insert(tree, name, value)
    if "QueueUrl" not in tree and request.path.strip("/"):
        tree["QueueUrl"] = request.path
    return action, _to_json(tree)


def _pairs(form: bytes) -> list[tuple[str, str]]:
    """Returns the parameters in a query string or form body. Takes linear time: 4 MiB of escapes take some 10 ms."""
    found = []
    try:
        parts = form.decode().split("&", PARAMETERS_MAX)
        if len(parts) > PARAMETERS_MAX:
            raise SqsError(MALFORMED_QUERY, f"A request has at most {PARAMETERS_MAX} parameters.")
        for part in parts:
            if part:
                name, _, value = part.partition("=")
                if "%" in part or "+" in part:
                    name, value = _unescaped(name), _unescaped(value)
                found.append((name, value))
    except UnicodeDecodeError:
        raise SqsError(MALFORMED_QUERY, "The form, or a parameter, is not UTF-8.") from None
    return found


def _unescaped(text: str) -> str:
    text = text.replace("+", " ")
    if "%" not in text:
        return text
    found = unescape(text.encode())
    if found is None:
        raise SqsError(MALFORMED_QUERY, "A parameter has a % that is not followed by two hexadecimal digits.")
    return found.decode()


def _insert(tree: dict[str, Any], name: str, value: str) -> None:
    """Inserts a parameter into the tree of nested dicts: `Tag.1.Key` becomes `tree["Tag"]["1"]["Key"]`."""
    *path, last = name.split(".", PARAMETER_PARTS_MAX)
    if len(path) == PARAMETER_PARTS_MAX:
        raise SqsError(MALFORMED_QUERY, f"The parameter {name[:100]} has more than {PARAMETER_PARTS_MAX} parts.")
    for part in path:
        below = tree.setdefault(part, {})
        if type(below) is not dict:
            raise SqsError(MALFORMED_QUERY, f"The parameter {name[:100]} conflicts with another one.")
        tree = below
    if last in tree:
        raise SqsError(MALFORMED_QUERY, f"The parameter {name[:100]} is given twice, or conflicts with another one.")
    tree[last] = value


def _to_json(tree: dict[str, Any]) -> dict[str, Any]:
    """Converts a tree of parameters, recursively, to the form of the JSON protocol."""
    found: dict[str, Any] = {}
    for name, value in tree.items():
        if type(value) is not dict:
            if name in _LISTS:  # a single value need not be numbered; an empty list is an empty value
                found[_LISTS[name]] = [value] if value else []
            elif name in _LIST_MEMBERS and not value:  # boto3 names an empty list by its member, `Entries=`
                found[name] = []
            elif name in _MAPS and not value:
                found[_MAPS[name][0]] = {}
            elif name in _MAP_MEMBERS and not value:
                found[name] = {}
            else:
                found[name] = _parse_int(name, value) if name in _INTEGERS else value
        elif name in _LISTS:
            found[_LISTS[name]] = [_to_json(each) if type(each) is dict else each for each in _in_order(name, value)]
        elif name in _MAPS:
            member, key = _MAPS[name]
            found[member] = _map(name, key, value)
        else:
            found[name] = _to_json(value)
    return found


def _parse_int(name: str, value: str) -> int:
    if not _INTEGER.fullmatch(value):
        raise invalid_parameter(name, value[:100], "Must be a number.")
    return int(value)


def _in_order(name: str, numbered: dict[str, Any]) -> list[Any]:
    """Returns the values of `numbered`, whose keys are numbers as text, sorted by number."""
    if not all(_INDEX.fullmatch(number) for number in numbered):
        raise SqsError(MALFORMED_QUERY, f"The parameters {name} are not numbered.")
    return [numbered[number] for number in sorted(numbered, key=int)]


def _map(name: str, key: str, numbered: dict[str, Any]) -> dict[str, Any]:
    found: dict[str, Any] = {}
    for entry in _in_order(name, numbered):
        named = entry.get(key) if type(entry) is dict else None
        if type(named) is not str or not named:
            raise SqsError(INVALID_PARAMETER_VALUE, f"One of the parameters {name} has no {key}.")
        if named in found:
            raise SqsError(INVALID_PARAMETER_VALUE, f"{name} {named[:100]!r} is given twice.")
        value = entry.get("Value", "")
        found[named] = _to_json(value) if type(value) is dict else value
    return found


class Fragment(bytes):
    """An encoded XML element, to be embedded unchanged in the response."""


def fragment(action: str, name: str, value: dict[str, Any]) -> Fragment:
    """Encodes one member of a result; `encode` embeds the encoded member unchanged."""
    return Fragment(_clean(_element(action, name, value)))


def encode(action: str, result: dict[str, Any] | None, request_id: bytes) -> HttpResponse:
    name = action.encode()
    parts = [b'<?xml version="1.0"?><%sResponse xmlns="%s">' % (name, _NAMESPACE)]
    if result is not None:
        members = _members(action, result)
        parts.append(b"<%sResult>" % name)
        parts += [part if type(part) is Fragment else _clean(part) for part in members]
        parts.append(b"</%sResult>" % name)
    metadata = b"<ResponseMetadata><RequestId>%s</RequestId></ResponseMetadata>" % request_id
    parts.append(b"%s</%sResponse>" % (metadata, name))
    return HttpResponse(200, b"".join(parts), CONTENT_TYPE, b"x-amzn-requestid: %s\r\n" % request_id)


def _members(action: str, value: dict[str, Any]) -> list[bytes]:
    parts = []
    for name, member in value.items():
        if type(member) is list:
            element = f"{action}ResultEntry" if name == "Successful" else _LIST_ELEMENTS[name]
            parts += [_element(action, element, each) for each in member]
        elif type(member) is dict and name in _MAP_ELEMENTS:
            element, key = _MAP_ELEMENTS[name]
            parts += [_element(action, element, {key: each, "Value": member[each]}) for each in member]
        else:
            parts.append(_element(action, name, member))
    return parts


def _element(action: str, name: str, value: Any) -> bytes:
    if type(value) is dict:
        inner = b"".join(_members(action, value))
    elif type(value) is Fragment:
        return value
    elif type(value) is bool:
        inner = b"true" if value else b"false"
    else:
        # XML parsers turn a carriage return into a line feed unless it is escaped (XML 1.0, 2.11).
        inner = escape(str(value), {"\r": "&#13;"}).encode("utf-8", "replace")
    tag = name.encode()
    return b"<%s>%s</%s>" % (tag, inner, tag)


def _clean(text: bytes) -> bytes:
    """Replaces characters that are not allowed in XML by `?`."""
    return text if checks.is_legal(text) else _NO_XML.sub("?", text.decode()).encode()


def error_message(error: SqsError) -> str:
    """Returns an error's message for the Query protocol, where AWS words "queue does not exist" differently."""
    is_no_queue = error.message == NO_SUCH_QUEUE
    return "The specified queue does not exist for this wsdl version." if is_no_queue else error.message


def encode_error(error: SqsError, request_id: bytes) -> HttpResponse:
    fault = error.fault
    if fault is UNKNOWN_OPERATION:
        return _error_response(fault.status, b"<UnknownOperationException/>", request_id)
    text = (
        f'<?xml version="1.0"?><ErrorResponse xmlns="{_NAMESPACE.decode()}"><Error><Type>{fault.whose}</Type>'
        f"<Code>{fault.code}</Code><Message>{escape(error_message(error))}</Message><Detail/></Error>"
        f"<RequestId>{request_id.decode()}</RequestId></ErrorResponse>"
    )
    return _error_response(fault.status, _clean(text.encode("utf-8", "replace")), request_id)


def _error_response(status: int, body: bytes, request_id: bytes) -> HttpResponse:
    return HttpResponse(status, body, CONTENT_TYPE, b"x-amzn-requestid: %s\r\n" % request_id)
