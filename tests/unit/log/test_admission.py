"""Checks that need a decompressed batch: keys on compacted topics, and codecs."""

from array import array

import pytest

from penstock.foundation.errors import CorruptMessage, InvalidRecord, PenstockError
from penstock.log.admission import (
    RejectedRecords,
    SchemaIds,
    UnresolvedSchemaIds,
    admit,
    may_decompress,
    must_decompress,
)
from penstock.log.settings import VALUE, SubjectRule
from penstock.records import kernel
from penstock.records.batch import assemble, read_client_batch
from penstock.records.build import Record, build_batch, read_records
from penstock.records.compression import Codec

from .builders import NOW_MS, batch, open_at, settings, values_in

COMPACTED = settings(cleanup_policy="compact")
TYPES = {"uncompressed": Codec.NONE, "gzip": Codec.GZIP, "snappy": Codec.SNAPPY, "lz4": Codec.LZ4, "zstd": Codec.ZSTD}


def test_an_ordinary_topic_opens_nothing() -> None:
    assert not may_decompress(settings())
    assert not must_decompress(batch(codec=Codec.GZIP), settings())


def test_a_compacted_topic_opens_everything() -> None:
    for topic in (COMPACTED, settings(cleanup_policy="compact,delete")):
        assert may_decompress(topic)
        assert must_decompress(batch(), topic)


@pytest.mark.parametrize("wanted", TYPES)
def test_a_topic_with_a_codec_opens_what_comes_in_another(wanted: str) -> None:
    topic = settings(compression_type=wanted)
    assert may_decompress(topic)
    for codec in Codec:
        assert must_decompress(batch(codec=codec), topic) is (codec is not TYPES[wanted])


def test_invalid_batches_are_not_decompressed() -> None:
    assert not must_decompress(b"short", settings(compression_type="gzip"))


def test_records_without_a_key_are_named_and_none_is_taken() -> None:
    rows = [Record(key=key, value=b"v", timestamp_ms=NOW_MS) for key in (b"a", None, b"", None)]
    with pytest.raises(RejectedRecords, match="only records with a key") as refused:
        admit(build_batch(rows), COMPACTED)
    assert refused.value.rows == [1, 3]
    assert isinstance(refused.value, InvalidRecord)


def test_a_batch_whose_records_all_have_keys_is_taken_as_it_is() -> None:
    sent = batch(b"x", None, codec=Codec.ZSTD)
    assert admit(sent, COMPACTED) is sent


@pytest.mark.parametrize("wanted", TYPES)
@pytest.mark.parametrize("codec", Codec)
def test_a_batch_is_kept_in_the_topics_codec(wanted: str, codec: Codec) -> None:
    rows = [
        Record(key=b"k%d" % row, value=b"v" * 100, headers=(("h", b"1"), ("n", None)), timestamp_ms=NOW_MS + row)
        for row in range(5)
    ]
    sent = build_batch(rows, codec=codec, producer_id=7, producer_epoch=2, base_sequence=11, transactional=True)
    kept = admit(sent, settings(compression_type=wanted))
    header = read_client_batch(kept)
    assert header.codec is TYPES[wanted]
    assert (header.producer_id, header.producer_epoch, header.base_sequence) == (7, 2, 11)
    assert header.is_transactional
    assert read_records(kept) == read_records(sent)


def test_a_codecs_level_is_obeyed() -> None:
    value = b"".join(b"%d," % (number * number) for number in range(3000))
    sizes = [
        len(admit(batch(value), settings(compression_type="gzip", compression_gzip_level=level))) for level in (1, 9)
    ]
    assert sizes[0] > sizes[1]


@pytest.mark.parametrize("topic", [COMPACTED, settings(compression_type="gzip")])
def test_two_batches_are_not_taken_for_one(topic: object) -> None:
    """The second would be lost without a word."""
    with pytest.raises(InvalidRecord, match="exactly one"):
        admit(batch(b"first") + batch(b"second"), topic)  # type: ignore[arg-type]


@pytest.mark.parametrize("topic", [COMPACTED, settings(compression_type="gzip")])
def test_damaged_batches_are_refused(topic: object) -> None:
    sent = batch(b"value", codec=Codec.ZSTD)
    sent[-1] ^= 1
    for data in (bytes(sent), b"", b"\0" * 61):
        with pytest.raises(PenstockError):
            admit(data, topic)  # type: ignore[arg-type]


def test_a_body_that_is_not_what_it_says_is_refused() -> None:
    nonsense = assemble(
        b"no gzip at all",
        count=1,
        attributes=Codec.GZIP,
        base_offset=0,
        last_offset_delta=0,
        leader_epoch=-1,
        base_timestamp=NOW_MS,
        max_timestamp=NOW_MS,
        producer_id=-1,
        producer_epoch=-1,
        base_sequence=-1,
    )
    for topic in (COMPACTED, settings(compression_type="zstd")):
        with pytest.raises(CorruptMessage):
            admit(nonsense, topic)


def test_admitted_batches_are_appended() -> None:
    log = open_at(compression_type="lz4")
    log.append(bytearray(admit(batch(b"one", b"two"), log.settings)), 0, NOW_MS)
    assert values_in(log) == [b"one", b"two"]


def id_of(number: int) -> bytes:
    return b"\0" + number.to_bytes(4, "big")


def known(*ids: int, refused: frozenset[int] = frozenset()) -> dict[str, SchemaIds]:
    return {VALUE: SchemaIds(SubjectRule("orders-value", False), array("i", ids), refused)}


VALIDATED = settings(schema_validation="true")


@pytest.mark.parametrize(
    "kernel_of", [k for k in (kernel.PURE, kernel.COMPILED) if k], ids=lambda found: found.__name__
)
def test_values_must_start_with_a_known_schema_id(kernel_of: kernel.Kernel, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(kernel, "active", kernel_of)
    assert may_decompress(VALIDATED)
    assert must_decompress(batch(), VALIDATED)
    cells = [id_of(7) + b"data", None, id_of(9)]
    good = build_batch([Record(key=b"k", value=cell, timestamp_ms=NOW_MS) for cell in cells])
    assert admit(good, VALIDATED, ids=known(7, 9)) is good
    with pytest.raises(UnresolvedSchemaIds) as unresolved:
        admit(good, VALIDATED, ids=known(7))
    assert (unresolved.value.part, unresolved.value.ids) == (VALUE, [9])
    with pytest.raises(RejectedRecords, match="schema id 9 of the value is not registered under") as rejected:
        admit(good, VALIDATED, ids=known(7, refused=frozenset({9})))
    assert rejected.value.rows == [2]
    bad = build_batch([Record(key=b"k", value=cell, timestamp_ms=NOW_MS) for cell in (*cells, b"\0\0\0\7", b"{}")])
    with pytest.raises(RejectedRecords, match="magic byte") as rejected:
        admit(bad, VALIDATED, ids=known(7))
    assert rejected.value.rows == [3, 4]
    with pytest.raises(UnresolvedSchemaIds):
        admit(good, VALIDATED)


def test_companions_and_internal_topics_validate_no_schemas() -> None:
    assert VALIDATED.validates_schemas
    assert not VALIDATED.for_companion().validates_schemas
    assert not VALIDATED.for_internal_topic().validates_schemas
