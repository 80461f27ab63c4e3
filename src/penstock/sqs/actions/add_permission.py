"""AddPermission: allows other accounts to use a queue, by adding a statement to its Policy."""

from dataclasses import replace

from penstock.cluster.queues import QueueSettings
from penstock.sqs import checks, errors
from penstock.sqs.call import Call, Result
from penstock.sqs.permissions import POLICY, check_actions, check_label, principals_of, with_statement
from penstock.sqs.registry import ACTIONS, action


@action("AddPermission")
async def add_permission(call: Call) -> Result:
    queue = call.queue()
    label = check_label(checks.text(call.params, "Label"))
    if call.params.get("AWSAccountIds") is None:
        raise errors.missing("PrincipalId")  # AWS's name for it
    actions = checks.texts(call.params, "Actions")
    check_actions(actions, list(ACTIONS))
    principals = principals_of(checks.texts(call.params, "AWSAccountIds"))
    arn = call.arn(queue.name)

    def change(settings: QueueSettings) -> QueueSettings:
        policy = with_statement(settings.others.get(POLICY, ""), arn, label, principals, actions)
        return replace(settings, others={**settings.others, POLICY: policy})

    await call.service.alter(queue.name, change)
    return None
