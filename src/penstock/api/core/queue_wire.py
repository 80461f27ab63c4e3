"""Encoding of queue messages and errors in the SQS JSON protocol. Pure."""

import re
from base64 import b64decode, b64encode
from collections.abc import Iterable, Iterator, Mapping
from contextlib import contextmanager
from decimal import Decimal, InvalidOperation
from typing import Any, Final, NamedTuple

from penstock.api.core.durations import whole_seconds
from penstock.api.core.encoding import encode_value
from penstock.api.core.job import Attributes, AttributeValue, OutgoingJob
from penstock.api.errors import (
    ApiError,
    InvalidArgument,
    InvalidValue,
    JobLost,
    NotAllowed,
    NotConnected,
    QueueFailed,
    UnknownQueue,
)
from penstock.client.sqs import BATCH_BYTES_MAX, BATCH_MAX, NO_SUCH_QUEUE, NOT_ALLOWED_CODES, SqsError
from penstock.foundation.errors import PenstockError

DELAY_S_MAX: Final = 900
VISIBILITY_S_MAX: Final = 43_200
_LOST_CODES: Final = {"ReceiptHandleIsInvalid", "AWS.SimpleQueueService.MessageNotInflight"}
_LOST_MESSAGE: Final = re.compile(r"parameter ReceiptHandle is invalid")
_INVALID_CODES: Final = {"InvalidParameterValue", "MissingParameter", "InvalidAttributeName", "InvalidAttributeValue"}


class Entry(NamedTuple):
    """SendMessage parameters of a message, and its approximate size in bytes toward the batch limit."""

    params: dict[str, Any]
    size: int


def entry_of(message: OutgoingJob) -> Entry:
    """Encodes a message as SendMessage parameters.

    >>> entry_of(OutgoingJob({"id": 1}, delay="1m")).params
    {'MessageBody': '{"id":1}', 'DelaySeconds': 60}
    """
    value, _ = encode_value(message.body)
    if not value:
        raise InvalidValue("the body is empty; a message of a queue needs at least one character")
    try:
        params: dict[str, Any] = {"MessageBody": value.decode()}
    except UnicodeDecodeError as error:
        raise InvalidValue(
            f"messages of a queue are text, and these bytes are not UTF-8 ({error}); use base64, or publish them to "
            "the queue's topic with mq.publish"
        ) from error
    size = len(value)
    if message.delay is not None:
        params["DelaySeconds"] = whole_seconds(message.delay, "delay", most=DELAY_S_MAX)
    if message.group is not None:
        params["MessageGroupId"] = message.group
    if message.deduplication_id is not None:
        params["MessageDeduplicationId"] = message.deduplication_id
    if message.attributes:
        params["MessageAttributes"] = {name: _attribute(name, value) for name, value in message.attributes.items()}
        size += sum(len(name) + len(repr(value)) + 8 for name, value in message.attributes.items())
    return Entry(params, size)


def _attribute(name: str, value: AttributeValue) -> dict[str, str]:
    if isinstance(value, str):
        return {"DataType": "String", "StringValue": value}
    if isinstance(value, bytes):
        return {"DataType": "Binary", "BinaryValue": b64encode(value).decode()}
    if isinstance(value, int | float | Decimal) and not isinstance(value, bool):
        return {"DataType": "Number", "StringValue": str(value)}
    raise InvalidValue(f"attribute {name!r} is a {type(value).__name__}; give str, bytes, or a number")


def portions(entries: Iterable[Entry]) -> Iterator[list[Entry]]:
    """Splits entries, in order, into lists that fit into one SendMessageBatch request each."""
    portion: list[Entry] = []
    size = 0
    for entry in entries:
        if portion and (len(portion) == BATCH_MAX or size + entry.size > BATCH_BYTES_MAX):
            yield portion
            portion, size = [], 0
        portion.append(entry)
        size += entry.size
    if portion:
        yield portion


def read_message(queue: str, response: Mapping[str, Any]) -> dict[str, Any]:
    """Returns the fields of a Received, from one message of a ReceiveMessage response."""
    system = response.get("Attributes", {})
    body = response["Body"].encode()
    source = system.get("DeadLetterQueueSourceArn")
    return {
        "queue": queue,
        "message_id": response["MessageId"],
        "receipt": response["ReceiptHandle"],
        # A body that is not UTF-8 was published by a Kafka client.
        "value": b64decode(body) if system.get("PenstockBodyEncoding") == "base64" else body,
        "attributes": read_attributes(response.get("MessageAttributes", {})),
        "receive_count": int(system.get("ApproximateReceiveCount", 1)),
        "sent_ms": int(system.get("SentTimestamp", 0)),
        "first_received_ms": int(system.get("ApproximateFirstReceiveTimestamp", 0)),
        "group": system.get("MessageGroupId"),
        "deduplication_id": system.get("MessageDeduplicationId"),
        "sequence": system.get("SequenceNumber"),
        "source": source.rpartition(":")[2] if source else None,
    }


def read_attributes(attributes: Mapping[str, Mapping[str, str]]) -> Attributes:
    """Decodes SQS message attributes to Python values.

    >>> read_attributes({"n": {"DataType": "Number", "StringValue": "7"}})
    {'n': 7}
    """
    return {name: _value(entry) for name, entry in attributes.items()}


def _value(entry: Mapping[str, str]) -> AttributeValue:
    if "BinaryValue" in entry:
        return b64decode(entry["BinaryValue"])
    text = entry.get("StringValue", "")
    if entry.get("DataType", "").partition(".")[0] != "Number":
        return text
    try:
        number = Decimal(text)
    except InvalidOperation:
        return text
    return int(text) if text.lstrip("+-").isdecimal() else number


@contextmanager
def explained(queue: str) -> Iterator[None]:
    """Context manager that raises errors of the SQS client as ApiErrors."""
    try:
        yield
    except PenstockError as error:
        raise explain(error, queue) from error


def explain(error: PenstockError, queue: str) -> ApiError:
    """Converts an error of the SQS client to an ApiError."""
    if isinstance(error, ApiError):
        return error
    if not isinstance(error, SqsError):
        return NotConnected(f"queue {queue!r}: {error.message}", error.code)
    return explain_reason(error.reason, error.message, queue)


def explain_reason(reason: str, message: str, queue: str) -> ApiError:
    text = f"queue {queue!r}: {message} ({reason})"
    if reason == NO_SUCH_QUEUE:
        return UnknownQueue(
            f"there is no queue {queue!r}; create it with mq.create_queue({queue!r}) or "
            f"`penstock queue create {queue}`"
        )
    if reason in _LOST_CODES or _LOST_MESSAGE.search(message):
        return JobLost(f"the message of queue {queue!r} is no longer in flight here: {message}", reason=reason)
    if reason in NOT_ALLOWED_CODES:
        return NotAllowed(
            f"{text}; give access_key and secret_key, or $AWS_ACCESS_KEY_ID and $AWS_SECRET_ACCESS_KEY, of a key "
            "with this permission"
        )
    if reason in _INVALID_CODES:
        return InvalidArgument(text)
    return QueueFailed(text, reason=reason)
