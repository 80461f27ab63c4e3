"""Simulated Spark queries on top of simulated producers: drivers, tasks, and what their batches must come to.

A driver has the tasks of a batch written, each in several attempts if need be, has them committed by CommitSet, and
notes that in its checkpoint. Drivers die at any moment and are replaced by others that know the checkpoint only; some
of the dead go on for a while, and so do their tasks. SetCommittedWhole: for every decided batch exactly one set of
participants is committed, whole, and a read_committed reader sees each batch of a query exactly once.

Some queries are closed while their drivers and tasks are running. ClosedBeginsNothing: after CLOSE was answered, no
task of the query has an ongoing transaction, and no other batch of it is committed.
"""

from collections import defaultdict
from collections.abc import Iterable
from typing import Any, Protocol

from penstock.foundation.codes import ErrorCode
from penstock.foundation.spark_ids import query_of, transactional_id
from penstock.transactions.coordinator import TransactionCoordinator
from penstock.transactions.states import State
from penstock.wire.messages.commit_set import ABORT, CLOSE, COMMIT, CommitSetParticipant, CommitSetRequest
from penstock.wire.messages.end_txn import EndTxnRequest
from tests.simulation.transaction_model import Txn
from tests.simulation.transaction_producer import NO_KEY, Client, Producer, World, asked

TASKS = (2, 0, 3, 1)
"""How many tasks of a batch have something to write, over and over."""
ATTEMPTS_MAX = 4
OUTLIVES_MS = (0, 300, 2000)
"""How long a driver goes on after its query was closed: for less time than that is kept in mind."""


class SparkWorld(World, Protocol):
    """What queries live in."""

    timeouts_ms: tuple[int, ...]
    producers: dict[int, Client]

    def settle(self, client: Client) -> None: ...


class Query:
    """What outlives its drivers: the checkpoint, and what was ever asked to be committed."""

    def __init__(self, name: str) -> None:
        self.name = name
        self.committed = -1
        """The last batch that Spark itself knows to be committed."""
        self.sets: defaultdict[int, set[frozenset[Txn]]] = defaultdict(set)
        """By batch, the sets of transactions that a driver has asked for."""
        self.requests: list[CommitSetRequest] = []
        self.acked = -1
        """The last batch whose decision was acknowledged to a driver."""
        self.closer: Closer | None = None

    def check(self, last_batch_id: int, txns: Iterable[Txn], *, is_over: bool) -> None:
        """SetCommittedWhole. `is_over`: everything that was decided has been carried out."""
        if self.closer is not None and self.closer.knows_nothing:
            return
        if self.closer is not None and self.closer.last_batch_id is not None:
            last_batch_id = self.closer.last_batch_id  # the coordinator may have forgotten it by now
        seen: defaultdict[int, set[Txn]] = defaultdict(set)
        for txn in txns:
            if txn.share is not None and txn.share[0] == self.name and txn.seen_in:
                seen[txn.share[1]].add(txn)
        for batch_id, found in seen.items():
            fitting = [one for one in self.sets[batch_id] if found <= one]
            assert fitting, f"SetCommittedWhole: batch {batch_id} of {self.name} is read from several sets: {found}"
        if not is_over:
            return
        assert self.acked <= last_batch_id, f"SetCommittedWhole: batch {self.acked} was decided, and is forgotten"
        for batch_id in range(last_batch_id + 1):
            assert frozenset(seen[batch_id]) in self.sets[batch_id], (
                f"SetCommittedWhole: of batch {batch_id} of {self.name} there is {seen[batch_id]}, asked for was"
                f" {self.sets[batch_id]}"
            )
        assert max(seen, default=-1) <= last_batch_id


