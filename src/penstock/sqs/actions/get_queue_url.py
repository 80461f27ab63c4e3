"""GetQueueUrl: returns the URL of a queue by its name and, if another account owns it, that account's id."""

from penstock.sqs import checks, errors
from penstock.sqs.call import Call, Result
from penstock.sqs.namespaces import is_account
from penstock.sqs.registry import action


@action("GetQueueUrl", is_eager=True)
async def get_queue_url(call: Call) -> Result:
    name = checks.text(call.params, "QueueName")
    account = checks.maybe_text(call.params, "QueueOwnerAWSAccountId") or ""
    queue = call.queue_named(name, account if is_account(account) else "")
    if account and account not in (queue.owner, call.account(queue)):
        raise errors.UnknownQueue(queue.name)
    return {"QueueUrl": call.url(queue)}
