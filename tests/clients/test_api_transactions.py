"""Transactions with the Python API: atomic, and fenced by a newer producer of the same id."""

import threading
from collections.abc import Iterator
from contextlib import suppress

import pytest

import penstock
from penstock import Connection
from penstock.foundation.codes import ErrorCode
from tests.brokers import BrokerProcess

from .api_lab import all_of, connect, new_topic
from .waiting import wait_until


@pytest.fixture
def mq(group_broker: BrokerProcess) -> Iterator[Connection]:
    with connect(group_broker.kafka) as connection:
        yield connection


@pytest.fixture
def topic(group_broker: BrokerProcess) -> str:
    return new_topic(group_broker.kafka, partitions=2)


def test_a_transaction_counts_in_all_its_topics_when_it_ends(
    mq: Connection, topic: str, group_broker: BrokerProcess
) -> None:
    other = new_topic(group_broker.kafka)
    with mq.transaction(topic) as tx:
        for number in range(10):
            tx.publish(topic, number, key=str(number), tag="eu", headers={"a": "b"})
        tx.publish(other, 99)
        assert (tx.published, tx.is_open) == (11, True)
        assert all_of(mq, topic) == []
    assert not tx.is_open
    assert all_of(mq, topic) == list(range(10))
    assert all_of(mq, other) == [99]
    (message, *_) = mq.subscribe(topic, limit=1)
    assert (message.tag, message.header("a")) == ("eu", b"b")


def test_a_transaction_that_fails_counts_nowhere_and_the_next_one_does(mq: Connection, topic: str) -> None:
    for number in range(6):
        with suppress(RuntimeError), mq.transaction(topic) as tx:
            tx.publish(topic, number)
            if number % 2:
                raise RuntimeError
    assert all_of(mq, topic) == [0, 2, 4]


def test_a_transaction_object_can_be_used_again(mq: Connection, topic: str) -> None:
    tx = mq.transaction(topic)
    for number in range(3):
        with tx:
            tx.publish(topic, number)
            assert tx.published == 1
    assert all_of(mq, topic) == [0, 1, 2]


def test_an_empty_transaction_is_none(mq: Connection, topic: str) -> None:
    with mq.transaction(topic):
        pass
    assert all_of(mq, topic) == []


def test_transactions_of_different_ids_run_side_by_side(mq: Connection, topic: str) -> None:
    def work(number: int) -> None:
        for step in range(5):
            with mq.transaction(f"{topic}-{number}") as tx:
                tx.publish(topic, 10 * number + step)

    workers = [threading.Thread(target=work, args=(number,)) for number in range(4)]
    for worker in workers:
        worker.start()
    for worker in workers:
        worker.join()
    assert all_of(mq, topic) == [10 * number + step for number in range(4) for step in range(5)]


def test_an_id_has_one_transaction_at_a_time(mq: Connection, topic: str) -> None:
    with mq.transaction(topic) as tx:
        tx.publish(topic, 1)
        with pytest.raises(penstock.Busy, match="open already") as caught:
            mq.transaction(topic).__enter__()
        assert caught.value.code is ErrorCode.CONCURRENT_TRANSACTIONS
        with pytest.raises(penstock.Busy):
            tx.__enter__()
    assert all_of(mq, topic) == [1]


def test_nothing_is_published_outside_of_the_block(mq: Connection, topic: str) -> None:
    tx = mq.transaction(topic)
    with pytest.raises(penstock.Closed, match="within its `with` block"):
        tx.publish(topic, 1)


@pytest.mark.parametrize(("id", "timeout_s"), [("", 30.0), ("id", 0.0)])
def test_a_transaction_needs_an_id_and_time(mq: Connection, id: str, timeout_s: float) -> None:
    with pytest.raises(penstock.InvalidArgument):
        mq.transaction(id, transaction_timeout_s=timeout_s)


def test_a_broker_does_not_allow_endless_transactions(mq: Connection, topic: str) -> None:
    with pytest.raises(penstock.InvalidArgument, match="shorter transaction_timeout_s") as caught:
        mq.transaction(topic, transaction_timeout_s=1_000_000).__enter__()
    assert caught.value.code is ErrorCode.INVALID_TRANSACTION_TIMEOUT


