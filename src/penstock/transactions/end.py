"""EndTxn: how a transaction ends, and who asks again (KIP-98, KIP-890). Pure.

A client before transaction version 2 keeps its epoch, so that asking again looks like asking: it is answered by what
the transaction has become, once that is persisted again. Since then each transaction has its own epoch, and asking
again shows in the epoch:

                 abort: again | anew        commit: again | anew
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
from penstock.transactions.transaction import EPOCH_LAST, EPOCH_MAX, EPOCH_MOVES, EPOCH_STAYS, NO_EPOCH, Transaction
from penstock.wire.messages.end_txn import EndTxnRequest

UNCHANGED: Final = ProducerKey(NO_PRODUCER, NO_EPOCH)
"""What a client is told that keeps its epoch."""


def end(draft: Draft, request: EndTxnRequest, version: int, fresh_producer_id: int, now_ms: int) -> ProducerKey:
    """Decide how the transaction ends, and give who the producer is from now on."""
    known = find(draft, request.transactional_id)
    came = ProducerKey(request.producer_id, request.producer_epoch)
    if version < EPOCH_MOVES:
        _end_in_epoch(draft, known, came, request.committed, now_ms)
        return UNCHANGED
    return _end_and_move(draft, known, came, request.committed, fresh_producer_id, now_ms)


def _end_in_epoch(draft: Draft, known: Transaction, came: ProducerKey, committed: bool, now_ms: int) -> None:
    check_producer(known, came)
    check_not_ending(known)
    if known.state is State.ONGOING:
        draft.end(known.prepared(committed, EPOCH_STAYS, NO_PRODUCER, now_ms), now_ms)
    elif known.state is State.EMPTY or known.is_commit != committed:
        raise _nothing_to_end(known, committed)
    else:
        # It may be the end of a transaction that only the next coordinator knows of. Who has been replaced cannot
        # persist anything, and so does not say that it is done.
        draft.put(known)


def _end_and_move(
    draft: Draft, known: Transaction, came: ProducerKey, committed: bool, fresh_producer_id: int, now_ms: int
) -> ProducerKey:
    # Before the checks of the producer: it may come under the next producer id already (KAFKA-18660).
    check_not_ending(known)
    if _asks_again(known, came):
        if known.is_commit:
            if committed:
                return known.producer
            raise _nothing_to_end(known, committed)
        if committed:
            # Aborted by the coordinator: the producer was shut out, which is not its fault (KAFKA-20785).
            raise fenced(known, came)
        if known.epoch != EPOCH_MAX:
            return known.producer
        # The coordinator, when it aborted, had no other producer id at hand: it is given now (KAFKA-20090).
    else:
        check_producer(known, came)
        if committed and known.state is not State.ONGOING:
            raise _nothing_to_end(known, committed)
    if known.is_exhausted and fresh_producer_id == NO_PRODUCER:
        raise NeedsProducerId(f"{known.transactional_id!r}: the epochs of producer {known.producer_id} are used up")
    prepared = known.prepared(committed, EPOCH_MOVES, fresh_producer_id, now_ms)
    draft.end(prepared, now_ms)
    return prepared.next_producer or prepared.producer


def _asks_again(known: Transaction, came: ProducerKey) -> bool:
    """Whether this is who the producer was until its transaction ended, and nobody has taken over since.

    Kafka goes by the epochs alone. Where an older client has ended a transaction without raising its epoch, that
    would give its epoch to the producer before it.
    """
    if known.state not in (State.COMPLETE_COMMIT, State.COMPLETE_ABORT) or came.epoch == NO_EPOCH:
        return False
    if came.epoch != known.last_epoch:
        return False
    if came.producer_id == known.producer_id:
        return known.epoch == came.epoch + 1
    return came.producer_id == known.previous_producer_id and came.epoch == EPOCH_LAST and known.epoch == 0


def _nothing_to_end(known: Transaction, committed: bool) -> InvalidTransactionState:
    return InvalidTransactionState(
        f"{known.transactional_id!r} is {known.state.label}: there is nothing to {'commit' if committed else 'abort'}"
    )
