"""CommitSet from the outside: what a Spark query's tasks have written is committed by one decision, or not at all.

Everything here may be asked again, and is, when a connection was lost before the answer: a batch that was decided
stays decided. See docs/decisions/0013-commit-set.md.
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
    """A transaction that a task has written in, and left open. Who has written nothing has none, and is left out."""

    transactional_id: str
    producer_id: int
    epoch: int


class Outcome(Enum):
    COMMITTED = wire.COMMITTED
    DECIDED_BEFORE = wire.DECIDED_BEFORE
    """This batch of the query was decided already, or the query is closed: the transactions given were aborted."""


class Broken(NamedTuple):
    """One that could not be committed, and why."""

    transactional_id: str
    code: ErrorCode
    reason: str


class SetBroken(PenstockError):
    """A transaction is gone: timed out, aborted, or taken over. Nothing was committed, and the others are aborted."""

    code = ErrorCode.INVALID_TXN_STATE

    def __init__(self, message: str, broken: tuple[Broken, ...] = ()) -> None:
        super().__init__(message)
        self.broken = broken
        """The first of those that are gone."""


async def commit_set(
    cluster: KafkaClient, *, query: str, batch_id: int, participants: Sequence[Participant]
) -> Outcome:
    """Commit one batch of a query, and abort whatever else the query has open. Raises SetBroken.

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
    answer = await _ask(cluster, request)
    outcome = Outcome(answer.outcome)
    is_over = bool(answer.broken) or outcome is Outcome.COMMITTED
    if answer.still_open and is_over:  # more than one decision can abort; what is open belongs to no later batch yet
        await abort_open(cluster, query=query)
    if answer.broken:
        raise SetBroken(answer.error_message or "the set is broken", tuple(map(_broken, answer.broken)))
    return outcome


async def abort_open(cluster: KafkaClient, *, query: str) -> int:
    """Abort every open transaction of a query; how many there were. For who knows that no task is at work."""
    aborted = 0
    while True:
        answer = await _ask(cluster, CommitSetRequest(query=query, action=wire.ABORT))
        aborted += answer.aborted
        if not answer.still_open or not answer.aborted:
            return aborted


async def close_query(cluster: KafkaClient, *, query: str) -> int:
    """The last batch of a query that was decided (-1: none), once and for all: no other is decided any more.

    Whoever has to finish what another one began learns by it what that was, however alive the other one still is.
    What the query has open is aborted, and tasks of it that are still at work can begin no other transaction.
    """
    while True:
        answer = await _ask(cluster, CommitSetRequest(query=query, action=wire.CLOSE))
        if not answer.still_open or not answer.aborted:
            return answer.last_batch_id


async def forget_query(cluster: KafkaClient, *, query: str) -> None:
    """A query is over: what it left open is aborted, and which of its batches were decided is forgotten."""
    await _ask(cluster, CommitSetRequest(query=query, action=wire.FORGET))


async def _ask(cluster: KafkaClient, request: CommitSetRequest) -> CommitSetResponse:
    """Ask whoever coordinates the query now, until there is an answer or time is up."""
    what = f"query {request.query!r}"

    async def ask() -> CommitSetResponse:
        node_id = await find_coordinator(cluster, coordinator_key_of(request.query))
        response: CommitSetResponse = await cluster.request(node_id, request)
        if not response.broken:
            check(response.error_code, what, response.error_message)
        return response

    return await cluster.retrying(ask)


def _broken(entry: wire.CommitSetBroken) -> Broken:
    return Broken(entry.transactional_id, error_code(entry.error_code), entry.error_message or "")
