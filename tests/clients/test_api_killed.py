"""The Python API in processes that are killed: the guarantees of each delivery mode."""

import random
import signal
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from penstock import Busy, Connection
from tests.brokers import BrokerProcess

from .api_lab import Program, all_of, connect, new_group, new_topic
from .conftest import QUICK_GROUPS
from .waiting import wait_until


@pytest.fixture
def mq(group_broker: BrokerProcess) -> Iterator[Connection]:
    with connect(group_broker.kafka) as connection:
        yield connection


@pytest.fixture
def source(group_broker: BrokerProcess) -> str:
    return new_topic(group_broker.kafka, partitions=3)


@pytest.fixture
def target(group_broker: BrokerProcess) -> str:
    return new_topic(group_broker.kafka, partitions=2)


@pytest.fixture
def group() -> str:
    return new_group()


def run_to_the_end(code: str, *arguments: str, folder: Path) -> None:
    program = Program(code, *arguments, folder=folder)
    program.lines_until("over")
    assert program.end()[0] == 0


# -- publishing


PUBLISH = """
    servers, topic, delivery, first = sys.argv[1:]
    mq = connect(servers, delivery=delivery)
    for number, place in enumerate(mq.publish_stream(topic, range(int(first), 10**9), max_in_flight=50), int(first)):
        say(number)
"""


@pytest.mark.parametrize("delivery", ["at-most-once", "at-least-once", "exactly-once"])
def test_acknowledged_messages_of_a_killed_publisher_exist(
    mq: Connection, target: str, group_broker: BrokerProcess, tmp_path: Path, rng: random.Random, delivery: str
) -> None:
    """At most once does not wait for acknowledgements: messages may be missing, but none exists twice."""
    acknowledged: list[int] = []
    for life in range(2):
        program = Program(PUBLISH, group_broker.kafka, target, delivery, str(life * 10**6), folder=tmp_path)
        acknowledged += [int(program.line()) for _ in range(rng.randrange(50, 500))]
        program.signal(signal.SIGKILL)
        acknowledged += [int(line) for line in program.end()[1]]
    found = all_of(mq, target)
    assert len(found) == len(set(found))  # the network has lost nothing that would have to be sent again
    if delivery != "at-most-once":
        assert set(acknowledged) <= set(found)


TRANSACT = """
    servers, target, number = sys.argv[1:]
    with connect(servers) as mq, mq.transaction("killed", transaction_timeout_s=60) as tx:
        for each in range(100):
            tx.publish(target, 100 * int(number) + each)
        time.sleep(0.1)  # for some of it to be sent
        say("open")
        sys.stdin.readline()
    say("over")
"""


def test_a_transaction_of_a_killed_process_counts_nowhere_and_the_next_of_its_id_ends_it(
    mq: Connection, target: str, group_broker: BrokerProcess, tmp_path: Path
) -> None:
    mq.publish(target, -1, partition=0)
    program = Program(TRANSACT, group_broker.kafka, target, "0", folder=tmp_path)
    assert program.line() == "open"
    program.signal(signal.SIGKILL)
    program.end()
    mq.publish(target, -2, partition=0)  # behind what is open, and so not to be seen yet
    program = Program(TRANSACT, group_broker.kafka, target, "1", folder=tmp_path)
    assert program.line() == "open"
    wait_until(lambda: all_of(mq, target) == [-2, -1], "the next of its id has ended it, long before its time is up")
    assert program.end()[1] == ["over"]
    assert all_of(mq, target) == [-2, -1, *range(100, 200)]


# -- reading, transforming, publishing


PROCESS = """
    servers, source, target, group, transactional_id = sys.argv[1:]
    with connect(servers) as mq:
        say("ready")
        with mq.exactly_once(
            source, group=group, transactional_id=transactional_id or None, batch=20, batch_s=0.1,
            transaction_timeout_s=2, idle_timeout_s=0.1,
        ) as loop:
            for message in loop:
                loop.publish(target, message.json())
                say(message.json())
    say("over")
"""


@pytest.mark.parametrize("has_fixed_id", [True, False])
def test_a_process_that_is_killed_again_and_again_loses_and_doubles_nothing(
    mq: Connection,
    source: str,
    target: str,
    group: str,
    group_broker: BrokerProcess,
    tmp_path: Path,
    rng: random.Random,
    has_fixed_id: bool,
) -> None:
    mq.publish_many(source, range(300))
    arguments = (group_broker.kafka, source, target, group, group if has_fixed_id else "")
    for _ in range(2):
        program = Program(PROCESS, *arguments, folder=tmp_path)
        assert program.line() == "ready"
        for _ in range(rng.randrange(1, 60)):
            program.line()
        program.signal(signal.SIGKILL)
        program.end()

    def everything_is_there() -> bool:
        """A program ends when nothing has come for a moment, which need not be the end."""
        run_to_the_end(PROCESS, *arguments, folder=tmp_path)
        found = all_of(mq, target)
        assert len(found) == len(set(found)), "something was published twice"
        return found == list(range(300))

    wait_until(everything_is_there, "everything is published")


