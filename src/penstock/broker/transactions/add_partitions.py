"""Produce requests that begin a transaction on a partition: the coordinator is asked first (KIP-890).

Without the question, a batch that arrives after its transaction has ended would open another one that nobody ends,
and that would hold back readers for ever.
"""

from collections.abc import Callable, Mapping, Sequence
from functools import partial
from types import MappingProxyType
from typing import Any, Final, NamedTuple

from penstock.broker.broker import Broker
from penstock.cluster.image import NO_LEADER
from penstock.foundation.codes import ErrorCode
from penstock.foundation.decision import ProducerKey
from penstock.foundation.errors import CoordinatorNotAvailable, InvalidTxnState, OutOfOrderSequence, PenstockError
from penstock.foundation.ids import TopicPartition
from penstock.records.batch import read_header
from penstock.records.layout import HEADER_BYTES
from penstock.replication.partition import Partition
from penstock.replication.runtime import Answer
from penstock.transactions.add_partitions import code_for_producer, codes_in, request_to_join
from penstock.transactions.commands import JoinTransaction
from penstock.wire.messages.produce import ProduceRequest
from penstock.wire.schema import Buffer

ABORTABLE_FROM: Final = 11
"""From this version on a producer may be told to abort its transaction."""
RETRY_S: Final = 0.01
TRIES_MAX: Final = 10
JOINS_FROM: Final = 12
"""From this version on a partition joins a transaction by being written to."""


_TRY_AGAIN: Final = frozenset(
    (
        ErrorCode.COORDINATOR_LOAD_IN_PROGRESS,
        ErrorCode.COORDINATOR_NOT_AVAILABLE,
        ErrorCode.NOT_COORDINATOR,
    )
)


Key = tuple[str, bytes, int]
"""How a request names a partition: by its topic's name or id, and its number."""


class Joining(NamedTuple):
    """A batch that would begin a transaction on its partition."""

    key: Key
    partition: Partition
    producer: ProducerKey
    sequence: int
    guard: int

    @property
    def has_moved(self) -> bool:
        """Whether a transaction of this producer has ended here since the coordinator was asked."""
        return self.partition.guard(self.producer.producer_id) != self.guard

    def looked_at_again(self) -> "Joining":
        return self._replace(guard=self.partition.guard(self.producer.producer_id))


class CannotJoin(PenstockError):
    """What the coordinator said of one partition."""

    def __init__(self, code: ErrorCode, version: int) -> None:
        super().__init__(f"the transaction's coordinator says {code.name}")
        told = code_for_producer(code, version >= ABORTABLE_FROM)
        # Produce has no word for these, and clients try again on this one (as Kafka has it).
        if code in _TRY_AGAIN or (code is ErrorCode.CONCURRENT_TRANSACTIONS and version < JOINS_FROM):
            told = ErrorCode.NOT_ENOUGH_REPLICAS
        self.code = told  # type: ignore[misc]


def find_joining(
    request: ProduceRequest, broker: Broker, copies: Mapping[Key, Buffer | PenstockError] = MappingProxyType({})
) -> list[Joining]:
    """The batches of a request that would begin a transaction on their partitions. `copies`: instead of its own."""
    found = []
    for topic in request.topic_data:
        table = broker.partitions.by_name.get(topic.name) or broker.partitions.by_id.get(topic.topic_id) or {}
        for data in topic.partition_data:
            partition = table.get(data.index)
            key = topic.name, topic.topic_id, data.index
            records = copies.get(key, data.records)
            if partition is None or not partition.is_online or records is None or isinstance(records, PenstockError):
                continue
            if len(records) < HEADER_BYTES or partition.is_internal:
                continue
            header = read_header(records)
            producer = ProducerKey(header.producer_id, header.producer_epoch)
            if header.is_transactional and not partition.log.is_in_transaction(*producer):
                guard = partition.guard(producer.producer_id)
                found.append(Joining(key, partition, producer, header.base_sequence, guard))
    return found


