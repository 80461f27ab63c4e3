"""Penstock's API 30000, CommitSet: commits or aborts the transactions of one Spark query atomically."""

from typing import Final

from penstock.wire.keys import ApiKey
from penstock.wire.schema import Array, Int8, Int16, Int32, Int64, String, field, request, response, struct

COMMIT: Final = 0
"""Action: commit the transactions in `participants` as one batch; abort all other open transactions of the query."""
ABORT: Final = 1
"""Action: abort all open transactions of the query."""
FORGET: Final = 2
"""Action: like ABORT, and delete the record of the query's committed batches, because the query has ended."""
CLOSE: Final = 3
"""Action: like ABORT, and accept no further batch; the response has the id of the last committed batch."""

COMMITTED: Final = 0
DECIDED_BEFORE: Final = 1
"""Outcome: an earlier request has committed this batch or a later one, or the query is closed. Transactions in
`participants` that were still open are aborted."""
BATCH_ID_MAX: Final = (1 << 62) - 2

PARTICIPANTS_MAX: Final = 10_000
BROKEN_MAX: Final = 100
"""Maximum number of failed participants listed in a response."""


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
