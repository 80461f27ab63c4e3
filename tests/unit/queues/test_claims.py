"""Messages that are taken in hand by their offsets; all others stay as they were."""

from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from penstock.foundation.errors import InvalidRequest
from penstock.queues.claims import CLAIMED_MAX
from penstock.queues.commands import AckType, Claim, Claimed, Counts, Fresh, Purge
from penstock.queues.settings import DEFAULTS, DeliverySettings

from .driving import DEAD, FIFO, QUEUE, START_MS, VISIBILITY_MS, Place, offsets

END = 40
HOLD_MS = 600_000
GROUPS = "abc"


def claim(place: Place, holder: str, *ranges: tuple[int, int], ahead: int = 1000, **fresh: Any) -> list[int]:
    """All of it, as the shell asks for it: again for what lies behind what was reached."""
    taken: list[int] = []
    left = ranges
    while left:
        end = place.delivery.end
        read = [
            Fresh(offset, fresh.get("due_ms", {}).get(offset, 0), 0, _group(offset))
            for offset in range(end, min(place.end, end + ahead))
            if offset not in fresh.get("gaps", ())
        ]
        command = Claim(QUEUE, holder, left, HOLD_MS, tuple(read), min(place.end, end + ahead), end, place.settings)
        reply = place.do(command)
        assert isinstance(reply, Claimed)
        taken += offsets(reply.taken)
        before = left
        left = tuple((max(first, reply.reached + 1), last) for first, last in left if last > reply.reached)
        if left == before and place.delivery.end == end:
            break
    return taken


def _group(offset: int) -> str:
    return GROUPS[offset % len(GROUPS)]


def test_exactly_what_is_claimed_is_taken_and_the_rest_was_never_received() -> None:
    place = Place(end=10)
    assert claim(place, "mender", (2, 3), (7, 7)) == [2, 3, 7]
    assert place.delivery.counts(place.now_ms) == Counts(5, 3, 0, 0)
    assert place.delivery.end == 8
    rest = place.acquire("ada", 10)
    assert offsets(rest) == [0, 1, 4, 5, 6, 8, 9]
    assert {one.count for one in rest} == {1}


def test_some_messages_of_a_run_are_claimed_and_the_others_stay_available() -> None:
    """Messages of a batch that stays closed are told as one run."""
    place = Place(end=10)
    run = (Fresh(0, 0, 7, "", 4), Fresh(4), Fresh(5, 0, 7, "", 5))
    reply = place.do(Claim(QUEUE, "mender", ((2, 3), (7, 7)), HOLD_MS, run, 10, 0, place.settings))
    assert offsets(reply.taken) == [2, 3, 7]
    assert place.delivery.end == 8
    assert offsets(place.acquire("ada", 10)) == [0, 1, 4, 5, 6, 8, 9]


def test_a_claim_that_is_undone_was_never_there() -> None:
    place = Place(end=4)
    place.acquire("ada", 2)
    place.later(VISIBILITY_MS)
    before = {offset: place.delivery.find(offset) for offset in range(2)}
    assert claim(place, "mender", (1, 2)) == [1, 2]
    assert place.say("mender", AckType.UNDO, 1, 2) is None
    delivery_range = place.delivery.find(1)
    assert delivery_range is not None
    assert before[1] is not None
    assert (delivery_range.count, delivery_range.first_received_ms) == (before[1].count, before[1].first_received_ms)
    assert [(one.first, one.last, one.count) for one in place.acquire("bob", 4)] == [(0, 1, 2), (2, 3, 1)]


def test_what_is_claimed_and_finished_is_gone() -> None:
    place = Place(end=5)
    claim(place, "mender", (1, 1), (3, 3))
    assert place.say("mender", AckType.DONE, 1) is None
    assert place.say("mender", AckType.DONE, 3) is None
    assert offsets(place.acquire("ada", 5)) == [0, 2, 4]


def test_nobody_is_robbed_of_what_is_in_flight() -> None:
    place = Place(end=4)
    place.acquire("ada", 2)
    assert claim(place, "mender", (0, 3)) == [2, 3]
    assert place.say("ada", AckType.DONE, 0, 1) is None


def test_a_claim_is_repeated_by_who_has_it_and_lasts_longer() -> None:
    place = Place(end=4)
    assert claim(place, "mender", (0, 1)) == [0, 1]
    place.later(HOLD_MS - 1)
    assert claim(place, "mender", (0, 1)) == [0, 1]
    delivery_range = place.delivery.find(0)
    assert delivery_range is not None
    assert (delivery_range.count, delivery_range.due_ms) == (1, place.now_ms + HOLD_MS)


def test_a_claim_whose_time_is_up_is_found_by_its_holder_and_finished_late() -> None:
    place = Place(end=4)
    claim(place, "mender", (0, 1))
    place.later(HOLD_MS + 1)
    place.restart()
    delivery_range = place.delivery.find(0)
    assert delivery_range is not None
    assert delivery_range.holder == "mender"
    assert place.say("mender", AckType.DONE, 0, 1) is None
    assert offsets(place.acquire("ada", 4)) == [2, 3]


def test_what_is_delayed_finished_or_dead_cannot_be_claimed() -> None:
    place = Place(DeliverySettings(max_deliveries=1, dead_letter=DEAD), end=6)
    place.acquire("ada", 2)
    place.say("ada", AckType.DONE, 0)
    place.later(VISIBILITY_MS)
    place.acquire("bob", 1)  # 1 was delivered as often as may be, and is on its way to the dead letters
    assert claim(place, "mender", (0, 5), due_ms={4: START_MS + 10**6}) == [3, 5]
    assert place.delivery.counts(place.now_ms) == Counts(0, 3, 1, 1)