def join(
    request: ProduceRequest,
    version: int,
    joining: Sequence[Joining],
    broker: Broker,
    then: Callable[[dict[Key, PenstockError]], None],
) -> None:
    """Ask the coordinator, once for each producer; `then` gets those that may not be written to, and why."""
    assert request.transactional_id is not None
    refused: dict[Key, PenstockError] = {}
    by_producer: dict[ProducerKey, list[Joining]] = {}
    for each in joining:
        by_producer.setdefault(each.producer, []).append(each)
    waiting = len(by_producer)

    def ask(producer: ProducerKey, asked: list[Joining], tries: int) -> None:
        command = JoinTransaction(
            transactional_id=request.transactional_id or "",
            producer=producer,
            partitions=tuple(each.partition.name for each in asked),
            verify_only=version < JOINS_FROM,
        )
        ask_to_join(command, broker, partial(on_answer, producer, asked, tries))

    def on_answer(
        producer: ProducerKey,
        asked: list[Joining],
        tries: int,
        value: dict[TopicPartition, ErrorCode] | PenstockError,
    ) -> None:
        nonlocal waiting
        moved: list[Joining] = []
        for each in asked:
            code = value.code if isinstance(value, PenstockError) else value[each.partition.name]
            try:
                if not code and tries > 1 and each.has_moved:
                    moved.append(each.looked_at_again())
                else:
                    _check(each, code, version)
            except PenstockError as error:
                refused[each.key] = error
        if moved:  # the marker may be that of the transaction before, and what was asked is of use then
            ask(producer, moved, tries - 1)
            return
        waiting -= 1
        if not waiting:
            then(refused)

    for producer, asked in by_producer.items():
        ask(producer, asked, TRIES_MAX)


def _check(joining: Joining, code: ErrorCode, version: int) -> None:
    """Whether a batch may begin what the coordinator says this of. Raises why not."""
    partition, producer_id = joining.partition, joining.producer.producer_id
    if code:
        raise CannotJoin(code, version)
    if joining.has_moved:
        raise InvalidTxnState(f"{partition.name}: the transaction ended before the batch came to it")
    if version >= JOINS_FROM and joining.sequence != 0 and not partition.knows(producer_id):
        # Every transaction has an epoch of its own: what comes first has number 0, or something is missing.
        raise OutOfOrderSequence(f"producer {producer_id} began with sequence {joining.sequence}, expected 0")


def ask_to_join(command: JoinTransaction, broker: Broker, answer: Answer, tries: int = TRIES_MAX) -> None:
    """Ask the coordinator. Where the transaction before is just being ended, that is waited for, a little."""

    def on_answer(value: dict[TopicPartition, ErrorCode] | PenstockError) -> None:
        is_early = isinstance(value, dict) and ErrorCode.CONCURRENT_TRANSACTIONS in value.values()
        if is_early and tries > 1 and not command.verify_only:
            broker.timer(RETRY_S, lambda: ask_to_join(command, broker, answer, tries - 1))
        else:
            answer(value)

    coordinator = broker.leader_of(broker.transactions, command.transactional_id)
    if coordinator in (broker.node_id, NO_LEADER):
        broker.transactions.submit(command.transactional_id, command, on_answer)
    else:
        broker.ask(coordinator, request_to_join(command), lambda response: on_answer(_codes_in(response, command)))


def _codes_in(response: Any, command: JoinTransaction) -> dict[TopicPartition, ErrorCode] | PenstockError:
    """What another broker has answered; whoever cannot be reached is no coordinator now."""
    if isinstance(response, PenstockError):
        return CoordinatorNotAvailable(f"the coordinator of {command.transactional_id!r} was not reached: {response}")
    codes = codes_in(response)
    lost = ErrorCode(response.error_code) if response.error_code else ErrorCode.COORDINATOR_NOT_AVAILABLE
    return {place: codes.get(place, lost) for place in command.partitions}
