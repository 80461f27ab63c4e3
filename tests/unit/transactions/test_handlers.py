"""The handlers of the transaction APIs, over real coordinators on real logs."""

import asyncio
import itertools
from collections import defaultdict
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from inspect import isawaitable
from pathlib import Path
from time import monotonic
from types import SimpleNamespace
from typing import Any, cast

import pytest

from penstock.broker.broker import Broker
from penstock.broker.call import Call
from penstock.broker.handlers.commit_set import PREPARED_MIN
from penstock.broker.registry import APIS, load_handlers
from penstock.broker.transactions.producer_ids import ProducerIds
from penstock.foundation.codes import ErrorCode
from penstock.foundation.decision import ProducerKey
from penstock.foundation.ids import TopicPartition
from penstock.foundation.spark_ids import coordinator_key, transactional_id
from penstock.foundation.time_slices import TimeSlices
from penstock.records.batch import batches
from penstock.replication.runtimes import StateRuntimes
from penstock.transactions.commands import WriteMarkers
from penstock.transactions.commit_sets import STEP_MASK
from penstock.transactions.coordinator import TransactionCoordinator
from penstock.transactions.states import State
from penstock.transactions.transaction import EPOCH_LAST, Transaction
from penstock.wire.codec import decode, encode_bytes
from penstock.wire.keys import ApiKey
from penstock.wire.messages.add_offsets_to_txn import AddOffsetsToTxnRequest
from penstock.wire.messages.add_partitions_to_txn import AddPartitionsToTxnRequest, AddPartitionsToTxnTransaction
from penstock.wire.messages.commit_set import ABORT, COMMIT, COMMITTED, CommitSetParticipant, CommitSetRequest
from penstock.wire.messages.describe_transactions import DescribeTransactionsRequest
from penstock.wire.messages.end_txn import EndTxnRequest
from penstock.wire.messages.init_producer_id import InitProducerIdRequest
from penstock.wire.messages.list_transactions import ListTransactionsRequest
from penstock.wire.schema import RESPONSES, message_of
from tests.unit.replication.broker_state import DEFAULTS, World, world_at

from .coordinator_harness import SETTINGS, codes, topics

TRANSACTIONS, OFFSETS = "__transaction_state", "__consumer_offsets"
OFFSETS_TOPIC = {
    "offsets.topic.num.partitions": 2,
    "offsets.topic.replication.factor": 3,
    "offsets.topic.segment.bytes": 1 << 20,
}
NAMES = ["one", "two", "three", "four", "five"]
"""Enough that they live in several partitions."""
ORDERS = TopicPartition("orders", 0)
RETURNS = TopicPartition("returns", 0)
NOWHERE = TopicPartition("nowhere", 0)

load_handlers()


def never(seconds: float, action: Callable[[], None]) -> Callable[[], None]:
    return lambda: None


