"""Prints the counts of one seed of every simulator: `python -m tests.simulation.seed_counts SEED`."""

import json
import logging
import sys
from collections.abc import Callable

from tests.simulation.classic_group_run import ClassicGroupRun
from tests.simulation.cluster_run import ClusterRun
from tests.simulation.consumer_group_run import ConsumerGroupRun
from tests.simulation.delay_run import DelayRun
from tests.simulation.group_migration_run import GroupMigrationRun
from tests.simulation.log_run import LogRun
from tests.simulation.queue_disk_run import QueueDiskRun
from tests.simulation.queue_run import QueueRun
from tests.simulation.registry_run import RegistryRun
from tests.simulation.seeds import SeededRun
from tests.simulation.streams_group_run import StreamsGroupRun
from tests.simulation.transaction_run import TransactionRun

STEPS = 100
SIMULATORS: dict[str, Callable[[int], SeededRun]] = {
    "classic_groups": lambda seed: ClassicGroupRun(seed, STEPS),
    "cluster": lambda seed: ClusterRun(seed, 4 * STEPS, 10),
    "consumer_groups": lambda seed: ConsumerGroupRun(seed, STEPS),
    "delays": lambda seed: DelayRun(seed, STEPS),
    "group_migration": lambda seed: GroupMigrationRun(seed, STEPS),
    "log": lambda seed: LogRun(seed, STEPS),
    "queue_disk": lambda seed: QueueDiskRun(seed, STEPS),
    "queues": lambda seed: QueueRun(seed, STEPS),
    "registry": lambda seed: RegistryRun(seed, STEPS),
    "streams_groups": lambda seed: StreamsGroupRun(seed, STEPS),
    "transactions": lambda seed: TransactionRun(seed, STEPS),
}


def main(seed: int) -> None:
    logging.getLogger("penstock").setLevel(logging.CRITICAL)
    counts = {}
    for name, simulator in SIMULATORS.items():
        run = simulator(seed)
        run.run()
        counts[name] = run.counts
    sys.stdout.write(json.dumps(counts))


if __name__ == "__main__":
    main(int(sys.argv[1]))
