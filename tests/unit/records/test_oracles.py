"""Batches against the record readers and builders of kafka-python, aiokafka and Kafka's own Java client."""

from types import SimpleNamespace
from typing import Any

import cramjam
import kafka.codec
import pytest
from aiokafka.record.control_record import ABORT_MARKER, COMMIT_MARKER, ControlRecord
from aiokafka.record.default_records import DefaultRecordBatch as AiokafkaReader
from aiokafka.record.default_records import DefaultRecordBatchBuilder as AiokafkaBuilder
from aiokafka.record.default_records import _DefaultRecordBatchBuilderPy as AiokafkaPureBuilder
from aiokafka.record.default_records import _DefaultRecordBatchPy as AiokafkaPureReader
from kafka.record.default_records import DefaultRecordBatch as KafkaPythonReader
from kafka.record.default_records import DefaultRecordBatchBuilder as KafkaPythonBuilder

from penstock.records.batch import check_batch, patch_log_append_time, read_client_batch, read_header
from penstock.records.build import Record, build_batch, control_marker, read_records, skip_marker
from penstock.records.columns import decode_columns, select_records
from penstock.records.compression import Codec

pytestmark = pytest.mark.usefixtures("twin", "snappy_for_kafka_python")

READERS = [
    pytest.param(KafkaPythonReader, id="kafka-python"),
    pytest.param(AiokafkaReader, id="aiokafka"),
    pytest.param(AiokafkaPureReader, id="aiokafka-pure"),
]
BUILDERS = [
    pytest.param(KafkaPythonBuilder, id="kafka-python"),
    pytest.param(AiokafkaBuilder, id="aiokafka"),
    pytest.param(AiokafkaPureBuilder, id="aiokafka-pure"),
]
RECORDS = [
    Record(
        key=None if n % 5 == 0 else b"key-%d" % n,
        value=None if n % 7 == 0 else b"spring water " * (n % 40),
        headers=(("tag", b"eu"), ("größe", None), ("empty", b"")) if n % 3 == 0 else (),
        timestamp_ms=1_700_000_000_000 + (n * 37) % 200,
        offset=1000 + n,
    )
    for n in range(200)
]


@pytest.fixture
def snappy_for_kafka_python(monkeypatch: pytest.MonkeyPatch) -> None:
    """kafka-python frames snappy itself but leaves the blocks to python-snappy; cramjam does them as well."""
    blocks = SimpleNamespace(
        compress=lambda data: bytes(cramjam.snappy.compress_raw(data)),
        decompress=lambda data: bytes(cramjam.snappy.decompress_raw(data)),
    )
    monkeypatch.setattr(kafka.codec, "snappy", blocks)


def read_with(reader: Any, batch: bytes | bytearray) -> list[Record]:
    oracle = reader(bytes(batch))
    assert oracle.validate_crc()
    return [
        Record(
            key=record.key,
            value=record.value,
            headers=tuple(record.headers),
            timestamp_ms=record.timestamp,
            offset=record.offset,
        )
        for record in oracle
    ]


@pytest.mark.parametrize("codec", Codec)
@pytest.mark.parametrize("reader", READERS)
def test_clients_read_what_we_build(reader: Any, codec: Codec) -> None:
    batch = build_batch(RECORDS, base_offset=1000, codec=codec)
    assert read_with(reader, batch) == RECORDS


@pytest.mark.parametrize("codec", Codec)
@pytest.mark.parametrize("reader", READERS)
def test_clients_read_what_we_select(reader: Any, codec: Codec) -> None:
    batch = build_batch(RECORDS, base_offset=1000, codec=codec)
    mask = bytes(n % 3 == 1 for n in range(len(RECORDS)))
    selected = select_records(batch, decode_columns(batch), mask, keep_last_offset=False)
    assert selected is not None
    assert read_with(reader, selected) == RECORDS[1::3]


@pytest.mark.parametrize("reader", READERS)
def test_clients_see_log_append_time(reader: Any) -> None:
    batch = build_batch(RECORDS)
    patch_log_append_time(batch, 0, 1_800_000_000_000)
    assert {record.timestamp_ms for record in read_with(reader, batch)} == {1_800_000_000_000}


@pytest.mark.parametrize("codec", Codec)
@pytest.mark.parametrize("builder", BUILDERS)
def test_we_read_what_clients_build(builder: Any, codec: Codec) -> None:
    oracle = builder(
        magic=2,
        compression_type=codec,
        is_transactional=1,
        producer_id=12,
        producer_epoch=3,
        base_sequence=40,
        batch_size=1 << 20,
    )
    for n, record in enumerate(RECORDS):
        headers = list(record.headers)
        assert oracle.append(n, timestamp=record.timestamp_ms, key=record.key, value=record.value, headers=headers)
    batch = bytes(oracle.build())
    header = read_header(batch)
    assert read_client_batch(batch) == header
    assert header.codec is codec
    assert (header.producer_id, header.producer_epoch, header.base_sequence) == (12, 3, 40)
    assert header.is_transactional
    read = read_records(batch)
    assert [record.offset for record in read] == list(range(200))
    assert [(r.key, r.value, r.headers, r.timestamp_ms) for r in read] == [
        (r.key, r.value, r.headers, r.timestamp_ms) for r in RECORDS
    ]
    if codec is Codec.NONE:
        ours = build_batch(
            RECORDS,
            leader_epoch=header.leader_epoch,
            producer_id=12,
            producer_epoch=3,
            base_sequence=40,
            transactional=True,
        )
        assert ours == batch


