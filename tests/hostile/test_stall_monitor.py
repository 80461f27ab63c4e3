"""The stall monitor of a real broker, and that it costs next to nothing."""

import urllib.request

from tests.brokers import BrokerProcess

from .probe import Probe


def test_a_broker_exposes_how_long_its_event_loop_stalled(target: BrokerProcess, probe: Probe) -> None:
    with probe.watch("nothing"):
        with urllib.request.urlopen(f"http://{target.http}/metrics", timeout=60) as answer:
            text = answer.read().decode()
        before = target.metric("penstock_event_loop_stall_seconds_count")
        while target.metric("penstock_event_loop_stall_seconds_count") < before + 10:
            pass
    assert "# TYPE penstock_event_loop_stall_seconds histogram" in text
    assert "# TYPE penstock_event_loop_stall_cpu_seconds histogram" in text
