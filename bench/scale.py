"""How much of everything a run does: the full one, and a quick one to see that it all works."""

from dataclasses import dataclass, replace
from typing import Final

MB: Final = 10**6
GB: Final = 10**9


@dataclass(frozen=True, slots=True, kw_only=True)
class Scale:
    name: str
    rounds: int
    """Runs of every load against every server, in turn: A B A B. Figures are medians."""
    window_s: float
    ramp_s: float
    """Every run begins with this, unmeasured."""
    bytes_max: int
    """A run ends when it has moved this much: beyond, the disk would be measured."""
    warm_s: float
    """For a JVM, with the loads that follow."""
    latency_s: float
    latency_rounds: int
    fill_bytes: tuple[int, int, int]
    """What there is to fetch, in batches of one record, 16 KiB and 128 KiB."""
    client_messages: int
    replay_messages: int
    """Fits in one segment, 1 GiB: an answer ends where its segment does, and would then be shorter."""
    coordinator_rounds: int
    coordinator_s: float
    """Of one run of commits or transactions, after the same ramp."""
    starts: int
    start_log_bytes: int
    log_bytes: tuple[int, int]
    waiting_messages: int
    share_messages: int
    """Worked off by share consumers and their like, in one run."""


FULL: Final = Scale(
    name="full",
    rounds=5,
    window_s=3.0,
    ramp_s=0.5,
    bytes_max=2 * GB,
    warm_s=60.0,
    latency_s=15.0,
    latency_rounds=3,
    fill_bytes=(50 * MB, 256 * MB, 512 * MB),
    client_messages=1_000_000,
    replay_messages=800_000,
    coordinator_rounds=3,
    coordinator_s=2.0,
    starts=5,
    start_log_bytes=GB,
    log_bytes=(GB, 10 * GB),
    waiting_messages=1_000_000,
    share_messages=100_000,
)

SHORT: Final = replace(
    FULL,
    name="short",
    rounds=2,
    window_s=2.0,
    ramp_s=0.3,
    warm_s=25.0,
    latency_s=8.0,
    latency_rounds=2,
    client_messages=300_000,
    coordinator_rounds=2,
    coordinator_s=1.5,
    starts=3,
    share_messages=30_000,
)
"""A third of the time: the same sizes, fewer and shorter rounds."""

QUICK: Final = Scale(
    name="quick",
    rounds=1,
    window_s=0.8,
    ramp_s=0.2,
    bytes_max=GB,
    warm_s=5.0,
    latency_s=4.0,
    latency_rounds=1,
    fill_bytes=(20 * MB, 128 * MB, 256 * MB),
    client_messages=100_000,
    replay_messages=200_000,
    coordinator_rounds=1,
    coordinator_s=0.8,
    starts=1,
    start_log_bytes=GB // 10,
    log_bytes=(GB // 10, GB),
    waiting_messages=50_000,
    share_messages=10_000,
)
