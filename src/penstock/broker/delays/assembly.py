"""Builds the delayed-message service of a broker."""

from pathlib import Path

from penstock.broker.broker import Broker
from penstock.broker.delays.partitions import DelayPartitions
from penstock.broker.delays.scratch_file import ScratchFile


def add_delays(broker: Broker, data_dir: Path) -> DelayPartitions:
    """Creates the DelayPartitions of a broker; entries that exceed memory are spilled to files in `data_dir`."""
    delay_partitions = broker.delays = DelayPartitions(
        partitions=broker.partitions,
        settings_of=broker.configs.log_settings,
        make_storage=lambda: ScratchFile(data_dir),
        clock=broker.clock,
        timer=broker.timer,
        threads=broker.threads,
    )
    broker.partitions.on_follow = delay_partitions.install_filter
    return delay_partitions
