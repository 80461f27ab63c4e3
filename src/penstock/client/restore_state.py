"""Client of RestoreState, Penstock's own API: writes coordinator state to an internal topic during its repair."""

from collections.abc import Iterable, Iterator

from penstock.client.cluster import KafkaClient
from penstock.foundation.ids import TopicPartition
from penstock.wire.messages.restore_state import (
    ENTRIES_MAX,
    KEY_BYTES_MAX,
    RestoreStateRequest,
    StateEntry,
)

REQUEST_BYTES = 256 << 10

Pair = tuple[bytes, bytes | None]


async def restore_state(client: KafkaClient, tp: TopicPartition, pairs: Iterable[Pair], *, partitions: int) -> None:
    """Writes key-value pairs to partition `tp` of an internal topic whose coordinators are paused; returns when all
    are committed. A value of None deletes the key. Idempotent.
    `partitions`: the topic's partition count; a broker that knows another count refuses the request."""
    for portion in portions(pairs):
        request = RestoreStateRequest(
            topic=tp.topic,
            partitions=partitions,
            partition=tp.partition,
            entries=[StateEntry(key=key, value=value) for key, value in portion],
        )
        await client.request_leader(tp, request)


def portions(pairs: Iterable[Pair]) -> Iterator[list[Pair]]:
    """Splits key-value pairs into lists, each small enough for one RestoreState request."""
    portion: list[Pair] = []
    key_bytes = size = 0
    for key, value in pairs:
        added = len(key) + len(value or b"")
        is_full = len(portion) == ENTRIES_MAX or key_bytes + len(key) > KEY_BYTES_MAX or size + added > REQUEST_BYTES
        if portion and is_full:
            yield portion
            portion, key_bytes, size = [], 0, 0
        portion.append((key, value))
        key_bytes += len(key)
        size += added
    if portion:
        yield portion
