"""`penstock log inspect`: reads segment files, checks CRCs and reports damage, without a broker."""

import contextlib
import os
import re
import sys
from collections.abc import Callable, Iterator
from dataclasses import replace
from pathlib import Path
from typing import Final

import click

from penstock.cli.common import json_option, plural
from penstock.cli.log.output import JsonPrinter, Printer, TextPrinter
from penstock.cli.log.scan import Batch, Coverage, Damage, SegmentReader, SegmentSummary, scan_segment
from penstock.foundation.errors import PenstockError
from penstock.foundation.ids import TopicPartition
from penstock.log.checkpoint import FILE_NAME, Checkpoint, CheckpointFile
from penstock.log.disk import OsDisk
from penstock.records.build import Record, read_records

PROGRESS_BYTES: Final = 64 << 20
"""Minimum total size of the logs, in bytes, for which a progress bar is shown."""
PROGRESS_STEP_BYTES: Final = 4 << 20
SHOWN_BYTES_MAX: Final = 256 << 20
"""Maximum size, in bytes, of a batch whose records are shown; larger batches are only checked."""
_SEGMENT: Final = re.compile(r"(\d{20})\.log")
_FOLDER: Final = re.compile(r"(\d+)\.")
_BOOT_ID: Final = Path("/proc/sys/kernel/random/boot_id")


@click.group()
def log() -> None:
    """Inspect partition logs on disk, without a broker.

    \b
    Examples:
      penstock log inspect penstock-data
    """


@log.command()
@click.argument("path", type=click.Path(exists=True, path_type=Path))
@click.option("--batches", is_flag=True, help="List every record batch.")
@click.option("--records", is_flag=True, help="Show every record.")
@json_option
def inspect(path: Path, batches: bool, records: bool, as_json: bool) -> None:
    """Check and summarise logs on disk. Reads the logs below PATH and checks the CRC of every record batch.

    PATH is a segment file, a partition folder, or a data folder. Nothing is written, and a broker may be running.
    Damage is listed with its file, position and consequence: a broker never truncates offsets that the
    partition's checkpoint covers; at later damage, it truncates the log when it next opens the log. The exit code
    is 1 if anything is damaged.

    \b
    Examples:
      penstock log inspect penstock-data
      penstock log inspect penstock-data/logs/orders --batches
      penstock log inspect penstock-data/logs/orders/0.*/00000000000000000000.log --records --json
    """
    folders = _find(path)
    if not folders:
        raise click.UsageError(f"no segments below {path}: give a data folder, a partition folder, or a segment file")
    printer: Printer = JsonPrinter(batches) if as_json else TextPrinter(batches)
    total_bytes = sum(_size_of(file) for files in folders.values() for file in files)
    with _progress(total_bytes, is_wanted=not (batches or records)) as advance:
        for folder, files in folders.items():
            _Inspection(folder, files, printer, records, advance).run(is_whole=not path.is_file())
    printer.end()
    if printer.damages:
        raise click.ClickException(f"found damage at {plural(printer.damages, 'position')} below {path}")


def _find(path: Path) -> dict[Path, list[Path]]:
    """Returns the log folders below `path`, each with its segment files in offset order."""
    if path.is_file():
        return {path.absolute().parent: [path]} if _SEGMENT.match(path.name) else {}
    found = {}
    for folder, _, names in os.walk(path):
        if FILE_NAME in names or any(_SEGMENT.fullmatch(name) for name in names):
            found[Path(folder)] = _segments(Path(folder))
    return dict(sorted(found.items()))


def _segments(folder: Path) -> list[Path]:
    try:
        return sorted(file for file in folder.iterdir() if _SEGMENT.fullmatch(file.name))
    except FileNotFoundError:
        return []  # the topic was just deleted


def _size_of(file: Path) -> int:
    try:
        return file.stat().st_size
    except FileNotFoundError:
        return 0  # a broker may remove it at any time


