"""The event loop stall monitor, on a real loop that is held up on purpose."""

import asyncio
import logging
import re
import sys
import time
from collections.abc import Callable

import pytest
import uvloop

from penstock.foundation.loop_monitor import Histogram, LoopMonitor, describe_stack


def test_a_histogram_counts_by_upper_bound() -> None:
    histogram = Histogram((0.01, 0.1))
    for seconds in (0.001, 0.01, 0.05, 3.0):
        histogram.observe(seconds)
    assert histogram.counts == [2, 1, 1]
    assert histogram.sum_s == pytest.approx(3.061)
    assert histogram.max_s == 3.0


def _run_with(work: Callable[[], None], **options: float) -> LoopMonitor:
    """Runs a callback that holds the loop, until the monitor's overdue timer has fired."""

    async def main() -> LoopMonitor:
        monitor = LoopMonitor(asyncio.get_running_loop(), interval_s=0.01, **options)
        monitor.start()
        work()
        await asyncio.sleep(0.05)
        monitor.stop()
        assert sum(monitor.stalls.counts) > 0
        return monitor

    return uvloop.run(main())


def _burn(cpu_s: float) -> None:
    end_s = time.thread_time() + cpu_s
    while time.thread_time() < end_s:
        pass


def test_a_callback_that_computes_is_measured_in_cpu_time(caplog: pytest.LogCaptureFixture) -> None:
    with caplog.at_level(logging.WARNING):
        monitor = _run_with(lambda: _burn(0.4), warn_s=0.1)
    assert monitor.stalls.max_s >= 0.38
    assert monitor.stall_cpu.max_s >= 0.38
    (line,) = [record.getMessage() for record in caplog.records]
    found = re.fullmatch(r"event_loop_stalled seconds=(\S+) cpu_seconds=(\S+) handler=(\S+) at=(\S+)", line)
    assert found is not None, line
    assert float(found[1]) >= 0.38


@pytest.mark.parametrize(("blocked_s", "is_warned"), [(0.25, True), (0.15, False)])
def test_stalls_of_200_ms_are_logged_by_default(
    caplog: pytest.LogCaptureFixture, blocked_s: float, is_warned: bool
) -> None:
    with caplog.at_level(logging.WARNING):
        monitor = _run_with(lambda: time.sleep(blocked_s))
    # On a busy machine, the shorter stall may last longer than asked for.
    assert bool(caplog.records) is (is_warned or monitor.stalls.max_s >= 0.2)


def test_a_callback_that_blocks_uses_no_cpu_time() -> None:
    monitor = _run_with(lambda: time.sleep(0.4), warn_s=0.1)
    assert monitor.stalls.max_s >= 0.38
    assert monitor.stall_cpu.max_s < 0.2


def test_a_stack_is_named_after_the_handler_not_its_caller() -> None:
    frames = {}

    def namespace(module: str) -> dict[str, object]:
        return {"__name__": module, "sys": sys, "frames": frames}

    inner = namespace("penstock.log.log")
    exec("def read():\n    frames['here'] = sys._getframe()", inner)
    middle = namespace("penstock.broker.handlers.fetch") | {"read": inner["read"]}
    exec("def fetch():\n    read()", middle)
    outer = namespace("penstock.network.kafka_connection") | {"fetch": middle["fetch"]}
    exec("def data_received():\n    fetch()", outer)
    outer["data_received"]()  # type: ignore[operator]
    assert describe_stack(frames["here"]) == "handler=penstock.broker.handlers.fetch.fetch at=penstock.log.log:2"
