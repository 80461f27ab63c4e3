"""A simulated transactional producer: as a client library behaves, with one request in flight at a time."""

from collections import Counter
from collections.abc import Callable
from itertools import count
from random import Random
from typing import Any, Protocol

from penstock.foundation.codes import ErrorCode
from penstock.foundation.decision import ClientRequest, ProducerKey
from penstock.foundation.errors import PenstockError
from penstock.transactions.commands import AddOffsets, InitProducer
from penstock.wire.messages.add_offsets_to_txn import AddOffsetsToTxnRequest
from penstock.wire.messages.add_partitions_to_txn import (
    AddPartitionsToTxnRequest,
    AddPartitionsToTxnResponse,
    AddPartitionsToTxnTopic,
)
from penstock.wire.messages.end_txn import EndTxnRequest
from penstock.wire.messages.init_producer_id import InitProducerIdRequest
from tests.simulation.clock import FakeClock
from tests.simulation.network import FakeNetwork
from tests.simulation.transaction_model import OFFSETS, PARTITIONS, Batch, Txn, partition_of

AGAIN_MS = 80
RETRIABLE = {
    ErrorCode.CONCURRENT_TRANSACTIONS,
    ErrorCode.COORDINATOR_NOT_AVAILABLE,
    ErrorCode.NOT_COORDINATOR,
}
FATAL = {
    ErrorCode.PRODUCER_FENCED,
    ErrorCode.INVALID_PRODUCER_EPOCH,
    ErrorCode.INVALID_PRODUCER_ID_MAPPING,
    ErrorCode.INVALID_TXN_STATE,
}
NO_KEY = ProducerKey(-1, -1)


class World(Protocol):
    """What producers live in."""

    rng: Random
    clock: FakeClock
    network: FakeNetwork
    counts: Counter[str]
    numbers: "count[int]"
    owners: dict[ProducerKey, int]
    txns: list[Txn]
    is_calm: bool

    def die(self, producer: "Producer") -> None: ...


def asked(body: Any, version: int) -> ClientRequest:
    return ClientRequest(body=body, version=version, client_id="", client_host="")


class Client:
    """A client that repeats its request until it is answered."""

    def __init__(self, world: World, place: int, from_ms: int) -> None:
        self.world = world
        self.place = place
        self.is_dead = False
        self._waits_for = -1
        self._again_ms = from_ms
        self._send: Callable[[], None] | None = None
        self._on_answer: Callable[[Any], None] | None = None

    def asks(self) -> bool:
        """Whether an answer is missing; then the question is put again when it is time."""
        now_ms = self.world.clock.now_ms()
        if self._send is not None and now_ms >= self._again_ms:
            self._again_ms = now_ms + AGAIN_MS
            self._send()
        return self._send is not None

    def _ask(self, target: str, message: Any, on_answer: Callable[[Any], None]) -> int:
        """Send until there is an answer."""
        number = self._waits_for = next(self.world.numbers)
        source = ("producer", self.place, number)

        def send() -> None:
            self.world.network.send(source, target, (number, message))

        self._send, self._on_answer = send, on_answer
        self._again_ms = self.world.clock.now_ms() + AGAIN_MS
        send()
        return number

    def answered(self, number: int, value: Any) -> None:
        if self.is_dead or self._waits_for != number:
            return
        code = value.code if isinstance(value, PenstockError) else code_of(value)
        if code in RETRIABLE:
            self._again_ms = self.world.clock.now_ms() + self.world.rng.randint(0, AGAIN_MS)
            return
        on_answer = self._on_answer
        self._stop_waiting()
        if on_answer is not None:
            on_answer(value)

    def _stop_waiting(self) -> None:
        self._send, self._waits_for = None, -1


