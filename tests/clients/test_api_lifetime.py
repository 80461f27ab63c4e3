"""Connections of the Python API are closed without leaks, and Ctrl-C interrupts every call."""

import signal
import socket
import threading
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

import penstock
from penstock import Connection
from penstock.foundation.codes import ErrorCode
from penstock.wire.keys import ApiKey
from tests.brokers import BrokerProcess

from .api_lab import IDLE_S, Program, all_of, committed, connect, new_group, new_topic, numbers, threads
from .conftest import QUICK_GROUPS
from .proxy import LossyProxy
from .waiting import PATIENCE_S, wait_until


@pytest.fixture
def mq(group_broker: BrokerProcess) -> Iterator[Connection]:
    with connect(group_broker.kafka) as connection:
        yield connection


@pytest.fixture
def topic(group_broker: BrokerProcess) -> str:
    return new_topic(group_broker.kafka)


@pytest.fixture
def group() -> str:
    return new_group()


# -- connecting


def test_an_address_may_come_from_the_environment(
    group_broker: BrokerProcess, topic: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("PENSTOCK_BOOTSTRAP", group_broker.kafka)
    with penstock.connect() as mq:
        assert mq.publish(topic, 1).offset == 0


def test_one_address_that_answers_is_enough(group_broker: BrokerProcess, topic: str) -> None:
    with connect(f"127.0.0.1:1,{group_broker.kafka}") as mq:
        assert mq.publish(topic, 1).offset == 0


def test_a_refused_connection_differs_from_a_server_of_another_protocol() -> None:
    before = threads()
    with pytest.raises(
        penstock.NotConnected, match=r"no broker answers at 127\.0\.0\.1:1 .*penstock serve"
    ) as refused:
        connect("127.0.0.1:1", timeout_s=0.3)
    assert refused.value.code is ErrorCode.NETWORK_EXCEPTION
    with socket.create_server(("127.0.0.1", 0)) as silent:
        host, port = silent.getsockname()
        with pytest.raises(penstock.NotConnected, match="does not answer as a broker"):
            connect(f"{host}:{port}", timeout_s=0.3)
    wait_until(lambda: threads() <= before, "no thread is left")


@pytest.mark.parametrize(
    ("options", "hint"),
    [
        ({"delivery": "twice"}, "at-most-once"),
        ({"timeout_s": 0}, "timeout_s=0"),
        ({"timeout_s": float("inf")}, "timeout_s=inf"),
        ({"options": {"acks": 1}}, "delivery="),
        ({"options": {"no.such.thing": 1}}, "no.such.thing"),
    ],
)
def test_settings_that_make_no_sense_are_refused(group_broker: BrokerProcess, options: dict, hint: str) -> None:
    with pytest.raises(penstock.InvalidArgument, match=hint):
        penstock.connect(group_broker.kafka, **options)


# -- closing


def test_closing_ends_everything_and_leaves_no_thread(group_broker: BrokerProcess, topic: str, group: str) -> None:
    before = threads()
    mq = connect(group_broker.kafka)
    for delivery in penstock.Delivery:
        mq.publish(topic, 1, delivery=delivery)
        mq.publish_many(topic, [2, 3], delivery=delivery)
    with mq.transaction(topic) as tx:
        tx.publish(topic, 4)
    loops = [mq.subscribe(topic), mq.subscribe(topic, group=group), mq.exactly_once(topic, group=f"{group}-2")]
    for loop in loops:
        loop.ready()
    readers = [threading.Thread(target=numbers, args=(loop,)) for loop in loops]
    for reader in readers:
        reader.start()
    mq.close()
    for reader in readers:
        reader.join(PATIENCE_S)
        assert not reader.is_alive()
    wait_until(lambda: threads() <= before, "no thread is left")


def test_a_garbage_collected_connection_is_closed(group_broker: BrokerProcess, topic: str, group: str) -> None:
    before = threads()
    connect(group_broker.kafka).publish(topic, 1)
    for message in connect(group_broker.kafka).subscribe(topic, group=group):
        assert message.json() == 1
        break
    wait_until(lambda: threads() <= before, "no thread is left")


def test_a_connection_that_is_closed_without_its_broker_ends_soon(
    own_broker: Callable[..., BrokerProcess], group: str
) -> None:
    broker = own_broker(QUICK_GROUPS)
    topic = new_topic(broker.kafka)
    before = threads()
    with connect(broker.kafka) as other:
        other.publish(topic, 1)
    mq = connect(broker.kafka, timeout_s=5)
    messages = mq.subscribe(topic, group=group)
    assert next(messages).json() == 1
    broker.kill()
    mq.close()
    broker.start()  # librdkafka's threads may wait for it: it repeats a commit in flight
    wait_until(lambda: threads() <= before, "no thread is left")


def test_a_connection_whose_commit_does_not_end_is_closed(
    own_broker: Callable[..., BrokerProcess], group: str, caplog: pytest.LogCaptureFixture
) -> None:
    """librdkafka tries a commit again without end if it was in flight when the broker went down."""
    proxy = LossyProxy()
    broker = own_broker(QUICK_GROUPS, advertise=proxy.address)
    proxy.broker = broker.address
    topic = new_topic(proxy.address)
    before = threads()
    with connect(proxy.address) as other:
        other.publish(topic, 1)
    mq = connect(proxy.address, timeout_s=5)
    messages = mq.subscribe(topic, group=group)
    assert next(messages).json() == 1
    proxy.drop_requests(ApiKey.OFFSET_COMMIT)
    closing = threading.Thread(target=mq.close, daemon=True)
    closing.start()
    wait_until(lambda: proxy.drops, "the commit is lost")
    broker.kill()
    closing.join(PATIENCE_S)
    assert not closing.is_alive()
    assert "consumer_not_closed" in caplog.text
    proxy.drop_requests()
    broker.start()
    wait_until(lambda: threads() <= before, "the consumer ends when the broker is back")
    proxy.close()


def test_an_error_in_a_block_is_not_hidden_by_one_on_the_way_out(
    mq: Connection, topic: str, group: str, group_broker: BrokerProcess
) -> None:
    mq.publish(topic, 1)

    def work() -> None:
        with mq.exactly_once(topic, group=group, transactional_id=group) as loop:
            for message in loop:
                loop.publish(topic, message.json())
                with connect(group_broker.kafka) as other, other.transaction(group):
                    pass
                raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt) as caught:
        work()
    assert "its own id" in "".join(caught.value.__notes__)