class Task(Producer):
    """One attempt of one task: it writes in a transaction, and leaves that open."""

    def __init__(self, world: SparkWorld, place: int, query: str, batch_id: int, number: int, attempt: int) -> None:
        super().__init__(
            world,
            place,
            name=transactional_id(query, number, f"0.{attempt}"),
            newer=True,
            timeout_ms=world.rng.choice(world.timeouts_ms),
            from_ms=world.clock.now_ms() + world.rng.choice((0, 0, 30, 200)),
        )
        self.spark_world = world
        self.is_done = False
        self.has_failed = False
        self.txn = Txn(f"{self.name} in batch {batch_id}", share=(query, batch_id, number))
        world.txns.append(self.txn)
        self.left_to_do = world.rng.randint(1, 4)

    def act(self) -> None:
        if self.is_dead or self.asks():
            return
        if self.key == NO_KEY:
            if self.world.clock.now_ms() >= self._again_ms:
                self._initialise()
        elif self.has_lost_batch and not self.is_done:
            self._fail()
        elif self.left_to_do > 0:
            self._produce_one()
        elif not self.is_done and self.world.rng.random() < 0.15:
            self.is_done, self.left_to_do = True, self.world.rng.randint(1, 3)  # and it goes on, as it must not
        else:
            self.is_done = True
            self.spark_world.settle(self)

    def _give_up(self, code: int) -> None:
        self.world.counts["tasks_fenced"] += 1
        self._fail()

    def _fail(self) -> None:
        """Some attempts take their transaction back, others just stop."""
        self.has_failed = True
        self.world.counts["tasks_failed"] += 1
        if self.key == NO_KEY or self.world.rng.random() < 0.5:
            self.spark_world.settle(self)
            return
        request = EndTxnRequest(
            transactional_id=self.name,
            producer_id=self.key.producer_id,
            producer_epoch=self.key.epoch,
            committed=False,
        )
        self._ask("coordinator", asked(request, 5), lambda _: self.spark_world.settle(self))

    @property
    def participant(self) -> CommitSetParticipant:
        return CommitSetParticipant(
            transactional_id=self.name, producer_id=self.key.producer_id, producer_epoch=self.key.epoch
        )


