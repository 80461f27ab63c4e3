"""Dead letters of real queues on real Spark: examined, fixed, sent back once."""

import json
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
from pyspark.errors import PySparkException
from pyspark.sql import SparkSession

from penstock.client.transactional import QUERY_CLOSED
from penstock.foundation.errors import PenstockError
from penstock.spark.pipelines.catalogue import check_clusters, load
from penstock.spark.pipelines.claims import Round, recover
from penstock.spark.pipelines.pipeline import Report
from penstock.spark.pipelines.runner import run_in
from tests.brokers import BrokerProcess
from tests.clients.drivers import Outgoing

from .dead_letter_lab import Letters, orders
from .lab import Lab

FIX = """regexp_replace(value, '"amont"', '"amount"')"""
MISSPELT = "get_json_object(value, '$.amont') IS NOT NULL"
HOLD_S = 600.0


@pytest.fixture
def redrive(spark: SparkSession, broker: BrokerProcess) -> Callable[..., Report]:
    """Run the pipeline in the shared Spark; `__` in a name stands for a dot."""

    def run(**options: object) -> Report:
        settings = [(name.replace("__", "."), str(value)) for name, value in options.items()]
        loaded = load("redrive", settings, broker.kafka)
        check_clusters(loaded)
        return run_in(spark, loaded, once=True)

    return run


@pytest.fixture
def dead(broker: BrokerProcess, tmp_path: Path) -> Iterator[Letters]:
    found = Letters(broker.kafka, broker.http, tmp_path)
    yield found
    found.close()


def facts(report: Report, *names: str) -> dict[str, object]:
    return {name: report.facts[name] for name in names}


def test_letters_that_match_are_fixed_and_go_back_and_the_rest_stays_as_it_was(
    redrive: Callable[..., Report], dead: Letters
) -> None:
    jobs = dead.source()
    typed = {
        "tries": {"DataType": "Number", "StringValue": "7"},
        "tenant": {"DataType": "String", "StringValue": "eu"},
    }
    dead.kill(jobs, orders(range(6)), MessageAttributes=typed)
    before = {message["Body"]: message for message in dead.peek(dead.name)}
    report = redrive(
        queue=dead.name,
        where=f"{MISSPELT} AND attributes['tenant'] = 'eu' AND receive_count >= 1 AND source = '{jobs}'",
        fix__value=FIX,
        fix__attributes="map_concat(map_filter(attributes, (k, v) -> k != 'tenant'), map('mended', 'yes'))",
    )
    assert facts(report, "examined", "matched", "sent_back", "deleted", "left") == {
        "examined": 6,
        "matched": 3,
        "sent_back": 3,
        "deleted": 3,
        "left": 3,
    }
    back = dead.receive(jobs, 3)
    assert [json.loads(message["Body"]) for message in back] == [{"id": n, "amount": n * 10} for n in (1, 3, 5)]
    for message in back:
        old = before[message["Body"].replace("amount", "amont")]
        assert message["MessageId"] == old["MessageId"]
        assert message["Attributes"]["SentTimestamp"] == old["Attributes"]["SentTimestamp"]
        assert message["Attributes"]["ApproximateReceiveCount"] == "1", "it begins anew"
        assert "DeadLetterQueueSourceArn" not in message["Attributes"]
        assert message["MessageAttributes"]["tries"] == {"DataType": "Number", "StringValue": "7"}
        assert message["MessageAttributes"]["mended"] == {"DataType": "String", "StringValue": "yes"}
        assert "tenant" not in message["MessageAttributes"]
    left = dead.receive(dead.name)
    assert [json.loads(message["Body"])["id"] for message in left] == [0, 2, 4]
    for message in left:
        was = before[message["Body"]]["Attributes"]["ApproximateReceiveCount"]
        assert int(message["Attributes"]["ApproximateReceiveCount"]) == int(was) + 1, "only we have received it"


