"""Output of `penstock log inspect`: text for people, JSON lines for scripts."""

import sys
from dataclasses import dataclass, field
from pathlib import Path
from typing import Final, Protocol

import click

from penstock.cli.common import echo_json, echo_table, format_bytes, format_time, plural
from penstock.cli.log.scan import Batch, Coverage, Damage, SegmentSummary
from penstock.cli.message_output import as_json, line_formatter
from penstock.foundation.ids import TopicPartition
from penstock.records.build import Record

LISTED_MAX: Final = 1000
"""Maximum number of damaged places that the text output lists; further places are only counted."""
_BATCH_LINE: Final = "{:<20}  {:>21}  {:>10}  {:>9}  {:>7}  {:<6}  {:>5}  {:>17}  {:<24}  {}"


class Printer(Protocol):
    damages: int

    def partition(self, name: TopicPartition, folder: Path, coverage: Coverage) -> None: ...

    def segment(self, name: TopicPartition, summary: SegmentSummary) -> None: ...

    def batch(self, name: TopicPartition, batch: Batch) -> None: ...

    def record(self, name: TopicPartition, record: Record, is_control: bool) -> None: ...

    def damage(self, damage: Damage, is_covered: bool) -> None: ...

    def end(self) -> None: ...


class JsonPrinter:
    """Prints each partition, segment, batch, record and damage at once as a JSON object; `kind` tells which it is."""

    def __init__(self, batches: bool) -> None:
        self.damages = 0
        self._batches = batches

    def partition(self, name: TopicPartition, folder: Path, coverage: Coverage) -> None:
        start = coverage.checkpoint.start_offset if coverage.checkpoint else None
        echo_json(
            {
                "kind": "partition",
                "topic": name.topic,
                "partition": name.partition,
                "folder": str(folder),
                "has_checkpoint": coverage.checkpoint is not None,
                "start_offset": start,
                "vouched_to": coverage.trusted_to,
            }
        )

    def segment(self, name: TopicPartition, summary: SegmentSummary) -> None:
        echo_json(
            {
                "kind": "segment",
                "topic": name.topic,
                "partition": name.partition,
                "file": str(summary.file),
                "base_offset": summary.base_offset,
                "next_offset": summary.next_offset,
                "batches": summary.batches,
                "records": summary.records,
                "bytes": summary.size_bytes,
                "first_timestamp": summary.first_ms,
                "last_timestamp": summary.last_ms,
                "codecs": dict(summary.codecs),
            }
        )

    def batch(self, name: TopicPartition, batch: Batch) -> None:
        if not self._batches:
            return
        header = batch.header
        echo_json(
            {
                "kind": "batch",
                "topic": name.topic,
                "partition": name.partition,
                "position": batch.position,
                "bytes": header.size_bytes,
                "base_offset": header.base_offset,
                "last_offset": header.last_offset,
                "records": header.count,
                "codec": header.codec.name.lower(),
                "leader_epoch": header.leader_epoch,
                "max_timestamp": header.max_timestamp,
                "producer_id": header.producer_id,
                "producer_epoch": header.producer_epoch,
                "base_sequence": header.base_sequence,
                "transactional": header.is_transactional,
                "control": header.is_control,
            }
        )

    def record(self, name: TopicPartition, record: Record, is_control: bool) -> None:
        echo_json({"kind": "record", "control": is_control} | as_json(name, record))

    def damage(self, damage: Damage, is_covered: bool) -> None:
        self.damages += 1
        echo_json(
            {
                "kind": "damage",
                "file": str(damage.file),
                "position": damage.position,
                "offset": damage.offset,
                "expected": damage.expected,
                "found": damage.found,
                "unread_bytes": damage.unread_bytes,
                "vouched": is_covered,
            }
        )

    def end(self) -> None:
        """Does nothing: everything is already printed."""


@dataclass(slots=True, kw_only=True)
class _Partition:
    name: TopicPartition
    folder: Path
    coverage: Coverage
    segments: list[SegmentSummary] = field(default_factory=list)


