"""The checker of queues finds every planted anomaly, and none in correct histories."""

import math
from dataclasses import replace

import pytest
from hypothesis import given
from hypothesis import strategies as st

from .checker import Outcome
from .queue_checker import DeadLetter, Delivery, Move, QueueHistory, Send, Settlement, Verdict, check

OK, FAIL, INFO = Outcome.OK, Outcome.FAIL, Outcome.INFO
HOLD_S = 10.0
LIMIT = 5


def sent(value: str, at_s: float = 0.0, outcome: Outcome = OK, group: str = "") -> Send:
    queue = "line" if group else "jobs"
    return Send(
        queue=queue,
        value=value,
        began_s=at_s,
        ended_s=at_s + 1,
        outcome=outcome,
        message_id=f"id-{value}" if outcome is OK else "",
        group=group,
    )


def got(value: str, at_s: float, count: int = 1, group: str = "", call: str = "", **other: object) -> Delivery:
    """The call takes a second."""
    key = f"{value}@{at_s:g}"
    made = Delivery(
        key=key,
        call=call or key,
        queue="line" if group else "jobs",
        value=value,
        began_s=at_s,
        ended_s=at_s + 1,
        count=count,
        hold_s=HOLD_S,
        message_id=f"id-{value}",
        group=group,
    )
    return replace(made, **other)


def said(
    delivery: Delivery, at_s: float, outcome: Outcome = OK, verdict: Verdict = Verdict.DELETE, hold_s: float = 0.0
) -> Settlement:
    ended_s = math.inf if outcome is INFO else at_s + 1
    return Settlement(
        key=delivery.key, verdict=verdict, began_s=at_s, ended_s=ended_s, outcome=outcome, hold_s=hold_s
    )


def dead(value: str, count: int = LIMIT) -> DeadLetter:
    return DeadLetter(queue="jobs", value=value, message_id=f"id-{value}", count=count, source="jobs")


def history(*parts: Send | Delivery | Settlement | DeadLetter | Move) -> QueueHistory:
    return QueueHistory(
        sends=[part for part in parts if isinstance(part, Send)],
        deliveries=[part for part in parts if isinstance(part, Delivery)],
        settlements=[part for part in parts if isinstance(part, Settlement)],
        dead=[part for part in parts if isinstance(part, DeadLetter)],
        moves=[part for part in parts if isinstance(part, Move)],
        max_receives={"jobs": LIMIT},
    )


def names(*parts: Send | Delivery | Settlement | DeadLetter | Move) -> set[str]:
    return {found.name for found in check(history(*parts))}


def test_a_message_that_is_received_and_deleted_is_as_it_should_be() -> None:
    first = got("a", 1)
    assert names(sent("a"), first, said(first, 3)) == set()


def test_a_message_that_comes_back_after_its_time_is_as_it_should_be() -> None:
    first, second = got("a", 1), got("a", 12, count=2)
    assert names(sent("a"), first, second, said(second, 14)) == set()


def test_an_unanswered_send_may_have_failed() -> None:
    assert names(sent("a", outcome=INFO)) == set()


def test_a_message_that_was_sent_and_never_came_is_lost() -> None:
    assert names(sent("a")) == {"lost"}


def test_a_message_that_came_and_was_never_finished_is_lost() -> None:
    assert names(sent("a", outcome=INFO), got("a", 1)) == {"lost"}


def test_a_message_whose_only_delete_was_refused_is_lost() -> None:
    first = got("a", 1)
    assert names(sent("a"), first, said(first, 3, FAIL)) == {"lost"}


def test_an_unanswered_delete_may_have_succeeded() -> None:
    first = got("a", 1)
    assert names(sent("a"), first, said(first, 3, INFO)) == set()


def test_a_delivered_message_that_was_not_sent_is_a_phantom() -> None:
    first = got("a", 1)
    assert names(first, said(first, 3)) == {"phantom"}


