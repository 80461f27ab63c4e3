"""Read, transform, publish with the Python API: exactly once, if members fail, leave or take over."""

import threading
from collections.abc import Callable, Iterator

import pytest

import penstock
from penstock import ApiError, Connection, ExactlyOnce, Message, Outgoing
from penstock.foundation.codes import ErrorCode
from tests.brokers import BrokerProcess

from .api_lab import IDLE_S, all_of, connect, new_group, new_topic, numbers
from .conftest import QUICK_GROUPS
from .waiting import PATIENCE_S, wait_until

ONE_BATCH_S = 20.0
"""However slow the machine is, its batch does not end before the test ends it."""


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


def test_results_count_together_with_what_they_were_made_from(
    mq: Connection, source: str, target: str, group: str
) -> None:
    mq.publish_many(source, range(100))
    with mq.exactly_once(source, group=group, batch=10, idle_timeout_s=IDLE_S) as loop:
        for message in loop:
            loop.publish(target, message.json() * 2, key=message.key)
    assert all_of(mq, target) == list(range(0, 200, 2))
    assert loop.transactions >= 10
    assert numbers(mq.subscribe(source, group=group, idle_timeout_s=IDLE_S)) == []


def test_a_failure_in_the_middle_leaves_nothing_behind(mq: Connection, source: str, target: str, group: str) -> None:
    mq.publish_many(source, range(50))

    def run(fail_at: int | None) -> None:
        with mq.exactly_once(source, group=group, batch=7, idle_timeout_s=IDLE_S) as loop:
            for done, message in enumerate(loop):
                loop.publish(target, message.json())
                if done == fail_at:
                    raise RuntimeError

    for fail_at in (0, 3, 12, 20):
        with pytest.raises(RuntimeError):
            run(fail_at)
    run(None)
    assert all_of(mq, target) == list(range(50))


def test_leaving_the_loop_keeps_what_is_finished(mq: Connection, source: str, target: str, group: str) -> None:
    mq.publish_many(source, [Outgoing(number, partition=0) for number in range(10)])
    with mq.exactly_once(source, group=group) as loop:
        for message in loop:
            if message.json() == 4:
                break
            loop.publish(target, message.json())
    assert all_of(mq, target) == [0, 1, 2, 3]
    with mq.exactly_once(source, group=group) as loop:
        for message in loop:
            loop.publish(target, message.json())
            message.done()
            break
    assert all_of(mq, target) == [0, 1, 2, 3, 4]
    with mq.exactly_once(source, group=group, limit=5) as loop:
        for message in loop:
            loop.publish(target, message.json())
    assert all_of(mq, target) == list(range(10))


def test_a_message_that_is_retried_takes_its_batch_with_it(
    mq: Connection, source: str, target: str, group: str
) -> None:
    mq.publish_many(source, [Outgoing(number, partition=0) for number in range(6)])
    seen = []
    with mq.exactly_once(source, group=group, batch_s=ONE_BATCH_S, limit=6) as loop:
        for message in loop:
            seen.append((message.json(), message.attempt))
            loop.publish(target, message.json())
            if message.json() == 3 and message.attempt == 1:
                message.retry()
    assert seen == [*((n, 1) for n in range(4)), *((n, 2) for n in range(4)), (4, 1), (5, 1)]
    assert all_of(mq, target) == list(range(6))


def test_members_that_come_and_go_lose_and_double_nothing(
    mq: Connection, source: str, target: str, group: str, group_broker: BrokerProcess
) -> None:
    """Partitions move in the middle of batches; every offset is committed by the member that has it (KIP-447)."""
    total = 600
    stop = threading.Event()
    lives: list[int] = []
    loops: dict[int, ExactlyOnce] = {}
    failures: list[ApiError] = []

    def work(number: int) -> None:
        with connect(group_broker.kafka) as mine:
            while not stop.is_set() and not failures:
                try:
                    with mine.exactly_once(source, group=group, batch=5, batch_s=0.05, limit=50) as loop:
                        loops[number] = loop
                        if not stop.is_set():  # else it would not end
                            for message in loop:
                                loop.publish(target, message.json())
                except ApiError as error:
                    failures.append(error)
                lives.append(number)

    workers = [threading.Thread(target=work, args=(number,)) for number in range(3)]
    for worker in workers:
        worker.start()
    for start in range(0, total, 100):
        mq.publish_many(source, range(start, start + 100))
    wait_until(lambda: failures or len(all_of(mq, target)) >= total, "every result", timeout_s=60, pause_s=0.5)
    stop.set()
    for loop in list(loops.values()):
        loop.close()
    for worker in workers:
        worker.join(PATIENCE_S)
        assert not worker.is_alive()
    assert not failures
    assert len(lives) >= total // 50
    assert all_of(mq, target) == list(range(total))


