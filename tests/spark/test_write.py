"""`df.write.format("penstock")` with real Spark, read back by another client."""

import time
from collections import Counter

import pytest
from confluent_kafka import Consumer, Message, TopicPartition
from pyspark.errors import PySparkException
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql.functions import col, expr, udf

from penstock.client.partitioner import partition_of_key
from penstock.records.compression import Codec
from tests.brokers import BrokerProcess
from tests.clients.driver_confluent import ConfluentDriver
from tests.clients.drivers import COMPRESSIONS, NOW_MS
from tests.clients.waiting import PATIENCE_S, wait_until

from .lab import Lab
from .write_lab import committed, open_transactions


def save(rows: DataFrame, lab: Lab, topic: str | None = None, **options: str) -> None:
    wanted = lab.options(**options) | ({"topic": topic} if topic else {})
    rows.write.format("penstock").options(**wanted).mode("append").save()


def test_a_write_without_a_mode_is_refused_by_spark(spark: SparkSession, lab: Lab, topic: str) -> None:
    """The documentation quotes the error: Spark raises it before it asks this package."""
    rows = spark.sql("SELECT 'x' AS value")
    with pytest.raises(PySparkException, match=r'"penstock" cannot be written in the "ErrorIfExists" mode.*"Append"'):
        rows.write.format("penstock").options(**lab.options(), topic=topic).save()


def messages(lab: Lab, topic: str, count: int, partitions: int = 1) -> list[Message]:
    """So many committed messages, as librdkafka reads them."""
    with ConfluentDriver(lab.bootstrap).consumer(isolation_level="read_committed") as consumer:
        assert isinstance(consumer, Consumer)
        consumer.assign([TopicPartition(topic, number, 0) for number in range(partitions)])
        found: list[Message] = []
        while len(found) < count:
            message = consumer.poll(PATIENCE_S)
            assert message is not None, f"{len(found)} of {count} messages came"
            assert message.error() is None, message.error()
            found.append(message)
        return found


def test_all_columns_of_sparks_kafka_sink_arrive_as_they_were_written(
    spark: SparkSession, lab: Lab, topic: str
) -> None:
    lab.create(topic, partitions=3)
    rows = spark.sql(
        f"""
        SELECT * FROM VALUES
          ('a', 'one', 2, TIMESTAMP_MILLIS({NOW_MS - 12_345}),
           ARRAY(NAMED_STRUCT('key', 'tag', 'value', X'01'), NAMED_STRUCT('key', 'penstock-tag', 'value', X'')),
           1.5D),
          (NULL, 'two', 0, NULL, NULL, 2.5D),
          ('c', NULL, 1, NULL, ARRAY(), 3.5D)
        AS t(key, value, partition, timestamp, headers, ignored)
        """
    )
    before_ms = time.time_ns() // 1_000_000
    save(rows, lab, topic)
    one, three, two = sorted(messages(lab, topic, 3, partitions=3), key=lambda message: message.value() or b"p")
    assert (one.key(), one.value(), one.partition()) == (b"a", b"one", 2)
    assert one.timestamp()[1] == NOW_MS - 12_345
    assert one.headers() == [("tag", b"\x01"), ("penstock-tag", b"")]
    assert (two.key(), two.value(), two.partition(), two.headers()) == (None, b"two", 0, None)
    assert two.timestamp()[1] >= before_ms
    assert (three.key(), three.value(), three.partition()) == (b"c", None, 1)


def test_keys_go_where_kafkas_own_clients_put_them_and_stay_in_order(
    spark: SparkSession, lab: Lab, topic: str
) -> None:
    lab.create(topic, partitions=4)
    rows = spark.range(0, 20_000, numPartitions=1).select(
        (col("id") % 50).cast("string").cast("binary").alias("key"), col("id").cast("string").alias("value")
    )
    save(rows, lab, topic, kafka__batch__size="10000")
    found = messages(lab, topic, 20_000, partitions=4)
    last: dict[bytes, int] = {}
    for message in found:
        key = message.key()
        assert message.partition() == partition_of_key(key, 4)
        assert int(message.value()) > last.get(key, -1)
        last[key] = int(message.value())
    assert sorted(int(message.value()) for message in found) == list(range(20_000))


@pytest.mark.slow
def test_each_row_may_name_its_topic(spark: SparkSession, lab: Lab, topic: str) -> None:
    names = [lab.create(f"{topic}-{number}", partitions=2) for number in range(3)]
    rows = spark.range(3000).select(
        expr(f"concat('{topic}-', id % 3)").alias("topic"), col("id").cast("string").alias("value")
    )
    save(rows, lab)
    for number, name in enumerate(names):
        assert sorted(map(int, committed(lab.bootstrap, name, 2))) == list(range(number, 3000, 3))


