"""Exactly once, step by step: failed attempts, repeated batches, expired transactions.

The tasks are real, and so are broker and transactions; it is the test that plays Spark's scheduler, which cannot be
made to fail just here.
"""

import uuid
from collections.abc import Callable, Iterator
from itertools import chain

import pyarrow as pa
import pytest
from pyspark import TaskContext
from pyspark.sql.types import IntegerType, StringType, StructType

from penstock.client.commit_set import SetBroken
from penstock.client.transactional import ProducerFenced
from penstock.foundation.errors import InvalidRecord, PenstockError
from penstock.spark.errors import BadOption
from penstock.spark.writer import batch_writer
from tests.brokers import BrokerProcess
from tests.clients.transactional_producers import READ_UNCOMMITTED, read_to_end
from tests.clients.waiting import wait_until

from .lab import Lab
from .write_lab import SCHEMA, Query, committed, in_task, numbers, open_transactions, rows


class Boom(Exception):
    """Something in the middle of a task."""


@pytest.fixture
def query(lab: Lab, topic: str) -> Query:
    lab.create(topic)
    return Query(lab.bootstrap, topic, str(uuid.uuid4()))


def failing(values: list[bytes]) -> Iterator[pa.RecordBatch]:
    """Rows that come, until they do not."""
    yield from rows(values)
    raise Boom


def test_the_tasks_of_a_batch_are_committed_together(
    query: Query, lab: Lab, topic: str, broker: BrokerProcess
) -> None:
    written = [query.task(numbers(100 * part, 100 * part + 100), partition=part) for part in range(3)]
    assert [each.rows for each in written] == [100, 100, 100]
    assert all(each.size_bytes > 100 for each in written)
    assert len(open_transactions(broker.address, query.query)) == 3
    assert read_to_end(lab.bootstrap, topic) == []
    query.commit(0, *written)
    assert sorted(committed(lab.bootstrap, topic)) == sorted(numbers(0, 300))
    assert not open_transactions(broker.address, query.query)


def test_the_same_ids_serve_batch_after_batch(query: Query, lab: Lab, topic: str) -> None:
    names = set()
    for batch_id in range(6):
        written = query.task(numbers(10 * batch_id, 10 * batch_id + 10))
        assert written.participant is not None
        names.add(written.participant.transactional_id)
        query.commit(batch_id, written)
    assert committed(lab.bootstrap, topic) == numbers(0, 60)
    assert names <= {f"spark/{query.query}/0/{slot}.0" for slot in range(4)}


def test_an_attempt_that_is_gone_is_aborted_by_the_decision_and_not_by_its_timeout(
    query: Query, lab: Lab, topic: str, broker: BrokerProcess
) -> None:
    dead = query.task(numbers(0, 50), attempt=0)
    again = query.task(numbers(0, 50), attempt=1)
    assert dead.participant != again.participant
    query.commit(0, again)
    assert committed(lab.bootstrap, topic) == numbers(0, 50)
    assert not open_transactions(broker.address, query.query)


def test_two_attempts_of_one_number_do_not_shut_each_other_out(query: Query, lab: Lab, topic: str) -> None:
    """Of two attempts of a stage: Spark does not tell Python which it is, and takes the answer of either."""
    first, second = query.task(numbers(0, 50)), query.task(numbers(0, 50))
    assert first.participant is not None
    assert second.participant is not None
    assert first.participant.transactional_id != second.participant.transactional_id
    query.commit(0, first)
    assert committed(lab.bootstrap, topic) == numbers(0, 50)


def test_with_more_dead_attempts_than_ids_the_last_ones_make_room(query: Query, lab: Lab, topic: str) -> None:
    for _ in range(6):
        written = query.task(numbers(0, 10))
    query.commit(0, written)
    assert committed(lab.bootstrap, topic) == numbers(0, 10)


def test_a_batch_that_was_decided_and_is_done_again_is_there_once(
    query: Query, lab: Lab, topic: str, broker: BrokerProcess
) -> None:
    """The driver died after the decision, before Spark noted that the batch is done."""
    query.commit(0, query.task(numbers(0, 20)))
    query.commit(1, query.task(numbers(20, 40)))
    query.commit(1, query.task(numbers(20, 40)))
    assert not open_transactions(broker.address, query.query)
    query.commit(2, query.task(numbers(40, 60)))
    assert committed(lab.bootstrap, topic) == numbers(0, 60)


def test_a_driver_that_dies_before_the_decision_leaves_nothing_that_counts(
    query: Query, lab: Lab, topic: str, broker: BrokerProcess
) -> None:
    for part in range(3):
        query.task(numbers(10 * part, 10 * part + 10), partition=part)
    # It comes back, and its one task is another than those before.
    query.commit(0, query.task(numbers(0, 30)))
    assert committed(lab.bootstrap, topic) == numbers(0, 30)
    assert not open_transactions(broker.address, query.query)


