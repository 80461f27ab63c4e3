"""A broker whose stall monitor ticks every 5 ms, and a probe that watches it."""

import os
import sys
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

from tests.brokers import BrokerProcess

from .probe import MONITOR_SETTINGS, Probe

SLOW_DISK = Path(__file__).parent / "slow_disk"


@pytest.fixture(scope="module")
def target(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> Iterator[BrokerProcess]:
    """The broker that the cases of one file mistreat. Files that have BY_EXEC measure imports, too."""
    by_exec = getattr(request.module, "BY_EXEC", False)
    process = BrokerProcess(tmp_path_factory.mktemp("target"), MONITOR_SETTINGS, by_exec=by_exec).start()
    yield process
    process.finish()


@pytest.fixture(scope="module")
def probe(target: BrokerProcess) -> Iterator[Probe]:
    found = Probe(target)
    yield found
    print_worst(found)


@pytest.fixture
def own_target(tmp_path: Path) -> Iterator[Callable[..., BrokerProcess]]:
    """Starts brokers that a test has for itself; `fsync_delay_s` and `write_delay_s` make their disk slow."""
    made: list[BrokerProcess] = []

    def start(
        settings: dict[str, Any] | None = None,
        fsync_delay_s: float = 0.0,
        write_delay_s: float = 0.0,
        by_exec: bool = False,
    ) -> BrokerProcess:
        folder = tmp_path / f"target-{len(made)}"
        folder.mkdir()
        environment = None
        if fsync_delay_s or write_delay_s:
            path = os.pathsep.join([str(SLOW_DISK), *filter(None, [os.environ.get("PYTHONPATH")])])
            environment = {
                "PYTHONPATH": path,
                "PENSTOCK_TEST_FSYNC_DELAY_S": str(fsync_delay_s),
                "PENSTOCK_TEST_WRITE_DELAY_S": str(write_delay_s),
            }
        values = MONITOR_SETTINGS | (settings or {})
        made.append(BrokerProcess(folder, values, environment=environment, by_exec=by_exec))
        return made[-1].start()

    yield start
    for process in made:
        process.finish()


def print_worst(probe: Probe) -> None:
    """A table for people: `make hostile` shows it."""
    for case, worst in probe.results.items():
        stall, cpu, healthz, produce = (1000 * seconds for seconds in worst)
        sys.stdout.write(
            f"\nhostile {case}: loop CPU <= {cpu:.0f} ms, stall <= {stall:.0f} ms, "
            f"/healthz {healthz:.0f} ms, produce {produce:.0f} ms"
        )
