"""Transactions: messages that count all together or not at all."""

import logging
import threading
from collections import OrderedDict
from collections.abc import Callable
from datetime import datetime
from functools import partial
from types import TracebackType
from typing import Any, Final, Self

from confluent_kafka import KafkaError, KafkaException, Producer

from penstock.api.core.cluster_lookup import as_kafka
from penstock.api.core.delay_topics import HoldingTopics
from penstock.api.core.durations import Duration
from penstock.api.core.encoding import Encoded, encode
from penstock.api.core.message import Headers, Outgoing
from penstock.api.core.outlet import GRACE_S, Outlet, Ticket
from penstock.api.core.progress import Offsets
from penstock.api.core.settings import Settings, check_positive, transactional_config
from penstock.api.errors import (
    ApiError,
    Busy,
    Closed,
    Fenced,
    InvalidArgument,
    PublishFailed,
    TransactionAborted,
    aside,
    explain,
    kafka_error,
)
from penstock.foundation.clock import Clock
from penstock.foundation.codes import ErrorCode

CALL_S: Final = 1.0
"""How long one call to librdkafka waits before it is made again: in between, Ctrl-C is heard."""
CALL_S_MAX: Final = 16.0
"""The same for a call that begins anew when it is made again: each time it waits twice as long as before."""
WRITERS_MAX: Final = 16
"""Transactional ids that a connection keeps ready; the one that was used longest ago goes first."""

PASSING: Final = frozenset(
    {
        KafkaError._MSG_TIMED_OUT,
        KafkaError._TIMED_OUT,
        KafkaError._TRANSPORT,
        KafkaError.REQUEST_TIMED_OUT,
        KafkaError.NOT_ENOUGH_REPLICAS,
        KafkaError.NOT_ENOUGH_REPLICAS_AFTER_APPEND,
    }
)
"""Why a message may fail today and succeed tomorrow."""

log = logging.getLogger("penstock.api")