def test_a_recreated_checkpoint_is_another_query_and_begins_at_batch_0_again(
    query: Query, lab: Lab, topic: str
) -> None:
    query.commit(0, query.task(numbers(0, 10)))
    other = Query(lab.bootstrap, topic, str(uuid.uuid4()))
    other.commit(0, other.task(numbers(10, 20)))
    assert committed(lab.bootstrap, topic) == numbers(0, 20)


def test_two_queries_into_one_topic_do_not_end_each_others_transactions(query: Query, lab: Lab, topic: str) -> None:
    other = Query(lab.bootstrap, topic, str(uuid.uuid4()))
    ours, theirs = query.task(numbers(0, 10)), other.task(numbers(10, 20))
    query.commit(0, ours)
    other.abort(0)  # knows no transaction, and ends none
    other.commit(0, theirs)
    assert sorted(committed(lab.bootstrap, topic)) == sorted(numbers(0, 20))


def test_a_task_that_fails_aborts_its_own_transaction_at_once(
    query: Query, lab: Lab, topic: str, broker: BrokerProcess
) -> None:
    with pytest.raises(Boom):
        query.stream(failing(numbers(0, 10_000)))
    assert not open_transactions(broker.address, query.query)
    assert committed(lab.bootstrap, topic) == []


def test_a_batch_that_fails_is_aborted_for_all_its_tasks(
    query: Query, lab: Lab, topic: str, broker: BrokerProcess
) -> None:
    done = query.task(numbers(0, 10), partition=0)
    query.task(numbers(10, 20), partition=1)  # killed: the driver has no word of it
    query.abort(0, done, None)
    assert not open_transactions(broker.address, query.query)
    with pytest.raises(SetBroken):
        query.commit(0, done)
    query.commit(0, query.task(numbers(0, 20)))
    assert committed(lab.bootstrap, topic) == numbers(0, 20)


def test_a_transaction_that_does_not_last_breaks_the_batch_and_the_option_is_named(
    lab: Lab, topic: str, broker: BrokerProcess
) -> None:
    lab.create(topic)
    query = Query(lab.bootstrap, topic, str(uuid.uuid4()), kafka__transaction__timeout__ms="300")
    late = query.task(numbers(0, 10))
    wait_until(lambda: not open_transactions(broker.address, query.query), "the transaction is aborted")
    early = query.task(numbers(10, 20), partition=1)
    with pytest.raises(SetBroken, match=r"raise the option 'kafka\.transaction\.timeout\.ms', which is 300"):
        query.commit(0, late, early)
    assert committed(lab.bootstrap, topic) == []
    query = Query(lab.bootstrap, topic, query.query)
    query.commit(0, query.task(numbers(0, 20)))
    assert committed(lab.bootstrap, topic) == numbers(0, 20)


def test_a_task_whose_transaction_has_timed_out_gets_an_error(lab: Lab, topic: str, broker: BrokerProcess) -> None:
    lab.create(topic)
    query = Query(
        lab.bootstrap, topic, str(uuid.uuid4()), kafka__transaction__timeout__ms="200", kafka__batch__size="100"
    )

    def slow() -> Iterator[pa.RecordBatch]:
        yield from rows(numbers(0, 100))
        wait_until(lambda: open_transactions(broker.address, query.query), "the transaction has begun")
        wait_until(lambda: not open_transactions(broker.address, query.query), "the transaction is aborted")
        yield from rows(numbers(100, 200))

    with pytest.raises(ProducerFenced, match="lasted longer than its timeout"):
        query.stream(slow())
    assert committed(lab.bootstrap, topic) == []


def test_tasks_and_batches_without_rows_need_no_transaction(
    query: Query, lab: Lab, topic: str, broker: BrokerProcess
) -> None:
    empty = query.task([])
    assert (empty.participant, empty.rows) == (None, 0)
    query.commit(0, empty, query.stream(rows([b"x"])), query.stream(iter([next(rows([b"x"])).slice(0, 0)])))
    query.commit(1, empty, empty)
    query.commit(2, query.task([b"y"]))
    assert committed(lab.bootstrap, topic) == [b"x", b"y"]


def test_a_broker_that_is_killed_in_mid_batch_loses_and_doubles_nothing(
    own_broker: Callable[..., BrokerProcess], topic: str
) -> None:
    broker = own_broker()
    lab = Lab(broker.kafka)
    lab.create(topic, partitions=2)
    query = Query(lab.bootstrap, topic, str(uuid.uuid4()), kafka__batch__size="2000")

    def through_a_crash(start: int) -> Iterator[pa.RecordBatch]:
        yield from rows(numbers(start, start + 1000))
        broker.kill()
        broker.start()
        yield from rows(numbers(start + 1000, start + 2000))

    written = [query.stream(through_a_crash(2000 * part), partition=part) for part in range(2)]
    broker.kill()
    broker.start()
    query.commit(0, *written)
    assert sorted(committed(lab.bootstrap, topic, 2)) == sorted(numbers(0, 4000))


