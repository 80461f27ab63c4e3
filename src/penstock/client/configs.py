"""Settings of topics, brokers and metrics subscriptions: DescribeConfigs and IncrementalAlterConfigs."""

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from enum import IntEnum

from penstock.client.cluster import KafkaClient, Target
from penstock.client.errors import check
from penstock.wire.messages.describe_configs import (
    DescribeConfigsRequest,
    DescribeConfigsResource,
    DescribeConfigsResponse,
    DescribeConfigsResult,
)
from penstock.wire.messages.incremental_alter_configs import (
    AlterableConfig,
    AlterConfigsResource,
    IncrementalAlterConfigsRequest,
    IncrementalAlterConfigsResponse,
)


class Resource(IntEnum):
    """Resource types that have settings; values are the resource type codes of the Kafka protocol."""

    TOPIC = 2
    BROKER = 4
    SUBSCRIPTION = 16


@dataclass(frozen=True, slots=True, kw_only=True)
class ConfigChange:
    """New settings of a topic, broker or metrics subscription, by name; None resets a setting to its default."""

    kind: Resource
    name: str
    values: Mapping[str, str | None]


async def describe_configs(
    client: KafkaClient,
    kind: Resource,
    names: Iterable[str],
    wanted: Sequence[str] | None = None,
    *,
    target: int | Target = Target.ANY,
    documentation: bool = False,
) -> Sequence[DescribeConfigsResult]:
    """Returns the settings `wanted` (None: all) of each resource in `names`, or its error. Does not retry."""
    request = DescribeConfigsRequest(
        resources=[
            DescribeConfigsResource(resource_type=kind, resource_name=name, configuration_keys=wanted)
            for name in names
        ],
        include_documentation=documentation,
    )
    response: DescribeConfigsResponse = await client.request(target, request)
    return response.results


async def alter_configs(client: KafkaClient, changes: Iterable[ConfigChange], *, retry_lost: bool = True) -> None:
    """Changes the named settings, with retries; with `retry_lost` also after a lost connection, so that a change
    may be applied twice. Raises the first error; other changes may be applied."""
    request = IncrementalAlterConfigsRequest(
        resources=[
            AlterConfigsResource(
                resource_type=change.kind,
                resource_name=change.name,
                configs=[
                    AlterableConfig(name=name, config_operation=int(value is None), value=value)
                    for name, value in change.values.items()
                ],
            )
            for change in changes
        ],
        validate_only=False,
    )

    async def attempt() -> None:
        response: IncrementalAlterConfigsResponse = await client.request(Target.CONTROLLER, request)
        for result in response.responses:
            kind = Resource(result.resource_type).name.lower()
            check(result.error_code, f"{kind} {result.resource_name!r}", result.error_message)

    await client.retrying(attempt, retry_lost=retry_lost)
