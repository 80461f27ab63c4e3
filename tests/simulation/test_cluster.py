"""Seeded runs of a cluster. A failing seed is in the test's name and in the message."""

import logging
import os
from collections import Counter
from collections.abc import Callable, Iterator

import pytest

from penstock.log.disk import Disk
from penstock.log.last_run import LastRun
from penstock.replication import follower_fetch
from penstock.replication.follower import Following
from penstock.replication.leadership import Leadership, LedLog
from penstock.replication.partition import Partition
from penstock.wire.messages.fetch import EpochEndOffset
from tests.simulation.cluster_run import ClusterRun

STEPS = 4000
FAULTS_MIN = 10
PLANTED_SEEDS = 1000
SEEN = (
    "acked",
    "conflicts",
    "counted",
    "disks",
    "elections",
    "expired",
    "grows",
    "moves",
    "offsets_committed",
    "pauses",
    "power",
    "shrinks",
    "stops",
    "torn",
    "truncations",
    "txn_aborts",
    "txn_commits",
    "woken",
)
"""Events that must not be rare."""


@pytest.fixture(autouse=True)
def quiet() -> Iterator[None]:
    found = logging.getLogger("penstock")
    before = found.level
    found.setLevel(logging.CRITICAL)
    yield
    found.setLevel(before)


def _run(seed: int) -> Counter[str]:
    run = ClusterRun(seed, STEPS, FAULTS_MIN)
    try:
        run.run()
    except AssertionError as error:
        raise AssertionError(f"seed {seed}, step {run.counts['steps']}: {error}") from error
    assert run.counts["steps"] >= STEPS
    assert run.faults >= FAULTS_MIN
    return run.counts


LONG = (5, 7)
"""Runs that take ten times as long as others."""


@pytest.mark.parametrize(
    "seed", [pytest.param(seed, marks=[pytest.mark.slow] if seed in LONG else []) for seed in range(12)]
)
def test_acknowledged_records_are_never_lost(seed: int) -> None:
    assert _run(seed)["steps"] >= STEPS


def test_what_is_left_of_a_log_whose_removal_was_interrupted_is_not_a_log() -> None:
    """On a full disk, which could not note the removal: its first segment was gone, the next ones were left."""
    assert _run(7003521)["steps"] >= STEPS


@pytest.mark.slow
@pytest.mark.timeout(6 * 3600)
def test_acknowledged_records_are_never_lost_over_many_seeds() -> None:
    first = int(os.environ.get("SEED", "1000"))
    wanted = int(os.environ.get("SEEDS", "10000"))
    total: Counter[str] = Counter()
    for seed in range(first, first + wanted):
        total += _run(seed)
        if not (seed + 1) % 500:
            print(f"seeds {first} to {seed}: {dict(total)}", flush=True)  # noqa: T201
    for seen in SEEN:
        assert total[seen] > wanted // 10, f"{seen} happened only {total[seen]} times"


# -- bugs that are planted on purpose


def _acknowledge_early(patch: pytest.MonkeyPatch) -> None:
    """Before the ISR has it."""

    def advance(self: Leadership, log: LedLog) -> bool:
        before, log.high_watermark = log.high_watermark, log.end
        return log.end > before

    patch.setattr(Leadership, "_advance", advance)


def _never_truncate(patch: pytest.MonkeyPatch) -> None:
    patch.setattr(Following, "truncate", lambda self, offset, now_ms: None)
    patch.setattr(follower_fetch, "epoch_divergence", lambda log, wanted: None)


def _ignore_epochs(patch: pytest.MonkeyPatch) -> None:
    """Logs are compared by their ends only."""

    def epoch_divergence(log: object, wanted: object) -> EpochEndOffset | None:
        end = log.end_offset  # type: ignore[attr-defined]
        is_past = wanted.fetch_offset > end  # type: ignore[attr-defined]
        return EpochEndOffset(epoch=log.epochs.latest, end_offset=end) if is_past else None  # type: ignore[attr-defined]

    patch.setattr(Partition, "check_epoch", lambda self, epoch: None)
    patch.setattr(follower_fetch, "epoch_divergence", epoch_divergence)


def _write_once_deposed(patch: pytest.MonkeyPatch) -> None:
    """In the epoch of the current leader."""
    patch.setattr(Partition, "_refuse_append", lambda self: None)


def _take_back(patch: pytest.MonkeyPatch) -> None:
    """A sync that ends after an append makes the log end before it."""

    def appended(self: Leadership, index: int, end: int) -> bool:
        self.logs[index].end = end
        return self._advance(self.logs[index])

    patch.setattr(Leadership, "appended", appended)


def _forget_power_loss(patch: pytest.MonkeyPatch) -> None:
    """If a start fails before the loss was reported to the cluster, the next start does not know it."""
    init = LastRun.__init__

    def forget(self: LastRun, disk: Disk, boot_id: str) -> None:
        init(self, disk, boot_id)
        self.mark_loss_reported()

    patch.setattr(LastRun, "__init__", forget)


PLANTED = (
    _acknowledge_early,
    _never_truncate,
    _ignore_epochs,
    _write_once_deposed,
    _take_back,
    _forget_power_loss,
)


@pytest.mark.slow
@pytest.mark.timeout(1800)
@pytest.mark.parametrize("plant", PLANTED)
def test_a_planted_bug_is_found(plant: Callable[[pytest.MonkeyPatch], None], monkeypatch: pytest.MonkeyPatch) -> None:
    plant(monkeypatch)
    for seed in range(PLANTED_SEEDS):
        try:
            _run(seed)
        except AssertionError as error:
            print(f"found with seed {seed}: {error}")  # noqa: T201
            return
    pytest.fail(f"not found in {PLANTED_SEEDS} seeds")
