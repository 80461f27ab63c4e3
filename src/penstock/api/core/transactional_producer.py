"""Transactional producers over librdkafka, and their pool."""

import logging
import threading
from collections import OrderedDict
from collections.abc import Callable
from functools import partial
from typing import Any, Final

from confluent_kafka import KafkaError, KafkaException, Producer

from penstock.api.core.background_producer import GRACE_S, BackgroundProducer, DeliveryReport
from penstock.api.core.cluster_lookup import to_kafka
from penstock.api.core.delay_topics import DelayTopics
from penstock.api.core.encoding import Encoded
from penstock.api.core.position_tracker import Offsets
from penstock.api.core.settings import Settings, transactional_config
from penstock.api.errors import (
    ApiError,
    Busy,
    Closed,
    Fenced,
    PublishFailed,
    TransactionAborted,
    explain,
    kafka_error,
)
from penstock.foundation.clock import Clock
from penstock.foundation.codes import ErrorCode

CALL_S: Final = 1.0
"""Timeout, in seconds, of one call to librdkafka. The call is then repeated; Ctrl-C takes effect between calls."""
CALL_S_MAX: Final = 16.0
"""Maximum, in seconds, of a timeout that starts at CALL_S and doubles each time a call is repeated from scratch."""
IDLE_PRODUCERS_MAX: Final = 16
"""Maximum number of idle transactional producers of a connection; the least recently used is closed first."""

TRANSIENT_CODES: Final = frozenset(
    {
        KafkaError._MSG_TIMED_OUT,
        KafkaError._TIMED_OUT,
        KafkaError._TRANSPORT,
        KafkaError.REQUEST_TIMED_OUT,
        KafkaError.NOT_ENOUGH_REPLICAS,
        KafkaError.NOT_ENOUGH_REPLICAS_AFTER_APPEND,
    }
)
"""Error codes of failed deliveries after which sending the same message later may succeed."""

log = logging.getLogger("penstock.api")


class TransactionalProducer:
    """A transactional producer. Runs one transaction at a time; any thread may send messages in it."""

    def __init__(
        self, settings: Settings, transactional_id: str, timeout_s: float, delay_topics: DelayTopics, clock: Clock
    ) -> None:
        self.transactional_id = transactional_id
        self.timeout_s = timeout_s
        self._settings = settings
        self._delay_topics = delay_topics
        self._clock = clock
        self._failed: KafkaError | None = None
        self._has_failed_message = False
        self._is_fatal = False
        self.is_broken = False
        """Whether the producer is unusable after an error."""
        self._open()

    def _open(self) -> None:
        """Creates the producer, and fences earlier producers with the same transactional id."""
        config = transactional_config(self._settings, self.transactional_id, self.timeout_s)
        self._producer = BackgroundProducer(self._settings, config, self._delay_topics, self._clock)
        try:
            # librdkafka looks up its coordinator at once, and again after half a second: it should know a broker.
            self._retry_call(lambda timeout_s: self._connect(timeout_s), "connecting", resumes=False)
            # Fences the previous producer with this id, and aborts its open transaction.
            doing = f"initializing transactional id {self.transactional_id!r}"
            self._retry_call(lambda timeout_s: self._kafka.init_transactions(timeout_s), doing)
        except BaseException:
            self._producer.close(0)
            raise

    @property
    def _kafka(self) -> Producer:
        # Not passed to the calls: the traceback of an error that is kept would keep the producer alive.
        return self._producer.kafka_producer

    def _connect(self, timeout_s: float) -> None:
        self._kafka.list_topics(timeout=timeout_s)

    def begin(self) -> None:
        self._failed = None
        self._call(lambda: self._kafka.begin_transaction(), "beginning a transaction")

    def send(self, message: Encoded, *, is_waiting: bool = True) -> None:
        """Sends a message in the transaction; `commit` checks its delivery. Raises BufferError if sending must wait
        and `is_waiting` is False.

        If an earlier message of the transaction has failed: raises its error if permanent, else TransactionAborted.
        """
        try:
            if is_waiting:
                self._producer.send_waiting(message, self._on_delivery)
            else:
                self._producer.send(message, self._on_delivery)
        except PublishFailed as error:
            if error.code is not ErrorCode.INVALID_TXN_STATE:
                raise
            # librdkafka knows that an earlier message has failed before its delivery report arrives.
            if not self._is_failed and not is_waiting:
                raise BufferError from error
            self._producer.flush(GRACE_S, lambda: self._is_failed)
            doing = f"publishing in transaction {self.transactional_id!r}"
            aborted = TransactionAborted(f"{doing}: it was aborted: an earlier message has failed")
            raise (self.failure or aborted) from error

    def _on_delivery(self, report: DeliveryReport) -> None:
        # After one failure the others are purged, and may be reported first: keep the error that is the cause.
        if report.error is not None and not self._is_failed:
            self._failed = report.error
            self._has_failed_message = True

    @property
    def _is_failed(self) -> bool:
        """Whether a message of this transaction has failed; messages purged after another failure do not count."""
        return self._failed is not None and self._failed.code() not in _PURGED_CODES

    @property
    def must_be_replaced(self) -> bool:
        """Whether this producer cannot be used for another transaction.

        After a rejected message, librdkafka's next sequence number is higher than the broker expects.
        """
        return self.is_broken or self._has_failed_message

    @property
    def failure(self) -> ApiError | None:
        """The permanent error of a message of this transaction; None if no message failed permanently."""
        failed = self._failed
        if failed is None or not self._is_failed or failed.code() in TRANSIENT_CODES:
            return None
        return self._producer.failure(failed, f"publishing in transaction {self.transactional_id!r}")

    def commit(self, offsets: Offsets | None = None, group: Any = None) -> None:
        """Commits the transaction, with `offsets` of the consumer group whose metadata is `group`. Raises
        TransactionAborted if the transaction was aborted and can be run again, or a permanent error.

        After NotConnected the outcome is unknown; the coordinator completes this transaction before the next one with
        the same transactional id.
        """
        doing = f"committing transaction {self.transactional_id!r}"
        try:
            if offsets:
                # Fenced by the group's members (KIP-447): a member that lost a partition cannot commit for it.
                self._retry_call(
                    lambda timeout_s: self._kafka.send_offsets_to_transaction(to_kafka(offsets), group, timeout_s),
                    doing,
                    resumes=False,
                )
            self._retry_call(lambda timeout_s: self._kafka.commit_transaction(timeout_s), doing)
        except TransactionAborted as error:
            self.abort()
            self._producer.flush(GRACE_S)  # until the cause is reported
            raise (self.failure or error) from error

    def abort(self) -> None:
        doing = f"aborting transaction {self.transactional_id!r}"
        try:
            self._retry_call(lambda timeout_s: self._kafka.abort_transaction(timeout_s), doing)
        except PublishFailed as error:
            if not self._is_fatal:
                raise
            # A coordinator that was killed before it knew of the transaction refuses to abort it (INVALID_TXN_STATE),
            # which is fatal to librdkafka's producer. A new one aborts any open transaction of this id.
            log.warning("producer_replaced transactional_id=%s reason=%r", self.transactional_id, str(error))
            self._producer.close(0)
            self._open()
            self.is_broken = self._has_failed_message = self._is_fatal = False

    def _retry_call(self, call: Callable[[float], None], doing: str, *, resumes: bool = True) -> None:
        """Repeats a librdkafka call that is safe to repeat, until the cluster answers or the deadline has passed.

        `resumes`: whether a repeated call continues the previous call; if False, the timeout doubles with each call.
        """
        deadline_s = self._clock.monotonic_s() + self._settings.timeout_s + GRACE_S
        wait_s = CALL_S
        while True:
            try:
                return self._call(partial(call, wait_s), doing)
            except _RetriableError as error:
                left_s = deadline_s - self._clock.monotonic_s()
                if left_s <= 0:
                    self.is_broken = True
                    raise error.failure from error
            if not resumes:
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
                raise TransactionAborted(f"{doing}: it was aborted: {error.str()}", failure.code) from caught
            if error.retriable() or error.code() in _UNANSWERED_CODES:
                raise _RetriableError(explain(error, doing, PublishFailed, self._settings.servers)) from caught
            self.is_broken = True
            raise failure from caught
        except BaseException:
            self.is_broken = True  # Ctrl-C: its progress is unknown
            raise

    def begin_closing(self) -> None:
        self._producer.begin_closing()

    def close(self) -> None:
        self._producer.close(0 if self.is_broken else self._settings.timeout_s)


