"""Errors in pipeline files are found before Spark starts, with their line."""

from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from penstock.spark.pipelines.audit import AuditOptions
from penstock.spark.pipelines.catalogue import NAMES, NoSuchPipeline, find, load
from penstock.spark.pipelines.document import PipelineInvalid, Table, read_text, with_option
from penstock.spark.pipelines.options import columns_of, options_of
from penstock.spark.pipelines.sql import SqlOptions

GOOD = """\
name: totals
bootstrap: 127.0.0.1:9092
sources:
  orders:
    topic: orders
    schema: id BIGINT, amount DOUBLE, at TIMESTAMP
    watermark: {column: at, delay: 10 seconds}
sql: |
  SELECT window.start AS minute, sum(amount) AS total
  FROM orders GROUP BY window(at, '1 minute')
sink:
  topic: totals
  key: minute
trigger: 500 ms
delivery: at-least-once
spark: {spark.driver.memory: 1g}
"""


@pytest.fixture
def file(tmp_path: Path) -> Path:
    return tmp_path / "totals.yaml"


def problems_of(file: Path, text: str, *settings: tuple[str, str]) -> list[str]:
    """What is said about a file, without the name of its folder."""
    file.write_text(text)
    with pytest.raises(PipelineInvalid) as caught:
        load(str(file), settings)
    return [str(problem).removeprefix(f"{file.parent}/") for problem in caught.value.problems]


def test_a_file_becomes_the_options_of_its_pipeline(file: Path) -> None:
    file.write_text(GOOD)
    loaded = load(str(file))
    options = loaded.options
    assert isinstance(options, SqlOptions)
    assert (loaded.pipeline.name, options.name, options.trigger) == ("sql", "totals", 0.5)
    assert options.sources["orders"].topic == ("orders",)
    watermark = options.sources["orders"].watermark
    assert watermark is not None
    assert (watermark.column, watermark.delay) == ("at", 10.0)
    assert options.sink is not None
    assert (options.sink.topic, options.sink.key, options.delivery) == ("totals", "minute", "at-least-once")
    assert options.spark == {"spark.driver.memory": "1g"}


def test_options_of_the_command_reach_into_the_file(file: Path) -> None:
    file.write_text(GOOD)
    loaded = load(str(file), [("sink.topic", "other"), ("sources.orders.topic", "[a, b]"), ("trigger", "2 min")])
    options = loaded.options
    assert isinstance(options, SqlOptions)
    assert options.sink is not None
    assert (options.sink.topic, options.sink.key, options.trigger) == ("other", "minute", 120.0)
    assert options.sources["orders"].topic == ("a", "b")


def test_a_ready_pipeline_is_made_of_options_alone() -> None:
    settings = [("expected.topic", "orders"), ("actual.path", "lake/orders"), ("examples", "5")]
    options = load("audit", settings, "broker:9092").options
    assert isinstance(options, AuditOptions)
    assert options.expected is not None
    assert (options.expected.topic, options.actual.path, options.examples) == ("orders", "lake/orders", 5)
    assert (str(options.bootstrap), options.name) == ("broker:9092", "audit")


def test_a_file_that_names_brokers_keeps_them(file: Path) -> None:
    file.write_text(GOOD)
    assert str(load(str(file), bootstrap="elsewhere:1").options.bootstrap) == "127.0.0.1:9092"


