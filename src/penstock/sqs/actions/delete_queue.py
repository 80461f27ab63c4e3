"""DeleteQueue: deletes a queue and its messages. With `sqs.limits=strict` its name is blocked for 60 seconds."""

from penstock.cluster.queue_cooldowns import DELETED
from penstock.sqs.call import Call, Result
from penstock.sqs.registry import action


@action("DeleteQueue")
async def delete_queue(call: Call) -> Result:
    name = call.queue().name
    await call.service.delete(name)
    if call.endpoint.is_strict():
        await call.service.cooldowns.begin(DELETED, name)
    return None