# -- effects elsewhere


SUBSCRIBE = """
    pace, servers, source, group, delivery, effects = sys.argv[1:]
    with connect(servers) as mq:
        for message in mq.subscribe(source, group=group, delivery=delivery, idle_timeout_s=0.1, commit_every_s=0.05):
            with open(effects, "a") as file:
                file.write(f"{message.json()}\\n")
            say(message.json())
            if pace == "step by step":
                sys.stdin.readline()
    say("over")
"""


def killed_and_then_run(
    code: str, *arguments: str, kills: int, effects: Path, folder: Path, rng: random.Random
) -> list[int]:
    """What was done in all of a program's lives. A kill comes when a message is handled and not finished."""
    for _ in range(kills):
        program = Program(code, "step by step", *arguments, folder=folder)
        for _ in range(rng.randrange(0, 40)):
            if program.line() == "over":  # at most once, there may be nothing left to do
                break
            program.go()
        else:
            program.line()
        program.signal(signal.SIGKILL)
        program.end()
    run_to_the_end(code, "at once", *arguments, folder=folder)
    return [int(line) for line in effects.read_text().splitlines()]


@pytest.mark.parametrize("delivery", ["at-most-once", "at-least-once"])
def test_a_subscriber_that_is_killed_may_lose_at_most_once_and_double_at_least_once(
    mq: Connection,
    source: str,
    group: str,
    group_broker: BrokerProcess,
    tmp_path: Path,
    rng: random.Random,
    delivery: str,
) -> None:
    effects = tmp_path / "effects"
    mq.publish_many(source, range(200))
    arguments = (group_broker.kafka, source, group, delivery, str(effects))
    done = killed_and_then_run(SUBSCRIBE, *arguments, kills=2, effects=effects, folder=tmp_path, rng=rng)
    if delivery == "at-most-once":
        assert len(done) == len(set(done))
        assert len(done) < 200  # what was taken and not seen when it was killed
    else:
        assert set(done) == set(range(200))
        assert len(done) >= 200 + 2  # what was in flight, and what was not committed yet


MISSED = """
    servers, source, group = sys.argv[1:]
    with connect(servers) as mq:
        for message in mq.subscribe(source, group=group, idle_timeout_s=1):
            say(message.json())
            sys.stdin.readline()
    say("over")
"""


def test_a_removed_subscriber_that_rejoins_is_not_idle_meanwhile(
    own_broker: Callable[..., BrokerProcess], group: str, tmp_path: Path
) -> None:
    broker = own_broker(
        {**QUICK_GROUPS, "group.initial.rebalance.delay.ms": 1500}
    )  # coming back takes longer than 1 s
    topic = new_topic(broker.kafka)
    with connect(broker.kafka) as mq:
        mq.publish(topic, 0)
        program = Program(MISSED, broker.kafka, topic, group, folder=tmp_path)
        assert program.line() == "0"
        program.signal(signal.SIGSTOP)
        wait_until(lambda: is_moved(mq, group, topic), "the group has given it up")
        program.signal(signal.SIGCONT)
        program.go()
        assert program.line() == "0"  # again: it was not committed
        program.go()
        assert program.end() == (0, ["over"])


def is_moved(mq: Connection, group: str, topic: str) -> bool:
    try:
        mq.seek(group, topic, to="earliest")
    except Busy:
        return False
    return True


HANDLE = """
    pace, servers, source, group, effects, store = sys.argv[1:]
    with connect(servers) as mq:
        for message in mq.subscribe(
            source, group=group, delivery="exactly-once", idempotent_by=lambda m: m.json(), store=store,
            idle_timeout_s=0.1, commit_every_s=3600,
        ):
            with open(effects, "a") as file:
                file.write(f"{message.json()}\\n")
            say(message.json())
            if pace == "step by step":
                sys.stdin.readline()
    say("over")
"""


def test_effects_elsewhere_are_doubled_only_if_the_kill_comes_before_the_mark(
    mq: Connection, source: str, group: str, group_broker: BrokerProcess, tmp_path: Path, rng: random.Random
) -> None:
    """Nothing is committed in between: everything comes again after every kill, and is passed over."""
    effects = tmp_path / "effects"
    mq.publish_many(source, range(200))
    arguments = (group_broker.kafka, source, group, str(effects), str(tmp_path / "handled.sqlite"))
    done = killed_and_then_run(HANDLE, *arguments, kills=2, effects=effects, folder=tmp_path, rng=rng)
    assert set(done) == set(range(200))
    assert len(done) == 200 + 2  # the one that was in flight, each time
