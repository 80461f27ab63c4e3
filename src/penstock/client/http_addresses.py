"""Looks up the HTTP addresses that brokers advertise: queues and the schema registry are served there."""

from random import Random
from typing import Final

from penstock.client.cluster import ClientSettings, KafkaClient

ADVERTISED_HTTP: Final = "advertised.http"
"""Name of the broker setting with the broker's HTTP address, `HOST:PORT` or a URL."""


async def find_http_addresses(bootstrap: str, settings: ClientSettings | None = None) -> list[str]:
    """Returns the values of `advertised.http` of all brokers that have one. Raises ConnectionFailed."""
    # Imported here: programs with Spark's data source import this module, and few of their processes call it.
    from penstock.client.cluster_admin import ClusterAdmin
    from penstock.client.configs import Resource

    async with KafkaClient(bootstrap, settings=settings, rng=Random()) as client:
        names = [str(node_id) for node_id in client.view.brokers]
        configs = await ClusterAdmin(client).configs(Resource.BROKER, names, [ADVERTISED_HTTP])
    return [text for values in configs.values() if (text := values.get(ADVERTISED_HTTP))]
