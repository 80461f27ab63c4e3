"""ListConfigResources (KIP-1142): lists resources that have, or can have, settings."""

from collections.abc import Awaitable, Sequence
from typing import Final

from penstock.broker.broker import Broker
from penstock.broker.call import Call
from penstock.broker.config_admin import Resource
from penstock.broker.permissions import in_cluster
from penstock.broker.registry import handles
from penstock.broker.sliced_answers import make_answer, with_breaks
from penstock.foundation.acls import Operation
from penstock.foundation.codes import ErrorCode
from penstock.foundation.steps import Steps
from penstock.wire.keys import ApiKey
from penstock.wire.messages.list_config_resources import (
    ListConfigResourcesRequest,
    ListConfigResourcesResponse,
    ListedConfigResource,
)

BROKER_LOGGER: Final = 8
_KINDS: Final = frozenset({Resource.TOPIC, Resource.BROKER, BROKER_LOGGER, Resource.CLIENT_METRICS, Resource.GROUP})


@handles(ApiKey.LIST_CONFIG_RESOURCES, in_cluster(Operation.DESCRIBE_CONFIGS))
def list_config_resources(
    request: ListConfigResourcesRequest, call: Call, broker: Broker
) -> ListConfigResourcesResponse | Awaitable[ListConfigResourcesResponse]:
    wanted = set(request.resource_types) or ({Resource.CLIENT_METRICS} if call.version == 0 else _KINDS)
    if not wanted <= _KINDS:
        return ListConfigResourcesResponse(
            throttle_time_ms=0, error_code=ErrorCode.UNSUPPORTED_VERSION, config_resources=[]
        )
    return make_answer(broker, len(broker.image.topics), _list(sorted(wanted), broker))


def _list(wanted: Sequence[int], broker: Broker) -> Steps[ListConfigResourcesResponse]:
    found: list[ListedConfigResource] = []
    for kind in wanted:
        for name in with_breaks(_names(kind, broker)):
            if name is None:
                yield
            else:
                found.append(ListedConfigResource(resource_name=name, resource_type=kind))
    return ListConfigResourcesResponse(throttle_time_ms=0, error_code=ErrorCode.NONE, config_resources=found)


def _names(kind: int, broker: Broker) -> Sequence[str]:
    image = broker.image
    match kind:
        case Resource.TOPIC:
            return list(image.by_name)
        case Resource.BROKER:
            return [str(node_id) for node_id in image.brokers]
        case Resource.CLIENT_METRICS:
            return list(image.client_metrics)
        case Resource.GROUP:
            return list(image.group_configs)
    return ()