def test_a_second_loop_with_the_same_id_fences_the_first(
    mq: Connection, source: str, target: str, group: str, group_broker: BrokerProcess
) -> None:
    mq.publish_many(source, [Outgoing(number, partition=0) for number in range(10)])
    older = mq.exactly_once(source, group=group, transactional_id=group)
    message = next(older)
    older.publish(target, message.json())
    with connect(group_broker.kafka) as other, other.transaction(group):
        pass

    def go_on() -> None:
        for message in older:
            older.publish(target, message.json())

    with pytest.raises(penstock.Fenced, match="its own id") as caught:
        go_on()
    assert caught.value.code in (ErrorCode.PRODUCER_FENCED, ErrorCode.INVALID_PRODUCER_EPOCH)
    older.close()
    with mq.exactly_once(source, group=group, transactional_id=group, idle_timeout_s=IDLE_S) as loop:
        for message in loop:
            loop.publish(target, message.json())
    assert all_of(mq, target) == list(range(10))


def test_a_result_that_is_refused_ends_the_loop(mq: Connection, source: str, target: str, group: str) -> None:
    mq.publish_many(source, [Outgoing(number, partition=0) for number in range(3)])

    def run(value: object) -> None:
        with mq.exactly_once(source, group=group, batch_s=ONE_BATCH_S, idle_timeout_s=IDLE_S) as loop:
            for message in loop:
                loop.publish(target, value if message.json() == 1 else message.json())

    with pytest.raises(penstock.PublishFailed) as caught:
        run(b"x" * 2_000_000)
    assert caught.value.code is ErrorCode.MESSAGE_TOO_LARGE
    assert all_of(mq, target) == []
    run(1)
    assert all_of(mq, target) == [0, 1, 2]


def test_nothing_is_published_when_the_loop_has_ended(mq: Connection, source: str, target: str, group: str) -> None:
    with mq.exactly_once(source, group=group, idle_timeout_s=IDLE_S) as loop:
        pass
    with pytest.raises(penstock.Closed):
        loop.publish(target, 1)


@pytest.mark.parametrize(
    ("options", "hint"),
    [({"group": ""}, "group="), ({"batch": 0}, "batch=0"), ({"batch_s": 60}, "time out"), ({"limit": 0}, "limit=0")],
)
def test_invalid_arguments_are_refused(mq: Connection, options: dict[str, object], hint: str) -> None:
    with pytest.raises(penstock.InvalidArgument, match=hint):
        mq.exactly_once("topic", **{"group": "g", **options})  # type: ignore[arg-type]


# -- process


@pytest.mark.parametrize("delivery", ["at-most-once", "at-least-once", "exactly-once"])
def test_process_reads_transforms_and_publishes(
    mq: Connection, source: str, target: str, group: str, delivery: str
) -> None:
    mq.publish_many(source, [Outgoing(number, key=str(number)) for number in range(100)])

    def transform(message: Message) -> object:
        number = message.json()
        if number % 10 == 0:
            return None
        return [number, Outgoing(1000 + number, tag="big")] if number % 10 == 1 else number

    count = mq.process(
        source,
        target,
        group=group,
        transform=transform,
        delivery=delivery,  # type: ignore[arg-type]
        idle_timeout_s=IDLE_S,
        batch=20,
    )
    assert count == 100
    expected = [n for n in range(100) if n % 10] + [1000 + n for n in range(100) if n % 10 == 1]
    assert all_of(mq, target) == sorted(expected)
    for message in mq.subscribe(target, idle_timeout_s=IDLE_S):
        assert message.key == str(message.json() % 1000).encode()
    assert mq.process(source, target, group=group, transform=transform, idle_timeout_s=IDLE_S) == 0


