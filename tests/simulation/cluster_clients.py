"""Clients of the simulated cluster: members of a group, and producers that write transactions."""

from collections import Counter
from collections.abc import Callable
from itertools import count
from random import Random
from typing import Any, Final, Protocol

from penstock.cluster.image import NO_LEADER
from penstock.foundation.codes import ErrorCode
from penstock.foundation.decision import ProducerKey
from penstock.records.build import Record, build_batch
from penstock.wire.messages.add_offsets_to_txn import AddOffsetsToTxnRequest
from penstock.wire.messages.add_partitions_to_txn import AddPartitionsToTxnRequest, AddPartitionsToTxnTopic
from penstock.wire.messages.end_txn import EndTxnRequest
from penstock.wire.messages.init_producer_id import InitProducerIdRequest
from penstock.wire.messages.offset_commit import OffsetCommitRequest
from penstock.wire.messages.produce import PartitionProduceData, ProduceRequest, TopicProduceData
from penstock.wire.messages.txn_offset_commit import (
    TxnOffsetCommitRequest,
    TxnOffsetCommitRequestPartition,
    TxnOffsetCommitRequestTopic,
)
from tests.simulation.classic_member import ClassicMember, round_robin
from tests.simulation.clock import FakeClock
from tests.simulation.cluster_broker import always
from tests.simulation.group_simulation import Request
from tests.simulation.transaction_model import Txn

TOPIC: Final = "orders"
CALL_MS: Final = 1500
LONG_CALL_MS: Final = 4000
"""Of a call that others may have to join first."""
PAUSE_MS: Final = 60
TIMEOUT_MS: Final = 6000
"""Of a transaction."""
OFFSETS: Final = -1
"""Stands for a group's offsets among the partitions that a transaction writes to."""

RETRIABLE: Final = frozenset(
    (
        ErrorCode.CONCURRENT_TRANSACTIONS,
        ErrorCode.COORDINATOR_LOAD_IN_PROGRESS,
        ErrorCode.COORDINATOR_NOT_AVAILABLE,
        ErrorCode.NOT_COORDINATOR,
        ErrorCode.NOT_ENOUGH_REPLICAS,
        ErrorCode.NOT_ENOUGH_REPLICAS_AFTER_APPEND,
        ErrorCode.NOT_LEADER_OR_FOLLOWER,
        ErrorCode.REQUEST_TIMED_OUT,
        ErrorCode.KAFKA_STORAGE_ERROR,
        ErrorCode.UNKNOWN_TOPIC_OR_PARTITION,
    )
)


class World(Protocol):
    """What clients live in."""

    clock: FakeClock
    counts: Counter[str]
    txns: dict[str, Txn]
    numbers: "count[int]"

    def leader_of(self, topic: str, number: int) -> int:
        """The leader as clients know it, which may be outdated."""

    def call(self, source: object, target: object, body: tuple[Any, ...], reply: Any, timeout_ms: int) -> None: ...

    def after(self, ms: int, action: Callable[[], None]) -> None: ...

    def committed(self, numbers: list[int], generation: int) -> None:
        """A member got the acknowledgement of its commit."""


class ClusterMember(ClassicMember):
    """A member of a classic group; it sends to the broker that coordinates the group at the moment."""

    transactional = 0.0
    commit_rate = 0.4

    def __init__(self, number: int, rng: Random, world: World, partitions: int) -> None:
        super().__init__(number, rng, self._call, is_static=rng.random() < 0.4)
        self._world = world
        self._partitions = partitions
        self.session_ms = rng.choice((2000, 3000))
        self.rebalance_ms = rng.choice((1000, 3000))

    def assign(self) -> dict[str, bytes]:
        return round_robin(self._assignees, self._partitions)

    def _call(self, request: Request) -> None:
        world, node = self._world, self._world.leader_of("__consumer_offsets", 0)
        if node == NO_LEADER:
            return

        generation = self.generation

        def reply(response: Any) -> None:
            if response is None:
                self.lose_request(request.number)
                return
            if isinstance(request.body, OffsetCommitRequest) and code_of(response) is ErrorCode.NONE:
                world.committed([one.partition_index for one in request.body.topics[0].partitions], generation)
            self.receive(request.number, response, world.clock.now_ms())

        world.call(f"member-{self.number}", node, ("ask", request.body, request.version, always), reply, LONG_CALL_MS)