class Writer:
    """A transactional producer. One transaction at a time; any thread may send."""

    def __init__(
        self, settings: Settings, transactional_id: str, timeout_s: float, holding: HoldingTopics, clock: Clock
    ) -> None:
        self.transactional_id = transactional_id
        self.timeout_s = timeout_s
        self._settings = settings
        self._holding = holding
        self._clock = clock
        self._failed: KafkaError | None = None
        self._is_worn = False
        self._is_fatal = False
        self.is_broken = False
        """Nothing more can be done with it."""
        self._open()

    def _open(self) -> None:
        """Make the producer, and take over the transactional id."""
        config = transactional_config(self._settings, self.transactional_id, self.timeout_s)
        self._outlet = Outlet(self._settings, config, self._holding, self._clock)
        try:
            # librdkafka looks for its coordinator at once, and again after half a second: it should know a broker.
            self._insist(lambda timeout_s: self._meet(timeout_s), "connecting", is_resumed=False)
            # Whoever had this id before is fenced now, and what it left open is aborted.
            doing = f"beginning as {self.transactional_id!r}"
            self._insist(lambda timeout_s: self._producer.init_transactions(timeout_s), doing)
        except BaseException:
            self._outlet.close(0)
            raise

    @property
    def _producer(self) -> Producer:
        # Asked for at every use: an error that somebody keeps holds what its calls were given, and it would live on.
        return self._outlet.producer

    def _meet(self, timeout_s: float) -> None:
        self._producer.list_topics(timeout=timeout_s)

    def begin(self) -> None:
        self._failed = None
        self._call(lambda: self._producer.begin_transaction(), "beginning a transaction")

    def send(self, message: Encoded, *, is_waiting: bool = True) -> None:
        """Send a message within the transaction. What becomes of it, `commit` says. BufferError: not without waiting.

        TransactionAborted: an earlier message of the transaction has failed, and nothing of it counts; or another
        error if that message can never be published.
        """
        try:
            if is_waiting:
                self._outlet.send_waiting(message, self._settled)
            else:
                self._outlet.send(message, self._settled)
        except PublishFailed as error:
            if error.code is not ErrorCode.INVALID_TXN_STATE:
                raise
            # librdkafka knows that an earlier message has failed before we do; its reason is on its way.
            if not self._is_failed and not is_waiting:
                raise BufferError from error
            self._outlet.settle_all(GRACE_S, lambda: self._is_failed)
            doing = f"publishing in transaction {self.transactional_id!r}"
            aborted = TransactionAborted(f"{doing}: nothing of it counts: an earlier message has failed")
            raise (self.failure or aborted) from error

    def _settled(self, ticket: Ticket) -> None:
        # One failure has the others thrown away, and they may be heard of first: the reason is the one to keep.
        if ticket.error is not None and not self._is_failed:
            self._failed = ticket.error
            self._is_worn = True

    @property
    def _is_failed(self) -> bool:
        """Whether it is known why a message of this transaction has failed."""
        return self._failed is not None and self._failed.code() not in _PURGED

    @property
    def is_to_go(self) -> bool:
        """Whether it is of no use for another transaction.

        librdkafka counts a message that was refused, and the broker does not: the next would be out of sequence.
        """
        return self.is_broken or self._is_worn

    @property
    def failure(self) -> ApiError | None:
        """Why a message of this transaction cannot be published, today or tomorrow."""
        failed = self._failed
        if failed is None or not self._is_failed or failed.code() in PASSING:
            return None
        return self._outlet.failure(failed, f"publishing in transaction {self.transactional_id!r}")

    def commit(self, offsets: Offsets | None = None, group: Any = None) -> None:
        """Everything counts. TransactionAborted, or another error if there is no point in trying again: nothing does.

        NotConnected: nobody knows yet; the coordinator does, and the next one with this id hears of it.
        """
        doing = f"committing transaction {self.transactional_id!r}"
        try:
            if offsets:
                # Checked against the group's members (KIP-447): who lost a partition cannot commit for it.
                self._insist(
                    lambda timeout_s: self._producer.send_offsets_to_transaction(as_kafka(offsets), group, timeout_s),
                    doing,
                    is_resumed=False,
                )
            self._insist(lambda timeout_s: self._producer.commit_transaction(timeout_s), doing)
        except TransactionAborted as error:
            self.abort()
            self._outlet.settle_all(GRACE_S)  # so that it is known what went wrong
            raise (self.failure or error) from error

    def abort(self) -> None:
        """Nothing counts."""
        doing = f"aborting transaction {self.transactional_id!r}"
        try:
            self._insist(lambda timeout_s: self._producer.abort_transaction(timeout_s), doing)
        except PublishFailed as error:
            if not self._is_fatal:
                raise
            # A coordinator that was killed before it knew of the transaction refuses to abort it (INVALID_TXN_STATE),
            # and librdkafka gives its producer up. A new one aborts whatever is open under this id.
            log.warning("producer_replaced transactional_id=%s reason=%r", self.transactional_id, str(error))
            self._outlet.close(0)
            self._open()
            self.is_broken = self._is_worn = self._is_fatal = False

    def _insist(self, call: Callable[[float], None], doing: str, *, is_resumed: bool = True) -> None:
        """Make a call that is safe to repeat, until it is answered.

        `is_resumed`: whether the next call goes on where the last one was. One that begins anew needs more time each
        time, or a cluster that answers slowly would never be heard.
        """
        give_up_s = self._clock.monotonic_s() + self._settings.timeout_s + GRACE_S
        wait_s = CALL_S
        while True:
            try:
                return self._call(partial(call, wait_s), doing)
            except _TryAgain as error:
                left_s = give_up_s - self._clock.monotonic_s()
                if left_s <= 0:
                    self.is_broken = True
                    raise error.failure from error
            if not is_resumed:
                wait_s = max(CALL_S, min(2 * wait_s, CALL_S_MAX, left_s))

    def _call(self, call: Callable[[], None], doing: str) -> None:
        try:
            call()
        except KafkaException as caught:
            error = kafka_error(caught)
            failure = explain(error, doing, PublishFailed)
            if error.fatal() or isinstance(failure, Fenced):
                self.is_broken = True
                self._is_fatal = error.fatal()
                raise failure from caught
            if error.txn_requires_abort():
                raise TransactionAborted(f"{doing}: nothing of it counts: {error.str()}", failure.code) from caught
            if error.retriable() or error.code() in _UNANSWERED:
                raise _TryAgain(explain(error, doing, PublishFailed, self._settings.servers)) from caught
            self.is_broken = True
            raise failure from caught
        except BaseException:
            self.is_broken = True  # Ctrl-C in the middle of it: nobody knows how far it came
            raise

    def begin_closing(self) -> None:
        self._outlet.begin_closing()

    def close(self) -> None:
        self._outlet.close(0 if self.is_broken else self._settings.timeout_s)


_UNANSWERED: Final = frozenset({KafkaError._TIMED_OUT, KafkaError._TRANSPORT, KafkaError._ALL_BROKERS_DOWN})
"""What is not called retriable where librdkafka only says that nobody has answered."""
_PURGED: Final = frozenset({KafkaError._PURGE_QUEUE, KafkaError._PURGE_INFLIGHT})
"""Messages that an abort threw away."""


class _TryAgain(Exception):
    def __init__(self, failure: ApiError) -> None:
        super().__init__(str(failure))
        self.failure = failure