def test_published_messages_are_written_even_if_the_connection_is_not_closed(
    mq: Connection, topic: str, group_broker: BrokerProcess, tmp_path: Path
) -> None:
    program = Program(
        """
        servers, topic = sys.argv[1:]
        mq = connect(servers)
        for delivery in penstock.Delivery:
            mq.publish(topic, 1, delivery=delivery)
        forgotten = mq.publish_stream(topic, [2, 3, 4], max_in_flight=2)
        next(forgotten)
        """,
        *(group_broker.kafka, topic),
        folder=tmp_path,
    )
    assert program.end() == (0, [])
    assert all_of(mq, topic) in ([1, 1, 1, 2, 3], [1, 1, 1, 2, 3, 4])


# -- Ctrl-C


INTERRUPTED = """
    servers, topic, group, where = sys.argv[1:]
    mq = connect(servers, timeout_s=20)

    def wait(what):
        say(what)
        time.sleep(60)

    def subscribe():
        for message in mq.subscribe(topic, group=group):
            say(message.json())

    def body():
        for message in mq.subscribe(topic, group=group):
            if message.json() == 1:
                wait("1")
            say(message.json())

    def exactly_once():
        with mq.exactly_once(topic, group=group) as loop:
            for message in loop:
                loop.publish(topic + "-out", message.json())
                say(message.json())

    def process():
        mq.process(topic, topic + "-out", group=group, transform=lambda m: (say(m.json()), m.json())[1])

    def transaction():
        with mq.transaction(group) as tx:
            tx.publish(topic + "-out", 0)
            wait("1")

    def asynchronous():
        import asyncio

        async def main():
            async with penstock.connect_async(servers) as mq:
                async for message in mq.subscribe(topic, group=group):
                    say(message.json())

        asyncio.run(main())

    try:
        with mq:
            globals()[where]()
    except KeyboardInterrupt:
        say("interrupted")
"""


@pytest.mark.parametrize(
    ("where", "left"),
    [
        ("subscribe", []),  # it waits for more: what it had is finished
        ("body", [1]),  # one is in flight
        ("exactly_once", []),
        ("process", []),
        ("transaction", [0, 1]),
        ("asynchronous", []),
    ],
)
def test_ctrl_c_interrupts_every_call_and_finished_messages_count(
    mq: Connection, topic: str, group: str, group_broker: BrokerProcess, tmp_path: Path, where: str, left: list[int]
) -> None:
    mq.publish_many(topic, [0, 1])
    program = Program(INTERRUPTED, group_broker.kafka, topic, group, where, folder=tmp_path)
    program.lines_until("1")
    if not left:
        wait_until(lambda: committed(group_broker, group, topic) == 2, "both are finished, and it waits for more")
    program.signal(signal.SIGINT)
    assert program.end() == (0, ["interrupted"])
    # No session has to expire first: it has left the group.
    assert numbers(mq.subscribe(topic, group=group, idle_timeout_s=IDLE_S)) == left
    if where in ("exactly_once", "process"):
        assert all_of(mq, f"{topic}-out") == [0, 1]


def test_ctrl_c_interrupts_a_publish_that_waits_for_its_broker(
    own_broker: Callable[..., BrokerProcess], tmp_path: Path
) -> None:
    broker = own_broker()
    topic = new_topic(broker.kafka)
    program = Program(
        """
        servers, topic = sys.argv[1:]
        mq = connect(servers, timeout_s=20)
        mq.publish(topic, 1)
        say("published")
        sys.stdin.readline()
        try:
            say("publishing")
            mq.publish(topic, 2)
        except KeyboardInterrupt:
            say("interrupted")
            os._exit(0)  # closing would wait for the message
        """,
        *(broker.kafka, topic),
        folder=tmp_path,
    )
    assert program.line() == "published"
    broker.kill()
    program.go()
    assert program.line() == "publishing"
    program.signal(signal.SIGINT)
    assert program.line() == "interrupted"
    assert program.end() == (0, [])
    broker.start()
