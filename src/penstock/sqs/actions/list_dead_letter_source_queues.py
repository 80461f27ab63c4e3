"""ListDeadLetterSourceQueues: the queues whose dead letters come to this one, a page at a time."""

from penstock.sqs.call import Call, Result
from penstock.sqs.paging import page_steps
from penstock.sqs.registry import action


@action("ListDeadLetterSourceQueues")
async def list_dead_letter_source_queues(call: Call) -> Result:
    target, image = call.queue().name, call.service.image

    def is_wanted(name: str) -> bool:
        queue = image.queues[name]
        redrive = queue.settings.redrive
        return (
            redrive is not None and redrive.queue == target and queue.topic_id in image.topics and call.may_see(name)
        )

    page = await call.slices.run(page_steps(image.queues, is_wanted, call.params))
    # The one member of the API whose name begins with a small letter.
    found = {"queueUrls": [call.url(image.queues[name]) for name in page.names]}
    return {**found, "NextToken": page.next_token} if page.next_token else found