class Harness:
    """A broker as far as transactions are concerned, and calls that come to it."""

    def __init__(self, world: World) -> None:
        self.world = world
        self.orders: list[WriteMarkers] = []
        self.transactions = self._runtimes(TRANSACTIONS, self.orders.append, hashed_by=coordinator_key)
        self.groups = self._runtimes(OFFSETS, self.orders.append)
        self.broker = cast(
            Broker,
            SimpleNamespace(
                clock=world.clock,
                slices=TimeSlices(monotonic),
                transactions=self.transactions,
                groups=self.groups,
                producer_ids=ProducerIds(world.metadata),
                image=world.metadata.image,
                metadata=world.metadata,
                configs=OFFSETS_TOPIC,
                topic_defaults=lambda: DEFAULTS,
                new_topic_id=lambda: b"\xff" * 16,
                missing_brokers_since_ms={},
                internal_topic_locks=defaultdict(asyncio.Lock),
            ),
        )

    def _runtimes(self, topic: str, perform: Callable[[Any], None], **options: Any) -> StateRuntimes:
        return StateRuntimes(
            topic=topic,
            make=lambda number: TransactionCoordinator(settings=SETTINGS, coordinator_epoch=1),
            partitions=self.world.partitions,
            clock=self.world.clock,
            timer=never,
            threads=self.world.threads,
            perform=perform,
            **options,
        )

    async def load(self) -> None:
        self.transactions.apply(self.world.metadata.image)
        self.groups.apply(self.world.metadata.image)
        while self.transactions.is_loading or self.groups.is_loading:  # noqa: ASYNC110
            await asyncio.sleep(0)

    async def ask(self, key: ApiKey, request: Any, version: int | None = None) -> Any:
        """What a connection does with a request, and the response as its bytes tell it."""
        api = APIS[key]
        version = api.versions[-1] if version is None else version
        request = decode(api.request, version, encode_bytes(request, version))
        answered: list[Call] = []
        call = Call(key, version, 7, "client", 0.0, 0, "10.0.0.1:5", answered.append)
        result: Any = api.handler(request, call, self.broker)
        if isawaitable(result):
            result = await result
        if result is not None:
            call.answer(result)
        assert answered == [call]
        cls = RESPONSES[key]
        has_tags = version >= message_of(cls).flexible_from
        return decode(cls, version, b"".join(call.parts or ()), 9 if has_tags else 8)

    async def producer(self, name: str) -> ProducerKey:
        request = InitProducerIdRequest(transactional_id=name, transaction_timeout_ms=60_000)
        answer = await self.ask(ApiKey.INIT_PRODUCER_ID, request)
        assert answer.error_code == ErrorCode.NONE
        return ProducerKey(answer.producer_id, answer.producer_epoch)

    async def add(self, name: str, producer: ProducerKey, *partitions: TopicPartition) -> dict[TopicPartition, int]:
        request = AddPartitionsToTxnRequest(
            v3_and_below_transactional_id=name,
            v3_and_below_producer_id=producer.producer_id,
            v3_and_below_producer_epoch=producer.epoch,
            v3_and_below_topics=topics(*partitions),
        )
        return codes(await self.ask(ApiKey.ADD_PARTITIONS_TO_TXN, request, 3))

    async def end(self, name: str, producer: ProducerKey, committed: bool = True, version: int = 5) -> Any:
        request = EndTxnRequest(
            transactional_id=name,
            producer_id=producer.producer_id,
            producer_epoch=producer.epoch,
            committed=committed,
        )
        return await self.ask(ApiKey.END_TXN, request, version)

    async def described(self, *names: str) -> list[tuple[str, int, str]]:
        request = DescribeTransactionsRequest(transactional_ids=names)
        answer = await self.ask(ApiKey.DESCRIBE_TRANSACTIONS, request)
        states = answer.transaction_states
        return [(state.transactional_id, state.error_code, state.transaction_state) for state in states]

    def machine_of(self, name: str) -> TransactionCoordinator:
        machine = self.transactions.find(name).machine
        assert isinstance(machine, TransactionCoordinator)
        return machine


@asynccontextmanager
async def harness_at(folder: Path, partitions: int = 3, *, loaded: bool = True) -> AsyncIterator[Harness]:
    async with world_at(folder) as world:
        for topic in ("orders", "returns"):
            await world.create(topic)
        if partitions:
            await world.create(TRANSACTIONS, partitions)
            await world.create(OFFSETS, partitions)
        harness = Harness(world)
        if loaded:
            await harness.load()
        yield harness
        harness.transactions.close()
        harness.groups.close()


async def test_a_transaction_is_begun_and_committed(tmp_path: Path) -> None:
    async with harness_at(tmp_path) as harness:
        producer = await harness.producer("one")
        assert await harness.add("one", producer, ORDERS, RETURNS) == {ORDERS: 0, RETURNS: 0}
        answer = await harness.end("one", producer)
        assert (answer.error_code, answer.producer_id) == (ErrorCode.NONE, producer.producer_id)
        assert answer.producer_epoch == producer.epoch + 1
        (order,) = harness.orders
        assert (order.committed, order.partitions) == (True, {ORDERS, RETURNS})
        assert await harness.described("one") == [("one", ErrorCode.NONE, "PrepareCommit")]
        harness.transactions.find("one").post(order.written())
        assert await harness.described("one") == [("one", ErrorCode.NONE, "CompleteCommit")]


async def test_it_is_read_back_when_the_coordinator_starts_again(tmp_path: Path) -> None:
    async with harness_at(tmp_path) as harness:
        producer = await harness.producer("one")
        await harness.add("one", producer, ORDERS)
        await harness.end("one", producer, committed=False)
        harness.transactions.close()
        again = Harness(harness.world)
        await again.load()
        assert await again.described("one") == [("one", ErrorCode.NONE, "PrepareAbort")]
        assert again.machine_of("one").wake_at_ms == harness.world.clock.steady_ms()


# -- AddPartitionsToTxn


