"""`/_aws/sqs/messages`: shows the messages of a queue without receiving them, like LocalStack's endpoint.

It is for development and tests: only a broker that requires no signatures and listens at a loopback address serves
it. https://docs.localstack.cloud/aws/services/sqs/
"""

from dataclasses import replace
from typing import Any, Final, NamedTuple

from penstock.broker.queues.peek import PeekedMessage, PeekRequest
from penstock.cluster.queues import Queue
from penstock.foundation.http import HttpRequest
from penstock.foundation.steps import Steps
from penstock.sqs import errors, json_codec, query_codec, query_json_codec
from penstock.sqs.call import Call, Result
from penstock.sqs.checks import Params
from penstock.sqs.codecs import JSON, PEEK_JSON, QUERY_XML, Codec
from penstock.sqs.errors import INVALID_REQUEST, SqsError
from penstock.sqs.json_codec import TARGET_PREFIX
from penstock.sqs.message_attributes import Filter
from penstock.sqs.queue_names import name_in_url
from penstock.sqs.received_message import AttributeSelection, shown_message
from penstock.wire.messages.queue_peek import BYTES_MAX, DELAYED, MESSAGES_MAX, VISIBLE

PATH: Final = "/_aws/sqs/messages"
ACTION: Final = "ReceiveMessage"
NO_RECEIPT: Final = "PENSTOCK/PEEKED"
"""Text that is returned as the receipt handle, because messages shown here were not received."""
HAS_MORE: Final = "PenstockHasMore"
"""Name of the result member that is True if the queue has more messages than shown, else missing. Penstock's own."""
_EVERYTHING: Final = Filter(is_all=True)
_PATH_PARTS: Final = 3
"""Number of parts after /_aws/sqs/messages in a path that names the queue: region, account and queue name."""


class Wanted(NamedTuple):
    """The parameters of a request to show messages."""

    queue_url: str
    shows_invisible: bool
    shows_delayed: bool


def is_peek(request: HttpRequest) -> bool:
    path = request.path
    return path.startswith(PATH) and (len(path) == len(PATH) or path[len(PATH)] == "/")


def codec_of(request: HttpRequest) -> Codec:
    """Returns the response codec: AWS JSON for an AWS SDK; else LocalStack's JSON or XML, by the Accept header."""
    if b"x-amz-target" in request.headers:
        return JSON
    return PEEK_JSON if query_json_codec.is_wanted(request) else QUERY_XML


def read(request: HttpRequest) -> Wanted:
    """Returns the parameters of a request to show messages; `queue_url` is "" if not given. Raises SqsError."""
    action, params = query_codec.decode(request._replace(path="/", body=b"" if _is_json(request) else request.body))
    if _is_json(request):
        action = request.headers[b"x-amz-target"].removeprefix(TARGET_PREFIX).decode("latin-1")
        params = {**params, **json_codec.decode(request.body)}
    if action not in ("", ACTION):
        raise SqsError(INVALID_REQUEST, f"This endpoint only accepts {ACTION} calls")
    return Wanted(_queue_url(request, params), _is_on(params, "ShowInvisible"), _is_on(params, "ShowDelayed"))


def _is_json(request: HttpRequest) -> bool:
    return b"x-amz-target" in request.headers


def _queue_url(request: HttpRequest, params: Params) -> str:
    rest = request.path[len(PATH) :].strip("/")
    if not rest:
        url = params.get("QueueUrl")
        return url if isinstance(url, str) else ""
    parts = rest.split("/", _PATH_PARTS)
    return f"/{parts[1]}/{parts[2]}" if len(parts) == _PATH_PARTS else ""


def _is_on(params: Params, name: str) -> bool:
    return str(params.get(name, "")).lower() in ("true", "1")


async def peek(call: Call, wanted: Wanted) -> Result:
    """Returns messages of the queue in the form of a ReceiveMessage result, as many as fit into a response."""
    if not name_in_url(wanted.queue_url):
        raise errors.UnknownQueue("")
    queue = replace(call, params={"QueueUrl": wanted.queue_url}).queue()
    options = PeekRequest.of(
        queue,
        max_messages=MESSAGES_MAX,
        max_bytes=BYTES_MAX,
        shows_in_flight=wanted.shows_invisible,
        shows_delayed=wanted.shows_delayed,
    )
    found = await call.service.peeks.peek(queue, options)
    messages = sorted(found.messages, key=lambda each: each.message.timestamp_ms)
    shown = await call.slices.run(_show_steps(call, queue, messages, wanted))
    return {"Messages": shown, HAS_MORE: True} if found.has_more else {"Messages": shown}


def _show_steps(call: Call, queue: Queue, messages: list[PeekedMessage], wanted: Wanted) -> Steps[list[Any]]:
    selection = AttributeSelection(
        _EVERYTHING, _EVERYTHING, call.region, call.endpoint.account, call.space_of(queue), call.codec.is_xml
    )
    shown: list[Any] = []
    for each in messages:
        message = shown_message(queue, each.message, selection)
        message["ReceiptHandle"] = NO_RECEIPT
        if wanted.shows_invisible:
            message["Attributes"]["IsVisible"] = "true" if each.state == VISIBLE else "false"
        if wanted.shows_delayed:
            message["Attributes"]["IsDelayed"] = "true" if each.state == DELAYED else "false"
        shown.append(call.codec.encode_message(message))
        yield
    return shown