class Writers:
    """The transactional producers of a connection, kept ready for the next transaction of their id."""

    def __init__(self, settings: Settings, holding: HoldingTopics, clock: Clock) -> None:
        self._settings = settings
        self._holding = holding
        self._clock = clock
        self._lock = threading.Lock()
        self._idle: OrderedDict[str, Writer] = OrderedDict()
        self._busy: set[str] = set()
        self._is_closed = False

    def borrow(self, transactional_id: str, timeout_s: float) -> Writer:
        with self._lock:
            if self._is_closed:
                raise Closed("the connection is closed; connect again")
            if transactional_id in self._busy:
                raise Busy(
                    f"transaction {transactional_id!r} is open already; end it first, or use another id",
                    ErrorCode.CONCURRENT_TRANSACTIONS,
                )
            self._busy.add(transactional_id)
            writer = self._idle.pop(transactional_id, None)
        if writer is not None and writer.timeout_s == timeout_s:
            return writer
        try:
            if writer is not None:
                writer.close()  # the new one fences it
            return Writer(self._settings, transactional_id, timeout_s, self._holding, self._clock)
        except BaseException:
            self._busy.discard(transactional_id)
            raise

    def give_back(self, writer: Writer) -> None:
        leaving = []
        with self._lock:
            self._busy.discard(writer.transactional_id)
            if writer.is_to_go or self._is_closed:
                leaving.append(writer)
            else:
                self._idle[writer.transactional_id] = writer
                if len(self._idle) > WRITERS_MAX:
                    leaving.append(self._idle.popitem(last=False)[1])
        for each in leaving:
            each.close()

    def close(self) -> None:
        with self._lock:
            self._is_closed = True
            idle, self._idle = self._idle, OrderedDict()
        for writer in idle.values():
            writer.begin_closing()
        for writer in idle.values():
            writer.close()


class Transaction:
    """Messages that count all together or not at all. The end of the block commits; an exception aborts.

    with mq.transaction("billing-1") as tx:
        tx.publish("invoices", {"id": 1})
        tx.publish("audit", {"invoice": 1})

    publish() does not wait: whether everything has arrived is known at the end.
    """

    def __init__(self, writers: Writers, transactional_id: str, timeout_s: float) -> None:
        self._writers = writers
        self._id = transactional_id
        self._timeout_s = timeout_s
        self._writer: Writer | None = None
        self.published = 0
        """Messages so far."""

    @property
    def is_open(self) -> bool:
        """Whether messages can be published now.

        assert tx.is_open
        """
        return self._writer is not None

    def __enter__(self) -> Self:
        if self._writer is not None:
            raise Busy(f"transaction {self._id!r} is open already", ErrorCode.CONCURRENT_TRANSACTIONS)
        writer = self._writers.borrow(self._id, self._timeout_s)
        try:
            writer.begin()
        except BaseException:
            self._writers.give_back(writer)
            raise
        self._writer = writer
        self.published = 0
        return self

    def publish(
        self,
        topic: str,
        value: object,
        *,
        key: str | bytes | None = None,
        headers: Headers | None = None,
        tag: str | None = None,
        partition: int | None = None,
        timestamp: datetime | int | None = None,
        delay: Duration | None = None,
        deliver_at: datetime | int | None = None,
    ) -> None:
        """Publish a message that counts when the transaction commits.

        tx.publish("invoices", {"id": 1}, key="42")
        """
        message = Outgoing(
            value,
            key=key,
            headers=headers,
            tag=tag,
            partition=partition,
            timestamp=timestamp,
            delay=delay,
            deliver_at=deliver_at,
        )
        self._send(encode(topic, message))

    def _send(self, message: Encoded, *, is_waiting: bool = True) -> None:
        writer = self._writer
        if writer is None:
            raise Closed("this transaction is not open; publish within its `with` block")
        failure = writer.failure
        if failure is not None:
            raise failure
        writer.send(message, is_waiting=is_waiting)
        self.published += 1

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        writer, self._writer = self._writer, None
        assert writer is not None
        try:
            if error is None:
                writer.commit()
            elif not writer.is_broken:
                # If it cannot be aborted now, the cluster does so when its time is up: nothing counts in any case.
                with aside(error):
                    writer.abort()
        finally:
            self._writers.give_back(writer)


def transaction_of(writers: Writers, transactional_id: str, timeout_s: float) -> Transaction:
    if not transactional_id:
        raise InvalidArgument("a transaction needs an id: a name that no other process uses")
    check_positive("transaction_timeout_s", timeout_s)
    return Transaction(writers, transactional_id, timeout_s)
