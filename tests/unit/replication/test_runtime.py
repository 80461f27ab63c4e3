"""The runtime: decisions of a machine are in the log before they are acknowledged, and are read back from there."""

import asyncio
import json
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest

from penstock.cluster.image import ClusterImage, PartitionState
from penstock.foundation.codes import ErrorCode
from penstock.foundation.decision import NOTHING, Decision, ProducerKey, Reply, StateRecord, Ticket
from penstock.foundation.errors import (
    CoordinatorLoadInProgress,
    CoordinatorNotAvailable,
    InvalidRequest,
    NotCoordinator,
    PenstockError,
)
from penstock.records.batch import batches
from penstock.records.build import build_pairs
from penstock.records.layout import HEADER_BYTES
from penstock.replication.runtime import FOLLOW_BYTES, StateRuntime
from penstock.replication.runtimes import StateRuntimes, java_hash
from penstock.replication.state_batches import BATCH_BYTES_MAX

from .broker_state import World, world_at

TOPIC = "__counters"


@dataclass(frozen=True, slots=True, kw_only=True)
class Add:
    name: str
    amount: int
    producer: ProducerKey | None = None
    size: int = 0


@dataclass(frozen=True, slots=True, kw_only=True)
class Get:
    name: str
    must_lead: bool = False


@dataclass(frozen=True, slots=True, kw_only=True)
class WaitFor:
    name: str
    at_ms: int


class Counters:
    """A small machine: counters that may be added to, within transactions too, and alarms."""

    def __init__(self) -> None:
        self.values: dict[str, int] = {}
        self.pending: dict[int, list[tuple[str, int]]] = {}
        self.alarms: list[tuple[int, Ticket, str]] = []
        self.loaded_ms: int | None = None

    def decide(self, ticket: Ticket, command: Any, now_ms: int) -> Decision:
        match command:
            case Add(name=""):
                raise InvalidRequest("a counter has a name")
            case Add():
                value = json.dumps([command.amount, "x" * command.size]).encode()
                return Decision(
                    persist=(StateRecord(key=command.name.encode(), value=value),),
                    transaction=command.producer,
                    replies=(Reply(ticket=ticket, value=self.values.get(command.name, 0) + command.amount),),
                    effects=((command.name, command.amount),),
                )
            case Get():
                found = Reply(ticket=ticket, value=self.values.get(command.name, 0))
                return Decision(replies=(found,), must_lead=command.must_lead)
            case WaitFor():
                self.alarms.append((command.at_ms, ticket, command.name))
        return NOTHING

    def wake(self, now_ms: int) -> Decision:
        due = [alarm for alarm in self.alarms if alarm[0] <= now_ms]
        self.alarms = [alarm for alarm in self.alarms if alarm[0] > now_ms]
        return Decision(replies=tuple(Reply(ticket=ticket, value=name) for _, ticket, name in due))

    @property
    def wake_at_ms(self) -> int | None:
        return min((at_ms for at_ms, _, _ in self.alarms), default=None)

    def apply(self, record: StateRecord, producer_id: int) -> None:
        assert record.value is not None
        change = record.key.decode(), json.loads(record.value)[0]
        if producer_id >= 0:
            self.pending.setdefault(producer_id, []).append(change)
        else:
            self._add(*change)

    def _add(self, name: str, amount: int) -> None:
        self.values[name] = self.values.get(name, 0) + amount

    def end_transaction(self, producer_id: int, committed: bool) -> None:
        for change in self.pending.pop(producer_id, []):
            if committed:
                self._add(*change)

    def loaded(self, now_ms: int) -> None:
        self.loaded_ms = now_ms


class Timers:
    """Timers that are let go by hand."""

    def __init__(self) -> None:
        self.set: list[tuple[float, Callable[[], None]]] = []

    def __call__(self, seconds: float, action: Callable[[], None]) -> Callable[[], None]:
        entry = (seconds, action)
        self.set.append(entry)
        return lambda: self.set.remove(entry) if entry in self.set else None

    def fire(self) -> None:
        entries, self.set = self.set, []
        for _, action in entries:
            action()


class Bench:
    """A runtime on a partition of a world."""

    def __init__(self, world: World) -> None:
        self.world = world
        self.timers = Timers()
        self.effects: list[Any] = []
        self.answers: list[Any] = []
        self.machine = Counters()
        self.runtime = StateRuntime(
            partition=world.partition(TOPIC),
            machine=self.machine,
            clock=world.clock,
            timer=self.timers,
            threads=world.threads,
            perform=self.effects.append,
        )

    def submit(self, command: Any) -> None:
        self.runtime.submit(command, self.answers.append)


