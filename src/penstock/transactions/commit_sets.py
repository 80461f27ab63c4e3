"""CommitSet: many transactions of one Spark query, ended by one decision. Pure.

Every task writes in a transaction of its own and leaves it open; the query's driver then has all of them committed.
What is decided is one batch of records: that the query has come to this batch, and the PrepareCommit of every
participant. A log has all of that or nothing, and what is prepared is always finished. So it is committed whole, and
once:

the batch is           participants are           then
later than the last    all ongoing                decided: they are committed, all else that is open is aborted
later than the last    not all, as they are given refused: all that is open is aborted, and Spark repeats the batch
the last, or earlier   whatever they are          decided before: those of them that are ongoing are aborted
any, and it is closed  whatever they are          likewise: who closes a query knows for good what was decided

Who is committed or aborted here is shut out: its epoch is used up, and nothing that it still sends joins anything.
See docs/decisions/0013-commit-set.md.
"""

from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
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
"""Participants between two points at which preparing may be interrupted, less one."""
SET_BYTES_MAX: Final = 960 << 10
"""Of the records of one decision: they are one batch, and a topic takes batches of up to 1 MiB."""


def prepare_steps(
    known: Mapping[str, Transaction], request: CommitSetRequest, now_ms: int
) -> Steps[dict[str, Prepared]]:
    """Works out what committing many transactions would change, without deciding anything; interruptible.

    Raises InvalidRequest and SetTooLarge. Whatever else stands against it is found out when it is decided.
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
    """Decide what is asked of a query. Raises InvalidRequest, SetTooLarge, TooManyQueries: then nothing changes.

    `prepared`: what `prepare_steps` has worked out, which has checked the request, too.
    """
    check_query(request.query)
    draft.is_whole = True
    open_ids = queries.open_of(request.query)
    if request.action == COMMIT:
        if prepared is None:
            run_steps(_check_steps(request))
        return _commit(draft, queries, request, open_ids, now_ms, prepared or {})
    if request.action not in (ABORT, FORGET, CLOSE):
        raise InvalidRequest(f"CommitSet knows no action {request.action}; expected {COMMIT} to {CLOSE}")
    last_batch_id = queries.last_batch_of(request.query)
    if request.action == CLOSE and not queries.is_closed(request.query):
        _check_room(queries, request.query)
        draft.note(closed(request.query, last_batch_id, now_ms))
    if request.action == FORGET and request.query in queries.decided:
        draft.note(forgotten(request.query))
    aborted = _abort(draft, open_ids, now_ms)
    return _response(last_batch_id=last_batch_id, aborted=aborted, still_open=len(open_ids) - aborted)


def refuse(error: PenstockError) -> CommitSetResponse:
    """The answer where nothing could be decided."""
    return _response(error_code=error.code, error_message=error.message)


def _check_steps(request: CommitSetRequest) -> Steps[None]:
    """What can be said without knowing the transactions."""
    if not 0 <= request.batch_id <= BATCH_ID_MAX:
        raise InvalidRequest(
            f"batch {request.batch_id} of query {request.query!r}: batches are counted from 0 to {BATCH_ID_MAX}"
        )
    if len(request.participants) > PARTICIPANTS_MAX:
        raise SetTooLarge(
            f"{len(request.participants)} transactions at a time, at most {PARTICIPANTS_MAX}; write in fewer tasks"
        )
    names = [one.transactional_id for one in request.participants]
    for number, name in enumerate(names):
        if number & STEP_MASK == STEP_MASK:
            yield
        if query_of(name) != request.query:
            raise InvalidRequest(f"{name!r} is not of query {request.query!r}; expected spark/{request.query}/…")
    if len(set(names)) < len(names):
        ((twice, count),) = Counter(names).most_common(1)
        raise InvalidRequest(f"{twice!r} is named {count} times: a task has one transaction")


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
        return _repeat(draft, request, last_batch_id, now_ms)
    ready = {name: one for name, one in prepared.items() if draft.get(name) is one.known}
    others = (
        request.participants
        if not ready
        else [one for one in request.participants if one.transactional_id not in ready]
    )
    broken = [why for one in others if (why := _why_not(draft, one)) is not None]
    if broken:
        aborted = _abort(draft, open_ids, now_ms)
        return _response(
            error_code=ErrorCode.INVALID_TXN_STATE,
            error_message=_say(request, broken),
            last_batch_id=last_batch_id,
            aborted=aborted,
            still_open=len(open_ids) - aborted,
            broken=broken[:BROKEN_MAX],
        )
    _check_room(queries, request.query)
    decided = Decided(request.query, request.batch_id, now_ms, len(request.participants))
    draft.note(decided.to_record())
    for _, ended, record in ready.values():
        draft.put(ended, record)
    for one in others:
        draft.end(find(draft, one.transactional_id).committed_with_others(now_ms), now_ms)
    if draft.size_bytes > SET_BYTES_MAX:
        raise SetTooLarge(
            f"to commit {len(request.participants)} transactions takes {draft.size_bytes} bytes, at most"
            f" {SET_BYTES_MAX}; write in fewer tasks, or each of them to fewer partitions"
        )
    committed = {one.transactional_id for one in request.participants}
    left = [name for name in open_ids if name not in committed]
    aborted = _abort(draft, left, now_ms)
    return _response(last_batch_id=request.batch_id, aborted=aborted, still_open=len(left) - aborted)


def _check_room(queries: Queries, query: str) -> None:
    if query not in queries.decided and len(queries.decided) >= QUERIES_MAX:
        raise TooManyQueries(
            f"{len(queries.decided)} queries are remembered here, at most {QUERIES_MAX}; forget those that are over"
        )


def _repeat(draft: Draft, request: CommitSetRequest, last_batch_id: int, now_ms: int) -> CommitSetResponse:
    """Decided already. Only what is given is aborted: what else is open may belong to a later batch by now."""
    ongoing = [one.transactional_id for one in request.participants if _why_not(draft, one) is None]
    is_same = request.batch_id == last_batch_id and all(_was_committed(draft, one) for one in request.participants)
    aborted = _abort(draft, ongoing, now_ms)
    return _response(
        outcome=COMMITTED if is_same else DECIDED_BEFORE,
        last_batch_id=last_batch_id,
        aborted=aborted,
        still_open=len(ongoing) - aborted,
    )


def _why_not(draft: Draft, one: CommitSetParticipant) -> CommitSetBroken | None:
    """Why a transaction cannot be committed with the others: it is not ongoing under this very producer."""
    try:
        known = find(draft, one.transactional_id)
        check_producer(known, ProducerKey(one.producer_id, one.producer_epoch))
        if known.state is not State.ONGOING:
            raise InvalidTransactionState(
                f"{one.transactional_id!r} is {known.state.label}: it has written nothing, or was ended by itself"
            )
    except PenstockError as error:
        return CommitSetBroken(
            transactional_id=one.transactional_id, error_code=error.code, error_message=error.message
        )
    return None


def _was_committed(draft: Draft, one: CommitSetParticipant) -> bool:
    """Whether this is a transaction that was committed, and whose id nobody has used since."""
    known = draft.get(one.transactional_id)
    if known is None or not known.is_commit:
        return False
    return known.producer == (one.producer_id, min(one.producer_epoch + 1, EPOCH_MAX))


def _abort(draft: Draft, names: Iterable[str], now_ms: int) -> int:
    """Abort ongoing transactions, and shut their producers out. As many as fit into the batch; how many."""
    count = 0
    for name in names:
        aborted = find(draft, name).fenced(NO_EPOCH, now_ms)
        if draft.size_bytes + size_bytes_of(aborted.to_record()) > SET_BYTES_MAX:
            break
        draft.end(aborted, now_ms)
        count += 1
    return count


def _say(request: CommitSetRequest, broken: Sequence[CommitSetBroken]) -> str:
    return (
        f"batch {request.batch_id} of query {request.query!r} is not committed: {len(broken)} of its"
        f" {len(request.participants)} transactions are gone, first {broken[0].error_message}"
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
