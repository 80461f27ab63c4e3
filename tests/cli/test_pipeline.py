"""`penstock pipeline`, as people and scripts use it."""

import asyncio
import json
import re
import signal
import subprocess
import sys
from pathlib import Path

import pytest

from penstock.cli.pipeline.screen import LineDisplay
from penstock.client.cluster import KafkaClient
from penstock.client.commit_set import Outcome, commit_set

from .cli_runner import Cli, Direct, ServeProcess, table

SPARK_S = 110
"""Spark takes its time to start on a machine that has other things to do."""


@pytest.fixture
def orders(direct: Direct, fresh: str) -> str:
    """A topic of two partitions with thirty orders in it."""
    topic = direct.create(fresh, partitions=2)
    for partition in range(2):
        values = [json.dumps({"id": number, "amount": number}).encode() for number in range(partition, 30, 2)]
        direct.publish(topic, *values, partition=partition)
    return topic


def test_the_list_has_every_pipeline(cli: Cli) -> None:
    rows = table(cli.ok("pipeline", "list"))
    assert [row[0] for row in rows] == [
        "PIPELINE",
        "sql",
        "archive",
        "replay",
        "audit",
        "insights",
        "mirror",
        "redrive",
    ]
    assert [each["pipeline"] for each in cli.json("pipeline", "list")] == [row[0] for row in rows[1:]]


@pytest.mark.parametrize(
    ("arguments", "shown"),
    [(["list"], "redrive"), (["describe", "archive"], "file_size"), (["describe", "insights"], "watch")],
)
def test_pipelines_are_shown_without_spark_and_arrow(arguments: list[str], shown: str) -> None:
    code = (
        "import sys\n"
        "for name in ('pyspark', 'pyarrow', 'pandas', 'deltalake'): sys.modules[name] = None\n"
        "from penstock.cli.main import main\n"
        "sys.argv = ['penstock', 'pipeline', *sys.argv[1:]]\n"
        "main()"
    )
    done = subprocess.run([sys.executable, "-c", code, *arguments], check=False, capture_output=True, text=True)
    assert done.returncode == 0, done.stderr
    assert shown in done.stdout


def test_a_pipeline_is_described_with_all_of_its_options(cli: Cli) -> None:
    said = cli.ok("pipeline", "describe", "sql")
    for option in (
        "sources.NAME.topic",
        "sources.NAME.watermark.delay",
        "sink.partition_by",
        "checkpoint",
        "delivery",
    ):
        assert option in said
    (found,) = cli.json("pipeline", "describe", "archive")
    options = {option["option"]: option for option in found["options"]}
    assert options["topics"]["default"] == "(required)"
    assert options["format"] == {
        "option": "format",
        "value": "delta|parquet",
        "default": "parquet",
        "about": "The format of the archive",
    }
    assert "did you mean 'audit'" in cli.refused("pipeline", "describe", "audits", code=1)


def test_a_query_is_forgotten_and_may_begin_anew(cli: Cli, broker: ServeProcess) -> None:
    async def decided(batch_id: int) -> Outcome:
        async with KafkaClient(broker.bootstrap) as client:
            return await commit_set(client, query="forgotten", batch_id=batch_id, participants=[])

    assert asyncio.run(decided(5)) is Outcome.COMMITTED
    assert asyncio.run(decided(4)) is Outcome.DECIDED_BEFORE
    assert "query forgotten is forgotten" in cli.ok("pipeline", "forget", "forgotten", "--yes")
    assert asyncio.run(decided(4)) is Outcome.COMMITTED


def test_a_good_file_is_well(cli: Cli, orders: str, tmp_path: Path) -> None:
    file = tmp_path / "shop.yaml"
    file.write_text(f"pipeline: archive\ntopics: {orders}\npath: lake\n")
    assert "shop.yaml is valid: pipeline archive, name shop" in cli.ok("pipeline", "validate", str(file))
    assert cli.json("pipeline", "validate", str(file)) == [{"ok": True, "name": "shop", "pipeline": "archive"}]


def test_every_mistake_has_a_line_of_its_own(cli: Cli, tmp_path: Path) -> None:
    file = tmp_path / "shop.yaml"
    file.write_text("pipeline: archive\ntopics: nowhere\npath: lake\nformat: csv\nfiles: 3\n")
    done = cli("pipeline", "validate", str(file))
    assert done.returncode == 2
    assert done.stderr.decode().splitlines() == [
        f"Error: {file}:4:9: format: 'csv' is not known; possible are delta, parquet",
        f"Error: {file}:5:1: there is no 'files'; did you mean 'file_size'? possible are bootstrap, checkpoint, "
        "delivery, file_size, format, group, max_rows, name, path, remote, schema, spark, topics, trigger, "
        "trim_archived",
    ]
    done = cli("pipeline", "validate", str(file), "--json", "-o", "format=delta")
    (found,) = [json.loads(line) for line in done.stdout.splitlines()]
    assert (done.returncode, found["ok"], found["line"], found["column"]) == (2, False, 5, 1)


def test_validate_checks_topics_and_brokers_unless_offline(cli: Cli, orders: str) -> None:
    missing = cli("pipeline", "validate", "archive", "-o", f"topics={orders}x", "-o", "path=lake")
    assert missing.returncode == 2
    assert f"there is no topic '{orders}x'" in missing.stderr.decode()
    assert f"did you mean '{orders}'?" in missing.stderr.decode()
    silent = cli("pipeline", "run", "archive", "-o", "topics=a", "-o", "path=b", "--bootstrap", "127.0.0.1:1")
    assert (silent.returncode, b"no broker answers" in silent.stderr) == (2, True)
    cli.ok("pipeline", "validate", "archive", "-o", "topics=a", "-o", "path=b", "--offline")


