"""GetQueueUrl: where a queue is, by its name."""

from penstock.sqs import checks, errors
from penstock.sqs.call import Call, Result
from penstock.sqs.registry import action


@action("GetQueueUrl")
def get_queue_url(call: Call) -> Result:
    queue = call.queue_named(checks.text(call.params, "QueueName"))
    owner = checks.maybe_text(call.params, "QueueOwnerAWSAccountId")
    if owner and owner not in (queue.owner, call.account(queue)):
        raise errors.UnknownQueue(queue.name)
    return {"QueueUrl": call.url(queue)}