@pytest.mark.parametrize(("commit", "expected"), [(True, COMMIT_MARKER), (False, ABORT_MARKER)])
def test_clients_understand_our_markers(commit: bool, expected: ControlRecord) -> None:
    marker = bytes(
        control_marker(
            commit=commit, coordinator_epoch=4, producer_id=9, producer_epoch=1, timestamp_ms=5, base_offset=30
        )
    )
    oracle = AiokafkaReader(marker)
    assert oracle.validate_crc()
    assert (oracle.is_control_batch, oracle.is_transactional, oracle.producer_id) == (True, True, 9)
    (record,) = oracle
    assert ControlRecord.parse(record.key) == expected
    (other,) = KafkaPythonReader(marker)
    assert (other.commit, other.abort, other.offset) == (commit, not commit, 30)


def test_clients_understand_our_skip_marker() -> None:
    oracle = AiokafkaReader(bytes(skip_marker(30, 5)))
    assert oracle.validate_crc()
    assert (oracle.is_control_batch, oracle.is_transactional, oracle.next_offset) == (True, False, 31)
    (record,) = oracle
    assert ControlRecord.parse(record.key) == COMMIT_MARKER


# The same three records as Kafka's Java client (4.3.1) writes them, at base offset 500.
FROM_JAVA = {
    Codec.NONE: "00000000000001f40000007effffffff02cacd5e480000000000020000018bcfe568000000018bcfe5692cffffffffffffff"
    "ffffffffffffff0000000340000000026b18737072696e672077617465720406746167046575086e6f6e65013e0013020132737072696e67"
    "20776174657220737072696e67207761746572001600d8040408676f6e650100",
    Codec.GZIP: "00000000000001f40000007cffffffff021d9ab12f0001000000020000018bcfe568000000018bcfe5692cffffffffffffff"
    "ffffffffffffff000000031f8b08000000000000ff7360606060ca96282e28cacc4b57284f2c492d62612b494c67492de5c8cbcf4b65b463"
    "1066623442965740e6308831dc6061e14807296500003ed3c6064d000000",
    Codec.SNAPPY: "00000000000001f400000084ffffffff02797d8f530002000000020000018bcfe568000000018bcfe5692cffffffffffff"
    "ffffffffffffffff0000000382534e415050590000000001000000010000003f4d9840000000026b18737072696e67207761746572040674"
    "6167046575086e6f6e65013e00130201322e200000202e0d0030001600d8040408676f6e650100",
    Codec.LZ4: "00000000000001f40000007dffffffff0248894e5c0003000000020000018bcfe568000000018bcfe5692cfffffffffffffff"
    "fffffffffffff0000000304224d186040823d000000f81840000000026b18737072696e672077617465720406746167046575086e6f6e650"
    "13e0013020132200018200d00d0001600d8040408676f6e65010000000000",
    Codec.ZSTD: "00000000000001f40000007cffffffff0235187b640004000000020000018bcfe568000000018bcfe5692cffffffffffffff"
    "ffffffffffffff0000000328b52ffd0058fc0100540340000000026b18737072696e672077617465720406746167046575086e6f6e65013e"
    "001302013220001600d8040408676f6e65010002003039f1c1a927010000",
}
JAVA_RECORDS = [
    Record(
        key=b"k",
        value=b"spring water",
        headers=(("tag", b"eu"), ("none", None)),
        timestamp_ms=1_700_000_000_000,
        offset=500,
    ),
    Record(key=None, value=b"spring water spring water", timestamp_ms=1_699_999_999_990, offset=501),
    Record(key=b"gone", value=None, timestamp_ms=1_700_000_000_300, offset=502),
]


@pytest.mark.parametrize("codec", Codec)
def test_we_read_what_java_builds(codec: Codec) -> None:
    batch = bytes.fromhex(FROM_JAVA[codec])
    header = read_header(batch)
    check_batch(batch, 0, header)
    assert read_client_batch(batch) == header
    assert header.codec is codec
    assert read_records(batch) == JAVA_RECORDS


@pytest.mark.parametrize("codec", [Codec.NONE, Codec.SNAPPY])
def test_we_build_the_very_bytes_that_java_does(codec: Codec) -> None:
    assert build_batch(JAVA_RECORDS, base_offset=500, codec=codec).hex() == FROM_JAVA[codec]
