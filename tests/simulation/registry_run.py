"""One seeded run of the schema registry's state machine: clients that register and delete, failovers, compaction.

What is simulated around the state machine is the least that shows its mistakes: a log whose end can be lost until it
is committed, and that is compacted; checks of schemas that take time, during which others change the subject; and a
network that delays, loses and repeats. A schema is a number, compatible with the latest version if it is not smaller.
After every step:
- IdMeansOneSchema: an id of a context that a client was told is never that of another schema, also after a failover,
  and after compaction has removed the records of what was deleted;
- AcknowledgedNeverLost: a version that a client was told is there until a client asks for its deletion;
- EveryVersionWasChecked: each version is compatible with the latest one before it;
- RecordsTellAll: the log has the whole state.
"""

from collections import Counter
from collections.abc import Callable
from itertools import count
from random import Random
from typing import Any, NamedTuple

from penstock.foundation.decision import NO_PRODUCER, Decision, StateRecord
from penstock.foundation.errors import PenstockError
from penstock.schemas.registry.commands import DeleteSubject, DeleteVersion, Read, Register, SetConfig, StateChanged
from penstock.schemas.registry.layout import SchemaKey, decode
from penstock.schemas.registry.machine import RegistryMachine
from penstock.schemas.registry.model import LATEST, SchemaText, SchemaVersion
from penstock.schemas.registry.state import RegistryState
from penstock.schemas.registry.subjects import Subject
from tests.simulation.clock import FakeClock
from tests.simulation.network import Conditions, FakeNetwork

SUBJECTS = ("a", "b", ":.eu:a")
FAULTS = {"restart": 2, "failover": 3, "compact": 3, "disk": 1, "disk repaired": 3}
"""With how often each happens, compared with the others."""
BUGS = {
    "old checks": "EveryVersionWasChecked",
    "ids of what is there": "IdMeansOneSchema",
    "early replies": "AcknowledgedNeverLost",
}
"""Bugs that can be planted, and the invariant that each violates."""


class Check(NamedTuple):
    """A registration whose schema is being checked."""

    until_ms: int
    source: Any
    command: Register
    latest: int
    """The schema that it was found to be compatible with; -1 for none."""


