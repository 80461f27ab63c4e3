"""Rights on topics that SQS requests need: to attach a queue to a topic, and to write to a topic through a queue.

Access keys and policies decide about queues. A queue's own topic belongs to the queue; the topic of an attached queue
does not, so that its ACLs apply, if the cluster has an authorizer.
"""

from collections.abc import Iterable

from penstock.cluster.queues import Queue
from penstock.foundation.acls import Operation, ResourceType
from penstock.security.errors import AccessDenied
from penstock.sqs.call import Call


def check_read(call: Call, topic: str) -> None:
    """Raises AccessDenied if the caller may not read a topic, which need not exist."""
    _check(call, Operation.READ, topic)


def check_writes(call: Call, queues: Iterable[Queue]) -> None:
    """Raises AccessDenied if a queue is attached to a topic that the caller may not write to."""
    if call.endpoint.authorizer is None:
        return
    for queue in queues:
        topic = call.service.image.topics.get(queue.topic_id) if queue.is_attached else None
        if topic is not None:
            _check(call, Operation.WRITE, topic.name)


def _check(call: Call, operation: Operation, topic: str) -> None:
    authorizer = call.endpoint.authorizer
    if authorizer is None:
        return
    host = call.endpoint.proxies.client_host(call.request)
    if not authorizer.allows(call.principal, host, operation, ResourceType.TOPIC, topic):
        name = operation.name.lower()
        raise AccessDenied(
            f"User: {call.caller_name} is not authorized to perform: sqs:{call.action.lower()} because no ACL allows "
            f"{call.principal} to {name} topic {topic[:256]!r}",
            operation=name,
            topic=topic,
        )
