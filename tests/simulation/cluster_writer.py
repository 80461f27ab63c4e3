"""A simulated idempotent producer: several batches in flight over one connection, all sent again after an error."""

from collections import Counter, deque
from collections.abc import Callable
from dataclasses import dataclass
from itertools import count
from random import Random
from typing import Any, Final, Protocol

from penstock.cluster.image import NO_LEADER
from penstock.foundation.codes import ErrorCode
from penstock.foundation.ids import TopicIdPartition
from penstock.records.build import Record, build_batch
from penstock.wire.messages.init_producer_id import InitProducerIdRequest
from penstock.wire.messages.produce import PartitionProduceData, ProduceRequest, TopicProduceData
from tests.simulation.clock import FakeClock
from tests.simulation.cluster_broker import always
from tests.simulation.cluster_checks import ONCE, Checks, Violation
from tests.simulation.cluster_clients import RETRIABLE, TOPIC, code_of

IN_FLIGHT_MAX: Final = 5
CALL_MS: Final = 1200
PAUSE_MS: Final = 60
VERSION: Final = 9


@dataclass(slots=True)
class Channel:
    """A connection to one incarnation of a broker."""

    last_ms: int = 0
    incarnation: int | None = None
    is_broken: bool = False


@dataclass(slots=True, eq=False)
class Batch:
    sequence: int
    value: bytes
    is_acked: bool = False


class World(Protocol):
    """What it needs of the simulation."""

    clock: FakeClock
    counts: Counter[str]
    checks: Checks
    numbers: "count[int]"

    def leader_of(self, topic: str, number: int) -> int: ...

    def leader_since(self, topic: str, number: int, epoch: int) -> tuple[int, int]: ...

    def call(self, source: object, target: object, body: tuple[Any, ...], reply: Any, timeout_ms: int) -> None: ...

    def post(self, channel: Channel, target: int, body: tuple[Any, ...], reply: Any, timeout_ms: int) -> None: ...

    def after(self, ms: int, action: Callable[[], None]) -> None: ...


class IdempotentClient:
    """Writes to one partition."""

    def __init__(self, number: int, rng: Random, world: World, place: TopicIdPartition) -> None:
        self._name = f"writer-{number}"
        self._rng = rng
        self._world = world
        self._place = place
        self._producer_id = -1
        self._sequence = 0
        self._batches: deque[Batch] = deque()
        """Those that are not acknowledged, the oldest first."""
        self._channel = Channel()
        self._target = NO_LEADER
        self._epoch = 0
        self._is_resting = True
        self.is_over = False

    def start(self) -> None:
        request = InitProducerIdRequest(transactional_id=None, transaction_timeout_ms=0)

        def reply(response: Any) -> None:
            if response is None or response.error_code:
                self._world.after(PAUSE_MS, self.start)
                return
            self._producer_id = response.producer_id
            self._connect()
            self._go_on()

        node = self._world.leader_of(TOPIC, self._place.partition)
        if node == NO_LEADER:
            self._world.after(PAUSE_MS, self.start)
        else:
            self._world.call(self._name, node, ("ask", request, 4, always), reply, CALL_MS)

    def _go_on(self) -> None:
        """Now and then there is something new to be sent."""
        if self.is_over:
            return
        self._world.after(self._rng.randint(5, 60), self._go_on)
        if len(self._batches) < IN_FLIGHT_MAX:
            value = ONCE + f"{self._name}/{self._producer_id}.{self._sequence}".encode()
            self._batches.append(Batch(self._sequence, value))
            self._sequence += 1
            if not self._is_resting:
                self._post(self._batches[-1])

    def _connect(self) -> None:
        """Over a new connection, everything that is not acknowledged, from the oldest on."""
        # No client goes back to a leader of an older epoch than it has seen: that one may lack acknowledged records.
        self._target, self._epoch = self._world.leader_since(TOPIC, self._place.partition, self._epoch)
        if self._target == NO_LEADER:
            self._world.after(PAUSE_MS, self._connect)
            return
        self._channel = Channel(last_ms=self._world.clock.now_ms())
        self._is_resting = False
        for batch in self._batches:
            if not batch.is_acked:
                self._post(batch)

    def _post(self, batch: Batch) -> None:
        records = build_batch(
            [Record(key=None, value=batch.value, timestamp_ms=self._world.clock.now_ms())],
            producer_id=self._producer_id,
            producer_epoch=0,
            base_sequence=batch.sequence,
        )
        data = PartitionProduceData(index=self._place.partition, records=bytes(records))
        request = ProduceRequest(
            transactional_id=None,
            acks=-1,
            timeout_ms=CALL_MS,
            topic_data=[TopicProduceData(name=TOPIC, partition_data=[data])],
        )
        channel = self._channel
        self._world.post(
            channel,
            self._target,
            ("ask", request, VERSION, always),
            lambda response: self._on_answer(batch, channel, response),
            CALL_MS,
        )

    def _on_answer(self, batch: Batch, channel: Channel, response: Any) -> None:
        if batch.is_acked or channel is not self._channel:
            return
        code = None if response is None else code_of(response)
        if code is ErrorCode.NONE:
            self._acknowledge(batch, response.responses[0].partition_responses[0].base_offset)
            return
        is_oldest = next((one for one in self._batches if not one.is_acked), None) is batch
        if (
            code is not None
            and code not in RETRIABLE
            and (code != ErrorCode.OUT_OF_ORDER_SEQUENCE_NUMBER or is_oldest)
        ):
            # Those after one that failed are out of order; the oldest of all never is.
            raise Violation(
                f"WrittenOnce: {batch.value!r} is the oldest that is not acknowledged, and gets {code.name}"
            )
        self._world.counts["sent_again"] += 1
        self._channel = Channel(is_broken=True)
        self._is_resting = True
        self._world.after(PAUSE_MS, self._connect)

    def _acknowledge(self, batch: Batch, offset: int) -> None:
        batch.is_acked = True
        self._world.counts["written_once"] += 1
        self._world.checks.acknowledged(self._place, offset, batch.value)
        while self._batches and self._batches[0].is_acked:
            self._batches.popleft()
