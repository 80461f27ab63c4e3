"""Penstock's API 30000, CommitSet: commits or aborts the transactions of one Spark query atomically."""

from typing import Final

from penstock.wire.keys import ApiKey
from penstock.wire.schema import Array, Int8, Int16, Int32, Int64, String, field, request, response, struct

COMMIT: Final = 0
"""Action: commit the transactions in `participants` atomically, as one micro-batch of a Spark query; abort all other
open transactions of the query."""
ABORT: Final = 1
"""Action: abort all open transactions of the Spark query."""
FORGET: Final = 2
"""Action: like ABORT, and delete the id of the last batch that the Spark query committed, as the query has ended."""
CLOSE: Final = 3
"""Action: like ABORT, and commit no further batch of the Spark query; returns the id of its last committed batch."""

COMMITTED: Final = 0
DECIDED_BEFORE: Final = 1
"""Outcome of COMMIT: an earlier request has committed this batch with other transactions, or a later batch, or the
Spark query is closed. Nothing was committed, and transactions in `participants` that were still open are aborted."""
BATCH_ID_MAX: Final = (1 << 62) - 2

PARTICIPANTS_MAX: Final = 10_000
BROKEN_MAX: Final = 100
"""Maximum number of transactions that a response lists as the reason why nothing was committed."""


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
