"""ChangeMessageVisibilityBatch: changes the visibility timeouts of up to ten messages."""

from penstock.sqs.acknowledgement import acknowledge_batch, renew_error, renewal
from penstock.sqs.call import Call, Result
from penstock.sqs.registry import action


@action("ChangeMessageVisibilityBatch", is_eager=True)
async def change_message_visibility_batch(call: Call) -> Result:
    return await acknowledge_batch(call, renewal, renew_error)
