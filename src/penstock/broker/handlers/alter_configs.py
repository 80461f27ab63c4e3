"""AlterConfigs: replaces all settings of a resource by those in the request."""

from penstock.broker.broker import Broker
from penstock.broker.call import Call
from penstock.broker.config_admin import alter, check_alter
from penstock.broker.registry import handles
from penstock.foundation.errors import InvalidConfig, PenstockError
from penstock.wire.keys import ApiKey
from penstock.wire.messages.alter_configs import (
    AlterConfigsRequest,
    AlterConfigsResource,
    AlterConfigsResourceResponse,
    AlterConfigsResponse,
)


@handles(ApiKey.ALTER_CONFIGS)
async def alter_configs(request: AlterConfigsRequest, call: Call, broker: Broker) -> AlterConfigsResponse:
    responses = []
    for resource in request.resources:
        code, message = 0, None
        try:
            check_alter(call, resource.resource_type, resource.resource_name)
            await _replace(call, broker, resource, request.validate_only)
        except PenstockError as error:
            code, message = error.code, error.message
        responses.append(
            AlterConfigsResourceResponse(
                error_code=code,
                error_message=message,
                resource_type=resource.resource_type,
                resource_name=resource.resource_name,
            )
        )
    return AlterConfigsResponse(throttle_time_ms=0, responses=responses)


async def _replace(call: Call, broker: Broker, resource: AlterConfigsResource, validate_only: bool) -> None:
    wanted = _wanted(resource)
    await alter(call, broker, resource.resource_type, resource.resource_name, lambda _: dict(wanted), validate_only)


def _wanted(resource: AlterConfigsResource) -> dict[str, str]:
    wanted = {}
    for entry in resource.configs:
        if entry.value is None:
            raise InvalidConfig(f"{entry.name} has no value; leave it out to get the default")
        wanted[entry.name] = entry.value
    return wanted