async def bench_in(world: World, **configs: object) -> Bench:
    if TOPIC not in world.metadata.image.by_name:
        await world.create(TOPIC, **configs)
    bench = Bench(world)
    await bench.runtime.load()
    return bench


def run(work: Any) -> None:
    asyncio.run(work)


# -- deciding


def test_a_reply_comes_with_its_record_in_the_log(tmp_path: Path) -> None:
    async def main() -> None:
        async with world_at(tmp_path) as world:
            bench = await bench_in(world)
            bench.submit(Add(name="a", amount=2))
            bench.submit(Add(name="a", amount=3))
            bench.submit(Get(name="a"))
            assert bench.answers == [2, 5, 5]
            assert bench.effects == [("a", 2), ("a", 3)]
            assert world.partition(TOPIC).log.end_offset == 2

    run(main())


def test_uncommitted_state_is_not_returned_even_to_reads(tmp_path: Path) -> None:
    async def main() -> None:
        async with world_at(tmp_path) as world:
            bench = await bench_in(world, flush="group")
            world.partition(TOPIC).on_append = lambda partition: None  # the disk takes its time
            bench.submit(Get(name="a"))
            assert bench.answers == [0]
            bench.submit(Add(name="a", amount=2))
            bench.submit(Get(name="a"))
            assert bench.answers == [0]
            assert bench.effects == []
            world.partition(TOPIC).advance(1)
            assert bench.answers == [0, 2, 2]
            assert bench.effects == [("a", 2)]

    run(main())


def test_a_possibly_replaced_leader_answers_only_what_it_can_commit(tmp_path: Path) -> None:
    async def main() -> None:
        async with world_at(tmp_path) as world:
            bench = await bench_in(world)
            partition = world.partition(TOPIC)
            bench.submit(Get(name="a", must_lead=True))
            assert bench.answers == [0]
            assert partition.log.end_offset == 0  # no other broker can replace it
            state = PartitionState(replicas=(1, 2), leader=1, leader_epoch=partition.leader_epoch + 1, isr=(1, 2))
            partition.lead(state, 1, 10_000, world.clock.steady_ms())
            bench.submit(Get(name="a", must_lead=True))
            assert bench.answers == [0]
            assert partition.log.end_offset == 1
            partition.fetched(2, broker_epoch=1, offset=1, start_offset=0, now_ms=world.clock.steady_ms())
            assert bench.answers == [0, 0]
            again = Bench(world)
            await again.runtime.load()  # what was noted says nothing
            assert again.machine.values == {}

    run(main())


def test_an_error_of_a_machine_is_the_response(tmp_path: Path) -> None:
    async def main() -> None:
        async with world_at(tmp_path) as world:
            bench = await bench_in(world)
            bench.submit(Add(name="", amount=1))
            (refusal,) = bench.answers
            assert isinstance(refusal, InvalidRequest)
            assert world.partition(TOPIC).log.end_offset == 0

    run(main())


def test_records_that_cannot_be_written_change_nothing(tmp_path: Path) -> None:
    async def main() -> None:
        async with world_at(tmp_path) as world:
            bench = await bench_in(world, **{"max.message.bytes": 1000})
            bench.submit(Add(name="a", amount=1))
            bench.submit(Add(name="a", amount=1, size=2000))
            bench.submit(Get(name="a"))
            assert bench.answers[0] == 1
            assert isinstance(bench.answers[1], CoordinatorNotAvailable)
            assert bench.answers[2] == 1
            assert bench.effects == [("a", 1)]

    run(main())


