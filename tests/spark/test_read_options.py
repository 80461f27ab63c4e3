"""Options of the reader, and the errors of invalid ones."""

import pytest

from penstock.foundation.ids import TopicPartition
from penstock.spark.errors import BadOption
from penstock.spark.read_options import BoundKind, ReadOptions

GIVEN = {"kafka.bootstrap.servers": "127.0.0.1:9092", "subscribe": "orders"}


def parse(**more: str) -> ReadOptions:
    """With `__` for a dot."""
    return ReadOptions.parse(GIVEN | {name.replace("__", "."): value for name, value in more.items()})


def refused(**more: str) -> str:
    with pytest.raises(BadOption) as caught:
        parse(**more).check_batch()
    return str(caught.value)


def test_case_does_not_count() -> None:
    options = ReadOptions.parse(
        {"KAFKA.Bootstrap.Servers": "127.0.0.1:9092", "SUBSCRIBE": "a, b,,a", "minpartitions": "7"}
    )
    assert options.selection.topics == ("a", "b")
    assert options.tasks_min == 7


def test_defaults_are_those_of_sparks_kafka_source_except_for_the_isolation() -> None:
    options = parse()
    assert options.committed
    assert options.fail_on_data_loss
    assert not options.include_headers
    assert options.starting is None
    assert options.trigger.delay_ms == 900_000
    assert options.group is None


def test_offsets_can_be_named_for_each_partition() -> None:
    options = parse(startingOffsets='{"orders": {"0": 12, "1": -2}}', endingOffsets="latest")
    assert options.starting is not None
    assert options.starting.by_partition == {TopicPartition("orders", 0): 12, TopicPartition("orders", 1): -2}
    assert options.ending is not None
    assert options.ending.kind is BoundKind.LATEST


def test_a_time_goes_before_times_and_times_before_offsets() -> None:
    times = '{"orders": {"0": 1000}}'
    options = parse(startingOffsets="latest", startingOffsetsByTimestamp=times)
    assert options.starting is not None
    assert options.starting.kind is BoundKind.TIMES
    options = parse(startingOffsets="latest", startingOffsetsByTimestamp=times, startingTimestamp="5")
    assert options.starting is not None
    assert (options.starting.kind, options.starting.time_ms) == (BoundKind.TIME, 5)


@pytest.mark.parametrize("name", ["isolation", "kafka__isolation__level"])
def test_read_uncommitted_returns_uncommitted_records(name: str) -> None:
    assert not parse(**{name: "read_uncommitted"}).committed


def test_the_fetch_is_no_larger_than_either_size_allows() -> None:
    options = parse(kafka__fetch__max__bytes="5000", kafka__max__partition__fetch__bytes="3000")
    assert options.fetch.bytes_max == 3000


