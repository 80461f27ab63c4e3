"""Builds record batches of state-machine records."""

from collections.abc import Iterable, Iterator
from typing import Final

from penstock.foundation.decision import NO_PRODUCER, StateRecord
from penstock.records.batch import assemble

BATCH_BYTES_MAX: Final = 512 << 10
"""Maximum bytes of keys and values in a batch. If a state machine's decision has more, its records are split into
several batches, unless the decision is atomic."""


def plain_batch(body: bytes, count: int, now_ms: int) -> bytearray:
    """Builds a batch of encoded records (`body`) without a transaction; all get the same timestamp."""
    return assemble(
        body,
        count=count,
        attributes=0,
        base_offset=0,
        last_offset_delta=count - 1,
        leader_epoch=-1,
        base_timestamp=now_ms,
        max_timestamp=now_ms,
        producer_id=NO_PRODUCER,
        producer_epoch=-1,
        base_sequence=-1,
    )


def in_batches(records: Iterable[StateRecord]) -> Iterator[list[StateRecord]]:
    batch: list[StateRecord] = []
    size = 0
    for record in records:
        added = len(record.key) + len(record.value or b"")
        if batch and size + added > BATCH_BYTES_MAX:
            yield batch
            batch, size = [], 0
        batch.append(record)
        size += added
    if batch:
        yield batch
