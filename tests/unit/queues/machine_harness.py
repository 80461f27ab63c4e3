"""A queue machine with a clock, a log of its records, and a list of its effects."""

from collections.abc import Iterable
from typing import Any

from penstock.foundation.decision import NO_PRODUCER, Decision, StateRecord
from penstock.foundation.errors import PenstockError
from penstock.queues.commands import (
    Acknowledge,
    Acknowledgement,
    AckType,
    Acquire,
    Acquired,
    CopyMessage,
    Destination,
    Fresh,
    NeedProducer,
    SetPosition,
    SetProducer,
)
from penstock.queues.delivery_state import DeliveryState
from penstock.queues.machine import QueueMachine
from penstock.queues.settings import DEFAULTS, DeadLetter, DeliverySettings

START_MS = 1_700_000_000_000
VISIBILITY_MS = 30_000
QUEUE = "jobs"
DEAD_TOPIC = bytes(range(16))
DEAD = DeadLetter(DEAD_TOPIC, 1)
TO_DEAD = Destination(DEAD_TOPIC, 0)
PRODUCER_ID = 4711
FIFO = DeliverySettings(is_fifo=True)
TICKET = 17


def offsets(acquired: Iterable[Acquired]) -> list[int]:
    return [offset for one in acquired for offset in range(one.first, one.last + 1)]


def compacted(records: Iterable[StateRecord]) -> list[StateRecord]:
    """The last record of each key, in their order; what is gone is gone."""
    last = {record.key: at for at, record in enumerate(list(records))}
    kept = [record for at, record in enumerate(records) if last[record.key] == at]
    return [record for record in kept if record.value is not None]


def read_back(records: Iterable[StateRecord], now_ms: int) -> QueueMachine:
    """A machine that knows the bytes of the records, and nothing else."""
    machine = QueueMachine()
    for record in records:
        machine.apply(StateRecord(key=record.key, value=record.value), NO_PRODUCER)
    machine.loaded(now_ms)
    return machine


def state_of(machine: QueueMachine) -> dict[bytes, bytes | None]:
    """All that a machine knows and must not forget."""
    return {record.key: record.value for record in machine.summary()}


class MachineHarness:
    """Where a machine runs. What it decides is persisted and applied at once, unless the log is `broken`."""

    def __init__(self, settings: DeliverySettings = DEFAULTS, *, start: int = 0, end: int = 1_000_000) -> None:
        self.settings = settings
        self.now_ms = START_MS
        self.end = end
        """Where the messages end that are in the log of the queue."""
        self.records: list[StateRecord] = []
        self.batches: list[int] = []
        """How many records each decision has persisted."""
        self.effects: list[Any] = []
        self.broken = False
        self.machine = QueueMachine()
        self.do(SetPosition(QUEUE, start))

    @property
    def delivery(self) -> DeliveryState:
        delivery = self.machine.group(QUEUE)
        assert delivery is not None
        return delivery

    # -- the shell

    def do(self, command: Any) -> Any:
        decision = self.machine.decide(TICKET, command, self.now_ms)
        (reply,) = decision.replies
        assert reply.ticket == TICKET
        self.carry_out(decision)
        return reply.value

    def carry_out(self, decision: Decision) -> None:
        if self.broken and decision.persist:
            return
        self.batches.append(len(decision.persist))
        for record in decision.persist:
            self.records.append(record)
            self.machine.apply(record, NO_PRODUCER)
        self.effects.extend(decision.effects)

    def wake(self) -> None:
        """As long as there is something due."""
        while (at_ms := self.machine.wake_at_ms) is not None and at_ms <= self.now_ms:
            self.carry_out(self.machine.wake(self.now_ms))

    def restart(self) -> None:
        """Another machine is made of what compaction leaves of the log; it knows the same."""
        before = state_of(self.machine)
        self.records = compacted(self.records)
        self.effects.clear()
        self.machine = read_back(self.records, self.now_ms)
        assert state_of(self.machine) == before

    def later(self, ms: int) -> None:
        self.now_ms += ms

    # -- what workers do

    def acquire(self, holder: str, count: int = 1, **options: Any) -> list[Acquired]:
        """Messages 0, 1, 2 and so on, up to the end, are there, and are due."""
        end = self.delivery.end
        fresh = tuple(Fresh(offset) for offset in range(end, min(end + count + 5, self.end)))
        return self.acquire_of(holder, count, fresh, **options)

    def acquire_of(
        self,
        holder: str,
        count: int,
        fresh: tuple[Fresh, ...],
        *,
        visibility_ms: int = VISIBILITY_MS,
        fresh_end: int | None = None,
        **options: Any,
    ) -> list[Acquired]:
        """With what was read ahead as it is given."""
        end = self.delivery.end
        if fresh_end is None:
            fresh_end = fresh[-1].offset + 1 if fresh else end
        command = Acquire(
            QUEUE,
            holder,
            count,
            visibility_ms,
            fresh,
            fresh_end,
            end,
            settings=options.pop("settings", self.settings),
            **options,
        )
        return list(self.do(command))

    def acknowledge(self, *items: Acknowledgement) -> list[PenstockError | None]:
        return list(self.do(Acknowledge(QUEUE, items, self.settings)))

    def say(self, holder: str, ack_type: AckType, first: int, last: int | None = None, **more: Any) -> Any:
        """One verdict: None, or why it does not count."""
        (error,) = self.acknowledge(Acknowledgement(first, first if last is None else last, holder, ack_type, **more))
        return error

    # -- what is moved

    def carries(self) -> list[CopyMessage]:
        """What is to be moved, as far as it was not asked before; those without a producer get one."""
        self.wake()
        while any(isinstance(effect, NeedProducer) for effect in self.effects):
            self.effects = [effect for effect in self.effects if not isinstance(effect, NeedProducer)]
            self.do(SetProducer(PRODUCER_ID))
            self.wake()
        found, self.effects = self.effects, []
        return found
