"""ListQueueTags: returns the tags of a queue."""

from penstock.sqs.call import Call, Result
from penstock.sqs.registry import action


@action("ListQueueTags", is_eager=True)
async def list_queue_tags(call: Call) -> Result:
    tags = dict(call.queue().tags)
    return {"Tags": tags} if tags else {}
