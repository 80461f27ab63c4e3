"""FIFO queues: message groups in order; a message in flight holds back those behind it in its group."""

from itertools import groupby

import pytest
from hypothesis import HealthCheck, given
from hypothesis import strategies as st

from penstock.queues.commands import Acknowledge, Acknowledgement, AckType, Counts, Fresh
from penstock.queues.settings import DeliverySettings
from tests.examples import examples

from .machine_harness import FIFO, QUEUE, START_MS, VISIBILITY_MS, MachineHarness, offsets


def messages(groups: str, first: int = 0) -> tuple[Fresh, ...]:
    """One message for each letter, which is its group."""
    return tuple(Fresh(first + at, group=group) for at, group in enumerate(groups))


class Queue(MachineHarness):
    """With these messages, one for each letter."""

    def __init__(self, groups: str, settings: DeliverySettings = FIFO) -> None:
        super().__init__(settings)
        self.groups = groups

    def receive(self, holder: str, count: int = 10, **options: object) -> list[int]:
        end = self.delivery.end
        fresh = messages(self.groups[end:], end)
        return offsets(self.acquire_of(holder, count, fresh, **options))


def test_while_a_message_of_a_group_is_in_flight_none_behind_it_is_delivered() -> None:
    harness = Queue("aab")
    assert harness.receive("ada", 1) == [0]
    assert harness.receive("bob") == [2]
    assert harness.receive("cyd") == []
    harness.say("ada", AckType.DONE, 0)
    assert harness.receive("cyd") == [1]


def test_as_many_of_one_group_as_possible_are_given_before_any_of_another() -> None:
    harness = Queue("abababab")
    assert harness.receive("ada", 3) == [0, 2, 4]
    assert harness.receive("bob", 3) == [1, 3, 5]
    assert harness.receive("cyd", 3) == []


def test_one_receive_may_have_several_groups_one_after_another() -> None:
    assert Queue("abcab").receive("ada", 4) == [0, 3, 1, 4]


def test_more_of_a_group_come_before_others_though_they_were_not_read_yet() -> None:
    harness = Queue("abaa")
    harness.acquire_of("ada", 2, messages("ab"))
    harness.say("ada", AckType.RELEASE, 0, 1)
    assert harness.receive("bob", 3) == [0, 2, 3]
    assert harness.receive("cyd", 3) == [1]


def test_the_rest_of_a_group_waits_for_all_messages_in_flight() -> None:
    harness = Queue("aaaa")
    assert harness.receive("ada", 2) == [0, 1]
    harness.say("ada", AckType.DONE, 0)
    assert harness.receive("bob") == []
    harness.say("ada", AckType.DONE, 1)
    assert harness.receive("bob") == [2, 3]


def test_a_worker_that_dies_gives_its_group_back_in_order() -> None:
    harness = Queue("aaa")
    assert harness.receive("ada", 2) == [0, 1]
    harness.later(VISIBILITY_MS)
    assert harness.receive("bob") == [0, 1, 2]


@pytest.mark.parametrize(("kept", "visible"), [(0, []), (1, [0]), (2, [0, 1])])
def test_messages_before_one_in_flight_are_delivered_and_those_behind_it_are_not(
    kept: int, visible: list[int]
) -> None:
    """As AWS: recorded by LocalStack's test_fifo_group_visibility_extends_with_change_message_visibility."""
    harness = Queue("aaa")
    assert harness.receive("ada") == [0, 1, 2]
    harness.say("ada", AckType.RENEW, kept, due_ms=START_MS + 2 * VISIBILITY_MS)
    harness.later(VISIBILITY_MS)
    assert harness.receive("bob") == visible
    harness.later(VISIBILITY_MS)
    assert harness.receive("cyd") == [0, 1, 2]


def test_a_released_message_is_delivered_at_once_though_one_behind_it_is_in_flight() -> None:
    harness = Queue("aaab")
    assert harness.receive("ada", 2) == [0, 1]
    harness.say("ada", AckType.RELEASE, 0)
    assert harness.receive("bob") == [0, 3]
    harness.say("ada", AckType.RELEASE, 1)
    assert harness.receive("cyd") == [], "the first one is in flight again"
    harness.say("bob", AckType.DONE, 0)
    assert harness.receive("cyd") == [1, 2]


def test_a_message_that_is_not_due_holds_back_its_group_and_no_other() -> None:
    harness = Queue("aab")
    harness.receive("ada", 1)
    harness.say("ada", AckType.RELEASE, 0, due_ms=START_MS + 5000)
    assert harness.receive("bob") == [2]
    harness.later(5000)
    assert harness.receive("bob") == [0, 1]


