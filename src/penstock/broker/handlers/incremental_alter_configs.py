"""IncrementalAlterConfigs (KIP-339): sets, deletes, appends to or subtracts from individual settings."""

from collections.abc import Mapping
from enum import IntEnum

from penstock.broker.broker import Broker
from penstock.broker.call import Call
from penstock.broker.config_admin import SETTINGS, alter, check_alter
from penstock.broker.registry import handles
from penstock.foundation.errors import InvalidConfig, InvalidRequest, PenstockError
from penstock.foundation.settings import Kind, Table
from penstock.log.setting_table import LOG_SETTINGS
from penstock.wire.keys import ApiKey
from penstock.wire.messages.incremental_alter_configs import (
    AlterableConfig,
    AlterConfigsResource,
    AlterConfigsResourceResponse,
    IncrementalAlterConfigsRequest,
    IncrementalAlterConfigsResponse,
)


class Operation(IntEnum):
    SET = 0
    DELETE = 1
    APPEND = 2
    SUBTRACT = 3


@handles(ApiKey.INCREMENTAL_ALTER_CONFIGS)
async def incremental_alter_configs(
    request: IncrementalAlterConfigsRequest, call: Call, broker: Broker
) -> IncrementalAlterConfigsResponse:
    responses = []
    for resource in request.resources:
        code, message = 0, None
        try:
            check_alter(call, resource.resource_type, resource.resource_name)
            await _alter_one(call, broker, resource, request.validate_only)
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
    return IncrementalAlterConfigsResponse(throttle_time_ms=0, responses=responses)


async def _alter_one(call: Call, broker: Broker, resource: AlterConfigsResource, validate_only: bool) -> None:
    names = [entry.name for entry in resource.configs]
    if len(set(names)) != len(names):
        raise InvalidRequest(f"the request changes a setting of {resource.resource_name!r} twice")
    table = SETTINGS.get(resource.resource_type, LOG_SETTINGS)

    def change(now: Mapping[str, str]) -> dict[str, str]:
        wanted = dict(now)
        for entry in resource.configs:
            _apply(entry, table, wanted)
        return wanted

    await alter(call, broker, resource.resource_type, resource.resource_name, change, validate_only)


def _apply(entry: AlterableConfig, table: Table, wanted: dict[str, str]) -> None:
    if entry.config_operation == Operation.DELETE:
        wanted.pop(entry.name, None)  # as in Kafka, even if it is not set or unknown
        return
    if entry.value is None:
        raise InvalidConfig(f"{entry.name} has no value")
    if entry.config_operation == Operation.SET:
        wanted[entry.name] = entry.value
        return
    if entry.config_operation not in (Operation.APPEND, Operation.SUBTRACT):
        raise InvalidRequest(f"operation {entry.config_operation} on {entry.name} does not exist; expected 0 to 3")
    setting = table.get(entry.name)
    if setting.kind is not Kind.LIST:
        raise InvalidConfig(f"{entry.name} is not a list; only a list can be appended to or subtracted from")
    parts = [part.strip() for part in wanted.get(entry.name, setting.default).split(",") if part.strip()]
    given = [part.strip() for part in entry.value.split(",") if part.strip()]
    if entry.config_operation == Operation.APPEND:
        parts += [part for part in given if part not in parts]
    else:
        parts = [part for part in parts if part not in given]
    wanted[entry.name] = ",".join(parts)
