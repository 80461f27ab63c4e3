"""Delivery against a naive model that tracks every offset."""

from dataclasses import dataclass, field
from random import Random
from typing import Any

import pytest
from hypothesis import HealthCheck, given
from hypothesis import strategies as st

from penstock.queues.commands import (
    Acknowledge,
    Acknowledgement,
    AckType,
    Fresh,
    Purge,
    ReleaseHolder,
    SetPosition,
    Trimmed,
)
from penstock.queues.errors import OverLimit
from penstock.queues.settings import DELAY_STEP_MS, DeliverySettings
from tests.examples import examples

from .machine_harness import QUEUE, MachineHarness, offsets

LIMIT = 3
SETTINGS = DeliverySettings(max_deliveries=LIMIT, in_flight_max=12)
HOLDERS = ("ada", "bob", "cyd")
END = 60


@dataclass
class Fate:
    count: int = 0
    due_ms: int = 0
    holder: str = ""
    received_ms: int = 0


@dataclass
class Model:
    """All below `end` that has no fate is done."""

    end: int = 0
    fates: dict[int, Fate] = field(default_factory=dict)

    def in_flight(self, now_ms: int) -> int:
        return sum(1 for fate in self.fates.values() if fate.holder and fate.due_ms > now_ms)

    def acquire(self, holder: str, want: int, delays: dict[int, int], read: int, now_ms: int) -> list[int] | None:
        """None: too many are in flight."""
        room = SETTINGS.in_flight_max - self.in_flight(now_ms)
        if room <= 0:
            return None
        want = min(want, room)
        taken: list[int] = []
        for offset in sorted(self.fates):
            fate = self.fates[offset]
            if len(taken) >= want:
                break
            if fate.due_ms <= now_ms:
                if fate.count >= LIMIT:
                    del self.fates[offset]
                else:
                    taken.append(offset)
        ahead = range(self.end, min(self.end + read, END))
        due = [offset for offset in ahead if delays.get(offset, 0) <= now_ms]
        chosen = due[: max(0, want - len(taken))]
        # Looked at: all up to the last that is given; with none left that is due, only then also what is not.
        last = chosen[-1] if chosen else self.end - 1
        for offset in range(self.end, last + 1):
            step = DELAY_STEP_MS
            self.fates[offset] = Fate(due_ms=0 if offset in chosen else -(-delays[offset] // step) * step)
        self.end = last + 1
        for offset in taken + chosen:
            fate = self.fates[offset]
            fate.count += 1
            fate.holder, fate.due_ms = holder, now_ms + 10_000
            fate.received_ms = fate.received_ms or now_ms
        return taken + chosen

    def acknowledge(self, item: Acknowledgement, now_ms: int) -> bool:
        meant = [self.fates[offset] for offset in range(item.first, item.last + 1) if offset in self.fates]
        if not meant or not all(self._counts(fate, item, now_ms) for fate in meant):
            return False
        for offset in range(item.first, item.last + 1):
            if offset in self.fates:
                self._acknowledge(offset, item)
        return True

    @staticmethod
    def _counts(fate: Fate, item: Acknowledgement, now_ms: int) -> bool:
        if item.ack_type is AckType.CHANGE:
            return fate.count > 0
        only_in_flight = item.ack_type in (AckType.RELEASE, AckType.REJECT, AckType.RENEW, AckType.DELETE)
        return fate.holder == item.holder and not (only_in_flight and fate.due_ms <= now_ms)

    def _acknowledge(self, offset: int, item: Acknowledgement) -> None:
        fate = self.fates[offset]
        if item.ack_type in (AckType.DONE, AckType.REJECT, AckType.DELETE):
            del self.fates[offset]
        elif item.ack_type is AckType.CHANGE:
            fate.due_ms, fate.holder = item.due_ms, fate.holder or item.holder
        elif item.ack_type is AckType.RENEW:
            fate.due_ms = item.due_ms
        elif item.ack_type is AckType.RELEASE:
            fate.due_ms, fate.holder = item.due_ms, ""
        else:
            fate.count, fate.due_ms, fate.holder = fate.count - 1, 0, ""
            fate.received_ms = fate.received_ms if fate.count else 0

    def release_holder(self, holder: str, now_ms: int) -> int:
        count = 0
        for fate in self.fates.values():
            if fate.holder == holder and fate.due_ms > now_ms:
                fate.due_ms, fate.holder = 0, ""
                count += 1
        return count

    def cut(self, start: int) -> None:
        self.fates = {offset: fate for offset, fate in self.fates.items() if offset >= start}
        self.end = max(self.end, start)


def _fates(harness: MachineHarness) -> dict[int, Fate]:
    return {
        offset: Fate(
            delivery_range.count, delivery_range.due_ms, delivery_range.holder, delivery_range.first_received_ms
        )
        for delivery_range in harness.delivery.ranges.values()
        for offset in range(delivery_range.first, delivery_range.last + 1)
    }


def _check(harness: MachineHarness, model: Model) -> None:
    assert harness.delivery.end == model.end
    assert sum(delivery_range.size for delivery_range in harness.delivery.ranges.values()) == len(model.fates), (
        "delivery ranges overlap"
    )
    assert _fates(harness) == model.fates
    counts = harness.delivery.counts(harness.now_ms)
    fates, now_ms = model.fates.values(), harness.now_ms
    assert counts.available == sum(1 for fate in fates if fate.due_ms <= now_ms)
    assert counts.in_flight == model.in_flight(now_ms)
    assert counts.delayed == sum(1 for fate in fates if not fate.holder and fate.due_ms > now_ms)
    assert harness.delivery.start == min(model.fates, default=model.end)
    waiting = [fate.due_ms for fate in fates if fate.due_ms > now_ms]
    ready = 0 if counts.available else min(waiting, default=None)
    assert harness.delivery.ready_at_ms == ready


OFFSET = st.integers(0, END - 1)
HOLDER = st.sampled_from(HOLDERS)
VERDICT = st.sampled_from([ack_type for ack_type in AckType if ack_type is not AckType.MOVE])
ITEM = st.tuples(st.integers(0, 11), st.integers(-1, 4), st.integers(0, 9), VERDICT, st.integers(0, 3))
"""Which of the messages that are held, how many more, by whom, what, and until when."""
STEP = st.one_of(
    st.tuples(st.just("acquire"), HOLDER, st.integers(1, 8), st.integers(0, 12)),
    st.tuples(st.just("acquire"), HOLDER, st.integers(1, 8), st.integers(0, 12)),
    st.tuples(st.just("acknowledge"), st.lists(ITEM, min_size=1, max_size=5)),
    st.tuples(st.just("acknowledge"), st.lists(ITEM, min_size=1, max_size=5)),
    st.tuples(st.just("later"), st.sampled_from((1, 500, 4000, 10_000, 30_000))),
    st.tuples(st.just("restart")),
    st.tuples(st.just("broken"), HOLDER, st.integers(1, 8), st.integers(0, 12)),
    st.tuples(st.just("release"), HOLDER),
    st.tuples(st.just("trim"), OFFSET),
    st.tuples(st.just("purge"), OFFSET),
    st.tuples(st.just("set"), OFFSET),
)


@examples(60, deadline=None, suppress_health_check=[HealthCheck.too_slow])
@given(st.lists(STEP, min_size=10, max_size=40), st.dictionaries(OFFSET, st.integers(0, 20_000)))
def test_delivery_ranges_are_what_single_messages_would_be(
    steps: list[tuple[Any, ...]], delays: dict[int, int]
) -> None:
    harness, model = MachineHarness(SETTINGS, end=END), Model()
    due = {offset: harness.now_ms + delay_ms for offset, delay_ms in delays.items()}
    for step in steps:
        _take_step(harness, model, step, due)
    harness.restart()
    _check(harness, model)


@pytest.mark.parametrize("seed", range(12))
def test_delivery_ranges_are_what_single_messages_would_be_over_a_long_time(seed: int) -> None:
    """Mostly one message at a time is let go, so that neighbours become one again."""
    rng = Random(seed)
    harness, model = MachineHarness(SETTINGS, end=END), Model()
    due = {offset: harness.now_ms + rng.randint(0, 20_000) for offset in range(END) if rng.random() < 0.2}
    for _ in range(250):
        _take_step(harness, model, _random_step(rng), due)
    harness.restart()
    _check(harness, model)


def _random_step(rng: Random) -> tuple[Any, ...]:
    what = rng.choice(("acquire",) * 6 + ("acknowledge",) * 12 + ("later", "restart", "release", "trim", "set"))
    holder, offset = rng.choice(HOLDERS), rng.randrange(END)
    if what == "acknowledge":
        verdicts = [AckType.DONE, AckType.RELEASE, AckType.RELEASE, AckType.RENEW, AckType.UNDO, AckType.CHANGE]
        return what, [
            (rng.randrange(12), rng.choice((0, 0, 1, 3)), 9, rng.choice(verdicts), rng.choice((0, 0, 1)))
            for _ in range(rng.choice((1, 1, 4)))
        ]
    details = {
        "acquire": (holder, rng.randint(1, 5), 12),
        "later": (rng.choice((500, 4000, 10_000)),),
        "restart": (),
        "release": (holder,),
        "trim": (offset // 4,),
        "set": (0,) if rng.random() < 0.5 else (offset,),
    }
    return what, *details[what]


def _take_step(harness: MachineHarness, model: Model, step: tuple[Any, ...], due: dict[int, int]) -> None:
    match step:
        case ("acquire" | "broken" as how, holder, want, read):
            _acquire(harness, model, how == "broken", holder, want, read, due)
        case ("acknowledge", items):
            _acknowledge(harness, model, items)
        case ("later", ms):
            harness.later(ms)
        case ("restart",):
            harness.restart()
        case ("release", holder):
            assert harness.do(ReleaseHolder(QUEUE, holder)) == model.release_holder(holder, harness.now_ms)
        case ("trim", start):
            harness.do(Trimmed(QUEUE, start))
            model.cut(start)
        case ("purge", start):
            harness.do(Purge(QUEUE, start))
            model.cut(start)
        case ("set", start):
            harness.do(SetPosition(QUEUE, start))
            model.fates, model.end = {}, start
    _check(harness, model)


def _acquire(
    harness: MachineHarness, model: Model, broken: bool, holder: str, want: int, read: int, due: dict[int, int]
) -> None:
    """What cannot be persisted changes nothing."""
    end = harness.delivery.end
    fresh = tuple(Fresh(offset, due.get(offset, 0)) for offset in range(end, min(end + read, END)))
    harness.broken = broken
    if model.in_flight(harness.now_ms) >= SETTINGS.in_flight_max:
        assert model.acquire(holder, want, due, read, harness.now_ms) is None
        with pytest.raises(OverLimit):
            harness.acquire_of(holder, want, fresh)
    else:
        got = harness.acquire_of(holder, want, fresh, visibility_ms=10_000)
        if not broken:
            assert offsets(got) == model.acquire(holder, want, due, read, harness.now_ms)
            assert all(one.count == model.fates[offset].count for one in got for offset in offsets([one]))
    harness.broken = False


def _acknowledge(harness: MachineHarness, model: Model, items: list[tuple[Any, ...]]) -> None:
    held = [offset for offset, fate in sorted(model.fates.items()) if fate.holder] or [0]
    said = []
    for which, more, who, ack_type, wait in items:
        first = held[which % len(held)]
        fate = model.fates.get(first, Fate())
        holder = (fate.holder if who >= len(HOLDERS) else "") or HOLDERS[who % len(HOLDERS)]  # mostly the right one
        due_ms = harness.now_ms + 4000 * wait if wait else 0
        said.append(
            Acknowledgement(max(0, min(first, first + more)), max(first, first + more), holder, ack_type, due_ms)
        )
    errors = harness.do(Acknowledge(QUEUE, tuple(said)))
    assert [error is None for error in errors] == [model.acknowledge(item, harness.now_ms) for item in said]
