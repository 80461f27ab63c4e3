"""From the options to offsets: where reading starts and ends in each partition."""

import logging
from collections.abc import Collection, Mapping
from typing import NamedTuple

from penstock.foundation.ids import TopicPartition
from penstock.spark.driver import Driver
from penstock.spark.errors import BadOption, DataLost
from penstock.spark.positions import EARLIEST, LATEST, Positions
from penstock.spark.read_options import At, Edge, ReadOptions
from penstock.spark.read_plan import Span

log = logging.getLogger(__name__)


class Held(NamedTuple):
    """The first offset of a partition, and the one after the last that may be read."""

    first: int
    end: int


def report_loss(options: ReadOptions, what: str, left: str) -> None:
    """Something that was to be read is gone: an error, or a warning if the person has said so."""
    if options.fail_on_data_loss:
        raise DataLost(f"{what}. Set failOnDataLoss to false to go on {left}")
    log.warning("data_lost what=%r goes_on=%r", what, left)


def spans(driver: Driver, options: ReadOptions, names: Collection[TopicPartition]) -> list[Span]:
    """What a batch query reads of these partitions; offsets that are not there are an error or cut off."""
    held = _look(driver, options, names)
    start = _resolve(driver, options, options.starting or Edge(at=At.EARLIEST, option="startingOffsets"), held)
    end = _resolve(driver, options, options.ending or Edge(at=At.LATEST, option="endingOffsets"), held)
    for name in held:
        if start[name] > end[name]:
            raise BadOption(
                f"partition {name} would be read from offset {start[name]} to {end[name]}: that is past the end; "
                "see the options of starting and ending offsets"
            )
    return [Span(name, start[name], end[name]) for name in sorted(held)]


def initial(driver: Driver, options: ReadOptions, names: Collection[TopicPartition]) -> Positions:
    """Where a new streaming query starts."""
    held = _look(driver, options, names)
    return _resolve(driver, options, options.starting or Edge(at=At.LATEST, option="startingOffsets"), held)


def _look(driver: Driver, options: ReadOptions, names: Collection[TopicPartition]) -> dict[TopicPartition, Held]:
    first, end = driver.earliest(names), driver.latest(names)
    gone = sorted(name for name in names if name not in first or name not in end)
    if gone:
        report_loss(options, f"{', '.join(map(str, gone))} went while the query was planned", "without")
    return {name: Held(first[name], max(first[name], end[name])) for name in sorted(names) if name not in gone}


def _resolve(driver: Driver, options: ReadOptions, edge: Edge, held: Mapping[TopicPartition, Held]) -> Positions:
    match edge.at:
        case At.EARLIEST:
            return {name: there.first for name, there in held.items()}
        case At.LATEST:
            return {name: there.end for name, there in held.items()}
        case At.OFFSETS:
            given = _of_all(edge, held)
            return {name: _offset(options, name, given[name], held[name]) for name in given}
    times_ms = dict.fromkeys(held, edge.time_ms) if edge.at is At.TIME else _of_all(edge, held)
    found = driver.at_times(times_ms)
    late = [name for name in times_ms if name not in found]
    if late and edge is options.starting and not options.latest_where_none:
        raise BadOption(
            f"option {edge.option!r}: partition {late[0]} has no record of {times_ms[late[0]]} ms or later; choose "
            "an earlier time, or set startingOffsetsByTimestampStrategy to latest to begin at the end there"
        )
    # What came since we looked is for the next query.
    return {name: max(there.first, min(found.get(name, there.end), there.end)) for name, there in held.items()}


def _of_all(edge: Edge, held: Mapping[TopicPartition, Held]) -> Positions:
    given = dict(edge.by_partition or {})
    missing, strange = sorted(held.keys() - given.keys()), sorted(given.keys() - held.keys())
    if missing or strange:
        wrong = [f"it leaves out {', '.join(map(str, missing))}"] if missing else []
        wrong += [f"it names {', '.join(map(str, strange))}, which is not read"] if strange else []
        words = " (-2 is the earliest, -1 the latest)" if edge.at is At.OFFSETS else ""
        raise BadOption(f"option {edge.option!r} must name just the partitions read: {'; '.join(wrong)}{words}")
    return given


def _offset(options: ReadOptions, name: TopicPartition, offset: int, there: Held) -> int:
    if offset in (EARLIEST, LATEST):
        return there.first if offset == EARLIEST else there.end
    if not there.first <= offset <= there.end:
        report_loss(
            options,
            f"partition {name} holds offsets {there.first} to {there.end}, not {offset}",
            "with what is there",
        )
    return max(there.first, min(offset, there.end))
