"""Idempotent and transactional producers of encoded batches (KIP-98, with transaction version 2 of KIP-890).

    producer = await TransactionalProducer.open(client, "shipping-7")
    batch = encode(producer.reserve(name, count=2))   # with its producer id, epoch and sequence
    await producer.send(name, batch)
    await producer.flush()
    await producer.commit()                           # or abort(), or commit_set() for many (commit_set.py)

A transaction begins with its first batch: a partition's leader adds the partition to the transaction. Every commit
and abort bumps the producer epoch, under which the sequence numbers of the next transaction begin at 0.
"""

from collections.abc import Sequence
from typing import Final, NamedTuple, Self

from penstock.client.cluster import CoordinatorKey, KafkaClient
from penstock.client.errors import ServerError, UnsupportedByBroker, check
from penstock.client.producer import SEQUENCE_SPAN, new_producer_id
from penstock.client.send_settings import SendSettings
from penstock.client.sender import BatchSender
from penstock.foundation.codes import ErrorCode
from penstock.foundation.errors import PenstockError
from penstock.foundation.ids import TopicPartition
from penstock.foundation.spark_ids import query_of
from penstock.wire.messages.describe_transactions import DescribeTransactionsRequest, DescribeTransactionsResponse
from penstock.wire.messages.end_txn import EndTxnRequest, EndTxnResponse
from penstock.wire.messages.init_producer_id import InitProducerIdRequest, InitProducerIdResponse

TIMEOUT_MS: Final = 60_000
"""Default transaction timeout in milliseconds, as in Kafka's clients."""
EPOCH_BUMP_FROM: Final = 5
"""The first version of EndTxn that bumps the producer epoch (KIP-890)."""
QUERY_CLOSED: Final = "is closed: its unfinished batch was abandoned, or another driver has taken over"
_FENCED: Final = frozenset(
    {ErrorCode.INVALID_PRODUCER_EPOCH, ErrorCode.PRODUCER_FENCED, ErrorCode.INVALID_PRODUCER_ID_MAPPING}
)


class ProducerFenced(PenstockError):
    """Another producer uses the transactional id, or the transaction exceeded its timeout and was aborted."""

    code = ErrorCode.PRODUCER_FENCED


class Identity(NamedTuple):
    producer_id: int
    epoch: int


class ReservedSequences(NamedTuple):
    """The producer id, epoch and base sequence number for the header of a batch."""

    producer_id: int
    epoch: int
    base_sequence: int


async def find_coordinator(client: KafkaClient, transactional_id: str) -> int:
    """Returns the node id of the transaction coordinator of a transactional id."""
    what = f"the coordinator of {transactional_id!r}"
    return await client.coordinator(transactional_id, CoordinatorKey.TRANSACTIONAL_ID, what)


async def transaction_states(client: KafkaClient, transactional_ids: Sequence[str]) -> dict[str, str]:
    """Returns the state (`Ongoing`, …) of each existing transactional id. All ids must have the same coordinator."""

    async def attempt() -> dict[str, str]:
        node_id = await find_coordinator(client, transactional_ids[0])
        request = DescribeTransactionsRequest(transactional_ids=list(transactional_ids))
        response: DescribeTransactionsResponse = await client.request(node_id, request)
        found = {}
        for state in response.transaction_states:
            if state.error_code != ErrorCode.TRANSACTIONAL_ID_NOT_FOUND:
                check(state.error_code, f"the transaction of {state.transactional_id!r}")
                found[state.transactional_id] = state.transaction_state
        return found

    return await client.retrying(attempt)


