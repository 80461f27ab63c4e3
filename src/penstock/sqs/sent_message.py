"""A message to send: reads and checks the parameters of SendMessage, and builds the sender's result."""

from hashlib import sha256
from typing import Any, Final, NamedTuple

from penstock.broker.queues.messages import NewMessage, Sent
from penstock.cluster.queues import Queue
from penstock.queues.messages import DELAY_MS, SENDER, TRACE
from penstock.sqs import checks, errors
from penstock.sqs.checks import Params
from penstock.sqs.digests import Attribute, md5_of_attributes, md5_of_body
from penstock.sqs.errors import SqsError
from penstock.sqs.limits import BATCH_BYTES_MAX, DELAY_S
from penstock.sqs.message_attributes import (
    illegal_characters,
    read_attributes,
    read_system_attributes,
    to_headers,
)

_WRONG_TYPE: Final = "The request include parameter that is not valid for this queue type."


class MessageDraft(NamedTuple):
    """A parsed message, not sent yet. `result`: its SendMessage result, at first only the MD5 digests; `send_result`
    adds the message id and sequence number."""

    message: NewMessage
    size: int
    """Message size in bytes, as AWS counts it: body, and names, types and values of attributes."""
    result: dict[str, Any]


def read_message(queue: Queue, params: Params, sender: str, trace: bytes = b"") -> MessageDraft:
    """Parses the message of SendMessage or of a batch entry. The caller must check its size.

    `trace`: AWSTraceHeader for a message without system attributes. It does not count towards limits and digests.
    """
    body = params.get("MessageBody")
    if type(body) is not str or not body:
        body = checks.text(params, "MessageBody")
    value = body.encode()
    if len(value) > BATCH_BYTES_MAX:  # too large for any queue: no digest needed
        return MessageDraft(NewMessage(value), len(value), {})
    if not checks.is_legal(value):
        raise illegal_characters()
    size, result = len(value), {"MD5OfMessageBody": md5_of_body(value)}
    headers: list[tuple[str, bytes | None]] = [(SENDER, sender.encode())] if sender else []
    if trace and not params.get("MessageSystemAttributes"):
        headers.append((TRACE, trace))
    if len(params) > 2:  # more than the body, and the QueueUrl or Id
        attributes, system = read_attributes(params), read_system_attributes(params)
        size += sum(attribute.size for attribute in attributes)
        headers += _extras(queue, params, attributes, system, result)
    elif not queue.settings.is_fifo:
        return MessageDraft(NewMessage(value, None, tuple(headers)), size, result)
    key, deduplication_id = _group(queue, params, value)
    return MessageDraft(NewMessage(value, key, tuple(headers), deduplication_id), size, result)


def _extras(
    queue: Queue, params: Params, attributes: list[Attribute], system: list[Attribute], result: dict[str, Any]
) -> list[tuple[str, bytes | None]]:
    """Returns the record headers for attributes and delay; adds the MD5 digests of the attributes to `result`."""
    headers = to_headers(attributes)
    if attributes:
        result["MD5OfMessageAttributes"] = md5_of_attributes(attributes)
    if system:
        result["MD5OfMessageSystemAttributes"] = md5_of_attributes(system)
        headers.append((TRACE, system[0].value))
    delay_s = checks.maybe_int(params, "DelaySeconds")
    if delay_s is not None:
        reason = f"DelaySeconds must be >= {DELAY_S.least} and <= {DELAY_S.most}."
        checks.within("DelaySeconds", delay_s, DELAY_S, reason)
        if not queue.settings.is_fifo:
            headers.append((DELAY_MS, str(1000 * delay_s).encode()))
        elif delay_s:  # AWS treats 0 as the queue's delay
            raise errors.invalid_parameter("DelaySeconds", delay_s, _WRONG_TYPE)
    return headers


def _group(queue: Queue, params: Params, value: bytes) -> tuple[bytes | None, str]:
    """Returns the message group as record key (None: no group), and the deduplication id ("" if not a FIFO queue)."""
    group = checks.maybe_text(params, "MessageGroupId")
    deduplication_id = checks.maybe_text(params, "MessageDeduplicationId")
    if group is not None:
        checks.token("MessageGroupId", group)
    if deduplication_id is not None:
        checks.token("MessageDeduplicationId", deduplication_id)
    if not queue.settings.is_fifo:
        if deduplication_id is not None:
            raise errors.invalid_parameter("MessageDeduplicationId", deduplication_id, _WRONG_TYPE)
        return None if group is None else group.encode(), ""
    if group is None:
        raise errors.missing("MessageGroupId")
    if deduplication_id is None:
        if not queue.settings.content_based_deduplication:
            raise errors.invalid_value(
                "The queue should either have ContentBasedDeduplication enabled or MessageDeduplicationId provided "
                "explicitly"
            )
        deduplication_id = sha256(value).hexdigest()
    return group.encode(), deduplication_id


def too_long(queue: Queue, draft: MessageDraft, reason: str = "are invalid") -> SqsError | None:
    """Returns the error "One or more parameters {reason}. …" for a message too large for its queue, else None."""
    limit = queue.settings.message_bytes_max
    if draft.size <= limit:
        return None
    return errors.invalid_value(
        f"One or more parameters {reason}. Reason: Message must be shorter than {limit} bytes."
    )


def send_result(queue: Queue, draft: MessageDraft, sent: Sent) -> dict[str, Any]:
    """Returns the SendMessage result of a message that was sent."""
    draft.result["MessageId"] = sent.message_id
    if queue.settings.is_fifo:
        draft.result["SequenceNumber"] = sequence_number(sent.partition, sent.offset)
    return draft.result


def sequence_number(partition: int, offset: int) -> str:
    """Returns a SequenceNumber of twenty digits. It increases within a message group, which is in one partition.

    >>> sequence_number(3, 41)
    '10000000000000410003'
    """
    return f"1{offset:015d}{partition:04d}"