class TextPrinter:
    """Prints batches and records immediately; segment tables and damage at the end."""

    def __init__(self, batches: bool) -> None:
        self.damages = 0
        self._batches = batches
        self._partitions: list[_Partition] = []
        self._damages: list[tuple[Damage, bool]] = []
        self._line = line_formatter(sys.stdout.isatty())
        if batches:
            click.echo(
                _BATCH_LINE.format(
                    "PARTITION",
                    "OFFSETS",
                    "POSITION",
                    "BYTES",
                    "RECORDS",
                    "CODEC",
                    "EPOCH",
                    "PRODUCER:SEQUENCE",
                    "LATEST TIME",
                    "",
                ).rstrip()
            )

    def partition(self, name: TopicPartition, folder: Path, coverage: Coverage) -> None:
        self._partitions.append(_Partition(name=name, folder=folder, coverage=coverage))

    def segment(self, name: TopicPartition, summary: SegmentSummary) -> None:
        self._partitions[-1].segments.append(summary)

    def batch(self, name: TopicPartition, batch: Batch) -> None:
        if not self._batches:
            return
        header = batch.header
        flags = [word for word, on in (("control", header.is_control), ("txn", header.is_transactional)) if on]
        producer = f"{header.producer_id}:{header.base_sequence}" if header.producer_id >= 0 else "-"
        line = _BATCH_LINE.format(
            str(name),
            f"{header.base_offset}-{header.last_offset}",
            batch.position,
            header.size_bytes,
            header.count,
            header.codec.name.lower(),
            header.leader_epoch,
            producer,
            format_time(header.max_timestamp),
            " ".join(flags),
        )
        click.echo(line.rstrip())

    def record(self, name: TopicPartition, record: Record, is_control: bool) -> None:
        control = "(control) " if is_control else ""
        click.echo(control + self._line(name, record).decode(), nl=False)

    def damage(self, damage: Damage, is_covered: bool) -> None:
        self.damages += 1
        if len(self._damages) < LISTED_MAX:
            self._damages.append((damage, is_covered))

    def end(self) -> None:
        for partition in self._partitions:
            click.echo(f"{partition.name} in {partition.folder}: {_describe_coverage(partition.coverage)}")
            if partition.segments:
                _echo_segments(partition.segments)
            click.echo()
        for damage, is_covered in self._damages:
            click.echo(_describe_damage(damage, is_covered))
        if self.damages > len(self._damages):
            click.echo(f"… and {self.damages - len(self._damages)} more")
        if not self.damages:
            segments = sum(len(partition.segments) for partition in self._partitions)
            click.echo(f"No damage: {plural(segments, 'segment')} of {plural(len(self._partitions), 'log')} checked.")


def _echo_segments(segments: list[SegmentSummary]) -> None:
    echo_table(
        ["#BASE OFFSET", "#NEXT OFFSET", "#BATCHES", "#RECORDS", "#SIZE", "FIRST TIME", "LAST TIME", "CODECS"],
        [
            (
                entry.base_offset,
                entry.next_offset,
                entry.batches,
                entry.records,
                format_bytes(entry.size_bytes),
                None if entry.first_ms is None else format_time(entry.first_ms),
                None if entry.last_ms is None else format_time(entry.last_ms),
                ", ".join(f"{codec} {count}" for codec, count in entry.codecs.most_common()) or None,
            )
            for entry in segments
        ],
    )


def _describe_coverage(coverage: Coverage) -> str:
    if coverage.checkpoint is None:
        return "no valid checkpoint"
    return (
        f"starts at offset {coverage.checkpoint.start_offset}, checkpoint covers offsets below {coverage.trusted_to}"
    )


def _describe_damage(damage: Damage, is_covered: bool) -> str:
    outcome = (
        "the checkpoint covers it, so no broker truncates it: restore the file, or trim the topic past it"
        if is_covered
        else "no checkpoint covers it: a broker truncates the log here when it next opens it"
    )
    unread = f"; {plural(damage.unread_bytes, 'byte')} from here on not readable" if damage.unread_bytes else ""
    return (
        f"DAMAGED {damage.file} at byte {damage.position}, offset {damage.offset}: "
        f"expected {damage.expected}, found {damage.found}{unread}; {outcome}"
    )
