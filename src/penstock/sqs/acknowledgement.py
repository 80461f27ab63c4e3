"""DeleteMessage and ChangeMessageVisibility: reads receipt handles and translates acknowledgement errors."""

from collections.abc import Callable
from typing import Final

from penstock.broker.queues.messages import MessageAck
from penstock.cluster.queues import Queue
from penstock.foundation.errors import PenstockError
from penstock.queues.commands import AckType
from penstock.queues.errors import AlreadyFinished, InvalidReceipt, NeverReceived, NotHeld
from penstock.queues.messages import Receipt
from penstock.sqs import checks, errors
from penstock.sqs.batches import failed, read_entries, result
from penstock.sqs.call import Call, Result
from penstock.sqs.checks import Params
from penstock.sqs.errors import (
    MESSAGE_NOT_IN_FLIGHT,
    RECEIPT_HANDLE_IS_INVALID,
    SERIALIZATION,
    SqsError,
    invalid_parameter,
)
from penstock.sqs.limits import RECEIPT_CHARS_MAX, VISIBILITY_S

_SHOWN_CHARS_MAX: Final = 256


def read_receipt(queue: Queue, params: Params) -> Receipt:
    """Returns the receipt in a request. Raises ReceiptHandleIsInvalid, also for a receipt of another queue."""
    handle = params.get("ReceiptHandle")
    if type(handle) is not str or not handle:
        handle = checks.text(params, "ReceiptHandle")
    if len(handle) > RECEIPT_CHARS_MAX:
        raise _not_a_receipt(handle)
    try:
        receipt = Receipt.of(handle)
    except InvalidReceipt:
        raise _not_a_receipt(handle) from None
    if receipt.topic_id != queue.topic_id:
        raise _not_a_receipt(handle)
    return receipt


def _not_a_receipt(handle: str) -> SqsError:
    shown = handle[:_SHOWN_CHARS_MAX]
    return SqsError(RECEIPT_HANDLE_IS_INVALID, f'The input receipt handle "{shown}" is not a valid receipt handle.')


def deletion(queue: Queue, params: Params) -> MessageAck:
    receipt = read_receipt(queue, params)
    return MessageAck(receipt.partition, receipt.offset, receipt.holder, AckType.DONE)


def renewal(queue: Queue, params: Params) -> MessageAck:
    """Returns the request to change a message's visibility timeout; 0 seconds makes the message visible at once."""
    receipt = read_receipt(queue, params)
    timeout_s = checks.maybe_int(params, "VisibilityTimeout")
    if timeout_s is None:
        raise errors.missing("VisibilityTimeout")
    reason = f"VisibilityTimeout must be an integer between {VISIBILITY_S.least} and {VISIBILITY_S.most}."
    checks.within("VisibilityTimeout", timeout_s, VISIBILITY_S, reason)
    return MessageAck(receipt.partition, receipt.offset, receipt.holder, AckType.RENEW, 1000 * timeout_s)


def delete_error(params: Params, error: PenstockError | None) -> PenstockError | None:
    """Returns the SQS error for the `error` of a DeleteMessage; None if the message is (or was already) deleted."""
    if isinstance(error, AlreadyFinished):
        return None
    return _expired(params) if isinstance(error, NotHeld) else error


def delete_entry_error(params: Params, error: PenstockError | None) -> PenstockError | None:
    """Like `delete_error`, for an entry of DeleteMessageBatch: an expired receipt has another error code, as on
    AWS. https://github.com/smaskalik/sqsmover/issues/54"""
    if isinstance(error, NotHeld) and not isinstance(error, AlreadyFinished):
        return SqsError(RECEIPT_HANDLE_IS_INVALID, "The receipt handle has expired")
    return delete_error(params, error)


def renew_error(params: Params, error: PenstockError | None) -> PenstockError | None:
    """Returns the SQS error for `error` of a ChangeMessageVisibility; None if there is no error."""
    if isinstance(error, NeverReceived):
        return SqsError(MESSAGE_NOT_IN_FLIGHT, "The message referred to isn't in flight.")
    if isinstance(error, AlreadyFinished):
        reason = "Message does not exist or is not available for visibility timeout change."
        return invalid_parameter("ReceiptHandle", params["ReceiptHandle"], reason)
    return _expired(params) if isinstance(error, NotHeld) else error


def _expired(params: Params) -> SqsError:
    """Returns the error for an expired receipt of a FIFO queue, or a receipt whose message was received again."""
    return invalid_parameter("ReceiptHandle", params["ReceiptHandle"], "The receipt handle has expired.")


async def acknowledge_batch(
    call: Call,
    read: Callable[[Queue, Params], MessageAck],
    explain: Callable[[Params, PenstockError | None], PenstockError | None],
) -> Result:
    """Acknowledges the messages of a batch request; each entry succeeds or fails on its own. `read` parses an
    entry; `explain` translates its error (None: no error)."""
    queue = call.queue()
    entries = read_entries(call.params, call.action)
    items, failures = dict[str, MessageAck](), {}
    for name, entry in entries.items():
        try:
            items[name] = read(queue, entry)
        except SqsError as error:
            if error.fault is SERIALIZATION:
                raise
            failures[name] = failed(name, error)
    successful = []
    refusals = await call.service.acknowledge(queue, list(items.values()))
    for name, refusal in zip(items, refusals, strict=True):
        shown_error = explain(entries[name], refusal) if refusal is not None else None
        if shown_error is None:
            successful.append({"Id": name})
        else:
            failures[name] = failed(name, shown_error)
    return result(successful, list(failures.values()))
