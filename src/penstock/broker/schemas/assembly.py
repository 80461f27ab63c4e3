"""Builds the schema registry of a broker."""

from penstock.broker.broker import Broker
from penstock.broker.schemas.checker import SchemaChecker
from penstock.broker.schemas.runtimes import RegistryRuntimes
from penstock.broker.schemas.service import RegistryService


def add_schemas(broker: Broker) -> RegistryService:
    """Creates the RegistryService and attaches it to the broker."""
    runtimes = RegistryRuntimes(
        partitions=broker.partitions,
        clock=broker.clock,
        timer=broker.timer,
        threads=broker.threads,
        bytes_max=lambda: int(broker.configs["schema.registry.bytes.max"]),
    )
    service = broker.schema_registry = RegistryService(runtimes, SchemaChecker())
    return service
