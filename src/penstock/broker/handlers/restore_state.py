"""RestoreState: writes records to an internal topic that is paused for repair. Penstock's own API.

A value is accepted only by the partition that its key belongs to, and a deletion only by the other partitions: a
request sent by mistake can neither misplace state nor delete it.
"""

import asyncio
from typing import Final

from penstock.broker.broker import Broker
from penstock.broker.call import Call
from penstock.broker.internal_state import home_of
from penstock.broker.permissions import CLUSTER_ACTION
from penstock.broker.registry import handles
from penstock.broker.settings import PAUSED
from penstock.foundation.errors import (
    InvalidRecord,
    InvalidRequest,
    InvalidTopic,
    NotLeaderOrFollower,
    PenstockError,
)
from penstock.foundation.ids import INTERNAL_TOPICS
from penstock.records.build import build_pairs
from penstock.wire.keys import ApiKey
from penstock.wire.messages.restore_state import (
    BYTES_MAX,
    ENTRIES_MAX,
    KEY_BYTES_MAX,
    RestoreStateRequest,
    RestoreStateResponse,
)

COMMIT_S: Final = 20.0
"""Timeout, in seconds, for the records to be committed; then the request fails."""


@handles(ApiKey.RESTORE_STATE, CLUSTER_ACTION)
async def restore_state(request: RestoreStateRequest, call: Call, broker: Broker) -> RestoreStateResponse:
    try:
        pairs = _check(request, broker)
        await _append(request, pairs, broker)
    except PenstockError as error:
        return RestoreStateResponse(error_code=error.code, error_message=error.message)
    return RestoreStateResponse()


def _check(request: RestoreStateRequest, broker: Broker) -> list[tuple[bytes, bytes | None]]:
    if request.topic not in INTERNAL_TOPICS:
        raise InvalidTopic(f"topic {request.topic!r} is not internal; use Produce")
    if request.topic not in broker.configs[PAUSED]:
        raise InvalidRequest(f"{request.topic!r} is not paused ({PAUSED}); only its coordinators may write to it")
    count = len(broker.topic(request.topic).partitions)
    if count != request.partitions:
        raise NotLeaderOrFollower(  # clients refresh metadata and retry
            f"{request.topic!r} has {count} partitions in this broker's metadata; expected {request.partitions}"
        )
    pairs = [(bytes(entry.key), None if entry.value is None else bytes(entry.value)) for entry in request.entries]
    key_bytes = sum(len(key) for key, _ in pairs)
    size = key_bytes + sum(len(value or b"") for _, value in pairs)
    if not 1 <= len(pairs) <= ENTRIES_MAX or key_bytes > KEY_BYTES_MAX or size > BYTES_MAX:
        raise InvalidRequest(
            f"{len(pairs)} records of {size} bytes, {key_bytes} of them keys; expected 1 to {ENTRIES_MAX} records of"
            f" at most {BYTES_MAX} bytes, {KEY_BYTES_MAX} of them keys"
        )
    for key, value in pairs:
        home = home_of(request.topic, key, count)
        if home is None or (value is None) == (home == request.partition):
            what = "is deleted" if value is None else "is written"
            raise InvalidRecord(f"key {key.hex()} belongs to partition {home}, but {what} on {request.partition}")
    return pairs


async def _append(request: RestoreStateRequest, pairs: list[tuple[bytes, bytes | None]], broker: Broker) -> None:
    """Appends the records and returns when they are committed. Raises NotLeaderOrFollower after COMMIT_S."""
    partition = broker.partition(request.topic, b"", request.partition)
    partition.check_in_sync()
    now_ms = broker.clock.now_ms()
    end = partition.append_own(build_pairs(pairs, now_ms), now_ms, any_size=True).last_offset + 1
    settled = asyncio.Event()
    stop = broker.timer(COMMIT_S, settled.set)
    partition.when_committed(end, settled.set)
    await settled.wait()
    stop()
    if not partition.has_committed(end):
        raise NotLeaderOrFollower(f"{partition.name} did not commit the records; try again")
