"""A transaction coordinator with a clock, a log of its records, and a marker writer."""

from collections.abc import Mapping
from typing import Any

from penstock.foundation.codes import ErrorCode
from penstock.foundation.decision import (
    NO_PRODUCER,
    NO_TICKET,
    ClientRequest,
    Decision,
    ProducerKey,
    Reply,
    StateRecord,
)
from penstock.foundation.ids import TopicPartition
from penstock.transactions.commands import AddOffsets, EndTransaction, InitProducer, JoinTransaction, WriteMarkers
from penstock.transactions.coordinator import TransactionCoordinator
from penstock.transactions.errors import NeedsProducerId
from penstock.transactions.settings import TransactionSettings
from penstock.transactions.transaction import Transaction
from penstock.wire.messages.add_offsets_to_txn import AddOffsetsToTxnRequest
from penstock.wire.messages.add_partitions_to_txn import (
    AddPartitionsToTxnRequest,
    AddPartitionsToTxnResponse,
    AddPartitionsToTxnTopic,
    AddPartitionsToTxnTransaction,
)
from penstock.wire.messages.commit_set import COMMIT, CommitSetParticipant, CommitSetRequest, CommitSetResponse
from penstock.wire.messages.end_txn import EndTxnRequest, EndTxnResponse
from penstock.wire.messages.init_producer_id import InitProducerIdRequest, InitProducerIdResponse

START_MS = 1_700_000_000_000
DAY_MS = 24 * 3_600_000
A = TopicPartition("a", 0)
B = TopicPartition("b", 1)
C = TopicPartition("b", 2)
SETTINGS = TransactionSettings(
    timeout_max_ms=900_000, id_expiration_ms=7 * DAY_MS, abort_interval_ms=10_000, expiry_interval_ms=3_600_000
)
TICKET = 17


def asked(body: Any, version: int) -> ClientRequest:
    return ClientRequest(body=body, version=version, client_id="client", client_host="host")


def topics(*partitions: TopicPartition) -> list[AddPartitionsToTxnTopic]:
    return [AddPartitionsToTxnTopic(name=one.topic, partitions=[one.partition]) for one in partitions]


def codes(response: AddPartitionsToTxnResponse) -> dict[TopicPartition, int]:
    """Error codes by partition, for any version; of the only transaction."""
    batched = [topic for result in response.results_by_transaction for topic in result.topic_results]
    return {
        TopicPartition(topic.name, entry.partition_index): entry.partition_error_code
        for topic in [*response.results_by_topic_v3_and_below, *batched]
        for entry in topic.results_by_partition
    }


