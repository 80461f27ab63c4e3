"""Transaction: the `with` block of a transaction."""

from datetime import datetime
from types import TracebackType
from typing import Self

from penstock.api.core.durations import Duration
from penstock.api.core.encoding import Encoded, encode
from penstock.api.core.message import Headers, Outgoing
from penstock.api.core.settings import check_positive
from penstock.api.core.transactional_producer import ProducerPool, TransactionalProducer
from penstock.api.errors import Busy, Closed, InvalidArgument, add_note_to
from penstock.foundation.codes import ErrorCode


class Transaction:
    """Messages that are delivered all together or not at all. The end of the block commits; an exception aborts.

    with mq.transaction("billing-1") as tx:
        tx.publish("invoices", {"id": 1})
        tx.publish("audit", {"invoice": 1})

    publish() does not wait: a message that fails raises its error at the end of the block.
    """

    def __init__(self, pool: ProducerPool, transactional_id: str, timeout_s: float) -> None:
        if not transactional_id:
            raise InvalidArgument("transactional_id is empty; give a name that no other process uses")
        check_positive("transaction_timeout_s", timeout_s)
        self._pool = pool
        self._id = transactional_id
        self._timeout_s = timeout_s
        self._producer: TransactionalProducer | None = None
        self.published = 0
        """Number of messages published in this transaction so far."""

    @property
    def is_open(self) -> bool:
        """Whether the `with` block is active, so that messages can be published.

        assert tx.is_open
        """
        return self._producer is not None

    def __enter__(self) -> Self:
        if self._producer is not None:
            raise Busy(f"transaction {self._id!r} is open already", ErrorCode.CONCURRENT_TRANSACTIONS)
        producer = self._pool.acquire(self._id, self._timeout_s)
        try:
            producer.begin()
        except BaseException:
            self._pool.release(producer)
            raise
        self._producer = producer
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
        """Publishes a message that is delivered when the transaction commits.

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
        producer = self._producer
        if producer is None:
            raise Closed("this transaction is not open; publish within its `with` block")
        failure = producer.failure
        if failure is not None:
            raise failure
        producer.send(message, is_waiting=is_waiting)
        self.published += 1

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        producer, self._producer = self._producer, None
        assert producer is not None
        try:
            if error is None:
                producer.commit()
            elif not producer.is_broken:
                # If it cannot be aborted now, the coordinator aborts it after its timeout.
                with add_note_to(error):
                    producer.abort()
        finally:
            self._pool.release(producer)