@pytest.mark.parametrize(
    ("given", "said"),
    [
        (
            {"subscribePatern": "a.*"},
            "there is no option 'subscribePatern' for reading; did you mean 'subscribePattern'",
        ),
        ({"xyz": "1"}, "there is no option 'xyz' for reading; the options are assign"),
        ({"assign": '{"orders": [0]}'}, "'subscribe' and 'assign' are both set; set just one"),
        ({"subscribe": " , "}, "option 'subscribe' is ',', which names no topic"),
        ({"subscribe": " "}, "option 'subscribe' is empty"),
        ({"failOnDataLoss": "maybe"}, "option 'failOnDataLoss' is 'maybe'; it must be true or false"),
        ({"minPartitions": "0"}, "option 'minPartitions' is 0; it must be from 1 to"),
        ({"minPartitions": "few"}, "option 'minPartitions' is 'few'; it must be an integer"),
        ({"maxTriggerDelay": "soon"}, "option 'maxTriggerDelay' is 'soon'; it must be a duration such as 500ms"),
        (
            {"maxOffsetsPerTrigger": "5", "minOffsetsPerTrigger": "6"},
            "'minOffsetsPerTrigger' is 6; it must not exceed",
        ),
        ({"startingOffsets": "first"}, "option 'startingOffsets' is 'first'; it can be earliest, latest or like"),
        (
            {"startingOffsets": '{"orders": [1]}'},
            'it must be like {"orders": {"0": 23, "1": -2}}: \'orders\' has [1]',
        ),
        ({"startingOffsets": '{"orders": {"0": -3}}'}, "partition orders-0 has -3; the minimum is -2"),
        ({"startingOffsets": "{"}, "it must be like"),
        ({"startingOffsets": "latest"}, "option 'startingOffsets' is latest in a batch query"),
        ({"endingOffsets": "earliest"}, "option 'endingOffsets' is earliest in a batch query"),
        ({"startingOffsets": '{"orders": {"0": -1}}'}, "has -1 (latest) for partition orders-0 in a batch query"),
        ({"endingOffsets": '{"orders": {"0": -2}}'}, "has -2 (earliest) for partition orders-0 in a batch query"),
        ({"startingTimestamp": "yesterday"}, "option 'startingTimestamp' is 'yesterday'; it must be an integer"),
        (
            {"startingOffsetsByTimestampStrategy": "guess"},
            "it can be error (fail if a partition has no such record); latest",
        ),
        ({"isolation": "some"}, "option 'isolation' is 'some'; it can be read_committed"),
        (
            {"isolation": "read_committed", "kafka__isolation__level": "read_uncommitted"},
            "differ; set only one of them",
        ),
        ({"kafka__auto__offset__reset": "earliest"}, "set 'startingOffsets' to earliest or latest"),
        ({"kafka__enable__auto__commit": "true"}, "cannot be set for reading"),
        ({"kafka__key__deserializer": "x"}, "text, json, avro, protobuf or json-schema"),
        (
            {"kafka__security__protocol": "SASL_SSL"},
            "security.protocol=SASL_SSL needs sasl.mechanism",
        ),
        ({"kafka__sasl__login__class": "x"}, "there is no option 'kafka.sasl.login.class'"),
        (
            {"kafka__security__protocol": "SSL", "kafka__ssl__keystore__type": "JKS"},
            "ssl.keystore.type=JKS is not supported; set it to PEM",
        ),
        ({"kafka__bootstrap__servers": "nowhere"}, "option 'kafka.bootstrap.servers': 'nowhere' is not HOST:PORT"),
        ({"topic": "orders"}, "it is for writing"),
    ],
)
def test_invalid_options_are_refused_by_name_with_the_valid_ones(given: dict[str, str], said: str) -> None:
    assert said in refused(**given)


def test_the_brokers_and_a_topic_must_be_named() -> None:
    with pytest.raises(BadOption, match=r"option 'kafka\.bootstrap\.servers' is missing; set it to broker addresses"):
        ReadOptions.parse({"subscribe": "orders"})
    with pytest.raises(
        BadOption, match="no topic is named; set just one of the options 'subscribe', 'subscribePattern'"
    ):
        ReadOptions.parse({"kafka.bootstrap.servers": "127.0.0.1:9092"})


def test_a_pattern_must_be_a_regular_expression() -> None:
    with pytest.raises(BadOption, match="which is not a regular expression"):
        ReadOptions.parse({"kafka.bootstrap.servers": "127.0.0.1:9092", "subscribePattern": "a("})


def test_partitions_can_be_assigned_by_hand() -> None:
    options = ReadOptions.parse({"kafka.bootstrap.servers": "h:1", "assign": '{"a": [0, 2]}'})
    assert options.selection.partitions == {TopicPartition("a", 0), TopicPartition("a", 2)}
    with pytest.raises(BadOption, match="not a list of partitions"):
        ReadOptions.parse({"kafka.bootstrap.servers": "h:1", "assign": '{"a": 0}'})


@pytest.mark.parametrize("name", ["endingOffsets", "endingTimestamp", "endingOffsetsByTimestamp"])
def test_a_stream_has_no_end(name: str) -> None:
    value = {"endingOffsets": "latest", "endingTimestamp": "5"}.get(name, '{"orders": {"0": 5}}')
    with pytest.raises(BadOption, match=f"option '{name}' is for batch queries: a stream has no end"):
        parse(**{name: value}).check_stream()
