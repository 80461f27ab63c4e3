"""Messages claimed by their offsets; all others stay as they were."""

from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from penstock.foundation.errors import InvalidRequest
from penstock.queues.claims import CLAIMED_MAX
from penstock.queues.commands import AckType, Claim, Claimed, Counts, Fresh, Purge
from penstock.queues.settings import DEFAULTS, DeliverySettings
from tests.examples import examples

from .machine_harness import DEAD, FIFO, QUEUE, START_MS, VISIBILITY_MS, MachineHarness, offsets

END = 40
HOLD_MS = 600_000
GROUPS = "abc"


def claim(
    harness: MachineHarness, holder: str, *ranges: tuple[int, int], ahead: int = 1000, **fresh: Any
) -> list[int]:
    """All of it, as the shell asks for it: again for what lies behind what was reached."""
    taken: list[int] = []
    left = ranges
    while left:
        end = harness.delivery.end
        read = [
            Fresh(offset, fresh.get("due_ms", {}).get(offset, 0), 0, _group(offset))
            for offset in range(end, min(harness.end, end + ahead))
            if offset not in fresh.get("gaps", ())
        ]
        command = Claim(
            QUEUE, holder, left, HOLD_MS, tuple(read), min(harness.end, end + ahead), end, harness.settings
        )
        reply = harness.do(command)
        assert isinstance(reply, Claimed)
        taken += offsets(reply.taken)
        before = left
        left = tuple((max(first, reply.reached + 1), last) for first, last in left if last > reply.reached)
        if left == before and harness.delivery.end == end:
            break
    return taken


def _group(offset: int) -> str:
    return GROUPS[offset % len(GROUPS)]


def test_exactly_what_is_claimed_is_taken_and_the_rest_was_never_received() -> None:
    harness = MachineHarness(end=10)
    assert claim(harness, "mender", (2, 3), (7, 7)) == [2, 3, 7]
    assert harness.delivery.counts(harness.now_ms) == Counts(5, 3, 0, 0)
    assert harness.delivery.end == 8
    rest = harness.acquire("ada", 10)
    assert offsets(rest) == [0, 1, 4, 5, 6, 8, 9]
    assert {one.count for one in rest} == {1}


def test_some_messages_of_a_run_are_claimed_and_the_others_stay_available() -> None:
    """Messages of a batch that is not decompressed are one range."""
    harness = MachineHarness(end=10)
    run = (Fresh(0, 0, 7, "", 4), Fresh(4), Fresh(5, 0, 7, "", 5))
    reply = harness.do(Claim(QUEUE, "mender", ((2, 3), (7, 7)), HOLD_MS, run, 10, 0, harness.settings))
    assert offsets(reply.taken) == [2, 3, 7]
    assert harness.delivery.end == 8
    assert offsets(harness.acquire("ada", 10)) == [0, 1, 4, 5, 6, 8, 9]


def test_a_claim_that_is_undone_was_never_there() -> None:
    harness = MachineHarness(end=4)
    harness.acquire("ada", 2)
    harness.later(VISIBILITY_MS)
    before = {offset: harness.delivery.find(offset) for offset in range(2)}
    assert claim(harness, "mender", (1, 2)) == [1, 2]
    assert harness.say("mender", AckType.UNDO, 1, 2) is None
    delivery_range = harness.delivery.find(1)
    assert delivery_range is not None
    assert before[1] is not None
    assert (delivery_range.count, delivery_range.first_received_ms) == (before[1].count, before[1].first_received_ms)
    assert [(one.first, one.last, one.count) for one in harness.acquire("bob", 4)] == [(0, 1, 2), (2, 3, 1)]


def test_a_claimed_and_finished_message_is_gone() -> None:
    harness = MachineHarness(end=5)
    claim(harness, "mender", (1, 1), (3, 3))
    assert harness.say("mender", AckType.DONE, 1) is None
    assert harness.say("mender", AckType.DONE, 3) is None
    assert offsets(harness.acquire("ada", 5)) == [0, 2, 4]


def test_messages_in_flight_are_not_claimed() -> None:
    harness = MachineHarness(end=4)
    harness.acquire("ada", 2)
    assert claim(harness, "mender", (0, 3)) == [2, 3]
    assert harness.say("ada", AckType.DONE, 0, 1) is None


def test_a_repeated_claim_of_the_holder_lasts_longer() -> None:
    harness = MachineHarness(end=4)
    assert claim(harness, "mender", (0, 1)) == [0, 1]
    harness.later(HOLD_MS - 1)
    assert claim(harness, "mender", (0, 1)) == [0, 1]
    delivery_range = harness.delivery.find(0)
    assert delivery_range is not None
    assert (delivery_range.count, delivery_range.due_ms) == (1, harness.now_ms + HOLD_MS)


def test_a_claim_whose_time_is_up_is_found_by_its_holder_and_finished_late() -> None:
    harness = MachineHarness(end=4)
    claim(harness, "mender", (0, 1))
    harness.later(HOLD_MS + 1)
    harness.restart()
    delivery_range = harness.delivery.find(0)
    assert delivery_range is not None
    assert delivery_range.holder == "mender"
    assert harness.say("mender", AckType.DONE, 0, 1) is None
    assert offsets(harness.acquire("ada", 4)) == [2, 3]


