"""One seeded run of a transaction coordinator: producers that share ids, partitions, markers, and faults.

What is simulated around the coordinator is the least that shows its mistakes: logs that know open transactions,
producers that do what a client has to do, and a network that delays, loses, repeats and reorders. After every step:
- NoAbortedRead: a read_committed reader sees a transaction in all of its partitions or in none, only if its
  producer asked for a commit, and never after its abort was acknowledged;
- CommitNeverUndone: a transaction whose commit was acknowledged is never aborted, and can be read;
- OneProducerPerEpoch: no two producers are given the same epoch of a producer id;
- FencedNeverJoins: between two markers of a producer id there are records of one transaction only;
- CompleteIsMarked: when a transaction is complete, all of its partitions have its marker;
- RecordsTellAll: the records have the whole state of the coordinator;
- SetCommittedWhole, ClosedBeginsNothing: see transaction_sets.py, whose queries run beside the producers.
Once the faults stop, every transaction ends within its timeout and one check (EveryTransactionEnds).

Two things are left out that no coordinator can survive, which is why KIP-890 gives each transaction an epoch: from a
client that keeps its epoch, an EndTxn that arrives after the client has gone on; and markers of such a client that
arrive after their coordinator got the acknowledgement.
"""

from collections import Counter
from dataclasses import dataclass
from itertools import count
from random import Random
from typing import Any

from penstock.foundation.codes import ErrorCode
from penstock.foundation.decision import NO_PRODUCER, NO_TICKET, Decision, ProducerKey, StateRecord
from penstock.foundation.errors import CoordinatorNotAvailable, PenstockError
from penstock.transactions.add_partitions import code_for_producer
from penstock.transactions.commands import EndTransaction, JoinTransaction, WriteMarkers
from penstock.transactions.coordinator import TransactionCoordinator
from penstock.transactions.errors import NeedsProducerId
from penstock.transactions.settings import TransactionSettings
from penstock.transactions.transaction import EPOCH_LAST, Transaction
from tests.simulation.clock import FakeClock
from tests.simulation.network import Conditions, FakeNetwork
from tests.simulation.transaction_model import PARTITIONS, Batch, Log, Txn, partition_of
from tests.simulation.transaction_producer import AGAIN_MS, Client, Producer, asked
from tests.simulation.transaction_sets import OUTLIVES_MS, Closer, Driver, Query, Task

SETTINGS = TransactionSettings(
    timeout_max_ms=4000, id_expiration_ms=3000, abort_interval_ms=300, expiry_interval_ms=700
)
FAULTS = {
    "restart": 2,
    "failover": 2,
    "death": 6,
    "disk": 2,
    "mended": 6,
    "pause": 1,
    "task": 3,
    "driver": 2,
    "stale set": 3,
    "close": 1,
}
"""With how often each happens, compared with the others."""


@dataclass(eq=False, slots=True)
class Order:
    """Markers that are being written."""

    order: WriteMarkers
    left: set[int]
    news_ms: int = -1
    """When the coordinator hears that all are written."""