_UNANSWERED_CODES: Final = frozenset({KafkaError._TIMED_OUT, KafkaError._TRANSPORT, KafkaError._ALL_BROKERS_DOWN})
"""Error codes of calls without a response, which librdkafka does not mark as retriable."""
_PURGED_CODES: Final = frozenset({KafkaError._PURGE_QUEUE, KafkaError._PURGE_INFLIGHT})


class _RetriableError(Exception):
    def __init__(self, failure: ApiError) -> None:
        super().__init__(str(failure))
        self.failure = failure


class ProducerPool:
    """A connection's transactional producers; a transaction reuses the idle producer of its transactional id."""

    def __init__(self, settings: Settings, delay_topics: DelayTopics, clock: Clock) -> None:
        self._settings = settings
        self._delay_topics = delay_topics
        self._clock = clock
        self._lock = threading.Lock()
        self._idle: OrderedDict[str, TransactionalProducer] = OrderedDict()
        self._busy: set[str] = set()
        self._is_closed = False

    def acquire(self, transactional_id: str, timeout_s: float) -> TransactionalProducer:
        with self._lock:
            if self._is_closed:
                raise Closed("the connection is closed; connect again")
            if transactional_id in self._busy:
                raise Busy(
                    f"transaction {transactional_id!r} is open already; end it first, or use another id",
                    ErrorCode.CONCURRENT_TRANSACTIONS,
                )
            self._busy.add(transactional_id)
            producer = self._idle.pop(transactional_id, None)
        if producer is not None and producer.timeout_s == timeout_s:
            return producer
        try:
            if producer is not None:
                producer.close()  # the new one fences it
            return TransactionalProducer(self._settings, transactional_id, timeout_s, self._delay_topics, self._clock)
        except BaseException:
            self._busy.discard(transactional_id)
            raise

    def release(self, producer: TransactionalProducer) -> None:
        to_close = []
        with self._lock:
            self._busy.discard(producer.transactional_id)
            if producer.must_be_replaced or self._is_closed:
                to_close.append(producer)
            else:
                self._idle[producer.transactional_id] = producer
                if len(self._idle) > IDLE_PRODUCERS_MAX:
                    to_close.append(self._idle.popitem(last=False)[1])
        for each in to_close:
            each.close()

    def close(self) -> None:
        with self._lock:
            self._is_closed = True
            idle, self._idle = self._idle, OrderedDict()
        for producer in idle.values():
            producer.begin_closing()
        for producer in idle.values():
            producer.close()
