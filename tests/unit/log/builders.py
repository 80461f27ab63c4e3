"""Batches, settings and logs for tests."""

from collections.abc import Callable, Iterable
from typing import Any, Final

from penstock.foundation.errors import StorageError
from penstock.log.disk import Disk, File
from penstock.log.log import Appended, Log
from penstock.log.memory import MemoryDisk
from penstock.log.recovery import open_log
from penstock.log.settings import LogSettings
from penstock.records.batch import BatchHeader, batches
from penstock.records.build import Record, build_batch, control_marker, read_marker, read_records
from penstock.wire.schema import Buffer

NOW_MS: Final = 1_700_000_000_000
FOLDER: Final = "logs/t/0"
BOOT: Final = "boot-1"
ENDLESS: Final = 1 << 62


def record(value: bytes | None = b"v", *, key: bytes | None = b"k", timestamp_ms: int = NOW_MS) -> Record:
    return Record(key=key, value=value, timestamp_ms=timestamp_ms)


def batch(*values: bytes | None, key: bytes | None = b"k", timestamp_ms: int = NOW_MS, **options: Any) -> bytearray:
    """One batch of these values, all with one key; without values, of one small record."""
    return build_batch([record(value, key=key, timestamp_ms=timestamp_ms) for value in values or (b"v",)], **options)


def sent(producer_id: int, sequence: int, *values: bytes, epoch: int = 0, **options: Any) -> bytearray:
    """A batch of an idempotent producer."""
    return batch(*values, producer_id=producer_id, producer_epoch=epoch, base_sequence=sequence, **options)


def marker_of(producer_id: int, *, commit: bool = True, epoch: int = 0, coordinator: int = 0) -> bytearray:
    """The end of a producer's transaction."""
    return control_marker(
        commit=commit,
        coordinator_epoch=coordinator,
        producer_id=producer_id,
        producer_epoch=epoch,
        timestamp_ms=NOW_MS,
    )


def write(log: Log, producer_id: int, sequence: int, *values: bytes, epoch: int = 0, **options: Any) -> Appended:
    """Append a batch in a producer's transaction, which may begin with it."""
    data = sent(producer_id, sequence, *values, epoch=epoch, transactional=True, **options)
    return log.append(data, 0, NOW_MS, may_begin=True)


def end(log: Log, producer_id: int, commit: bool, *, epoch: int = 0, coordinator: int = 0) -> int:
    """End a producer's transaction; the offset of the marker."""
    batch = marker_of(producer_id, commit=commit, epoch=epoch, coordinator=coordinator)
    return log.append_own(batch, 0, NOW_MS).base_offset


def committed_records(log: Log, high_watermark: int = ENDLESS, max_bytes: int = 700) -> list[Record]:
    """What a read_committed consumer sees, fetch by fetch: it skips the aborted transactions of the response."""
    found: list[Record] = []
    offset, limit = log.start_offset, log.last_stable_offset(min(high_watermark, log.end_offset))
    while data := bytes(log.read(offset, max_bytes, limit, blocking=True)):
        whole = list(batches(data))
        coming = [(entry.first_offset, entry.producer_id) for entry in log.aborted_between(offset, _end_of(whole))]
        skipped: set[int] = set()
        for at, header in whole:
            while coming and coming[0][0] <= header.last_offset:
                skipped.add(coming.pop(0)[1])
            if header.is_control:
                marker = read_marker(data[at : at + header.size_bytes])
                if marker is not None and not marker.committed:
                    skipped.discard(header.producer_id)
            elif header.count and not (header.is_transactional and header.producer_id in skipped):
                found += [item for item in read_records(data[at:]) if item.offset >= offset]
        offset = _end_of(whole)
    return found


def committed_values(log: Log, high_watermark: int = ENDLESS, max_bytes: int = 700) -> list[bytes | None]:
    return [item.value for item in committed_records(log, high_watermark, max_bytes)]


def _end_of(whole: list[tuple[int, BatchHeader]]) -> int:
    return whole[-1][1].next_offset


