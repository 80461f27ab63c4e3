"""Transactions of every client library, read by every client library."""

import random
from collections.abc import Callable, Iterator
from contextlib import ExitStack

import pytest
from confluent_kafka import TopicPartition

from tests.brokers import BrokerProcess

from .conftest import ADMIN_DRIVERS, name_of
from .driver_confluent import ConfluentDriver, read
from .drivers import AdminDriver, Outgoing
from .transactional_producers import READ_COMMITTED, READ_UNCOMMITTED, TRANSACTORS, Fenced, Transactor, read_to_end
from .waiting import wait_until

Open = Callable[..., Transactor]


@pytest.fixture
def driver(group_broker: BrokerProcess) -> ConfluentDriver:
    return ConfluentDriver(group_broker.kafka)


@pytest.fixture
def transactor(group_broker: BrokerProcess) -> Iterator[Open]:
    """Opens producers: `transactor("aiokafka", "some id")`. They are closed at the end."""
    with ExitStack() as open_ones:

        def open_(library: str, transactional_id: str, **options: int) -> Transactor:
            made = TRANSACTORS[library](group_broker.kafka, transactional_id, **options)
            open_ones.callback(made.close)
            return made

        yield open_


def send_all(producer: Transactor, topic: str, *values: bytes, partition: int = 0) -> None:
    for value in values:
        producer.send(topic, value, partition)


# -- commit and abort


@pytest.mark.parametrize("library", TRANSACTORS)
@pytest.mark.parametrize("reader", ADMIN_DRIVERS, ids=name_of)
def test_readers_of_committed_messages_see_those_and_no_others(
    group_broker: BrokerProcess, driver: ConfluentDriver, transactor: Open, topic: str, library: str, reader: type
) -> None:
    driver.create_topic(topic)
    producer = transactor(library, topic)
    for ends, values in (
        (producer.commit, (b"a", b"b")),
        (producer.abort, (b"c", b"d")),
        (producer.commit, (b"e",)),
        (producer.abort, (b"f",)),
    ):
        producer.begin()
        send_all(producer, topic, *values)
        producer.flush()
        ends()
    driver.produce(topic, [Outgoing(value=b"g")])
    read_by: AdminDriver = reader(group_broker.kafka)
    committed = read_by.consume(topic, 0, 4, isolation_level=READ_COMMITTED)
    assert [message.value for message in committed] == [b"a", b"b", b"e", b"g"]
    everything = read_by.consume(topic, 0, 7, isolation_level=READ_UNCOMMITTED)
    assert [message.value for message in everything] == [b"a", b"b", b"c", b"d", b"e", b"f", b"g"]
    assert read_to_end(group_broker.kafka, topic) == [b"a", b"b", b"e", b"g"]


@pytest.mark.parametrize("library", TRANSACTORS)
@pytest.mark.parametrize("commits", [True, False], ids=["commit", "abort"])
def test_an_open_transaction_holds_back_what_comes_after_it(
    group_broker: BrokerProcess, driver: ConfluentDriver, transactor: Open, topic: str, library: str, commits: bool
) -> None:
    driver.create_topic(topic)
    driver.produce(topic, [Outgoing(value=b"before")])
    producer = transactor(library, topic)
    producer.begin()
    send_all(producer, topic, b"within")
    producer.flush()
    driver.produce(topic, [Outgoing(value=b"after")])
    assert read_to_end(group_broker.kafka, topic) == [b"before"]
    assert read_to_end(group_broker.kafka, topic, isolation=READ_UNCOMMITTED) == [b"before", b"within", b"after"]
    producer.commit() if commits else producer.abort()
    within = [b"within"] if commits else []
    wait_until(lambda: read_to_end(group_broker.kafka, topic) == [b"before", *within, b"after"], "all of it")


def test_a_waiting_reader_gets_records_when_the_transaction_ends(
    driver: ConfluentDriver, transactor: Open, topic: str
) -> None:
    driver.create_topic(topic)
    producer = transactor("confluent-kafka", topic)
    with driver.consumer(isolation_level=READ_COMMITTED, fetch_wait_max_ms=10_000) as consumer:
        consumer.assign([TopicPartition(topic, 0, 0)])
        for number in range(3):
            producer.begin()
            send_all(producer, topic, b"%d" % number)
            producer.flush()
            assert consumer.poll(0.2) is None
            producer.commit()
            assert [message.value for message in read(consumer, 1)] == [b"%d" % number]