class _Inspection:
    """Inspects the segments of one partition folder, one after another."""

    def __init__(
        self,
        folder: Path,
        files: list[Path],
        printer: Printer,
        show_records: bool,
        advance: Callable[[int], None],
    ) -> None:
        self._folder = folder
        self._files = files
        self._printer = printer
        self._show_records = show_records
        self._advance = advance
        self._name = _partition_name(folder)
        self._expected: int | None = None

    def run(self, is_whole: bool) -> None:
        """Checks and prints the segments. `is_whole`: reads all segments of the folder, reports missing segments."""
        checkpoint = _checkpoint(self._folder)
        coverage = Coverage(checkpoint=checkpoint, trusted_to=checkpoint.trusted_to(_boot_id()) if checkpoint else 0)
        self._printer.partition(self._name, self._folder, coverage)
        # List again: a running broker may have added segments since the checkpoint was read.
        files = _segments(self._folder) if is_whole else self._files
        for file in files:
            self._segment(file, coverage)
        later = _checkpoint(self._folder)
        if is_whole and checkpoint is not None and later is not None:
            # Segments that retention has deleted since then are not missing.
            coverage = replace(coverage, checkpoint=replace(checkpoint, start_offset=later.start_offset))
            ends_at = coverage.trusted_to if files and self._expected is None else self._expected or 0
            missing = coverage.missing(self._folder, int(files[0].stem) if files else None, ends_at)
            if missing is not None:
                self._printer.damage(missing, coverage.covers(missing))

    def _segment(self, file: Path, coverage: Coverage) -> None:
        base_offset = int(file.name.partition(".")[0])
        expected = base_offset if self._expected is None else self._expected
        try:
            reader = SegmentReader(file)
        except FileNotFoundError:
            click.echo(f"{file} was removed while reading: a broker is running", err=True)
            self._expected = None
            return
        summary = SegmentSummary(file=file, base_offset=base_offset, next_offset=expected)
        is_bad_at_end = False
        try:
            for found in scan_segment(reader, summary, coverage.gaps_below):
                is_bad_at_end = isinstance(found, Damage)
                if isinstance(found, Damage):
                    self._printer.damage(found, coverage.covers(found))
                    continue
                self._printer.batch(self._name, found)
                self._advance(found.header.size_bytes)
                if self._show_records:
                    self._records(reader, found, coverage)
        finally:
            reader.close()
        self._printer.segment(self._name, summary)
        # A damaged end has been reported; its offsets are not reported again as missing.
        self._expected = None if is_bad_at_end else summary.next_offset

    def _records(self, reader: SegmentReader, batch: Batch, coverage: Coverage) -> None:
        size = batch.header.size_bytes
        if size > SHOWN_BYTES_MAX:
            click.echo(f"{reader.path}: the batch at byte {batch.position} is too large to show", err=True)
            return
        try:
            records: list[Record] = read_records(reader.read_whole(batch.position, size))
        except PenstockError as error:
            damage = Damage(
                file=reader.path,
                position=batch.position,
                offset=batch.header.base_offset,
                expected="records that can be read",
                found=str(error),
            )
            self._printer.damage(damage, coverage.covers(damage))
            return
        for record in records:
            self._printer.record(self._name, record, batch.header.is_control)


def _partition_name(folder: Path) -> TopicPartition:
    """Returns the topic-partition of a folder such as `logs/orders/0.<id>`; partition -1 for other folder names."""
    number = _FOLDER.match(folder.absolute().name)
    return TopicPartition(folder.absolute().parent.name, int(number[1]) if number else -1)


def _checkpoint(folder: Path) -> Checkpoint | None:
    return CheckpointFile(_ReadOnlyDisk(folder), ".").load(_boot_id())


class _ReadOnlyDisk(OsDisk):
    """A disk for reading only: unlike OsDisk, it does not create its root folder."""

    def __init__(self, root: Path) -> None:
        self._root = str(root)


def _boot_id() -> str:
    """Returns the kernel's boot id, or "". If it has changed, the machine has rebooted, and an unsynced checkpoint is
    invalid."""
    try:
        return _BOOT_ID.read_text().strip()
    except OSError:
        return ""


@contextlib.contextmanager
def _progress(total_bytes: int, is_wanted: bool) -> Iterator[Callable[[int], None]]:
    if not is_wanted or total_bytes < PROGRESS_BYTES or not sys.stderr.isatty():
        yield lambda count: None
        return
    from rich.console import Console
    from rich.progress import Progress

    with Progress(console=Console(stderr=True), transient=True) as progress:
        task = progress.add_task("checking", total=total_bytes)
        pending = 0

        def advance(count: int) -> None:
            nonlocal pending
            pending += count
            if pending >= PROGRESS_STEP_BYTES:
                progress.advance(task, pending)
                pending = 0

        yield advance
