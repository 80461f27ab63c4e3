"""DeleteGroups: deletes groups that have no members, with their offsets, at the coordinator of each group."""

import asyncio
from typing import Any

from penstock.broker.broker import Broker
from penstock.broker.call import Call
from penstock.broker.coordinator_requests import ask_each
from penstock.broker.registry import handles
from penstock.foundation.acls import Operation, ResourceType
from penstock.foundation.errors import PenstockError
from penstock.groups.commands import RemoveOffsets
from penstock.wire.keys import ApiKey
from penstock.wire.messages.delete_groups import DeletableGroupResult, DeleteGroupsRequest, DeleteGroupsResponse


@handles(ApiKey.DELETE_GROUPS)
async def delete_groups(request: DeleteGroupsRequest, call: Call, broker: Broker) -> None:
    names = dict.fromkeys(request.groups_names)
    parts = [(group_id, DeleteGroupsRequest(groups_names=(group_id,))) for group_id in names]
    for group_id in names:
        if call.allows(Operation.DELETE, ResourceType.GROUP, group_id):
            await _remove_offsets(broker, group_id)
    asked = ask_each(broker, broker.groups, parts, Operation.DELETE, call, _error_response, _merge)
    if asked is not None:
        await asked


async def _remove_offsets(broker: Broker, group_id: str) -> None:
    """Removes a group's offsets, of which there may be very many, in several batches before the group is deleted."""
    reply: Any = 1
    while isinstance(reply, int) and reply:
        answered: asyncio.Future[Any] = asyncio.get_running_loop().create_future()
        async with broker.slices:
            broker.groups.submit(group_id, RemoveOffsets(group_id=group_id), answered.set_result)
        reply = await answered  # on an error, stop: deleting the group returns the same error


def _error_response(part: DeleteGroupsRequest, error: PenstockError) -> DeleteGroupsResponse:
    (group_id,) = part.groups_names
    result = DeletableGroupResult(group_id=group_id, error_code=error.code, error_message=error.message)
    return DeleteGroupsResponse(throttle_time_ms=0, results=(result,))


def _merge(answers: list[Any]) -> DeleteGroupsResponse:
    results = [result for answer in answers for result in answer.results]
    return DeleteGroupsResponse(throttle_time_ms=0, results=results)