class Producer(Client):
    """One incarnation of a client."""

    def __init__(self, world: World, place: int, *, name: str, newer: bool, timeout_ms: int, from_ms: int) -> None:
        super().__init__(world, place, from_ms)
        self.incarnation = next(world.numbers)
        self.name = name
        self.newer = newer
        """Whether each of its transactions has an epoch of its own."""
        self.timeout_ms = timeout_ms
        self.key = NO_KEY
        self.came = NO_KEY
        """Its former producer id and epoch, if it has to continue with another epoch (KIP-360)."""
        self.txn: Txn | None = None
        self.joined: set[int] = set()
        self.sequences: Counter[int] = Counter()
        self.left_to_do = 0
        self.has_lost_batch = False

    def act(self) -> None:
        if self.is_dead or self.asks():
            return
        if self.key == NO_KEY or self.came != NO_KEY:
            if self.world.clock.now_ms() >= self._again_ms:
                self._initialise()
        elif self.txn is None:
            if not self.world.is_calm and self.world.rng.random() < 0.5:
                self._begin()
        elif self.left_to_do > 0:
            self._produce_one()
        else:
            self._end(self.txn)

    def _give_up(self, code: int) -> None:
        assert code in FATAL, f"{ErrorCode(code).name} is not an answer that a producer is prepared for"
        self.world.counts["fenced"] += 1
        self.world.die(self)

    def _is(self, key: ProducerKey) -> None:
        """It goes on as this one."""
        owner = self.world.owners.setdefault(key, self.incarnation)
        assert owner == self.incarnation, f"OneProducerPerEpoch: {key} is given to two producers"
        if self.key != key:
            self.sequences.clear()
        self.key, self.has_lost_batch = key, False

    # -- requests

    def _initialise(self) -> None:
        request = InitProducerIdRequest(
            transactional_id=self.name,
            transaction_timeout_ms=self.timeout_ms,
            producer_id=self.came.producer_id,
            producer_epoch=self.came.epoch,
        )

        def command() -> InitProducer:
            return InitProducer(request=asked(request, 5), fresh_producer_id=next(self.world.numbers))

        def on_answer(value: Any) -> None:
            if value.error_code != ErrorCode.NONE:
                self._give_up(value.error_code)
                return
            self.world.counts["initialised" if self.came == NO_KEY else "came_back"] += 1
            self.came = NO_KEY
            self._is(ProducerKey(value.producer_id, value.producer_epoch))

        self._ask("coordinator", command, on_answer)

    def _begin(self) -> None:
        self.txn = Txn(f"{self.name}/{len(self.world.txns)}")
        self.world.txns.append(self.txn)
        self.joined = set()
        self.left_to_do = self.world.rng.randint(1, 5)

    def _produce_one(self) -> None:
        self.left_to_do -= 1
        number = self.world.rng.randrange(PARTITIONS)
        if self.newer or number in self.joined:
            self._produce_to(number)
        else:
            self._add(number)

    def _add(self, number: int) -> None:
        def on_answer(value: Any) -> None:
            code = code_of(value)
            if code == ErrorCode.NONE:
                self._produce_to(number)
            else:
                self._give_up(code)

        self._ask("coordinator", self._add_command(number), on_answer)

    def _add_command(self, number: int) -> Any:
        if number == OFFSETS:
            offsets = AddOffsetsToTxnRequest(
                transactional_id=self.name,
                producer_id=self.key.producer_id,
                producer_epoch=self.key.epoch,
                group_id="group",
            )
            return AddOffsets(request=asked(offsets, 3), offsets_partition=OFFSETS)
        request = AddPartitionsToTxnRequest(
            v3_and_below_transactional_id=self.name,
            v3_and_below_producer_id=self.key.producer_id,
            v3_and_below_producer_epoch=self.key.epoch,
            v3_and_below_topics=[AddPartitionsToTxnTopic(name=partition_of(number).topic, partitions=[number])],
        )
        return asked(request, 3)

    def _produce_to(self, number: int) -> None:
        txn = self.txn
        assert txn is not None
        self.joined.add(number)
        batch = Batch(
            partition=number,
            name=self.name,
            producer=self.key,
            sequence=self.sequences[number],
            txn=txn,
            newer=self.newer,
        )

        def on_answer(code: ErrorCode) -> None:
            if code is ErrorCode.NONE:
                self.sequences[number] += 1
                txn.acked.append((number, *batch.producer, batch.sequence))
            else:
                self.world.counts["batches_refused"] += 1
                self._lose_batch()

        self._ask("leader", batch, on_answer)
        if self.world.rng.random() < 0.05:
            self._stop_waiting()  # and never know whether the batch was written
            self._lose_batch()

    def _lose_batch(self) -> None:
        self.has_lost_batch, self.left_to_do = True, 0

    def _end(self, txn: Txn) -> None:
        """Only what was acknowledged as a whole is committed."""
        if not self.joined:
            self.txn = None
            return
        if self.has_lost_batch and self.world.rng.random() < 0.3:
            self.txn, self.came = None, self.key  # the abort is left to InitProducerId
            return
        txn.wants_commit = not self.has_lost_batch and self.world.rng.random() < 0.7
        request = EndTxnRequest(
            transactional_id=self.name,
            producer_id=self.key.producer_id,
            producer_epoch=self.key.epoch,
            committed=txn.wants_commit,
        )

        def on_answer(value: Any) -> None:
            if value.error_code != ErrorCode.NONE:
                self._give_up(value.error_code)
                return
            self.world.counts["commits" if txn.wants_commit else "aborts"] += 1
            txn.outcome, self.txn = txn.wants_commit, None
            txn.check()
            if self.newer:
                self._is(ProducerKey(value.producer_id, value.producer_epoch))
            elif self.has_lost_batch:
                self.came = self.key

        def command() -> ClientRequest | None:
            """Nothing, if it comes too late from a client that has gone on in the same epoch."""
            return asked(request, 5 if self.newer else 3) if self.newer or self._waits_for == number else None

        number = self._ask("coordinator", command, on_answer)


def code_of(value: Any) -> int:
    """The error code of any response; the worst of its partitions."""
    if isinstance(value, AddPartitionsToTxnResponse):
        (topic,) = value.results_by_topic_v3_and_below
        code: int = topic.results_by_partition[0].partition_error_code
        return code
    code = getattr(value, "error_code", value)
    return code