class TransactionRun:
    timeouts_ms = (600, 2000, SETTINGS.timeout_max_ms)

    def __init__(self, seed: int, steps: int, *, tears_batches: bool = False) -> None:
        self.rng = Random(seed)
        self.steps = steps
        self.tears_batches = tears_batches
        """A planted bug: a crash while records of one decision are persisted leaves a part of them."""
        self.clock = FakeClock()
        conditions = Conditions(
            delay_ms_max=self.rng.choice((5, 30)),
            loss=self.rng.choice((0.0, 0.05, 0.2)),
            repeat=self.rng.choice((0.0, 0.2)),
        )
        self.network = FakeNetwork(Random(self.rng.random()), self.clock, conditions)
        self.counts: Counter[str] = Counter()
        self.numbers = count()
        self.is_calm = False
        self.logs = [Log() for _ in range(PARTITIONS)]
        self.txns: list[Txn] = []
        self.owners: dict[ProducerKey, int] = {}
        self.records: list[StateRecord] = []
        self.safe = 0
        """Records that are committed: no fault takes them back."""
        self.inside: set[int] = set()
        """Where the records cannot be cut, because they are in the middle of a batch."""
        self.waiting: list[tuple[int, Decision]] = []
        self.tickets: dict[int, tuple[Any, int]] = {}
        self.orders: list[Order] = []
        self.newest: dict[str, Order] = {}
        self.joins: dict[int, tuple[Batch, int, Any, int]] = {}
        self.commit_chance = self.rng.choice((0.15, 0.5, 0.9))
        self.disk_fails = 0.0
        self.epoch = 0
        self.names = [f"id-{number}" for number in range(self.rng.randint(2, 4))]
        self._use_up_epochs()
        self._start()
        self.producers: dict[int, Client] = {place: self._born(place) for place in range(self.rng.randint(2, 5))}
        self.queries = [Query(f"q{number}") for number in range(self.rng.randint(0, 2))]
        self.drivers: dict[int, Driver] = {}
        self.closers: list[Closer] = []
        for query in self.queries:
            self._drive(query)

    @property
    def faults(self) -> int:
        return sum(self.counts[kind] for kind in ("restarts", "failovers", "deaths", "records_not_persisted"))

    def _use_up_epochs(self) -> None:
        """Some ids have come so far that few of their epochs are left."""
        for name in self.names:
            if self.rng.random() < 0.7:
                known = Transaction(
                    transactional_id=name,
                    producer_id=next(self.numbers),
                    epoch=EPOCH_LAST - self.rng.randint(0, 3),
                    timeout_ms=1000,
                    updated_ms=self.clock.now_ms(),
                )
                self.records.append(known.to_record())
        self.safe = len(self.records)

    # -- the run

    def run(self) -> None:
        for _ in range(self.steps):
            self._step(self.rng.choice((0, 1, 5, 10, 20, 40)))
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
            producer.act()
        self._check()
        for closer in self.closers:
            closer.check(self.machine)
        if self.counts["steps"] % 50 == 0:
            self._check_sets(is_over=False)

    def _calm_down(self) -> None:
        """The faults stop; some producers hang for ever, the others end what they have begun."""
        self.is_calm = True
        self.network.conditions.loss = self.network.conditions.repeat = self.disk_fails = 0.0
        for producer in self.producers.values():
            producer.is_dead = self.rng.random() < 0.5
        until_ms = self.clock.now_ms() + SETTINGS.timeout_max_ms + SETTINGS.abort_interval_ms + 50 * AGAIN_MS
        while self.clock.now_ms() < until_ms:
            self._step(40)
        for known in self.machine.transactions.values():
            assert known.is_at_rest, f"EveryTransactionEnds: {known}"
        for number, log in enumerate(self.logs):
            assert not log.open, f"EveryTransactionEnds: {log.open} in partition {number}"
            assert log.last_stable_offset == len(log.entries)
        self._check_acked()
        self._check_sets(is_over=True)

    # -- faults

    def _fault(self) -> None:
        (kind,) = self.rng.choices(list(FAULTS), list(FAULTS.values()))
        if kind == "restart":
            self.counts["restarts"] += 1
            before, decided = self.machine.transactions, self.machine.queries.decided
            self._start()
            assert self.machine.transactions == before, "RecordsTellAll"
            assert self.machine.queries.decided == decided, "RecordsTellAll"
        elif kind == "failover":
            self.counts["failovers"] += 1
            kept = self._uncut(self.rng.randint(self.safe, len(self.records)))
            self.counts["records_cut"] += len(self.records) - kept
            del self.records[kept:]
            self.inside = {at for at in self.inside if at < kept}
            self._start()
        elif kind == "death":
            self.counts["deaths"] += 1
            self.die(self.rng.choice([one for one in self.producers.values() if type(one) is Producer]))
        elif kind in ("task", "driver", "stale set", "close"):
            self._fault_of_spark(kind)
        elif kind == "disk":
            self.disk_fails = self.rng.choice((0.1, 0.5, 1.0))
        elif kind == "mended":
            self.disk_fails = 0.0
        else:
            self.counts["pauses"] += 1
            self.clock.advance(self.rng.choice((500, 3000, 8000)))

    def _fault_of_spark(self, kind: str) -> None:
        tasks = [one for one in self.producers.values() if isinstance(one, Task)]
        requests = [request for query in self.queries for request in query.requests]
        if kind == "task" and tasks:
            self.counts["tasks_killed"] += 1
            task = self.rng.choice(tasks)
            task.is_dead = True
            self.settle(task)
        elif kind == "driver" and self.drivers:
            self.counts["drivers_killed"] += 1
            place, driver = self.rng.choice(list(self.drivers.items()))
            driver.until_ms = self.clock.now_ms() + self.rng.choice((0, 0, 300, 3000))
            del self.drivers[place]
            self._drive(driver.query)
        elif kind == "stale set" and requests:
            self.counts["sets_stale"] += 1
            self.network.send("unknown", "coordinator", (0, asked(self.rng.choice(requests), 0)))
        elif kind == "close" and self.drivers:
            place, driver = self.rng.choice(list(self.drivers.items()))
            del self.drivers[place]
            driver.until_ms = self.clock.now_ms() + self.rng.choice(OUTLIVES_MS)
            place = -next(self.numbers)
            closer = Closer(self, place, driver.query, SETTINGS.id_expiration_ms)
            self.producers[place] = driver.query.closer = closer
            self.closers.append(closer)

    def _drive(self, query: Query) -> None:
        """Another driver takes over a query."""
        place = -next(self.numbers)  # no place of a producer
        driver = Driver(self, place, query, self.clock.now_ms() + self.rng.choice((0, 50, 1000)))
        self.drivers[place] = self.producers[place] = driver

    def settle(self, client: Client) -> None:
        """It has no more to do, and is asked for no more."""
        self.producers.pop(client.place, None)

    def die(self, producer: Producer) -> None:
        """Starts another producer, mostly with the same id, soon or long after."""
        producer.is_dead = True
        self.producers[producer.place] = self._born(producer.place)

    def _born(self, place: int) -> Producer:
        own = self.names[place % len(self.names)]
        return Producer(
            self,
            place,
            name=own if self.rng.random() < 0.9 else self.rng.choice(self.names),
            newer=self.rng.random() < 0.5,
            timeout_ms=self.rng.choice(self.timeouts_ms),
            from_ms=self.clock.now_ms() + self.rng.choice((0, 50, 300, 3000)),
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
        # The marker writer of the coordinator before may go on for a while.
        self.orders = [order for order in self.orders if self.rng.random() < 0.5]

    def _submit(self, source: Any, number: int, command: Any) -> None:
        ticket = next(self.numbers)
        self.tickets[ticket] = (source, number)
        try:
            decision = self.machine.decide(ticket, command, self.clock.now_ms())
        except NeedsProducerId:
            self.counts["rotations"] += 1
            self._submit(source, number, EndTransaction(request=command, fresh_producer_id=next(self.numbers)))
        else:
            self._carry_out(decision)

    def _carry_out(self, decision: Decision) -> None:
        if decision.persist:
            if self.rng.random() < self.disk_fails:
                self.counts["records_not_persisted"] += 1
                for reply in decision.replies:
                    self._reply(reply.ticket, CoordinatorNotAvailable("the disk is full"))
                return
            start, end = len(self.records), len(self.records) + len(decision.persist)
            self.records.extend(decision.persist)
            if decision.is_atomic and self.tears_batches and end - start > 1:
                del self.records[self.rng.randint(start + 1, end - 1) :]
                self._start()
                return
            self.inside.update(range(start + 1, end) if decision.is_atomic else ())
            before = dict(self.machine.transactions)
            for record in decision.persist:
                self.machine.apply(record, NO_PRODUCER)
                self.counts["expiries"] += record.value is None
            self._check_completed(before)
        self.waiting.append((len(self.records), decision))

    def _commit(self) -> None:
        """Some of what was appended is committed; waiting requests are answered."""
        lags = not self.is_calm and self.rng.random() < 0.3
        end = len(self.records)
        self.safe = max(self.safe, self._uncut(self.rng.randint(self.safe, end))) if lags else end
        while self.waiting and self.waiting[0][0] <= self.safe:
            _, decision = self.waiting.pop(0)
            for reply in decision.replies:
                self._reply(reply.ticket, reply.value)
            for effect in decision.effects:
                order = Order(effect, {one.partition for one in effect.partitions})
                self.orders.append(order)
                self.newest[effect.transactional_id] = order

    def _uncut(self, at: int) -> int:
        """Where a batch ends: here, or before."""
        while at in self.inside:
            at -= 1
        return at

    def _reply(self, ticket: int, value: Any) -> None:
        source, number = self.tickets.pop(ticket, (None, 0))
        if source is not None and source != "unknown":
            self.network.send("coordinator", source, (number, value))

    def _wake(self) -> None:
        at_ms = self.machine.wake_at_ms
        if at_ms is not None and at_ms <= self.clock.now_ms():
            decision = self.machine.wake(self.clock.now_ms())
            self.counts["aborts_by_time"] += len(decision.effects) if decision.persist else 0
            self._carry_out(decision)

    def _write_markers(self) -> None:
        """In any order, some of them twice, and some of a newer client's long after."""
        for order in list(self.orders):
            if not self.is_calm and self.rng.random() < 0.5:
                continue
            for number in self.rng.sample(sorted(order.left), min(len(order.left), self.rng.randint(1, 2))):
                self.logs[number].write_marker(order.order)
                if self.is_calm or self.rng.random() < 0.8:
                    order.left.discard(number)
            if order.left:
                continue
            if order.news_ms < 0:
                order.news_ms = self.clock.now_ms() + self.rng.choice((0, 0, 10, 100))
            if order.news_ms <= self.clock.now_ms():
                self._carry_out(self.machine.decide(NO_TICKET, order.order.written(), self.clock.now_ms()))
                if self.rng.random() < 0.7:
                    self.orders.remove(order)
                else:
                    order.news_ms += self.rng.choice((10, 100, 400, 1000))  # when it is repeated
                if order.order.transaction_version >= 2 and self.rng.random() < 0.2:
                    self.network.send("shell", "late", order.order)

    # -- messages

    def _arrive(self, source: Any, target: Any, message: Any) -> None:
        if target == "coordinator":
            number, command = message
            command = command() if callable(command) else command
            if command is not None:
                self._submit(source, number, command)
        elif target == "leader":
            number, batch_or_value = message
            if isinstance(batch_or_value, Batch):
                self._produce(source, number, batch_or_value)
            else:
                self._joined(number, batch_or_value)
        elif target == "late":
            for one in message.partitions:
                self.logs[one.partition].write_marker(message)
        elif target[1] in self.producers:
            self.producers[target[1]].answered(*message)

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
        """The coordinator has answered. A marker may have come between the question and the answer."""
        if number not in self.joins:
            return
        batch, markers, source, request = self.joins.pop(number)
        log = self.logs[batch.partition]
        code = value.code if isinstance(value, PenstockError) else value[partition_of(batch.partition)]
        if code is ErrorCode.NONE:
            if log.markers[batch.producer.producer_id] != markers:
                code = ErrorCode.INVALID_TXN_STATE
            elif (refused := log.check(batch)) is None:
                log.append(batch)
            else:
                code = refused
        self.network.send("leader", source, (request, code_for_producer(code, batch.newer)))

    # -- checks

    def _check(self) -> None:
        for number, log in enumerate(self.logs):
            if log.is_changed:
                log.is_changed = False
                seen, hidden = log.read_committed()
                for txn in seen:
                    txn.seen_in.add(number)
                for txn in hidden:
                    txn.hidden_in.add(number)
                for txn in seen | hidden:
                    txn.check()

    def _check_sets(self, *, is_over: bool) -> None:
        for query in self.queries:
            query.check(self.machine.queries.last_batch_of(query.name), self.txns, is_over=is_over)

    def _check_completed(self, before: dict[str, Transaction]) -> None:
        for name, known in before.items():
            if known.is_prepared and known.partitions and not self.machine.transactions[name].is_prepared:
                assert not self.newest[name].left, f"CompleteIsMarked: {name} is complete, its partitions do not know"

    def _check_acked(self) -> None:
        """Checks that acknowledged and committed records can be read."""
        there = {
            (number, entry.producer_id, entry.epoch, entry.sequence): entry.txn
            for number, log in enumerate(self.logs)
            for entry in log.entries
            if entry.txn is not None
        }
        for txn in self.txns:
            if txn.outcome:
                for place in txn.acked:
                    assert there.get(place) is txn, f"CommitNeverUndone: {txn} has lost {place}"
                    assert place[0] in txn.seen_in, f"CommitNeverUndone: {txn} is not read in partition {place[0]}"
