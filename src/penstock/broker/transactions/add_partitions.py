"""Asks the transaction coordinator, here or on another broker, to add or verify partitions (KIP-890).

Otherwise, a batch that arrives after its transaction has ended would open a new transaction that is never ended,
and would block the last stable offset for ever.
"""

from collections.abc import Callable, Sequence
from typing import Any, Final

from penstock.broker.broker import Broker
from penstock.cluster.image import NO_LEADER
from penstock.foundation.codes import ErrorCode
from penstock.foundation.decision import ProducerKey
from penstock.foundation.errors import CoordinatorNotAvailable, InvalidTxnState, PenstockError
from penstock.foundation.ids import TopicPartition
from penstock.replication.partition import Partition
from penstock.replication.runtime import Answer
from penstock.transactions.add_partitions import codes_in, request_to_join
from penstock.transactions.commands import JoinTransaction

RETRY_S: Final = 0.01
TRIES_MAX: Final = 10


class CannotJoin(PenstockError):
    """The transaction coordinator refused to add or verify a partition."""

    def __init__(self, code: ErrorCode) -> None:
        super().__init__(f"the transaction coordinator refused the partition with {code.name}")
        self.code = code  # type: ignore[misc]


def join_transaction(
    transactional_id: str,
    producer: ProducerKey,
    partitions: Sequence[Partition],
    verify_only: bool,
    broker: Broker,
    then: Callable[[dict[TopicPartition, PenstockError]], None],
    tries: int = TRIES_MAX,
) -> None:
    """Asks the coordinator to add this broker's partitions to a transaction, or to verify them if `verify_only`;
    calls `then` with the error of each refused partition. Asks again about partitions to which a transaction marker
    was written during the request, because then the transaction that the coordinator checked may have ended."""
    before = [partition.log.producers.marker_offset(producer.producer_id) for partition in partitions]

    def on_reply(reply: dict[TopicPartition, ErrorCode] | PenstockError) -> None:
        refused: dict[TopicPartition, PenstockError] = {}
        ended: list[Partition] = []
        for partition, marker_offset in zip(partitions, before, strict=True):
            code = reply.code if isinstance(reply, PenstockError) else reply[partition.name]
            try:
                if code:
                    raise CannotJoin(code)
                if partition.log.producers.marker_offset(producer.producer_id) != marker_offset:
                    ended.append(partition)
            except PenstockError as error:
                refused[partition.name] = error
        if ended and tries > 1:
            join_transaction(
                transactional_id, producer, ended, verify_only, broker, lambda more: then(refused | more), tries - 1
            )
            return
        for partition in ended:
            refused[partition.name] = InvalidTxnState(
                f"{partition.name}: the transaction ended before this batch was appended"
            )
        then(refused)

    command = JoinTransaction(
        transactional_id=transactional_id,
        producer=producer,
        partitions=tuple(partition.name for partition in partitions),
        verify_only=verify_only,
    )
    _ask(command, broker, on_reply)


def _ask(command: JoinTransaction, broker: Broker, answer: Answer, tries: int = TRIES_MAX) -> None:
    """Asks the transaction coordinator to add partitions; retries briefly while a previous transaction is ending."""

    def on_answer(value: dict[TopicPartition, ErrorCode] | PenstockError) -> None:
        is_early = isinstance(value, dict) and ErrorCode.CONCURRENT_TRANSACTIONS in value.values()
        if is_early and tries > 1 and not command.verify_only:
            broker.timer(RETRY_S, lambda: _ask(command, broker, answer, tries - 1))
        else:
            answer(value)

    coordinator = broker.leader_of(broker.transactions, command.transactional_id)
    if coordinator in (broker.node_id, NO_LEADER):
        broker.transactions.submit(command.transactional_id, command, on_answer)
    else:
        broker.ask(coordinator, request_to_join(command), lambda response: on_answer(_codes_in(response, command)))


def _codes_in(response: Any, command: JoinTransaction) -> dict[TopicPartition, ErrorCode] | PenstockError:
    """Returns the error codes in a peer broker's response; CoordinatorNotAvailable if the peer cannot be reached."""
    if isinstance(response, PenstockError):
        return CoordinatorNotAvailable(
            f"the coordinator of {command.transactional_id!r} cannot be reached: {response}"
        )
    codes = codes_in(response)
    lost = ErrorCode(response.error_code) if response.error_code else ErrorCode.COORDINATOR_NOT_AVAILABLE
    return {tp: codes.get(tp, lost) for tp in command.partitions}