def test_brokers_have_properties_of_kafkas_clients(file: Path, tmp_path: Path) -> None:
    """Those of a file are references, so that Spark shows no secrets."""
    properties = tmp_path / "client.properties"
    properties.write_text(
        "security.protocol=SASL_PLAINTEXT\nsasl.mechanism=PLAIN\nsasl.username=a\nsasl.password=secret\nclient.id=x\n"
    )
    brokers = f"bootstrap: {{servers: 'a:1,b:2', client: {properties}, sasl.username: orders}}"
    file.write_text(GOOD.replace("bootstrap: 127.0.0.1:9092", brokers))
    found = load(str(file)).options.bootstrap
    assert found.options == {
        "kafka.bootstrap.servers": "a:1,b:2",
        "kafka.security.protocol": f"${{file:{properties}:security.protocol}}",
        "kafka.sasl.mechanism": f"${{file:{properties}:sasl.mechanism}}",
        "kafka.sasl.username": "orders",
        "kafka.sasl.password": f"${{file:{properties}:sasl.password}}",
    }
    login = found.client_settings.connection.security.login
    assert login is not None
    assert (login.username, login.password) == ("orders", "secret")
    assert "secret" not in repr(found)


def test_everything_that_is_wrong_is_said_at_once_with_its_line(file: Path) -> None:
    text = GOOD.replace("topic: totals", "topik: totals").replace("500 ms", "soon").replace("at-least-once", "maybe")
    assert problems_of(file, text) == [
        "totals.yaml:12:3: there is no 'topik' in sink; did you mean 'topic'? possible are bootstrap, create, "
        "format, key, mode, options, partition_by, path, registry, topic, value",
        "totals.yaml:14:10: trigger: 'soon' is not a duration; write for example 500 ms, 10 seconds, 5 min, 2 h",
        "totals.yaml:15:11: delivery: 'maybe' is not known; possible are at-least-once, exactly-once",
    ]


@pytest.mark.parametrize(
    ("before", "after", "said"),
    [
        ("sources:", "sauces:", "'sources' is missing: The tables that the SQL can name"),
        (
            "column: at",
            "column: when",
            "totals.yaml:7:5: watermark: there is no column 'when' in 'orders'; there are id",
        ),
        (
            "bootstrap: 127.0.0.1:9092",
            "bootstrap: nowhere",
            "totals.yaml:2:12: bootstrap: 'nowhere' is not HOST:PORT",
        ),
        (
            "bootstrap: 127.0.0.1:9092",
            "bootstrap: {security.protocol: SSL}",
            "totals.yaml:2:12: bootstrap: servers is missing: HOST:PORT of a broker",
        ),
        (
            "bootstrap: 127.0.0.1:9092",
            "bootstrap: {servers: a:1, sasl.user: x}",
            "bootstrap: sasl.user is not a property of TLS or SASL, such as security.protocol",
        ),
        (
            "bootstrap: 127.0.0.1:9092",
            "bootstrap: {servers: a:1, client: missing.properties}",
            "missing.properties: no such file or directory",
        ),
        (
            "bootstrap: 127.0.0.1:9092",
            "bootstrap: {servers: a:1, security.protocol: SASL_SSL}",
            "bootstrap: security.protocol=SASL_SSL needs sasl.mechanism",
        ),
        (
            "topic: orders",
            "topic: no topic",
            "totals.yaml:5:12: sources.orders.topic: 'no topic' is not a topic name",
        ),
        ("topic: orders", "topic: [[orders]]", "a topic is expected, not a list"),
        ("id BIGINT", "id", "'id' is not a column with its type, as in `id BIGINT`"),
        ("id BIGINT", "at INT", "names a column twice"),
        ("  key: minute", "  path: lake", "totals.yaml:12:3: sink: topic and path are both set"),
        ("spark: {spark.driver.memory: 1g}", "spark: many", "a mapping is expected"),
        (
            "trigger: 500 ms",
            "trigger: 500 ms\ntrigger: 1 s",
            "totals.yaml:15:1: 'trigger' is set twice; first in line 14",
        ),
        ("name: totals", "name: [totals", "totals.yaml:2:10: is not YAML"),
        pytest.param("name: totals", "name: " + "[" * 20_000, "is nested too deeply", id="deep"),
        (
            "topic: orders",
            "topic: orders\n    value: avro",
            "totals.yaml:7:5: source 'orders': values in avro have the schema of the registry; leave out schema",
        ),
        (
            "topic: orders",
            "topic: orders\n    registry: http://localhost:9324/registry",
            "totals.yaml:6:5: source 'orders': registry requires value: avro, protobuf, json-schema; it is json",
        ),
        (
            "  key: minute",
            "  registry: http://localhost:9324/registry",
            "sink: registry requires value: avro, protobuf, json-schema; it is json",
        ),
        ("name: totals", "registry: ftp://ada:secret@x", "registry: 'x' is not the URL of a schema registry"),
        ("  orders:\n", "  my orders:\n", "'my orders' cannot be the name of a table"),
        ("sql: |", "python: orders.py\nsql: |", "sql and python are both set"),
    ],
)
def test_a_mistake_is_named_with_what_is_possible(file: Path, before: str, after: str, said: str) -> None:
    assert before in GOOD
    found = problems_of(file, GOOD.replace(before, after, 1))
    assert any(said in problem for problem in found), found


