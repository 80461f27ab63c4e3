"""ListQueues: the queues whose names begin so, a page at a time."""

from penstock.cluster.image import ClusterImage
from penstock.foundation.steps import Steps
from penstock.sqs import checks
from penstock.sqs.call import Call, Outcome, Result
from penstock.sqs.paging import NAMES_PER_STEP, Page, page_of, page_steps
from penstock.sqs.registry import action


@action("ListQueues")
def list_queues(call: Call) -> Outcome:
    prefix, image = checks.maybe_text(call.params, "QueueNamePrefix") or "", call.service.image
    if len(image.queues) > NAMES_PER_STEP:
        return call.slices.run(_list_steps(call, image, prefix))
    names = [name for name in image.queues if _is_listed(call, image, prefix, name)]
    return _result(call, image, page_of(names, call.params))


def _list_steps(call: Call, image: ClusterImage, prefix: str) -> Steps[Result]:
    page = yield from page_steps(image.queues, lambda name: _is_listed(call, image, prefix, name), call.params)
    return _result(call, image, page)


def _is_listed(call: Call, image: ClusterImage, prefix: str, name: str) -> bool:
    return name.startswith(prefix) and image.queues[name].topic_id in image.topics and call.may_see(name)


def _result(call: Call, image: ClusterImage, page: Page) -> Result:
    found = {"QueueUrls": [call.url(image.queues[name]) for name in page.names]} if page.names else {}
    return {**found, "NextToken": page.next_token} if page.next_token else found
