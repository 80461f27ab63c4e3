"""`penstock log`: what lies on the disk, without a broker."""

import contextlib
import re
import sys
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Final

import click

from penstock.cli.common import echo_json, echo_table, format_bytes, format_time, json_option, plural
from penstock.cli.scan import Batch, Damage, SegmentReader, SegmentSummary, Vouching, scan_segment
from penstock.cli.show import as_json as record_as_json
from penstock.cli.show import line_formatter
from penstock.foundation.errors import PenstockError
from penstock.foundation.ids import TopicPartition
from penstock.log.checkpoint import FILE_NAME, CheckpointFile
from penstock.log.disk import OsDisk
from penstock.records.build import read_records

PROGRESS_BYTES: Final = 64 << 20
"""Less than this is read before a progress bar could be looked at."""
RECORDS_BATCH_BYTES_MAX: Final = 256 << 20
_SEGMENT: Final = re.compile(r"\d{20}\.log")
_BOOT_ID: Final = Path("/proc/sys/kernel/random/boot_id")


@click.group()
def log() -> None:
    """Look at logs on disk, without a broker.

    \b
    Examples:
      penstock log inspect penstock-data
    """


@log.command()
@click.argument("path", type=click.Path(exists=True, path_type=Path))
@click.option("--batches", is_flag=True, help="List every batch.")
@click.option("--records", is_flag=True, help="Show every record.")
@json_option
def inspect(path: Path, batches: bool, records: bool, as_json: bool) -> None:
    """Read the logs below PATH, check every batch's CRC, and say what they hold.

    PATH is a segment file, a partition's folder, or a whole data folder. Nothing is written, and a broker may be
    running. Damage is listed with its place, and with what will become of it: what the partition's checkpoint vouches
    for is never cut off, so the partition goes offline; what came after the checkpoint is cut off when the broker next
    opens the log. The exit code is 1 if there is damage.

    \b
    Examples:
      penstock log inspect penstock-data
      penstock log inspect penstock-data/logs/orders --batches
      penstock log inspect penstock-data/logs/orders/0.*/00000000000000000000.log --records --json
    """
    partitions = _find(path)
    if not partitions:
        raise click.UsageError(f"there are no segments below {path}: give a data folder, a partition's, or a segment")
    printer = _JsonPrinter(batches, records) if as_json else _Printer(batches, records)
    total_bytes = sum(_size_of(file) for files in partitions.values() for file in files)
    with _progress(total_bytes, is_quiet=batches or records) as advance:
        for folder, files in partitions.items():
            _inspect_partition(folder, files, path.is_file(), printer, advance)
    printer.end()
    if printer.damages:
        raise click.ClickException(f"{plural(printer.damages, 'damage')} found below {path}; see the list above")
