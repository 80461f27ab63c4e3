"""Records that a machine cannot read: skipped on internal topics, refused on companion logs."""

import asyncio
import logging
from pathlib import Path
from typing import Any

import pytest

from penstock.cluster.image import PartitionState
from penstock.foundation.codes import ErrorCode
from penstock.foundation.decision import NO_PRODUCER, StateRecord
from penstock.foundation.errors import CorruptMessage, InvalidRecord, PenstockError
from penstock.foundation.ids import TopicPartition
from penstock.records.batch import HEADER_BYTES, assemble, read_header
from penstock.records.build import Record, build_batch, build_pairs
from penstock.records.compression import Codec
from penstock.replication.replay import (
    DECOMPRESSED_BYTES_MAX,
    LINES_MAX,
    NOOP_KEY,
    RECORDS_AT_ONCE,
    DamagedBatch,
    Replay,
)
from penstock.replication.runtime_set import RELOAD_MAX_S, RELOAD_MIN_S
from penstock.replication.runtimes import StateRuntimes

from .broker_state import World, world_at
from .test_runtime import Add, Counters, Get, Timers

TOPIC = "__counters"
NAME = TopicPartition(TOPIC, 0)
NOW_MS = 1_700_000_000_000


class Strict(Counters):
    """Reads counters, and raises for other records."""

    def apply(self, record: StateRecord, producer_id: int) -> None:
        if record.value is None or not record.value.startswith(b"["):
            raise InvalidRecord(f"{record.key!r} is no counter")
        super().apply(record, producer_id)


def replay(machine: Any, batch: bytes | bytearray, *, skips: bool = True) -> list[int]:
    """Applies one batch; what was counted as skipped."""
    counts: list[int] = []
    made = Replay(machine, NAME, counts.append if skips else None)
    made.apply(memoryview(batch), read_header(batch))
    while made.is_busy:
        made.resume()
    return counts


def good(name: bytes = b"a") -> tuple[bytes, bytes]:
    return name, b"[1]"


def nonsense() -> bytearray:
    """A batch with a valid checksum whose compressed body cannot be decompressed: a client can seal that."""
    return assemble(
        b"\xff" * 40,
        count=3,
        attributes=Codec.GZIP,
        base_offset=7,
        last_offset_delta=2,
        leader_epoch=0,
        base_timestamp=NOW_MS,
        max_timestamp=NOW_MS,
        producer_id=NO_PRODUCER,
        producer_epoch=-1,
        base_sequence=-1,
    )


# -- one batch


def test_a_record_that_cannot_be_read_is_skipped_and_the_others_are_applied() -> None:
    machine = Strict()
    batch = build_pairs([good(b"a"), (b"?", b"x"), (b"gone", None), good(b"b")], NOW_MS)
    assert replay(machine, batch) == [1, 1]
    assert machine.values == {"a": 1, "b": 1}


def test_a_record_without_a_key_is_skipped_and_counted() -> None:
    machine = Strict()
    rows = [Record(key=key, value=b"[1]", timestamp_ms=NOW_MS) for key in (None, b"a")]
    assert replay(machine, build_batch(rows)) == [1]
    assert machine.values == {"a": 1}


def test_a_record_that_says_nothing_is_not_counted() -> None:
    assert replay(Strict(), build_pairs([(NOOP_KEY, None)], NOW_MS)) == []


def test_a_batch_that_cannot_be_decompressed_is_skipped_as_a_whole() -> None:
    assert replay(Strict(), nonsense()) == [3]


def test_a_small_batch_that_decompresses_to_very_much_is_skipped() -> None:
    huge = Record(key=b"a", value=bytes(DECOMPRESSED_BYTES_MAX + 1), timestamp_ms=NOW_MS)
    batch = build_batch([huge], codec=Codec.ZSTD)
    assert len(batch) < 10_000
    assert replay(Strict(), batch) == [1]


@pytest.mark.parametrize("batch", [build_pairs([(b"?", b"x")], NOW_MS), nonsense()])
def test_where_records_are_not_skipped_they_stop_the_replay(batch: bytearray) -> None:
    with pytest.raises((InvalidRecord, CorruptMessage)):
        replay(Strict(), batch, skips=False)


