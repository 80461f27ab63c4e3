"""Penstock's API 30000, CommitSet: the transactions of one Spark query, ended by one decision."""

from typing import Final

from penstock.wire.keys import ApiKey
from penstock.wire.schema import Array, Int8, Int16, Int32, Int64, String, field, request, response, struct

COMMIT: Final = 0
"""Commit the participants as one batch of the query, and abort whatever else the query has open."""
ABORT: Final = 1
"""Abort all that the query has open."""
FORGET: Final = 2
"""The same, and forget which of its batches were decided: the query is over."""
CLOSE: Final = 3
"""Abort all that the query has open, and decide no batch of it any more; which was the last one is answered."""

COMMITTED: Final = 0
DECIDED_BEFORE: Final = 1
"""This batch, or a later one, was committed earlier, by others, or the query is closed: those given were aborted."""
BATCH_ID_MAX: Final = (1 << 62) - 2

PARTICIPANTS_MAX: Final = 10_000
BROKEN_MAX: Final = 100
"""Of those that broke a set, so many are named."""


@struct
class CommitSetParticipant:
    transactional_id: String
    producer_id: Int64
    producer_epoch: Int16


@request(ApiKey.COMMIT_SET, versions="0", flexible="0+")
class CommitSetRequest:
    query: String
    action: Int8
    batch_id: Int64 = field(default=-1)
    participants: Array[CommitSetParticipant] = field(default=())


@struct
class CommitSetBroken:
    transactional_id: String
    error_code: Int16
    error_message: String | None


@response(ApiKey.COMMIT_SET, versions="0", flexible="0+")
class CommitSetResponse:
    throttle_time_ms: Int32
    error_code: Int16
    error_message: String | None
    outcome: Int8 = field(default=0)
    last_batch_id: Int64 = field(default=-1)
    aborted: Int32 = field(default=0)
    still_open: Int32 = field(default=0)
    broken: Array[CommitSetBroken] = field(default=())