def test_the_records_of_a_large_decision_go_into_several_batches(tmp_path: Path) -> None:
    class Many(Counters):
        def decide(self, ticket: Ticket, command: Any, now_ms: int) -> Decision:
            value = json.dumps([1, "x" * (BATCH_BYTES_MAX // 3)]).encode()
            records = tuple(StateRecord(key=f"k{number}".encode(), value=value) for number in range(8))
            return Decision(persist=records, replies=(Reply(ticket=ticket, value="done"),))

    async def main() -> None:
        async with world_at(tmp_path) as world:
            bench = await bench_in(world)
            bench.runtime.machine = machine = Many()
            bench.submit("anything")
            assert bench.answers == ["done"]
            assert machine.values == {f"k{number}": 1 for number in range(8)}
            again = await bench_in(world)
            assert again.machine.values == machine.values

    run(main())


def test_records_that_hold_all_or_none_are_one_batch_or_nothing(tmp_path: Path) -> None:
    class Whole(Counters):
        """Decides on so many records of a third of a batch each."""

        def decide(self, ticket: Ticket, command: Any, now_ms: int) -> Decision:
            value = json.dumps([1, "x" * (BATCH_BYTES_MAX // 3)]).encode()
            records = tuple(StateRecord(key=f"k{number}".encode(), value=value) for number in range(command))
            return Decision(persist=records, replies=(Reply(ticket=ticket, value="done"),), is_atomic=True)

    async def main() -> None:
        async with world_at(tmp_path) as world:
            bench = await bench_in(world)
            bench.runtime.machine = machine = Whole()
            log = bench.runtime.partition.log
            bench.submit(5)
            assert bench.answers == ["done"]
            (header,) = [header for _, header in batches(log.read(0, 1, log.end_offset))]
            assert (header.count, header.next_offset) == (5, log.end_offset)
            assert header.size_bytes > BATCH_BYTES_MAX
            bench.submit(8)  # more than the topic takes at a time
            assert bench.answers[1].code == ErrorCode.COORDINATOR_NOT_AVAILABLE
            assert machine.values == {f"k{number}": 1 for number in range(5)}
            assert log.end_offset == 5

    run(main())


# -- reading back


def test_everything_comes_back_from_the_log(tmp_path: Path) -> None:
    async def main() -> None:
        async with world_at(tmp_path) as world:
            bench = await bench_in(world)
            for number in range(50):
                bench.submit(Add(name=f"k{number % 7}", amount=number))
            before = dict(bench.machine.values)
        async with world_at(tmp_path) as world:
            bench = await bench_in(world)
            assert bench.machine.values == before
            assert bench.machine.loaded_ms == world.clock.steady_ms()

    run(main())


def test_transactions_are_applied_at_their_marker_now_and_when_read_back(tmp_path: Path) -> None:
    async def main() -> None:
        async with world_at(tmp_path) as world:
            bench = await bench_in(world)
            good, bad, open_ = ProducerKey(1, 0), ProducerKey(2, 0), ProducerKey(3, 0)
            for producer in (good, bad, open_):
                bench.submit(Add(name="a", amount=producer.producer_id, producer=producer))
            assert bench.machine.values == {}
            partition = world.partition(TOPIC)
            partition.write_marker(good, True, 0, world.clock.now_ms())
            partition.write_marker(bad, False, 0, world.clock.now_ms())
            assert bench.machine.values == {"a": 1}
            again = await bench_in(world)
            assert again.machine.values == {"a": 1}
            assert again.machine.pending == {3: [("a", 3)]}
            partition.write_marker(open_, True, 0, world.clock.now_ms())
            assert again.machine.values == {"a": 4}

    run(main())


def test_requests_during_loading_get_load_in_progress(tmp_path: Path) -> None:
    async def main() -> None:
        async with world_at(tmp_path) as world:
            await world.create(TOPIC)
            bench = Bench(world)
            bench.submit(Get(name="a"))
            (refusal,) = bench.answers
            assert isinstance(refusal, CoordinatorLoadInProgress)

    run(main())


# -- waking


def test_a_machine_is_woken_when_it_wants_to_be(tmp_path: Path) -> None:
    async def main() -> None:
        async with world_at(tmp_path) as world:
            bench = await bench_in(world)
            now_ms = world.clock.steady_ms()
            bench.submit(WaitFor(name="late", at_ms=now_ms + 5000))
            bench.submit(WaitFor(name="early", at_ms=now_ms + 1000))
            assert [seconds for seconds, _ in bench.timers.set] == [1.0]
            world.clock.advance(1000)
            bench.timers.fire()
            assert bench.answers == ["early"]
            assert [seconds for seconds, _ in bench.timers.set] == [4.0]
            world.clock.advance(4000)
            bench.timers.fire()
            assert bench.answers == ["early", "late"]
            assert bench.timers.set == []

    run(main())


def test_closing_a_runtime_fails_waiting_requests_and_stops_its_timer(tmp_path: Path) -> None:
    async def main() -> None:
        async with world_at(tmp_path) as world:
            bench = await bench_in(world)
            bench.submit(WaitFor(name="never", at_ms=world.clock.steady_ms() + 5000))
            bench.runtime.close(NotCoordinator("led elsewhere"))
            assert bench.timers.set == []
            (refusal,) = bench.answers
            assert isinstance(refusal, NotCoordinator)
            bench.submit(Get(name="a"))
            assert isinstance(bench.answers[1], PenstockError)

    run(main())


# -- all the machines of a topic


class AddAgain:
    """The same counter is added to once more; as an Add, but ready."""

    count = 1

    def __init__(self, machine: Counters, name: str) -> None:
        self._machine = machine
        self._name = name
        self.is_allowed = True

    def decide(self, said: int, now_ms: int) -> bytes | None:
        if not self.is_allowed:
            return None
        value = json.dumps([said, ""]).encode()
        return bytes(build_pairs([(self._name.encode(), value)], now_ms)[HEADER_BYTES:])

    def apply(self, said: int, now_ms: int) -> None:
        self._machine._add(self._name, said)


def test_repeated_decisions_are_persisted_and_applied_like_others(tmp_path: Path) -> None:
    async def main() -> None:
        async with world_at(tmp_path) as world:
            bench = await bench_in(world)
            again = AddAgain(bench.machine, "a")
            bench.submit(Add(name="a", amount=1))
            assert all(bench.runtime.repeat(again, amount) for amount in (2, 3))
            assert bench.machine.values == {"a": 6}
            again.is_allowed = False
            assert not bench.runtime.repeat(again, 4)
            assert bench.runtime.partition.log.end_offset == 3
        async with world_at(tmp_path) as world:
            assert (await bench_in(world)).machine.values == {"a": 6}

    run(main())


def test_a_repeated_decision_is_refused_if_it_cannot_be_persisted_at_once(tmp_path: Path) -> None:
    async def main() -> None:
        async with world_at(tmp_path) as world:
            bench = await bench_in(world)
            again, log = AddAgain(bench.machine, "a"), bench.runtime.partition.log
            limit, log.offset_limit = log.offset_limit, 0
            assert not bench.runtime.repeat(again, 1)
            log.offset_limit = limit
            bench.runtime.partition.go_offline("gone")
            assert not bench.runtime.repeat(again, 1)
            bench.runtime.close(NotCoordinator("elsewhere"))
            assert not bench.runtime.repeat(again, 1)
            assert bench.machine.values == {}

    run(main())


def test_where_it_is_waited_for_the_disk_nothing_is_repeated(tmp_path: Path) -> None:
    async def main() -> None:
        async with world_at(tmp_path) as world:
            bench = await bench_in(world, flush="group")
            assert not bench.runtime.repeat(AddAgain(bench.machine, "a"), 1)
            assert (bench.machine.values, bench.runtime.partition.log.end_offset) == ({}, 0)

    run(main())


@pytest.mark.parametrize(
    ("text", "expected"),
    [("", 0), ("a", 97), ("hello", 99162322), ("polygenelubricants", 0), ("\N{GRINNING FACE}", 1772899)],
)
def test_keys_are_hashed_as_java_does(text: str, expected: int) -> None:
    assert java_hash(text) == expected


def runtimes_in(world: World, **options: Any) -> StateRuntimes:
    runtimes = StateRuntimes(
        topic=TOPIC,
        make=lambda number: Counters(),
        partitions=world.partitions,
        clock=world.clock,
        timer=Timers(),
        threads=world.threads,
        perform=lambda effect: None,
        **options,
    )
    world.metadata.listeners.append(runtimes.apply)
    runtimes.apply(world.metadata.image)
    return runtimes


def test_a_key_is_decided_on_by_the_machine_of_its_partition(tmp_path: Path) -> None:
    async def main() -> None:
        async with world_at(tmp_path) as world:
            runtimes = runtimes_in(world)
            answers: list[Any] = []
            runtimes.submit("k", Get(name="k"), answers.append)
            assert answers.pop().code == ErrorCode.COORDINATOR_NOT_AVAILABLE
            assert runtimes.partition_of("k") is None
            await world.create(TOPIC, partitions=3)
            await runtimes.wait_loaded()
            for name in "abcdef":
                runtimes.submit(name, Add(name=name, amount=1), answers.append)
            assert answers == [1] * 6
            for number, runtime in runtimes.loaded.items():
                assert isinstance(runtime.machine, Counters)
                assert set(runtime.machine.values) == {name for name in "abcdef" if ord(name) % 3 == number}
            runtimes.close()

    run(main())


def test_a_partition_that_is_led_here_but_not_open_yet_is_being_loaded(tmp_path: Path) -> None:
    """NOT_COORDINATOR would send its client to look for another broker; some give up by that."""

    async def main() -> None:
        async with world_at(tmp_path) as world:
            runtimes = runtimes_in(world)
            codes: list[int] = []

            def look(image: ClusterImage) -> None:
                if TOPIC in image.by_name:
                    runtimes.submit("k", Get(name="k"), lambda answer: codes.append(getattr(answer, "code", 0)))

            world.metadata.listeners.append(look)
            await world.create(TOPIC)
            assert codes[0] == ErrorCode.COORDINATOR_LOAD_IN_PROGRESS
            await runtimes.wait_loaded()
            look(world.metadata.image)
            assert codes[-1] == ErrorCode.NONE
            runtimes.close()

    run(main())


def test_keys_that_are_decided_about_together_live_together(tmp_path: Path) -> None:
    async def main() -> None:
        async with world_at(tmp_path) as world:
            runtimes = runtimes_in(world, hashed_by=lambda key: key.partition("/")[0])
            await world.create(TOPIC, partitions=3)
            await runtimes.wait_loaded()
            answers: list[Any] = []
            for name in ("a/1", "a/2", "b/1", "b"):
                runtimes.submit(name, Add(name=name, amount=1), answers.append)
            assert answers == [1] * 4
            assert runtimes.find("a/1") is runtimes.find("a/2") is runtimes.find("a")
            assert runtimes.find("b/1") is runtimes.find("b") is not runtimes.find("a")
            runtimes.close()

    run(main())


def test_machines_of_a_topic_that_is_deleted_give_up(tmp_path: Path) -> None:
    async def main() -> None:
        async with world_at(tmp_path) as world:
            runtimes = runtimes_in(world)
            await world.create(TOPIC)
            await runtimes.wait_loaded()
            answers: list[Any] = []
            runtimes.submit("k", WaitFor(name="k", at_ms=world.clock.steady_ms() + 1000), answers.append)
            await world.delete(TOPIC)
            (refusal,) = answers
            assert isinstance(refusal, NotCoordinator)
            assert runtimes.all == []
            await world.create(TOPIC)
            await runtimes.wait_loaded()
            runtimes.submit("k", Get(name="k"), answers.append)
            assert answers[1] == 0
            runtimes.close()

    run(main())


# -- followers


class Counting(Counters):
    """Counts the records that it has applied."""

    def __init__(self) -> None:
        super().__init__()
        self.applied = 0

    def apply(self, record: StateRecord, producer_id: int) -> None:
        self.applied += 1
        super().apply(record, producer_id)


def second_of(bench: Bench) -> tuple[StateRuntime, Counting]:
    """Another machine on the same log, as on a broker that follows."""
    machine = Counting()
    runtime = StateRuntime(
        partition=bench.runtime.partition,
        machine=machine,
        clock=bench.world.clock,
        timer=Timers(),
        threads=bench.world.threads,
        perform=lambda effect: None,
    )
    return runtime, machine


def test_a_follower_that_becomes_leader_reads_only_the_rest(tmp_path: Path) -> None:
    async def main() -> None:
        async with world_at(tmp_path) as world:
            bench = await bench_in(world)
            for _ in range(3):
                bench.submit(Add(name="a", amount=1, size=FOLLOW_BYTES // 2))
            runtime, machine = second_of(bench)
            pieces = 1
            while runtime.follow():
                pieces += 1
            assert (machine.values, machine.applied, pieces > 2) == ({"a": 3}, 3, True)
            assert not runtime.is_loaded
            bench.submit(Add(name="a", amount=1))
            await runtime.load()
            assert (machine.values, machine.applied) == ({"a": 4}, 4)
            assert runtime.is_loaded

    run(main())


def test_a_follower_reads_only_committed_records(tmp_path: Path) -> None:
    async def main() -> None:
        async with world_at(tmp_path) as world:
            bench = await bench_in(world)
            bench.submit(Add(name="a", amount=1))
            bench.submit(Add(name="a", amount=1))
            runtime, machine = second_of(bench)
            runtime.partition.high_watermark = 1
            assert runtime.follow()
            assert not runtime.follow()
            assert machine.values == {"a": 1}
            runtime.partition.high_watermark = 2
            assert runtime.follow()
            assert machine.values == {"a": 2}

    run(main())


def test_a_truncation_below_the_applied_end_makes_the_state_invalid(tmp_path: Path) -> None:
    async def main() -> None:
        async with world_at(tmp_path) as world:
            bench = await bench_in(world)
            bench.submit(Add(name="a", amount=1))
            bench.submit(Add(name="a", amount=1))
            runtime, _ = second_of(bench)
            assert not runtime.has_diverged
            runtime.follow()
            assert not runtime.has_diverged
            partition = runtime.partition
            partition.log.truncate(1, world.clock.now_ms())
            assert runtime.has_diverged
            partition.leader_epoch += 1  # an unclean election: others have written since
            bench.submit(Add(name="b", amount=1))
            bench.submit(Add(name="b", amount=1))
            assert runtime.has_diverged

    run(main())
