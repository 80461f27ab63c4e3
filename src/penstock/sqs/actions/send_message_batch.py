"""SendMessageBatch: sends up to ten messages to a queue; each succeeds or fails on its own."""

from collections.abc import Iterable

from penstock.cluster.queues import Queue
from penstock.foundation.errors import PenstockError
from penstock.sqs import errors
from penstock.sqs.batches import failed, read_entries, result
from penstock.sqs.call import Call, Result
from penstock.sqs.checks import Params
from penstock.sqs.errors import BATCH_TOO_LONG, SERIALIZATION, SqsError
from penstock.sqs.limits import BATCH_BYTES_MAX
from penstock.sqs.registry import action
from penstock.sqs.sent_message import MessageDraft, read_message, send_result, too_long
from penstock.sqs.topic_rights import check_writes


@action("SendMessageBatch", is_eager=True)
async def send_message_batch(call: Call) -> Result:
    queue = call.queue()
    if queue.is_attached:
        check_writes(call, [queue])
    entries = read_entries(call.params, call.action)
    if queue.settings.is_fifo:
        _check_fifo(queue, entries.values())
    drafts, failures, sender, trace = dict[str, MessageDraft](), {}, call.sender, call.trace
    for name, entry in entries.items():
        try:
            drafts[name] = read_message(queue, entry, sender, trace)
        except SqsError as error:
            if error.fault is SERIALIZATION:
                raise
            failures[name] = failed(name, error)
    _check_size(drafts.values())
    for name, draft in list(drafts.items()):
        refusal = too_long(queue, draft, "cannot be validated")
        if refusal is not None:
            failures[name] = failed(name, refusal)
            del drafts[name]
    successful = []
    results = await call.service.send(queue, [draft.message for draft in drafts.values()])
    for (name, draft), sent in zip(drafts.items(), results, strict=True):
        if isinstance(sent, PenstockError):
            failures[name] = failed(name, sent)
        else:
            successful.append({"Id": name, **send_result(queue, draft, sent)})
    return result(successful, list(failures.values()))


def _check_fifo(queue: Queue, entries: Iterable[Params]) -> None:
    """Raises an error for the whole batch if an entry for a FIFO queue has no message group or deduplication id."""
    for entry in entries:
        if entry.get("MessageGroupId") is None:
            raise errors.invalid_value("The request must contain the parameter MessageGroupId.")
        if entry.get("MessageDeduplicationId") is None and not queue.settings.content_based_deduplication:
            raise errors.invalid_value(
                "The queue should either have ContentBasedDeduplication enabled or MessageDeduplicationId provided "
                "explicitly"
            )


def _check_size(drafts: Iterable[MessageDraft]) -> None:
    size = sum(draft.size for draft in drafts)
    if size > BATCH_BYTES_MAX:
        raise SqsError(
            BATCH_TOO_LONG,
            f"Batch requests cannot be longer than {BATCH_BYTES_MAX} bytes. You have sent {size} bytes.",
        )
