"""ListDeadLetterSourceQueues: lists the queues that have a given queue as their dead-letter queue."""

from penstock.cluster.queues import Queue
from penstock.sqs.call import Call, Result
from penstock.sqs.pagination import page_steps
from penstock.sqs.registry import action


@action("ListDeadLetterSourceQueues")
async def list_dead_letter_source_queues(call: Call) -> Result:
    target, image = call.queue(), call.service.image
    space = call.space_of(target)

    def name_of(queue: Queue) -> str:
        """Returns a source queue's name without account; "" if it is no source queue or the caller may not use it."""
        redrive = queue.settings.redrive
        if redrive is None or redrive.queue != target.name or queue.topic_id not in image.topics:
            return ""
        name = space.local(queue.name)
        return name if call.caller is None or call.caller.may_use(name) else ""

    page = await call.slices.run(page_steps(map(name_of, image.queues.values()), bool, call.params))
    account = call.account(target)
    # The only member of the API that starts with a lowercase letter.
    found = {"queueUrls": [call.url_of(name, account) for name in page.names]}
    return {**found, "NextToken": page.next_token} if page.next_token else found