class RegistryRun:
    def __init__(self, seed: int, steps: int, *, bug: str = "") -> None:
        self.rng = Random(seed)
        self.steps = steps
        self.bug = bug
        self.clock = FakeClock()
        conditions = Conditions(
            delay_ms_max=self.rng.choice((5, 50)),
            loss=self.rng.choice((0.0, 0.1)),
            repeat=self.rng.choice((0.0, 0.2)),
        )
        self.network = FakeNetwork(Random(self.rng.random()), self.clock, conditions)
        self.counts: Counter[str] = Counter()
        self.tickets = count()
        self.sources: dict[int, Any] = {}
        self.log: list[StateRecord] = []
        self.safe = 0
        """Records that are committed: no fault takes them back."""
        self.waiting: list[tuple[int, Decision]] = []
        self.checks: list[Check] = []
        self.meaning: dict[tuple[str, int], str] = {}
        self.acked: dict[tuple[str, int], SchemaVersion] = {}
        self.disk_fails = 0.0
        self.commit_chance = self.rng.choice((0.2, 0.5, 0.9))
        self._start()

    @property
    def faults(self) -> int:
        return sum(self.counts[name] for name in ("restarts", "failovers", "compactions", "not_persisted"))

    @property
    def state(self) -> RegistryState:
        return self.machine.state

    def run(self) -> None:
        for _ in range(self.steps):
            self.clock.advance(self.rng.choice((0, 1, 5, 20)))
            for _, target, message in self.network.arrivals():
                self._ask(message) if target == "registry" else self._hear(message)
            self._submit_checked()
            if self.rng.random() < self.commit_chance:
                self._commit()
            if self.rng.random() < 0.3:
                self.network.send("client", "registry", self._next_request())
            if self.rng.random() < 0.04:
                self._fault()
            self.counts["steps"] += 1
            self._check()

    # -- clients

    def _next_request(self) -> tuple[str, Any]:
        """What a client asks for next."""
        subject, chance = self.rng.choice(SUBJECTS), self.rng.random()
        if chance < 0.6:
            latest = self.state.version(subject, LATEST)
            number = self.rng.randint(0, 5) if latest is None else int(latest.schema.text) + self.rng.randint(-1, 2)
            return "register", (subject, str(number))
        if chance < 0.7:
            return "change", SetConfig(subject, {"alias": None})
        if chance < 0.85:
            version = self.rng.choice((LATEST, LATEST, 1, 2))
            return "change", DeleteVersion(subject, version, self.rng.random() < 0.5)
        return "change", DeleteSubject(subject, self.rng.random() < 0.6)

    def _hear(self, reply: Any) -> None:
        """A client gets a reply."""
        if not isinstance(reply, SchemaVersion):
            return
        self.counts["registered"] += 1
        context = Subject.parse(reply.subject).context
        known = self.meaning.setdefault((context, reply.id), reply.schema.text)
        assert known == reply.schema.text, (
            f"IdMeansOneSchema: {reply.id} of {context} is {known} and {reply.schema.text}"
        )

    # -- the broker

    def _ask(self, message: tuple[str, Any]) -> None:
        kind, body = message
        if kind == "register":
            self._begin_check(*body)
            return
        if isinstance(body, DeleteVersion | DeleteSubject):
            for key in [key for key in self.acked if key[0] == body.subject]:
                del self.acked[key]  # some of them may be deleted from now on
        self._submit(body)

    def _begin_check(self, subject: str, text: str) -> None:
        """Compares a schema with the latest version, which takes a while."""
        latest = self.state.version(subject, LATEST)
        same = next((each for each in self.state.versions(subject) if each.schema.text == text), None)
        if same is not None:
            self._submit(Read(lambda state: same))
            return
        if latest is not None and int(text) < int(latest.schema.text):
            self.counts["incompatible"] += 1
            return
        revision = self.state.revision(subject)
        command = Register(subject, SchemaText(type="AVRO", text=text), 0, None, revision)
        number = -1 if latest is None else int(latest.schema.text)
        self.checks.append(Check(self.clock.now_ms() + self.rng.choice((0, 5, 100)), "client", command, number))

    def _submit_checked(self) -> None:
        due = [check for check in self.checks if check.until_ms <= self.clock.now_ms()]
        for check in due:
            self.checks.remove(check)
            command = check.command
            if self.bug == "old checks":
                command = command._replace(revision=self.state.revision(command.subject))
            self._submit(command)

    def _submit(self, command: Any) -> None:
        ticket = next(self.tickets)
        try:
            decision = self.machine.decide(ticket, command, self.clock.now_ms())
        except PenstockError:
            self.counts["refused"] += 1
            return
        if decision.replies[0].value == StateChanged():
            self.counts["checked_again"] += 1
            self._begin_check(command.subject, command.schema.text)
            return
        if decision.persist:
            if self.rng.random() < self.disk_fails:
                self.counts["not_persisted"] += 1
                return
            self.log += (StateRecord(key=each.key, value=each.value) for each in decision.persist)
            for each in decision.persist:
                self._check_compatible(each)
                self.machine.apply(each, NO_PRODUCER)
            self.counts[type(command).__name__] += 1
        end = 0 if self.bug == "early replies" else len(self.log)
        self.waiting.append((end, decision))

    def _check_compatible(self, record: StateRecord) -> None:
        key, value = decode(record)
        if isinstance(key, SchemaKey) and isinstance(value, SchemaVersion) and not value.deleted:
            latest = self.state.version(key.subject, LATEST)
            is_new = latest is None or latest.version < key.version
            assert latest is None or not is_new or int(latest.schema.text) <= int(value.schema.text), (
                f"EveryVersionWasChecked: {latest} before {value}"
            )

    def _commit(self) -> None:
        end = len(self.log)
        self.safe = self.rng.randint(self.safe, end) if self.rng.random() < 0.3 else end
        while self.waiting and self.waiting[0][0] <= self.safe:
            _, decision = self.waiting.pop(0)
            for reply in decision.replies:
                self.network.send("registry", "client", reply.value)
                if isinstance(reply.value, SchemaVersion) and decision.persist:
                    self._acknowledge(reply.value)

    def _acknowledge(self, added: SchemaVersion) -> None:
        if self.state.version(added.subject, added.version) == added:  # else it was deleted meanwhile
            self.acked[added.subject, added.version] = added

    # -- faults

    def _fault(self) -> None:
        (kind,) = self.rng.choices(list(FAULTS), list(FAULTS.values()))
        actions: dict[str, Callable[[], None]] = {
            "restart": self._restart,
            "failover": self._fail_over,
            "compact": self._compact,
        }
        if kind in actions:
            actions[kind]()
        else:
            self.disk_fails = self.rng.choice((0.1, 1.0)) if kind == "disk" else 0.0

    def _restart(self) -> None:
        self.counts["restarts"] += 1
        before = self.state
        self._start()
        assert self.state.subjects == before.subjects, "RecordsTellAll"
        assert self.state.configs == before.configs, "RecordsTellAll"

    def _fail_over(self) -> None:
        """A replica leads that has what is committed, and perhaps more: also a part of a decision."""
        self.counts["failovers"] += 1
        end = self.rng.randint(self.safe, len(self.log))
        self.counts["records_cut"] += len(self.log) - end
        del self.log[end:]
        self._start()

    def _compact(self) -> None:
        """Compaction leaves the last record of each key, and no tombstones; of what is committed."""
        self.counts["compactions"] += 1
        last = {record.key: at for at, record in enumerate(self.log[: self.safe])}
        left = [
            record
            for at, record in enumerate(self.log[: self.safe])
            if last[record.key] == at and record.value is not None
        ]
        removed = self.safe - len(left)
        self.counts["records_compacted"] += removed
        self.log[: self.safe] = left
        self.waiting = [(max(0, end - removed), decision) for end, decision in self.waiting]
        self.safe = len(left)

    def _start(self) -> None:
        """A broker that knows the log, and nothing else."""
        self.machine = RegistryMachine(bytes_max=1 << 20)
        for record in self.log:
            key, value = decode(record)
            if self.bug == "ids of what is there" and "penstock" in str(key):
                continue
            self.state.apply(key, value)
        self.machine.loaded(self.clock.now_ms())
        lost = [reply for _, decision in self.waiting for reply in decision.replies]
        self.counts["not_answered"] += len(lost)
        self.waiting.clear()
        self.checks.clear()

    # -- what must hold

    def _check(self) -> None:
        for (subject, version), added in self.acked.items():
            found = self.state.version(subject, version)
            assert found == added, f"AcknowledgedNeverLost: {added}, now {found}"
