"""Client metrics subscriptions (KIP-714): list, replace and remove subscriptions."""

from collections.abc import Mapping
from typing import Final

from penstock.client.cluster import KafkaClient, Target
from penstock.client.configs import ConfigChange, Resource, alter_configs, describe_configs
from penstock.client.errors import check
from penstock.wire.messages.list_config_resources import (
    CLIENT_METRICS,
    ListConfigResourcesRequest,
    ListConfigResourcesResponse,
)

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
            found = {}
            for result in await describe_configs(self._client, Resource.SUBSCRIPTION, names) if names else ():
                check(result.error_code, f"subscription {result.resource_name!r}", result.error_message)
                found[result.resource_name] = {entry.name: entry.value or "" for entry in result.configs}
            return found

        return await self._client.retrying(attempt)

    async def replace(self, name: str, settings: Mapping[str, str]) -> None:
        """Creates or replaces a subscription; settings that are not given get their defaults."""
        values = {key: settings.get(key) or None for key in (METRICS, INTERVAL, MATCH)}
        await alter_configs(self._client, [ConfigChange(kind=Resource.SUBSCRIPTION, name=name, values=values)])

    async def remove(self, name: str) -> None:
        await self.replace(name, {})
