"""EndTxn: commits or aborts a transaction, and answers retries (KIP-98, KIP-890). Pure.

Before transaction version 2 a client keeps its epoch, so a retry looks like a new request: it is answered from the
state of the transaction, after that state is persisted again. Since version 2 each transaction has its own epoch, by
which retries are recognised:

                 abort: retry | new         commit: retry | new
Empty            fenced       | aborts      fenced        | invalid
CompleteAbort    done         | aborts      fenced        | invalid
CompleteCommit   invalid      | aborts      done          | invalid
"""

from typing import Final

from penstock.foundation.decision import NO_PRODUCER, ProducerKey
from penstock.transactions.checks import check_not_ending, check_producer, fenced, find
from penstock.transactions.draft import Draft
from penstock.transactions.errors import InvalidTransactionState, NeedsProducerId
from penstock.transactions.states import State
from penstock.transactions.transaction import EPOCH_LAST, EPOCH_MAX, NO_EPOCH, TV_0, TV_2, Transaction
from penstock.wire.messages.end_txn import EndTxnRequest

UNCHANGED: Final = ProducerKey(NO_PRODUCER, NO_EPOCH)
"""Producer id and epoch in the response to clients that keep their epoch: -1 for both."""


def end(draft: Draft, request: EndTxnRequest, version: int, fresh_producer_id: int, now_ms: int) -> ProducerKey:
    """Commits or aborts the transaction. Returns the client's next producer id and epoch; before transaction version
    2, UNCHANGED. If no epoch is left, the next id is `fresh_producer_id`; if that is NO_PRODUCER, raises
    NeedsProducerId."""
    known = find(draft, request.transactional_id)
    claimed = ProducerKey(request.producer_id, request.producer_epoch)
    if version < TV_2:
        _end_keeping_epoch(draft, known, claimed, request.committed, now_ms)
        return UNCHANGED
    return _end_with_new_epoch(draft, known, claimed, request.committed, fresh_producer_id, now_ms)


def _end_keeping_epoch(draft: Draft, known: Transaction, claimed: ProducerKey, committed: bool, now_ms: int) -> None:
    check_producer(known, claimed)
    check_not_ending(known)
    if known.state is State.ONGOING:
        draft.end(known.prepared(committed, TV_0, NO_PRODUCER, now_ms), now_ms)
    elif known.state is State.EMPTY or known.is_commit != committed:
        raise _nothing_to_end(known, committed)
    else:
        # It may be for a transaction that only the next coordinator knows. A coordinator that was replaced cannot
        # persist anything, and so does not confirm it.
        draft.put(known)


def _end_with_new_epoch(
    draft: Draft, known: Transaction, claimed: ProducerKey, committed: bool, fresh_producer_id: int, now_ms: int
) -> ProducerKey:
    # Before check_producer: the client may use the next producer id already (KAFKA-18660).
    check_not_ending(known)
    if _is_retry(known, claimed):
        if known.is_commit:
            if committed:
                return known.producer
            raise _nothing_to_end(known, committed)
        if committed:
            # Aborted by the coordinator: the producer was fenced, the request is valid (KAFKA-20785).
            raise fenced(known, claimed)
        if known.epoch != EPOCH_MAX:
            return known.producer
        # The coordinator had no new producer id when it aborted: it is assigned now (KAFKA-20090).
    else:
        check_producer(known, claimed)
        if committed and known.state is not State.ONGOING:
            raise _nothing_to_end(known, committed)
    if known.is_exhausted and fresh_producer_id == NO_PRODUCER:
        raise NeedsProducerId(f"{known.transactional_id!r}: the epochs of producer {known.producer_id} are used up")
    prepared = known.prepared(committed, TV_2, fresh_producer_id, now_ms)
    draft.end(prepared, now_ms)
    return prepared.next_producer or prepared.producer


def _is_retry(known: Transaction, claimed: ProducerKey) -> bool:
    """Whether an EndTxn has the id and epoch of the last transaction, whose end gave the producer a new id or epoch.

    Kafka only checks that the epoch is one below the current epoch. This is also true for a fenced producer, if its
    successor has ended a transaction without raising the epoch (transaction version below 2).
    """
    if known.state not in (State.COMPLETE_COMMIT, State.COMPLETE_ABORT) or claimed.epoch == NO_EPOCH:
        return False
    if claimed.epoch != known.last_epoch:
        return False
    if claimed.producer_id == known.producer_id:
        return known.epoch == claimed.epoch + 1
    return claimed.producer_id == known.previous_producer_id and claimed.epoch == EPOCH_LAST and known.epoch == 0


def _nothing_to_end(known: Transaction, committed: bool) -> InvalidTransactionState:
    return InvalidTransactionState(
        f"{known.transactional_id!r} is {known.state.label}: no transaction to {'commit' if committed else 'abort'}"
    )
