"""What becomes of messages that someone holds."""

import pytest

from penstock.foundation.errors import InvalidRequest
from penstock.queues.commands import Acknowledge, Acknowledgement, AckType, Counts
from penstock.queues.errors import AlreadyFinished, NeverReceived, NotHeld, NotInFlight

from .driving import QUEUE, START_MS, VISIBILITY_MS, Place, offsets


def test_a_late_answer_is_honoured_while_nobody_else_has_the_message() -> None:
    place = Place(end=1)
    place.acquire("ada")
    place.later(VISIBILITY_MS + 5000)
    assert place.say("ada", AckType.DONE, 0) is None
    assert place.acquire("bob") == []
    assert place.delivery.start == 1


def test_a_late_answer_is_refused_once_the_message_went_elsewhere() -> None:
    place = Place(end=1)
    place.acquire("ada")
    place.later(VISIBILITY_MS)
    place.acquire("bob")
    error = place.say("ada", AckType.DONE, 0)
    assert type(error) is NotHeld
    assert place.say("bob", AckType.DONE, 0) is None


def test_who_deletes_twice_is_told_that_it_is_done() -> None:
    place = Place()
    place.acquire("ada")
    assert place.say("ada", AckType.DONE, 0) is None
    assert type(place.say("ada", AckType.DONE, 0)) is AlreadyFinished
    assert type(place.say("ada", AckType.DONE, 77)) is AlreadyFinished
    assert [
        type(error) for error in place.do(Acknowledge("unknown", (Acknowledgement(0, 0, "ada", AckType.DONE),)))
    ] == [AlreadyFinished]


@pytest.mark.parametrize("ack_type", [AckType.RENEW, AckType.RELEASE, AckType.DELETE])
def test_what_is_over_cannot_be_renewed_released_or_deleted(ack_type: AckType) -> None:
    place = Place()
    place.acquire("ada")
    place.later(VISIBILITY_MS)
    error = place.say("ada", ack_type, 0, due_ms=place.now_ms + 1000)
    assert type(error) is NotInFlight
    assert "passed 0 ms ago" in str(error)


def test_a_message_in_flight_is_deleted() -> None:
    place = Place(end=1)
    place.acquire("ada")
    assert type(place.say("bob", AckType.DELETE, 0)) is NotHeld
    assert place.say("ada", AckType.DELETE, 0) is None
    assert place.delivery.start == 1


def test_the_visibility_of_a_message_can_be_changed_after_its_time_is_over() -> None:
    place = Place(end=1)
    place.acquire("ada")
    place.later(VISIBILITY_MS)
    assert place.say("ada", AckType.CHANGE, 0, due_ms=place.now_ms + 5000) is None
    assert place.delivery.counts(place.now_ms) == Counts(0, 1, 0, 0)
    place.restart()
    place.later(4999)
    assert place.acquire("bob") == []
    assert place.say("ada", AckType.DELETE, 0) is None


def test_an_older_receipt_changes_the_visibility_of_a_message_that_another_one_has() -> None:
    place = Place(end=1)
    place.acquire("ada", visibility_ms=0)
    assert offsets(place.acquire("bob")) == [0]
    assert place.say("ada", AckType.CHANGE, 0, due_ms=place.now_ms) is None
    assert offsets(place.acquire("cyd")) == [0]
    assert place.say("ada", AckType.CHANGE, 0, due_ms=place.now_ms + 2 * VISIBILITY_MS) is None
    place.later(VISIBILITY_MS)
    assert place.acquire("dan") == []
    assert type(place.say("ada", AckType.DONE, 0)) is NotHeld, "the last receipt is the one that counts"
    assert place.say("cyd", AckType.DONE, 0) is None


def test_a_receipt_of_a_message_that_was_let_go_holds_it_again() -> None:
    place = Place(end=1)
    place.acquire("ada")
    place.say("ada", AckType.RELEASE, 0)
    assert place.say("ada", AckType.CHANGE, 0, due_ms=place.now_ms + 5000) is None
    assert place.delivery.counts(place.now_ms) == Counts(0, 1, 0, 0)
    assert place.say("ada", AckType.DONE, 0) is None


def test_the_visibility_of_what_nobody_has_received_is_not_changed() -> None:
    place = Place(end=1)
    place.acquire("ada")
    place.say("ada", AckType.UNDO, 0)
    assert type(place.say("ada", AckType.CHANGE, 0, due_ms=START_MS + 9000)) is NeverReceived
    assert type(place.say("ada", AckType.CHANGE, 5, due_ms=START_MS + 9000)) is AlreadyFinished
    assert offsets(place.acquire("bob")) == [0]


def test_who_extends_its_time_keeps_the_message_for_longer() -> None:
    place = Place(end=1)
    place.acquire("ada")
    place.later(VISIBILITY_MS - 1)
    assert place.say("ada", AckType.RENEW, 0, due_ms=place.now_ms + 9000) is None
    place.later(8999)
    assert place.acquire("bob") == []
    place.later(1)
    assert offsets(place.acquire("bob")) == [0]


def test_who_ends_its_time_early_has_a_receipt_that_is_good_until_someone_else_comes() -> None:
    place = Place(end=1)
    place.acquire("ada")
    assert place.say("ada", AckType.RENEW, 0, due_ms=place.now_ms) is None
    assert place.delivery.counts(place.now_ms) == Counts(1, 0, 0, 0)
    assert place.say("ada", AckType.DONE, 0) is None