def test_rows_without_a_key_are_spread_over_the_partitions(spark: SparkSession, lab: Lab, topic: str) -> None:
    lab.create(topic, partitions=3)
    rows = spark.range(0, 200_000, numPartitions=2).selectExpr("cast(id AS STRING) AS value")  # 20 Arrow batches
    save(rows, lab, topic, kafka__batch__size="10000")
    counts = Counter(message.partition() for message in messages(lab, topic, 200_000, partitions=3))
    assert counts.keys() == {0, 1, 2}
    assert counts.total() == 200_000


@pytest.mark.parametrize("compression", COMPRESSIONS)
def test_batches_are_written_with_every_codec(
    spark: SparkSession, lab: Lab, topic: str, compression: str, broker: BrokerProcess
) -> None:
    lab.create(topic)
    rows = spark.range(2000).selectExpr("concat('the same words over and over ', id) AS value")
    save(rows, lab, topic, kafka__compression__type=compression)
    assert len(set(committed(lab.bootstrap, topic))) == 2000
    (segment, *_) = sorted(broker.data_dir.glob(f"logs/{topic}/*/*.log"))
    assert int.from_bytes(segment.read_bytes()[21:23], "big") & 7 == Codec[compression.upper()]


def test_a_write_that_fails_leaves_nothing_to_read_and_no_transaction(
    spark: SparkSession, lab: Lab, topic: str, broker: BrokerProcess
) -> None:
    lab.create(topic)

    def fails_late(number):  # Spark makes something of annotations
        if number == 49_999:
            raise ValueError("this row cannot be")
        return str(number)

    rows = spark.range(0, 50_000, numPartitions=2).select(udf(fails_late, "string")("id").alias("value"))
    with pytest.raises(PySparkException, match="this row cannot be"):
        save(rows, lab, topic)
    wait_until(lambda: not open_transactions(broker.address), "the transactions of all tasks are aborted")
    assert committed(lab.bootstrap, topic) == []


def test_an_empty_write_writes_nothing(spark: SparkSession, lab: Lab, topic: str) -> None:
    lab.create(topic)
    save(spark.range(0).selectExpr("cast(id AS STRING) AS value"), lab, topic)
    assert committed(lab.bootstrap, topic) == []


def test_a_batch_that_has_a_number_is_written_once(spark: SparkSession, lab: Lab, topic: str) -> None:
    """What foreachBatch does again after its driver has died."""
    lab.create(topic)
    once = {"txnAppId": f"app of {topic}"}
    for number in (0, 0, 1, 0, 1):
        rows = spark.range(3).selectExpr(f"concat('{number}-', id) AS value")
        save(rows, lab, topic, **once, txnVersion=str(number))
    assert sorted(committed(lab.bootstrap, topic)) == [b"0-0", b"0-1", b"0-2", b"1-0", b"1-1", b"1-2"]
    save(spark.range(1).selectExpr("'another' AS value"), lab, topic, txnAppId="another", txnVersion="0")
    assert b"another" in committed(lab.bootstrap, topic)


def test_at_least_once_is_written_without_transactions(spark: SparkSession, lab: Lab, topic: str) -> None:
    lab.create(topic)
    save(spark.range(5000).selectExpr("cast(id AS STRING) AS value"), lab, topic, delivery="at-least-once")
    assert sorted(map(int, committed(lab.bootstrap, topic))) == list(range(5000))
    assert lab.client.range(topic) == (0, 5000)  # no marker of an end


@pytest.mark.parametrize(
    ("columns", "options", "said"),
    [
        ("cast(id AS STRING) AS value", {"kafka__acks": "1"}, "option 'kafka.acks' is '1'; it must be all"),
        ("id AS value", {}, "column 'value' is bigint; it must be a string or binary"),
        ("id", {}, "the required column 'value' is missing"),
    ],
)
def test_an_invalid_write_is_reported_without_a_traceback(
    spark: SparkSession, lab: Lab, topic: str, columns: str, options: dict[str, str], said: str
) -> None:
    with pytest.raises(PySparkException) as caught:
        save(spark.range(3).selectExpr(columns), lab, topic, **options)
    assert said in str(caught.value)
    assert "Traceback" not in str(caught.value)


def test_rows_with_a_header_that_delays_them_come_when_they_are_due(
    spark: SparkSession, lab: Lab, topic: str
) -> None:
    lab.create(topic, delayed_messages="true")
    rows = spark.sql(
        """
        SELECT * FROM VALUES
          ('later', ARRAY(NAMED_STRUCT('key', 'penstock-delay', 'value', CAST('2s' AS BINARY)))),
          ('now', NULL)
        AS t(value, headers)
        """
    )
    save(rows, lab, topic)
    now, later = messages(lab, topic, 2)
    assert (now.value(), later.value()) == (b"now", b"later")
    assert "penstock-delayed-from" in dict(later.headers() or ())
