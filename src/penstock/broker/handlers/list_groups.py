"""ListGroups: all groups whose coordinator is this broker, or an error if it does not know all of them."""

from typing import Any

from penstock.broker.broker import Broker
from penstock.broker.call import Call
from penstock.broker.coordinator_requests import ask_all
from penstock.broker.registry import handles
from penstock.foundation.errors import NotCoordinator, PenstockError
from penstock.wire.keys import ApiKey
from penstock.wire.messages.list_groups import ListGroupsRequest, ListGroupsResponse


@handles(ApiKey.LIST_GROUPS)
async def list_groups(request: ListGroupsRequest, call: Call, broker: Broker) -> ListGroupsResponse | None:
    try:
        broker.groups.check_loaded()
    except PenstockError as error:
        return _refused(error)
    runtimes = list(broker.groups.loaded.values())
    await ask_all(broker, runtimes, request, call, _refused, _merge)
    return None


def _refused(error: PenstockError) -> ListGroupsResponse:
    # Groups that have just gone to another broker are listed there.
    return ListGroupsResponse(error_code=0 if isinstance(error, NotCoordinator) else error.code, groups=())


def _merge(answers: list[Any]) -> ListGroupsResponse:
    """All or an error: a list that is not whole would be taken for one that is."""
    code = next((answer.error_code for answer in answers if answer.error_code), 0)
    groups = () if code else [group for answer in answers for group in answer.groups]
    return ListGroupsResponse(error_code=code, groups=groups)
