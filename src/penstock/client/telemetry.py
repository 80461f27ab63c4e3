"""Client metrics subscriptions (KIP-714): list, replace and remove subscriptions."""

from collections.abc import Collection, Mapping
from typing import Final

from penstock.client.cluster import KafkaClient, Target
from penstock.client.errors import check
from penstock.wire.messages.describe_configs import (
    DescribeConfigsRequest,
    DescribeConfigsResource,
    DescribeConfigsResponse,
)
from penstock.wire.messages.incremental_alter_configs import (
    AlterableConfig,
    AlterConfigsResource,
    IncrementalAlterConfigsRequest,
    IncrementalAlterConfigsResponse,
)
from penstock.wire.messages.list_config_resources import (
    CLIENT_METRICS,
    ListConfigResourcesRequest,
    ListConfigResourcesResponse,
)

_SET, _DELETE = 0, 1
METRICS: Final = "metrics"
INTERVAL: Final = "interval.ms"
MATCH: Final = "match"


class MetricsSubscriptions:
    """The cluster's subscriptions to client metrics."""

    def __init__(self, client: KafkaClient) -> None:
        self._client = client

    async def all(self) -> dict[str, dict[str, str]]:
        """Returns the settings of each subscription, by its name."""

        async def attempt() -> dict[str, dict[str, str]]:
            listed: ListConfigResourcesResponse = await self._client.request(
                Target.ANY, ListConfigResourcesRequest(resource_types=[CLIENT_METRICS])
            )
            check(listed.error_code, "subscriptions to client metrics")
            names = sorted(entry.resource_name for entry in listed.config_resources)
            return await self._described(names) if names else {}

        return await self._client.retrying(attempt)

    async def _described(self, names: Collection[str]) -> dict[str, dict[str, str]]:
        resources = [
            DescribeConfigsResource(resource_type=CLIENT_METRICS, resource_name=name, configuration_keys=None)
            for name in names
        ]
        response: DescribeConfigsResponse = await self._client.request(
            Target.ANY, DescribeConfigsRequest(resources=resources)
        )
        found = {}
        for result in response.results:
            check(result.error_code, f"subscription {result.resource_name!r}", result.error_message)
            found[result.resource_name] = {entry.name: entry.value or "" for entry in result.configs}
        return found

    async def replace(self, name: str, settings: Mapping[str, str]) -> None:
        """Creates or replaces a subscription; settings that are not given get their defaults."""
        values = {key: settings.get(key) or None for key in (METRICS, INTERVAL, MATCH)}
        changes = [
            AlterableConfig(name=key, config_operation=_DELETE if value is None else _SET, value=value)
            for key, value in values.items()
        ]
        await self._alter(name, changes)

    async def remove(self, name: str) -> None:
        changes = [
            AlterableConfig(name=key, config_operation=_DELETE, value=None) for key in (METRICS, INTERVAL, MATCH)
        ]
        await self._alter(name, changes)

    async def _alter(self, name: str, changes: list[AlterableConfig]) -> None:
        resource = AlterConfigsResource(resource_type=CLIENT_METRICS, resource_name=name, configs=changes)
        request = IncrementalAlterConfigsRequest(resources=[resource], validate_only=False)

        async def attempt() -> None:
            response: IncrementalAlterConfigsResponse = await self._client.request(Target.CONTROLLER, request)
            result = response.responses[0]
            check(result.error_code, f"subscription {name!r}", result.error_message)

        await self._client.retrying(attempt)
