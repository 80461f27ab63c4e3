"""ListGroups: lists all groups whose coordinator is this broker; fails while any coordinator is still loading."""

from functools import partial
from typing import Any

from penstock.broker.broker import Broker
from penstock.broker.call import Call
from penstock.broker.coordinator_requests import ask_all
from penstock.broker.registry import handles
from penstock.foundation.acls import Operation, ResourceType
from penstock.foundation.errors import NotCoordinator, PenstockError
from penstock.wire.keys import ApiKey
from penstock.wire.messages.list_groups import ListGroupsRequest, ListGroupsResponse


@handles(ApiKey.LIST_GROUPS)
async def list_groups(request: ListGroupsRequest, call: Call, broker: Broker) -> ListGroupsResponse | None:
    try:
        broker.groups.check_loaded()
    except PenstockError as error:
        return _error_response(error)
    runtimes = list(broker.groups.loaded.values())
    await ask_all(broker, runtimes, request, call, _error_response, partial(_merge, call))
    return None


def _error_response(error: PenstockError) -> ListGroupsResponse:
    # Groups that have just moved to another broker are listed there.
    return ListGroupsResponse(error_code=0 if isinstance(error, NotCoordinator) else error.code, groups=())


def _merge(call: Call, answers: list[Any]) -> ListGroupsResponse:
    """Returns all groups; an error if any reply is an error, since clients would take a partial list for complete."""
    code = next((answer.error_code for answer in answers if answer.error_code), 0)
    groups = (
        () if code else [group for answer in answers for group in answer.groups if _is_shown(group.group_id, call)]
    )
    return ListGroupsResponse(error_code=code, groups=groups)


def _is_shown(group_id: str, call: Call) -> bool:
    """Whether the client may know that the group exists."""
    if call.allows_in_cluster(Operation.DESCRIBE, audited=False):
        return True
    return call.allows(Operation.DESCRIBE, ResourceType.GROUP, group_id, audited=False)