async def test_a_partition_that_does_not_exist_keeps_the_others_out(tmp_path: Path) -> None:
    async with harness_at(tmp_path) as harness:
        producer = await harness.producer("one")
        beyond = TopicPartition("orders", 9)
        assert await harness.add("one", producer, ORDERS, NOWHERE, beyond) == {
            ORDERS: ErrorCode.OPERATION_NOT_ATTEMPTED,
            NOWHERE: ErrorCode.UNKNOWN_TOPIC_OR_PARTITION,
            beyond: ErrorCode.UNKNOWN_TOPIC_OR_PARTITION,
        }
        assert harness.machine_of("one").transactions["one"].state is State.EMPTY


async def test_transactions_are_asked_for_where_they_live_and_answered_together(tmp_path: Path) -> None:
    async with harness_at(tmp_path) as harness:
        assert len({harness.transactions.partition_of(name) for name in NAMES}) > 1
        producers = {name: await harness.producer(name) for name in NAMES}
        wanted = [
            AddPartitionsToTxnTransaction(
                transactional_id=name,
                producer_id=producer.producer_id,
                producer_epoch=producer.epoch,
                topics=topics(ORDERS if name != "two" else NOWHERE, RETURNS),
            )
            for name, producer in producers.items()
        ]
        answer = await harness.ask(ApiKey.ADD_PARTITIONS_TO_TXN, AddPartitionsToTxnRequest(transactions=wanted), 5)
        assert [result.transactional_id for result in answer.results_by_transaction] == NAMES
        found = [
            [entry.partition_error_code for topic in result.topic_results for entry in topic.results_by_partition]
            for result in answer.results_by_transaction
        ]
        refused = [ErrorCode.UNKNOWN_TOPIC_OR_PARTITION, ErrorCode.OPERATION_NOT_ATTEMPTED]
        assert found == [[0, 0], refused, [0, 0], [0, 0], [0, 0]]


@pytest.mark.parametrize("version", [3, 5])
async def test_partitions_are_refused_where_there_is_no_coordinator(tmp_path: Path, version: int) -> None:
    async with harness_at(tmp_path, 0) as harness:
        request = AddPartitionsToTxnRequest(
            v3_and_below_transactional_id="one",
            v3_and_below_topics=topics(ORDERS),
            transactions=[
                AddPartitionsToTxnTransaction(
                    transactional_id="one", producer_id=1, producer_epoch=0, topics=topics(ORDERS)
                )
            ],
        )
        answer = await harness.ask(ApiKey.ADD_PARTITIONS_TO_TXN, request, version)
        assert codes(answer) == {ORDERS: ErrorCode.COORDINATOR_NOT_AVAILABLE}


# -- AddOffsetsToTxn


def offsets_of(producer: ProducerKey) -> AddOffsetsToTxnRequest:
    return AddOffsetsToTxnRequest(
        transactional_id="one", producer_id=producer.producer_id, producer_epoch=producer.epoch, group_id="group"
    )


async def test_the_partition_of_the_group_joins_the_transaction(tmp_path: Path) -> None:
    async with harness_at(tmp_path) as harness:
        producer = await harness.producer("one")
        answer = await harness.ask(ApiKey.ADD_OFFSETS_TO_TXN, offsets_of(producer))
        assert answer.error_code == ErrorCode.NONE
        number = harness.groups.partition_of("group")
        assert harness.machine_of("one").transactions["one"].partitions == {TopicPartition(OFFSETS, number)}


async def test_offsets_are_refused_by_a_coordinator_that_does_not_know_the_id(tmp_path: Path) -> None:
    async with harness_at(tmp_path) as harness:
        answer = await harness.ask(ApiKey.ADD_OFFSETS_TO_TXN, offsets_of(ProducerKey(1, 0)))
        assert answer.error_code == ErrorCode.INVALID_PRODUCER_ID_MAPPING


async def test_offsets_are_refused_where_there_is_no_coordinator(tmp_path: Path) -> None:
    async with harness_at(tmp_path, 0) as harness:
        await harness.world.create(OFFSETS)
        harness.groups.apply(harness.world.metadata.image)
        answer = await harness.ask(ApiKey.ADD_OFFSETS_TO_TXN, offsets_of(ProducerKey(1, 0)))
        assert answer.error_code == ErrorCode.COORDINATOR_NOT_AVAILABLE


