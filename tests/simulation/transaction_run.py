"""One seeded life of a transaction coordinator: producers that share ids, partitions, markers, and faults.

What is simulated around the coordinator is the least that shows its mistakes: logs that know open transactions,
producers that do what a client has to do, and a network that delays, loses, repeats and reorders. After every step:
- NoAbortedRead: who reads committed records sees a transaction in all of its partitions or in none, only if its
  producer asked for a commit, and never once its producer was told that it was aborted;
- CommitNeverUndone: what a producer was told is committed is never aborted;
- OneProducerPerEpoch: no two producers are given the same epoch of a producer id;
- FencedNeverJoins: between two markers of a producer id there are records of one transaction only;
- RecordsTellAll: who reads the records knows what the coordinator knows.
Once the faults stop, every transaction ends within its timeout (EveryTransactionEnds).

Two things are left out that no coordinator can survive, which is why KIP-890 gives each transaction an epoch: from a
client that keeps its epoch, an EndTxn that arrives after the client has gone on; and markers of such a client that
arrive after their coordinator was told that they are written.
"""

from collections import Counter
from collections.abc import Callable
from dataclasses import dataclass, field
from itertools import count
from random import Random
from typing import Any

from penstock.foundation.codes import ErrorCode
from penstock.foundation.decision import NO_PRODUCER, NOBODY, Ask, Decision, ProducerKey, StateRecord
from penstock.foundation.errors import CoordinatorNotAvailable, PenstockError
from penstock.foundation.ids import TopicPartition
from penstock.transactions.commands import (
    AddOffsets,
    EndTransaction,
    InitProducer,
    JoinTransaction,
    WriteMarkers,
)
from penstock.transactions.coordinator import TransactionCoordinator
from penstock.transactions.errors import NeedsProducerId
from penstock.transactions.joining import code_for_producer
from penstock.transactions.settings import TransactionSettings
from penstock.transactions.states import State
from penstock.transactions.transaction import EPOCH_LAST, Transaction
from penstock.wire.messages.add_offsets_to_txn import AddOffsetsToTxnRequest
from penstock.wire.messages.add_partitions_to_txn import AddPartitionsToTxnRequest, AddPartitionsToTxnTopic
from penstock.wire.messages.end_txn import EndTxnRequest
from penstock.wire.messages.init_producer_id import InitProducerIdRequest
from tests.simulation.clock import FakeClock
from tests.simulation.network import FakeNetwork, Weather

PARTITIONS = 4
OFFSETS = PARTITIONS - 1
"""The last partition is that of a group's offsets."""
SETTINGS = TransactionSettings(
    timeout_max_ms=4000, id_expiration_ms=3000, abort_interval_ms=300, expiry_interval_ms=700
)
AGAIN_MS = 100
RETRIABLE = {
    ErrorCode.CONCURRENT_TRANSACTIONS,
    ErrorCode.COORDINATOR_NOT_AVAILABLE,
    ErrorCode.NOT_COORDINATOR,
}
FENCED = {
    ErrorCode.PRODUCER_FENCED,
    ErrorCode.INVALID_PRODUCER_EPOCH,
    ErrorCode.INVALID_PRODUCER_ID_MAPPING,
    ErrorCode.INVALID_TXN_STATE,
}


def partition_of(number: int) -> TopicPartition:
    return TopicPartition("__consumer_offsets" if number == OFFSETS else "t", number)


@dataclass(eq=False, slots=True)
class Txn:
    """A transaction as its producer knows it."""

    name: str
    wants_commit: bool = False
    told: bool | None = None
    acked: list[tuple[int, int, int, int]] = field(default_factory=list)  # partition, producer id, epoch, sequence
    seen_in: set[int] = field(default_factory=set)
    hidden_in: set[int] = field(default_factory=set)

    def check(self) -> None:
        assert not (self.seen_in and self.hidden_in), f"NoAbortedRead: {self} is in a part of its partitions"
        assert self.wants_commit or not self.seen_in, f"NoAbortedRead: nobody has committed {self}"
        assert self.told is not False or not self.seen_in, f"NoAbortedRead: {self} was said to be aborted"
        assert self.told is not True or not self.hidden_in, f"CommitNeverUndone: {self} was said to be committed"