def test_columns_of_the_sink_are_checked_where_they_are_known(file: Path) -> None:
    text = "sources: {orders: {topic: orders, schema: id INT}}\nsink: {topic: out, key: customer}"
    assert problems_of(file, text) == [
        "totals.yaml:2:20: sink: there is no column 'customer' for key; there are id, _key, _topic, _partition, "
        "_offset, _timestamp, _headers"
    ]


def test_a_wrong_option_is_reported_by_its_name(file: Path) -> None:
    assert problems_of(file, GOOD, ("sink.mode", "sometimes"))[0].startswith("-o sink.mode: sink.mode: 'sometimes'")


def test_a_file_that_is_not_there_is_no_traceback(tmp_path: Path) -> None:
    with pytest.raises(PipelineInvalid, match="cannot be read: No such file or directory"):
        load(str(tmp_path / "none.yaml"))


def test_an_unknown_pipeline_is_reported_with_the_known_ones(file: Path) -> None:
    with pytest.raises(NoSuchPipeline, match="did you mean 'archive'"):
        load("archiv")
    assert "pipeline: 'archiv' is not known" in problems_of(file, "pipeline: archiv")[0]


@pytest.mark.parametrize("name", NAMES)
def test_every_ready_pipeline_is_described_and_every_option_too(name: str) -> None:
    found = find(name)
    assert found.name == name
    assert name in found.example
    assert all(each.metadata["doc"] for each in options_of(found.options))


@pytest.mark.parametrize("name", ["archive", "replay", "insights", "mirror", "audit", "sql"])
def test_missing_required_options_are_reported(name: str) -> None:
    with pytest.raises(PipelineInvalid, match="is missing"):
        load(name)


def test_a_lake_takes_no_rows_that_come_again(file: Path) -> None:
    text = GOOD.replace("  topic: totals\n  key: minute", "  path: lake\n  mode: update")
    assert "use append with a watermark" in problems_of(file, text)[0]


@given(st.lists(st.sampled_from(["a", "b", "c"]), min_size=1, max_size=4), st.text(max_size=20))
def test_an_option_is_found_where_it_was_set(path: list[str], text: str) -> None:
    table = with_option(read_text("", "file"), ".".join(path), f"x{text}")
    for name in path[:-1]:
        below = table.entries[name]
        assert isinstance(below, Table)
        table = below
    assert table.entries[path[-1]].text == f"x{text}"  # type: ignore[union-attr]


@given(
    st.lists(
        st.sampled_from(["INT", "ARRAY<INT>", "STRUCT<a: INT, b: MAP<STRING, INT>>", "DECIMAL(10, 2)"]), min_size=1
    )
)
def test_columns_are_found_behind_nested_types(kinds: list[str]) -> None:
    ddl = ", ".join(f"c{number} {kind}" for number, kind in enumerate(kinds))
    assert columns_of(ddl) == [f"c{number}" for number in range(len(kinds))]
