"""Progress of a streaming query, called as Spark does, without Spark."""

import asyncio
import json
import pickle
from collections.abc import Callable

import pytest
from pyspark.sql.streaming.datasource import ReadAllAvailable, ReadMaxRows

from penstock.client.cluster import KafkaClient
from penstock.client.errors import ServerError
from penstock.client.groups import Groups
from penstock.foundation.ids import TopicPartition
from penstock.spark.errors import BadCheckpoint, DataLost
from tests.brokers import BrokerProcess
from tests.clients.drivers import NOW_MS
from tests.clients.waiting import wait_until

from .lab import Lab, numbered, rows_of

ALL = ReadAllAvailable()


@pytest.fixture(autouse=True)
def _plain_environment(monkeypatch: pytest.MonkeyPatch) -> None:
    """Errors tell Spark's worker to hide its traceback, by a variable: it is not to outlive the test."""
    monkeypatch.setenv("SPARK_HIDE_TRACEBACK", "")


def committed(bootstrap: str, group: str) -> dict[TopicPartition, int]:
    async def look() -> dict[TopicPartition, int]:
        async with KafkaClient(bootstrap) as client:
            return {name: entry.offset for name, entry in (await Groups(client).offsets(group)).items()}

    return asyncio.run(look())


# -- how far


def test_a_new_query_starts_at_the_end_or_at_the_given_offsets(lab: Lab, topic: str) -> None:
    lab.create(topic, 2)
    lab.fill(topic, numbered(5))
    assert lab.stream(topic).initialOffset() == {topic: {"0": 5, "1": 0}}
    assert lab.stream(topic, startingOffsets="earliest").initialOffset() == {topic: {"0": 0, "1": 0}}
    given = json.dumps({topic: {"0": 3, "1": -1}})
    assert lab.stream(topic, startingOffsets=given).initialOffset() == {topic: {"0": 3, "1": 0}}
    late = lab.stream(topic, startingTimestamp=NOW_MS + 2, startingOffsetsByTimestampStrategy="latest")
    assert late.initialOffset() == {topic: {"0": 2, "1": 0}}


def test_a_start_that_is_not_there_is_an_error_or_cut_off(lab: Lab, topic: str) -> None:
    lab.create(topic)
    lab.fill(topic, 5)
    given = json.dumps({topic: {"0": 50}})
    with pytest.raises(DataLost, match=f"partition {topic}-0 holds offsets 0 to 5, not 50"):
        lab.stream(topic, startingOffsets=given).initialOffset()
    lenient = lab.stream(topic, startingOffsets=given, failOnDataLoss="false")
    assert lenient.initialOffset() == {topic: {"0": 5}}


def test_a_batch_goes_to_the_end_and_the_next_one_from_there(lab: Lab, topic: str) -> None:
    lab.create(topic)
    lab.fill(topic, 5)
    stream = lab.stream(topic, startingOffsets="earliest")
    start = stream.initialOffset()
    end = stream.latestOffset(start, ALL)
    assert end == {topic: {"0": 5}}
    assert [row["offset"] for row in rows_of(stream, stream.partitions(start, end))] == list(range(5))
    # Spark compares the texts: nothing new must be the very same.
    assert json.dumps(stream.latestOffset(end, ALL)) == json.dumps(end)
    assert stream.partitions(end, end) == []
    lab.fill(topic, numbered(2, 5))
    assert stream.latestOffset(end, ALL) == {topic: {"0": 7}}
    assert stream.reportLatestOffset() == {topic: {"0": 7}}


def test_a_limit_is_shared_out_over_partitions(lab: Lab, topic: str) -> None:
    lab.create(topic, 2)
    lab.fill(topic, [*numbered(90), *numbered(10, partition=1)])
    stream = lab.stream(topic, startingOffsets="earliest", maxOffsetsPerTrigger=10)
    assert stream.getDefaultReadLimit() == ReadMaxRows(10)
    start = stream.initialOffset()
    assert stream.latestOffset(start, stream.getDefaultReadLimit()) == {topic: {"0": 9, "1": 1}}
    assert stream.latestOffset(start, ALL) == {topic: {"0": 90, "1": 10}}
    assert stream.reportLatestOffset() == {topic: {"0": 90, "1": 10}}
    assert lab.stream(topic).getDefaultReadLimit() == ALL


def test_too_little_waits_for_more_but_not_for_ever(lab: Lab, topic: str) -> None:
    lab.create(topic)
    lab.fill(topic, 5)
    stream = lab.stream(topic, startingOffsets="earliest", minOffsetsPerTrigger=10, maxTriggerDelay="10m")
    start = stream.initialOffset()
    first = stream.latestOffset(start, ALL)
    assert first == {topic: {"0": 5}}  # the first is never waited for
    lab.fill(topic, numbered(5, 5))
    assert stream.latestOffset(first, ALL) is first
    lab.fill(topic, numbered(5, 10))
    assert stream.latestOffset(first, ALL) == {topic: {"0": 15}}
    hurried = lab.stream(topic, startingOffsets="earliest", minOffsetsPerTrigger=100, maxTriggerDelay="0ms")
    assert hurried.latestOffset(hurried.latestOffset(start, ALL), ALL) == {topic: {"0": 15}}


