"""Long full collections are followed by a freeze; now and then everything is collected."""

import gc
from collections.abc import Iterator
from typing import Any

import pytest

from penstock.foundation import collector as module
from penstock.foundation.collector import LONG_S, Collector


class Times:
    """A clock and the CPU time of a thread, set by hand."""

    def __init__(self) -> None:
        self.now_s = 1000.0
        self.cpu_s = 0.0


@pytest.fixture
def times() -> Iterator[Times]:
    gc.unfreeze()
    yield Times()
    gc.unfreeze()


def _collect(collector: Collector, times: Times, cpu_s: float, generation: int = 2) -> None:
    info: dict[str, Any] = {"generation": generation, "collected": 0, "uncollectable": 0}
    collector.on_collection("start", info)
    times.cpu_s += cpu_s
    collector.on_collection("stop", info)


def test_survivors_of_a_long_full_collection_are_frozen(times: Times) -> None:
    collector = Collector(lambda: times.now_s, lambda: times.cpu_s)
    _collect(collector, times, LONG_S / 2)
    _collect(collector, times, 10 * LONG_S, generation=1)
    assert gc.get_freeze_count() == 0
    _collect(collector, times, 2 * LONG_S)
    assert gc.get_freeze_count() > 0


def test_everything_is_collected_after_many_freezes_and_not_more_often_than_every_few_hours(
    times: Times, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(module, "FREEZES_MIN", 3)
    collector = Collector(lambda: times.now_s, lambda: times.cpu_s)
    for _ in range(5):
        _collect(collector, times, 2 * LONG_S)
    assert gc.get_freeze_count() > 0, "not enough time has passed"
    times.now_s += module.COLLECT_ALL_S
    _collect(collector, times, 2 * LONG_S)
    assert gc.get_freeze_count() == 0
    _collect(collector, times, 2 * LONG_S)
    times.now_s += module.COLLECT_ALL_S
    _collect(collector, times, 2 * LONG_S)
    assert gc.get_freeze_count() > 0, "too little was frozen since"


def test_a_started_collector_gets_callbacks_for_collections(times: Times) -> None:
    before = gc.get_threshold()
    heard = Times()

    def cpu_s() -> float:
        heard.cpu_s += 2 * LONG_S
        return heard.cpu_s

    collector = Collector(lambda: times.now_s, cpu_s)
    collector.start()
    try:
        gc.collect()
        assert gc.get_freeze_count() > 0
    finally:
        collector.stop()
        gc.set_threshold(*before)
