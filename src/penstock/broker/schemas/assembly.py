"""Builds the schema registry of a broker."""

from functools import partial

from penstock.broker.broker import Broker
from penstock.broker.schemas.checker import SchemaChecker
from penstock.broker.schemas.id_questions import ask_registry
from penstock.broker.schemas.known_ids import KnownSchemaIds
from penstock.broker.schemas.runtimes import RegistryRuntimes
from penstock.broker.schemas.service import RegistryService


def add_schemas(broker: Broker) -> RegistryService:
    """Creates the RegistryService and attaches it to the broker, with the cache of known schema ids."""
    runtimes = RegistryRuntimes(
        partitions=broker.partitions,
        clock=broker.clock,
        timer=broker.timer,
        threads=broker.threads,
        bytes_max=lambda: int(broker.configs["schema.registry.bytes.max"]),
    )
    broker.schema_ids = KnownSchemaIds(partial(ask_registry, broker), broker.clock.monotonic_s)
    service = broker.schema_registry = RegistryService(runtimes, SchemaChecker())
    return service
