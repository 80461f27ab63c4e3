"""One seeded run of the schema registry's state machine: clients that register and delete, failovers, compaction.

What is simulated around the state machine is the least that shows its mistakes: a log whose end can be lost until it
is committed, and that is compacted; checks of schemas that take time, during which others change the subject; and a
network that delays, loses and repeats. A schema is a number, and may refer to other schemas; what counts is its
total, with all that it refers to. It is compatible with the latest version if its total is not smaller. After every
step:
- IdMeansOneSchema: an id of a context that a client was told is never that of another schema, also after a failover,
  and after compaction has removed the records of what was deleted;
- AcknowledgedNeverLost: a version that a client was told is there until a client asks for its deletion;
- EveryVersionWasChecked: each version is compatible with the latest one before it, both with the versions that they
  refer to;
- ReferencesStay: what a version refers to is there, and not soft-deleted unless the version is;
- RecordsTellAll: the log has the whole state.
"""

from collections import Counter
from collections.abc import Callable, Iterator
from dataclasses import replace
from itertools import count
from random import Random
from typing import Any, NamedTuple

from penstock.foundation.decision import NO_PRODUCER, Decision, StateRecord
from penstock.foundation.errors import PenstockError
from penstock.schemas.registry import registration
from penstock.schemas.registry.checks import SchemaSource
from penstock.schemas.registry.commands import DeleteSubject, DeleteVersion, Read, Register, SetConfig, StateChanged
from penstock.schemas.registry.layout import SchemaKey, decode
from penstock.schemas.registry.machine import RegistryMachine
from penstock.schemas.registry.model import LATEST, Reference, SchemaText, SchemaVersion
from penstock.schemas.registry.registration import Draft
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
    "references of other versions": "EveryVersionWasChecked",
    "references that are gone": "ReferencesStay",
}
"""Bugs that can be planted, and the invariant that each violates."""


class Check(NamedTuple):
    """A registration whose schema is being parsed or compared."""

    until_ms: int
    found: Draft
    command: Register | None
    """What follows if it is compatible; None while it is parsed."""


class UncheckedMachine(RegistryMachine):
    """Registers schemas also if what they refer to was deleted meanwhile."""

    def _has_same_references(self, command: Register) -> bool:
        return True


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
        self.meaning: dict[tuple[str, int], SchemaText] = {}
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
            schema = SchemaText(type="AVRO", text="0", references=tuple(self._references(subject)))
            least = 3 if latest is None else self._total(latest.subject, latest.schema)
            number = least - self._total(subject, schema) + self.rng.randint(-1, 2)
            return "register", (subject, replace(schema, text=str(number)))
        if chance < 0.7:
            return "change", SetConfig(subject, {"alias": None})
        if chance < 0.85:
            version = self.rng.choice((LATEST, LATEST, 1, 2))
            return "change", DeleteVersion(subject, version, self.rng.random() < 0.5)
        return "change", DeleteSubject(subject, self.rng.random() < 0.6)

    def _references(self, subject: str) -> Iterator[Reference]:
        """Yields references to versions that are there, or were. Each version has one name in all schemas."""
        for _ in range(self.rng.choice((0, 0, 1, 2))):
            name = self.rng.choice(SUBJECTS)
            target = str(Subject.parse(subject).resolve(name))
            versions = self.state.versions(target, deleted=True)
            if versions:
                version = self.rng.choice((versions[-1], self.rng.choice(versions))).version
                yield Reference(f"{target}@{version}", name, version)

    def _total(self, subject: str, schema: SchemaText) -> int:
        """Returns the sum of a schema's number and those of all versions that it refers to, each counted once."""
        seen: dict[tuple[str, int], int] = {}
        pending = [(subject, schema)]
        while pending:
            parent, one = pending.pop()
            for each in one.references:
                target = str(Subject.parse(parent).resolve(each.subject))
                found = self.state.version(target, each.version, deleted=True)
                if found is not None and (target, each.version) not in seen:
                    seen[target, each.version] = int(found.schema.text)
                    pending.append((target, found.schema))
        return int(schema.text) + sum(seen.values())

    def _hear(self, reply: Any) -> None:
        """A client gets a reply."""
        if not isinstance(reply, SchemaVersion):
            return
        self.counts["registered"] += 1
        context = Subject.parse(reply.subject).context
        known = self.meaning.setdefault((context, reply.id), reply.schema)
        assert known == reply.schema, f"IdMeansOneSchema: {reply.id} of {context} is {known} and {reply.schema}"

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

    def _begin_check(self, subject: str, schema: SchemaText) -> None:
        """Parses a schema, which takes a while."""
        try:
            found = registration.draft(self.state, subject, schema, normalize=False, is_new=True)
        except PenstockError:  # a reference leads nowhere
            self.counts["rejected"] += 1
            return
        self._check_until(found, None)

    def _check_until(self, found: Draft, command: Register | None) -> None:
        self.checks.append(Check(self.clock.now_ms() + self.rng.choice((0, 5, 100)), found, command))

    def _submit_checked(self) -> None:
        for check in [check for check in self.checks if check.until_ms <= self.clock.now_ms()]:
            self.checks.remove(check)
            command = check.command
            if command is None:
                self._compare(check.found)
                continue
            if self.bug == "old checks":
                command = command._replace(revision=self.state.revision(command.subject))
            self._submit(command)

    def _compare(self, found: Draft) -> None:
        """Compares a schema with the latest version, which takes a while."""
        state, subject = self.state, found.subject
        same = registration.find_same(state, found)
        if same is not None:
            self._submit(Read(lambda state: same))
            return
        revision = state.revision(subject)
        try:
            job = registration.compare_job(state, self._as_compared(found), state.versions(subject))
        except PenstockError:
            self.counts["rejected"] += 1
            return
        if job.previous and _total_of(job.source) < _total_of(job.previous[0].source):
            self.counts["incompatible"] += 1
            return
        self.counts["with_references"] += bool(found.schema.references)
        self._check_until(found, Register(subject, found.schema, 0, None, revision, found.resolved.revisions))

    def _as_compared(self, found: Draft) -> Draft:
        if self.bug != "references of other versions":
            return found
        latest = tuple(replace(each, version=LATEST) for each in found.schema.references)
        schema = replace(found.schema, references=latest)
        return registration.draft(self.state, found.subject, schema, normalize=False, is_new=True)

    def _submit(self, command: Any) -> None:
        ticket = next(self.tickets)
        try:
            decision = self.machine.decide(ticket, command, self.clock.now_ms())
        except PenstockError:
            self.counts["refused"] += 1
            return
        if decision.replies[0].value == StateChanged():
            self.counts["checked_again"] += 1
            self._begin_check(command.subject, command.schema)
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
            least = None if latest is None or not is_new else self._total(key.subject, latest.schema)
            assert least is None or least <= self._total(key.subject, value.schema), (
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
        make = UncheckedMachine if self.bug == "references that are gone" else RegistryMachine
        self.machine = make(bytes_max=1 << 20)
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
        for each in (each for versions in self.state.subjects.values() for each in versions.values()):
            for reference in each.schema.references:
                target = str(Subject.parse(each.subject).resolve(reference.subject))
                referred = self.state.version(target, reference.version, deleted=each.deleted)
                assert referred is not None, f"ReferencesStay: {target} version {reference.version} of {each}"


def _total_of(source: SchemaSource) -> int:
    return int(source.text) + sum(int(text) for _, text in source.references)
