"""Opening and removing the logs of replicas: on threads, many at a time, each path by one job at a time.

What is asked for is collected, and `dispatch` makes jobs of it. Topics with few partitions come first: one that has
ten thousand does not keep them waiting.
"""

import logging
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from functools import partial
from threading import Lock
from typing import Final, NamedTuple

from penstock.cluster.image import Place, Topic
from penstock.foundation.clock import Clock
from penstock.foundation.errors import StorageError
from penstock.foundation.ids import TopicPartition
from penstock.log.disk import Disk
from penstock.log.folder import LogFolder
from penstock.log.io_queue import Outcome, Runner
from penstock.log.log import Log
from penstock.log.memory import MemoryDisk
from penstock.log.recovery import open_log
from penstock.log.settings import LogSettings, Storage

logger = logging.getLogger(__name__)

NO_DESCRIPTORS: Final = "too many files are open for new partitions: raise the limit (ulimit -n, LimitNOFILE)"
OPEN_JOBS: Final = 2
"""Jobs that open logs at a time: flushes must find a thread, too."""
OPEN_BATCH: Final = 500
"""Replicas that one job opens: new ones share their fsyncs."""
REMOVE_BATCH: Final = 1000
CLOSE_BATCH: Final = 25
"""Logs that one job closes, one fsync after another."""


class LogSpec(NamedTuple):
    """A log that is to be opened."""

    log_id: bytes
    """Its topic's id; a companion has one of its own."""
    path: str
    name: TopicPartition
    settings: LogSettings
    first_offset: int
    in_sync: bool
    """Whether this broker is in the ISR: then what is lost of the log was acknowledged, maybe by nobody else."""


class OpenedLog(NamedTuple):
    """A log, or the reason why there is none."""

    log: Log | None = None
    reason: str = ""
    is_put_off: bool = False
    """Whether it could not be made because the disk is full, and may be tried again."""


class Replica(NamedTuple):
    """The logs of one replica that are opened together: its own, its companion, or both."""

    place: Place
    specs: Sequence[LogSpec]


Opened = tuple[Replica, list[OpenedLog]]


