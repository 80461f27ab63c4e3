"""UntagQueue: removes tags of a queue."""

from penstock.sqs import checks, errors
from penstock.sqs.call import Call, Result
from penstock.sqs.registry import action


@action("UntagQueue")
async def untag_queue(call: Call) -> Result:
    queue, keys = call.queue(), checks.texts(call.params, "TagKeys")
    if not keys:
        raise errors.missing("TagKeys")
    await call.service.tag(queue.name, {}, keys)
    return None
