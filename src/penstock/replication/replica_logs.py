"""Opens, removes and closes the logs of replicas: on disk threads, many per job, one job per path at a time.

Logs to open or remove are queued, and `dispatch` starts jobs for them. Topics with few partitions come first, so that
they do not wait for a topic with ten thousand partitions.
"""

import logging
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from functools import partial
from threading import Lock
from typing import Final, NamedTuple

from penstock.cluster.image import Topic
from penstock.foundation.clock import Clock
from penstock.foundation.errors import StorageError
from penstock.foundation.ids import TopicIdPartition, TopicPartition
from penstock.log.disk import Disk
from penstock.log.folder import LogFolder
from penstock.log.io_queue import Outcome, Runner
from penstock.log.log import Log
from penstock.log.memory import MemoryDisk
from penstock.log.recovery import open_log
from penstock.log.settings import LogSettings, Storage

logger = logging.getLogger(__name__)

NO_DESCRIPTORS: Final = "too many open files for new partitions; raise the limit (ulimit -n, LimitNOFILE)"
OPEN_JOBS: Final = 2
"""Maximum number of concurrent jobs that open logs: other threads must stay free for flushes."""
OPEN_BATCH: Final = 500
"""Number of replicas that one job opens: the new logs of one job share their fsyncs."""
REMOVE_BATCH: Final = 1000
CLOSE_BATCH: Final = 25
"""Number of logs that one job closes; their fsyncs run one after another."""


class LogSpec(NamedTuple):
    """A log to open: its id, path, settings and first offset."""

    log_id: bytes
    """The topic id or, for a companion log (queue state or delayed messages of a partition), `Topic.companion`."""
    path: str
    name: TopicPartition
    settings: LogSettings
    first_offset: int
    in_sync: bool
    """Whether this broker is in the ISR. If not, a lost log is recreated empty, and fetched from the leader."""


class OpenedLog(NamedTuple):
    """An opened log, or the reason why the log could not be opened."""

    log: Log | None = None
    reason: str = ""
    is_postponed: bool = False
    """Whether the log could not be created for now, as on a full disk; its creation may be retried."""


class Replica(NamedTuple):
    """Logs of one replica to open together: its own, its companion log (queue state or delayed messages), or both."""

    tp: TopicIdPartition
    specs: Sequence[LogSpec]


Opened = tuple[Replica, list[OpenedLog]]