def test_a_message_under_two_ids_is_doubled() -> None:
    first, copy = got("a", 1), got("a", 1, message_id="another", key="copy", count=2)
    assert "doubled" in names(sent("a"), first, said(first, 3), copy, said(copy, 3))


def test_a_dead_letter_that_is_there_twice_is_doubled() -> None:
    assert names(sent("a"), dead("a"), dead("a")) == {"doubled"}


def test_a_message_that_comes_after_it_was_deleted_has_risen() -> None:
    first, second = got("a", 1), got("a", 30, count=2)
    assert "risen" in names(sent("a"), first, said(first, 3), second, said(second, 32))


def test_a_receive_that_began_before_the_delete_was_answered_proves_no_rising_by_its_times() -> None:
    first, second = got("a", 1), got("a", 3.5, count=2)
    found = names(sent("a"), first, said(first, 3, INFO), second, said(second, 6))
    assert "risen" not in found


def test_a_delete_with_an_expired_receipt_is_stolen() -> None:
    first, second = got("a", 1), got("a", 12, count=2)
    assert names(sent("a"), first, second, said(first, 14)) == {"stolen"}


def test_a_late_delete_of_what_another_one_has_deleted_is_no_theft() -> None:
    first, second = got("a", 1), got("a", 12, count=2)
    assert names(sent("a"), first, second, said(second, 14), said(first, 16)) == set()


def test_a_dead_letter_that_was_deleted_in_time_went_both_ways() -> None:
    last = got("a", 1, count=LIMIT)
    assert names(sent("a"), last, said(last, 3), dead("a")) == {"both-ways"}


def test_a_late_delete_of_what_has_died_meanwhile_proves_nothing() -> None:
    last = got("a", 1, count=LIMIT)
    assert names(sent("a"), last, said(last, 30), dead("a")) == set()


def test_a_message_that_two_have_at_once_is_in_two_hands() -> None:
    first, second = got("a", 1), got("a", 6, count=2)
    assert names(sent("a"), first, second, said(second, 8)) == {"two-holders"}


def test_a_released_message_may_be_delivered_to_another_worker() -> None:
    first, second = got("a", 1), got("a", 6, count=2)
    let_go = said(first, 3, OK, Verdict.CHANGE)
    assert names(sent("a"), first, let_go, second, said(second, 8)) == set()


@pytest.mark.parametrize("outcome", [FAIL, INFO])
def test_a_possibly_released_message_may_be_delivered_to_another_worker(outcome: Outcome) -> None:
    first, second = got("a", 1), got("a", 6, count=2)
    let_go = said(first, 3, outcome, Verdict.CHANGE)
    assert names(sent("a"), first, let_go, second, said(second, 8)) == set()


def test_an_extended_visibility_timeout_keeps_other_workers_away_for_longer() -> None:
    first, second = got("a", 1), got("a", 13, count=2)
    longer = said(first, 5, OK, Verdict.CHANGE, hold_s=20)
    assert names(sent("a"), first, longer, second, said(second, 15)) == {"two-holders"}


def test_a_count_that_comes_twice_is_miscounted() -> None:
    first, second = got("a", 1), got("a", 20, count=1)
    assert names(sent("a"), first, second, said(second, 22)) == {"miscounted"}


def test_a_count_that_goes_down_is_miscounted() -> None:
    first, second = got("a", 1, count=2), got("a", 20, count=1)
    assert "miscounted" in names(sent("a"), first, second, said(second, 22))


def test_an_answer_that_was_long_on_its_way_is_not_miscounted() -> None:
    first, second = got("a", 1, ended_s=50.0), got("a", 20, count=2)
    assert names(sent("a"), first, second, said(second, 22)) == set()


def test_counts_begin_again_when_dead_letters_are_moved_back() -> None:
    first, second = got("a", 1, count=LIMIT), got("a", 30, count=1)
    assert names(sent("a"), first, Move(began_s=20, ended_s=25), second, said(second, 32)) == set()


