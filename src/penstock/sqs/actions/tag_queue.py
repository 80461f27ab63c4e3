"""TagQueue: adds or replaces tags of a queue."""

from penstock.sqs import checks, errors
from penstock.sqs.call import Call, Result
from penstock.sqs.registry import action
from penstock.sqs.tags import check_tags


@action("TagQueue")
async def tag_queue(call: Call) -> Result:
    queue, tags = call.queue(), checks.text_map(call.params, "Tags")
    if not tags:
        raise errors.missing("Tags")
    check_tags(tags, queue.tags)
    await call.service.tag(queue.name, tags, ())
    return None
