"""The state machine of delayed messages: its whole state is in records."""

from typing import Any

import pytest

from penstock.delays.commands import (
    Began,
    Begin,
    Cancel,
    ConfirmDelivered,
    Copy,
    Deliver,
    Message,
    Release,
    Rewind,
    Take,
)
from penstock.delays.entries import BEGAN, COPIED, DELIVERED, Rank, message_key
from penstock.delays.machine import DamagedDelays, DelayMachine
from penstock.delays.run_storage import MemoryRunStorage
from penstock.foundation.decision import Decision, StateRecord
from penstock.records.batch import read_header
from penstock.records.build import build_pairs

NOW_MS = 1_800_000_000_000


class Log:
    """The companion log, as far as a machine sees it."""

    def __init__(self) -> None:
        self.records: list[tuple[int, StateRecord]] = []
        self.machine = self.read_back()

    def read_back(self, *, compacted: bool = False) -> DelayMachine:
        machine = DelayMachine(MemoryRunStorage(), run_entries=4)
        last = {record.key: offset for offset, record in self.records}
        for offset, record in self.records:
            if not compacted or (last[record.key] == offset and record.value is not None):
                _apply(machine, offset, (record,))
        machine.loaded(0)
        return machine

    def decide(self, command: Any) -> Decision:
        decision = self.machine.decide(0, command, 0)
        if decision.persist:
            base = len(self.records)
            self.records += [(base + at, record) for at, record in enumerate(decision.persist)]
            _apply(self.machine, base, decision.persist)
        return decision

    def copy(self, *messages: tuple[int, int], now_ms: int = NOW_MS) -> None:
        wanted = [Message(offset, due_ms, 5, b"k%d" % offset, b"raw") for offset, due_ms in messages]
        self.decide(Copy(wanted, messages[-1][0] + 1, now_ms))

    def take(self, now_ms: int) -> list[int]:
        decision = self.decide(Take(now_ms, 100))
        return [entry.offset for effect in decision.effects for entry in effect.entries if entry.is_live]


def _apply(machine: DelayMachine, base: int, records: tuple[StateRecord, ...]) -> None:
    batch = build_pairs([(record.key, record.value) for record in records], 0, base_offset=base)
    machine.apply_batch(batch, read_header(batch))


@pytest.fixture
def log() -> Log:
    made = Log()
    made.decide(Begin(0))
    return made


_ALL: Any = (Rank(-1, -1), 1000)


def _state(machine: DelayMachine) -> tuple[object, ...]:
    waiting = [entry for entry in machine.pending.page(*_ALL) if entry.is_live]
    return machine.since, machine.copied_to, machine.scan_from, dict(machine.delivered_ranks), waiting


def test_the_start_of_delays_is_recorded_once(log: Log) -> None:
    assert log.decide(Begin(70)).effects == (Began(0),)
    assert log.read_back().since == 0


def test_messages_are_taken_when_they_are_due_in_due_order(log: Log) -> None:
    log.copy((1, NOW_MS + 30), (2, NOW_MS + 10), (3, NOW_MS + 10), (4, NOW_MS + 99))
    assert log.take(NOW_MS + 9) == []
    assert log.take(NOW_MS + 50) == [2, 3, 1]
    assert log.take(NOW_MS + 50) == []  # one delivery at a time
    log.decide(ConfirmDelivered((2, 3, 1), 17))
    assert log.machine.pending_count == 1
    assert (log.machine.scan_from, log.machine.delivered_count) == (17, 3)


def test_released_messages_are_delivered_again(log: Log) -> None:
    log.copy((1, NOW_MS), (2, NOW_MS))
    assert log.take(NOW_MS) == [1, 2]
    log.decide(ConfirmDelivered((1,), 5))
    log.decide(Release())
    assert log.take(NOW_MS) == [2]


def test_a_message_that_comes_late_is_behind_those_that_were_taken(log: Log) -> None:
    log.copy((1, NOW_MS))
    log.take(NOW_MS)
    log.copy((2, NOW_MS - 5000))
    log.decide(ConfirmDelivered((1,), 5))
    assert log.read_back().pending_count == 1
    assert log.take(NOW_MS) == [2]


