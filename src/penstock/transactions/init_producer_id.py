"""InitProducerId with a transactional id: assigns id and epoch, fences older producers (KIP-98, KIP-360). Pure."""

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
"""Maximum length of a transactional id in bytes: that of a string in the protocol and in a record key."""


def check_request(request: InitProducerIdRequest, timeout_max_ms: int) -> None:
    """Validates the fields of the request that can be checked without transaction state."""
    if not request.transactional_id:
        raise InvalidRequest("the transactional id is empty; set a unique transactional.id for each producer")
    if len(request.transactional_id.encode()) > ID_BYTES_MAX:
        raise InvalidRequest(f"the transactional id is longer than {ID_BYTES_MAX} bytes")
    if (request.producer_id == NO_PRODUCER) != (request.producer_epoch == NO_EPOCH):
        raise InvalidRequest(
            f"producer id {request.producer_id} with epoch {request.producer_epoch}: set both, or neither"
        )
    if request.enable_2pc:
        raise TwoPhaseCommitRefused("two-phase commit (KIP-939) is not supported")
    if request.keep_prepared_txn:
        raise UnsupportedVersion("keeping a prepared transaction over InitProducerId (KIP-939) is not supported")
    if not 0 < request.transaction_timeout_ms <= timeout_max_ms:
        raise InvalidTransactionTimeout(
            f"transaction.timeout.ms is {request.transaction_timeout_ms}; expected 1 to {timeout_max_ms},"
            " which is the broker's transaction.max.timeout.ms"
        )


def initialise(
    draft: Draft, request: InitProducerIdRequest, fresh_producer_id: int, now_ms: int
) -> Transaction | None:
    """Returns the state of the transactional id after InitProducerId; None if an ongoing transaction is being aborted
    first, so that the client has to retry."""
    name, timeout_ms = request.transactional_id or "", request.transaction_timeout_ms
    claimed = None if request.producer_id == NO_PRODUCER else ProducerKey(request.producer_id, request.producer_epoch)
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
    if claimed is not None:
        _check_lineage(known, claimed)
    if known.state is State.ONGOING:
        # A retry of the same producer may continue after the abort; a new producer fences the old one for good.
        draft.end(known.fenced(NO_EPOCH if claimed is None else known.epoch, now_ms), now_ms)
        return None
    producer, last_epoch = _next_producer(known, claimed, fresh_producer_id)
    made = known.initialised(producer, last_epoch, timeout_ms, now_ms)
    draft.put(made)
    return made


def _check_lineage(known: Transaction, claimed: ProducerKey) -> None:
    """Raises ProducerFenced unless `claimed` is the current producer id and epoch; or, if no transaction is
    ongoing, the previous one, which a client still uses if the response with the current one was lost."""
    if claimed == known.producer:
        return
    # Kafka lets an old epoch of the same producer id abort the ongoing transaction; that has no use.
    missed_response = known.state is not State.ONGOING and claimed.epoch == known.last_epoch
    if missed_response and claimed.producer_id == known.producer_id:
        return
    if missed_response and claimed.producer_id == known.previous_producer_id and claimed.epoch >= EPOCH_LAST:
        return
    raise fenced(known, claimed)


def _next_producer(known: Transaction, claimed: ProducerKey | None, fresh_id: int) -> tuple[ProducerKey, int]:
    """Returns the producer id and epoch that InitProducerId assigns, and the `last_epoch` to store. `claimed`: id and
    epoch in the request; None for a new producer. If these are the previous ones, the last response was lost, and the
    current ones are assigned again. Otherwise the epoch is raised; if none is left, `fresh_id` is assigned."""
    if claimed is not None and claimed != known.producer and known.epoch != EPOCH_MAX:
        return known.producer, known.last_epoch  # a retry: no other producer was initialised since
    last_epoch = NO_EPOCH if claimed is None else claimed.epoch
    if known.is_exhausted:
        return ProducerKey(fresh_id, 0), last_epoch
    return ProducerKey(known.producer_id, known.epoch + 1), last_epoch
