"""ListDeadLetterSourceQueues: the queues whose dead letters come to this one, a page at a time."""

from penstock.sqs.call import Call, Result
from penstock.sqs.paging import page_of
from penstock.sqs.redriving import sources_of
from penstock.sqs.registry import action


@action("ListDeadLetterSourceQueues")
def list_dead_letter_source_queues(call: Call) -> Result:
    queues = call.service.queues()
    page = page_of(filter(call.may_see, sources_of(call, call.queue().name)), call.params)
    # The one member of the API whose name begins with a small letter.
    found = {"queueUrls": [call.url(queues[name]) for name in page.names]}
    return {**found, "NextToken": page.next_token} if page.next_token else found
