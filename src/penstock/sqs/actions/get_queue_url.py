"""GetQueueUrl: where a queue is, by its name."""

from penstock.sqs import checks, errors
from penstock.sqs.call import Call, Result
from penstock.sqs.naming import account_of
from penstock.sqs.registry import action


@action("GetQueueUrl")
def get_queue_url(call: Call) -> Result:
    queue = call.queue_named(checks.text(call.params, "QueueName"))
    owner = checks.maybe_text(call.params, "QueueOwnerAWSAccountId")
    if owner and owner not in (queue.owner, account_of(queue.owner)):
        raise errors.UnknownQueue(queue.name)
    return {"QueueUrl": call.url(queue)}
