"""ReplicaLogs: jobs that create logs at the same time share the descriptors that are free."""

from collections.abc import Callable
from pathlib import Path

from penstock.foundation.clock import SystemClock
from penstock.foundation.ids import TopicIdPartition, TopicPartition
from penstock.log.disk import OsDisk, OsFile
from penstock.log.folder import LogFolder
from penstock.log.io_queue import Outcome, Work
from penstock.log.settings import LogSettings
from penstock.replication.replica_logs import OPEN_BATCH, LogSpec, Opened, Replica, ReplicaLogs

ROOM = 10
TOPIC_ID = bytes(16)


class SmallDisk(OsDisk):
    """A disk on which only so many segments may be open. `at_open` is called before the first one is opened."""

    opened = 0
    at_open: Callable[[], None] | None = None

    def open(self, path: str) -> OsFile:
        if path.endswith(".log"):
            then, self.at_open = self.at_open, None
            if then is not None:
                then()
            self.opened += 1
        return super().open(path)

    def spare_files(self) -> int:
        return ROOM - self.opened


def replica(number: int) -> Replica:
    name = TopicPartition("wide", number)
    spec = LogSpec(TOPIC_ID, LogFolder.path(name, TOPIC_ID), name, LogSettings.of({}), 0, True)
    return Replica(TopicIdPartition(TOPIC_ID, number), [spec])


def test_jobs_that_overlap_do_not_use_the_same_descriptors(tmp_path: Path) -> None:
    disk = SmallDisk(tmp_path)
    jobs: list[tuple[Work, Callable[[Outcome], None]]] = []
    opened: list[Opened] = []
    logs = ReplicaLogs(
        disk=disk,
        clock=SystemClock(),
        boot_id="boot",
        run=lambda work, done: jobs.append((work, done)),
        on_opened=opened.extend,
        on_removed=lambda places: None,
    )
    for number in range(6 * OPEN_BATCH):
        logs.open(replica(number))
    logs.dispatch()

    def run_the_others() -> None:
        while jobs:
            work, done = jobs.pop()
            done(Outcome.of(work))

    disk.at_open = run_the_others
    work, done = jobs.pop(0)
    done(Outcome.of(work))
    made = [found.log for _, found_all in opened for found in found_all if found.log is not None]
    assert len(opened) == 6 * OPEN_BATCH
    assert 0 < disk.opened <= ROOM
    assert len(made) == disk.opened
    for log in made:
        log.close()
