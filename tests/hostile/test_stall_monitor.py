"""The stall monitor of a real broker: what it measures, what it warns of, and that it costs next to nothing."""

import re
import urllib.request
from collections.abc import Callable

from penstock.foundation.codes import ErrorCode
from tests.brokers import BrokerProcess
from tests.clients.raw import RawClient, batch_of
from tests.clients.waiting import wait_until

from .probe import Probe, histograms_of

WRITE_DELAY_S = 0.35
"""Above the 0.2 s of the warning; too short for a threshold of twice that."""
PRODUCE_STALLED = re.compile(
    r"event_loop_stalled seconds=(\S+) cpu_seconds=\S+ handler=penstock\.broker\.handlers\.produce\.\w+ "
    r"at=penstock\.log\.disk:\d+"
)


def test_a_broker_exposes_how_long_its_event_loop_stalled(target: BrokerProcess, probe: Probe) -> None:
    with probe.watch("nothing"):
        with urllib.request.urlopen(f"http://{target.http}/metrics", timeout=60) as answer:
            text = answer.read().decode()
        before = target.metric("penstock_event_loop_stall_seconds_count")
        while target.metric("penstock_event_loop_stall_seconds_count") < before + 10:
            pass
    assert "# TYPE penstock_event_loop_stall_seconds histogram" in text
    assert "# TYPE penstock_event_loop_stall_cpu_seconds histogram" in text


def test_a_stall_is_logged_with_the_handler_that_caused_it(own_target: Callable[..., BrokerProcess]) -> None:
    target = own_target(write_delay_s=WRITE_DELAY_S)

    def is_named() -> re.Match[str] | None:
        with RawClient(target.address) as raw:  # the first request of its layout is handled in full
            assert raw.produce("orders", batch_of([b"x"])).error_code == ErrorCode.NONE
        return PRODUCE_STALLED.search(target.log)

    with RawClient(target.address) as raw:
        raw.describe("orders", allow_auto_topic_creation=True)
    found = wait_until(is_named, "a warning names the handler of Produce")
    assert float(found[1]) >= WRITE_DELAY_S - 0.1
    counts = histograms_of(target)[""]
    assert counts[float("inf")] > counts[0.2]
