"""Delayed messages put together from what a broker has."""

from pathlib import Path

from penstock.broker.broker import Broker
from penstock.broker.delays.partitions import DelayPartitions
from penstock.broker.delays.scratch_file import ScratchShelf


def add_delays(broker: Broker, data_dir: Path) -> DelayPartitions:
    """Give a broker its delayed messages; those of the far future lie in files in a folder."""
    delay_partitions = broker.delays = DelayPartitions(
        partitions=broker.partitions,
        settings_of=broker.configs.log_settings,
        make_shelf=lambda: ScratchShelf(data_dir),
        clock=broker.clock,
        timer=broker.timer,
        threads=broker.threads,
    )
    broker.partitions.on_follow = delay_partitions.hide
    return delay_partitions
