"""The transaction coordinator: state of all transactional ids of one partition of `__transaction_state`. Pure.

The outcome of a transaction is decided when its PrepareCommit or PrepareAbort record is persisted. After that,
markers are written to its partitions (`WriteMarkers`), which completes the transaction. See foundation/decision.py.
"""

from itertools import chain, count
from typing import Any, Final

from penstock.foundation.codes import ErrorCode
from penstock.foundation.decision import NO_PRODUCER, ClientRequest, Decision, ProducerKey, Reply, StateRecord, Ticket
from penstock.foundation.errors import InvalidRequest, PenstockError
from penstock.foundation.ids import GROUPS_TOPIC, TopicPartition
from penstock.foundation.timers import Timers
from penstock.transactions import add_partitions, commit_sets
from penstock.transactions.add_partitions import code_for_client
from penstock.transactions.commands import (
    AddOffsets,
    CommitPreparedSet,
    EndTransaction,
    InitProducer,
    JoinTransaction,
    MarkersWritten,
    WriteMarkers,
)
from penstock.transactions.description import describe, listing
from penstock.transactions.draft import Draft
from penstock.transactions.end import UNCHANGED, end
from penstock.transactions.errors import NeedsProducerId
from penstock.transactions.init_producer_id import check_request, initialise
from penstock.transactions.records import DECIDED, TRANSACTION, TransactionKey
from penstock.transactions.settings import TransactionSettings
from penstock.transactions.spark_queries import Queries, forgotten
from penstock.transactions.states import State
from penstock.transactions.transaction import NO_EPOCH, TV_0, TV_2, Transaction, tombstone
from penstock.wire.messages.add_offsets_to_txn import AddOffsetsToTxnResponse
from penstock.wire.messages.add_partitions_to_txn import AddPartitionsToTxnRequest
from penstock.wire.messages.commit_set import CommitSetRequest
from penstock.wire.messages.describe_transactions import DescribeTransactionsRequest, DescribeTransactionsResponse
from penstock.wire.messages.end_txn import EndTxnRequest, EndTxnResponse
from penstock.wire.messages.init_producer_id import InitProducerIdResponse
from penstock.wire.messages.list_transactions import ListTransactionsRequest
from penstock.wire.state import kind_of, read_key

EXPIRED_MAX: Final = 1000
"""Maximum number of transactional ids and closed Spark queries that one `wake` expires; later calls expire the
rest."""
WAKE_BYTES: Final = 64 << 10
"""Size of records, in bytes, at which `wake` stops ending transactions and leaves the rest to its next call."""
RETRY_MS: Final = 1000
"""Delay in milliseconds before the completion of a transaction is retried if it could not be persisted."""