class ReplicaLogs:
    """Owned by the event loop's thread; its jobs are not."""

    def __init__(
        self,
        *,
        disk: Disk,
        clock: Clock,
        boot_id: str,
        run: Runner,
        on_opened: Callable[[list[Opened]], None],
        on_removed: Callable[[Sequence[Place]], None],
    ) -> None:
        self.folder: Final = LogFolder(disk)
        self._clock = clock
        self._boot_id = boot_id
        self._run = run
        self._on_opened = on_opened
        self._on_removed = on_removed
        self._busy: set[str] = set()
        """Paths that a job works on, or will."""
        self._to_open: dict[bytes, list[Replica]] = {}
        self._to_remove: list[tuple[Place, str, Log | None]] = []
        self._opening = 0
        self._is_removing = False
        self._closing = 0
        self._is_closing = False
        self._is_well = True
        self._then: Callable[[bool], None] = lambda is_well: None
        self._grants = Lock()
        self._granted = 0
        """Descriptors of logs that jobs are creating: they are taken, though some are not in use yet."""

    def is_busy(self, path: str) -> bool:
        return path in self._busy

    def open(self, replica: Replica) -> None:
        """Open logs with the next jobs; none of their paths may be busy."""
        self._busy.update(spec.path for spec in replica.specs)
        self._to_open.setdefault(replica.place.topic_id, []).append(replica)

    def remove(self, place: Place, path: str, log: Log | None) -> None:
        """Close a log without a word and remove it, once the job that works on it, if there is one, has ended."""
        self._busy.add(path)

        def stopped() -> None:
            if not self._is_closing:
                self._to_remove.append((place, path, log))
                self.dispatch()

        if log is None:
            self._to_remove.append((place, path, None))
        else:
            log.io.stop(stopped)

    # -- jobs

    def dispatch(self) -> None:
        """Make jobs of what waits, as many as may run now."""
        while self._to_open and self._opening < OPEN_JOBS:
            batch = self._next_batch()
            self._opening += 1
            self._run(partial(self._open_all, batch), partial(self._opened, batch))
        if self._to_remove and not self._is_removing:
            gone, self._to_remove = self._to_remove[:REMOVE_BATCH], self._to_remove[REMOVE_BATCH:]
            self._is_removing = True
            self._run(lambda: self._remove_all(gone), lambda outcome: self._removed(gone, outcome))

    def _next_batch(self) -> list[Replica]:
        batch: list[Replica] = []
        for topic_id in sorted(self._to_open, key=lambda known: len(self._to_open[known])):
            waiting = self._to_open[topic_id]
            room = OPEN_BATCH - len(batch)
            batch += waiting[:room]
            if len(waiting) > room:
                self._to_open[topic_id] = waiting[room:]
                break
            del self._to_open[topic_id]
        return batch

    def _opened(self, batch: list[Replica], outcome: Outcome) -> None:
        self._opening -= 1
        for replica in batch:
            self._busy.difference_update(spec.path for spec in replica.specs)
        if outcome.error is not None:
            failed = OpenedLog(reason=str(outcome.error), is_put_off=True)
            outcome = Outcome([(replica, [failed] * len(replica.specs)) for replica in batch])
        if self._is_closing:
            self._close([found.log for _, logs in outcome.value for found in logs if found.log is not None])
            return
        self._on_opened(outcome.value)
        self.dispatch()

    def _removed(self, gone: Sequence[tuple[Place, str, Log | None]], outcome: Outcome) -> None:
        self._is_removing = False
        self._busy.difference_update(path for _, path, _ in gone)
        if outcome.error is not None:  # the next start finds and removes what is left
            logger.warning("logs_not_removed count=%d reason=%r", len(gone), str(outcome.error))
        if self._is_closing:
            self._tell_closed()
            return
        self._on_removed([place for place, _, _ in gone])
        self.dispatch()

    # -- on a thread

    def _open_all(self, batch: Sequence[Replica]) -> list[Opened]:
        folder = self.folder
        specs = [spec for replica in batch for spec in replica.specs if spec.settings.storage is Storage.DISK]
        lost = {spec.path for spec in specs if folder.is_lost(spec.path)}
        # What others are in sync with, and this broker is not any more, begins anew and is fetched from them. Also
        # where power was lost while it was removed: without its first segments, what is left looks trimmed.
        found = lost | {spec.path for spec in specs if folder.is_left(spec.path)}
        anew = sorted(spec.path for spec in specs if spec.path in found and not spec.in_sync)
        if anew:
            logger.warning("replicas_begin_anew count=%d", len(anew))
            self.remove_now(anew)
            lost.difference_update(anew)
        fresh = {spec.path for spec in specs if not folder.is_made(spec.path)}
        with self._granting(len(fresh)) as count:
            too_many = sorted(fresh)[count:]
            not_made = dict.fromkeys(too_many, NO_DESCRIPTORS)
            try:
                folder.make(sorted(fresh.difference(too_many)))
            except StorageError as error:
                not_made = dict.fromkeys(fresh, str(error))
            opened = [(replica, self._open_replica(replica, lost, fresh, not_made)) for replica in batch]
        put_off = [logs[0].reason for _, logs in opened if logs[0].is_put_off]
        if put_off:
            logger.warning("partitions_not_made count=%d reason=%r", len(put_off), put_off[0])
        return opened

    @contextmanager
    def _granting(self, wanted: int) -> Iterator[int]:
        """How many of the wanted descriptors may be used by this job; other jobs get what is left."""
        with self._grants:
            count = max(0, min(wanted, self.folder.disk.room() - self._granted)) if wanted else 0
            self._granted += count
        try:
            yield count
        finally:
            with self._grants:
                self._granted -= count

    def _open_replica(
        self, replica: Replica, lost: set[str], fresh: set[str], not_made: Mapping[str, str]
    ) -> list[OpenedLog]:
        """`not_made`: of the fresh ones, those that could not be made, and why."""
        opened: list[OpenedLog] = []
        for spec in replica.specs:
            is_fresh = spec.path in fresh
            if spec.path in not_made:
                opened.append(OpenedLog(reason=not_made[spec.path], is_put_off=True))
            elif spec.path in lost:
                opened.append(OpenedLog(reason="its folder is gone; bring it back, or delete the topic"))
            else:
                opened.append(self._open_one(spec))
                if is_fresh and opened[-1].log is None:
                    self.remove_now([spec.path])
                    opened[-1] = opened[-1]._replace(is_put_off=True)
        if any(found.is_put_off for found in opened):  # all or none: they lead and follow together
            for found in opened:
                if found.log is not None:
                    found.log.abandon()
            reason = next(found.reason for found in opened if found.is_put_off)
            return [OpenedLog(reason=reason, is_put_off=True)] * len(opened)
        return opened

    def _open_one(self, spec: LogSpec) -> OpenedLog:
        in_memory = spec.settings.storage is Storage.MEMORY
        try:
            recovered = open_log(
                MemoryDisk() if in_memory else self.folder.disk,
                spec.path,
                spec.settings,
                boot_id=self._boot_id,
                now_ms=self._clock.now_ms(),
                first_offset=spec.first_offset,
            )
        except StorageError as error:
            return OpenedLog(reason=str(error))
        if recovered.cut_bytes:
            logger.warning("log_tail_cut partition=%s bytes=%d", spec.name, recovered.cut_bytes)
        return OpenedLog(recovered.log)

    def _remove_all(self, gone: Sequence[tuple[Place, str, Log | None]]) -> None:
        for _, _, log in gone:
            if log is not None:
                log.abandon()
        self.folder.remove([path for _, path, _ in gone])

    def remove_now(self, paths: Sequence[str]) -> None:
        """Remove logs that are not open, and wait for it."""
        try:
            self.folder.remove(paths)
        except StorageError as error:  # the next start finds and removes what is left
            logger.warning("logs_not_removed count=%d reason=%r", len(paths), str(error))

    def remove_strays(self, known: Iterable[str]) -> None:
        """Remove all logs but those that are known, and wait for it."""
        strays = self.folder.strays(known)
        if strays:
            logger.info("removed_stray_logs count=%d", len(strays))
            self.remove_now(strays)

    # -- at the end

    def close(self, logs: Sequence[Log], then: Callable[[bool], None]) -> None:
        """Sync and close logs that nobody uses any more, and those that are being opened; begin nothing else.

        `then` gets whether all could be closed. One that cannot is no reason to let the others down. What waits to be
        removed, the next start finds.
        """
        self._is_closing = True
        self._to_open.clear()
        self._to_remove.clear()
        self._then = then
        self._close(logs)

    def _close(self, logs: Sequence[Log]) -> None:
        stopped: list[Log] = []
        are_many = True

        def on_stopped(log: Log) -> None:
            stopped.append(log)
            if len(stopped) >= CLOSE_BATCH or not are_many:
                close_some()

        def close_some() -> None:
            batch = stopped.copy()
            stopped.clear()
            if batch:
                self._run(lambda: _close_all(batch), lambda outcome: self._closed(len(batch), outcome))

        self._closing += len(logs)
        for log in logs:
            log.io.stop(partial(on_stopped, log))
        close_some()
        are_many = False
        self._tell_closed()

    def _closed(self, count: int, outcome: Outcome) -> None:
        self._closing -= count
        self._is_well = self._is_well and outcome.error is None and outcome.value
        self._tell_closed()

    def _tell_closed(self) -> None:
        if not (self._opening or self._is_removing or self._closing):
            then, self._then = self._then, lambda is_well: None
            then(self._is_well)


def _close_all(logs: Sequence[Log]) -> bool:
    """On a thread: whether all could be closed."""
    is_well = True
    for log in logs:
        try:
            log.close()
        except StorageError as error:
            logger.error("log_not_closed folder=%s reason=%r", log.folder, str(error))
            log.abandon()
            is_well = False
    return is_well


def log_ids(topic: Topic) -> list[bytes]:
    """Of a partition's own log, and of its companion if it has one."""
    return [topic.topic_id, topic.companion] if topic.companion else [topic.topic_id]


def paths_of(topic: Topic, number: int) -> Iterator[str]:
    """Where the logs of a replica lie: its own, and its companion's if it has one."""
    name = TopicPartition(topic.name, number)
    for log_id in log_ids(topic):
        yield LogFolder.path(name, log_id)
