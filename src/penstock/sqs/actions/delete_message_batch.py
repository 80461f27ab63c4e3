"""DeleteMessageBatch: acknowledges up to ten received messages."""

from penstock.sqs.acknowledgement import acknowledge_batch, delete_entry_error, deletion
from penstock.sqs.call import Call, Outcome
from penstock.sqs.registry import action


@action("DeleteMessageBatch")
def delete_message_batch(call: Call) -> Outcome:
    return acknowledge_batch(call, deletion, delete_entry_error)
