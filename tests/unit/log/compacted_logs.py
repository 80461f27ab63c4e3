"""Compacted logs for tests."""

from typing import Any

from penstock.log import compaction
from penstock.log.compaction import Job, Result
from penstock.log.disk import Disk
from penstock.log.io_queue import Outcome
from penstock.log.log import Log
from penstock.records.build import Record, build_batch

from .builders import BOOT, ENDLESS, NOW_MS, all_records, open_at, sync

SECRET = bytes(range(16))


def compacted_log(disk: Disk | None = None, *, boot: str = BOOT, **values: object) -> Log:
    """A log that is compacted whenever there is anything new, with small segments."""
    values = {
        "cleanup_policy": "compact",
        "min_cleanable_dirty_ratio": 0,
        "segment_bytes": 1024,
        "segment_ms": 2**60,
        "index_interval_bytes": 100,
        **values,
    }
    return open_at(disk, boot=boot, **values)


def put(log: Log, *pairs: tuple[str, bytes | None], timestamp_ms: int = NOW_MS, **options: Any) -> int:
    """Append one batch of these keys and values; its first offset."""
    records = [Record(key=key.encode(), value=value, timestamp_ms=timestamp_ms) for key, value in pairs]
    return log.append(build_batch(records, **options), 0, NOW_MS).base_offset


def end_segment(log: Log) -> None:
    log.roll(NOW_MS)


def planned(log: Log, *, now_ms: int = NOW_MS, limit: int = ENDLESS, keys_max: int = 1000) -> Job | None:
    sync(log)
    return compaction.plan(log, now_ms, limit, keys_max, SECRET)


def compact(log: Log, *, now_ms: int = NOW_MS, keys_max: int = 1000) -> Result:
    """One pass over all closed segments."""
    job = planned(log, now_ms=now_ms, keys_max=keys_max)
    assert job is not None, "there is nothing to compact"
    result = job.run()
    assert install(job, log, result)
    return result


def install(job: Job, log: Log, result: Result) -> bool:
    """Put the new segments in place; whether that could be done. Raises what the disk has failed with."""
    outcomes: list[Outcome] = []
    job.install(log, result, outcomes.append)
    (outcome,) = outcomes
    return bool(outcome.result())


def state(log: Log) -> dict[bytes, bytes | None]:
    """What a consumer that builds a table ends with; deleted keys are not in it."""
    table: dict[bytes, bytes | None] = {}
    for record in all_records(log):
        assert record.key is not None
        if record.value is None:
            table.pop(record.key, None)
        else:
            table[record.key] = record.value
    return table
