"""The cache of decoded batches with delayed messages."""

from types import SimpleNamespace
from typing import Any

import pytest

from penstock.broker.delays.batch_decoder import BatchDecoder
from penstock.log.disk import ColdRead
from penstock.records.batch import read_header
from penstock.records.compression import Codec

from ..log.builders import batch

LOG: Any = SimpleNamespace(settings=SimpleNamespace(decompressed_bytes_max=64 << 20))
BODY_BYTES = 1 << 20


def warm_of(decoder: BatchDecoder, large: bytearray) -> Any:
    """Returns the work for a thread."""
    with pytest.raises(ColdRead) as cold:
        decoder.decode(large, read_header(large), LOG)
    return cold.value.warm


def test_a_batch_that_two_threads_decode_counts_once() -> None:
    decoder = BatchDecoder(bytes_max=3 * BODY_BYTES)
    first, second = (batch(bytes([number]) * BODY_BYTES, codec=Codec.ZSTD) for number in (1, 2))
    for warm in [warm_of(decoder, first) for _ in range(3)]:
        warm()
    warm_of(decoder, second)()
    for large in (first, second):
        assert decoder.decode(large, read_header(large), LOG).count == 1, "both fit, and are still there"
