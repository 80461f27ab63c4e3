"""Checks of a RedrivePolicy: whether a source queue may use the named queue as its dead-letter queue."""

import json
from typing import Final

from penstock.cluster.queues import QueueSettings
from penstock.sqs import errors
from penstock.sqs.call import Call
from penstock.sqs.errors import SqsError
from penstock.sqs.namespaces import Namespace
from penstock.sqs.queue_names import parts_of_arn
from penstock.sqs.topic_rights import check_writes

SHOWN_CHARS_MAX: Final = 1000


def check_redrive(call: Call, name: str, settings: QueueSettings, policy: str) -> None:
    """Raises InvalidParameterValue if queue `name` may not use the dead-letter queue in `settings`: it must exist,
    have the same account, region and type, and allow this source. Raises AccessDenied if the caller may not write to
    it. `policy`: text of the RedrivePolicy, for errors."""
    if settings.redrive is None:
        return

    def refusal(reason: str) -> SqsError:
        return errors.invalid_parameter("RedrivePolicy", policy[:SHOWN_CHARS_MAX], reason)

    own, space = call.space, _target_space(call, policy)
    if call.caller is not None and space.owner != own.owner:
        raise refusal("Dead-letter target owner should be same as the source.")
    if space.region != own.region:
        raise refusal("Dead-letter target must be in same region as the source.")
    call.check_access(space.local(settings.redrive.queue))
    target = call.service.queue(settings.redrive.queue)
    if target is None:
        shown_error = refusal("Dead letter target does not exist.")
        raise errors.UnknownQueue(settings.redrive.queue, shown_error.fault, shown_error.message)
    if target.name == name:
        raise refusal("A queue cannot be its own dead letter target.")
    if target.settings.is_fifo != settings.is_fifo:
        raise refusal("Dead-letter queue must be same type of queue as the source.")
    if not target.settings.redrive_allow.allows(name):
        raise refusal("Queue does not have permission to use this dead letter target.")
    check_writes(call, [target])


def _target_space(call: Call, policy: str) -> Namespace:
    """Returns the namespace of the dead-letter queue in a RedrivePolicy that was already checked."""
    parts = parts_of_arn(json.loads(policy)["deadLetterTargetArn"])
    return call.space if parts is None else call.space_in_arn(parts)