def test_a_message_that_is_not_due_holds_back_those_behind_it_and_none_before_it() -> None:
    harness = Queue("aaa")
    harness.receive("ada")
    for offset, due_ms in ((0, 0), (1, START_MS + 5000), (2, 0)):
        harness.say("ada", AckType.RELEASE, offset, due_ms=due_ms)
    assert harness.receive("bob") == [0]
    harness.say("bob", AckType.DONE, 0)
    assert harness.receive("bob") == []
    harness.later(5000)
    assert harness.receive("bob") == [1, 2]


def test_fresh_messages_that_are_not_due_hold_back_their_group() -> None:
    harness = MachineHarness(FIFO)
    fresh = (Fresh(0, START_MS + 2500, group="a"), Fresh(1, group="a"), Fresh(2, group="b"))
    assert offsets(harness.acquire_of("ada", 9, fresh)) == [2]
    harness.later(3000)
    assert offsets(harness.acquire_of("ada", 9, ())) == [0, 1]


def test_a_fresh_message_that_is_not_due_holds_back_its_group_however_far() -> None:
    harness = MachineHarness(FIFO)
    fresh = (Fresh(0, START_MS + 2500, group="a"), *messages("a" * 60 + "b", 1))
    assert offsets(harness.acquire_of("ada", 1, fresh)) == [61]
    assert harness.acquire_of("bob", 1, ()) == []


def test_a_queue_whose_messages_are_all_delayed_is_not_looked_through() -> None:
    harness = MachineHarness(FIFO)
    fresh = tuple(Fresh(offset, START_MS + 1000, group="ab"[offset % 2]) for offset in range(6))
    assert harness.acquire_of("ada", 9, fresh) == []
    assert not harness.delivery.ranges
    assert harness.acquire_of("ada", 9, fresh, has_more=True) == []
    assert harness.delivery.counts(harness.now_ms).delayed == 6


def test_no_more_than_may_be_in_flight_and_no_error() -> None:
    harness = Queue("abcd", DeliverySettings(is_fifo=True, in_flight_max=2))
    assert harness.receive("ada") == [0, 1]
    assert harness.receive("bob") == []
    harness.say("ada", AckType.DONE, 0)
    assert harness.receive("bob") == [2]


def test_behind_so_many_that_wait_nothing_is_looked_at() -> None:
    harness = Queue("aaaaab", DeliverySettings(is_fifo=True, lookahead_max=4))
    assert harness.receive("ada", 1) == [0]
    assert harness.receive("bob") == []
    assert harness.delivery.end == 4
    assert len(harness.delivery.ranges) == 4
    harness.say("ada", AckType.DONE, 0)
    assert harness.receive("ada", 2) == [1, 2]
    harness.say("ada", AckType.DONE, 1, 2)
    assert harness.receive("ada", 2) == [3, 4]
    assert harness.receive("bob") == [5]


def test_messages_of_closed_groups_are_passed_over_however_many() -> None:
    harness = Queue("a" + "a" * 60 + "b")
    assert harness.receive("ada", 1) == [0]
    assert harness.receive("bob", 1) == [61]
    assert harness.delivery.counts(harness.now_ms) == Counts(60, 2, 0, 0)


def test_a_large_message_is_given_alone() -> None:
    harness = MachineHarness(FIFO)
    fresh = tuple(Fresh(offset, size=100, group="a") for offset in range(3))
    assert offsets(harness.acquire_of("ada", 9, fresh, max_bytes=10)) == [0]


def test_messages_without_a_group_are_one_group() -> None:
    harness = MachineHarness(FIFO)
    fresh = (Fresh(0), Fresh(1, group="a"), Fresh(2))
    assert offsets(harness.acquire_of("ada", 1, fresh)) == [0]
    assert offsets(harness.acquire_of("bob", 9, ())) == []
    assert offsets(harness.acquire_of("bob", 9, fresh[1:])) == [1]


# -- asked again


def test_a_repeated_attempt_gets_the_same_messages_and_a_new_deadline() -> None:
    harness = Queue("aab")
    assert harness.receive("attempt-1", 2) == [0, 1]
    harness.later(VISIBILITY_MS - 1)
    again = harness.acquire_of("attempt-1", 2, (), repeat=True)
    assert [(one.first, one.count, one.due_ms) for one in again] == [
        (0, 1, harness.now_ms + VISIBILITY_MS),
        (1, 1, harness.now_ms + VISIBILITY_MS),
    ]
    harness.later(VISIBILITY_MS - 1)
    assert harness.receive("bob") == [2]


def test_a_repeated_attempt_after_its_timeout_is_like_a_new_one() -> None:
    harness = Queue("aab")
    harness.receive("attempt-1", 2)
    harness.later(VISIBILITY_MS)
    again = harness.acquire_of("attempt-1", 2, (), repeat=True)
    assert [(one.first, one.count) for one in again] == [(0, 2), (1, 2)]


