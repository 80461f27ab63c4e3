"""A received message as ReceiveMessage returns it: body, receipt handle, attributes and digests."""

from base64 import b64encode
from typing import Any, Final, NamedTuple

from penstock.broker.queues.messages import Delivered
from penstock.cluster.queues import Queue
from penstock.queues.messages import (
    DEDUPLICATION_ID,
    OWN_PREFIX,
    RECEIVE_COUNT,
    SENDER,
    SENT_AT,
    SOURCE_ARN,
    TRACE,
    Receipt,
)
from penstock.sqs import checks
from penstock.sqs.digests import md5_of_attributes, md5_of_body
from penstock.sqs.limits import ATTRIBUTES_SHOWN_MAX
from penstock.sqs.message_attributes import NOTHING, TRACE_HEADER, Filter, from_headers, shown
from penstock.sqs.namespaces import Namespace
from penstock.sqs.queue_names import ACCOUNT, account_of, arn_of, name_in_arn
from penstock.sqs.sent_message import sequence_number

BODY_ENCODING: Final = "PenstockBodyEncoding"
"""Name of the attribute that marks a body returned in base64 because it is not text. Penstock's own."""


class AttributeSelection(NamedTuple):
    """The attributes that a receiver requests, and what their values depend on: account, region, response format."""

    system: Filter = NOTHING
    attributes: Filter = NOTHING
    region: str = ""
    account: str = ACCOUNT
    """Id of the default account (`sqs.account.id`): for example the SenderId of messages without a known sender."""
    space: Namespace = Namespace(ACCOUNT)
    """The namespace (account and region) of the queue."""
    is_xml: bool = False
    """Whether the response is XML, which does not allow all characters."""


def size_of(delivered: Delivered) -> int:
    """Returns the estimated cost of encoding a message: bytes of value and headers, plus 100 for each header."""
    size = len(delivered.value) + 100 * len(delivered.headers)
    for name, value in delivered.headers[:ATTRIBUTES_SHOWN_MAX]:
        size += len(name) + (len(value) if value is not None else 0)
    return size


def shown_message(queue: Queue, delivered: Delivered, selection: AttributeSelection) -> dict[str, Any]:
    body, is_encoded = _body(delivered.value, selection.is_xml)
    receipt = Receipt(queue.topic_id, delivered.partition, delivered.offset, delivered.holder)
    found: dict[str, Any] = {
        "MessageId": delivered.message_id,
        "ReceiptHandle": receipt.to_handle(),
        "MD5OfBody": md5_of_body(body.encode() if is_encoded else delivered.value),
        "Body": body,
    }
    if selection.system is not NOTHING:
        system = _system(queue, delivered, selection)
        wanted = {name: value for name, value in system.items() if selection.system.wants(name)}
        if wanted:
            found["Attributes"] = wanted
    if is_encoded:
        found.setdefault("Attributes", {})[BODY_ENCODING] = "base64"
    if selection.attributes is not NOTHING and delivered.headers:
        attributes = from_headers(delivered.headers, selection.attributes)
        if attributes:
            found["MD5OfMessageAttributes"] = md5_of_attributes(attributes)
            found["MessageAttributes"] = shown(attributes)
    return found


def _body(value: bytes, is_xml: bool) -> tuple[str, bool]:
    """Returns the body as text, and whether that text is base64. Base64 is used if the value is not UTF-8, or
    if the response is XML (`is_xml`) and the value has characters that XML does not allow."""
    try:
        text = value.decode()
    except UnicodeDecodeError:
        return b64encode(value).decode(), True
    if is_xml and not checks.is_legal(value):
        return b64encode(value).decode(), True
    return text, False


def _system(queue: Queue, delivered: Delivered, selection: AttributeSelection) -> dict[str, str]:
    """Returns all system attributes, requested or not. `selection` gives only account, region and namespace."""
    headers = {
        name: value.decode(errors="replace")
        for name, value in delivered.headers
        if value is not None and name.startswith(OWN_PREFIX)
    }
    before = headers.get(RECEIVE_COUNT, "")
    found = {
        "SenderId": headers.get(SENDER, selection.account),
        "SentTimestamp": headers.get(SENT_AT) or str(delivered.timestamp_ms),
        # Over all queues that it was moved through.
        "ApproximateReceiveCount": str(delivered.count + (int(before) if before.isdigit() else 0)),
        "ApproximateFirstReceiveTimestamp": str(delivered.first_received_ms),
    }
    if delivered.key is not None:
        found["MessageGroupId"] = delivered.key.decode(errors="replace")
    if queue.settings.is_fifo:
        found["SequenceNumber"] = sequence_number(delivered.partition, delivered.offset)
        if DEDUPLICATION_ID in headers:
            found["MessageDeduplicationId"] = headers[DEDUPLICATION_ID]
    if TRACE in headers:
        found[TRACE_HEADER] = headers[TRACE]
    if SOURCE_ARN in headers:
        name = selection.space.local(name_in_arn(headers[SOURCE_ARN]) or headers[SOURCE_ARN])
        found["DeadLetterQueueSourceArn"] = arn_of(selection.region, account_of(queue.owner, selection.account), name)
    return found
