"""The checker finds each anomaly in a history that has it, and none in others."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from .checker import Message, Op, Outcome, check, count

KEY = "orders-0"


def at(offset: int | None, value: str, key: str = KEY) -> Message:
    return Message(key=key, value=value, offset=offset)


def sent(*messages: Message, by: str = "writer", outcome: Outcome = Outcome.OK) -> Op:
    return Op(process=by, sent=messages, outcome=outcome)


def polled(*messages: Message, by: str = "reader") -> Op:
    return Op(process=by, polled=messages, audience=by)


def names(*history: Op) -> dict[str, int]:
    return dict(count(check(history)))


def test_a_history_in_which_everything_is_as_it_should_be_has_no_anomaly() -> None:
    assert names(sent(at(0, "a")), sent(at(1, "b")), polled(at(0, "a")), polled(at(1, "b"))) == {}


def test_two_values_at_one_offset_are_inconsistent() -> None:
    history = [sent(at(0, "a")), polled(at(0, "a")), polled(at(0, "b"), by="other"), polled(at(1, "a"), by="third")]
    assert names(*history)["inconsistent-offsets"] == 1


def test_a_record_that_differs_from_the_acknowledged_one_at_its_offset_is_inconsistent() -> None:
    found = check([sent(at(0, "a")), polled(at(0, "b"))])
    assert [one.what for one in found if one.name == "inconsistent-offsets"] == ["offset 0: ['a', 'b']"]


def test_a_value_at_two_offsets_is_a_duplicate() -> None:
    assert names(sent(at(0, "a")), polled(at(0, "a"), at(1, "a"))) == {"duplicate": 1}


def test_a_value_that_was_acknowledged_at_another_offset_than_it_is_read_from_is_a_duplicate() -> None:
    assert names(sent(at(0, "a")), polled(at(3, "a"))) == {"duplicate": 1}


def test_an_acknowledged_value_is_lost_if_only_a_later_one_was_read() -> None:
    history = [sent(at(0, "a")), sent(at(1, "b")), polled(at(1, "b"))]
    assert names(*history) == {"lost-write": 1, "unseen": 1}


def test_an_unread_acknowledged_value_at_the_end_is_unseen_but_not_lost() -> None:
    assert names(sent(at(0, "a")), sent(at(1, "b")), polled(at(0, "a"))) == {"unseen": 1}


def test_a_value_that_one_of_two_readers_never_polls_is_unseen() -> None:
    history = [sent(at(0, "a")), sent(at(1, "b")), polled(at(0, "a"), at(1, "b")), polled(at(0, "a"), by="other")]
    found = check(history)
    assert [(one.name, one.what) for one in found] == [("unseen", "b at offset 1 by other")]


def test_members_of_a_group_poll_for_each_other() -> None:
    one = Op(process="one", audience="group", polled=(at(0, "a"),))
    two = Op(process="two", audience="group", polled=(at(0, "x", "orders-1"),))
    assert names(sent(at(0, "a")), sent(at(0, "x", "orders-1")), one, two) == {}


def test_a_value_of_an_aborted_transaction_that_is_read_is_g1a() -> None:
    assert names(sent(at(0, "a"), outcome=Outcome.FAIL), polled(at(0, "a"))) == {"G1a": 1}


def test_an_unread_aborted_transaction_is_no_anomaly() -> None:
    assert names(sent(at(0, "a"), outcome=Outcome.FAIL), sent(at(2, "b")), polled(at(2, "b"))) == {}


def test_a_write_with_an_unknown_outcome_may_be_read_or_not() -> None:
    unknown = sent(at(None, "a"), at(None, "b"), outcome=Outcome.INFO)
    assert names(unknown, polled(at(0, "a"), at(1, "b"))) == {}
    assert names(unknown, sent(at(0, "c")), polled(at(0, "c"))) == {}


def test_a_transaction_of_which_only_a_part_is_read_has_lost_the_rest() -> None:
    unknown = sent(at(0, "a"), at(1, "b"), outcome=Outcome.INFO)
    assert names(unknown, sent(at(3, "c")), polled(at(1, "b"), at(3, "c"))) == {"lost-write": 1, "unseen": 1}


def test_a_reader_that_goes_past_a_value_has_skipped_it() -> None:
    history = [polled(at(0, "a"), at(1, "b"), at(2, "c"), by="other"), polled(at(0, "a")), polled(at(2, "c"))]
    assert names(*history) == {"poll-skip": 1}


def test_a_reader_that_goes_past_a_value_within_one_poll_has_skipped_it() -> None:
    history = [sent(at(1, "b")), polled(at(0, "a"), at(2, "c"))]
    assert names(*history)["poll-skip"] == 1


def test_offsets_at_which_there_is_nothing_are_not_skipped() -> None:
    assert names(polled(at(0, "a"), at(5, "b"))) == {}


@pytest.mark.parametrize("offset", [0, 1])
def test_a_reader_that_goes_back_or_stays_is_nonmonotonic(offset: int) -> None:
    values = ["a", "b"]
    history = [polled(at(0, "a"), at(1, "b")), polled(at(offset, values[offset]))]
    assert names(*history) == {"nonmonotonic-poll": 1}


def test_a_reader_that_was_assigned_partitions_anew_may_go_back() -> None:
    again = Op(process="reader", assigned=True)
    assert names(polled(at(0, "a"), at(1, "b")), again, polled(at(0, "a"), at(1, "b"))) == {}


def test_partitions_have_offsets_of_their_own() -> None:
    assert names(polled(at(5, "a"), at(0, "x", "orders-1"), at(6, "b"))) == {}


def test_a_process_whose_later_message_stands_before_its_earlier_one_is_nonmonotonic() -> None:
    history = [sent(at(1, "a")), sent(at(0, "b")), polled(at(0, "b"), at(1, "a"))]
    assert names(*history) == {"nonmonotonic-send": 1}


def test_two_processes_may_send_in_any_order() -> None:
    history = [sent(at(1, "a")), sent(at(0, "b"), by="other"), polled(at(0, "b"), at(1, "a"))]
    assert names(*history) == {}


def test_of_volatile_keys_messages_may_be_lost_but_offsets_may_not_be_given_twice() -> None:
    lost = [sent(at(0, "a")), sent(at(1, "b")), polled(at(1, "b"))]
    assert check(lost, volatile={KEY}) == []
    reused = [polled(at(0, "a")), polled(at(0, "b"), by="other")]
    assert count(check(reused, volatile={KEY})) == {"inconsistent-offsets": 1}


messages = st.builds(
    Message, key=st.sampled_from(["a-0", "a-1"]), value=st.text(max_size=5), offset=st.none() | st.integers(0, 2**63)
)
ops = st.builds(
    Op,
    process=st.text(max_size=5),
    outcome=st.sampled_from(Outcome),
    sent=st.lists(messages, max_size=3).map(tuple),
    polled=st.lists(messages, max_size=3).map(tuple),
    assigned=st.booleans(),
    audience=st.text(max_size=5),
)


@given(ops)
def test_an_op_that_is_written_down_is_read_back_as_it_was(op: Op) -> None:
    assert Op.load(op.dump()) == op


@given(st.data())
def test_readers_of_one_log_from_its_beginning_to_its_end_show_no_anomaly(data: st.DataObject) -> None:
    steps = data.draw(st.lists(st.integers(1, 3), max_size=30))
    offsets = [sum(steps[: number + 1]) for number in range(len(steps))]
    log = [at(offset, f"v{offset}") for offset in offsets]
    history = [sent(message, by=data.draw(st.sampled_from(["one", "two"]))) for message in log]
    for reader in ("r1", "r2"):
        rest = log
        while rest:
            size = data.draw(st.integers(1, len(rest)))
            history.append(polled(*rest[:size], by=reader))
            rest = rest[size:]
    assert check(history) == []


@given(st.data())
def test_a_log_that_lost_any_of_its_messages_is_found_out(data: st.DataObject) -> None:
    size = data.draw(st.integers(2, 30))
    lost = data.draw(st.integers(0, size - 2))
    log = [at(offset, f"v{offset}") for offset in range(size)]
    history = [*map(sent, log), polled(*(message for message in log if message.offset != lost))]
    assert "lost-write" in names(*history)
