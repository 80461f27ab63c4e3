"""DeleteQueue: a queue goes, with all that is in it."""

from penstock.sqs.call import Call, Result
from penstock.sqs.registry import action


@action("DeleteQueue")
async def delete_queue(call: Call) -> Result:
    await call.service.delete(call.queue().name)
    return None
