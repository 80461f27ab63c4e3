"""Client of the CommitSet API: commits the transactions of all tasks of a Spark micro-batch atomically.

Every request may be repeated after a lost connection: the decision on a batch is final. See
docs/decisions/0013-commit-set.md.
"""

from collections.abc import Sequence
from enum import Enum
from typing import NamedTuple

from penstock.client.cluster import KafkaClient
from penstock.client.errors import ServerError, check, error_code
from penstock.client.transactional import find_coordinator
from penstock.foundation.codes import ErrorCode
from penstock.foundation.errors import PenstockError
from penstock.foundation.spark_ids import coordinator_key_of, transactional_id
from penstock.wire.messages import commit_set as wire
from penstock.wire.messages.commit_set import CommitSetParticipant, CommitSetRequest, CommitSetResponse

__all__ = [
    "Broken",
    "Outcome",
    "Participant",
    "SetBroken",
    "abort_open",
    "close_query",
    "commit_set",
    "forget_query",
    "transactional_id",
]


class Participant(NamedTuple):
    """An open transaction of a Spark task. A task that has written nothing has none, so it is no participant."""

    transactional_id: str
    producer_id: int
    epoch: int


class Outcome(Enum):
    COMMITTED = wire.COMMITTED
    DECIDED_BEFORE = wire.DECIDED_BEFORE
    """This batch or a later one is committed already, or the Spark query is closed. The participants were aborted."""


class Broken(NamedTuple):
    """A transaction that could not be committed, and why."""

    transactional_id: str
    code: ErrorCode
    reason: str


class SetBroken(PenstockError):
    """A transaction of a Spark micro-batch timed out, was aborted or was fenced, so all others were aborted, too."""

    code = ErrorCode.INVALID_TXN_STATE

    def __init__(self, message: str, broken: tuple[Broken, ...] = ()) -> None:
        super().__init__(message)
        self.broken = broken
        """The transactions that could not be committed; only the first 100 of them if there are more."""


async def commit_set(
    cluster: KafkaClient, *, query: str, batch_id: int, participants: Sequence[Participant]
) -> Outcome:
    """Commits one micro-batch of a Spark query: all transactions in `participants`, atomically. Aborts the query's
    other open transactions. Raises SetBroken if a participant cannot be committed; then all are aborted.

    >>> done = await commit_set(client, query=query_id, batch_id=7, participants=participants)
    """
    if len(participants) > wire.PARTICIPANTS_MAX:
        raise ServerError(
            ErrorCode.RECORD_LIST_TOO_LARGE,
            f"batch {batch_id} was written in {len(participants)} transactions, at most {wire.PARTICIPANTS_MAX} can"
            " be committed at a time; write in fewer tasks (coalesce)",
        )
    request = CommitSetRequest(
        query=query,
        action=wire.COMMIT,
        batch_id=batch_id,
        participants=[
            CommitSetParticipant(
                transactional_id=one.transactional_id, producer_id=one.producer_id, producer_epoch=one.epoch
            )
            for one in participants
        ],
    )
    response = await _request(cluster, request)
    outcome = Outcome(response.outcome)
    if response.still_open:  # one decision aborts a limited number
        if response.broken or outcome is Outcome.COMMITTED:
            await abort_open(cluster, query=query)  # they belong to no later batch
        else:
            await _repeat_until_aborted(cluster, request)
    if response.broken:
        raise SetBroken(response.error_message or "commit failed", tuple(map(_broken, response.broken)))
    return outcome


async def abort_open(cluster: KafkaClient, *, query: str) -> int:
    """Aborts every open transaction of a Spark query; returns how many. Only safe while no task of it is running."""
    aborted = 0
    while True:
        response = await _request(cluster, CommitSetRequest(query=query, action=wire.ABORT))
        aborted += response.aborted
        if not response.still_open or not response.aborted:
            return aborted


async def close_query(cluster: KafkaClient, *, query: str) -> int:
    """Closes a Spark query: no further batch can commit. Returns the id of its last committed batch; -1 if none.

    A new driver calls this to find which batch to finish, even if the former driver is still alive. Open transactions
    of the query are aborted, and its running tasks cannot begin another transaction.
    """
    response = await _repeat_until_aborted(cluster, CommitSetRequest(query=query, action=wire.CLOSE))
    return response.last_batch_id


async def forget_query(cluster: KafkaClient, *, query: str) -> None:
    """Aborts a finished Spark query's open transactions; deletes the stored id of its last committed batch."""
    await _repeat_until_aborted(cluster, CommitSetRequest(query=query, action=wire.FORGET))


async def _repeat_until_aborted(cluster: KafkaClient, request: CommitSetRequest) -> CommitSetResponse:
    """Sends a request that aborts transactions until none of them is open; returns the last response."""
    while True:
        response = await _request(cluster, request)
        if not response.still_open or not response.aborted:
            return response


async def _request(cluster: KafkaClient, request: CommitSetRequest) -> CommitSetResponse:
    """Sends a CommitSet request to its Spark query's transaction coordinator, with retries; returns the response."""
    what = f"query {request.query!r}"

    async def attempt() -> CommitSetResponse:
        node_id = await find_coordinator(cluster, coordinator_key_of(request.query))
        response: CommitSetResponse = await cluster.request(node_id, request)
        if not response.broken:
            check(response.error_code, what, response.error_message)
        return response

    return await cluster.retrying(attempt)


def _broken(entry: wire.CommitSetBroken) -> Broken:
    return Broken(entry.transactional_id, error_code(entry.error_code), entry.error_message or "")
