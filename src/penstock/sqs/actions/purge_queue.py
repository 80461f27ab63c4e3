"""PurgeQueue: all messages of a queue go, and the queue stays. It is done at once, and may be done again."""

from penstock.sqs.call import Call, Result
from penstock.sqs.registry import action


@action("PurgeQueue")
async def purge_queue(call: Call) -> Result:
    await call.service.purge(call.queue().name)
    return None
