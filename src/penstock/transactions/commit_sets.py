"""CommitSet: commits many transactions of one Spark query in one atomic decision. Pure.

Every Spark task writes in its own transaction and leaves it open; the query's driver then commits all of them. The
decision is one record batch: the query's last batch id, and the PrepareCommit of every participant. It is persisted
whole or not at all, and a prepared transaction is always completed. So the set is committed atomically, exactly once:

the batch is           participants are           result
later than the last    all ongoing                committed; all other open transactions of the query are aborted
later than the last    not all ongoing            refused: all open transactions are aborted, Spark repeats the batch
the last, or earlier   in any state               already committed: participants that are ongoing are aborted
any, query is closed   in any state               as above: a closed (ended) query commits no further batch

The producers of committed and aborted transactions are fenced: their epoch is used up, and late batches are refused.
See docs/decisions/0013-commit-set.md.
"""

from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from itertools import islice
from typing import Final

from penstock.foundation.codes import ErrorCode
from penstock.foundation.decision import ProducerKey
from penstock.foundation.errors import InvalidRequest, PenstockError
from penstock.foundation.spark_ids import check_query, query_of
from penstock.foundation.steps import Steps, run_steps
from penstock.transactions.checks import check_producer, find
from penstock.transactions.commands import Prepared
from penstock.transactions.draft import Draft, size_bytes_of
from penstock.transactions.errors import InvalidTransactionState, SetTooLarge, TooManyQueries
from penstock.transactions.spark_queries import NO_BATCH, QUERIES_MAX, Decided, Queries, closed, forgotten
from penstock.transactions.states import State
from penstock.transactions.transaction import EPOCH_MAX, NO_EPOCH, Transaction
from penstock.wire.messages.commit_set import (
    ABORT,
    BATCH_ID_MAX,
    BROKEN_MAX,
    CLOSE,
    COMMIT,
    COMMITTED,
    DECIDED_BEFORE,
    FORGET,
    PARTICIPANTS_MAX,
    CommitSetBroken,
    CommitSetParticipant,
    CommitSetRequest,
    CommitSetResponse,
)

STEP_MASK: Final = 31
"""Bit mask that makes the generators here yield after every STEP_MASK + 1 participants (transactions of Spark
tasks)."""
SET_BYTES_MAX: Final = 960 << 10
"""Maximum size, in bytes, of the records of one CommitSet (atomic commit of a Spark batch's transactions): they are
one record batch, which may have up to 1 MiB."""
ABORTED_MAX: Final = 250
"""Maximum number of transactions that one CommitSet aborts: aborting more would hold up the event loop. The response
counts the others in `still_open`, and clients send the request again."""


def prepare_steps(
    known: Mapping[str, Transaction], request: CommitSetRequest, now_ms: int
) -> Steps[dict[str, Prepared]]:
    """Computes the new states of all transactions that a CommitSet is to commit atomically, without changing any. A
    generator that yields regularly.

    Raises InvalidRequest and SetTooLarge. All other checks are made when the set is committed.
    """
    check_query(request.query)
    yield from _check_steps(request)
    prepared: dict[str, Prepared] = {}
    for number, one in enumerate(request.participants):
        if number & STEP_MASK == STEP_MASK:
            yield
        found = known.get(one.transactional_id)
        producer = one.producer_id, one.producer_epoch
        if found is not None and found.state is State.ONGOING and found.partitions and found.producer == producer:
            ended = found.committed_with_others(now_ms)
            prepared[one.transactional_id] = Prepared(found, ended, ended.to_record())
    return prepared