async def test_the_topic_of_groups_is_made_for_the_first_offsets_in_a_transaction(tmp_path: Path) -> None:
    """kafka-python asks who coordinates the group only after this."""
    async with harness_at(tmp_path, 0) as harness:
        await harness.world.create(TRANSACTIONS)
        await harness.load()
        harness.world.metadata.listeners.append(harness.groups.apply)
        producer = await harness.producer("one")
        harness.world.store.is_down = True
        answer = await harness.ask(ApiKey.ADD_OFFSETS_TO_TXN, offsets_of(producer))
        assert answer.error_code == ErrorCode.COORDINATOR_NOT_AVAILABLE
        harness.world.store.is_down = False
        answer = await harness.ask(ApiKey.ADD_OFFSETS_TO_TXN, offsets_of(producer))
        assert answer.error_code == ErrorCode.NONE
        assert len(harness.world.metadata.image.by_name[OFFSETS].partitions) == 2
        (joined,) = harness.machine_of("one").transactions["one"].partitions
        assert joined == TopicPartition(OFFSETS, harness.groups.partition_of("group"))


# -- EndTxn


async def at_last_epoch(harness: Harness, name: str) -> ProducerKey:
    """A producer with one epoch left, and an open transaction."""
    await harness.producer(name)
    machine = harness.machine_of(name)
    known: Transaction = machine.transactions[name]._replace(epoch=EPOCH_LAST)
    machine.apply(known.to_record(), -1)
    assert await harness.add(name, known.producer, ORDERS) == {ORDERS: 0}
    return known.producer


async def test_a_producer_whose_epochs_are_used_up_is_given_another_id(tmp_path: Path) -> None:
    async with harness_at(tmp_path) as harness:
        producer = await at_last_epoch(harness, "one")
        answer = await harness.end("one", producer)
        assert (answer.error_code, answer.producer_epoch) == (ErrorCode.NONE, 0)
        assert answer.producer_id > producer.producer_id
        assert await harness.producer("two") > (answer.producer_id, 0)


async def test_a_store_that_gives_no_producer_ids_is_waited_for(tmp_path: Path) -> None:
    async with harness_at(tmp_path) as harness:
        producer = await at_last_epoch(harness, "one")
        harness.broker.producer_ids = ProducerIds(harness.world.metadata)
        harness.world.store.is_down = True
        assert (await harness.end("one", producer)).error_code == ErrorCode.COORDINATOR_NOT_AVAILABLE
        harness.world.store.is_down = False
        assert (await harness.end("one", producer)).error_code == ErrorCode.NONE


@pytest.mark.parametrize("version", [0, 5])
async def test_the_end_is_refused_where_there_is_no_coordinator(tmp_path: Path, version: int) -> None:
    async with harness_at(tmp_path, 0) as harness:
        answer = await harness.end("one", ProducerKey(1, 0), version=version)
        assert answer.error_code == ErrorCode.COORDINATOR_NOT_AVAILABLE


# -- DescribeTransactions, ListTransactions


async def test_ids_are_described_where_they_live_in_the_order_asked_for(tmp_path: Path) -> None:
    async with harness_at(tmp_path) as harness:
        for name in NAMES:
            await harness.producer(name)
        assert await harness.described(*NAMES, "missing", "") == [
            *((name, ErrorCode.NONE, "Empty") for name in NAMES),
            ("missing", ErrorCode.TRANSACTIONAL_ID_NOT_FOUND, ""),
            ("", ErrorCode.INVALID_REQUEST, ""),
        ]
        assert await harness.described() == []


async def test_ids_are_not_described_where_there_is_no_coordinator(tmp_path: Path) -> None:
    async with harness_at(tmp_path, 0) as harness:
        assert await harness.described("one") == [("one", ErrorCode.COORDINATOR_NOT_AVAILABLE, "")]


def listing_of(*states: str, pattern: str | None = None) -> ListTransactionsRequest:
    return ListTransactionsRequest(state_filters=states, producer_id_filters=(), transactional_id_pattern=pattern)


async def test_the_ids_of_all_coordinators_are_listed(tmp_path: Path) -> None:
    async with harness_at(tmp_path) as harness:
        for name in NAMES:
            await harness.producer(name)
        answer = await harness.ask(ApiKey.LIST_TRANSACTIONS, listing_of())
        assert answer.error_code == ErrorCode.NONE
        assert {entry.transactional_id for entry in answer.transaction_states} == set(NAMES)
        answer = await harness.ask(ApiKey.LIST_TRANSACTIONS, listing_of(pattern="t.*"))
        assert {entry.transactional_id for entry in answer.transaction_states} == {"two", "three"}


@pytest.mark.parametrize("partitions", [0, 3])
async def test_an_invalid_filter_is_reported_once(tmp_path: Path, partitions: int) -> None:
    async with harness_at(tmp_path, partitions) as harness:
        answer = await harness.ask(ApiKey.LIST_TRANSACTIONS, listing_of("Sleeping", "Ongoing"))
        assert (answer.error_code, list(answer.unknown_state_filters)) == (ErrorCode.NONE, ["Sleeping"])
        answer = await harness.ask(ApiKey.LIST_TRANSACTIONS, listing_of(pattern="("))
        assert answer.error_code == ErrorCode.INVALID_REGULAR_EXPRESSION