@pytest.mark.parametrize("skips", [True, False])
def test_a_wrong_checksum_is_never_skipped(skips: bool) -> None:
    """It would be read as another value: a bit of a committed offset, say."""
    batch = build_pairs([good(b"a"), good(b"b")], NOW_MS)
    batch[HEADER_BYTES + 8] ^= 1
    machine = Strict()
    with pytest.raises(DamagedBatch, match=r"__counters-0 is damaged at offset 0"):
        replay(machine, batch, skips=skips)
    assert machine.values == {}


def test_only_the_first_skipped_records_are_logged_one_by_one(caplog: pytest.LogCaptureFixture) -> None:
    with caplog.at_level(logging.WARNING):
        assert sum(replay(Strict(), build_pairs([(b"?", b"x")] * 1000, NOW_MS))) == 1000
    assert len(caplog.records) == LINES_MAX
    assert "state_record_skipped partition=__counters-0 offset=0 records=1" in caplog.text


def test_a_large_batch_is_applied_a_part_at_a_time() -> None:
    machine = Strict()
    made = Replay(machine, NAME, None)
    count = 2 * RECORDS_AT_ONCE + 1
    batch = build_pairs([good(b"%d" % number) for number in range(count)], NOW_MS)
    sizes = [made.apply(memoryview(batch), read_header(batch))]
    assert len(machine.values) == RECORDS_AT_ONCE
    while made.is_busy:
        sizes.append(made.resume())
    assert sizes == [RECORDS_AT_ONCE, RECORDS_AT_ONCE, 1]
    assert len(machine.values) == count


# -- machines of a topic


class Moody(Strict):
    """Cannot read anything while `error` is set."""

    error: PenstockError | ValueError | None = None

    def apply(self, record: StateRecord, producer_id: int) -> None:
        if self.error is not None:
            raise self.error
        super().apply(record, producer_id)


class Lab:
    """The runtimes of a topic, whose machines fail on demand."""

    def __init__(self, world: World, *, skips: bool = True) -> None:
        self.world = world
        self.error: PenstockError | ValueError | None = None
        self.timers = Timers()
        kind = StateRuntimes if skips else _Unforgiving
        self.runtimes = kind(
            topic=TOPIC,
            make=lambda partition: self._machine(),
            partitions=world.partitions,
            clock=world.clock,
            timer=self.timers,
            threads=world.threads,
            perform=lambda effect: None,
        )
        world.metadata.listeners.append(self.runtimes.apply)

    def _machine(self) -> Moody:
        machine = Moody()
        machine.error = self.error
        return machine

    async def load(self) -> None:
        """As after a restart of the broker."""
        self.runtimes.close()
        self.runtimes.apply(self.world.metadata.image)
        await self.settle()

    async def settle(self) -> None:
        await self.runtimes.wait_loaded()
        await asyncio.sleep(0)

    def code(self) -> ErrorCode | None:
        """The response to a request for a key."""
        answers: list[Any] = []
        self.runtimes.submit("a", Get(name="a"), answers.append)
        return answers[0].code if isinstance(answers[0], PenstockError) else None

    def listed(self) -> ErrorCode | None:
        """The response to a request for everything."""
        try:
            self.runtimes.check_loaded()
        except PenstockError as error:
            return error.code
        return None


class _Unforgiving(StateRuntimes):
    skips_unreadable = False


async def lab_in(world: World, **options: Any) -> Lab:
    lab = Lab(world, **options)
    await world.create(TOPIC)
    await lab.settle()
    lab.runtimes.submit("a", Add(name="a", amount=1), lambda value: None)
    return lab


async def test_skipped_records_are_counted_over_all_loads(tmp_path: Path) -> None:
    async with world_at(tmp_path) as world:
        lab = await lab_in(world)
        partition = world.partition(TOPIC)
        partition.append_own(build_pairs([(b"?", b"x")] * 3, NOW_MS), NOW_MS)
        await lab.load()
        await lab.load()
        assert (lab.runtimes.skipped_count, lab.code(), lab.listed()) == (6, None, None)
        assert lab.runtimes.unloaded == {}
        lab.runtimes.close()