def test_a_dry_run_shows_what_would_be_done_and_changes_nothing(
    redrive: Callable[..., Report], dead: Letters
) -> None:
    jobs, other = dead.source(), dead.source("unmatched")
    dead.kill(jobs, orders(range(4)))
    dead.kill(other, orders([6]))
    before = dead.state()
    cause = f"if({MISSPELT}, 'misspelt', 'unknown')"
    report = redrive(queue=dead.name, where=MISSPELT, fix__value=FIX, cause=cause, dry_run="true", schema="id BIGINT")
    assert report.verdict == f"2 of 5 dead letters of {dead.name} would be sent back; nothing was changed"
    table, examples = report.tables
    assert [row[:5] for row in table.rows] == [
        ("misspelt", jobs, jobs, 2, 2),
        ("unknown", jobs, jobs, 2, 0),
        ("unknown", other, other, 1, 0),
    ]
    assert [row[3:] for row in examples.rows] == [
        (json.dumps({"id": n, "amont": n * 10}), json.dumps({"id": n, "amount": n * 10})) for n in (1, 3)
    ]
    assert facts(report, "would_be_sent_back", "sent_back", "left") == {
        "would_be_sent_back": 2,
        "sent_back": 0,
        "left": 5,
    }
    assert dead.state() == before
    assert dead.counts(jobs) == (0, 0)


def test_a_fifo_queue_gets_its_messages_back_in_the_order_of_their_groups(
    redrive: Callable[..., Report], broker: BrokerProcess, tmp_path: Path
) -> None:
    dead = Letters(broker.kafka, broker.http, tmp_path, is_fifo=True)
    jobs = dead.source()
    dead.kill(jobs, [str(number) for number in range(12)])
    # Within five minutes, and with the deduplication ids that they had: they are not swallowed.
    report = redrive(queue=dead.name, max_rows=5, where="cast(value AS int) != 4")
    assert facts(report, "sent_back", "deleted", "left") == {"sent_back": 11, "deleted": 11, "left": 1}
    back = dead.receive(jobs, 11)
    for group, numbers in (("a", [0, 2, 6, 8, 10]), ("b", [1, 3, 5, 7, 9, 11])):
        found = [message for message in back if message["Attributes"]["MessageGroupId"] == group]
        assert [int(message["Body"]) for message in found] == numbers
        assert [message["Attributes"]["MessageDeduplicationId"] for message in found] == [str(n) for n in numbers]
    assert dead.bodies(dead.name) == ["4"]
    dead.close()


def test_messages_in_flight_or_without_a_source_stay(redrive: Callable[..., Report], dead: Letters) -> None:
    jobs, gone = dead.source(), dead.source("gone")
    dead.kill(jobs, ["1", "2", "3"])
    dead.kill(gone, ["4"])
    dead.delete(gone)
    held = dead.take(dead.name)
    report = redrive(queue=dead.name)
    assert facts(report, "matched", "sent_back", "in_flight", "without_source", "left") == {
        "matched": 4,
        "sent_back": 2,
        "in_flight": 1,
        "without_source": 1,
        "left": 2,
    }
    assert dead.bodies(jobs, 2) == ["2", "3"]
    dead.finish(dead.name, held)
    other = dead.plain()
    assert redrive(queue=dead.name, to=other).facts["sent_back"] == 1
    assert dead.bodies(other, 1) == ["4"]
    assert dead.counts(dead.name) == (0, 0)
    assert redrive(queue=dead.name).facts["examined"] == 0


def test_letters_of_share_groups_are_sent_back_once_though_their_topic_keeps_them(
    redrive: Callable[..., Report], lab: Lab, topic: str
) -> None:
    letters = f"{topic}-letters"
    lab.create(topic, 2)
    lab.create(letters, 1)
    lab.fill(
        letters,
        [
            Outgoing(
                key=b"k%d" % number,
                value=b"bad %d" % number,
                headers=(
                    ("own", b"\xff%d" % number),
                    ("__dlq.errors.topic", topic.encode()),
                    ("__dlq.errors.partition", b"%d" % (number % 2)),
                    ("__dlq.errors.offset", b"17"),
                    ("__dlq.errors.group", b"workers"),
                    ("__dlq.errors.delivery.count", b"5"),
                ),
            )
            for number in range(6)
        ],
    )
    group = f"{topic}-mending"
    dry = redrive(topic=letters, group=group, where="partition = 0", dry_run="true")
    assert dry.facts["would_be_sent_back"] == 6
    first = redrive(
        topic=letters, group=group, where="value IN ('bad 1', 'bad 4')", fix__value="replace(value, 'bad', 'good')"
    )
    assert facts(first, "examined", "sent_back", "left") == {"examined": 6, "sent_back": 2, "left": 4}
    second = redrive(topic=letters, group=group, where="receive_count = 5", limit=3)
    assert facts(second, "examined", "sent_back", "left") == {"examined": 4, "sent_back": 3, "left": 1}
    found = {row["value"]: row for row in lab.rows(topic, includeHeaders="true")}
    assert sorted(found) == [b"bad 0", b"bad 2", b"bad 3", b"good 1", b"good 4"]
    assert found[b"good 1"]["partition"] == 1
    assert found[b"good 4"]["key"] == b"k4"
    assert [(each["key"], each["value"]) for each in found[b"good 4"]["headers"]] == [("own", b"\xff4")]
    assert len(lab.rows(letters)) == 6