def test_at_least_once_is_there_at_once_and_again_when_it_is_done_again(
    lab: Lab, topic: str, broker: BrokerProcess
) -> None:
    lab.create(topic)
    query = Query(lab.bootstrap, topic, str(uuid.uuid4()), delivery="at-least-once")
    first = query.task(numbers(0, 10))
    assert first.participant is None
    assert not open_transactions(broker.address, query.query)
    assert committed(lab.bootstrap, topic) == numbers(0, 10)
    query.abort(0, first)
    query.commit(0, query.task(numbers(0, 10)))
    assert committed(lab.bootstrap, topic) == numbers(0, 10) * 2


def test_a_batch_write_has_a_query_of_its_own_even_within_a_streaming_query(
    lab: Lab, topic: str, broker: BrokerProcess
) -> None:
    """As in foreachBatch, where tasks see the streaming query's id."""
    lab.create(topic)
    options = {"kafka.bootstrap.servers": lab.bootstrap, "topic": topic}
    for part in range(2):
        writer = batch_writer(options, SCHEMA, overwrite=False)
        with in_task("the-stream"):
            written = writer.write(rows(numbers(10 * part, 10 * part + 10)))
        assert written.query == writer.query != "the-stream"
        writer.commit([written])
    assert committed(lab.bootstrap, topic) == numbers(0, 20)
    writer = batch_writer(options, SCHEMA, overwrite=False)
    with in_task("the-stream"):
        writer.write(rows(numbers(20, 30)))
    writer.abort([None])
    assert not open_transactions(broker.address, writer.query)
    assert committed(lab.bootstrap, topic) == numbers(0, 20)


def test_the_sink_of_a_stream_is_not_for_other_tasks(query: Query) -> None:
    TaskContext._setTaskContext(None)
    with pytest.raises(BadOption, match="not a task of a streaming query"):
        query.writer().write(rows([b"x"]))


# -- rows


def table(**columns: pa.Array) -> Iterator[pa.RecordBatch]:
    return iter([pa.RecordBatch.from_pydict(columns)])


def test_a_row_without_a_topic_is_refused_and_nothing_is_written(query: Query, lab: Lab, topic: str) -> None:
    options = {"kafka.bootstrap.servers": lab.bootstrap}
    writer = batch_writer(
        options, StructType().add("value", StringType()).add("topic", StringType()), overwrite=False
    )
    with in_task("q"), pytest.raises(InvalidRecord, match=r"names no topic .*set the option 'topic'"):
        writer.write(
            chain(
                table(value=pa.array(["a"]), topic=pa.array([topic])),
                table(value=pa.array(["b"]), topic=pa.array([None], pa.string())),
            )
        )
    assert committed(lab.bootstrap, topic) == []
    assert read_to_end(lab.bootstrap, topic, isolation=READ_UNCOMMITTED) == []


def test_a_partition_that_is_not_there_is_refused_until_the_topic_has_it(query: Query, lab: Lab, topic: str) -> None:
    options = {"kafka.bootstrap.servers": lab.bootstrap, "topic": topic}
    writer = batch_writer(
        options, StructType().add("value", StringType()).add("partition", IntegerType()), overwrite=False
    )

    def some() -> Iterator[pa.RecordBatch]:
        return table(value=pa.array(["a", "b"]), partition=pa.array([0, 1], pa.int32()))

    with (
        in_task("q"),
        pytest.raises(InvalidRecord, match=f"topic '{topic}' has 1 partitions: .*asks for partition 1"),
    ):
        writer.write(some())
    lab.grow(topic, 2)
    with in_task("q"):
        writer.commit([writer.write(some())])
    assert [committed(lab.bootstrap, topic, 2)] == [[b"a", b"b"]]


def test_a_record_that_is_too_large_is_reported_with_its_limit(lab: Lab, topic: str) -> None:
    lab.create(topic, max_message_bytes="2000")
    query = Query(lab.bootstrap, topic, str(uuid.uuid4()))
    with pytest.raises(PenstockError, match=r"max\.message\.bytes is 2000"):
        query.task([bytes(3000)])
    query.commit(0, query.task([bytes(100)] * 100))  # together they are larger than one batch may be
    assert len(committed(lab.bootstrap, topic)) == 100
    limited = Query(lab.bootstrap, topic, str(uuid.uuid4()), kafka__max__request__size="1000")
    with pytest.raises(PenstockError, match=r"'kafka\.max\.request\.size' allows 1000"):
        limited.task([bytes(1500)])


def test_a_topic_that_is_not_there_is_made_if_the_brokers_do_so_and_else_named(
    lab: Lab, topic: str, own_broker: Callable[..., BrokerProcess]
) -> None:
    query = Query(lab.bootstrap, topic, str(uuid.uuid4()))
    query.commit(0, query.task(numbers(0, 3)))
    assert committed(lab.bootstrap, topic) == numbers(0, 3)
    strict = own_broker({"auto.create.topics.enable": "false"})
    with pytest.raises(PenstockError, match=f"there is no topic '{topic}'"):
        Query(strict.kafka, topic, str(uuid.uuid4())).task(numbers(0, 3))
