"""FindCoordinator: returns the coordinator of a group or a transactional id; creates the internal topic if needed."""

from collections.abc import Awaitable, Sequence
from typing import Final

from penstock.broker.broker import Broker
from penstock.broker.call import Call
from penstock.broker.internal_topics import create_internal_topic
from penstock.broker.registry import handles
from penstock.cluster.image import NO_LEADER
from penstock.foundation.acls import Operation, ResourceType
from penstock.foundation.codes import ErrorCode
from penstock.foundation.errors import CoordinatorNotAvailable, InvalidRequest, NotAuthorized, PenstockError
from penstock.replication.runtimes import StateRuntimes
from penstock.wire.keys import ApiKey
from penstock.wire.messages.find_coordinator import Coordinator, FindCoordinatorRequest, FindCoordinatorResponse

GROUP: Final = 0
TRANSACTION: Final = 1
_RESOURCE_TYPES: Final = {GROUP: ResourceType.GROUP, TRANSACTION: ResourceType.TRANSACTIONAL_ID}
BATCHED_FROM: Final = 4
"""First FindCoordinator version whose requests may have several keys (KIP-699)."""


@handles(ApiKey.FIND_COORDINATOR)
def find_coordinator(
    request: FindCoordinatorRequest, call: Call, broker: Broker
) -> FindCoordinatorResponse | Awaitable[FindCoordinatorResponse]:
    keys = request.coordinator_keys if call.version >= BATCHED_FROM else (request.key,)
    try:
        runtimes = _runtimes(request.key_type, broker)
    except InvalidRequest as error:
        return _response([_error_result(key, error) for key in keys], call.version)
    # During creation, a coordinator that is not loaded yet would refuse the next request, which some clients give up.
    if runtimes.topic in broker.image.by_name and not broker.internal_topic_locks[runtimes.topic].locked():
        return _response([_find(key, request.key_type, runtimes, call, broker) for key in keys], call.version)
    if not any(_may_find(key, request.key_type, call) for key in keys):
        return _response([_find(key, request.key_type, runtimes, call, broker) for key in keys], call.version)
    return _create_then_find(keys, request.key_type, runtimes, call, broker)


def _runtimes(key_type: int, broker: Broker) -> StateRuntimes:
    if key_type == GROUP:
        return broker.groups
    if key_type == TRANSACTION:
        return broker.transactions
    raise InvalidRequest(
        f"key type {key_type} is not served; expected {GROUP} (group) or {TRANSACTION} (transaction)"
    )


async def _create_then_find(
    keys: Sequence[str], key_type: int, runtimes: StateRuntimes, call: Call, broker: Broker
) -> FindCoordinatorResponse:
    try:
        await create_internal_topic(runtimes.topic, broker)
    except PenstockError as error:
        unavailable = CoordinatorNotAvailable(f"{runtimes.topic} cannot be created: {error}")
        return _response([_error_result(key, unavailable) for key in keys], call.version)
    return _response([_find(key, key_type, runtimes, call, broker) for key in keys], call.version)


def _may_find(key: str, key_type: int, call: Call) -> bool:
    return call.allows(Operation.DESCRIBE, _RESOURCE_TYPES[key_type], key)


def _find(key: str, key_type: int, runtimes: StateRuntimes, call: Call, broker: Broker) -> Coordinator:
    if not _may_find(key, key_type, call):
        return _error_result(
            key, NotAuthorized.of(call.principal, Operation.DESCRIBE, _RESOURCE_TYPES[key_type], key)
        )
    node = broker.leader_of(runtimes, key)
    if node == NO_LEADER:
        why = f"{runtimes.topic}-{runtimes.partition_of(key)} has no leader; try again"
        return _error_result(key, CoordinatorNotAvailable(why))
    at = broker.image.brokers[node].endpoint(call.listener)
    if at is None:
        why = f"broker {node}, the coordinator, does not advertise listener {call.listener}; use another listener"
        return _error_result(key, CoordinatorNotAvailable(why))
    return Coordinator(key=key, node_id=node, host=at.host, port=at.port, error_code=0, error_message=None)


def _error_result(key: str, error: PenstockError) -> Coordinator:
    return Coordinator(key=key, node_id=-1, host="", port=-1, error_code=error.code, error_message=error.message)


def _response(found: list[Coordinator], version: int) -> FindCoordinatorResponse:
    if version >= BATCHED_FROM:
        return FindCoordinatorResponse(coordinators=found)
    (only,) = found
    return FindCoordinatorResponse(
        error_code=only.error_code,
        error_message=only.error_message if only.error_code else ErrorCode.NONE.name,
        node_id=only.node_id,
        host=only.host,
        port=only.port,
    )