@dataclass(slots=True)
class Entry:
    """A record, or a marker if it has an outcome."""

    producer_id: int
    epoch: int
    sequence: int
    txn: Txn | None = None
    committed: bool | None = None


@dataclass(slots=True)
class Writer:
    epoch: int
    sequence: int = -1
    coordinator_epoch: int = -1


@dataclass(frozen=True, slots=True, kw_only=True)
class Batch:
    """A produced record on its way."""

    partition: int
    name: str
    producer: ProducerKey
    sequence: int
    txn: Txn
    newer: bool


class Log:
    """A partition: records, markers, and who has a transaction open."""

    def __init__(self) -> None:
        self.entries: list[Entry] = []
        self.open: dict[int, tuple[int, Txn]] = {}
        self.writers: dict[int, Writer] = {}
        self.markers: Counter[int] = Counter()
        self.dirty = False

    @property
    def last_stable_offset(self) -> int:
        return min((first for first, _ in self.open.values()), default=len(self.entries))

    def check(self, batch: Batch) -> ErrorCode | None:
        """Why a batch is not appended: it was before (NONE), or it must not be. None: it may be."""
        known = self.writers.get(batch.producer.producer_id)
        if known is None or batch.producer.epoch > known.epoch:
            return None if batch.sequence == 0 else ErrorCode.OUT_OF_ORDER_SEQUENCE_NUMBER
        if batch.producer.epoch < known.epoch:
            return ErrorCode.INVALID_PRODUCER_EPOCH
        if batch.sequence <= known.sequence:
            return ErrorCode.NONE
        return None if batch.sequence == known.sequence + 1 else ErrorCode.OUT_OF_ORDER_SEQUENCE_NUMBER

    def has_open(self, producer: ProducerKey) -> bool:
        known = self.writers.get(producer.producer_id)
        return producer.producer_id in self.open and known is not None and known.epoch == producer.epoch

    def append(self, batch: Batch) -> None:
        producer_id, epoch = batch.producer
        _, txn = self.open.setdefault(producer_id, (len(self.entries), batch.txn))
        assert txn is batch.txn, f"FencedNeverJoins: {batch.txn} joins {txn}"
        known = self.writers.setdefault(producer_id, Writer(epoch))
        known.epoch, known.sequence = epoch, batch.sequence
        self.entries.append(Entry(producer_id, epoch, batch.sequence, batch.txn))

    def write_marker(self, order: WriteMarkers) -> None:
        producer_id, epoch = order.producer
        known = self.writers.setdefault(producer_id, Writer(-1))
        if order.coordinator_epoch < known.coordinator_epoch or epoch < known.epoch:
            return
        if order.transaction_version >= 2 and epoch == known.epoch:
            return  # KIP-1228: it is of the transaction before
        if epoch > known.epoch:
            known.epoch, known.sequence = epoch, -1
        known.coordinator_epoch = order.coordinator_epoch
        self.open.pop(producer_id, None)
        self.entries.append(Entry(producer_id, epoch, -1, committed=order.committed))
        self.markers[producer_id] += 1
        self.dirty = True

    def read_committed(self) -> tuple[set[Txn], set[Txn]]:
        """As a consumer reads: the transactions that it sees, and those that it is told to leave out."""
        seen: set[Txn] = set()
        hidden: set[Txn] = set()
        pending: dict[int, Txn] = {}
        for offset, entry in enumerate(self.entries):
            if entry.txn is not None:
                if offset < self.last_stable_offset:
                    pending[entry.producer_id] = entry.txn
            elif entry.producer_id in pending:
                (seen if entry.committed else hidden).add(pending.pop(entry.producer_id))
        assert not pending, "NoAbortedRead: the last stable offset is past an open transaction"
        return seen, hidden


@dataclass(eq=False, slots=True)
class Order:
    """Markers that are being written."""

    order: WriteMarkers
    left: set[int]
    news_ms: int = -1
    """When the coordinator hears that all are written."""


