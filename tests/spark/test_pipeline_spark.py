"""Every built-in pipeline on real Spark against a real broker, and its errors."""

import json
import threading
from collections.abc import Callable, Sequence
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import pytest
from confluent_kafka import Consumer, TopicPartition
from pyspark.errors import PySparkException
from pyspark.logger import PySparkLogger
from pyspark.sql import SparkSession

from penstock.foundation.errors import PenstockError
from penstock.spark.pipelines.catalogue import check_clusters, load
from penstock.spark.pipelines.document import PipelineInvalid
from penstock.spark.pipelines.lake_formats import find_lake
from penstock.spark.pipelines.pipeline import Report, Run
from penstock.spark.pipelines.query_progress import Batch
from penstock.spark.pipelines.runner import run_in
from penstock.spark.sessions import QUERY_LOGGERS, redirect_query_errors
from tests.brokers import BrokerProcess
from tests.clients.drivers import NOW_MS, Outgoing
from tests.registry.rest_client import record

from .lab import Lab
from .typed_lab import TypedLab

FORMATS = ["parquet", "delta"]


class Pipelines:
    """Pipelines run in the shared Spark, with a folder of their own."""

    def __init__(self, spark: SparkSession, bootstrap: str, folder: Path) -> None:
        self.spark = spark
        self.bootstrap = bootstrap
        self.folder = folder

    def __call__(self, target: str, **options: object) -> Report:
        """Run one once; `__` in a name stands for a dot, and `checkpoint` is a folder of the test's own."""
        settings = [(name.replace("__", "."), str(value)) for name, value in options.items()]
        loaded = load(target, settings, self.bootstrap)
        check_clusters(loaded)
        return run_in(self.spark, loaded, once=True)


