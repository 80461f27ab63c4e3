"""InitProducerId with a transactional id: who the producer is, and who it is no longer (KIP-98, KIP-360). Pure."""

from typing import Final

from penstock.foundation.decision import NO_PRODUCER, ProducerKey
from penstock.foundation.errors import InvalidRequest
from penstock.transactions.checks import check_not_ending, check_query_not_closed, fenced
from penstock.transactions.draft import Draft
from penstock.transactions.errors import InvalidTransactionTimeout, TwoPhaseCommitRefused, UnsupportedVersion
from penstock.transactions.states import State
from penstock.transactions.transaction import EPOCH_LAST, EPOCH_MAX, NO_EPOCH, Transaction
from penstock.wire.messages.init_producer_id import InitProducerIdRequest

ID_BYTES_MAX: Final = 2**15 - 1
"""As long as a string of the protocol, and of a record's key, can be."""


def check_request(request: InitProducerIdRequest, timeout_max_ms: int) -> None:
    """What can be said without knowing the transactional id."""
    if not request.transactional_id:
        raise InvalidRequest("the transactional id is empty; give the producer one of its own")
    if len(request.transactional_id.encode()) > ID_BYTES_MAX:
        raise InvalidRequest(f"the transactional id is longer than {ID_BYTES_MAX} bytes")
    if (request.producer_id == NO_PRODUCER) != (request.producer_epoch == NO_EPOCH):
        raise InvalidRequest(
            f"producer id {request.producer_id} with epoch {request.producer_epoch}: give both, or neither"
        )
    if request.enable_2pc:
        raise TwoPhaseCommitRefused("transactions that outlive their timeout (KIP-939) are not offered")
    if request.keep_prepared_txn:
        raise UnsupportedVersion("a transaction cannot be kept over InitProducerId (KIP-939)")
    if not 0 < request.transaction_timeout_ms <= timeout_max_ms:
        raise InvalidTransactionTimeout(
            f"transaction.timeout.ms is {request.transaction_timeout_ms}; expected 1 to {timeout_max_ms},"
            " which is the broker's transaction.max.timeout.ms"
        )


def initialise(
    draft: Draft, request: InitProducerIdRequest, fresh_producer_id: int, now_ms: int
) -> Transaction | None:
    """The id with its producer, ready to begin. None: its transaction is aborted first; ask again."""
    name, timeout_ms = request.transactional_id or "", request.transaction_timeout_ms
    came = None if request.producer_id == NO_PRODUCER else ProducerKey(request.producer_id, request.producer_epoch)
    check_query_not_closed(draft, name)
    known = draft.get(name)
    if known is None:
        made = Transaction(
            transactional_id=name,
            producer_id=fresh_producer_id,
            epoch=0,
            timeout_ms=timeout_ms,
            updated_ms=now_ms,
        )
        draft.put(made)
        return made
    check_not_ending(known)
    if came is not None:
        _check_lineage(known, came)
    if known.state is State.ONGOING:
        # Who is asking again has missed nothing yet; who takes over leaves the old producer no way back.
        draft.end(known.fenced(NO_EPOCH if came is None else known.epoch, now_ms), now_ms)
        return None
    producer, last_epoch = _next_producer(known, came, fresh_producer_id)
    made = known.initialised(producer, last_epoch, timeout_ms, now_ms)
    draft.put(made)
    return made


def _check_lineage(known: Transaction, came: ProducerKey) -> None:
    """Only the present producer, or who it was before an answer that it missed, may go on (KIP-360)."""
    if came == known.producer:
        return
    # Kafka lets an old epoch of the same producer id abort the transaction under way; nobody gains by that.
    missed_answer = known.state is not State.ONGOING and came.epoch == known.last_epoch
    if missed_answer and came.producer_id == known.producer_id:
        return
    if missed_answer and came.producer_id == known.previous_producer_id and came.epoch >= EPOCH_LAST:
        return
    raise fenced(known, came)


def _next_producer(known: Transaction, came: ProducerKey | None, fresh_producer_id: int) -> tuple[ProducerKey, int]:
    """Who the producer is from now on, and the epoch by which its own retries are known."""
    if came is not None and came != known.producer and known.epoch != EPOCH_MAX:
        return known.producer, known.last_epoch  # it asks again: nobody else has come since
    last_epoch = NO_EPOCH if came is None else came.epoch
    if known.is_exhausted:
        return ProducerKey(fresh_producer_id, 0), last_epoch
    return ProducerKey(known.producer_id, known.epoch + 1), last_epoch
