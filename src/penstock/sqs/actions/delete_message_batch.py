"""DeleteMessageBatch: acknowledges up to ten received messages."""

from penstock.sqs.acknowledgement import acknowledge_batch, delete_entry_error, deletion
from penstock.sqs.call import Call, Result
from penstock.sqs.registry import action


@action("DeleteMessageBatch", is_eager=True)
async def delete_message_batch(call: Call) -> Result:
    return await acknowledge_batch(call, deletion, delete_entry_error)
