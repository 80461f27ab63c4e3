"""ListQueues: lists the queues of the caller's account by name prefix, with pagination."""

from penstock.cluster.image import ClusterImage
from penstock.foundation.steps import Steps
from penstock.sqs import checks
from penstock.sqs.call import Call, Result
from penstock.sqs.pagination import NAMES_PER_STEP, Page, page_of, page_steps
from penstock.sqs.registry import action


@action("ListQueues", is_eager=True)
async def list_queues(call: Call) -> Result:
    prefix, image = checks.maybe_text(call.params, "QueueNamePrefix") or "", call.service.image
    if len(image.queues) > NAMES_PER_STEP:
        return await call.slices.run(_list_steps(call, image, prefix))
    listed = (call.listed_name(queue) for queue in image.queues.values() if queue.topic_id in image.topics)
    return _result(call, page_of([name for name in listed if name and name.startswith(prefix)], call.params))


def _list_steps(call: Call, image: ClusterImage, prefix: str) -> Steps[Result]:
    names = (call.listed_name(queue) if queue.topic_id in image.topics else "" for queue in image.queues.values())
    page = yield from page_steps(names, lambda name: bool(name) and name.startswith(prefix), call.params)
    return _result(call, page)


def _result(call: Call, page: Page) -> Result:
    account = call.account(None)
    found = {"QueueUrls": [call.url_of(name, account) for name in page.names]} if page.names else {}
    return {**found, "NextToken": page.next_token} if page.next_token else found