def test_sql_is_checked_against_the_schemas_without_spark(cli: Cli, orders: str, tmp_path: Path) -> None:
    file = tmp_path / "totals.yaml"
    text = "sources: {{orders: {{topic: {orders}, schema: 'item STRING, total DECIMAL(10, 2)'}}}}\nsql: {sql}\n"
    for sql, said in (
        ("SELECT itm FROM orders", "the SQL names a column 'itm' that no source has; did you mean 'item'?"),
        (
            "SELECT item FROM order",
            "the SQL names a table 'order' that is none of the sources; did you mean 'orders'?",
        ),
    ):
        file.write_text(text.format(orders=orders, sql=sql))
        done = cli("pipeline", "validate", str(file))
        assert (done.returncode, said in done.stderr.decode()) == (2, True), done
        assert f"{file}:2:" in done.stderr.decode()
    file.write_text(text.format(orders=orders, sql="SELECT item, FROM orders WHERE"))
    done = cli("pipeline", "validate", str(file))
    assert (done.returncode, b"cannot be parsed here" in done.stderr) == (0, True), done
    file.write_text(text.format(orders=orders, sql="SELECT item, sum(total) FROM orders GROUP BY item"))
    cli.ok("pipeline", "validate", str(file))


def test_insights_refuses_a_group_that_is_not_there(cli: Cli, orders: str) -> None:
    done = cli("pipeline", "validate", "insights", "-o", f"topics={orders}", "-o", "groups=biling")
    assert done.returncode == 2
    assert b"there is no consumer group 'biling'" in done.stderr


def test_a_pipeline_with_an_end_cannot_run_continuously(cli: Cli) -> None:
    said = cli.refused("pipeline", "run", "insights", "-o", "topics=a", "--continuous", code=2)
    assert "insights is a batch pipeline and cannot be run with --continuous" in said


def test_each_step_is_a_line_with_the_time_since_the_start(capsys: pytest.CaptureFixture[str]) -> None:
    display = LineDisplay(as_json=False)
    display.step("starting Spark on local[2]")
    display.step("starting the query and its sources")
    lines = capsys.readouterr().err.splitlines()
    assert [re.sub(r"^ +\d+\.\d s  ", "", line) for line in lines] == [
        "starting Spark on local[2] …",
        "starting the query and its sources …",
    ]
    LineDisplay(as_json=True).step("starting Spark on local[2]")
    assert capsys.readouterr().err == ""


@pytest.mark.slow  # a Spark of its own
@pytest.mark.timeout(300)
def test_on_a_terminal_batches_are_a_live_table_and_a_report_is_left(cli: Cli, orders: str, tmp_path: Path) -> None:
    lake = f"path={tmp_path}/lake"
    command = ("pipeline", "run", "archive", "-o", f"topics={orders}", "-o", lake, "--once", "--master", "local[2]")
    code, screen = cli.on_terminal(*command)
    assert code == 0, screen
    assert "starting Spark on local[2]" in screen
    live, _, report = re.sub(r"\x1b\[[0-9;?]*[A-Za-z]", "", screen).partition("\narchived")
    assert all(column in live for column in ("BATCH", "ROWS", "ROWS/S", "LAG", "LATENESS"))
    assert [row[:3] for row in table(report)[:3]] == [
        ["TOPIC", "PARTITION", "UP TO OFFSET"],
        [orders, "0", "15"],
        [orders, "1", "15"],
    ]
    assert f"30 messages were added to {tmp_path}/lake" in report
    assert "WARN" not in screen


@pytest.mark.slow  # a Spark of its own
@pytest.mark.timeout(300)
def test_a_pipeline_that_fails_says_why_on_one_line(cli: Cli, orders: str) -> None:
    sql = ("-o", f"sources.orders.topic={orders}", "-o", "sql=SELECT amont FROM orders")
    process = cli.start("pipeline", "run", "sql", *sql)
    out, err = process.communicate(timeout=SPARK_S)
    assert (process.returncode, out) == (1, b"")
    last = err.decode().splitlines()[-1]
    assert last.startswith("Error: there is no column amont; similar names are amount, ")
    assert b"Traceback" not in err
    log = Path(last.rpartition("; ")[2].removesuffix(" has the details"))
    assert log.is_file()


@pytest.mark.slow  # a Spark of its own
@pytest.mark.timeout(300)
def test_ctrl_c_ends_a_pipeline_that_goes_on_with_its_report(cli: Cli, orders: str, tmp_path: Path) -> None:
    command = ["archive", "-o", f"topics={orders}", "-o", f"path={tmp_path}/lake", "--continuous", "--json"]
    process = cli.start("pipeline", "run", *command)
    assert process.stdout is not None
    first = json.loads(process.stdout.readline())
    assert (first["event"], first["rows"], first["lag"]) == ("batch", 30, 0)
    process.send_signal(signal.SIGINT)
    out, err = process.communicate(timeout=SPARK_S)
    report = json.loads(out.splitlines()[-1])
    assert (process.returncode, err, report["event"], report["rows"]) == (0, b"", "report", 30)
