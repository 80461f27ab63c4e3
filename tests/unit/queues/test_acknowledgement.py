"""Acknowledgement of messages in flight."""

import pytest

from penstock.foundation.errors import InvalidRequest
from penstock.queues.commands import Acknowledge, Acknowledgement, AckType, Counts
from penstock.queues.errors import AlreadyFinished, NeverReceived, NotHeld, NotInFlight

from .machine_harness import QUEUE, START_MS, VISIBILITY_MS, MachineHarness, offsets


def test_a_late_acknowledgement_is_accepted_until_the_message_is_delivered_again() -> None:
    harness = MachineHarness(end=1)
    harness.acquire("ada")
    harness.later(VISIBILITY_MS + 5000)
    assert harness.say("ada", AckType.DONE, 0) is None
    assert harness.acquire("bob") == []
    assert harness.delivery.start == 1


def test_a_late_answer_is_refused_once_the_message_went_elsewhere() -> None:
    harness = MachineHarness(end=1)
    harness.acquire("ada")
    harness.later(VISIBILITY_MS)
    harness.acquire("bob")
    error = harness.say("ada", AckType.DONE, 0)
    assert type(error) is NotHeld
    assert harness.say("bob", AckType.DONE, 0) is None


def test_a_second_delete_reports_that_it_is_already_finished() -> None:
    harness = MachineHarness()
    harness.acquire("ada")
    assert harness.say("ada", AckType.DONE, 0) is None
    assert type(harness.say("ada", AckType.DONE, 0)) is AlreadyFinished
    assert type(harness.say("ada", AckType.DONE, 77)) is AlreadyFinished
    assert [
        type(error) for error in harness.do(Acknowledge("unknown", (Acknowledgement(0, 0, "ada", AckType.DONE),)))
    ] == [AlreadyFinished]


@pytest.mark.parametrize("ack_type", [AckType.RENEW, AckType.RELEASE, AckType.DELETE])
def test_finished_messages_cannot_be_renewed_released_or_deleted(ack_type: AckType) -> None:
    harness = MachineHarness()
    harness.acquire("ada")
    harness.later(VISIBILITY_MS)
    error = harness.say("ada", ack_type, 0, due_ms=harness.now_ms + 1000)
    assert type(error) is NotInFlight
    assert "passed 0 ms ago" in str(error)


def test_a_message_in_flight_is_deleted() -> None:
    harness = MachineHarness(end=1)
    harness.acquire("ada")
    assert type(harness.say("bob", AckType.DELETE, 0)) is NotHeld
    assert harness.say("ada", AckType.DELETE, 0) is None
    assert harness.delivery.start == 1


def test_the_visibility_of_a_message_can_be_changed_after_its_time_is_over() -> None:
    harness = MachineHarness(end=1)
    harness.acquire("ada")
    harness.later(VISIBILITY_MS)
    assert harness.say("ada", AckType.CHANGE, 0, due_ms=harness.now_ms + 5000) is None
    assert harness.delivery.counts(harness.now_ms) == Counts(0, 1, 0, 0)
    harness.restart()
    harness.later(4999)
    assert harness.acquire("bob") == []
    assert harness.say("ada", AckType.DELETE, 0) is None


def test_an_older_receipt_changes_the_visibility_of_a_message_that_another_one_has() -> None:
    harness = MachineHarness(end=1)
    harness.acquire("ada", visibility_ms=0)
    assert offsets(harness.acquire("bob")) == [0]
    assert harness.say("ada", AckType.CHANGE, 0, due_ms=harness.now_ms) is None
    assert offsets(harness.acquire("cyd")) == [0]
    assert harness.say("ada", AckType.CHANGE, 0, due_ms=harness.now_ms + 2 * VISIBILITY_MS) is None
    harness.later(VISIBILITY_MS)
    assert harness.acquire("dan") == []
    assert type(harness.say("ada", AckType.DONE, 0)) is NotHeld, "the last receipt is the one that counts"
    assert harness.say("cyd", AckType.DONE, 0) is None