class ReplicaLogs:
    """Queues of logs to open, remove and close. Owned by the event loop's thread; its jobs run on disk threads."""

    def __init__(
        self,
        *,
        disk: Disk,
        clock: Clock,
        boot_id: str,
        run: Runner,
        on_opened: Callable[[list[Opened]], None],
        on_removed: Callable[[Sequence[TopicIdPartition]], None],
    ) -> None:
        self.folder: Final = LogFolder(disk)
        self._clock = clock
        self._boot_id = boot_id
        self._run = run
        self._on_opened = on_opened
        self._on_removed = on_removed
        self._busy: set[str] = set()
        """Paths of logs with a queued or running job."""
        self._to_open: dict[bytes, list[Replica]] = {}
        self._to_remove: list[tuple[TopicIdPartition, str, Log | None]] = []
        self._opening = 0
        self._is_removing = False
        self._closing = 0
        self._is_closing = False
        self._is_clean = True
        self._then: Callable[[bool], None] = lambda is_clean: None
        self._descriptors_lock = Lock()
        self._descriptors_reserved = 0
        """File descriptors reserved for logs that jobs are creating."""

    def is_busy(self, path: str) -> bool:
        return path in self._busy

    def open(self, replica: Replica) -> None:
        """Queues the logs of a replica to be opened; there must be no other job for their paths."""
        self._busy.update(spec.path for spec in replica.specs)
        self._to_open.setdefault(replica.tp.topic_id, []).append(replica)

    def remove(self, tp: TopicIdPartition, path: str, log: Log | None) -> None:
        """Closes a log without fsync and removes its files, after the log's running job has ended."""
        self._busy.add(path)

        def stopped() -> None:
            if not self._is_closing:
                self._to_remove.append((tp, path, log))
                self.dispatch()

        if log is None:
            self._to_remove.append((tp, path, None))
        else:
            log.io.stop(stopped)

    # -- jobs

    def dispatch(self) -> None:
        """Starts jobs that open or remove queued logs: at most OPEN_JOBS to open and one to remove at a time."""
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
            failed = OpenedLog(reason=str(outcome.error), is_postponed=True)
            outcome = Outcome([(replica, [failed] * len(replica.specs)) for replica in batch])
        if self._is_closing:
            self._close([found.log for _, logs in outcome.value for found in logs if found.log is not None])
            return
        self._on_opened(outcome.value)
        self.dispatch()

    def _removed(self, gone: Sequence[tuple[TopicIdPartition, str, Log | None]], outcome: Outcome) -> None:
        self._is_removing = False
        self._busy.difference_update(path for _, path, _ in gone)
        if outcome.error is not None:  # the rest is removed at the next start
            logger.warning("logs_not_removed count=%d reason=%r", len(gone), str(outcome.error))
        if self._is_closing:
            self._report_closed()
            return
        self._on_removed([tp for tp, _, _ in gone])
        self.dispatch()

    # -- on a thread

    def _open_all(self, batch: Sequence[Replica]) -> list[Opened]:
        folder = self.folder
        specs = [spec for replica in batch for spec in replica.specs if spec.settings.storage is Storage.DISK]
        lost = {spec.path for spec in specs if folder.is_lost(spec.path)}
        # A lost log of a replica outside the ISR is recreated and fetched from the others. So is one whose removal
        # was interrupted by a crash: without its first segments, the rest looks trimmed.
        found = lost | {spec.path for spec in specs if folder.is_leftover(spec.path)}
        recreated = sorted(spec.path for spec in specs if spec.path in found and not spec.in_sync)
        if recreated:
            logger.warning("replicas_recreated count=%d", len(recreated))
            self.remove_now(recreated)
            lost.difference_update(recreated)
        fresh = {spec.path for spec in specs if not folder.is_made(spec.path)}
        with self._reserve_descriptors(len(fresh)) as count:
            too_many = sorted(fresh)[count:]
            not_made = dict.fromkeys(too_many, NO_DESCRIPTORS)
            try:
                folder.make(sorted(fresh.difference(too_many)))
            except StorageError as error:
                not_made = dict.fromkeys(fresh, str(error))
            opened = [(replica, self._open_replica(replica, lost, fresh, not_made)) for replica in batch]
        postponed = [logs[0].reason for _, logs in opened if logs[0].is_postponed]
        if postponed:
            logger.warning("partitions_not_created count=%d reason=%r", len(postponed), postponed[0])
        return opened

    @contextmanager
    def _reserve_descriptors(self, wanted: int) -> Iterator[int]:
        """Reserves file descriptors during the `with` block; yields how many of `wanted` this job may use."""
        with self._descriptors_lock:
            count = max(0, min(wanted, self.folder.disk.spare_files() - self._descriptors_reserved)) if wanted else 0
            self._descriptors_reserved += count
        try:
            yield count
        finally:
            with self._descriptors_lock:
                self._descriptors_reserved -= count

    def _open_replica(
        self, replica: Replica, lost: set[str], fresh: set[str], not_made: Mapping[str, str]
    ) -> list[OpenedLog]:
        """Opens all logs of a replica, or none if one of them cannot be created. `lost`: paths of logs whose
        folders are missing; `fresh`: of new logs; `not_made`: by path, why a new log could not be created."""
        opened: list[OpenedLog] = []
        for spec in replica.specs:
            is_fresh = spec.path in fresh
            if spec.path in not_made:
                opened.append(OpenedLog(reason=not_made[spec.path], is_postponed=True))
            elif spec.path in lost:
                opened.append(OpenedLog(reason="its folder is missing; restore it, or delete the topic"))
            else:
                opened.append(self._open_one(spec))
                if is_fresh and opened[-1].log is None:
                    self.remove_now([spec.path])
                    opened[-1] = opened[-1]._replace(is_postponed=True)
        if any(found.is_postponed for found in opened):  # all or none: they lead and follow together
            for found in opened:
                if found.log is not None:
                    found.log.abandon()
            reason = next(found.reason for found in opened if found.is_postponed)
            return [OpenedLog(reason=reason, is_postponed=True)] * len(opened)
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
            logger.warning("log_tail_truncated partition=%s bytes=%d", spec.name, recovered.cut_bytes)
        return OpenedLog(recovered.log)

    def _remove_all(self, gone: Sequence[tuple[TopicIdPartition, str, Log | None]]) -> None:
        for _, _, log in gone:
            if log is not None:
                log.abandon()
        self.folder.remove([path for _, path, _ in gone])

    def remove_now(self, paths: Sequence[str]) -> None:
        """Removes logs that are not open. Waits for the disk."""
        try:
            self.folder.remove(paths)
        except StorageError as error:  # the rest is removed at the next start
            logger.warning("logs_not_removed count=%d reason=%r", len(paths), str(error))

    def remove_strays(self, known: Iterable[str]) -> None:
        """Removes all logs except those with `known` paths. Waits for the disk."""
        strays = self.folder.strays(known)
        if strays:
            logger.info("stray_logs_removed count=%d", len(strays))
            self.remove_now(strays)

    # -- closing

    def close(self, logs: Sequence[Log], then: Callable[[bool], None]) -> None:
        """Syncs and closes `logs` and the logs that are being opened; drops the queued jobs. Logs that were queued
        for removal are removed at the next start. Calls `then` at the end: with True, or with False if a log could
        not be closed."""
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
        self._report_closed()

    def _closed(self, count: int, outcome: Outcome) -> None:
        self._closing -= count
        self._is_clean = self._is_clean and outcome.error is None and outcome.value
        self._report_closed()

    def _report_closed(self) -> None:
        if not (self._opening or self._is_removing or self._closing):
            then, self._then = self._then, lambda is_clean: None
            then(self._is_clean)


def _close_all(logs: Sequence[Log]) -> bool:
    """Syncs and closes logs; runs on a thread. Returns False if some log could not be closed."""
    is_clean = True
    for log in logs:
        try:
            log.close()
        except StorageError as error:
            logger.error("log_not_closed folder=%s reason=%r", log.folder, str(error))
            log.abandon()
            is_clean = False
    return is_clean


def log_ids(topic: Topic) -> list[bytes]:
    """Returns the ids of a replica's logs: the topic id and, if the topic has companion logs (second logs of its
    partitions, for queue state or delayed messages), `topic.companion`."""
    return [topic.topic_id, topic.companion] if topic.companion else [topic.topic_id]


def paths_of(topic: Topic, number: int) -> Iterator[str]:
    """Yields the paths of a replica's logs: its own and, if any, its companion log (queue state, delays)."""
    name = TopicPartition(topic.name, number)
    for log_id in log_ids(topic):
        yield LogFolder.path(name, log_id)