def test_a_dead_letter_that_was_delivered_too_seldom_had_a_short_life() -> None:
    assert names(sent("a"), dead("a", LIMIT - 1)) == {"short-life"}


def test_a_message_that_was_rejected_may_die_early() -> None:
    first = got("a", 1)
    assert names(sent("a"), first, said(first, 3, OK, Verdict.REJECT), dead("a", 1)) == set()


def test_a_dead_letter_says_where_it_comes_from() -> None:
    assert names(sent("a"), replace(dead("a"), source="elsewhere")) == {"short-life"}


# -- message groups


def test_a_group_that_is_worked_off_in_order_is_as_it_should_be() -> None:
    one, two = got("a", 1, group="g"), got("b", 5, group="g")
    assert names(sent("a", 0, group="g"), sent("b", 1, group="g"), one, said(one, 3), two, said(two, 7)) == set()


def test_several_of_a_group_may_come_together_in_order() -> None:
    one, two = got("a", 1, group="g", call="c"), got("b", 1, group="g", call="c")
    sends = sent("a", 0, group="g"), sent("b", 1, group="g")
    assert names(*sends, one, two, said(one, 3), said(two, 4)) == set()
    assert "out-of-order" in names(*sends, two, one, said(one, 3), said(two, 4))


def test_a_message_that_comes_before_the_one_ahead_is_finished_is_out_of_order() -> None:
    one, two = got("a", 30, group="g"), got("b", 1, group="g")
    found = names(sent("a", 0, group="g"), sent("b", 1, group="g"), two, said(two, 3), one, said(one, 32))
    assert found == {"out-of-order"}


def test_sequence_numbers_grow_within_a_group() -> None:
    one, two = got("a", 1, group="g", sequence="2"), got("b", 5, group="g", sequence="1")
    sends = sent("a", 0, group="g"), sent("b", 1, group="g")
    assert names(*sends, one, said(one, 3), two, said(two, 7)) == {"out-of-order"}


def test_a_group_is_in_one_pair_of_hands() -> None:
    one, two = got("a", 1, group="g", call="c"), got("b", 1, group="g", call="c")
    sends = sent("a", 0, group="g"), sent("b", 1, group="g")
    let_go = said(one, 3, OK, Verdict.CHANGE)
    early, late = got("a", 5, count=2, group="g"), got("a", 12, count=2, group="g")
    again = got("b", 20, count=2, group="g")
    assert names(*sends, one, two, let_go, early, said(early, 7), again, said(again, 22)) == {"split-group"}
    assert names(*sends, one, two, let_go, late, said(late, 14), again, said(again, 22)) == set()


@given(
    st.lists(st.tuples(st.floats(0.1, 5), st.floats(0.1, 3), st.booleans(), st.booleans()), min_size=1, max_size=8)
)
def test_a_queue_that_does_what_it_should_is_never_accused(lives: list[tuple[float, float, bool, bool]]) -> None:
    """Deliveries one after another, each at a moment within its call; answers may be lost, workers may let go."""
    parts: list[Send | Delivery | Settlement] = [sent("a")]
    now_s = free_s = 1.0
    for number, (before_s, after_s, lets_go, is_heard) in enumerate(lives, 1):
        decided_s = max(now_s + before_s, free_s)
        held = got("a", now_s, count=number, ended_s=decided_s + after_s, key=f"d{number}")
        parts.append(held)
        if lets_go:
            parts.append(said(held, held.ended_s, OK if is_heard else INFO, Verdict.CHANGE))
            now_s = free_s = held.ended_s + 0.5
        else:
            free_s = decided_s + HOLD_S
            now_s = free_s - before_s  # others ask before it is time, and get it when it is
    last = got("a", free_s, count=len(lives) + 1, key="last")
    assert names(*parts, last, said(last, last.ended_s)) == set()