def test_the_receipt_of_a_released_message_extends_its_visibility_again() -> None:
    harness = MachineHarness(end=1)
    harness.acquire("ada")
    harness.say("ada", AckType.RELEASE, 0)
    assert harness.say("ada", AckType.CHANGE, 0, due_ms=harness.now_ms + 5000) is None
    assert harness.delivery.counts(harness.now_ms) == Counts(0, 1, 0, 0)
    assert harness.say("ada", AckType.DONE, 0) is None


def test_the_visibility_of_a_message_that_is_not_in_flight_is_not_changed() -> None:
    harness = MachineHarness(end=1)
    harness.acquire("ada")
    harness.say("ada", AckType.UNDO, 0)
    assert type(harness.say("ada", AckType.CHANGE, 0, due_ms=START_MS + 9000)) is NeverReceived
    assert type(harness.say("ada", AckType.CHANGE, 5, due_ms=START_MS + 9000)) is AlreadyFinished
    assert offsets(harness.acquire("bob")) == [0]


def test_an_extended_visibility_timeout_keeps_the_message_in_flight() -> None:
    harness = MachineHarness(end=1)
    harness.acquire("ada")
    harness.later(VISIBILITY_MS - 1)
    assert harness.say("ada", AckType.RENEW, 0, due_ms=harness.now_ms + 9000) is None
    harness.later(8999)
    assert harness.acquire("bob") == []
    harness.later(1)
    assert offsets(harness.acquire("bob")) == [0]


def test_after_a_visibility_timeout_of_zero_the_receipt_is_valid_until_the_next_delivery() -> None:
    harness = MachineHarness(end=1)
    harness.acquire("ada")
    assert harness.say("ada", AckType.RENEW, 0, due_ms=harness.now_ms) is None
    assert harness.delivery.counts(harness.now_ms) == Counts(1, 0, 0, 0)
    assert harness.say("ada", AckType.DONE, 0) is None


def test_a_release_invalidates_the_receipt() -> None:
    harness = MachineHarness(end=1)
    harness.acquire("ada")
    assert harness.say("ada", AckType.RELEASE, 0) is None
    assert type(harness.say("ada", AckType.DONE, 0)) is NotHeld
    assert [(one.first, one.count) for one in harness.acquire("bob")] == [(0, 2)]


def test_a_message_without_a_holder_is_not_acknowledged_by_an_empty_holder() -> None:
    harness = MachineHarness(end=1)
    harness.acquire("ada")
    harness.say("ada", AckType.RELEASE, 0)
    assert type(harness.say("", AckType.DONE, 0)) is NotHeld


def test_a_message_released_with_a_delay_becomes_visible_after_it() -> None:
    harness = MachineHarness(end=1)
    harness.acquire("ada")
    harness.say("ada", AckType.RELEASE, 0, due_ms=START_MS + 700)
    assert harness.delivery.counts(harness.now_ms) == Counts(0, 0, 1, 0)
    harness.later(699)
    assert harness.acquire("bob") == []
    harness.later(1)
    assert offsets(harness.acquire("bob")) == [0]


def test_an_undone_delivery_is_not_counted() -> None:
    harness = MachineHarness(end=1)
    harness.acquire("ada")
    assert harness.say("ada", AckType.UNDO, 0) is None
    harness.later(10)
    (again,) = harness.acquire("bob")
    assert (again.count, again.first_received_ms) == (1, START_MS + 10)
    harness.later(VISIBILITY_MS)
    harness.acquire("cyd")
    harness.say("cyd", AckType.UNDO, 0)
    (again,) = harness.acquire("dan")
    assert (again.count, again.first_received_ms) == (2, START_MS + 10)


def test_a_rejected_message_without_dead_letters_is_finished() -> None:
    harness = MachineHarness(end=1)
    harness.acquire("ada")
    assert harness.say("ada", AckType.REJECT, 0) is None
    harness.later(VISIBILITY_MS)
    assert harness.acquire("bob") == []


def test_items_of_one_request_fail_each_on_its_own() -> None:
    harness = MachineHarness()
    harness.acquire("ada", 4)
    errors = harness.acknowledge(
        Acknowledgement(1, 1, "ada", AckType.DONE),
        Acknowledgement(2, 2, "bob", AckType.DONE),
        Acknowledgement(1, 1, "ada", AckType.DONE),
        Acknowledgement(3, 3, "ada", AckType.RELEASE),
        Acknowledgement(3, 3, "ada", AckType.DONE),
        Acknowledgement(5, 4, "ada", AckType.DONE),
    )
    assert [type(error) for error in errors] == [
        type(None),
        NotHeld,
        AlreadyFinished,
        type(None),
        NotHeld,
        InvalidRequest,
    ]
    assert sorted(harness.delivery.ranges) == [0, 2, 3]