@pytest.mark.parametrize("library", TRANSACTORS)
def test_a_transaction_over_many_partitions_is_all_or_nothing(
    group_broker: BrokerProcess, driver: ConfluentDriver, transactor: Open, topic: str, library: str
) -> None:
    topics = [f"{topic}-{number}" for number in range(3)]
    for name in topics:
        driver.create_topic(name, 4)
    producer = transactor(library, topic)
    for value, ends in ((b"yes", producer.commit), (b"no", producer.abort), (b"yes again", producer.commit)):
        producer.begin()
        for name in topics:
            for partition in range(4):
                producer.send(name, value, partition)
        producer.flush()
        ends()
    for name in topics:
        for partition in range(4):
            found = wait_until(lambda n=name, p=partition: read_to_end(group_broker.kafka, n, p)[1:], "both")
            assert found == [b"yes again"]


@pytest.mark.parametrize("library", TRANSACTORS)
def test_a_transaction_in_which_nothing_is_written_ends_all_the_same(
    transactor: Open, topic: str, library: str
) -> None:
    producer = transactor(library, topic)
    for end in (producer.commit, producer.abort, producer.commit):
        producer.begin()
        end()


@pytest.mark.parametrize("library", TRANSACTORS)
def test_a_large_transaction_is_committed_whole(
    group_broker: BrokerProcess, driver: ConfluentDriver, transactor: Open, topic: str, library: str
) -> None:
    """Over several segments, with others writing meanwhile."""
    driver.create_topic(topic, 2, configs={"segment.bytes": str(256 << 10)})
    count, filler = (20_000, b"x" * 200) if library == "confluent-kafka" else (3000, b"x" * 1000)
    producer = transactor(library, topic)
    for ends in (producer.commit, producer.abort):
        producer.begin()
        for number in range(count):
            producer.send(topic, b"%d %s" % (number, filler), number % 2)
            if number % (count // 4) == 0:
                producer.flush()
                driver.produce(topic, [Outgoing(value=b"aside")])
        producer.flush()
        ends()
    for partition, asides in ((0, 8), (1, 0)):
        found = read_to_end(group_broker.kafka, topic, partition)
        assert found.count(b"aside") == asides
        numbers = [int(value.partition(b" ")[0]) for value in found if value != b"aside"]
        assert numbers == list(range(partition, count, 2))


def test_interleaved_transactions_come_apart_again(
    group_broker: BrokerProcess, driver: ConfluentDriver, transactor: Open, topic: str, rng: random.Random
) -> None:
    """Producers of all libraries write to the same partitions, in turn, and end when they like."""
    driver.create_topic(topic, 2)
    producers = {f"{topic}-{library}": transactor(library, f"{topic}-{library}") for library in TRANSACTORS}
    producers |= {
        f"{topic}-more-{number}": transactor("confluent-kafka", f"{topic}-more-{number}") for number in (0, 1)
    }
    under_way: dict[str, dict[int, list[bytes]]] = {}
    committed: dict[str, dict[int, list[bytes]]] = {name: {0: [], 1: []} for name in producers}
    everything: dict[int, list[bytes]] = {0: [], 1: []}
    for step in range(150):
        name = rng.choice(list(producers))
        producer = producers[name]
        if name not in under_way:
            producer.begin()
            under_way[name] = {0: [], 1: []}
        if rng.random() < 0.7:
            value, partition = f"{name} {step}".encode(), rng.randrange(2)
            producer.send(topic, value, partition)
            producer.flush()
            under_way[name][partition].append(value)
            everything[partition].append(value)
        elif rng.random() < 0.6:
            producer.commit()
            for partition, values in under_way.pop(name).items():
                committed[name][partition] += values
        else:
            producer.abort()
            del under_way[name]
    for name in under_way:
        producers[name].abort()
    for partition in range(2):
        good = {value for each in committed.values() for value in each[partition]}
        expected = [value for value in everything[partition] if value in good]
        for reader in ADMIN_DRIVERS:
            one: AdminDriver = reader(group_broker.kafka)
            found = one.consume(topic, 0, len(expected), partition, isolation_level=READ_COMMITTED)
            assert [message.value for message in found] == expected, one.name
        assert read_to_end(group_broker.kafka, topic, partition, READ_UNCOMMITTED) == everything[partition]


@pytest.mark.parametrize("library", TRANSACTORS)
def test_of_two_producers_with_one_id_the_older_one_is_fenced(
    group_broker: BrokerProcess, driver: ConfluentDriver, transactor: Open, topic: str, library: str
) -> None:
    driver.create_topic(topic)
    older = transactor(library, topic)
    older.begin()
    send_all(older, topic, b"older")
    older.flush()
    newer = transactor(library, topic)
    assert read_to_end(group_broker.kafka, topic) == [], "what the older one has begun was aborted"
    newer.begin()
    send_all(newer, topic, b"newer")
    newer.commit()

    def go_on() -> None:
        send_all(older, topic, b"too late")
        older.commit()

    with pytest.raises(Fenced):
        go_on()
    wait_until(lambda: read_to_end(group_broker.kafka, topic) == [b"newer"], "the newer one's message")