class TransactionCoordinator:
    """The state machine of the transaction coordinator. The broker may replace `settings` and `coordinator_epoch` at
    any time."""

    def __init__(self, *, settings: TransactionSettings, coordinator_epoch: int) -> None:
        self.settings = settings
        self.coordinator_epoch = coordinator_epoch
        self.transactions: dict[str, Transaction] = {}
        self.queries = Queries()
        self._timeouts: Timers[str] = Timers()
        """Timers, by transactional id, for the timeouts of ongoing transactions."""
        self._finished: Timers[str] = Timers()
        """Timers, by transactional id, that retry the completion of transactions whose markers are written."""
        self._markers_in_flight: dict[str, tuple[int, int]] = {}
        """Coordinator epoch and sequence number of the last WriteMarkers in flight, by transactional id."""
        self._numbers = count()
        self._markers_to_rewrite: list[str] = []
        """Transactional ids that were in a Prepare state when loaded: their markers have to be written again."""
        self._loaded_ms = 0
        self._aborted_ms = 0
        self._expired_ms: int | None = None
        """Time, in milliseconds, of the last check for expired transactional ids and queries; None until loaded."""

    # -- deciding

    def decide(self, ticket: Ticket, command: Any, now_ms: int) -> Decision:
        draft = Draft(self.transactions, self.queries)
        match command:
            case JoinTransaction():
                value: Any = add_partitions.join(
                    draft,
                    command.transactional_id,
                    command.producer,
                    command.partitions,
                    command.verify_only,
                    now_ms,
                )
            case InitProducer():
                value = self._initialise(draft, command, now_ms)
            case AddOffsets():
                value = _add_offsets(draft, command, now_ms)
            case EndTransaction():
                value = _end(draft, command.request, command.fresh_producer_id, now_ms)
            case MarkersWritten():
                value = None
                self._complete(draft, command, now_ms)
            case ClientRequest():
                value = self._handle_request(draft, command, now_ms)
            case CommitPreparedSet():
                value = commit_sets.answer(draft, self.queries, command.request.body, now_ms, command.prepared)
            case _:
                raise InvalidRequest(f"the transaction coordinator does not handle {type(command).__name__}")
        return self._decision(draft, Reply(ticket=ticket, value=value))

    def _handle_request(self, draft: Draft, request: ClientRequest, now_ms: int) -> Any:
        body = request.body
        match body:
            case AddPartitionsToTxnRequest():
                asked = add_partitions.transactions_of(body, request.version)
                results = [add_partitions.answer(draft, wanted, request.version, now_ms) for wanted in asked]
                return add_partitions.response(results, request.version)
            case EndTxnRequest():
                return _end(draft, request, NO_PRODUCER, now_ms)
            case CommitSetRequest():
                return commit_sets.answer(draft, self.queries, body, now_ms)
            case DescribeTransactionsRequest():
                states = [describe(name, self.transactions.get(name)) for name in body.transactional_ids]
                return DescribeTransactionsResponse(throttle_time_ms=0, transaction_states=states)
            case ListTransactionsRequest():
                return listing(self.transactions.values(), body, now_ms)
        raise InvalidRequest(f"the transaction coordinator does not handle {type(body).__name__}")

    def _initialise(self, draft: Draft, command: InitProducer, now_ms: int) -> InitProducerIdResponse:
        request = command.request.body
        try:
            check_request(request, self.settings.timeout_max_ms)
            made = initialise(draft, request, command.fresh_producer_id, now_ms)
        except PenstockError as error:
            code, made = code_for_client(error.code, command.request.version, fenced_from=4), None
        else:
            code = ErrorCode.NONE if made else ErrorCode.CONCURRENT_TRANSACTIONS
        return InitProducerIdResponse(
            throttle_time_ms=0,
            error_code=code,
            producer_id=made.producer_id if made else NO_PRODUCER,
            producer_epoch=made.epoch if made else NO_EPOCH,
        )

    def _complete(self, draft: Draft, command: MarkersWritten, now_ms: int) -> None:
        """Completes a transaction if the command belongs to its last WriteMarkers; late reports are ignored."""
        known = self.transactions.get(command.transactional_id)
        is_last = self._markers_in_flight.get(command.transactional_id) == (command.coordinator_epoch, command.number)
        if known is not None and is_last and known.producer == (command.producer_id, command.epoch):
            self._finished.set(command.transactional_id, now_ms + RETRY_MS)
            draft.put(known.completed(now_ms))

    def _decision(self, draft: Draft, *replies: Reply) -> Decision:
        return Decision(
            persist=draft.records,
            replies=replies,
            effects=tuple(map(self._write_markers, draft.to_mark)),
            is_atomic=draft.is_atomic,
        )

    def _write_markers(self, transaction: Transaction) -> WriteMarkers:
        number, epoch = next(self._numbers), self.coordinator_epoch
        self._markers_in_flight[transaction.transactional_id] = (epoch, number)
        return WriteMarkers(
            transaction.transactional_id,
            transaction.producer,
            transaction.is_commit,
            epoch,
            transaction.partitions,
            transaction.version,
            number,
        )

    # -- waking

    @property
    def wake_at_ms(self) -> int | None:
        if self._markers_to_rewrite:
            return self._loaded_ms
        at_ms = self._expire_at_ms
        for other_ms in (self._finished.next_ms_lower_bound, self._abort_at_ms):
            if other_ms is not None and (at_ms is None or other_ms < at_ms):
                at_ms = other_ms
        return at_ms

    @property
    def _abort_at_ms(self) -> int | None:
        due_ms = self._timeouts.next_ms
        return None if due_ms is None else max(due_ms, self._aborted_ms + self.settings.abort_interval_ms)

    @property
    def _expire_at_ms(self) -> int | None:
        if self._expired_ms is None or not (self.transactions or self.queries.closed):
            return None
        return self._expired_ms + self.settings.expiry_interval_ms

    def wake(self, now_ms: int) -> Decision:
        if self._markers_to_rewrite:
            return self._rewrite_markers(now_ms)
        draft = Draft(self.transactions, self.queries)
        draft.is_atomic = True  # markers are written only if all of these records are persisted
        self._retry_completions(draft, now_ms)
        self._abort_timed_out(draft, now_ms)
        self._expire(draft, now_ms)
        return self._decision(draft)

    def _rewrite_markers(self, now_ms: int) -> Decision:
        """Requests markers again for transactions that were in a Prepare state when the coordinator was loaded.
        Persists no records, so it cannot fail."""
        effects = []
        for name in self._markers_to_rewrite:
            known = self.transactions[name]
            if known.partitions:
                effects.append(self._write_markers(known))
            else:
                self._finished.set(name, now_ms)
        self._markers_to_rewrite = []
        return Decision(effects=tuple(effects))

    def _retry_completions(self, draft: Draft, now_ms: int) -> None:
        while draft.size_bytes < WAKE_BYTES and (name := self._finished.take(now_ms)) is not None:
            self._finished.set(name, now_ms + RETRY_MS)
            draft.put(self.transactions[name].completed(now_ms))

    def _abort_timed_out(self, draft: Draft, now_ms: int) -> None:
        """Aborts timed-out transactions and fences their producers: late batches must not join a new transaction."""
        at_ms = self._abort_at_ms
        if at_ms is None or now_ms < at_ms:
            return
        again_ms = now_ms + self.settings.abort_interval_ms
        while draft.size_bytes < WAKE_BYTES:
            name = self._timeouts.take(now_ms)
            if name is None:
                self._aborted_ms = now_ms
                return
            self._timeouts.set(name, again_ms)
            known = self.transactions[name]
            # The producer may continue after the abort (KIP-588).
            draft.end(known.fenced(known.epoch, now_ms), now_ms)

    def _expire(self, draft: Draft, now_ms: int) -> None:
        at_ms = self._expire_at_ms
        if at_ms is None or now_ms < at_ms:
            return
        self._expired_ms = now_ms
        unused_since_ms = now_ms - self.settings.id_expiration_ms
        unused = (
            tombstone(name)
            for name, known in self.transactions.items()
            if known.is_at_rest and known.updated_ms <= unused_since_ms
        )
        closed = map(forgotten, self.queries.closed_until(unused_since_ms))
        for number, record in enumerate(chain(unused, closed)):
            if number == EXPIRED_MAX or draft.size_bytes >= WAKE_BYTES:
                self._expired_ms = now_ms + RETRY_MS - self.settings.expiry_interval_ms
                return
            draft.add_record(record)

    # -- state

    def apply(self, record: StateRecord, producer_id: int) -> None:
        kind = kind_of(record.key)
        if kind == DECIDED:
            self.queries.apply(record)
        if kind != TRANSACTION:
            return  # a kind of record of a newer broker is ignored
        key: TransactionKey = record.parsed[0] if record.parsed else read_key(TransactionKey, record.key)
        name = key.transactional_id
        before = self.transactions.get(name)
        if record.value is None:
            self.transactions.pop(name, None)
            self.queries.follow(name, False)
            self._forget(name)
            self._timeouts.cancel(name)
            return
        known = record.parsed[1] if record.parsed else Transaction.from_record(name, record.value)
        self.transactions[name] = known
        self.queries.follow(name, known.state is State.ONGOING)
        if not known.is_prepared:
            self._forget(name)
        if known.state is not State.ONGOING:
            self._timeouts.cancel(name)
        elif before is None or (before.state, before.started_ms) != (known.state, known.started_ms):
            self._timeouts.set(name, known.started_ms + known.timeout_ms + 1)

    def _forget(self, name: str) -> None:
        """Stops waiting for the markers of a transactional id (a late report is then ignored), and cancels the retry
        of its transaction's completion."""
        self._markers_in_flight.pop(name, None)
        self._finished.cancel(name)

    def end_transaction(self, producer_id: int, committed: bool) -> None:
        """Does nothing: no records of `__transaction_state` are transactional."""

    def loaded(self, now_ms: int) -> None:
        self._loaded_ms = self._expired_ms = now_ms
        # Producers that could not reach their coordinator get some time to end transactions that have timed out.
        self._aborted_ms = now_ms
        self._markers_to_rewrite = [name for name, known in self.transactions.items() if known.is_prepared]
        for name, known in self.transactions.items():
            if known.state is State.ONGOING and known.started_ms > now_ms:
                # Started by a broker whose clock is ahead: wait no longer than the timeout.
                self._timeouts.set(name, now_ms + known.timeout_ms + 1)