@pytest.mark.parametrize("error", [InvalidRecord("of a later version"), ValueError("a mistake of ours")])
async def test_a_log_that_cannot_be_read_is_reported_and_read_again(
    tmp_path: Path, error: PenstockError | ValueError, caplog: pytest.LogCaptureFixture
) -> None:
    async with world_at(tmp_path) as world:
        lab = await lab_in(world, skips=False)
        lab.error = error
        await lab.load()
        unavailable = ErrorCode.COORDINATOR_NOT_AVAILABLE
        assert (lab.code(), lab.listed(), lab.runtimes.unloaded) == (unavailable, unavailable, {"failed": 1})
        assert f"state_not_loaded partition=__counters-0 tries=1 reason={str(error)!r}" in caplog.text
        waits = []
        for _ in range(8):
            ((wait_s, reload),) = lab.timers.set
            waits.append(wait_s)
            lab.timers.set = []
            reload()
            assert lab.listed() == unavailable  # and not "loading", as if it were the first time
            await lab.settle()
        assert waits == [min(RELOAD_MIN_S * 2**number, RELOAD_MAX_S) for number in range(8)]
        lab.error = None
        lab.timers.fire()
        await lab.settle()
        assert (lab.code(), lab.listed(), lab.runtimes.unloaded, lab.runtimes.failures) == (None, None, {}, {})
        lab.runtimes.close()


async def test_a_former_leader_does_not_read_again(tmp_path: Path) -> None:
    async with world_at(tmp_path) as world:
        lab = await lab_in(world, skips=False)
        lab.error = InvalidRecord("no")
        await lab.load()
        assert lab.timers.set
        await world.delete(TOPIC)
        assert (lab.timers.set, lab.runtimes.failures) == ([], {})
        lab.runtimes.close()


async def test_a_damaged_log_goes_offline_so_that_another_replica_can_lead(tmp_path: Path) -> None:
    async with world_at(tmp_path) as world:
        lab = await lab_in(world)
        (path,) = (tmp_path / "logs" / TOPIC).glob("0.*/*.log")
        data = bytearray(path.read_bytes())
        data[-1] ^= 1
        path.write_bytes(data)
        await lab.load()
        assert not world.partition(TOPIC).is_online
        assert "is damaged at offset 0" in world.partition(TOPIC).offline_reason
        unavailable = ErrorCode.COORDINATOR_NOT_AVAILABLE
        assert (lab.code(), lab.listed(), lab.runtimes.unloaded) == (unavailable, unavailable, {"offline": 1})
        lab.runtimes.close()


async def test_while_a_topic_is_paused_machines_do_not_decide_and_clients_retry(tmp_path: Path) -> None:
    async with world_at(tmp_path) as world:
        lab = await lab_in(world)
        lab.runtimes.is_paused = True
        lab.runtimes.apply(world.metadata.image)
        loading = ErrorCode.COORDINATOR_LOAD_IN_PROGRESS
        assert (lab.code(), lab.listed(), lab.runtimes.unloaded) == (loading, loading, {"paused": 1})
        assert lab.runtimes.all == []
        lab.runtimes.is_paused = False
        lab.runtimes.apply(world.metadata.image)
        await lab.settle()
        assert (lab.code(), lab.listed(), lab.runtimes.unloaded) == (None, None, {})
        lab.runtimes.close()


async def test_a_follower_that_cannot_replay_is_left_alone_until_it_is_elected(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    async with world_at(tmp_path) as world:
        lab = await lab_in(world, skips=False)
        lab.runtimes.close()
        partition = world.partition(TOPIC)
        lab.error = InvalidRecord("no")
        elsewhere = PartitionState(replicas=(1, 2), leader=2, leader_epoch=partition.leader_epoch + 1, isr=(1, 2))
        partition.become_follower(elsewhere, 1)
        lab.runtimes.update_roles({}, {0: partition})
        for _ in range(5):
            lab.timers.fire()
        assert caplog.text.count("state_not_followed") == 1
        lab.runtimes.update_roles({}, {0: partition})  # the image changes
        lab.timers.fire()
        assert caplog.text.count("state_not_followed") == 1
        lab.error = None
        here = PartitionState(replicas=(1,), leader=1, leader_epoch=partition.leader_epoch + 1, isr=(1,))
        partition.lead(here, 1, 10_000, world.clock.steady_ms())
        lab.runtimes.update_roles({0: partition}, {0: partition})
        await lab.settle()
        assert lab.runtimes.loaded[0].machine.values == {"a": 1}  # type: ignore[attr-defined]
        lab.runtimes.close()
