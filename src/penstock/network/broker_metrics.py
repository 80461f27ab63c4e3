"""Lists a broker's Prometheus collectors for coordinators, queues, views, schemas, delayed messages and telemetry."""

from typing import Any

from penstock.broker.broker import Broker
from penstock.broker.delays.partitions import DelayPartitions
from penstock.broker.queues.service import QueueService
from penstock.network.coordinator_metrics import CoordinatorMetrics
from penstock.network.delay_metrics import DelayMetrics
from penstock.network.exposition import Collector
from penstock.network.queue_metrics import QueueMetrics
from penstock.network.registry_metrics import RegistryMetrics
from penstock.network.telemetry_metrics import TelemetryMetrics
from penstock.network.view_metrics import ViewMetrics
from penstock.replication.runtime_set import RuntimeSet


def collectors_of(broker: Broker, queues: QueueService, delays: DelayPartitions) -> tuple[Collector, ...]:
    assert broker.queue_partitions is not None
    sets: dict[str, RuntimeSet[Any]] = {
        "group": broker.groups,
        "transaction": broker.transactions,
        "queue": broker.queue_partitions.runtimes,
        "delay": delays.runtimes,
    }
    assert broker.schema_registry is not None
    sets["registry"] = broker.schema_registry.runtimes
    return (
        ViewMetrics(broker.views),
        RegistryMetrics(broker.schema_registry),
        DelayMetrics(delays),
        QueueMetrics(queues, broker.clock),
        CoordinatorMetrics(sets, lambda: broker.image),
        TelemetryMetrics(broker.telemetry),
    )