class Driver(Client):
    """One incarnation of a query's driver."""

    def __init__(self, world: SparkWorld, place: int, query: Query, from_ms: int) -> None:
        super().__init__(world, place, from_ms)
        self.spark_world = world
        self.query = query
        self.batch_id = query.committed + 1
        self.attempts: defaultdict[int, list[Task]] = defaultdict(list)
        self._is_clean = world.rng.random() < 0.5
        """Whether it need not abort first what the one before it has left open."""
        self.until_ms: int | None = None
        """When it ends at last, if it was replaced and does not know."""

    def act(self) -> None:
        now_ms = self.world.clock.now_ms()
        if self.until_ms is not None and now_ms > self.until_ms:
            self.is_dead = True
        if self.is_dead or self.asks() or now_ms < self._again_ms:
            return
        if not self._is_clean:
            self._is_clean = True
            self._ask("coordinator", asked(CommitSetRequest(query=self.query.name, action=ABORT), 0), self._on_clean)
            return
        if self.world.is_calm and not self.attempts:
            return
        winners = [self._winner(number) for number in range(TASKS[self.batch_id % len(TASKS)])]
        if all(winner is not None for winner in winners):
            self._commit([winner for winner in winners if winner is not None])

    def _on_clean(self, answer: Any) -> None:
        assert answer.error_code == ErrorCode.NONE
        self.world.counts["sets_cleaned"] += answer.aborted > 0

    def _winner(self, number: int) -> Task | None:
        """The first attempt of a task that is done. New ones are begun when all have failed, or on a whim."""
        attempts = self.attempts[number]
        for task in attempts:
            if task.is_done:
                return task
        is_whim = not self.world.is_calm and self.world.rng.random() < 0.02
        if len(attempts) < ATTEMPTS_MAX and (is_whim or all(task.has_failed or task.is_dead for task in attempts)):
            self.world.counts["speculative"] += is_whim
            place = -next(self.world.numbers)
            task = Task(self.spark_world, place, self.query.name, self.batch_id, number, len(attempts))
            self.spark_world.producers[place] = task
            attempts.append(task)
        elif all(task.has_failed or task.is_dead for task in attempts):
            self._begin_again()  # too often: Spark gives up, and the query is started again
        return None

    def _commit(self, winners: list[Task]) -> None:
        for task in winners:
            assert task.txn is not None
            task.txn.wants_commit = True
        txns = frozenset(task.txn for task in winners if task.txn is not None)
        request = CommitSetRequest(
            query=self.query.name,
            action=COMMIT,
            batch_id=self.batch_id,
            participants=[task.participant for task in winners],
        )
        self.query.sets[self.batch_id].add(txns)
        self.query.requests.append(request)

        def on_answer(answer: Any) -> None:
            if answer.error_code != ErrorCode.NONE:
                assert answer.broken, answer
                self.world.counts["sets_broken"] += 1
                self._begin_again()
                return
            if answer.outcome and answer.last_batch_id < self.batch_id:
                self.world.counts["drivers_closed"] += 1
                self.is_dead = True
                return
            self.world.counts["sets_repeated" if answer.outcome else "sets_committed"] += 1
            self.query.acked = max(self.query.acked, self.batch_id)
            if not answer.outcome:
                for txn in txns:
                    txn.outcome = True
                    txn.check()
            if self.world.rng.random() < 0.1:
                self.world.counts["drivers_between"] += 1
                self._begin_again()  # killed between the decision and its own note of it
                return
            self.query.committed = max(self.query.committed, self.batch_id)
            self.attempts.clear()
            self.batch_id += 1

        self._ask("coordinator", asked(request, 0), on_answer)

    def _begin_again(self) -> None:
        """As another driver would: with the checkpoint, and nothing else."""
        self.attempts.clear()
        self.batch_id = self.query.committed + 1
        self._is_clean = self.world.rng.random() < 0.5
        self._stop_waiting()
        if self.world.is_calm:
            self.is_dead = True


class Closer(Client):
    """Closes a query and records the last committed batch that the coordinator reports."""

    def __init__(self, world: SparkWorld, place: int, query: Query, forgotten_ms: int) -> None:
        super().__init__(world, place, world.clock.now_ms())
        self.query = query
        self._forgotten_ms = forgotten_ms
        self.since_ms = world.clock.now_ms()
        self.last_batch_id: int | None = None
        """The last committed batch; None until CLOSE is answered."""
        self._answered_in_time = False
        """Whether CLOSE was answered before the closed query could expire."""
        self._close()

    def act(self) -> None:
        self.asks()

    def _close(self) -> None:
        request = CommitSetRequest(query=self.query.name, action=CLOSE)
        self._ask("coordinator", asked(request, 0), self._on_closed)

    def _on_closed(self, answer: Any) -> None:
        assert answer.error_code == ErrorCode.NONE
        if answer.still_open:
            self._close()
            return
        self.world.counts["queries_closed"] += 1
        self.last_batch_id = answer.last_batch_id
        self._answered_in_time = not self._may_be_forgotten

    @property
    def knows_nothing(self) -> bool:
        """Whether the closed query may have expired before CLOSE was answered."""
        return self._may_be_forgotten and not self._answered_in_time

    @property
    def _may_be_forgotten(self) -> bool:
        return self.world.clock.now_ms() - self.since_ms >= self._forgotten_ms

    def check(self, machine: TransactionCoordinator) -> None:
        """ClosedBeginsNothing."""
        if self.last_batch_id is None or self._may_be_forgotten:
            return
        assert machine.queries.last_batch_of(self.query.name) == self.last_batch_id, "ClosedBeginsNothing"
        for name, known in machine.transactions.items():
            if query_of(name) == self.query.name:
                assert known.state is not State.ONGOING, f"ClosedBeginsNothing: {known}"
