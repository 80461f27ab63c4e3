"""Determines the offset range to read from each partition, as given by the starting and ending options."""

import logging
from collections.abc import Collection, Mapping
from typing import NamedTuple

from penstock.foundation.ids import TopicPartition
from penstock.spark.driver import DriverClient
from penstock.spark.errors import BadOption, DataLost
from penstock.spark.positions import EARLIEST, LATEST, Positions
from penstock.spark.read_options import BoundKind, OffsetBound, ReadOptions
from penstock.spark.read_plan import OffsetRange

log = logging.getLogger(__name__)


class AvailableRange(NamedTuple):
    """The offsets of a partition that can be read: from the log start offset to `end` (exclusive)."""

    start: int
    end: int


Available = Mapping[TopicPartition, AvailableRange]


def report_data_loss(options: ReadOptions, what: str, remedy: str) -> None:
    """Raises DataLost if `failOnDataLoss` is true, else logs what was lost and how reading continues (`remedy`)."""
    if options.fail_on_data_loss:
        raise DataLost(f"{what}. Set failOnDataLoss to false to continue {remedy}")
    log.warning("data_lost what=%r continues=%r", what, remedy)


def batch_ranges(driver: DriverClient, options: ReadOptions, tps: Collection[TopicPartition]) -> list[OffsetRange]:
    """Returns the offset ranges of a batch query. Clips missing offsets, or raises DataLost if `failOnDataLoss`."""
    available = _list_available(driver, options, tps)
    earliest = OffsetBound(kind=BoundKind.EARLIEST, option="startingOffsets")
    latest = OffsetBound(kind=BoundKind.LATEST, option="endingOffsets")
    start = _resolve(driver, options, options.starting or earliest, available)
    end = _resolve(driver, options, options.ending or latest, available)
    for tp in available:
        if start[tp] > end[tp]:
            raise BadOption(
                f"partition {tp} would be read from offset {start[tp]} to {end[tp]}: the start is past the end; "
                "correct the options for starting and ending offsets"
            )
    return [OffsetRange(tp, start[tp], end[tp]) for tp in sorted(available)]


def initial_offsets(driver: DriverClient, options: ReadOptions, tps: Collection[TopicPartition]) -> Positions:
    """Returns the offsets at which a streaming query without a checkpoint starts."""
    latest = OffsetBound(kind=BoundKind.LATEST, option="startingOffsets")
    return _resolve(driver, options, options.starting or latest, _list_available(driver, options, tps))


def _list_available(driver: DriverClient, options: ReadOptions, tps: Collection[TopicPartition]) -> Available:
    start, end = driver.earliest_offsets(tps), driver.latest_offsets(tps)
    deleted = sorted(tp for tp in tps if tp not in start or tp not in end)
    if deleted:
        names = ", ".join(map(str, deleted))
        report_data_loss(options, f"partitions deleted while the query was planned: {names}", "without them")
    return {tp: AvailableRange(start[tp], max(start[tp], end[tp])) for tp in sorted(tps) if tp not in deleted}


def _resolve(driver: DriverClient, options: ReadOptions, bound: OffsetBound, available: Available) -> Positions:
    match bound.kind:
        case BoundKind.EARLIEST:
            return {tp: held.start for tp, held in available.items()}
        case BoundKind.LATEST:
            return {tp: held.end for tp, held in available.items()}
        case BoundKind.OFFSETS:
            given = _check_complete(bound, available)
            return {tp: _clip(options, tp, given[tp], available[tp]) for tp in given}
    is_common = bound.kind is BoundKind.TIME
    times_ms = dict.fromkeys(available, bound.time_ms) if is_common else _check_complete(bound, available)
    found = driver.offsets_for_times(times_ms)
    late = [tp for tp in times_ms if tp not in found]
    if late and bound is options.starting and not options.latest_if_no_match:
        raise BadOption(
            f"option {bound.option!r}: partition {late[0]} has no record of {times_ms[late[0]]} ms or later; choose "
            "an earlier time, or set startingOffsetsByTimestampStrategy to latest to begin at the end there"
        )
    # Records appended since the offsets were listed are left to the next query.
    return {tp: max(held.start, min(found.get(tp, held.end), held.end)) for tp, held in available.items()}


def _check_complete(bound: OffsetBound, available: Available) -> Positions:
    """Returns the offset or time by partition. Raises BadOption unless exactly the partitions to read are named."""
    given = dict(bound.by_partition or {})
    missing, unknown = sorted(available.keys() - given.keys()), sorted(given.keys() - available.keys())
    if missing or unknown:
        wrong = [f"missing are {', '.join(map(str, missing))}"] if missing else []
        wrong += [f"not read are {', '.join(map(str, unknown))}"] if unknown else []
        hint = " (-2 means earliest, -1 latest)" if bound.kind is BoundKind.OFFSETS else ""
        raise BadOption(
            f"option {bound.option!r} must name exactly the partitions that are read: {'; '.join(wrong)}{hint}"
        )
    return given


def _clip(options: ReadOptions, tp: TopicPartition, offset: int, held: AvailableRange) -> int:
    if offset in (EARLIEST, LATEST):
        return held.start if offset == EARLIEST else held.end
    if not held.start <= offset <= held.end:
        what = f"partition {tp} holds offsets {held.start} to {held.end}, not {offset}"
        report_data_loss(options, what, "with the offsets that exist")
    return max(held.start, min(offset, held.end))