def answer(
    draft: Draft,
    queries: Queries,
    request: CommitSetRequest,
    now_ms: int,
    prepared: Mapping[str, Prepared] | None = None,
) -> CommitSetResponse:
    """Commits or aborts the open transactions of a Spark query, in one record batch, as a CommitSet request asks.
    Raises InvalidRequest, SetTooLarge or TooManyQueries; then nothing has changed.

    `queries`: all queries of the coordinator. `prepared`: the result of `prepare_steps`; None if it was not run.
    """
    check_query(request.query)
    draft.is_atomic = True
    open_ids = queries.open_of(request.query)
    if request.action == COMMIT:
        if prepared is None:
            run_steps(_check_steps(request))
        return _commit(draft, queries, request, open_ids, now_ms, prepared or {})
    if request.action not in (ABORT, FORGET, CLOSE):
        raise InvalidRequest(f"CommitSet has no action {request.action}; expected {COMMIT} to {CLOSE}")
    last_batch_id = queries.last_batch_of(request.query)
    if request.action == CLOSE and not queries.is_closed(request.query):
        _check_query_limit(queries, request.query)
        draft.add_record(closed(request.query, last_batch_id, now_ms))
    if request.action == FORGET and request.query in queries.decided:
        draft.add_record(forgotten(request.query))
    aborted = _abort(draft, open_ids, now_ms)
    return _response(last_batch_id=last_batch_id, aborted=aborted, still_open=len(open_ids) - aborted)


def refuse(error: PenstockError) -> CommitSetResponse:
    """Returns the response to a CommitSet (atomic commit of a Spark batch's transactions) that ended with an
    exception."""
    return _response(error_code=error.code, error_message=error.message)


def _check_steps(request: CommitSetRequest) -> Steps[None]:
    """Validates the fields of a CommitSet request that can be checked without the states of transactions. A
    generator, since a request may name many transactions."""
    if not 0 <= request.batch_id <= BATCH_ID_MAX:
        raise InvalidRequest(
            f"batch id {request.batch_id} of query {request.query!r} is invalid; expected 0 to {BATCH_ID_MAX}"
        )
    if len(request.participants) > PARTICIPANTS_MAX:
        raise SetTooLarge(
            f"CommitSet has {len(request.participants)} transactions, at most {PARTICIPANTS_MAX} are allowed;"
            " write in fewer tasks"
        )
    names = [one.transactional_id for one in request.participants]
    for number, name in enumerate(names):
        if number & STEP_MASK == STEP_MASK:
            yield
        if query_of(name) != request.query:
            raise InvalidRequest(f"{name!r} is not in query {request.query!r}; expected spark/{request.query}/…")
    if len(set(names)) < len(names):
        ((twice, count),) = Counter(names).most_common(1)
        raise InvalidRequest(f"{twice!r} is listed {count} times; each task has one transaction")


def _commit(
    draft: Draft,
    queries: Queries,
    request: CommitSetRequest,
    open_ids: Sequence[str],
    now_ms: int,
    prepared: Mapping[str, Prepared],
) -> CommitSetResponse:
    last_batch_id = queries.last_batch_of(request.query)
    if request.batch_id <= last_batch_id or queries.is_closed(request.query):
        return _answer_repeated(draft, request, last_batch_id, now_ms)
    ready = {name: one for name, one in prepared.items() if draft.get(name) is one.known}
    others = (
        request.participants
        if not ready
        else [one for one in request.participants if one.transactional_id not in ready]
    )
    broken = [why for one in others if (why := _find_problem(draft, one)) is not None]
    if broken:
        aborted = _abort(draft, open_ids, now_ms)
        return _response(
            error_code=ErrorCode.INVALID_TXN_STATE,
            error_message=_describe_broken(request, broken),
            last_batch_id=last_batch_id,
            aborted=aborted,
            still_open=len(open_ids) - aborted,
            broken=broken[:BROKEN_MAX],
        )
    _check_query_limit(queries, request.query)
    decided = Decided(request.query, request.batch_id, now_ms, len(request.participants))
    draft.add_record(decided.to_record())
    for _, ended, record in ready.values():
        draft.put(ended, record)
    for one in others:
        draft.end(find(draft, one.transactional_id).committed_with_others(now_ms), now_ms)
    if draft.size_bytes > SET_BYTES_MAX:
        raise SetTooLarge(
            f"committing {len(request.participants)} transactions takes {draft.size_bytes} bytes, at most"
            f" {SET_BYTES_MAX} are allowed; write in fewer tasks, or to fewer partitions per task"
        )
    committed = {one.transactional_id for one in request.participants}
    left = [name for name in open_ids if name not in committed]
    aborted = _abort(draft, left, now_ms)
    return _response(last_batch_id=request.batch_id, aborted=aborted, still_open=len(left) - aborted)