def test_the_next_driver_releases_or_deletes_the_letters_of_a_dead_one(
    redrive: Callable[..., Report], spark: SparkSession, dead: Letters
) -> None:
    jobs = dead.source()
    dead.kill(jobs, ["0", "1", "2", "3"])
    claimed, sent = Round(dead.dlq, HOLD_S), Round(dead.dlq, HOLD_S)
    claimed.claim({0: [0, 2]})
    sent.claim({0: [1]})
    send(spark, dead, sent, jobs, "1")
    assert dead.counts(dead.name) == (1, 3)
    report = redrive(queue=dead.name, where="value != '3'")
    assert facts(report, "recovered", "given_back", "sent_back", "left") == {
        "recovered": 1,
        "given_back": 2,
        "sent_back": 2,
        "left": 1,
    }
    assert sorted(dead.bodies(jobs, 3)) == ["0", "1", "2"]
    assert dead.bodies(dead.name) == ["3"]


def send(spark: SparkSession, dead: Letters, turn: Round, jobs: str, value: str) -> None:
    """As the pipeline does it."""
    rows = spark.createDataFrame([(jobs, value)], "topic STRING, value STRING")
    options = {"kafka.bootstrap.servers": dead.kafka, "txnAppId": turn.name, "txnVersion": "0"}
    rows.write.format("penstock").options(**options).mode("append").save()


def test_a_driver_that_was_taken_over_sends_nothing(spark: SparkSession, dead: Letters) -> None:
    jobs = dead.source()
    dead.kill(jobs, ["0"])
    turn = Round(dead.dlq, HOLD_S)
    turn.claim({0: [0]})
    assert recover(dead.dlq).returned == 1
    with pytest.raises(PySparkException, match=QUERY_CLOSED):
        send(spark, dead, turn, jobs, "0")
    assert turn.close() is None
    assert dead.counts(jobs) == (0, 0)
    assert dead.counts(dead.name) == (1, 0)


def test_a_fix_that_spark_cannot_read_changes_nothing(redrive: Callable[..., Report], dead: Letters) -> None:
    jobs = dead.source()
    dead.kill(jobs, ["0"])
    with pytest.raises(PenstockError, match="valeu"):
        redrive(queue=dead.name, fix__value="upper(valeu)")
    with pytest.raises(PenstockError, match="cannot be mended"):
        redrive(queue=dead.name, fix__value="cast(raise_error('cannot be mended') AS string)")
    assert dead.counts(dead.name) == (1, 0)
    assert dead.counts(jobs) == (0, 0)


def test_a_queues_topic_is_read_with_all_messages_and_their_attributes_as_headers(
    spark: SparkSession, lab: Lab, dead: Letters
) -> None:
    jobs = dead.plain("jobs")
    url = dead.urls[jobs]
    named = {"tenant": {"DataType": "String", "StringValue": "eu"}, "n": {"DataType": "Number", "StringValue": "4"}}
    for number in range(3):
        dead.sqs.send_message(QueueUrl=url, MessageBody=f"job {number}", MessageAttributes=named)
    dead.finish(jobs, dead.take(jobs))
    rows: list[Any] = lab.load(spark, jobs, includeHeaders="true").orderBy("offset").collect()
    # Reading takes nothing: what is done is there until it is reclaimed, and what waits waits.
    assert [bytes(row.value) for row in rows] == [b"job 0", b"job 1", b"job 2"]
    headers = {header.key: bytes(header.value) for header in rows[1].headers}
    assert headers == {"tenant": b"eu", "n": b"4", "penstock-attribute-types": b'{"n":"Number"}'}
    assert dead.bodies(jobs) == ["job 1", "job 2"]
