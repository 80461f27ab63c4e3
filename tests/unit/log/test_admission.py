"""Checks that need a decompressed batch: keys on compacted topics, and codecs."""

import pytest

from penstock.foundation.errors import CorruptMessage, InvalidRecord, PenstockError
from penstock.log.admission import RejectedRecords, admit, may_decompress, must_decompress
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
