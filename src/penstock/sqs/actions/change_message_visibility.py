"""ChangeMessageVisibility: extends the visibility timeout of a message, or makes it visible at once."""

from penstock.sqs.acknowledgement import renew_error, renewal
from penstock.sqs.call import Call, Result
from penstock.sqs.registry import action


@action("ChangeMessageVisibility", is_eager=True)
async def change_message_visibility(call: Call) -> Result:
    queue = call.queue()
    (refusal,) = await call.service.acknowledge(queue, (renewal(queue, call.params),))
    error = renew_error(call.params, refusal)
    if error is not None:
        raise error
    return None