class BatchProducer:
    """An idempotent producer of encoded batches: a retried batch is written once. Created by `open`."""

    def __init__(
        self, client: KafkaClient, identity: Identity, settings: SendSettings, transactional_id: str | None = None
    ) -> None:
        self.identity = identity
        self._client = client
        self._settings = settings
        self._transactional_id = transactional_id
        self._sender = BatchSender(client, settings, transactional_id=transactional_id)
        self._sequences: dict[TopicPartition, int] = {}

    @classmethod
    async def open(cls, client: KafkaClient, settings: SendSettings | None = None) -> "BatchProducer":
        identity = await client.retrying(lambda: new_producer_id(client))
        return cls(client, Identity(*identity), settings or SendSettings())

    @property
    def buffered_bytes(self) -> int:
        """Bytes of batches queued or in flight."""
        return self._sender.buffered_bytes

    def reserve(self, tp: TopicPartition, count: int) -> ReservedSequences:
        """Reserves the next `count` sequence numbers of a partition; batches must be sent in order of reservation."""
        first = self._sequences.get(tp, 0)
        self._sequences[tp] = (first + count) % SEQUENCE_SPAN
        return ReservedSequences(*self.identity, first)

    async def send(self, tp: TopicPartition, batch: bytearray) -> None:
        """Queues a batch. Waits while the buffer is full; raises the error of a batch that failed permanently."""
        try:
            await self._sender.send(tp, batch)
        except ServerError as error:
            raise self._explain(error) from error

    async def flush(self) -> None:
        """Waits until all batches are written."""
        try:
            await self._sender.flush()
        except ServerError as error:
            raise self._explain(error) from error

    async def close(self) -> None:
        """Stops immediately: queued batches are dropped."""
        await self._sender.close()

    def _explain(self, error: ServerError) -> PenstockError:
        if error.code not in _FENCED or self._transactional_id is None:
            return error
        return ProducerFenced(
            f"{self._transactional_id!r} has another producer now, or its transaction has lasted longer than its "
            f"timeout and was aborted: {error}"
        )


class TransactionalProducer(BatchProducer):
    """A producer with a transactional id. `open` fences the id's previous producer and aborts its transaction."""

    @classmethod
    async def open(  # type: ignore[override]
        cls,
        client: KafkaClient,
        transactional_id: str,
        *,
        timeout_ms: int = TIMEOUT_MS,
        settings: SendSettings | None = None,
    ) -> Self:
        async def attempt() -> Identity:
            node_id = await find_coordinator(client, transactional_id)
            request = InitProducerIdRequest(transactional_id=transactional_id, transaction_timeout_ms=timeout_ms)
            response: InitProducerIdResponse = await client.request(node_id, request)
            check(
                response.error_code,
                f"the producer of {transactional_id!r}",
                _advice(response, transactional_id, timeout_ms),
            )
            return Identity(response.producer_id, response.producer_epoch)

        return cls(client, await client.retrying(attempt), settings or SendSettings(), transactional_id)

    @property
    def transactional_id(self) -> str:
        assert self._transactional_id is not None
        return self._transactional_id

    async def commit(self) -> None:
        """Flushes and commits. Returns when the coordinator has decided; commit markers may be written later."""
        await self.flush()
        if self._sequences:  # else no transaction has begun
            await self._end(committed=True)

    async def abort(self) -> None:
        """Aborts the transaction. Batches still in flight are rejected when they reach the leader."""
        await self._sender.close()
        await self._end(committed=False)

    async def _end(self, *, committed: bool) -> None:
        async def attempt() -> Identity:
            connection = await self._client.connection(await find_coordinator(self._client, self.transactional_id))
            if connection.version_of(EndTxnRequest) < EPOCH_BUMP_FROM:
                raise UnsupportedByBroker(
                    f"{connection.address} does not bump producer epochs (KIP-890); use a newer broker"
                )
            request = EndTxnRequest(
                transactional_id=self.transactional_id,
                producer_id=self.identity.producer_id,
                producer_epoch=self.identity.epoch,
                committed=committed,
            )
            response: EndTxnResponse = await connection.request(request)
            check(response.error_code, f"the transaction of {self.transactional_id!r}")
            return Identity(response.producer_id, response.producer_epoch)

        try:
            self.identity = await self._client.retrying(attempt)
        except ServerError as error:
            raise self._explain(error) from error
        # New epoch: sequences begin at 0, and no leader has state of it.
        self._sequences.clear()
        self._sender = BatchSender(self._client, self._settings, transactional_id=self._transactional_id)


def _advice(response: InitProducerIdResponse, transactional_id: str, timeout_ms: int) -> str | None:
    if response.error_code == ErrorCode.PRODUCER_FENCED and query_of(transactional_id) is not None:
        return f"query {query_of(transactional_id)!r} {QUERY_CLOSED}"
    if response.error_code != ErrorCode.INVALID_TRANSACTION_TIMEOUT:
        return None
    return (
        f"a transaction timeout of {timeout_ms} ms is longer than the brokers allow; lower transaction.timeout.ms, "
        "or raise the brokers' transaction.max.timeout.ms"
    )