@dataclass(eq=False)
class Producer:
    """One life of a client. It waits for one answer at a time."""

    number: int
    name: str
    newer: bool
    """Whether each of its transactions has an epoch of its own."""
    timeout_ms: int
    key: ProducerKey | None = None
    came: ProducerKey | None = None
    """Who it was when it has to go on under another epoch (KIP-360)."""
    txn: Txn | None = None
    joined: set[int] = field(default_factory=set)
    sequences: Counter[int] = field(default_factory=Counter)
    left_to_do: int = 0
    has_lost_batch: bool = False
    waits_for: int = -1
    again_ms: int = 0
    send: Callable[[], None] | None = None
    on_code: Callable[[Any], None] | None = None
    is_dead: bool = False


class TransactionRun:
    def __init__(self, seed: int, steps: int) -> None:
        self.rng = Random(seed)
        self.steps = steps
        self.clock = FakeClock()
        weather = Weather(delay_ms_max=self.rng.choice((5, 30)), loss=self.rng.choice((0.0, 0.05, 0.2)), repeat=self.rng.choice((0.0, 0.2)))
        self.network = FakeNetwork(Random(self.rng.random()), self.clock, weather)
        self.counts: Counter[str] = Counter()
        self.numbers = count()
        self.logs = [Log() for _ in range(PARTITIONS)]
        self.records: list[StateRecord] = []
        self.safe = 0
        """Records that are committed: no fault takes them back."""
        self.waiting: list[tuple[int, Decision]] = []
        self.tickets: dict[int, tuple[Any, int]] = {}
        self.epoch = 0
        self.is_calm = False
        self.commit_chance = self.rng.choice((0.1, 0.4, 0.9))
        self.disk_fails = 0.0
        self.orders: list[Order] = []
        self.joins: dict[int, tuple[Batch, int, Any, int]] = {}
        self.owners: dict[ProducerKey, int] = {}
        self.txns: list[Txn] = []
        self.names = [f"id-{number}" for number in range(self.rng.randint(2, 4))]
        self._seed_records()
        self._start()
        self.producers = {number: self._born(number) for number in range(self.rng.randint(2, 5))}

    @property
    def faults(self) -> int:
        kinds = ("restarts", "failovers", "deaths", "records_not_persisted")
        return sum(self.counts[kind] for kind in kinds)

    def _seed_records(self) -> None:
        """Some ids have come so far that their epochs are nearly used up."""
        for name in self.names:
            if self.rng.random() < 0.5:
                known = Transaction(
                    transactional_id=name,
                    producer_id=next(self.numbers) + 10_000,
                    epoch=EPOCH_LAST - self.rng.randint(0, 6),
                    timeout_ms=1000,
                    updated_ms=self.clock.now_ms(),
                )
                self.records.append(known.to_record())
        self.safe = len(self.records)

    # -- one life

    def run(self) -> None:
        for _ in range(self.steps):
            self._step(self.rng.choice((0, 1, 5, 20, 20, 60)))
            if self.rng.random() < 0.04:
                self._fault()
            self.counts["steps"] += 1
        self._calm_down()

    def _step(self, ms: int) -> None:
        self.clock.advance(ms)
        for source, target, message in self.network.arrivals():
            self._arrive(source, target, message)
        self._wake()
        if self.is_calm or self.rng.random() < self.commit_chance:
            self._commit()
        self._write_markers()
        for producer in list(self.producers.values()):
            self._act(producer)
        self._check()

    def _calm_down(self) -> None:
        """The faults stop; some producers hang for ever, the others end what they have begun."""
        self.is_calm = True
        self.network.weather.loss = self.network.weather.repeat = self.disk_fails = 0.0
        before = self.machine.transactions
        self._start()
        assert self.machine.transactions == before, "RecordsTellAll"
        for producer in self.producers.values():
            producer.is_dead = producer.is_dead or self.rng.random() < 0.5
        until_ms = self.clock.now_ms() + SETTINGS.timeout_max_ms + SETTINGS.abort_interval_ms + 20 * AGAIN_MS
        while self.clock.now_ms() < until_ms:
            self._step(40)
        for known in self.machine.transactions.values():
            assert known.is_at_rest, f"EveryTransactionEnds: {known}"
        for number, log in enumerate(self.logs):
            assert not log.open, f"EveryTransactionEnds: {log.open} in partition {number}"
            assert log.last_stable_offset == len(log.entries)
        self._check_acked()

    # -- faults

    def _fault(self) -> None:
        kind = self.rng.choices(("restart", "failover", "death", "disk", "mended", "pause"), (2, 2, 6, 2, 6, 1))[0]
        if kind == "restart":
            self.counts["restarts"] += 1
            before = self.machine.transactions
            self._start()
            assert self.machine.transactions == before, "RecordsTellAll"
        elif kind == "failover":
            self.counts["failovers"] += 1
            kept = self.rng.randint(self.safe, len(self.records))
            self.counts["records_cut"] += len(self.records) - kept
            del self.records[kept:]
            self._start()
        elif kind == "death":
            self.counts["deaths"] += 1
            self._die(self.rng.choice(list(self.producers.values())))
        elif kind == "disk":
            self.disk_fails = self.rng.choice((0.1, 0.5, 1.0))
        elif kind == "mended":
            self.disk_fails = 0.0
        else:
            self.clock.advance(self.rng.choice((500, 3000, 8000)))
            self.counts["pauses"] += 1

    def _die(self, producer: Producer) -> None:
        """Another life begins, mostly with the same id, soon or long after."""
        producer.is_dead = True
        self.producers[producer.number] = self._born(producer.number)

    def _born(self, number: int) -> Producer:
        own = self.names[number % len(self.names)]
        return Producer(
            number=number,
            name=own if self.rng.random() < 0.9 else self.rng.choice(self.names),
            newer=self.rng.random() < 0.5,
            timeout_ms=self.rng.choice((600, 2000, SETTINGS.timeout_max_ms)),
            again_ms=self.clock.now_ms() + self.rng.choice((0, 100, 1000, 4000)),
        )

    # -- the coordinator and what it runs on

    def _start(self) -> None:
        """A coordinator that knows the records, and nothing else."""
        self.epoch += 1
        self.machine = TransactionCoordinator(settings=SETTINGS, coordinator_epoch=self.epoch)
        for record in self.records:
            self.machine.apply(record, NO_PRODUCER)
        self.machine.loaded(self.clock.now_ms())
        self.waiting.clear()
        self.tickets.clear()
        # Who wrote markers for the one before may go on for a while.
        self.orders = [order for order in self.orders if self.rng.random() < 0.5]

    def _submit(self, source: Any, number: int, command: Any) -> None:
        ticket = next(self.numbers)
        self.tickets[ticket] = (source, number)
        try:
            decision = self.machine.decide(ticket, command, self.clock.now_ms())
        except NeedsProducerId:
            del self.tickets[ticket]
            self.counts["rotations"] += 1
            self._submit(source, number, EndTransaction(ask=command, fresh_producer_id=next(self.numbers)))
        except PenstockError as error:
            self._reply(ticket, error)
        else:
            self._carry_out(decision)

    def _carry_out(self, decision: Decision) -> None:
        if decision.persist:
            if self.rng.random() < self.disk_fails:
                self.counts["records_not_persisted"] += 1
                for reply in decision.replies:
                    self._reply(reply.ticket, CoordinatorNotAvailable("the disk is full"))
                return
            self.records.extend(decision.persist)
            for record in decision.persist:
                self.machine.apply(record, NO_PRODUCER)
                self.counts["expiries"] += record.value is None
        self.waiting.append((len(self.records), decision))

    def _commit(self) -> None:
        """Some of what was appended is committed; who waits for that is answered."""
        self.safe = len(self.records) if self.rng.random() < 0.8 else self.rng.randint(self.safe, len(self.records))
        while self.waiting and self.waiting[0][0] <= self.safe:
            _, decision = self.waiting.pop(0)
            for reply in decision.replies:
                self._reply(reply.ticket, reply.value)
            for order in decision.effects:
                self.orders.append(Order(order, {one.partition for one in order.partitions}))

    def _reply(self, ticket: int, value: Any) -> None:
        source, number = self.tickets.pop(ticket, (None, 0))
        if source is not None:
            self.network.send("coordinator", source, (number, value))

    def _wake(self) -> None:
        at_ms = self.machine.wake_at_ms
        if at_ms is not None and at_ms <= self.clock.now_ms():
            before = len(self.records)
            self._carry_out(self.machine.wake(self.clock.now_ms()))
            self.counts["aborts_by_time"] += len(self.records) > before

    def _write_markers(self) -> None:
        """In any order, and some of them twice."""
        for order in list(self.orders):
            if self.rng.random() < 0.5 and not self.is_calm:
                continue
            for number in self.rng.sample(sorted(order.left), min(len(order.left), self.rng.randint(0, 2) or 1)):
                self.logs[number].write_marker(order.order)
                if self.rng.random() < 0.8 or self.is_calm:
                    order.left.discard(number)
            if order.left:
                continue
            if order.news_ms < 0:
                order.news_ms = self.clock.now_ms() + self.rng.choice((0, 0, 10, 100))
            if order.news_ms <= self.clock.now_ms():
                self._carry_out(self.machine.decide(NOBODY, order.order.written(), self.clock.now_ms()))
                if self.rng.random() < 0.8:
                    self.orders.remove(order)  # else it says so again
                if order.order.transaction_version >= 2 and self.rng.random() < 0.2:
                    self.network.send("shell", "late", order.order)

    # -- messages

    def _arrive(self, source: Any, target: Any, message: Any) -> None:
        if target == "coordinator":
            number, command = message
            self._submit(source, number, command() if callable(command) else command)
        elif target == "late":
            for one in message.partitions:
                self.logs[one.partition].write_marker(message)
        elif isinstance(target, str):
            self._joined(*message)
        elif isinstance(message, Batch):
            self._produce(source, target[1], message)
        else:
            number, value = message
            producer = self.producers[target[1]]
            if not producer.is_dead and producer.waits_for == number:
                self._answered(producer, value)

    def _produce(self, source: Any, request: int, batch: Batch) -> None:
        """A leader checks a batch, asks the coordinator if it has to, and appends it."""
        log = self.logs[batch.partition]
        refused = log.check(batch)
        if refused is None and not log.has_open(batch.producer):
            number = next(self.numbers)
            self.joins[number] = (batch, log.markers[batch.producer.producer_id], source, request)
            command = JoinTransaction(
                transactional_id=batch.name,
                producer=batch.producer,
                partitions=(partition_of(batch.partition),),
                verify_only=not batch.newer,
            )
            self.network.send("leader", "coordinator", (number, command))
            return
        if refused is None:
            log.append(batch)
        self.network.send("leader", source, (request, refused or ErrorCode.NONE))

    def _joined(self, number: int, value: Any) -> None:
        batch, markers, source, request = self.joins.pop(number, (None, 0, None, 0))
        if batch is None:
            return
        log = self.logs[batch.partition]
        code = value.code if isinstance(value, PenstockError) else value[partition_of(batch.partition)]
        if code is ErrorCode.NONE:
            # A marker may have come between the question and the answer.
            stale = log.markers[batch.producer.producer_id] != markers
            code = ErrorCode.INVALID_TXN_STATE if stale else log.check(batch)
            if code is None:
                log.append(batch)
                code = ErrorCode.NONE
        self.network.send("leader", source, (request, code_for_producer(code, batch.newer)))

    # -- producers

    def _act(self, producer: Producer) -> None:
        if producer.is_dead:
            return
        if producer.send is not None:
            if self.clock.now_ms() >= producer.again_ms:
                producer.again_ms = self.clock.now_ms() + AGAIN_MS
                producer.send()
        elif producer.key is None or producer.came is not None:
            if self.clock.now_ms() >= producer.again_ms:
                self._initialise(producer)
        elif producer.txn is None:
            if not self.is_calm and self.rng.random() < 0.5:
                self._begin(producer)
        elif producer.left_to_do > 0 and not producer.txn.wants_commit:
            self._produce_one(producer)
        else:
            self._end(producer)

    def _ask(self, producer: Producer, target: Any, message: Any, on_code: Callable[[Any], None]) -> None:
        """Send until there is an answer."""
        number = producer.waits_for = next(self.numbers)
        source = ("producer", producer.number, number)

        def send() -> None:
            if target == "coordinator":
                self.network.send(source, "coordinator", (number, message))
            else:
                self.network.send(source, ("leader", number), message)

        producer.send, producer.on_code = send, on_code
        producer.again_ms = self.clock.now_ms() + AGAIN_MS
        send()

    def _answered(self, producer: Producer, value: Any) -> None:
        code = value.code if isinstance(value, PenstockError) else getattr(value, "error_code", value)
        if code in RETRIABLE:
            producer.again_ms = self.clock.now_ms() + self.rng.randint(0, AGAIN_MS)
            return
        on_code, producer.send, producer.waits_for = producer.on_code, None, -1
        assert on_code is not None
        on_code(value)

    def _asks(self, body: Any, version: int) -> Ask:
        return Ask(body=body, version=version, client_id="", client_host="")

    def _is_mine(self, producer: Producer, key: ProducerKey) -> None:
        owner = self.owners.setdefault(key, id(producer))
        assert owner == id(producer), f"OneProducerPerEpoch: {key} is given to two producers"
        if producer.key != key:
            producer.sequences.clear()
        producer.key = key

    def _initialise(self, producer: Producer) -> None:
        came = producer.came or ProducerKey(-1, -1)
        request = InitProducerIdRequest(
            transactional_id=producer.name,
            transaction_timeout_ms=producer.timeout_ms,
            producer_id=came.producer_id,
            producer_epoch=came.epoch,
        )

        def ask() -> InitProducer:
            return InitProducer(ask=self._asks(request, 5), fresh_producer_id=next(self.numbers))

        def on_code(value: Any) -> None:
            if value.error_code == ErrorCode.NONE:
                self.counts["came_back" if producer.came else "initialised"] += 1
                producer.came, producer.has_lost_batch = None, False
                self._is_mine(producer, ProducerKey(value.producer_id, value.producer_epoch))
            else:
                self._give_up(producer, value.error_code)

        self._ask(producer, "coordinator", ask, on_code)

    def _give_up(self, producer: Producer, code: int) -> None:
        assert code in FENCED, f"{ErrorCode(code).name} is not an answer that a producer is prepared for"
        self.counts["fenced"] += 1
        self._die(producer)

    def _begin(self, producer: Producer) -> None:
        producer.txn = Txn(f"{producer.name}/{len(self.txns)}")
        self.txns.append(producer.txn)
        producer.joined = set()
        producer.left_to_do = self.rng.randint(1, 5)

    def _produce_one(self, producer: Producer) -> None:
        producer.left_to_do -= 1
        number = self.rng.randrange(PARTITIONS)
        if producer.newer or number in producer.joined:
            self._produce_to(producer, number)
        elif number == OFFSETS:
            self._add(producer, number, self._offsets_command(producer))
        else:
            self._add(producer, number, self._partitions_command(producer, number))

    def _partitions_command(self, producer: Producer, number: int) -> Ask:
        key = producer.key
        assert key is not None
        request = AddPartitionsToTxnRequest(
            v3_and_below_transactional_id=producer.name,
            v3_and_below_producer_id=key.producer_id,
            v3_and_below_producer_epoch=key.epoch,
            v3_and_below_topics=[AddPartitionsToTxnTopic(name=partition_of(number).topic, partitions=[number])],
        )
        return self._asks(request, 3)

    def _offsets_command(self, producer: Producer) -> AddOffsets:
        key = producer.key
        assert key is not None
        request = AddOffsetsToTxnRequest(
            transactional_id=producer.name, producer_id=key.producer_id, producer_epoch=key.epoch, group_id="g"
        )
        return AddOffsets(ask=self._asks(request, 3), offsets_partition=OFFSETS)

    def _add(self, producer: Producer, number: int, command: Any) -> None:
        def on_code(value: Any) -> None:
            code = value.error_code
            if number != OFFSETS:
                (topic,) = value.results_by_topic_v3_and_below
                code = topic.results_by_partition[0].partition_error_code
            if code == ErrorCode.NONE:
                producer.joined.add(number)
                self._produce_to(producer, number)
            elif code not in RETRIABLE:
                self._give_up(producer, code)
            else:
                producer.left_to_do += 1

        self._ask(producer, "coordinator", command, on_code)

    def _produce_to(self, producer: Producer, number: int) -> None:
        key, txn = producer.key, producer.txn
        assert key is not None
        assert txn is not None
        producer.joined.add(number)
        batch = Batch(
            partition=number,
            name=producer.name,
            producer=key,
            sequence=producer.sequences[number],
            txn=txn,
            newer=producer.newer,
        )

        def on_code(code: ErrorCode) -> None:
            if code is ErrorCode.NONE:
                producer.sequences[number] += 1
                txn.acked.append((number, *key, batch.sequence))
            else:
                self.counts["batches_refused"] += 1
                self.counts[f"refused_{code.name}"] += 1
                producer.has_lost_batch, producer.left_to_do = True, -1

        self._ask(producer, "leader", batch, on_code)
        if self.rng.random() < 0.05:
            # It waits no longer, and does not know whether the batch was written.
            producer.send, producer.waits_for = None, -1
            producer.has_lost_batch, producer.left_to_do = True, -1

    def _end(self, producer: Producer) -> None:
        """Only what was acknowledged as a whole is committed; and who wants a commit never wants anything else."""
        key, txn = producer.key, producer.txn
        assert key is not None
        assert txn is not None
        if not txn.wants_commit and producer.has_lost_batch and self.rng.random() < 0.3:
            producer.txn, producer.came = None, key  # the abort is left to InitProducerId (KIP-360)
            return
        if not producer.joined:
            producer.txn = None
            return
        txn.wants_commit = txn.wants_commit or (not producer.has_lost_batch and self.rng.random() < 0.7)
        request = EndTxnRequest(
            transactional_id=producer.name,
            producer_id=key.producer_id,
            producer_epoch=key.epoch,
            committed=txn.wants_commit,
        )
        ask = self._asks(request, 5 if producer.newer else 3)
        number = -1

        def on_code(value: Any) -> None:
            if value.error_code != ErrorCode.NONE:
                self._give_up(producer, value.error_code)
                return
            self.counts["commits" if txn.wants_commit else "aborts"] += 1
            txn.told, producer.txn = txn.wants_commit, None
            txn.check()
            if producer.newer:
                self._is_mine(producer, ProducerKey(value.producer_id, value.producer_epoch))
                producer.has_lost_batch = False
            elif producer.has_lost_batch:
                producer.came = key

        def command() -> Any:
            is_late = not producer.newer and producer.waits_for != number
            return "late" if is_late else ask

        self._ask(producer, "coordinator", command, on_code)
        number = producer.waits_for

    # -- checks

    def _check(self) -> None:
        for number, log in enumerate(self.logs):
            if log.dirty:
                log.dirty = False
                seen, hidden = log.read_committed()
                for txn in seen:
                    txn.seen_in.add(number)
                for txn in hidden:
                    txn.hidden_in.add(number)
                for txn in seen | hidden:
                    txn.check()

    def _check_acked(self) -> None:
        """What was acknowledged, and then committed, is there; what was seen or hidden is whole."""
        there = {
            (number, entry.producer_id, entry.epoch, entry.sequence): entry.txn
            for number, log in enumerate(self.logs)
            for entry in log.entries
            if entry.txn is not None
        }
        for txn in self.txns:
            if txn.told:
                for place in txn.acked:
                    assert there.get(place) is txn, f"CommitNeverUndone: {txn} has lost {place}"
                    assert place[0] in txn.seen_in, f"CommitNeverUndone: {txn} is not read in partition {place[0]}"
        self.counts["states"] = len({known.state for known in self.machine.transactions.values()} | {State.EMPTY})