def test_a_query_that_takes_what_is_there_stops_at_what_was_there(lab: Lab, topic: str) -> None:
    lab.create(topic)
    lab.fill(topic, 10)
    stream = lab.stream(topic, startingOffsets="earliest", maxOffsetsPerTrigger=4, minOffsetsPerTrigger=3)
    stream.prepareForTriggerAvailableNow()
    ends = [stream.initialOffset()]
    while len(ends) == 1 or ends[-1] != ends[-2]:
        ends.append(stream.latestOffset(ends[-1], stream.getDefaultReadLimit()))
        lab.fill(topic, numbered(3, 10))
        lab.grow(topic, len(ends) + 1)
    assert [end[topic]["0"] for end in ends] == [0, 4, 8, 10, 10]
    assert list(ends[-1][topic]) == ["0"]


def test_only_what_is_committed_is_the_end(lab: Lab, topic: str) -> None:
    from tests.clients.transactional_producers import ConfluentTransactor

    lab.create(topic)
    producer = ConfluentTransactor(lab.bootstrap, f"tx-{topic}")
    lab.fill(topic, 3)
    producer.begin()
    producer.send(topic, b"open")
    producer.flush()
    lab.fill(topic, 3)
    assert lab.stream(topic).initialOffset() == {topic: {"0": 3}}
    assert lab.stream(topic, isolation="read_uncommitted").initialOffset() == {topic: {"0": 7}}
    producer.abort()
    stream = lab.stream(topic, startingOffsets="earliest")
    start = stream.initialOffset()
    end = wait_until(lambda: {topic: {"0": 8}} == stream.latestOffset(start, ALL) and {topic: {"0": 8}}, "the marker")
    assert len(rows_of(stream, stream.partitions(start, end))) == 6
    producer.close()


# -- topics that change


def test_new_partitions_and_new_topics_are_read_from_their_first_record(lab: Lab, topic: str) -> None:
    lab.create(f"{topic}-a")
    stream = lab.stream(subscribePattern=f"{topic}-.*", maxOffsetsPerTrigger=1000)
    start = stream.initialOffset()
    assert start == {f"{topic}-a": {"0": 0}}
    lab.grow(f"{topic}-a", 2)
    lab.create(f"{topic}-b")
    lab.fill(f"{topic}-a", numbered(3, partition=1))
    lab.fill(f"{topic}-b", 4)
    end = stream.latestOffset(start, stream.getDefaultReadLimit())
    assert end == {f"{topic}-a": {"0": 0, "1": 3}, f"{topic}-b": {"0": 4}}
    assert len(rows_of(stream, stream.partitions(start, end))) == 7


def test_a_new_partition_that_has_lost_its_start_is_an_error_or_read_from_there(lab: Lab, topic: str) -> None:
    lab.create(topic)
    start = lab.stream(topic).initialOffset()
    lab.grow(topic, 2)
    lab.fill(topic, numbered(5, partition=1))
    end = {topic: {"0": 0, "1": 5}}
    from confluent_kafka import TopicPartition as Place

    place = Place(topic, 1, 2)
    lab.client.admin.delete_records([place])[place].result(20)
    with pytest.raises(DataLost, match=f"partition {topic}-1 is new, and begins at offset 2 instead of 0"):
        lab.stream(topic).partitions(start, end)
    lenient = lab.stream(topic, failOnDataLoss="false")
    assert [row["offset"] for row in rows_of(lenient, lenient.partitions(start, end))] == [2, 3, 4]


def test_a_deleted_topic_is_an_error_or_left_out(lab: Lab, topic: str) -> None:
    for name in ("a", "b"):
        lab.create(f"{topic}-{name}")
        lab.fill(f"{topic}-{name}", 3)
    both = f"{topic}-a,{topic}-b"
    strict = lab.stream(both, startingOffsets="earliest")
    lenient = lab.stream(both, startingOffsets="earliest", failOnDataLoss="false")
    start = strict.initialOffset()
    lab.client.delete_topic(f"{topic}-a")
    wait_until(lambda: f"{topic}-a" not in lab.client.topics(), "the topic is gone")
    end = strict.latestOffset(start, ALL)
    assert end == {f"{topic}-b": {"0": 3}}
    with pytest.raises(
        DataLost, match=f"partition {topic}-a-0 cannot be found any more. Set failOnDataLoss to false"
    ):
        strict.partitions(start, end)
    end = lenient.latestOffset(start, ALL)
    assert {row["topic"] for row in rows_of(lenient, lenient.partitions(start, end))} == {f"{topic}-b"}
    with pytest.raises(ServerError, match=f"there is no topic '{topic}-a'"):
        lab.stream(both).initialOffset()


