"""Producers of ready batches: idempotent, and transactional (KIP-98, as KIP-890 has it since transaction version 2).

    producer = await TransactionalProducer.open(client, "shipping-7")
    batch = encode(producer.reserve(name, count=2))   # with its producer id, epoch and sequence
    await producer.send(name, batch)
    await producer.flush()
    await producer.commit()                           # or abort(), or leave it to someone else (commit_set.py)

A transaction begins with the first batch: the leader of a partition has its coordinator take the partition in. Every
end gives the producer another epoch, under which its next transaction counts from 0 again.
"""

from collections.abc import Sequence
from typing import Final, NamedTuple, Self

from penstock.client.cluster import KafkaClient, Target
from penstock.client.errors import ServerError, UnsupportedByBroker, check
from penstock.client.producer import SEQUENCE_SPAN
from penstock.client.sender import BatchSender, SendSettings
from penstock.foundation.codes import ErrorCode
from penstock.foundation.errors import PenstockError
from penstock.foundation.ids import TopicPartition
from penstock.foundation.spark_ids import query_of
from penstock.wire.messages.describe_transactions import DescribeTransactionsRequest, DescribeTransactionsResponse
from penstock.wire.messages.end_txn import EndTxnRequest, EndTxnResponse
from penstock.wire.messages.find_coordinator import FindCoordinatorRequest, FindCoordinatorResponse
from penstock.wire.messages.init_producer_id import InitProducerIdRequest, InitProducerIdResponse

TRANSACTION_KEY: Final = 1
"""What FindCoordinator is asked for, where it is not a group's."""
TIMEOUT_MS: Final = 60_000
"""How long a transaction may last, unless the producer says otherwise: as Kafka's own."""
MOVES_FROM: Final = 5
"""The first version of EndTxn that gives the producer another epoch (KIP-890)."""
QUERY_CLOSED: Final = "is closed: what it was to write was given up, or another driver has taken over"
_FENCED: Final = frozenset(
    {ErrorCode.INVALID_PRODUCER_EPOCH, ErrorCode.PRODUCER_FENCED, ErrorCode.INVALID_PRODUCER_ID_MAPPING}
)


class ProducerFenced(PenstockError):
    """The transactional id has another producer now, or the transaction has lasted too long and was aborted."""

    code = ErrorCode.PRODUCER_FENCED


class Identity(NamedTuple):
    producer_id: int
    epoch: int


class Reserved(NamedTuple):
    """What a batch must say of its producer."""

    producer_id: int
    epoch: int
    base_sequence: int


async def find_coordinator(client: KafkaClient, transactional_id: str) -> int:
    """The node id of the broker that looks after a transactional id."""

    async def ask() -> int:
        request = FindCoordinatorRequest(
            key=transactional_id, key_type=TRANSACTION_KEY, coordinator_keys=[transactional_id]
        )
        response: FindCoordinatorResponse = await client.request(Target.ANY, request)
        what = f"the coordinator of {transactional_id!r}"
        if response.coordinators:
            (found,) = response.coordinators
            check(found.error_code, what, found.error_message)
            return found.node_id
        check(response.error_code, what, response.error_message)
        return response.node_id

    return await client.retrying(ask)


async def transaction_states(client: KafkaClient, transactional_ids: Sequence[str]) -> dict[str, str]:
    """What those that are known are doing, by Kafka's names: `Ongoing`, `PrepareCommit`… All of one coordinator."""

    async def ask() -> dict[str, str]:
        node_id = await find_coordinator(client, transactional_ids[0])
        request = DescribeTransactionsRequest(transactional_ids=list(transactional_ids))
        response: DescribeTransactionsResponse = await client.request(node_id, request)
        found = {}
        for state in response.transaction_states:
            if state.error_code != ErrorCode.TRANSACTIONAL_ID_NOT_FOUND:
                check(state.error_code, f"the transaction of {state.transactional_id!r}")
                found[state.transactional_id] = state.transaction_state
        return found

    return await client.retrying(ask)


class BatchProducer:
    """An idempotent producer of ready batches: what is sent again is kept once. Made by `open`."""

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
        async def ask() -> Identity:
            request = InitProducerIdRequest(transactional_id=None, transaction_timeout_ms=0)
            response: InitProducerIdResponse = await client.request(Target.ANY, request)
            check(response.error_code, "a producer id")
            return Identity(response.producer_id, response.producer_epoch)

        return cls(client, await client.retrying(ask), settings or SendSettings())

    @property
    def held_bytes(self) -> int:
        """What is in line or under way."""
        return self._sender.held_bytes

    def reserve(self, name: TopicPartition, count: int) -> Reserved:
        """The next `count` sequences of a partition. Batches are sent in the order in which they were reserved."""
        first = self._sequences.get(name, 0)
        self._sequences[name] = (first + count) % SEQUENCE_SPAN
        return Reserved(*self.identity, first)

    async def send(self, name: TopicPartition, batch: bytearray) -> None:
        """Put a batch in line. Waits while too much is under way; raises what has failed for good meanwhile."""
        try:
            await self._sender.send(name, batch)
        except ServerError as error:
            raise self._explained(error) from error

    async def flush(self) -> None:
        """Wait until everything that was sent is kept."""
        try:
            await self._sender.flush()
        except ServerError as error:
            raise self._explained(error) from error

    async def close(self) -> None:
        """Stop at once."""
        await self._sender.close()

    def _explained(self, error: ServerError) -> PenstockError:
        if error.code not in _FENCED or self._transactional_id is None:
            return error
        return ProducerFenced(
            f"{self._transactional_id!r} has another producer now, or its transaction has lasted longer than its "
            f"timeout and was aborted: {error}"
        )


class TransactionalProducer(BatchProducer):
    """A producer with a transactional id: whoever had it before is shut out, and what that left open is aborted."""

    @classmethod
    async def open(  # type: ignore[override]
        cls,
        client: KafkaClient,
        transactional_id: str,
        *,
        timeout_ms: int = TIMEOUT_MS,
        settings: SendSettings | None = None,
    ) -> Self:
        async def ask() -> Identity:
            node_id = await find_coordinator(client, transactional_id)
            request = InitProducerIdRequest(transactional_id=transactional_id, transaction_timeout_ms=timeout_ms)
            response: InitProducerIdResponse = await client.request(node_id, request)
            check(
                response.error_code,
                f"the producer of {transactional_id!r}",
                _advice(response, transactional_id, timeout_ms),
            )
            return Identity(response.producer_id, response.producer_epoch)

        return cls(client, await client.retrying(ask), settings or SendSettings(), transactional_id)

    @property
    def transactional_id(self) -> str:
        assert self._transactional_id is not None
        return self._transactional_id

    async def commit(self) -> None:
        """Have everything written, and make it count. Done when that is decided, before all partitions know."""
        await self.flush()
        if self._sequences:  # else no transaction has begun
            await self._end(committed=True)

    async def abort(self) -> None:
        """Have it that nothing of the transaction was written. What is still under way is refused when it arrives."""
        await self._sender.close()
        await self._end(committed=False)

    async def _end(self, *, committed: bool) -> None:
        async def ask() -> Identity:
            connection = await self._client.connection(await find_coordinator(self._client, self.transactional_id))
            if connection.version_of(EndTxnRequest) < MOVES_FROM:
                raise UnsupportedByBroker(
                    f"{connection.address} does not end transactions by KIP-890; use a newer broker"
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
            self.identity = await self._client.retrying(ask)
        except ServerError as error:
            raise self._explained(error) from error
        # Another epoch: sequences begin again, and nobody has heard of it.
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