def _check_query_limit(queries: Queries, query: str) -> None:
    if query not in queries.decided and len(queries.decided) >= QUERIES_MAX:
        raise TooManyQueries(
            f"this coordinator has {len(queries.decided)} Spark queries, at most {QUERIES_MAX} are allowed;"
            " forget those that have ended"
        )


def _answer_repeated(draft: Draft, request: CommitSetRequest, last_batch_id: int, now_ms: int) -> CommitSetResponse:
    """Answers a CommitSet request for a batch that is already committed (at most `last_batch_id`), or for a closed
    Spark query. Commits nothing; aborts transactions of the request that are still open."""
    ongoing = [one.transactional_id for one in request.participants if _find_problem(draft, one) is None]
    is_same = request.batch_id == last_batch_id and all(_was_committed(draft, one) for one in request.participants)
    aborted = _abort(draft, ongoing, now_ms)
    return _response(
        outcome=COMMITTED if is_same else DECIDED_BEFORE,
        last_batch_id=last_batch_id,
        aborted=aborted,
        still_open=len(ongoing) - aborted,
    )


def _find_problem(draft: Draft, one: CommitSetParticipant) -> CommitSetBroken | None:
    """Returns why a transaction cannot be committed; None if it is ongoing with the given producer epoch."""
    try:
        known = find(draft, one.transactional_id)
        check_producer(known, ProducerKey(one.producer_id, one.producer_epoch))
        if known.state is not State.ONGOING:
            raise InvalidTransactionState(
                f"{one.transactional_id!r} is {known.state.label}: it has written nothing, or has ended already"
            )
    except PenstockError as error:
        return CommitSetBroken(
            transactional_id=one.transactional_id, error_code=error.code, error_message=error.message
        )
    return None


def _was_committed(draft: Draft, one: CommitSetParticipant) -> bool:
    """Whether the participant's transaction was committed and its transactional id has not been used since then."""
    known = draft.get(one.transactional_id)
    if known is None or not known.is_commit:
        return False
    return known.producer == (one.producer_id, min(one.producer_epoch + 1, EPOCH_MAX))


def _abort(draft: Draft, names: Iterable[str], now_ms: int) -> int:
    """Aborts ongoing transactions of the transactional ids `names` and fences their producers: at most ABORTED_MAX,
    and as many as fit into SET_BYTES_MAX with the draft's records. Returns the number of aborted transactions."""
    count = 0
    for name in islice(names, ABORTED_MAX):
        aborted = find(draft, name).fenced(NO_EPOCH, now_ms)
        record = aborted.to_record()
        if draft.size_bytes + size_bytes_of(record) > SET_BYTES_MAX:
            break
        draft.end(aborted, now_ms, record)
        count += 1
    return count


def _describe_broken(request: CommitSetRequest, broken: Sequence[CommitSetBroken]) -> str:
    return (
        f"batch {request.batch_id} of query {request.query!r} is not committed: {len(broken)} of its"
        f" {len(request.participants)} transactions are not open; first: {broken[0].error_message}"
    )


def _response(
    *,
    error_code: int = ErrorCode.NONE,
    error_message: str | None = None,
    outcome: int = COMMITTED,
    last_batch_id: int = NO_BATCH,
    aborted: int = 0,
    still_open: int = 0,
    broken: Sequence[CommitSetBroken] = (),
) -> CommitSetResponse:
    return CommitSetResponse(
        throttle_time_ms=0,
        error_code=error_code,
        error_message=error_message,
        outcome=outcome,
        last_batch_id=last_batch_id,
        aborted=aborted,
        still_open=still_open,
        broken=broken,
    )