def test_delayed_finished_and_dead_messages_cannot_be_claimed() -> None:
    harness = MachineHarness(DeliverySettings(max_deliveries=1, dead_letter=DEAD), end=6)
    harness.acquire("ada", 2)
    harness.say("ada", AckType.DONE, 0)
    harness.later(VISIBILITY_MS)
    harness.acquire("bob", 1)  # 1 was delivered as often as may be, and is on its way to the dead letters
    assert claim(harness, "mender", (0, 5), due_ms={4: START_MS + 10**6}) == [3, 5]
    assert harness.delivery.counts(harness.now_ms) == Counts(0, 3, 1, 1)


def test_offsets_without_a_message_cannot_be_claimed() -> None:
    harness = MachineHarness(end=6)
    assert claim(harness, "mender", (0, 5), gaps=(1, 2, 5)) == [0, 3, 4]
    assert harness.delivery.end == 6
    assert sum(harness.delivery.counts(harness.now_ms)) == 3


def test_no_more_is_claimed_than_may_be_in_flight() -> None:
    harness = MachineHarness(DeliverySettings(in_flight_max=3), end=6)
    harness.acquire("ada", 1)
    assert claim(harness, "mender", (1, 5)) == [1, 2]
    assert claim(harness, "mender", (1, 5)) == [1, 2]


def test_a_message_group_in_flight_is_not_claimed() -> None:
    harness = MachineHarness(FIFO, end=9)
    fresh = tuple(Fresh(offset, 0, 0, _group(offset)) for offset in range(9))
    assert offsets(harness.acquire_of("ada", 1, fresh)) == [0]
    assert claim(harness, "mender", (2, 8)) == [2, 4, 5, 7, 8]
    assert claim(harness, "mender", (1, 1)) == [1]  # in flight at itself
    harness.say("ada", AckType.DONE, 0)
    assert claim(harness, "mender", (3, 3)) == [3]
    assert harness.acquire("bob") == []


def test_an_unknown_group_starts_where_it_was_read_from() -> None:
    harness = MachineHarness()
    command = Claim("others", "mender", ((5, 5),), HOLD_MS, tuple(Fresh(offset) for offset in range(3, 9)), 9, 3)
    assert offsets(harness.do(command).taken) == [5]
    delivery = harness.machine.group("others")
    assert delivery is not None
    assert (delivery.start, delivery.end) == (3, 6)
    assert harness.do(Claim("strangers", "mender", ((5, 5),), HOLD_MS)) == Claimed((), -1)


def test_a_large_claim_is_decided_in_batches() -> None:
    harness = MachineHarness(end=10_000)
    every_second = [(offset, offset) for offset in range(0, 4000, 2)]
    assert claim(harness, "mender", *every_second) == list(range(0, 4000, 2))
    harness.later(1000)
    harness.batches.clear()
    assert claim(harness, "mender", *every_second) == list(range(0, 4000, 2))
    assert max(harness.batches) <= CLAIMED_MAX + 1
    assert len(harness.batches) >= 4


@pytest.mark.parametrize("holder", ["", "x" * 2000])
def test_a_holder_must_have_a_name(holder: str) -> None:
    harness = MachineHarness(end=2)
    with pytest.raises(InvalidRequest, match="characters"):
        claim(harness, holder, (0, 1))


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
@examples(150, deadline=None)
@given(steps=st.lists(STEP, max_size=30), ahead=st.integers(1, 15))
def test_a_message_has_one_holder_and_none_is_lost(terms: DeliverySettings, steps: list[Any], ahead: int) -> None:
    harness = MachineHarness(terms, end=END)
    done: set[int] = set()
    for step in steps:
        if step[0] == "claim":
            free = _free(harness)
            taken = claim(harness, step[1], *step[2], ahead=ahead)
            wanted = {first for first, _ in step[2]}
            assert set(taken) <= wanted - done
            assert all(_holder(harness, offset) == step[1] for offset in taken)
            if terms is DEFAULTS:  # in a FIFO queue, message groups are closed to others
                assert set(taken) >= wanted & free
        elif step[0] == "acquire":
            fresh = tuple(Fresh(offset, 0, 0, _group(offset)) for offset in range(harness.delivery.end, END))
            taken = offsets(harness.acquire_of(step[1], step[2], fresh, fresh_end=END))
            assert not set(taken) & done
        elif step[0] in ("done", "undo"):
            held = _holder(harness, step[2]) == step[1]
            error = harness.say(step[1], AckType.DONE if step[0] == "done" else AckType.UNDO, step[2])
            assert (error is None) == held
            if held and step[0] == "done":
                done.add(step[2])
        elif step[0] == "later":
            harness.later(step[1])
        elif step[0] == "purge":
            harness.do(Purge(QUEUE, step[1]))
            done |= set(range(step[1]))
        else:
            harness.restart()
        known = harness.delivery.ranges.values()
        covered = [offset for one in known for offset in range(one.first, one.last + 1)]
        assert len(covered) == len(set(covered)), "delivery ranges overlap"
        assert set(covered) == set(range(harness.delivery.end)) - done, "a message is lost, or comes back"


def _holder(harness: MachineHarness, offset: int) -> str:
    delivery_range = harness.delivery.find(offset)
    return "" if delivery_range is None else delivery_range.holder


def _free(harness: MachineHarness) -> set[int]:
    """Messages that are neither in flight nor finished."""
    found = set(range(harness.delivery.end, END))
    for delivery_range in harness.delivery.ranges.values():
        if delivery_range.due_ms <= harness.now_ms:
            found |= set(range(delivery_range.first, delivery_range.last + 1))
    return found
