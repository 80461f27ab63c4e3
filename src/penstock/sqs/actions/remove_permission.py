"""RemovePermission: removes a statement that AddPermission has added to the queue's Policy."""

from dataclasses import replace

from penstock.cluster.queues import QueueSettings
from penstock.sqs import checks
from penstock.sqs.call import Call, Result
from penstock.sqs.permissions import POLICY, check_label, without_statement
from penstock.sqs.registry import action


@action("RemovePermission")
async def remove_permission(call: Call) -> Result:
    queue, label = call.queue(), check_label(checks.text(call.params, "Label"))

    def change(settings: QueueSettings) -> QueueSettings:
        policy = without_statement(settings.others.get(POLICY, ""), label)
        others = {**settings.others, POLICY: policy}
        return replace(settings, others={name: value for name, value in others.items() if value})

    await call.service.alter(queue.name, change)
    return None
