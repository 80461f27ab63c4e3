"""PurgeQueue: deletes all messages of a queue before it responds.

With `sqs.limits=strict`, a second purge within 60 seconds is refused, as on AWS.
"""

from penstock.cluster.queue_cooldowns import PURGED
from penstock.sqs.call import Call, Result
from penstock.sqs.errors import PURGE_IN_PROGRESS, SqsError
from penstock.sqs.registry import action


@action("PurgeQueue")
async def purge_queue(call: Call) -> Result:
    queue, cooldowns = call.queue(), call.service.cooldowns
    name = queue.name
    is_strict = call.endpoint.is_strict()
    if is_strict and not await cooldowns.is_over(PURGED, name):
        own = call.space_of(queue).local(name)
        raise SqsError(PURGE_IN_PROGRESS, f"Only one PurgeQueue operation on {own} is allowed every 60 seconds.")
    await call.service.purge(name)
    if is_strict:
        await cooldowns.begin(PURGED, name)
    return None
