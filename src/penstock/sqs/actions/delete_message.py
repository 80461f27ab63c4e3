"""DeleteMessage: acknowledges a received message."""

from penstock.sqs.acknowledgement import delete_error, deletion
from penstock.sqs.call import Call, Result
from penstock.sqs.registry import action


@action("DeleteMessage", is_eager=True)
async def delete_message(call: Call) -> Result:
    queue = call.queue()
    (refusal,) = await call.service.acknowledge(queue, (deletion(queue, call.params),))
    error = delete_error(call.params, refusal)
    if error is not None:
        raise error
    return None