def test_process_sends_results_where_they_belong(
    mq: Connection, source: str, group: str, group_broker: BrokerProcess
) -> None:
    even, odd, other = (new_topic(group_broker.kafka) for _ in range(3))
    mq.publish_many(source, range(10))
    mq.process(
        source,
        lambda message: odd if message.json() % 2 else even,
        group=group,
        transform=lambda message: Outgoing(message.json(), topic=other if message.json() == 7 else None),
        limit=10,
    )
    assert (all_of(mq, even), all_of(mq, odd), all_of(mq, other)) == ([0, 2, 4, 6, 8], [1, 3, 5, 9], [7])


@pytest.mark.parametrize("delivery", ["at-least-once", "exactly-once"])
def test_a_transformation_that_fails_ends_process_and_the_message_comes_again(
    mq: Connection, source: str, target: str, group: str, delivery: str
) -> None:
    mq.publish_many(source, [Outgoing(number, partition=0) for number in range(5)])

    def broken(message: Message) -> int:
        number: int = message.json()
        return number // (number != 3)

    with pytest.raises(ZeroDivisionError):
        mq.process(source, target, group=group, transform=broken, delivery=delivery)  # type: ignore[arg-type]
    mq.process(source, target, group=group, transform=lambda m: m.json(), idle_timeout_s=IDLE_S)
    assert all_of(mq, target) == [0, 1, 2, 3, 4]


@pytest.mark.parametrize("delivery", ["at-least-once", "exactly-once"])
def test_process_ends_when_its_connection_is_closed_and_the_current_message_comes_again(
    mq: Connection, group_broker: BrokerProcess, source: str, target: str, group: str, delivery: str
) -> None:
    mq.publish_many(source, [Outgoing(number, partition=0) for number in range(5)])
    other = connect(group_broker.kafka)

    def close(message: Message) -> int:
        closer = threading.Thread(target=other.close)
        closer.start()
        closer.join(PATIENCE_S)
        number: int = message.json()
        return number

    assert other.process(source, target, group=group, transform=close, delivery=delivery) == 0  # type: ignore[arg-type]
    mq.process(source, target, group=group, transform=lambda m: m.json(), idle_timeout_s=IDLE_S)
    assert all_of(mq, target) == [0, 1, 2, 3, 4]


def test_a_route_must_lead_somewhere(mq: Connection, source: str, group: str) -> None:
    mq.publish(source, 1)
    with pytest.raises(penstock.InvalidArgument, match="the name of a topic"):
        mq.process(source, lambda message: "", group=group, transform=lambda message: 1)


def test_a_transactional_id_is_for_exactly_once(mq: Connection, source: str, group: str) -> None:
    with pytest.raises(penstock.InvalidArgument, match="transactional_id= is for"):
        mq.process(source, "out", group=group, transform=lambda m: 1, delivery="at-least-once", transactional_id="x")


# -- brokers that go and come back


def test_a_loop_goes_on_when_its_broker_comes_back(own_broker: Callable[..., BrokerProcess], group: str) -> None:
    broker = own_broker(QUICK_GROUPS)
    source, target = new_topic(broker.kafka), new_topic(broker.kafka)
    is_killed = False
    with connect(broker.kafka) as mq:
        mq.publish_many(source, range(100))
        with mq.exactly_once(source, group=group, batch=10, limit=100) as loop:
            for message in loop:
                loop.publish(target, message.json())
                if message.json() == 25 and not is_killed:  # it may come again, and to a new member
                    is_killed = True
                    broker.kill()
                    broker.start()
        assert all_of(mq, target) == list(range(100))
        assert mq.process(source, target, group=group, transform=lambda m: m.json(), idle_timeout_s=IDLE_S) == 0