def test_a_repeated_attempt_does_not_get_messages_behind_a_released_one() -> None:
    harness = Queue("aaab")
    harness.receive("attempt-1", 3)
    harness.say("attempt-1", AckType.RELEASE, 1)
    assert offsets(harness.acquire_of("attempt-1", 2, (), repeat=True)) == [0]


def test_a_repeated_attempt_gets_the_same_messages_in_the_same_order() -> None:
    harness = Queue("abab")
    assert harness.receive("attempt-1", 4) == [0, 2, 1, 3]
    assert offsets(harness.acquire_of("attempt-1", 4, (), repeat=True)) == [0, 2, 1, 3]


def test_a_repeated_attempt_gets_messages_that_are_not_finished() -> None:
    harness = Queue("aab")
    harness.receive("attempt-1", 2)
    harness.say("attempt-1", AckType.DONE, 0)
    assert offsets(harness.acquire_of("attempt-1", 2, (), repeat=True)) == [1]
    harness.say("attempt-1", AckType.DONE, 1)
    assert harness.receive("attempt-1", 2, repeat=True) == [2]


# -- dead letters


def test_a_dead_letter_unblocks_the_messages_behind_it() -> None:
    harness = Queue("aab", DeliverySettings(is_fifo=True, max_deliveries=1))
    assert harness.receive("ada", 1) == [0]
    harness.later(VISIBILITY_MS)
    assert harness.receive("bob") == [1, 2]
    assert harness.delivery.start == 1


STEP = st.one_of(
    st.tuples(st.just("receive"), st.integers(1, 4)),
    st.tuples(st.just("receive"), st.integers(1, 4)),
    st.tuples(st.sampled_from(("done", "release", "back off", "renew")), st.integers(0, 30)),
    st.tuples(st.just("later"), st.sampled_from((1, 1000, VISIBILITY_MS))),
    st.tuples(st.just("restart"), st.just(0)),
)


@examples(60, deadline=None, suppress_health_check=[HealthCheck.too_slow])
@given(st.text("abc", min_size=5, max_size=40), st.lists(STEP, min_size=10, max_size=50))
def test_every_group_is_in_order(groups: str, steps: list[tuple[str, int]]) -> None:
    """Only deliverable messages are delivered, and some are as long as there are any."""
    harness = Queue(groups)
    finished: set[int] = set()
    for number, (what, detail) in enumerate(steps):
        if what == "receive":
            _receive(harness, finished, f"w{number}", detail)
        elif what == "later":
            harness.later(detail)
        elif what == "restart":
            harness.restart()
        else:
            _say(harness, finished, what, detail)


def _open_groups(harness: Queue, finished: set[int]) -> set[str]:
    """By looking at every message."""
    found, seen = set(), set()
    for offset, group in enumerate(harness.groups):
        if offset in finished or group in seen:
            continue
        seen.add(group)
        head = harness.delivery.ranges.get(offset)
        if head is None or head.due_ms <= harness.now_ms:
            found.add(group)
    return found


def _receive(harness: Queue, finished: set[int], holder: str, count: int) -> None:
    are_open = _open_groups(harness, finished)
    given = harness.receive(holder, count)
    assert {harness.groups[offset] for offset in given} <= are_open, "a closed group was given"
    assert given or not are_open
    for offset in given:
        before = [at for at in range(offset) if harness.groups[at] == harness.groups[offset]]
        assert all(at in finished or at in given[: given.index(offset)] for at in before), "out of order"
    groups = [harness.groups[offset] for offset in given]
    assert [group for group, _ in groupby(groups)] == list(dict.fromkeys(groups)), "not group by group"


def _say(harness: Queue, finished: set[int], what: str, which: int) -> None:
    held = [
        delivery_range
        for delivery_range in harness.delivery.ranges.values()
        if delivery_range.holder and delivery_range.due_ms > harness.now_ms
    ]
    if not held:
        return
    delivery_range = held[which % len(held)]
    due_ms = {"back off": harness.now_ms + 2000, "renew": harness.now_ms + VISIBILITY_MS}.get(what, 0)
    ack_type = {"done": AckType.DONE, "renew": AckType.RENEW}.get(what, AckType.RELEASE)
    assert harness.do(
        Acknowledge(
            QUEUE,
            (Acknowledgement(delivery_range.first, delivery_range.first, delivery_range.holder, ack_type, due_ms),),
        )
    ) == (None,)
    if what == "done":
        finished.add(delivery_range.first)


@pytest.mark.parametrize("ack_type", [AckType.UNDO, AckType.RELEASE])
def test_a_message_group_is_deliverable_again_when_all_its_messages_are_released(ack_type: AckType) -> None:
    harness = Queue("aa")
    harness.receive("ada")
    harness.say("ada", ack_type, 0, 1)
    assert harness.receive("bob") == [0, 1]
