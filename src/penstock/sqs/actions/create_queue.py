"""CreateQueue: creates a queue, or returns the existing one if its attributes are the same."""

import re
from collections.abc import Mapping
from typing import Final

from penstock.cluster.queue_cooldowns import DELETED
from penstock.cluster.queues import Queue, QueueExists, QueueSettings
from penstock.security.errors import AccessDenied
from penstock.sqs import checks
from penstock.sqs.attributes import new_settings, shown
from penstock.sqs.call import Call, Result
from penstock.sqs.errors import QUEUE_DELETED_RECENTLY, QUEUE_NAME_EXISTS, SqsError
from penstock.sqs.queue_names import ACCOUNT, check_name
from penstock.sqs.redrive_policy import check_redrive
from penstock.sqs.registry import action
from penstock.sqs.tags import check_tags
from penstock.sqs.topic_rights import check_read

ACCOUNT_PREFIX: Final = re.compile(r"(?:[a-z][a-z0-9-]*\.)?[0-9]{12}\.")
TOPIC: Final = "PenstockTopic"
"""Penstock's own queue attribute: the existing topic that the queue is attached to."""


@action("CreateQueue")
async def create_queue(call: Call) -> Result:
    name = checks.text(call.params, "QueueName")
    attributes = dict(checks.text_map(call.params, "Attributes"))
    topic = attributes.pop(TOPIC, None)
    settings = new_settings(attributes, call.full_name_in_arn)
    check_name(name, settings.is_fifo)
    call.check_access(name)
    tags = checks.text_map(call.params, "tags") or checks.text_map(call.params, "Tags")
    check_tags(tags)
    full = call.space.full(name)
    check_redrive(call, full, settings, attributes.get("RedrivePolicy", ""))
    _check_topic(call, topic)
    found = call.find(name)
    if found is None:
        await _check_name_is_free(call, full)
        try:
            return {"QueueUrl": call.url(await call.service.create(full, settings, tags, call.owner, topic))}
        except QueueExists:  # created concurrently
            found = call.find(name)
            if found is None:
                raise
    _check_same(found, settings, attributes)
    return {"QueueUrl": call.url(found)}


def _check_topic(call: Call, topic: str | None) -> None:
    """Raises AccessDenied if the caller may not read the topic to which the queue shall be attached, or if the topic
    belongs to another account, since the queue's owner could read it. A topic whose name starts with an account id
    belongs to that account, any other topic to the default account."""
    if topic is None:
        return
    check_read(call, topic)
    if call.caller is None:
        return
    own = call.space
    is_own = topic.startswith(own.prefix) if own.owner != ACCOUNT else not ACCOUNT_PREFIX.match(topic)
    queue = call.service.queue(topic)
    if not is_own or (queue is not None and not own.has(queue, call.endpoint.account)):
        raise AccessDenied(
            f"User: {call.caller.access_key} is not authorized to attach a queue to topic {topic[:256]!r}, which is "
            "not of its account"
        )


async def _check_name_is_free(call: Call, name: str) -> None:
    """Raises QueueDeletedRecently if a queue of this name was deleted less than 60 s ago, and `sqs.limits=strict`."""
    if call.endpoint.is_strict() and not await call.service.cooldowns.is_over(DELETED, name):
        raise SqsError(
            QUEUE_DELETED_RECENTLY,
            "You must wait 60 seconds after deleting a queue before you can create another with the same name.",
        )


def _check_same(found: Queue, settings: QueueSettings, attributes: Mapping[str, str]) -> None:
    """Raises QueueNameExists if an attribute in the request differs from the same attribute of the existing queue."""
    there, wanted = shown(found.settings, str), shown(settings, str)
    for name in attributes:
        if there.get(name) != wanted.get(name):
            raise SqsError(
                QUEUE_NAME_EXISTS,
                f"A queue already exists with the same name and a different value for attribute {name}",
            )
