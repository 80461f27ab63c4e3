"""A replaced leader answers only what it can prove: it may not know the newest state."""

from typing import Any

import pytest

from penstock.queues.commands import Acknowledge, Acknowledgement, AckType, DeleteGroup, Purge, SetPosition
from penstock.queues.errors import AlreadyFinished, NotHeld

from .machine_harness import QUEUE, TICKET, MachineHarness, read_back


def must_lead(harness: MachineHarness, command: Any) -> bool:
    return harness.machine.decide(TICKET, command, harness.now_ms).must_lead


def done(offset: int, holder: str = "ada") -> Acknowledge:
    return Acknowledge(QUEUE, (Acknowledgement(offset, offset, holder, AckType.DONE),))


def test_an_old_leader_does_not_report_an_unknown_delivery_as_finished() -> None:
    leader = MachineHarness()
    old = read_back(leader.records, leader.now_ms)  # elected once, and asleep since
    leader.acquire("ada")
    decision = old.decide(TICKET, done(0), leader.now_ms)
    assert isinstance(decision.replies[0].value[0], AlreadyFinished)
    assert not decision.persist
    assert decision.must_lead, "of a delete, that is a yes"
    assert leader.say("ada", AckType.DONE, 0) is None


def test_a_refusal_is_the_leaders_too() -> None:
    leader = MachineHarness()
    leader.acquire("ada")
    decision = leader.machine.decide(TICKET, done(0, "bob"), leader.now_ms)
    assert type(decision.replies[0].value[0]) is NotHeld
    assert decision.must_lead


@pytest.mark.parametrize(
    "command", [done(0), Purge(QUEUE, 1), DeleteGroup("missing"), Acknowledge("missing", done(0).items)]
)
def test_an_old_leader_does_not_report_that_there_is_nothing_to_do(command: Any) -> None:
    harness = MachineHarness(end=1)
    harness.acquire("ada")
    assert harness.say("ada", AckType.DONE, 0) is None
    assert must_lead(harness, command)


def test_a_persisted_decision_needs_no_other_proof() -> None:
    harness = MachineHarness()
    harness.acquire("ada", 2)
    for command in (done(0), Purge(QUEUE, 5), DeleteGroup(QUEUE), SetPosition(QUEUE, 7)):
        decision = harness.machine.decide(TICKET, command, harness.now_ms)
        assert decision.persist
        assert not decision.must_lead