def test_what_is_no_message_is_not_made_one() -> None:
    place = Place(end=6)
    assert claim(place, "mender", (0, 5), gaps=(1, 2, 5)) == [0, 3, 4]
    assert place.delivery.end == 6
    assert sum(place.delivery.counts(place.now_ms)) == 3


def test_no_more_is_claimed_than_may_be_in_flight() -> None:
    place = Place(DeliverySettings(in_flight_max=3), end=6)
    place.acquire("ada", 1)
    assert claim(place, "mender", (1, 5)) == [1, 2]
    assert claim(place, "mender", (1, 5)) == [1, 2]


def test_a_message_group_that_someone_has_in_hand_is_not_claimed_from() -> None:
    place = Place(FIFO, end=9)
    fresh = tuple(Fresh(offset, 0, 0, _group(offset)) for offset in range(9))
    assert offsets(place.acquire_of("ada", 1, fresh)) == [0]
    assert claim(place, "mender", (2, 8)) == [2, 4, 5, 7, 8]
    assert claim(place, "mender", (1, 1)) == [1]  # its own hands
    place.say("ada", AckType.DONE, 0)
    assert claim(place, "mender", (3, 3)) == [3]
    assert place.acquire("bob") == []


def test_a_group_that_nobody_knows_begins_where_it_was_read_from() -> None:
    place = Place()
    command = Claim("others", "mender", ((5, 5),), HOLD_MS, tuple(Fresh(offset) for offset in range(3, 9)), 9, 3)
    assert offsets(place.do(command).taken) == [5]
    delivery = place.machine.group("others")
    assert delivery is not None
    assert (delivery.start, delivery.end) == (3, 6)
    assert place.do(Claim("strangers", "mender", ((5, 5),), HOLD_MS)) == Claimed((), -1)


def test_a_large_claim_is_decided_in_batches() -> None:
    place = Place(end=10_000)
    every_second = [(offset, offset) for offset in range(0, 4000, 2)]
    assert claim(place, "mender", *every_second) == list(range(0, 4000, 2))
    place.later(1000)
    place.batches.clear()
    assert claim(place, "mender", *every_second) == list(range(0, 4000, 2))
    assert max(place.batches) <= CLAIMED_MAX + 1
    assert len(place.batches) >= 4


@pytest.mark.parametrize("holder", ["", "x" * 2000])
def test_a_holder_must_have_a_name(holder: str) -> None:
    place = Place(end=2)
    with pytest.raises(InvalidRequest, match="characters"):
        claim(place, holder, (0, 1))


RANGES = st.lists(st.integers(0, END - 1), unique=True, max_size=12).map(
    lambda found: tuple((offset, offset) for offset in sorted(found))
)
STEP = st.one_of(
    st.tuples(st.just("claim"), st.sampled_from(("m1", "m2")), RANGES),
    st.tuples(st.just("acquire"), st.sampled_from(("ada", "bob")), st.integers(1, 5)),
    st.tuples(st.just("done"), st.sampled_from(("m1", "m2", "ada")), st.integers(0, END - 1)),
    st.tuples(st.just("undo"), st.sampled_from(("m1", "m2")), st.integers(0, END - 1)),
    st.tuples(st.just("later"), st.sampled_from((1, VISIBILITY_MS, HOLD_MS))),
    st.tuples(st.just("purge"), st.integers(0, END - 1)),
    st.tuples(st.just("restart")),
)


@pytest.mark.parametrize("terms", [DEFAULTS, FIFO], ids=["standard", "fifo"])
@settings(max_examples=150, deadline=None)
@given(steps=st.lists(STEP, max_size=30), ahead=st.integers(1, 15))
def test_whatever_happens_a_message_is_with_one_holder_and_none_is_lost(
    terms: DeliverySettings, steps: list[Any], ahead: int
) -> None:
    place = Place(terms, end=END)
    done: set[int] = set()
    for step in steps:
        if step[0] == "claim":
            free = _free(place)
            taken = claim(place, step[1], *step[2], ahead=ahead)
            wanted = {first for first, _ in step[2]}
            assert set(taken) <= wanted - done
            assert all(_holder(place, offset) == step[1] for offset in taken)
            if terms is DEFAULTS:  # in a FIFO queue, message groups are closed to others
                assert set(taken) >= wanted & free
        elif step[0] == "acquire":
            fresh = tuple(Fresh(offset, 0, 0, _group(offset)) for offset in range(place.delivery.end, END))
            taken = offsets(place.acquire_of(step[1], step[2], fresh, fresh_end=END))
            assert not set(taken) & done
        elif step[0] in ("done", "undo"):
            held = _holder(place, step[2]) == step[1]
            error = place.say(step[1], AckType.DONE if step[0] == "done" else AckType.UNDO, step[2])
            assert (error is None) == held
            if held and step[0] == "done":
                done.add(step[2])
        elif step[0] == "later":
            place.later(step[1])
        elif step[0] == "purge":
            place.do(Purge(QUEUE, step[1]))
            done |= set(range(step[1]))
        else:
            place.restart()
        known = place.delivery.ranges.values()
        covered = [offset for one in known for offset in range(one.first, one.last + 1)]
        assert len(covered) == len(set(covered)), "delivery ranges overlap"
        assert set(covered) == set(range(place.delivery.end)) - done, "a message is lost, or comes back"


def _holder(place: Place, offset: int) -> str:
    delivery_range = place.delivery.find(offset)
    return "" if delivery_range is None else delivery_range.holder


def _free(place: Place) -> set[int]:
    """What nobody has in flight and is not finished."""
    found = set(range(place.delivery.end, END))
    for delivery_range in place.delivery.ranges.values():
        if delivery_range.due_ms <= place.now_ms:
            found |= set(range(delivery_range.first, delivery_range.last + 1))
    return found