def test_a_clock_that_was_set_back_delays_no_message(log: Log) -> None:
    year_ms = 365 * 86_400_000
    log.copy((1, NOW_MS + year_ms), (2, NOW_MS + 2 * year_ms))
    assert log.take(NOW_MS + year_ms) == [1]
    log.decide(ConfirmDelivered((1,), 5))
    log.copy((3, NOW_MS + 100), (4, NOW_MS + 50))
    for machine in (log.machine, log.read_back(), log.read_back(compacted=True)):
        assert [entry.offset for entry in machine.pending.page(*_ALL)] == [4, 3, 2]
    assert log.take(NOW_MS + 60) == [4]
    log.decide(ConfirmDelivered((4,), 6))
    assert log.read_back().pending_count == 2
    assert log.take(NOW_MS + 2 * year_ms) == [3, 2]


def test_a_cancelled_message_is_not_delivered_and_recorded_once(log: Log) -> None:
    log.copy((1, NOW_MS), (2, NOW_MS + 1), (3, NOW_MS + 2))
    assert log.decide(Cancel((2, 9))).replies[0].value == {2: True, 9: False}
    assert log.decide(Cancel((2,))).replies[0].value == {2: False}
    for machine in (log.read_back(), log.read_back(compacted=True)):
        assert machine.pending_count == 2
    assert log.take(NOW_MS + 5) == [1, 3]
    assert log.decide(Cancel((1,))).replies[0].value == {1: False}  # it may be in the topic already
    fired = log.decide(ConfirmDelivered((1, 2, 3), 5))
    assert {record.key for record in fired.persist[1:]} == {message_key(offset) for offset in (1, 2, 3)}


def test_an_answer_that_nothing_waits_is_only_a_leaders_to_give(log: Log) -> None:
    assert log.decide(Cancel((1,))).must_lead


def test_a_new_leader_records_deliveries_that_it_finds_in_the_topic(log: Log) -> None:
    log.copy((1, NOW_MS), (2, NOW_MS + 5), (3, NOW_MS + 9))
    log.machine = log.read_back()
    log.decide(ConfirmDelivered((1, 2), 40))
    assert log.take(NOW_MS + 10) == [3]
    assert log.read_back(compacted=True).pending_count == 1


def test_nothing_is_copied_twice(log: Log) -> None:
    log.copy((1, NOW_MS), (2, NOW_MS))
    before = len(log.records)
    log.copy((1, NOW_MS), (2, NOW_MS))
    assert len(log.records) == before
    assert log.machine.pending_count == 2


def test_messages_lost_in_an_unclean_election_are_not_pending_any_more(log: Log) -> None:
    log.copy((1, NOW_MS + 5), (7, NOW_MS + 6))
    log.decide(Rewind(4))
    assert (log.machine.copied_to, log.machine.pending_count) == (4, 1)
    log.copy((4, NOW_MS + 7))
    assert log.take(NOW_MS + 9) == [1, 4]


def test_the_records_have_the_whole_state(log: Log) -> None:
    log.copy(*((offset, NOW_MS + offset * 37 % 50) for offset in range(1, 30)))
    log.decide(Cancel((5, 6, 20)))
    taken = log.take(NOW_MS + 20)
    log.decide(ConfirmDelivered(tuple(taken), 9))
    log.copy((40, NOW_MS + 3), (41, NOW_MS + 60))
    assert _state(log.read_back()) == _state(log.read_back(compacted=True))
    assert log.read_back().pending_count == log.machine.pending_count


def test_deliver_is_an_effect_so_that_all_before_it_is_committed(log: Log) -> None:
    log.copy((1, NOW_MS))
    decision = log.decide(Take(NOW_MS, 10))
    assert not decision.persist
    assert isinstance(decision.effects[0], Deliver)


@pytest.mark.parametrize("key", [BEGAN, COPIED, DELIVERED])
def test_a_record_that_cannot_be_read_is_refused_by_name(log: Log, key: bytes) -> None:
    """Not with an error of the struct module, which a follower would not survive."""
    with pytest.raises(DamagedDelays, match=key.hex()):
        _apply(log.machine, 9, (StateRecord(key=key, value=b"??"),))