def test_a_part_of_a_range_that_is_done_leaves_the_rest() -> None:
    harness = MachineHarness()
    harness.acquire("ada", 10)
    harness.say("ada", AckType.DONE, 3, 5)
    assert [(delivery_range.first, delivery_range.last) for delivery_range in harness.delivery.ranges.values()] == [
        (0, 2),
        (6, 9),
    ]
    harness.say("ada", AckType.DONE, 0)
    assert sorted(
        (delivery_range.first, delivery_range.last) for delivery_range in harness.delivery.ranges.values()
    ) == [(1, 2), (6, 9)]
    harness.restart()
    harness.say("ada", AckType.DONE, 1, 9)
    assert not harness.delivery.ranges
    assert harness.delivery.start == 10


def test_a_message_does_not_become_one_with_a_neighbour_that_is_done() -> None:
    harness = MachineHarness()
    harness.acquire("ada", visibility_ms=10_000)
    harness.acquire("ada", visibility_ms=20_000)
    harness.acknowledge(
        Acknowledgement(0, 0, "ada", AckType.RENEW, START_MS + 20_000), Acknowledgement(1, 1, "ada", AckType.DONE)
    )
    assert [(delivery_range.first, delivery_range.last) for delivery_range in harness.delivery.ranges.values()] == [
        (0, 0)
    ]


def test_a_range_counts_only_if_all_of_it_is_held() -> None:
    harness = MachineHarness()
    harness.acquire("ada", 2)
    harness.acquire("bob", 2)
    assert type(harness.say("ada", AckType.DONE, 0, 3)) is NotHeld
    assert sorted(harness.delivery.ranges) == [0, 2]
    assert harness.say("ada", AckType.DONE, 0, 1) is None


def test_a_move_names_its_destination() -> None:
    harness = MachineHarness()
    harness.acquire("ada")
    with pytest.raises(InvalidRequest, match="no destination"):
        harness.say("ada", AckType.MOVE, 0)


def test_messages_received_and_finished_together_are_one_record() -> None:
    harness = MachineHarness(end=10)
    harness.acquire("ada", 10)
    before = len(harness.records)
    items = tuple(Acknowledgement(offset, offset, "ada", AckType.DONE) for offset in range(10))
    assert harness.do(Acknowledge(QUEUE, items)) == (None,) * 10
    assert len(harness.records) == before + 1
    assert harness.delivery.start == harness.delivery.end == 10


@pytest.mark.parametrize(
    ("ranges", "errors"),
    [
        (((0, 1), (2, 3)), (None, None)),
        (((0, 1), (1, 3)), (None, None)),
        (((2, 3), (0, 1)), (None, None)),
        (((0, 3), (0, 3)), (None, AlreadyFinished)),
        (((0, -1), (0, 3)), (InvalidRequest, None)),
        (((0, 3), (4, 4)), (None, AlreadyFinished)),
    ],
)
def test_items_of_one_delivery_range_get_the_result_that_each_would_get(
    ranges: tuple[tuple[int, int], ...], errors: tuple[type | None, ...]
) -> None:
    harness = MachineHarness(end=4)
    harness.acquire("ada", 4)
    found = harness.do(
        Acknowledge(QUEUE, tuple(Acknowledgement(first, last, "ada", AckType.DONE) for first, last in ranges))
    )
    assert [None if error is None else type(error) for error in found] == list(errors)
    assert harness.delivery.start == 4


def test_an_acknowledgement_of_another_holder_does_not_affect_the_rest_of_a_batch() -> None:
    harness = MachineHarness(end=4)
    harness.acquire("ada", 4)
    items = tuple(
        Acknowledgement(offset, offset, "bob" if offset == 2 else "ada", AckType.DONE) for offset in range(4)
    )
    found = harness.do(Acknowledge(QUEUE, items))
    assert [type(error) for error in found] == [type(None), type(None), NotHeld, type(None)]
    assert list(harness.delivery.ranges) == [2]
