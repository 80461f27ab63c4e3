"""Permissions that a client needs for a whole request: declared with the handler, and checked before it is called.

Requests about several resources are answered item by item: their handlers check each item with `Call.check`.
"""

from collections.abc import Callable, Iterable
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Final, TypeVar

from penstock.broker.call import Call
from penstock.foundation.acls import CLUSTER_NAME, Operation, ResourceType
from penstock.foundation.errors import NotAuthorized
from penstock.wire.keys import ApiKey
from penstock.wire.schema import RESPONSES, fields_of

if TYPE_CHECKING:
    from penstock.broker.broker import Broker


T = TypeVar("T")
Refusal = Callable[[NotAuthorized], Any]
"""Type of functions that build the response to a request that the client may not make."""

_CODE: Final = "error_code"
_MESSAGE: Final = "error_message"


@dataclass(frozen=True, slots=True, kw_only=True)
class Need:
    """A permission for one operation on the resource that a field of the request names, or on the cluster."""

    operation: Operation
    resource_type: ResourceType = ResourceType.CLUSTER
    field: str = ""

    def check(self, request: Any, call: Call) -> None:
        """Raises NotAuthorized if the client may not make the request."""
        name = getattr(request, self.field) if self.field else CLUSTER_NAME
        call.check(self.operation, self.resource_type, name or "")


def in_cluster(operation: Operation) -> Need:
    return Need(operation=operation)


CLUSTER_ACTION: Final = in_cluster(Operation.CLUSTER_ACTION)
"""The permission of brokers."""
READ_GROUP: Final = Need(operation=Operation.READ, resource_type=ResourceType.GROUP, field="group_id")
DELETE_GROUP: Final = Need(operation=Operation.DELETE, resource_type=ResourceType.GROUP, field="group_id")
WRITE_IN_TRANSACTION: Final = Need(
    operation=Operation.WRITE, resource_type=ResourceType.TRANSACTIONAL_ID, field="transactional_id"
)


def refusal_of(key: ApiKey) -> Refusal:
    """Returns the function that builds a response with the error as that of the whole request."""
    response = RESPONSES[key]
    fields = fields_of(response)
    names = {field.name for field in fields}
    if _CODE not in names:
        raise TypeError(f"{response.__name__} has no {_CODE}: give `refuse`")
    empty = {
        field.name: None if field.ever_null else field.initial
        for field in fields
        if field.required and field.name != _CODE
    }
    has_message = _MESSAGE in names

    def refuse(error: NotAuthorized) -> Any:
        message = {_MESSAGE: error.message} if has_message else {}
        return response(**(empty | message), error_code=error.code)

    return refuse


def split_topics(
    topics: Iterable[T], operation: Operation, call: Call, broker: "Broker", *, audited: bool = True
) -> tuple[list[T], list[T]]:
    """Returns the requested topics for which the client may do the operation, and the others. `audited`: whether the
    client has named them."""
    allowed: list[T] = []
    denied: list[T] = []
    for topic in topics:
        (allowed if allows_topic(topic, operation, call, broker, audited=audited) else denied).append(topic)
    return allowed, denied


def allows_topic(topic: Any, operation: Operation, call: Call, broker: "Broker", *, audited: bool = True) -> bool:
    """Whether the client may do the operation with a topic of a request or response, which has a name or, in newer
    versions, an id. If there is no topic with the id, it may: the answer tells no more than that."""
    name = topic.name
    if not name and call.authorizer is not None:
        known = broker.image.shown.get(topic.topic_id)
        name = "" if known is None else known.name
    return not name or call.allows(operation, ResourceType.TOPIC, name, audited=audited)


def hidden_topic(names: Iterable[str], call: Call) -> NotAuthorized | None:
    """Returns the error for the first topic that the client may not know, None if there is none."""
    try:
        for name in names if call.authorizer is not None else ():
            call.check(Operation.DESCRIBE, ResourceType.TOPIC, name)
    except NotAuthorized as error:
        return error
    return None