def _end(draft: Draft, request: ClientRequest, fresh_producer_id: int, now_ms: int) -> EndTxnResponse:
    version = TV_2 if request.version >= 5 else TV_0
    try:
        producer, code = end(draft, request.body, version, fresh_producer_id, now_ms), ErrorCode.NONE
    except NeedsProducerId:
        raise
    except PenstockError as error:
        producer, code = UNCHANGED, code_for_client(error.code, request.version, fenced_from=2)
    return EndTxnResponse(
        throttle_time_ms=0, error_code=code, producer_id=producer.producer_id, producer_epoch=producer.epoch
    )


def _add_offsets(draft: Draft, command: AddOffsets, now_ms: int) -> AddOffsetsToTxnResponse:
    """Adds the group's partition of `__consumer_offsets` to the transaction."""
    request, code = command.request.body, ErrorCode.NONE
    try:
        add_partitions.add(
            draft,
            request.transactional_id,
            ProducerKey(request.producer_id, request.producer_epoch),
            (TopicPartition(GROUPS_TOPIC, command.offsets_partition),),
            TV_0,
            now_ms,
        )
    except PenstockError as error:
        code = code_for_client(error.code, command.request.version, fenced_from=2)
    return AddOffsetsToTxnResponse(throttle_time_ms=0, error_code=code)
