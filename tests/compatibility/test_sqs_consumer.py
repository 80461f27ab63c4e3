"""JavaScript applications with the AWS SDK and sqs-consumer: redelivery after a kill, and order of FIFO groups."""

from collections import defaultdict
from collections.abc import Iterator, Sequence
from pathlib import Path

import pytest

from tests.clients.waiting import wait_until

from .conftest import Target
from .toolchains import Application, Program, node, node_modules, values

pytestmark = [pytest.mark.slow, pytest.mark.timeout(1800)]

VISIBILITY_S = 5
COUNT = 200
GROUPS = 10
CONSUMED_S = 240.0


@pytest.fixture(scope="module")
def environment() -> dict[str, str]:
    return node_modules()


@pytest.fixture
def queues(environment: dict[str, str], target: Target, tmp_path: Path) -> Iterator[Application]:
    application = Application(node("queues"), f"http://{target.http}", tmp_path, environment)
    yield application
    application.end()


def consume_with_a_kill(queues: Application, url: str) -> tuple[list[str], list[Program]]:
    """Consumes with two processes, of which one is killed while it holds messages.

    Returns the bodies of the messages that were held, and both processes.
    """
    killed = queues.start("consume", url, 30)
    killed.wait_line("holding ")
    other = queues.start("consume", url, -1)
    other.wait_line("processed ")
    killed.kill()
    return killed.values("holding")[0], [killed, other]


def processed(consumers: Sequence[Program]) -> list[str]:
    """The bodies of processed messages, in the order in which the processes processed them."""
    lines = [line for consumer in consumers for line in consumer.values("processed")]
    return [body for _, body in sorted(lines, key=lambda line: int(line[0]))]


def wait_empty(queues: Application, url: str) -> None:
    def is_empty() -> bool:
        return values("count", queues.run("count", url)) == [[0, 0, 0]]

    wait_until(is_empty, "the queue is empty", CONSUMED_S, 0.5)


def test_every_message_is_processed_though_a_consumer_is_killed(queues: Application) -> None:
    url = values("url", queues.run("create", "js-standard", VISIBILITY_S))[0]
    assert queues.run("send", url, COUNT) == f"sent {COUNT}\n"
    assert values("count", queues.run("count", url)) == [[COUNT, 0, 0]]
    held, consumers = consume_with_a_kill(queues, url)
    expected = {str(number) for number in range(COUNT)}
    wait_until(lambda: set(processed(consumers)) == expected, "every message is processed", CONSUMED_S)
    assert set(held) <= {body for _, body in consumers[1].values("processed")}
    wait_empty(queues, url)
    consumers[1].stop()
    assert not [failure for consumer in consumers for failure in consumer.values("failed")]


def test_fifo_groups_keep_their_order_though_a_consumer_is_killed(queues: Application) -> None:
    url = values("url", queues.run("create", "js-ordered.fifo", VISIBILITY_S))[0]
    assert queues.run("send", url, COUNT, GROUPS) == f"sent {COUNT}\n"
    held, consumers = consume_with_a_kill(queues, url)
    wait_until(lambda: len(set(processed(consumers))) == COUNT, "every message is processed", CONSUMED_S)
    order: dict[str, list[int]] = defaultdict(list)
    for body in dict.fromkeys(processed(consumers)):  # the first time that each message is processed
        group, _, number = body.partition(":")
        order[group].append(int(number))
    assert order == {f"group-{group}": list(range(group, COUNT, GROUPS)) for group in range(GROUPS)}
    assert set(held) <= {body for _, body in consumers[1].values("processed")}
    wait_empty(queues, url)
    consumers[1].stop()
    assert not [failure for consumer in consumers for failure in consumer.values("failed")]
