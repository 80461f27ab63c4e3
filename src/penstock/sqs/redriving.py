"""Dead letters: which queues may have which as their dead-letter queue."""

from penstock.cluster.queues import QueueSettings
from penstock.sqs import errors
from penstock.sqs.call import Call


def check_redrive(call: Call, name: str, settings: QueueSettings) -> None:
    """Refuse a RedrivePolicy whose dead-letter queue is not there, is of another kind, or does not want it."""
    if settings.redrive is None:
        return
    target = call.service.queue(settings.redrive.queue)
    if target is None:
        name = settings.redrive.queue
        told = errors.invalid_parameter("RedrivePolicy", name, "Dead letter target does not exist.")
        raise errors.UnknownQueue(name, told.fault, told.message)
    if target.name == name:
        raise errors.invalid_parameter("RedrivePolicy", name, "A queue cannot be its own dead letter target.")
    if target.settings.is_fifo != settings.is_fifo:
        reason = "Dead-letter queue must be same type of queue as the source."
        raise errors.invalid_parameter("RedrivePolicy", target.name, reason)
    if not target.settings.redrive_allow.allows(name):
        reason = "Queue does not have permission to use this dead letter target."
        raise errors.invalid_parameter("RedrivePolicy", target.name, reason)


def has_sources(call: Call, name: str) -> bool:
    """Whether dead letters of any queue come to a queue."""
    image = call.service.image
    return any(
        queue.settings.redrive is not None and queue.settings.redrive.queue == name and queue.topic_id in image.topics
        for queue in image.queues.values()
    )
