"""ListQueues: the queues whose names begin so, a page at a time."""

from penstock.sqs import checks
from penstock.sqs.call import Call, Result
from penstock.sqs.paging import page_of
from penstock.sqs.registry import action


@action("ListQueues")
def list_queues(call: Call) -> Result:
    prefix, queues = checks.maybe_text(call.params, "QueueNamePrefix") or "", call.service.queues()
    page = page_of((name for name in queues if name.startswith(prefix) and call.may_see(name)), call.params)
    found = {"QueueUrls": [call.url(queues[name]) for name in page.names]} if page.names else {}
    return {**found, "NextToken": page.next_token} if page.next_token else found
