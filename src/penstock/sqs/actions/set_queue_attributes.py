"""SetQueueAttributes: changes the attributes of a queue."""

from penstock.cluster.queues import QueueSettings
from penstock.sqs import checks, errors
from penstock.sqs.attributes import changed
from penstock.sqs.call import Call, Result
from penstock.sqs.redrive_policy import check_redrive
from penstock.sqs.registry import action


@action("SetQueueAttributes")
async def set_queue_attributes(call: Call) -> Result:
    queue, attributes = call.queue(), checks.text_map(call.params, "Attributes")
    if not attributes:
        raise errors.missing("Attribute.Name")

    def change(settings: QueueSettings) -> QueueSettings:
        return changed(settings, attributes, call.full_name_in_arn)

    after = change(queue.settings)
    if after.redrive != queue.settings.redrive:
        check_redrive(call, queue.name, after, attributes.get("RedrivePolicy", ""))
    await call.service.alter(queue.name, change)
    return None