def test_who_lets_go_has_a_receipt_no_more() -> None:
    place = Place(end=1)
    place.acquire("ada")
    assert place.say("ada", AckType.RELEASE, 0) is None
    assert type(place.say("ada", AckType.DONE, 0)) is NotHeld
    assert [(one.first, one.count) for one in place.acquire("bob")] == [(0, 2)]


def test_what_nobody_holds_is_not_settled_by_nobody() -> None:
    place = Place(end=1)
    place.acquire("ada")
    place.say("ada", AckType.RELEASE, 0)
    assert type(place.say("", AckType.DONE, 0)) is NotHeld


def test_a_message_that_is_let_go_with_a_delay_waits_that_long() -> None:
    place = Place(end=1)
    place.acquire("ada")
    place.say("ada", AckType.RELEASE, 0, due_ms=START_MS + 700)
    assert place.delivery.counts(place.now_ms) == Counts(0, 0, 1, 0)
    place.later(699)
    assert place.acquire("bob") == []
    place.later(1)
    assert offsets(place.acquire("bob")) == [0]


def test_what_is_undone_was_never_delivered() -> None:
    place = Place(end=1)
    place.acquire("ada")
    assert place.say("ada", AckType.UNDO, 0) is None
    place.later(10)
    (again,) = place.acquire("bob")
    assert (again.count, again.first_received_ms) == (1, START_MS + 10)
    place.later(VISIBILITY_MS)
    place.acquire("cyd")
    place.say("cyd", AckType.UNDO, 0)
    (again,) = place.acquire("dan")
    assert (again.count, again.first_received_ms) == (2, START_MS + 10)


def test_a_rejected_message_without_dead_letters_is_finished() -> None:
    place = Place(end=1)
    place.acquire("ada")
    assert place.say("ada", AckType.REJECT, 0) is None
    place.later(VISIBILITY_MS)
    assert place.acquire("bob") == []


def test_items_of_one_request_fail_each_on_its_own() -> None:
    place = Place()
    place.acquire("ada", 4)
    errors = place.acknowledge(
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
    assert sorted(place.delivery.ranges) == [0, 2, 3]


def test_a_part_of_a_range_that_is_done_leaves_the_rest() -> None:
    place = Place()
    place.acquire("ada", 10)
    place.say("ada", AckType.DONE, 3, 5)
    assert [(delivery_range.first, delivery_range.last) for delivery_range in place.delivery.ranges.values()] == [
        (0, 2),
        (6, 9),
    ]
    place.say("ada", AckType.DONE, 0)
    assert sorted(
        (delivery_range.first, delivery_range.last) for delivery_range in place.delivery.ranges.values()
    ) == [(1, 2), (6, 9)]
    place.restart()
    place.say("ada", AckType.DONE, 1, 9)
    assert not place.delivery.ranges
    assert place.delivery.start == 10


def test_a_message_does_not_become_one_with_a_neighbour_that_is_done() -> None:
    place = Place()
    place.acquire("ada", visibility_ms=10_000)
    place.acquire("ada", visibility_ms=20_000)
    place.acknowledge(
        Acknowledgement(0, 0, "ada", AckType.RENEW, START_MS + 20_000), Acknowledgement(1, 1, "ada", AckType.DONE)
    )
    assert [(delivery_range.first, delivery_range.last) for delivery_range in place.delivery.ranges.values()] == [
        (0, 0)
    ]


def test_a_range_counts_only_if_all_of_it_is_held() -> None:
    place = Place()
    place.acquire("ada", 2)
    place.acquire("bob", 2)
    assert type(place.say("ada", AckType.DONE, 0, 3)) is NotHeld
    assert sorted(place.delivery.ranges) == [0, 2]
    assert place.say("ada", AckType.DONE, 0, 1) is None


def test_who_moves_a_message_says_where_to() -> None:
    place = Place()
    place.acquire("ada")
    with pytest.raises(InvalidRequest, match="no destination"):
        place.say("ada", AckType.MOVE, 0)


def test_what_was_received_together_and_is_finished_together_is_one_record() -> None:
    place = Place(end=10)
    place.acquire("ada", 10)
    before = len(place.records)
    items = tuple(Acknowledgement(offset, offset, "ada", AckType.DONE) for offset in range(10))
    assert place.do(Acknowledge(QUEUE, items)) == (None,) * 10
    assert len(place.records) == before + 1
    assert place.delivery.start == place.delivery.end == 10


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
    place = Place(end=4)
    place.acquire("ada", 4)
    found = place.do(
        Acknowledge(QUEUE, tuple(Acknowledgement(first, last, "ada", AckType.DONE) for first, last in ranges))
    )
    assert [None if error is None else type(error) for error in found] == list(errors)
    assert place.delivery.start == 4


def test_one_of_several_that_is_not_its_holders_keeps_none_of_the_others() -> None:
    place = Place(end=4)
    place.acquire("ada", 4)
    items = tuple(
        Acknowledgement(offset, offset, "bob" if offset == 2 else "ada", AckType.DONE) for offset in range(4)
    )
    found = place.do(Acknowledge(QUEUE, items))
    assert [type(error) for error in found] == [type(None), type(None), NotHeld, type(None)]
    assert list(place.delivery.ranges) == [2]
