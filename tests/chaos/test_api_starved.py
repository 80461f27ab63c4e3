"""Loops of the Python API that get next to no processor time, while their broker is killed and comes back slowly.

Two busy loops for each core run beside them, and they run at the lowest priority, as does the broker: heartbeats are
late, sessions expire, and everything comes in an order that an idle machine never shows.
"""

import contextlib
import json
import os
import subprocess
import sys
import time
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.brokers import BrokerProcess
from tests.clients.api_lab import QUICK, all_of, connect, new_group, new_topic
from tests.clients.conftest import QUICK_GROUPS, SHORT_SESSIONS
from tests.clients.queue_lab import new_name

from .processes import ROOT
from .starved_consumer import COUNT, HANG_S, KILL_AT

NICE = ("nice", "-n", "19")
BUSY_PER_CORE = 2
PROTOCOLS = {
    "classic": {**QUICK, "session.timeout.ms": 3000},
    "consumer": {"group.protocol": "consumer", "fetch.wait.max.ms": 50},
}
GROUP_LOOPS = ("exactly_once", "at_least_once", "at_most_once")
QUEUE_LOOPS = ("work", "work_async")
CASES = [
    *((name + kind, protocol) for name in GROUP_LOOPS for kind in ("", "_async") for protocol in PROTOCOLS),
    *((name, "classic") for name in QUEUE_LOOPS),
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
        if loop in QUEUE_LOOPS:
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
            said = communicate(process, broker, source if "at_most_once" in loop else None)
        except subprocess.TimeoutExpired:
            process.kill()
            pytest.fail(f"the loop has not ended {HANG_S:g} s after its broker came back")
    assert (process.returncode, said) == (0, "over\n")
    with connect(broker.kafka) as mq:
        found = all_of(mq, target)
    if "at_most_once" in loop:  # some may be lost
        assert found == sorted(set(found))
        assert set(range(KILL_AT + 1)) <= set(found) <= set(range(COUNT))
    else:
        assert found == list(range(COUNT))


def communicate(process: subprocess.Popen[str], broker: BrokerProcess, endless: str | None) -> str:
    """Lets the process go on, and returns what it says until its end. `endless`: a topic to publish to until then,
    for a loop that may lose any message."""
    if endless is None:
        return process.communicate("go\n", timeout=HANG_S)[0]
    assert process.stdin is not None
    process.stdin.write("go\n")
    process.stdin.flush()
    until_s = time.monotonic() + HANG_S
    with connect(broker.kafka, timeout_s=HANG_S) as mq:
        while process.poll() is None:
            if time.monotonic() > until_s:
                raise subprocess.TimeoutExpired(process.args, HANG_S)
            mq.publish(endless, COUNT)
            with contextlib.suppress(subprocess.TimeoutExpired):
                process.wait(1.0)
    return process.communicate()[0]