def test_a_message_that_is_refused_takes_the_transaction_with_it(mq: Connection, topic: str) -> None:
    tx = mq.transaction(topic).__enter__()
    tx.publish(topic, 1)
    tx.publish(topic, b"x" * 2_000_000)
    with pytest.raises(penstock.PublishFailed, match=r"max\.message\.bytes") as caught:
        tx.__exit__(None, None, None)
    assert caught.value.code is ErrorCode.MESSAGE_TOO_LARGE
    with mq.transaction(topic) as tx:
        tx.publish(topic, 2)
    assert all_of(mq, topic) == [2]


def test_publishing_goes_no_further_when_it_is_known_that_it_failed(mq: Connection, topic: str) -> None:
    tx = mq.transaction(topic).__enter__()
    tx.publish(topic, b"x" * 2_000_000)

    def publish_one() -> bool:
        try:
            tx.publish(topic, 1)
        except (penstock.PublishFailed, penstock.TransactionAborted):
            return True
        return False

    wait_until(publish_one, "the failure is known")
    tx.__exit__(RuntimeError, RuntimeError(), None)
    assert all_of(mq, topic) == []


def test_the_newest_user_of_an_id_fences_the_others(mq: Connection, topic: str, group_broker: BrokerProcess) -> None:
    with mq.transaction(topic) as tx:
        tx.publish(topic, 1)
    older = mq.transaction(topic).__enter__()
    older.publish(topic, 2)
    with connect(group_broker.kafka) as other, other.transaction(topic) as newer:
        newer.publish(topic, 3)
    with pytest.raises(penstock.Fenced, match="its own id"):
        older.__exit__(None, None, None)
    assert all_of(mq, topic) == [1, 3]
    with mq.transaction(topic) as again:  # begins anew, and fences in its turn
        again.publish(topic, 4)
    assert all_of(mq, topic) == [1, 3, 4]


def test_a_fenced_transaction_ends_with_what_went_wrong_in_its_block(
    mq: Connection, topic: str, group_broker: BrokerProcess
) -> None:
    """A Ctrl-C, for one, must not leave the block as something else. The outcome of the abort is attached to it."""

    def work() -> None:
        with mq.transaction(topic) as older:
            older.publish(topic, 1)
            with connect(group_broker.kafka) as other, other.transaction(topic) as newer:
                newer.publish(topic, 2)
            raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt) as caught:
        work()
    assert "its own id" in "".join(caught.value.__notes__)
    assert all_of(mq, topic) == [2]


def test_the_same_id_may_be_used_with_another_timeout(mq: Connection, topic: str) -> None:
    for number, timeout_s in enumerate([30, 20, 30]):
        with mq.transaction(topic, transaction_timeout_s=timeout_s) as tx:
            tx.publish(topic, number)
    assert all_of(mq, topic) == [0, 1, 2]


def test_a_transaction_that_takes_too_long_is_over(mq: Connection, topic: str, group_broker: BrokerProcess) -> None:
    tx = mq.transaction(topic, transaction_timeout_s=1).__enter__()
    tx.publish(topic, 1, partition=0)
    with connect(group_broker.kafka, options={"isolation.level": "read_uncommitted"}) as curious:
        wait_until(lambda: all_of(curious, topic) == [1], "it has begun")
    mq.publish(topic, 2, partition=0)  # readers do not see it before the other is aborted
    wait_until(lambda: all_of(mq, topic) == [2], "it was given up")
    with pytest.raises(penstock.Fenced, match="longer transaction_timeout_s"):
        tx.__exit__(None, None, None)
    assert all_of(mq, topic) == [2]


def test_only_so_many_ids_are_kept_ready(mq: Connection, topic: str) -> None:
    for number in range(20):
        with mq.transaction(f"{topic}-{number}") as tx:
            tx.publish(topic, number)
    assert all_of(mq, topic) == list(range(20))
    with mq.transaction(f"{topic}-0") as tx:
        tx.publish(topic, 20)
    assert all_of(mq, topic) == list(range(21))