def test_a_trimmed_topic_is_an_error_or_read_from_what_is_left(lab: Lab, topic: str) -> None:
    lab.create(topic)
    lab.fill(topic, 10)
    start, end = {topic: {"0": 2}}, {topic: {"0": 10}}
    lab.client.trim(topic, 6)
    with pytest.raises(DataLost, match=f"partition {topic}-0 begins at offset 6 and was read up to 2 only"):
        lab.stream(topic).partitions(start, end)
    lenient = lab.stream(topic, failOnDataLoss="false")
    assert [row["offset"] for row in rows_of(lenient, lenient.partitions(start, end))] == [6, 7, 8, 9]


def test_a_topic_that_was_made_again_is_an_error_or_begun_anew(lab: Lab, topic: str) -> None:
    lab.create(topic)
    lab.fill(topic, 2)
    begun = {topic: {"0": 9}}  # of the topic that had the name before
    strict = lab.stream(topic)
    with pytest.raises(
        DataLost, match=f"partition {topic}-0 was read up to offset 9, and now ends at 2: it was deleted"
    ):
        strict.partitions(begun, strict.latestOffset(begun, ALL))
    lenient = lab.stream(topic, failOnDataLoss="false")
    end = lenient.latestOffset(begun, ALL)
    assert lenient.partitions(begun, end) == []
    lab.fill(topic, numbered(3, 2))
    assert [row["offset"] for row in rows_of(lenient, lenient.partitions(end, lenient.latestOffset(end, ALL)))] == [
        2,
        3,
        4,
    ]


@pytest.mark.parametrize("lenient", ["true", "false"])
def test_a_checkpoint_of_another_topic_is_refused(lab: Lab, topic: str, lenient: str) -> None:
    lab.create(topic)
    stream = lab.stream(topic, failOnDataLoss=lenient)
    with pytest.raises(
        BadCheckpoint, match=f"the checkpoint belongs to a query of others, but this one reads {topic}; give it"
    ):
        stream.latestOffset({"others": {"0": 1}}, ALL)
    with pytest.raises(BadCheckpoint, match="the checkpoint belongs to another source"):
        stream.latestOffset({"index": 3}, ALL)


# -- the consumer group


def test_the_group_gets_the_offsets_of_finished_batches(lab: Lab, topic: str) -> None:
    lab.create(topic, 2)
    lab.fill(topic, numbered(5))
    group = f"group-{topic}"
    stream = lab.stream(topic, startingOffsets="earliest", kafka__group__id=group)
    start = stream.initialOffset()
    end = stream.latestOffset(start, ALL)
    first, second = TopicPartition(topic, 0), TopicPartition(topic, 1)
    assert committed(lab.bootstrap, group) == {first: 0, second: 0}
    stream.latestOffset(end, ALL)  # as Spark asks after the last batch, too
    assert committed(lab.bootstrap, group) == {first: 5, second: 0}
    stream.commit({topic: {"0": 5, "1": 3}})
    assert committed(lab.bootstrap, group) == {first: 5, second: 3}


def test_a_group_with_members_of_its_own_does_not_stop_the_query(
    lab: Lab, topic: str, caplog: pytest.LogCaptureFixture
) -> None:
    lab.create(topic)
    lab.fill(topic, 5)
    group = f"group-{topic}"
    with lab.client.consumer(group_id=group) as consumer:
        consumer.subscribe([topic])
        wait_until(lambda: consumer.poll(0.1) is None and consumer.assignment(), "the consumer is a member")
        stream = lab.stream(topic, startingOffsets="earliest", kafka__group__id=group)
        assert stream.latestOffset(stream.initialOffset(), ALL) == {topic: {"0": 5}}
    assert f"group_commit_failed group={group}" in caplog.text


# -- the process it lives in


def test_a_query_goes_on_when_its_broker_comes_back(own_broker: Callable[..., BrokerProcess], topic: str) -> None:
    broker = own_broker()
    lab = Lab(broker.kafka)
    lab.create(topic)
    lab.fill(topic, 5)
    stream = lab.stream(topic, startingOffsets="earliest")
    start = stream.initialOffset()
    broker.kill()
    broker.start()
    end = stream.latestOffset(start, ALL)
    assert [row["offset"] for row in rows_of(stream, stream.partitions(start, end))] == list(range(5))
    stream.stop()
    stream.stop()


def test_a_reader_travels_to_its_tasks(lab: Lab, topic: str) -> None:
    lab.create(topic)
    lab.fill(topic, 5)
    stream = lab.stream(topic, startingOffsets="earliest")
    planned = pickle.dumps(stream.partitions(stream.initialOffset(), {topic: {"0": 5}}))
    elsewhere = pickle.loads(pickle.dumps(lab.stream(topic, startingOffsets="earliest")))
    assert len(rows_of(elsewhere, pickle.loads(planned))) == 5
    batch = lab.reader(topic)
    planned = pickle.dumps(batch.partitions())
    assert len(rows_of(pickle.loads(pickle.dumps(batch)), pickle.loads(planned))) == 5