class TransactionClient:
    """Begins, writes, ends, and begins again. One request at a time, again and again until it is answered."""

    def __init__(self, number: int, rng: Random, world: World, partitions: int) -> None:
        self._name = f"tx-{number}"
        self._rng = rng
        self._world = world
        self._partitions = partitions
        self._newer = rng.random() < 0.5
        self._forgets = not self._newer and rng.random() < 0.5
        """Whether it aborts if a batch is not answered."""
        self._key = ProducerKey(-1, -1)
        self._sequences: Counter[int] = Counter()
        self._txn: Txn | None = None
        self._joined: set[int] = set()
        self.is_over = False

    # -- asking

    def _ask(
        self,
        target: tuple[str, int],
        request: Any,
        version: int,
        then: Callable[[Any, ErrorCode], None],
        on_lost: Callable[[], None] | None = None,
    ) -> None:
        """Until there is an answer that is worth something. `on_lost`: what to do instead, if there is none."""
        if self.is_over:
            return
        node = self._world.leader_of(*target)

        def again() -> None:
            self._world.counts["asked_again"] += 1
            self._world.after(PAUSE_MS, lambda: self._ask(target, request, version, then, on_lost))

        is_waiting = True

        def reply(response: Any) -> None:
            nonlocal is_waiting
            is_waiting = False
            code = None if response is None else code_of(response)
            if code is None and on_lost is not None:
                on_lost()
            elif code is None or code in RETRIABLE:
                again()
            else:
                then(response, code)

        if node == NO_LEADER:
            again()
        else:
            # Before KIP-890 what comes late would be of the next transaction, or end it: clients do not survive that.
            is_old = (isinstance(request, EndTxnRequest) and not self._newer) or on_lost is not None
            body = ("ask", request, version, (lambda: is_waiting) if is_old else always)
            self._world.call(self._name, node, body, reply, CALL_MS)

    def _ask_coordinator(self, request: Any, version: int, then: Callable[[Any, ErrorCode], None]) -> None:
        self._ask(("__transaction_state", 0), request, version, then)

    # -- one transaction after another

    def start(self) -> None:
        """A producer id, or the next epoch of the one there was: what was open is aborted."""
        self._txn = None
        self._sequences.clear()
        request = InitProducerIdRequest(transactional_id=self._name, transaction_timeout_ms=TIMEOUT_MS)

        def on_answer(response: Any, code: ErrorCode) -> None:
            if code:
                self._begin_anew()
                return
            self._key = ProducerKey(response.producer_id, response.producer_epoch)
            self._begin()

        self._ask_coordinator(request, 5 if self._newer else 4, on_answer)

    def _begin_anew(self) -> None:
        self._world.counts["given_up"] += 1
        self._world.after(self._rng.choice((PAUSE_MS, 1000)), self.start)

    def _begin(self) -> None:
        if self.is_over:
            return
        self._txn = Txn(f"{self._name}/{next(self._world.numbers)}")
        self._world.txns[self._txn.name] = self._txn
        self._joined = set()
        self._go_on(self._rng.randint(1, 4))

    def _go_on(self, left: int) -> None:
        if not left:
            self._end()
            return
        number = OFFSETS if self._rng.random() < 0.2 else self._rng.randrange(self._partitions)

        def write() -> None:
            self._joined.add(number)
            (self._commit_offset if number == OFFSETS else self._produce)(number, lambda: self._go_on(left - 1))

        if self._newer or number in self._joined:
            write()
        else:
            self._add(number, write)

    def _add(self, number: int, then: Callable[[], None]) -> None:
        """Before KIP-890 a producer says beforehand where it is going to write."""
        who = {"producer_id": self._key.producer_id, "producer_epoch": self._key.epoch}
        request: Any
        if number == OFFSETS:
            request = AddOffsetsToTxnRequest(transactional_id=self._name, group_id="chain", **who)
        else:
            request = AddPartitionsToTxnRequest(
                v3_and_below_transactional_id=self._name,
                v3_and_below_producer_id=self._key.producer_id,
                v3_and_below_producer_epoch=self._key.epoch,
                v3_and_below_topics=[AddPartitionsToTxnTopic(name=TOPIC, partitions=[number])],
            )
        self._ask_coordinator(request, 3, lambda response, code: self._begin_anew() if code else then())

    def _produce(self, number: int, then: Callable[[], None]) -> None:
        txn = self._txn
        assert txn is not None
        sequence = self._sequences[number]
        value = f"{txn.name}#{number}.{sequence}".encode()
        batch = build_batch(
            [Record(key=None, value=value, timestamp_ms=self._world.clock.now_ms())],
            producer_id=self._key.producer_id,
            producer_epoch=self._key.epoch,
            base_sequence=sequence,
            transactional=True,
        )
        request = ProduceRequest(
            transactional_id=self._name,
            acks=-1,
            timeout_ms=CALL_MS,
            topic_data=[
                TopicProduceData(
                    name=TOPIC, partition_data=[PartitionProduceData(index=number, records=bytes(batch))]
                )
            ],
        )

        def on_answer(response: Any, code: ErrorCode) -> None:
            if code not in (ErrorCode.NONE, ErrorCode.DUPLICATE_SEQUENCE_NUMBER):
                self._begin_anew()
                return
            self._sequences[number] += 1
            txn.acked.append((number, *self._key, sequence))
            then()

        def forget() -> None:
            """As librdkafka does: abort, and count on as if this batch had never been sent."""
            self._world.counts["forgotten"] += 1
            self._end(is_forgotten=True)

        on_lost = forget if self._forgets else None
        self._ask((TOPIC, number), request, 12 if self._newer else 11, on_answer, on_lost)

    def _commit_offset(self, number: int, then: Callable[[], None]) -> None:
        assert self._txn is not None
        offset = TxnOffsetCommitRequestPartition(
            partition_index=0,
            committed_offset=int(self._txn.name.partition("/")[2]),
            committed_metadata=self._txn.name,
        )
        request = TxnOffsetCommitRequest(
            transactional_id=self._name,
            group_id="chain",
            producer_id=self._key.producer_id,
            producer_epoch=self._key.epoch,
            topics=[TxnOffsetCommitRequestTopic(name=TOPIC, partitions=[offset])],
        )
        self._ask(
            ("__consumer_offsets", 0),
            request,
            5 if self._newer else 4,
            lambda response, code: self._begin_anew() if code else then(),
        )

    def _end(self, *, is_forgotten: bool = False) -> None:
        txn = self._txn
        assert txn is not None
        txn.wants_commit = not is_forgotten and self._rng.random() < 0.7
        request = EndTxnRequest(
            transactional_id=self._name,
            producer_id=self._key.producer_id,
            producer_epoch=self._key.epoch,
            committed=txn.wants_commit,
        )

        def on_answer(response: Any, code: ErrorCode) -> None:
            if code:
                self._begin_anew()
                return
            self._world.counts["txn_commits" if txn.wants_commit else "txn_aborts"] += 1
            txn.outcome = txn.wants_commit
            txn.check()
            if self._newer:
                self._key = ProducerKey(response.producer_id, response.producer_epoch)
                self._sequences.clear()
            self._begin()

        self._ask_coordinator(request, 5 if self._newer else 3, on_answer)


def code_of(response: Any) -> ErrorCode:
    """The error code of any response; the worst of its partitions."""
    for topic in getattr(response, "results_by_topic_v3_and_below", ()):
        return ErrorCode(topic.results_by_partition[0].partition_error_code)
    for topic in getattr(response, "responses", ()):
        return ErrorCode(topic.partition_responses[0].error_code)
    for topic in getattr(response, "topics", ()):
        return ErrorCode(topic.partitions[0].error_code)
    return ErrorCode(response.error_code)
