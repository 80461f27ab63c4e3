"""DeleteMessageBatch: up to ten messages are finished."""

from penstock.sqs.call import Call, Outcome
from penstock.sqs.registry import action
from penstock.sqs.settling import delete_entry_error, deletion, settle_batch


@action("DeleteMessageBatch")
def delete_message_batch(call: Call) -> Outcome:
    return settle_batch(call, deletion, delete_entry_error)
