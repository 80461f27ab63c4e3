"""Measures what one hostile client costs the others: stalls of the broker's event loop, /healthz, a small produce.

The stall monitor in the broker measures in CPU time, so that a busy machine does not make a case fail. A virtual
machine counts some of the time that its host takes away ("steal" in /proc/stat) as CPU time: that much is added,
which is nothing if the host leaves the machine alone. Latencies are printed for people and never asserted.
"""

import re
import threading
import time
import urllib.request
from collections import defaultdict
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from typing import NamedTuple

from tests.brokers import BrokerProcess, stolen_s
from tests.clients.raw import RawClient, batch_of

LOOP_CPU_MAX_S = 0.1
"""The rule is 20 ms on a quiet machine. On a busy one, whose cores share caches, the same work takes several times as
much CPU time, and what this guards against takes at least ten times as much. `make hostile` prints what it was."""
MONITOR_SETTINGS = {"event.loop.monitor.interval.ms": 5}
_BUCKET = re.compile(r'penstock_event_loop_stall(_cpu)?_seconds_bucket\{le="([^"]+)"\} (\S+)')
BYSTANDER = "bystander"
NOTHING: Mapping[float, float] = defaultdict(float)


class Worst(NamedTuple):
    """The worst that was measured while a case ran; stalls are upper bounds of histogram buckets, in seconds."""

    stall_s: float
    stall_cpu_s: float
    healthz_s: float
    produce_s: float


class Probe:
    """Watches one broker while a test mistreats it."""

    def __init__(self, broker: BrokerProcess) -> None:
        self._broker = broker
        self.results: dict[str, Worst] = {}
        with RawClient(broker.address) as raw:
            raw.describe(BYSTANDER, allow_auto_topic_creation=True)

    @contextmanager
    def watch(self, case: str, cpu_max_s: float = LOOP_CPU_MAX_S, *, since_start: bool = False) -> Iterator[None]:
        """Asserts the CPU time of the worst loop callback. `since_start`: of all that the broker has done so far."""
        stolen_before_s = self._broker.stolen_before_s if since_start else stolen_s()
        before = {"": NOTHING, "_cpu": NOTHING} if since_start else histograms_of(self._broker)
        latencies: dict[str, float] = {"healthz": 0.0, "produce": 0.0}
        failures: list[BaseException] = []
        done = threading.Event()
        bystander = threading.Thread(target=self._measure, args=(latencies, failures, done), daemon=True)
        bystander.start()
        try:
            yield
        finally:
            done.set()
            bystander.join()
        assert not failures, f"{case}: a bystander was not served: {failures[0]!r}"
        after = histograms_of(self._broker)
        stall_s, cpu_s = (worst_of(before[kind], after[kind]) for kind in ("", "_cpu"))
        worst = self.results[case] = Worst(stall_s, cpu_s, latencies["healthz"], latencies["produce"])
        allowed_s = cpu_max_s + stolen_s() - stolen_before_s
        assert worst.stall_cpu_s <= allowed_s, f"{case}: {worst}; the broker's log:\n{self._broker.log[-3000:]}"

    def _measure(self, latencies: dict[str, float], failures: list[BaseException], done: threading.Event) -> None:
        try:
            with RawClient(self._broker.address) as raw:
                raw.socket.settimeout(90.0)
                while not done.is_set():
                    started_s = time.perf_counter()
                    with urllib.request.urlopen(f"http://{self._broker.http}/healthz", timeout=90) as answer:
                        assert answer.read() == b"ok\n"
                    between_s = time.perf_counter()
                    assert raw.produce(BYSTANDER, batch_of([b"x"])).error_code == 0
                    ended_s = time.perf_counter()
                    latencies["healthz"] = max(latencies["healthz"], between_s - started_s)
                    latencies["produce"] = max(latencies["produce"], ended_s - between_s)
                    done.wait(0.05)
        except Exception as error:  # noqa: BLE001 (it is asserted on the test's own thread)
            failures.append(error)


def histograms_of(broker: BrokerProcess) -> Mapping[str, Mapping[float, float]]:
    """Stalls so far. Cumulative counts by upper bound, of wall time ("") and of CPU time ("_cpu")."""
    with urllib.request.urlopen(f"http://{broker.http}/metrics", timeout=90) as answer:
        text = answer.read().decode()
    found: dict[str, dict[float, float]] = {"": {}, "_cpu": {}}
    for kind, edge, count in _BUCKET.findall(text):
        found[kind][float(edge)] = float(count)
    return found


def worst_of(before: Mapping[float, float], after: Mapping[float, float]) -> float:
    """The smallest upper bound that everything observed in between is within."""
    new = {edge: after[edge] - before[edge] for edge in sorted(after)}
    total = new[float("inf")]
    return next(edge for edge, count in new.items() if count == total)
