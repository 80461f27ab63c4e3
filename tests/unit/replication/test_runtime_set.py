"""State machines are loaded a few at a time."""

import asyncio
from collections.abc import Callable
from types import SimpleNamespace
from typing import Any, cast

from penstock.foundation.clock import SystemClock
from penstock.foundation.errors import PenstockError
from penstock.replication.partition import Partition
from penstock.replication.runtime import StateRuntime
from penstock.replication.runtime_set import LOADS_MAX, RuntimeSet

COUNT = 5 * LOADS_MAX


class SlowRuntime:
    """Stands for a runtime whose log is read on demand."""

    def __init__(self, owner: "SlowSet", partition: Partition) -> None:
        self.partition = partition
        self.is_loaded = False
        self.skipped_count = 0
        self._owner = owner

    async def load(self, on_read: Callable[[], None]) -> None:
        self._owner.reading += 1
        self._owner.most = max(self._owner.most, self._owner.reading)
        try:
            await self._owner.gate.wait()
        finally:
            self._owner.reading -= 1
        on_read()
        await self._owner.committed.wait()
        self.is_loaded = True

    def close(self, error: PenstockError) -> None:
        pass


class SlowSet(RuntimeSet[int]):
    def __init__(self) -> None:
        nothing: Any = None
        super().__init__(make=nothing, clock=SystemClock(), timer=nothing, threads=nothing, perform=nothing)
        self.reading = self.most = 0
        self.gate = asyncio.Event()
        self.committed = asyncio.Event()

    def _new(self, partition: Partition) -> StateRuntime:
        return cast(StateRuntime, SlowRuntime(self, partition))


def _partitions() -> dict[int, Partition]:
    return {number: cast(Partition, SimpleNamespace(is_online=True, name=str(number))) for number in range(COUNT)}


async def test_logs_are_read_a_few_at_a_time_and_one_that_waits_to_be_committed_keeps_no_other() -> None:
    runtimes = SlowSet()
    runtimes.update_roles(_partitions(), {})
    assert runtimes.is_loading
    await asyncio.sleep(0)
    assert runtimes.reading == LOADS_MAX
    runtimes.gate.set()
    while runtimes._to_load or runtimes.reading:  # noqa: ASYNC110
        await asyncio.sleep(0)
    assert not runtimes.loaded, "all were read, and none is committed"
    runtimes.committed.set()
    await runtimes.wait_loaded()
    assert len(runtimes.loaded) == COUNT
    assert runtimes.most == LOADS_MAX
    assert not runtimes.is_loading


async def test_a_runtime_that_is_closed_while_it_waits_is_not_loaded() -> None:
    runtimes = SlowSet()
    runtimes.update_roles(_partitions(), {})
    await asyncio.sleep(0)
    runtimes.update_roles({}, {})
    for _ in range(3):
        await asyncio.sleep(0)
    assert runtimes.most == LOADS_MAX
    assert not runtimes.is_loading
    runtimes.gate.set()
    runtimes.committed.set()
    runtimes.update_roles(_partitions(), {})
    await runtimes.wait_loaded()
    assert len(runtimes.loaded) == COUNT