class CoordinatorHarness:
    """Where a coordinator runs. What it decides is persisted and applied at once, unless the disk is `broken`."""

    def __init__(self, settings: TransactionSettings = SETTINGS) -> None:
        self.settings = settings
        self.now_ms = START_MS
        self.records: list[StateRecord] = []
        self.orders: list[WriteMarkers] = []
        self.broken = False
        self.fresh = 1000
        self.epoch = 0
        self.restart()

    def restart(self) -> None:
        """Another coordinator takes over, with the records and nothing else."""
        self.epoch += 1
        self.machine = TransactionCoordinator(settings=self.settings, coordinator_epoch=self.epoch)
        for record in self.records:
            self.machine.apply(record, NO_PRODUCER)
        self.machine.loaded(self.now_ms)
        self.orders = []

    def carry_out(self, decision: Decision) -> bool:
        if decision.persist:
            if self.broken:
                return False
            self.records.extend(decision.persist)
            for record in decision.persist:
                self.machine.apply(record, NO_PRODUCER)
        self.orders.extend(decision.effects)
        return True

    def submit(self, command: Any) -> Any:
        """The reply; None if it could not be given because the records were lost."""
        decision = self.machine.decide(TICKET, command, self.now_ms)
        if not self.carry_out(decision):
            return None
        (reply,) = decision.replies
        assert reply.ticket == TICKET
        return reply.value

    def tell(self, command: Any) -> None:
        """A command without a reply."""
        decision = self.machine.decide(NO_TICKET, command, self.now_ms)
        assert decision.replies == (Reply(ticket=NO_TICKET, value=None),)
        self.carry_out(decision)

    def advance(self, ms: int) -> None:
        """Time passes, and the coordinator is woken whenever it wants to be."""
        until_ms = self.now_ms + ms
        while (at_ms := self.machine.wake_at_ms) is not None and at_ms <= until_ms:
            self.now_ms = max(self.now_ms, at_ms)
            self.carry_out(self.machine.wake(self.now_ms))
        self.now_ms = until_ms

    def write_markers(self) -> list[WriteMarkers]:
        """All that were ordered, which completes their transactions."""
        orders, self.orders = self.orders, []
        for order in orders:
            self.tell(order.written())
        return orders

    def state(self, name: str = "id") -> Transaction:
        return self.machine.transactions[name]

    # -- requests

    def init(
        self, name: str = "id", *, came: ProducerKey | None = None, timeout_ms: int = 60_000, version: int = 5
    ) -> InitProducerIdResponse:
        producer = came or ProducerKey(-1, -1)
        request = InitProducerIdRequest(
            transactional_id=name,
            transaction_timeout_ms=timeout_ms,
            producer_id=producer.producer_id,
            producer_epoch=producer.epoch,
        )
        self.fresh += 1
        return self.submit(InitProducer(request=asked(request, version), fresh_producer_id=self.fresh))

    def producer(self, name: str = "id", **options: Any) -> ProducerKey:
        """A producer that was initialised."""
        answer = self.init(name, **options)
        assert answer.error_code == ErrorCode.NONE
        return ProducerKey(answer.producer_id, answer.producer_epoch)

    def add(
        self, producer: ProducerKey, *partitions: TopicPartition, name: str = "id", version: int = 3
    ) -> dict[TopicPartition, int]:
        request = AddPartitionsToTxnRequest(
            v3_and_below_transactional_id=name,
            v3_and_below_producer_id=producer.producer_id,
            v3_and_below_producer_epoch=producer.epoch,
            v3_and_below_topics=topics(*partitions),
        )
        return codes(self.submit(asked(request, version)))

    def add_batched(
        self, producer: ProducerKey, *partitions: TopicPartition, name: str = "id", verify_only: bool = False
    ) -> dict[TopicPartition, int]:
        one = AddPartitionsToTxnTransaction(
            transactional_id=name,
            producer_id=producer.producer_id,
            producer_epoch=producer.epoch,
            verify_only=verify_only,
            topics=topics(*partitions),
        )
        return codes(self.submit(asked(AddPartitionsToTxnRequest(transactions=[one]), 5)))

    def add_offsets(self, producer: ProducerKey, *, partition: int = 7, name: str = "id", version: int = 4) -> int:
        request = AddOffsetsToTxnRequest(
            transactional_id=name, producer_id=producer.producer_id, producer_epoch=producer.epoch, group_id="g"
        )
        code: int = self.submit(AddOffsets(request=asked(request, version), offsets_partition=partition)).error_code
        return code

    def join(
        self, producer: ProducerKey, *partitions: TopicPartition, name: str = "id", verify_only: bool = False
    ) -> dict[TopicPartition, ErrorCode]:
        return self.submit(
            JoinTransaction(transactional_id=name, producer=producer, partitions=partitions, verify_only=verify_only)
        )

    def end(
        self, producer: ProducerKey, *, committed: bool = True, name: str = "id", version: int = 5
    ) -> EndTxnResponse:
        request = EndTxnRequest(
            transactional_id=name,
            producer_id=producer.producer_id,
            producer_epoch=producer.epoch,
            committed=committed,
        )
        command = asked(request, version)
        try:
            return self.submit(command)
        except NeedsProducerId:
            self.fresh += 1
            return self.submit(EndTransaction(request=command, fresh_producer_id=self.fresh))

    def commit_set(
        self, batch_id: int, participants: Mapping[str, ProducerKey], *, query: str = "q", action: int = COMMIT
    ) -> CommitSetResponse:
        """CommitSet; the participants are given by their transactional ids."""
        request = CommitSetRequest(
            query=query,
            action=action,
            batch_id=batch_id,
            participants=[
                CommitSetParticipant(
                    transactional_id=name, producer_id=producer.producer_id, producer_epoch=producer.epoch
                )
                for name, producer in participants.items()
            ],
        )
        return self.submit(asked(request, 0))

    def committed(self, producer: ProducerKey, *, name: str = "id", version: int = 5) -> ProducerKey:
        """Runs a whole transaction; returns the producer id and epoch after it."""
        assert set(self.join(producer, A, name=name).values()) == {ErrorCode.NONE}
        answer = self.end(producer, name=name, version=version)
        assert answer.error_code == ErrorCode.NONE
        self.write_markers()
        return producer if version < 5 else ProducerKey(answer.producer_id, answer.producer_epoch)
