"""DeleteGroups: groups without members, and their offsets. Each group is asked for at its own coordinator."""

from typing import Any

from penstock.broker.asking import ask_each
from penstock.broker.broker import Broker
from penstock.broker.call import Call
from penstock.broker.registry import handles
from penstock.foundation.errors import PenstockError
from penstock.wire.keys import ApiKey
from penstock.wire.messages.delete_groups import DeletableGroupResult, DeleteGroupsRequest, DeleteGroupsResponse


@handles(ApiKey.DELETE_GROUPS)
def delete_groups(request: DeleteGroupsRequest, call: Call, broker: Broker) -> None:
    names = dict.fromkeys(request.groups_names)
    parts = [(group_id, DeleteGroupsRequest(groups_names=(group_id,))) for group_id in names]
    ask_each(broker.groups, parts, call, _refused, _merge)


def _refused(part: DeleteGroupsRequest, error: PenstockError) -> DeleteGroupsResponse:
    (group_id,) = part.groups_names
    refused = DeletableGroupResult(group_id=group_id, error_code=error.code)
    return DeleteGroupsResponse(throttle_time_ms=0, results=(refused,))


def _merge(answers: list[Any]) -> DeleteGroupsResponse:
    results = [result for answer in answers for result in answer.results]
    return DeleteGroupsResponse(throttle_time_ms=0, results=results)
