"""Validation of produced batches that must be decompressed, on a thread if they are large (see log/admission.py)."""

import asyncio
from collections import defaultdict
from collections.abc import Iterable, Mapping
from functools import partial
from types import MappingProxyType
from typing import Final

from penstock.broker.broker import Broker
from penstock.broker.produce.produced_batch import ProducedBatch
from penstock.broker.schemas.known_ids import SchemaIdsUnavailable
from penstock.foundation.codes import ErrorCode
from penstock.foundation.errors import PenstockError
from penstock.log.admission import TooLargeForEventLoop, UnresolvedSchemaIds, admit, must_decompress
from penstock.replication.partition import Partition
from penstock.wire.schema import Buffer

DECOMPRESS_INLINE_BYTES_MAX: Final = 64 << 10
"""Maximum decompressed size, in bytes, of batches validated on the event loop; larger batches use a thread."""
RESOLUTIONS_MAX: Final = 64
"""How often a batch is validated again, because it has more schema ids that must be looked up."""
_NONE_REFUSED: Final[Mapping[str, frozenset[int]]] = MappingProxyType({})


def find_compressed(batches: Iterable[ProducedBatch], broker: Broker) -> list[ProducedBatch]:
    """Returns the batches that must be decompressed before they are appended."""
    if not broker.partitions.decompresses_batches:
        return []
    return [
        batch
        for batch in batches
        if batch.result is None
        and batch.partition.is_online
        and must_decompress(batch.records, batch.partition.log.settings)
    ]


def validate_now(batches: Iterable[ProducedBatch], broker: Broker) -> list[ProducedBatch]:
    """Validates batches as `validate` does; returns those that must wait, for a thread or for the schema registry."""
    waiting = []
    for batch in batches:
        try:
            batch.records = _admission(batch.partition, batch.records, broker)(body_max=DECOMPRESS_INLINE_BYTES_MAX)
        except (TooLargeForEventLoop, UnresolvedSchemaIds):
            waiting.append(batch)
        except PenstockError as error:
            _refuse(batch, error)
    return waiting


def is_valid_now(partition: Partition, records: Buffer, broker: Broker) -> bool:
    """Returns whether a batch is known to be valid; if not, or if that takes longer, call `validate`."""
    try:
        _admission(partition, records, broker)(body_max=DECOMPRESS_INLINE_BYTES_MAX)
    except (PenstockError, TooLargeForEventLoop):
        return False
    return True


async def validate(batches: Iterable[ProducedBatch], broker: Broker) -> None:
    """Sets an error result for invalid batches. Recompresses batches if the topic's compression.type differs."""
    for batch in batches:
        try:
            batch.records = await validate_batch(batch.partition, batch.records, broker)
        except PenstockError as error:
            _refuse(batch, error)


async def validate_batch(partition: Partition, records: Buffer, broker: Broker) -> Buffer:
    """Returns the batch to append in place of `records`, which may be the same. Raises PenstockError if it is
    invalid, or if it cannot be validated now."""
    loop = asyncio.get_running_loop()
    refused: dict[str, frozenset[int]] = defaultdict(frozenset)
    for _ in range(RESOLUTIONS_MAX):
        work = _admission(partition, records, broker, refused)
        try:
            try:
                return work(body_max=DECOMPRESS_INLINE_BYTES_MAX)
            except TooLargeForEventLoop:
                return await loop.run_in_executor(broker.threads, work)
        except UnresolvedSchemaIds as unresolved:
            refused[unresolved.part] |= await broker.schema_ids.resolve(unresolved.rule, unresolved.ids)
    raise SchemaIdsUnavailable("the schema ids of the batch cannot be looked up now; retry")


def _admission(
    partition: Partition, records: Buffer, broker: Broker, refused: Mapping[str, frozenset[int]] = _NONE_REFUSED
) -> partial[Buffer]:
    """Returns the call of `admit` for a batch, with what is known of schema ids now."""
    settings = partition.log.settings
    may_delay = partition.visibility is not None and partition.visibility.may_delay
    ids = {
        part: broker.schema_ids.find(rule, refused.get(part, frozenset()))
        for part, rule in settings.subject_rules(partition.name.topic).items()
    }
    return partial(admit, records, settings, broker.clock.now_ms(), may_delay, ids=ids)


def _refuse(batch: ProducedBatch, error: PenstockError) -> None:
    batch.refuse(error)
    if error.code is ErrorCode.NOT_ENOUGH_REPLICAS and batch.partition.is_online:
        batch.partition.log.refuse(batch.records, error)  # the producer's later batches must wait for the retry