@pytest.fixture
def pipelines(
    spark: SparkSession, broker: BrokerProcess, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> Pipelines:
    monkeypatch.chdir(tmp_path)
    return Pipelines(spark, broker.kafka, tmp_path)


def orders(count: int, *, start: int = 0, partitions: int = 2, step_ms: int = 1000) -> list[Outgoing]:
    """Orders as JSON, of four customers, each customer in one partition."""
    return [
        Outgoing(
            key=b"c%d" % (number % 4),
            value=json.dumps({"id": number, "amount": number % 10, "at": NOW_MS + number * step_ms}).encode(),
            headers=(("n", b"%d" % number),),
            timestamp_ms=NOW_MS + number,
            partition=number % 4 % partitions,
        )
        for number in range(start, start + count)
    ]


def messages(lab: Lab, topic: str) -> dict[int, list[tuple[Any, Any, Any]]]:
    """What each partition of a topic holds: key, value and headers, in order."""
    found: dict[int, list[tuple[Any, Any, Any]]] = {}
    for row in lab.rows(topic, includeHeaders="true"):
        headers = [(header["key"], header["value"]) for header in row["headers"] or []]
        found.setdefault(row["partition"], []).append((row["key"], row["value"], headers))
    return found


# -- sql


def test_sql_over_a_topic_is_shown_on_the_screen(pipelines: Pipelines, lab: Lab, topic: str) -> None:
    lab.create(topic, 2)
    lab.fill(topic, orders(40))
    sql = "SELECT _key, count(*) AS orders, sum(amount) AS total FROM orders GROUP BY _key ORDER BY _key"
    report = pipelines("sql", sources__orders__topic=topic, sql=sql)
    (report_table,) = report.tables
    assert list(report_table.columns) == ["_key", "#orders", "#total"]
    assert [list(row) for row in report_table.rows] == [
        [f"c{key}", 10, sum(n % 10 for n in range(40) if n % 4 == key)] for key in range(4)
    ]


@pytest.mark.slow
def test_a_pattern_selects_the_topics_whose_name_contains_a_match(pipelines: Pipelines, lab: Lab, topic: str) -> None:
    lab.create(topic, 2)
    lab.fill(topic, orders(40))
    report = pipelines("sql", sources__orders__pattern=topic[1:], sql="SELECT sum(id) AS total FROM orders")
    assert [list(row) for row in report.tables[0].rows] == [[sum(range(40))]]
    with pytest.raises(PipelineInvalid, match=r"no topic on .* matches '__consumer'"):
        pipelines("sql", sources__orders__pattern="__consumer", sql="SELECT * FROM orders")


@pytest.mark.slow
def test_an_option_of_the_data_source_replaces_the_end_of_a_batch(pipelines: Pipelines, lab: Lab, topic: str) -> None:
    lab.create(topic, 2)
    lab.fill(topic, orders(40))
    file = pipelines.folder / "first.yaml"
    ending = json.dumps({topic: {"0": 5, "1": 0}})
    file.write_text(
        f"""\
sources:
  orders: {{topic: {topic}, schema: id BIGINT, options: {{endingOffsets: '{ending}'}}}}
sql: SELECT count(*) AS orders FROM orders
"""
    )
    assert [list(row) for row in pipelines(str(file)).tables[0].rows] == [[5]]


@pytest.mark.slow
def test_windows_go_into_a_topic_once_and_the_next_run_goes_on(pipelines: Pipelines, lab: Lab, topic: str) -> None:
    lab.create(topic, 2)
    lab.create(f"{topic}-out")
    file = pipelines.folder / "windows.yaml"
    file.write_text(
        f"""\
sources:
  orders:
    topic: {topic}
    schema: id BIGINT, amount BIGINT, at BIGINT
sql: |
  SELECT cast(window.start AS string) AS minute, count(*) AS orders
  FROM (SELECT *, timestamp_millis(at) AS time FROM orders) GROUP BY window(time, '1 minute')
sink: {{topic: {topic}-out, key: minute, mode: update}}
"""
    )
    lab.fill(topic, orders(120))
    first = pipelines(str(file))
    assert first.facts["rows"] == 120
    lab.fill(topic, orders(60, start=120))
    assert pipelines(str(file)).facts["rows"] == 60
    last: dict[bytes, int] = {}
    for rows in messages(lab, f"{topic}-out").values():
        last.update({key: json.loads(value)["orders"] for key, value, _ in rows})
    assert sum(last.values()) == 180


@pytest.mark.slow
def test_a_python_function_makes_the_result(pipelines: Pipelines, lab: Lab, topic: str) -> None:
    lab.create(topic)
    lab.create(f"{topic}-out")
    lab.fill(topic, orders(10, partitions=1))
    (pipelines.folder / "dear.py").write_text(
        "def dear(orders):\n    return orders.where('amount >= 5').select('id')\n"
    )
    report = pipelines(
        "sql", sources__orders__topic=topic, python="dear.py:dear", sink__topic=f"{topic}-out", name=topic
    )
    assert report.facts["rows"] == 10
    assert [json.loads(value)["id"] for _, value, _ in messages(lab, f"{topic}-out")[0]] == [5, 6, 7, 8, 9]


@pytest.mark.slow
@pytest.mark.parametrize("kind", FORMATS)
def test_sql_into_a_lake_brings_each_row_once(pipelines: Pipelines, lab: Lab, topic: str, kind: str) -> None:
    lab.create(topic, 2)
    lab.fill(topic, orders(20))
    options = {"sources__orders__topic": topic, "sink__path": "lake", "sink__format": kind, "name": topic}
    sql = "SELECT id, amount, _key AS customer FROM orders"
    pipelines("sql", **options, sql=sql, sink__partition_by="customer")
    lab.fill(topic, orders(20, start=20))
    pipelines("sql", **options, sql=sql, sink__partition_by="customer")
    rows = find_lake(pipelines.folder / "lake").read(pipelines.spark).collect()
    assert sorted((row["id"], row["customer"]) for row in rows) == [(n, f"c{n % 4}") for n in range(40)]


@pytest.mark.slow
def test_a_sql_error_is_one_sentence(pipelines: Pipelines, lab: Lab, topic: str) -> None:
    lab.create(topic)
    lab.fill(topic, orders(3, partitions=1))
    with pytest.raises(
        PenstockError, match=r"there is no column amont; similar names are .*amount.*; correct the SQL"
    ):
        pipelines("sql", sources__orders__topic=topic, sql="SELECT amont FROM orders")
    with pytest.raises(PenstockError, match="names a table order that is none of the sources"):
        pipelines("sql", sources__orders__topic=topic, sql="SELECT 1 FROM order")
    with pytest.raises(PenstockError, match="the SQL cannot be read: Syntax error at or near 'orders'; correct it"):
        pipelines("sql", sources__orders__topic=topic, sql="SELECT id FORM orders x y")


@pytest.mark.slow
def test_a_corrupt_value_is_named_and_can_be_dropped_or_kept(pipelines: Pipelines, lab: Lab, topic: str) -> None:
    lab.create(topic)
    lab.create(f"{topic}-out")
    lab.fill(topic, [*orders(2, partitions=1), Outgoing(value=b"no json"), Outgoing(value=None)])
    sources = {"sources__orders__topic": topic, "sources__orders__schema": "id BIGINT", "sink__topic": f"{topic}-out"}
    with pytest.raises(
        PenstockError, match=f"{topic}-0 offset 2 has a value that does not match the schema; set on_c"
    ):
        pipelines("sql", **sources, name=f"{topic}-fail")
    pipelines("sql", **sources, sources__orders__on_corrupt="drop", name=f"{topic}-drop", sql="SELECT id FROM orders")
    assert [json.loads(value) for _, value, _ in messages(lab, f"{topic}-out")[0]] == [{"id": 0}, {"id": 1}, {}]
    shown = pipelines(
        "sql",
        sources__orders__topic=topic,
        sources__orders__schema="id BIGINT",
        sources__orders__on_corrupt="keep",
        sql="SELECT _offset, _corrupt FROM orders WHERE _corrupt IS NOT NULL",
    )
    assert [list(row) for row in shown.tables[0].rows] == [[2, "no json"]]


@pytest.mark.slow
def test_avro_values_are_columns_and_are_written_with_a_schema(pipelines: Pipelines, typed: TypedLab) -> None:
    good = typed.encode_avro([{"id": 1, "item": "tea"}, {"id": 2, "item": "rum"}], record("id:long", "item:string"))
    typed.produce(*good, b"no schema id")
    into = typed.other("out")
    sources = {"sources__orders__topic": typed.topic, "sources__orders__value": "avro"}
    report = pipelines(
        "sql",
        **sources,
        sources__orders__on_corrupt="drop",
        sql="SELECT upper(item) AS item, id FROM orders",
        sink__topic=into.topic,
        sink__key="item",
        sink__value="json-schema",
        registry=typed.url,
        name=typed.topic,
    )
    assert report.facts["rows"] == 3
    written = into.rows(valueFormat="json-schema")
    assert [(row["key"], row["value"]) for row in written] == [(b"TEA", {"id": 1}), (b"RUM", {"id": 2})]
    shown = pipelines(
        "sql", **sources, sources__orders__on_corrupt="keep", sql="SELECT id, _offset, _corrupt.reason FROM orders"
    )
    first, _, last = (list(row) for row in shown.tables[0].rows)
    assert first == [1, 0, None]
    assert last[:2] == [None, 2]
    assert "so it has no schema id" in last[2]
    with pytest.raises(PenstockError, match=rf"offset 2 of partition {typed.topic}-0 cannot be read: its value"):
        pipelines("sql", **sources, sql="SELECT id FROM orders")


@pytest.mark.slow
def test_a_checkpoint_of_another_pipeline_is_refused(pipelines: Pipelines, lab: Lab, topic: str) -> None:
    for name in (topic, f"{topic}-b"):
        lab.create(name)
        lab.fill(name, orders(3, partitions=1))
    pipelines("archive", topics=topic, path="lake", checkpoint="shared", name="one")
    with pytest.raises(PenstockError, match=r"the checkpoint .*shared belongs to pipeline 'one', not 'two'"):
        pipelines("archive", topics=f"{topic}-b", path="other", checkpoint="shared", name="two")
    with pytest.raises(PenstockError, match=r"the checkpoint .*shared belongs to topics"):
        pipelines("archive", topics=f"{topic}-b", path="other", checkpoint="shared", name="one")


@pytest.mark.slow
def test_missing_topics_are_found_before_spark_starts(pipelines: Pipelines, lab: Lab, topic: str) -> None:
    lab.create(f"{topic}s")
    with pytest.raises(PipelineInvalid, match=f"there is no topic '{topic}' on .*did you mean '{topic}s'"):
        pipelines("archive", topics=topic, path="lake")
    with pytest.raises(PipelineInvalid, match="no broker answers"):
        pipelines("archive", topics=topic, path="lake", bootstrap="127.0.0.1:1")


# -- archive


def archived(pipelines: Pipelines, path: str = "lake") -> list[tuple[int, int]]:
    rows = find_lake(pipelines.folder / path).read(pipelines.spark).select("partition", "offset").collect()
    return sorted((row["partition"], row["offset"]) for row in rows)


@pytest.mark.parametrize("kind", [pytest.param("parquet", marks=pytest.mark.slow), "delta"])
def test_an_archive_has_every_message_once_even_without_its_checkpoint(
    pipelines: Pipelines, lab: Lab, topic: str, kind: str
) -> None:
    lab.create(topic, 2)
    lab.fill(topic, orders(40))
    first = pipelines("archive", topics=topic, path="lake", format=kind, schema="infer")
    assert first.facts["rows"] == 40
    assert first.tables[0].rows == [(topic, 0, 20), (topic, 1, 20)]
    lab.fill(topic, orders(20, start=40))
    again = pipelines(
        "archive", topics=topic, path="lake", format=kind, schema="infer", checkpoint="lost-and-made-anew"
    )
    assert again.facts["rows"] == 20
    wanted = [(partition, offset) for partition in range(2) for offset in range(30)]
    assert archived(pipelines) == wanted
    assert pipelines("archive", topics=topic, path="lake", format=kind, schema="infer").facts["rows"] == 0
    table = find_lake(pipelines.folder / "lake").read(pipelines.spark)
    row = table.where("partition = 1 AND offset = 0").collect()[0]
    assert (bytes(row["key"]), row["value_id"], row["value_amount"]) == (b"c1", 1, 1)
    assert [(header["key"], bytes(header["value"])) for header in row["headers"]] == [("n", b"1")]
    assert row["timestamp"].replace(tzinfo=UTC) == datetime.fromtimestamp((NOW_MS + 1) / 1000, UTC)
    assert pipelines("audit", expected__topic=topic, actual__path="lake").is_ok


@pytest.mark.slow
def test_a_batch_that_comes_again_after_its_commit_brings_nothing(
    pipelines: Pipelines, lab: Lab, topic: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    lab.create(topic, 2)
    lab.fill(topic, orders(30))
    pipelines("archive", topics=topic, path="lake")
    commits = sorted((pipelines.folder / "lake/_penstock/checkpoint/commits").glob("[0-9]*"))
    assert commits
    for commit in commits:  # as if the driver had died between the lake's commit and Spark's
        commit.unlink()
        commit.with_name(f".{commit.name}.crc").unlink(missing_ok=True)
    pipelines("archive", topics=topic, path="lake")
    assert archived(pipelines) == [(partition, offset) for partition in range(2) for offset in range(15)]


@pytest.mark.slow
def test_topics_are_trimmed_behind_the_archive(pipelines: Pipelines, lab: Lab, topic: str) -> None:
    lab.create(topic, 2)
    lab.fill(topic, orders(20))
    pipelines("archive", topics=topic, path="lake", trim_archived="true")
    assert [lab.client.range(topic, partition) for partition in range(2)] == [(10, 10), (10, 10)]
    lab.fill(topic, orders(10, start=20))
    pipelines("archive", topics=topic, path="lake")
    assert len(archived(pipelines)) == 30
    assert pipelines("audit", expected__topic=topic, actual__path="lake").is_ok


@pytest.mark.slow
def test_new_fields_become_new_columns_and_a_corrupt_value_is_kept(
    pipelines: Pipelines, lab: Lab, topic: str
) -> None:
    lab.create(topic)
    lab.fill(topic, orders(3, partitions=1))
    pipelines("archive", topics=topic, path="lake", schema="id BIGINT")
    lab.fill(topic, [Outgoing(value=b'{"id": 7, "city": "Bonn"}'), Outgoing(value=b"no json")])
    pipelines("archive", topics=topic, path="lake", schema="id BIGINT, city STRING")
    rows = find_lake(pipelines.folder / "lake").read(pipelines.spark).orderBy("offset").collect()
    assert [(row["value_id"], row["value_city"]) for row in rows] == [
        *((number, None) for number in range(3)),
        (7, "Bonn"),
        (None, None),
    ]
    assert bytes(rows[-1]["value"]) == b"no json"
    with pytest.raises(PenstockError, match=r"column 'value_id' is long in .*, but string now"):
        pipelines("archive", topics=topic, path="lake", schema="id STRING")


@pytest.mark.slow
def test_small_files_of_an_archive_become_few(pipelines: Pipelines, lab: Lab, topic: str) -> None:
    lab.create(topic)
    lab.fill(topic, orders(40, partitions=1))
    report = pipelines("archive", topics=topic, path="lake", max_rows=10)
    assert report.facts["batches"] == 4
    assert report.facts["compacted"] == 3
    assert len(list((pipelines.folder / "lake").glob("topic=*/date=*/*.parquet"))) <= 2  # midnight may lie between
    assert len(archived(pipelines)) == 40


# -- replay


@pytest.mark.slow
def test_a_replay_keeps_keys_headers_partitions_and_order(pipelines: Pipelines, lab: Lab, topic: str) -> None:
    lab.create(topic, 2)
    lab.create(f"{topic}-again", 2)
    lab.fill(topic, orders(50))
    pipelines("archive", topics=topic, path="lake", max_rows=20)
    report = pipelines("replay", path="lake", to=f"{topic}-again")
    assert report.facts["messages"] == 50
    assert messages(lab, f"{topic}-again") == messages(lab, topic)
    assert pipelines("audit", expected__topic=topic, actual__topic=f"{topic}-again").is_ok


@pytest.mark.slow
def test_a_replay_chooses_by_time_key_and_filter(pipelines: Pipelines, lab: Lab, topic: str) -> None:
    lab.create(topic, 2)
    lab.create(f"{topic}-again")
    lab.fill(topic, orders(40))
    pipelines("archive", topics=topic, path="lake", schema="id BIGINT")
    pipelines(
        "replay",
        path="lake",
        to=f"{topic}-again",
        since=f"@{NOW_MS + 10}",
        until=f"@{NOW_MS + 30}",
        keys="c1,c2",
        where="value_id % 2 = 1",
        partitions="by-key",
    )
    (rows,) = messages(lab, f"{topic}-again").values()
    assert [json.loads(value)["id"] for _, value, _ in rows] == [13, 17, 21, 25, 29]


@pytest.mark.slow
def test_a_replay_at_a_rate_takes_its_time_in_slices(pipelines: Pipelines, lab: Lab, topic: str) -> None:
    lab.create(topic, 2)
    lab.create(f"{topic}-again", 2)
    lab.fill(topic, [*orders(3000)])
    pipelines("archive", topics=topic, path="lake")
    report = pipelines("replay", path="lake", to=f"{topic}-again", rate=500)
    assert messages(lab, f"{topic}-again") == messages(lab, topic)
    assert float(str(report.facts["seconds"])) >= 2  # 3000 in slices of at least 1000; the last needs no waiting


@pytest.mark.slow
def test_a_replay_of_nothing_or_into_too_few_partitions_fails(pipelines: Pipelines, lab: Lab, topic: str) -> None:
    lab.create(topic, 2)
    lab.create(f"{topic}-again")
    lab.fill(topic, orders(10))
    pipelines("archive", topics=topic, path="lake")
    with pytest.raises(
        PenstockError, match=r"has messages of partition 1, but .* has only 1 partitions; give it 2, or"
    ):
        pipelines("replay", path="lake", to=f"{topic}-again")
    with pytest.raises(PenstockError, match="has no matching messages"):
        pipelines("replay", path="lake", to=f"{topic}-again", keys="missing")
    with pytest.raises(PenstockError, match="there is no table in"):
        pipelines("replay", path="elsewhere", to=f"{topic}-again")


# -- audit


def fill_both(lab: Lab, topic: str, changed: Callable[[list[Outgoing]], Sequence[Outgoing]]) -> None:
    lab.create(topic, 2)
    lab.create(f"{topic}-b", 2)
    lab.fill(topic, orders(60))
    lab.fill(f"{topic}-b", list(changed(orders(60))))


@pytest.mark.slow
def test_an_audit_passes_what_is_alike(pipelines: Pipelines, lab: Lab, topic: str) -> None:
    fill_both(lab, topic, lambda sent: sent)
    report = pipelines("audit", expected__topic=topic, actual__topic=f"{topic}-b")
    assert report.is_ok
    assert report.verdict.startswith(f"PASS: topic {topic}-b matches topic {topic}; 60 messages")
    assert [row[3:] for row in report.tables[0].rows] == [("yes", "yes"), ("yes", "yes")]


def test_an_audit_finds_each_kind_of_fault(pipelines: Pipelines, lab: Lab, topic: str) -> None:
    """One run for all of them; see below for each alone."""

    def spoiled(sent: list[Outgoing]) -> list[Outgoing]:
        exchanged = [*sent[:4], sent[8], *sent[5:8], sent[4], *sent[9:]]
        lost = [*exchanged[:21], *exchanged[22:]]
        return [*lost, sent[5], Outgoing(value=b"who?")]

    fill_both(lab, topic, spoiled)
    report = pipelines("audit", expected__topic=topic, actual__topic=f"{topic}-b")
    assert not report.is_ok
    assert report.verdict.startswith("FAIL")
    found = {name: report.facts[name] for name in ("missing", "doubled", "unknown", "out_of_order")}
    assert found == dict.fromkeys(found, 1)
    offenders = {tuple(row[:3]) for row in report.tables[-1].rows}
    assert {("missing", f"{topic}-1", 10), ("unknown", f"{topic}-b-0", 30)} < offenders
    assert {what for what, _, _ in offenders} == {"missing", "doubled", "unknown", "out of order"}


@pytest.mark.slow
@pytest.mark.parametrize(
    ("change", "fact", "example"),
    [
        (lambda sent: sent[:7] + sent[8:], "missing", ("missing", "{0}-1", 3)),
        (lambda sent: [*sent, sent[5]], "doubled", ("doubled", "{0}-1", 2)),
        (lambda sent: [*sent, Outgoing(value=b"who?")], "unknown", ("unknown", "{0}-b-0", 30)),
        (
            lambda sent: [*sent[:4], sent[8], *sent[5:8], sent[4], *sent[9:]],
            "out_of_order",
            ("out of order", "{0}-b-0", 4),
        ),
    ],
    ids=["lost", "doubled", "from elsewhere", "two of one key exchanged"],
)
def test_an_audit_finds_what_is_not(
    pipelines: Pipelines,
    lab: Lab,
    topic: str,
    change: Callable[[list[Outgoing]], list[Outgoing]],
    fact: str,
    example: tuple[str, str, int],
) -> None:
    fill_both(lab, topic, change)
    report = pipelines("audit", expected__topic=topic, actual__topic=f"{topic}-b")
    assert not report.is_ok
    assert report.verdict.startswith("FAIL")
    found = {name: report.facts[name] for name in ("missing", "doubled", "unknown", "out_of_order")}
    assert found == {**dict.fromkeys(found, 0), fact: 1}
    what, where, offset = example
    wanted = (what, where.format(topic), offset) if fact != "doubled" else None
    offender = tuple(report.tables[-1].rows[0][:3])
    assert offender[0] == what
    assert wanted is None or offender == wanted


@pytest.mark.slow
@pytest.mark.parametrize(
    ("change", "out_of_order"),
    [
        (lambda sent: [*sent[:4], *sent[5:], sent[8], Outgoing(value=b"who?")], 0),
        (lambda sent: [*sent[:4], sent[8], *sent[5:8], sent[4], *sent[9:], sent[8]], 1),
    ],
    ids=["the first of what is doubled in its place", "the first of what is doubled too early"],
)
def test_an_audit_of_what_is_not_alike_looks_at_the_order_of_the_rest(
    pipelines: Pipelines,
    lab: Lab,
    topic: str,
    change: Callable[[list[Outgoing]], list[Outgoing]],
    out_of_order: int,
) -> None:
    fill_both(lab, topic, change)
    report = pipelines("audit", expected__topic=topic, actual__topic=f"{topic}-b")
    assert (report.facts["doubled"], report.facts["out_of_order"]) == (1, out_of_order)


@pytest.mark.slow
def test_an_audit_by_id_allows_other_partitions_but_no_other_order(
    pipelines: Pipelines, lab: Lab, topic: str
) -> None:
    lab.create(topic, 2)
    lab.create(f"{topic}-b", 1)
    lab.fill(topic, orders(40))
    lab.fill(f"{topic}-b", orders(40, partitions=1))
    known = "get_json_object(cast(value AS string), '$.id')"
    assert pipelines("audit", expected__topic=topic, actual__topic=f"{topic}-b", id=known).is_ok


@pytest.mark.slow
def test_an_audit_of_numbers_finds_gaps_doubles_and_disorder(pipelines: Pipelines, lab: Lab, topic: str) -> None:
    lab.create(topic)
    numbers = [0, 1, 2, 4, 5, 5, 7, 6]
    sent = [
        Outgoing(value=json.dumps({"who": who, "n": n}).encode())
        for who in ("a", "b")
        for n in (numbers if who == "a" else range(5))
    ]
    lab.fill(topic, sent)
    field = "get_json_object(cast(value AS string), '$.{}')"
    report = pipelines("audit", actual__topic=topic, producer=field.format("who"), sequence=field.format("n"))
    facts = {
        name: report.facts[name] for name in ("gaps", "missing_numbers", "doubled_numbers", "numbers_out_of_order")
    }
    assert facts == {"gaps": 1, "missing_numbers": 1, "doubled_numbers": 1, "numbers_out_of_order": 1}
    assert [tuple(row[:3]) for row in report.tables[-1].rows] == [
        ("gap", f"{topic}-0", 3),
        ("doubled", f"{topic}-0", 5),
        ("out of order", f"{topic}-0", 7),
    ]
    assert not report.is_ok


@pytest.mark.slow
def test_an_audit_of_numbers_compares_the_order_within_each_topic(pipelines: Pipelines, lab: Lab, topic: str) -> None:
    other = f"{topic}-b"
    for name, numbers in ((topic, range(10, 20)), (other, range(10))):
        lab.create(name)
        lab.fill(name, [Outgoing(value=b'{"n": %d}' % number) for number in numbers])
    pipelines("archive", topics=f"{topic},{other}", path="lake")
    number = "get_json_object(cast(value AS string), '$.n')"
    report = pipelines("audit", actual__path="lake", producer="'one'", sequence=number)
    assert (report.is_ok, report.facts["numbers_out_of_order"]) == (True, 0)


@pytest.mark.slow
def test_an_audit_finds_what_an_archive_lacks(pipelines: Pipelines, lab: Lab, topic: str) -> None:
    lab.create(topic, 2)
    lab.fill(topic, orders(20))
    pipelines("archive", topics=topic, path="lake")
    lab.fill(topic, orders(2, start=20))
    report = pipelines("audit", expected__topic=topic, actual__path="lake")
    assert (report.is_ok, report.facts["missing"]) == (False, 2)
    assert [tuple(row[:3]) for row in report.tables[-1].rows] == [
        ("missing", f"{topic}-0", 10),
        ("missing", f"{topic}-1", 10),
    ]


# -- insights


@pytest.mark.slow
def test_insights_are_tables_and_a_page(pipelines: Pipelines, lab: Lab, topic: str) -> None:
    lab.create(topic, 2)
    lab.fill(topic, [*orders(100), *(Outgoing(key=b"hot", value=b'{"at": 1}') for _ in range(50))])
    lab.client.admin.list_topics(timeout=60)
    sent = "timestamp - INTERVAL 20 MILLISECONDS"
    with pytest.raises(PipelineInvalid, match="there is no consumer group 'missing'"):
        pipelines("insights", topics=topic, groups="missing")
    group = f"{topic}-group"
    consumer = Consumer({"bootstrap.servers": pipelines.bootstrap, "group.id": group})
    consumer.commit(offsets=[TopicPartition(topic, number, 0) for number in range(2)], asynchronous=False)
    consumer.close()
    report = pipelines("insights", topics=topic, page="page.html", sent=sent, groups=group)
    tables = {report_table.title: report_table for report_table in report.tables}
    assert sum(int(str(row[2])) for row in tables["partitions"].rows) == 150
    assert tuple(tables["hot keys"].rows[0]) == (topic, "hot", 50, "33.3%")
    assert tuple(tables["latency ms"].rows[0]) == (topic, 20.0, 20.0, 20.0, 20.0)
    assert tables["groups"].rows == [(group, 150, 150)]
    text = (pipelines.folder / "page.html").read_text()
    assert text.count("<svg") >= 3
    assert "hot" in text
    assert "<script" not in text


@pytest.mark.slow
def test_insights_report_an_empty_topic(pipelines: Pipelines, lab: Lab, topic: str) -> None:
    lab.create(topic)
    with pytest.raises(PenstockError, match="there are no matching messages"):
        pipelines("insights", topics=topic)


# -- mirror


@pytest.mark.slow
def test_a_mirror_has_the_same_messages_in_the_same_places(
    pipelines: Pipelines, lab: Lab, topic: str, own_broker: Callable[..., BrokerProcess]
) -> None:
    other = own_broker()
    lab.create(topic, 2, retention_ms="7200000")
    lab.fill(topic, orders(40))
    first = pipelines("mirror", topics=topic, to=other.kafka, prefix="copy.", name=topic)
    assert first.facts["rows"] == 40
    lab.fill(topic, orders(20, start=40))
    pipelines("mirror", topics=topic, to=other.kafka, prefix="copy.", name=topic)
    there = Lab(other.kafka)
    assert messages(there, f"copy.{topic}") == messages(lab, topic)
    assert there.client.config(f"copy.{topic}", "retention.ms")[0] == "7200000"
    report = pipelines("audit", expected__topic=topic, actual__topic=f"copy.{topic}", actual__bootstrap=other.kafka)
    assert report.is_ok


@pytest.mark.slow
def test_a_mirror_of_itself_is_refused() -> None:
    with pytest.raises(PipelineInvalid, match="would be their own mirrors"):
        load("mirror", [("topics", "a"), ("to", "127.0.0.1:9092")])


# -- running on


@pytest.mark.slow
def test_a_pipeline_that_goes_on_takes_what_comes_until_it_is_stopped(
    pipelines: Pipelines, lab: Lab, topic: str
) -> None:
    lab.create(topic, 2)
    lab.fill(topic, orders(10))
    rows = []
    stopping = threading.Event()

    def on_batch(batch: Batch) -> None:
        rows.append(batch.rows)
        if sum(rows) == 10 and batch.rows:
            lab.fill(topic, orders(5, start=10))
        if sum(rows) == 15:
            stopping.set()

    loaded = load("archive", [("topics", topic), ("path", "lake"), ("trigger", "100 ms")], pipelines.bootstrap)
    run = Run(
        spark=pipelines.spark,
        once=False,
        on_batch=on_batch,
        on_step=lambda step: None,
        base=loaded.base,
        stopping=stopping,
    )
    report = loaded.pipeline.run(loaded.options, run)
    assert report.facts["rows"] == 15
    assert len(archived(pipelines)) == 15
    assert not pipelines.spark.streams.active


def test_the_details_of_a_query_that_fails_are_in_the_log_and_not_on_the_screen(
    spark: SparkSession, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capfd: pytest.CaptureFixture[str]
) -> None:
    loggers = [PySparkLogger.getLogger(name) for name in QUERY_LOGGERS]
    for logger in loggers:
        monkeypatch.setattr(logger, "handlers", [*logger.handlers])
    log = tmp_path / "spark.log"
    redirect_query_errors(log)
    with pytest.raises(PySparkException, match="CAST_INVALID_INPUT"):
        spark.sql("SELECT cast(value AS bigint) FROM VALUES ('seven') AS numbers(value)").collect()
    assert "CAST_INVALID_INPUT" in log.read_text()
    assert "CAST_INVALID_INPUT" not in capfd.readouterr().err
    for logger in loggers:
        for handler in logger.handlers:
            handler.close()