async def test_nothing_is_listed_while_ids_are_read_back(tmp_path: Path) -> None:
    async with harness_at(tmp_path, loaded=False) as harness:
        harness.transactions.apply(harness.world.metadata.image)
        answer = await harness.ask(ApiKey.LIST_TRANSACTIONS, listing_of())
        assert answer.error_code == ErrorCode.COORDINATOR_LOAD_IN_PROGRESS
        await harness.load()
        assert (await harness.ask(ApiKey.LIST_TRANSACTIONS, listing_of())).error_code == ErrorCode.NONE


# -- CommitSet


async def test_all_tasks_of_a_query_are_coordinated_in_one_place_and_committed_together(tmp_path: Path) -> None:
    async with harness_at(tmp_path) as harness:
        names = [transactional_id("a-query", number, "0.0") for number in range(8)]
        assert {harness.transactions.partition_of(name) for name in names} == {
            harness.transactions.partition_of("spark/a-query")
        }
        producers = {name: await harness.producer(name) for name in names}
        for name, producer in producers.items():
            assert await harness.add(name, producer, ORDERS) == {ORDERS: 0}
        participants = [
            CommitSetParticipant(transactional_id=name, producer_id=key.producer_id, producer_epoch=key.epoch)
            for name, key in list(producers.items())[:5]
        ]
        request = CommitSetRequest(query="a-query", action=COMMIT, batch_id=0, participants=participants)
        log = harness.transactions.find("spark/a-query").partition.log
        before = log.end_offset
        answer = await harness.ask(ApiKey.COMMIT_SET, request)
        assert (answer.error_code, answer.aborted, answer.last_batch_id) == (0, 3, 0)
        (header,) = [header for _, header in batches(log.read(before, 1 << 20, log.end_offset))]
        assert header.count == 9, "the decision, and what it says about each"
        assert [order.committed for order in harness.orders] == [True] * 5 + [False] * 3
        assert {state for _, _, state in await harness.described(*names)} == {"PrepareCommit", "PrepareAbort"}
        harness.transactions.close()
        again = Harness(harness.world)
        await again.load()
        assert again.machine_of("spark/a-query").queries.last_batch_of("a-query") == 0
        answer = await again.ask(ApiKey.COMMIT_SET, request)
        assert (answer.error_code, answer.outcome, answer.aborted) == (0, 0, 0)


@pytest.mark.parametrize("count", [PREPARED_MIN - 1, PREPARED_MIN])
async def test_a_large_set_is_prepared_in_time_slices(tmp_path: Path, count: int) -> None:
    async with harness_at(tmp_path) as harness:
        slices = harness.broker.slices = TimeSlices(map(float, itertools.count()).__next__)  # each is over at once
        names = [transactional_id("a-query", number, "0.0") for number in range(count)]
        producers = {name: await harness.producer(name) for name in names}
        for name, producer in producers.items():
            assert await harness.add(name, producer, ORDERS) == {ORDERS: 0}
        participants = [
            CommitSetParticipant(transactional_id=name, producer_id=key.producer_id, producer_epoch=key.epoch)
            for name, key in producers.items()
        ]
        before = slices.taken
        request = CommitSetRequest(query="a-query", action=COMMIT, batch_id=0, participants=participants)
        answer = await harness.ask(ApiKey.COMMIT_SET, request)
        assert (answer.error_code, answer.outcome) == (ErrorCode.NONE, COMMITTED)
        expected = 1 + 2 * (count // (STEP_MASK + 1)) if count >= PREPARED_MIN else 0
        assert slices.taken - before == expected


async def test_an_invalid_set_is_refused_with_a_message_as_is_one_without_a_coordinator(tmp_path: Path) -> None:
    async with harness_at(tmp_path) as harness:
        answer = await harness.ask(ApiKey.COMMIT_SET, CommitSetRequest(query="q", action=9))
        assert answer.error_code == ErrorCode.INVALID_REQUEST
        assert "no action 9" in answer.error_message
    async with harness_at(tmp_path / "other", 0) as harness:
        answer = await harness.ask(ApiKey.COMMIT_SET, CommitSetRequest(query="q", action=ABORT))
        assert answer.error_code == ErrorCode.COORDINATOR_NOT_AVAILABLE
        assert "send FindCoordinator first" in answer.error_message
