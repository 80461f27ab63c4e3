"""Loops of the Python API that get next to no processor time, while their broker is killed and comes back slowly.

Two busy loops for each core run beside them, and they run at the lowest priority, as does the broker: heartbeats are
late, sessions expire, and everything comes in an order that an idle machine never shows.
"""

import json
import os
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.brokers import BrokerProcess
from tests.clients.api_lab import QUICK, all_of, connect, new_group, new_topic
from tests.clients.conftest import QUICK_GROUPS, SHORT_SESSIONS
from tests.clients.queue_lab import new_name

from .processes import ROOT
from .starved_consumer import COUNT, HANG_S

NICE = ("nice", "-n", "19")
BUSY_PER_CORE = 2
PROTOCOLS = {
    "classic": {**QUICK, "session.timeout.ms": 3000},
    "consumer": {"group.protocol": "consumer", "fetch.wait.max.ms": 50},
}
CASES = [
    ("exactly_once", "classic"),
    ("exactly_once", "consumer"),
    ("exactly_once_async", "classic"),
    ("at_least_once", "classic"),
    ("at_least_once_async", "consumer"),
    ("work", "classic"),
]


@pytest.fixture
def busy_machine() -> Iterator[None]:
    """Loops that leave next to nothing to a process of the lowest priority. They end by themselves, too."""
    command = ["timeout", f"{HANG_S:.0f}", sys.executable, "-c", "while True: pass"]
    busy = [subprocess.Popen(command) for _ in range(BUSY_PER_CORE * (os.cpu_count() or 1))]
    yield
    for process in busy:
        process.terminate()
    for process in busy:
        process.wait()


@pytest.fixture
def broker(tmp_path: Path) -> Iterator[BrokerProcess]:
    made = BrokerProcess(tmp_path, QUICK_GROUPS | SHORT_SESSIONS, prefix=NICE, start_s=HANG_S).start()
    try:
        yield made
        made.finish()
    finally:
        if made.is_running:
            made.kill()


@pytest.mark.slow
@pytest.mark.timeout(2 * HANG_S)
@pytest.mark.parametrize(("loop", "protocol"), CASES)
def test_a_starved_loop_goes_on_when_its_broker_comes_back(
    broker: BrokerProcess, loop: str, protocol: str, request: pytest.FixtureRequest
) -> None:
    source, target, queue = new_topic(broker.kafka), new_topic(broker.kafka), new_name()
    with connect(broker.kafka) as mq:
        mq.publish_many(source, range(COUNT))
        if loop == "work":
            mq.create_queue(queue)
            mq.queue(queue).send_many(range(COUNT))
    wanted = {"servers": broker.kafka, "source": source, "target": target, "queue": queue, "group": new_group()}
    wanted |= {"loop": loop, "options": PROTOCOLS[protocol]}
    command = [*NICE, sys.executable, "-m", "tests.chaos.starved_consumer", json.dumps(wanted)]
    request.getfixturevalue("busy_machine")
    with subprocess.Popen(command, cwd=ROOT, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True) as process:
        assert process.stdout is not None
        assert process.stdout.readline() == "kill\n"
        broker.kill()
        broker.start()
        try:
            said, _ = process.communicate("go\n", timeout=HANG_S)
        except subprocess.TimeoutExpired:
            process.kill()
            pytest.fail(f"the loop has not ended {HANG_S:g} s after its broker came back")
    assert (process.returncode, said) == (0, "over\n")
    with connect(broker.kafka) as mq:
        assert all_of(mq, target) == list(range(COUNT))
