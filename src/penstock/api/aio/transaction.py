"""AsyncTransaction: the `async with` block of a transaction."""

import asyncio
from concurrent.futures import ThreadPoolExecutor
from datetime import datetime
from functools import partial
from types import TracebackType
from typing import Self

from penstock.api.aio.bridge import completed, on_thread
from penstock.api.core.durations import Duration
from penstock.api.core.encoding import Encoded, encode
from penstock.api.core.message import Headers, Outgoing
from penstock.api.sync.transaction import Transaction


class AsyncTransaction:
    """Messages that are delivered all together or not at all. The end of the block commits; an exception aborts.

    async with mq.transaction("billing-1") as tx:
        await tx.publish("invoices", {"id": 1})
        await tx.publish("audit", {"invoice": 1})
    """

    def __init__(self, transaction: Transaction, pool: ThreadPoolExecutor) -> None:
        self._transaction = transaction
        self._pool = pool

    @property
    def published(self) -> int:
        """The number of messages published in this transaction so far.

        print(tx.published)
        """
        return self._transaction.published

    async def __aenter__(self) -> Self:
        try:
            await completed(on_thread(self._pool, self._transaction.__enter__))
        except asyncio.CancelledError as error:
            if self._transaction.is_open:
                await self.__aexit__(type(error), error, None)
            raise
        return self

    async def publish(
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
        """Publishes a message that is delivered when the transaction commits. Waits only if the send buffer is full.

        await tx.publish("invoices", {"id": 1}, key="42")
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
        await self._send(encode(topic, message))

    async def _send(self, message: Encoded) -> None:
        try:
            self._transaction._send(message, is_waiting=False)
        except BufferError:
            await on_thread(self._pool, partial(self._transaction._send, message))

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        await completed(on_thread(self._pool, partial(self._transaction.__exit__, kind, error, trace)))