def settings(**values: object) -> LogSettings:
    """`settings(segment_bytes=1024)`: names with underscores for dots."""
    return LogSettings.of({name.replace("_", "."): str(value) for name, value in values.items()})


def open_at(
    disk: Disk | None = None, *, boot: str = BOOT, now_ms: int = NOW_MS, first_offset: int = 0, **values: object
) -> Log:
    """The log in `FOLDER`, opened as a broker does when it starts."""
    where = MemoryDisk() if disk is None else disk
    values.setdefault("message_timestamp_after_max_ms", 2**63 - 1)
    recovered = open_log(where, FOLDER, settings(**values), boot_id=boot, now_ms=now_ms, first_offset=first_offset)
    return recovered.log


def append(log: Log, *values: bytes | None, now_ms: int = NOW_MS, epoch: int = 0, **options: Any) -> Appended:
    return log.append(batch(*values, **options), epoch, now_ms)


def sync(log: Log) -> None:
    log.sync()


def records_in(data: Buffer) -> list[Record]:
    """The records of all whole batches."""
    return [record for at, header in batches(data) if header.count for record in read_records(data[at:])]


def all_records(log: Log, limit: int = ENDLESS) -> list[Record]:
    """What a consumer that begins at the start sees, fetch by fetch."""
    found: list[Record] = []
    offset, limit = log.start_offset, min(limit, log.end_offset)
    while data := log.read(offset, 700, limit, blocking=True):
        found += [record for record in records_in(data) if record.offset >= offset]
        (*_, (_, last)) = batches(data)
        offset = last.next_offset
    return found


def values_in(log: Log) -> list[bytes | None]:
    return [record.value for record in all_records(log)]


def offsets_in(log: Log) -> list[int]:
    return [record.offset for record in all_records(log)]


class FullDisk:
    """A disk in front of another one, with a settable number of free bytes."""

    def __init__(self, disk: Disk, free_bytes: int = 1 << 60) -> None:
        self._disk = disk
        self.free_bytes = free_bytes

    def __getattr__(self, name: str) -> Any:
        return getattr(self._disk, name)

    def open(self, path: str) -> "File":
        return _CountedFile(self._disk.open(path), self)

    def take(self, count: int) -> None:
        if count > self.free_bytes:
            raise StorageError("no space left on device")
        self.free_bytes -= count

    def store(self, path: str, data: bytes, durable: bool = False) -> None:
        self.take(len(data))
        self._disk.store(path, data, durable)


class _CountedFile:
    def __init__(self, file: File, disk: FullDisk) -> None:
        self._file = file
        self._disk = disk

    def __getattr__(self, name: str) -> Any:
        return getattr(self._file, name)

    def append(self, data: Buffer) -> None:
        self._disk.take(len(data))
        self._file.append(data)


class SyncedDisk:
    """A disk in front of another one, whose files call `on_sync` with their path when they are synced."""

    def __init__(self, disk: Disk, on_sync: Callable[[str], None]) -> None:
        self._disk = disk
        self._on_sync = on_sync

    def __getattr__(self, name: str) -> Any:
        return getattr(self._disk, name)

    def open(self, path: str) -> "File":
        return _ToldFile(self._disk.open(path), path, self._on_sync)


class _ToldFile:
    def __init__(self, file: File, path: str, on_sync: Callable[[str], None]) -> None:
        self._file = file
        self._path = path
        self._on_sync = on_sync

    def __getattr__(self, name: str) -> Any:
        return getattr(self._file, name)

    def sync(self) -> None:
        self._on_sync(self._path)
        self._file.sync()


def pairs(items: Iterable[Record]) -> list[tuple[int, bytes | None, bytes | None]]:
    return [(item.offset, item.key, item.value) for item in items]


def headers_from(log: Log, offset: int) -> list[BatchHeader]:
    """The headers of every batch from the one that holds `offset` on."""
    return [header for segment in log.segments for _, header in segment.headers() if header.last_offset >= offset]
