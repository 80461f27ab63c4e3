"""Subscriptions by regular expression, and topics that are created, grow and are deleted."""

import pytest

from penstock.cluster.image import Topic
from penstock.foundation.codes import ErrorCode
from penstock.foundation.errors import InvalidRegularExpression
from penstock.foundation.patterns import PATTERN_CHARS_MAX
from penstock.groups import records
from penstock.groups.consumer.subscriptions import Patterns, TopicPattern, metadata_hash
from penstock.wire.state import kind_of
from tests.simulation.group_machines import image_of, targets_in_pieces, topic_of

from .consumer_harness import ConsumerHarness


def _topics(*names: str) -> dict[str, Topic]:
    return {name: topic_of(name, 1) for name in names}


# -- expressions


@pytest.mark.parametrize(
    ("text", "found"),
    [
        ("orders", {"orders"}),
        ("orders.*", {"orders", "orders-eu"}),
        ("^orders-.*$", {"orders-eu"}),
        ("orders|bills", {"orders", "bills"}),
        ("(?i)ORDERS", {"orders"}),
        (r"\Qorders\E-[[:alpha:]]{2}", {"orders-eu"}),
        (r"\p{L}+", {"orders", "bills"}),
        ("rder", set()),
        ("", set()),
    ],
)
def test_an_expression_matches_whole_names_in_the_syntax_of_re2(text: str, found: set[str]) -> None:
    assert TopicPattern(text).matching(_topics("orders", "orders-eu", "bills")) == found


def test_internal_topics_are_matched_by_their_very_name_only() -> None:
    topics = _topics("__consumer_offsets", "__transaction_state", "__mine")
    assert TopicPattern(".*").matching(topics) == {"__mine"}
    assert TopicPattern("__consumer_.*").matching(topics) == set()
    assert TopicPattern("__consumer_offsets").matching(topics) == {"__consumer_offsets"}


@pytest.mark.parametrize("text", ["[", "(a", "a{1001}", r"(a)\1", "(?=a)", "*", "\ud800", "a(?!b)"])
def test_expressions_that_re2_refuses_are_refused(text: str) -> None:
    with pytest.raises(InvalidRegularExpression, match="RE2") as refused:
        TopicPattern(text)
    assert refused.value.code == ErrorCode.INVALID_REGULAR_EXPRESSION


def test_an_expression_that_is_too_long_is_refused() -> None:
    assert TopicPattern("a" * PATTERN_CHARS_MAX)
    with pytest.raises(InvalidRegularExpression, match="4097 characters; 4096 are allowed"):
        TopicPattern("a" * (PATTERN_CHARS_MAX + 1))


@pytest.mark.parametrize("text", ["(.?){900}", ".{900}"])
def test_an_expression_that_is_short_and_large_is_refused(text: str) -> None:
    with pytest.raises(InvalidRegularExpression, match="steps once compiled"):
        TopicPattern(text)


@pytest.mark.parametrize("text", ["(a+)+b", "(a|a)*b", "(a|aa)+b", "(.*)*x", "a*a*a*a*a*a*a*a*b", "(a?){200}b"])
def test_no_expression_takes_long(text: str) -> None:
    topics = _topics(*("a" * length for length in range(150, 250)))
    assert TopicPattern(text).matching(topics) == set()  # with backtracking, one of these names alone takes ages


def test_names_that_are_known_are_not_matched_again_and_those_that_are_gone_are_forgotten() -> None:
    pattern = TopicPattern("a.*")
    assert pattern.matching(_topics("a1", "b1")) == {"a1"}
    assert pattern.matching(_topics("a1", "a2", "b1")) == {"a1", "a2"}
    assert pattern.matching(_topics("b1")) == set()


def test_an_expression_in_the_log_that_cannot_be_read_matches_nothing() -> None:
    patterns = Patterns()
    assert patterns.resolve(["(", "a.*"], _topics("a1")) == {"(": frozenset(), "a.*": {"a1"}}
    with pytest.raises(InvalidRegularExpression):
        patterns.check("(")


# -- members that subscribe by expression


def test_a_member_may_subscribe_by_expression() -> None:
    group = ConsumerHarness({"orders-eu": 1, "orders-us": 2, "bills": 1})
    answer = group.join("m1", subscribed_topic_regex="orders-.*")
    assert group.named(answer) == {"orders-eu": [0], "orders-us": [0, 1]}
    assert group.machine.group.subscribes_to("orders-eu")
    assert not group.machine.group.subscribes_to("bills")


def test_names_and_an_expression_together_are_both_subscribed_to() -> None:
    group = ConsumerHarness({"orders-eu": 1, "bills": 1})
    assert group.named(group.join("m1", "bills", subscribed_topic_regex="orders-.*")) == {
        "orders-eu": [0],
        "bills": [0],
    }


def test_a_bad_expression_is_refused_when_joining_and_later() -> None:
    group = ConsumerHarness()
    error = group.refused("m1", 0, {}, **group.full(subscribed_topic_regex="(["))
    assert isinstance(error, InvalidRegularExpression)
    group.join("m1", "a")
    assert isinstance(group.refused("m1", 1, subscribed_topic_regex="(["), InvalidRegularExpression)


def test_an_expression_is_resolved_again_when_topics_come_and_go() -> None:
    group = ConsumerHarness({"orders-eu": 1})
    group.join("m1", subscribed_topic_regex="orders-.*")
    group.set_topics(**{"orders-us": 2})
    assert group.machine.group.state_name == "Assigning"
    answer = group.beat("m1", 1)
    assert (answer.member_epoch, group.named(answer)) == (2, {"orders-eu": [0], "orders-us": [0, 1]})
    group.set_topics(bills=1)
    assert group.beat("m1", 2).member_epoch == 2
    group.set_topics(**{"orders-eu": None})
    assert group.named(group.beat("m1", 2)) == {"orders-us": [0, 1]}
    assert group.machine.group.state.regexes == {"orders-.*": {"orders-us"}}


def test_an_expression_can_be_exchanged_and_given_up() -> None:
    group = ConsumerHarness({"orders": 1, "bills": 1})
    group.join("m1", subscribed_topic_regex="orders")
    answer = group.beat("m1", 1, subscribed_topic_regex="bills")
    assert group.named(answer) == {}
    answer = group.beat("m1", 1, {})
    assert (answer.member_epoch, group.named(answer)) == (2, {"bills": [0]})
    assert group.machine.group.state.regexes == {"bills": {"bills"}}
    answer = group.beat("m1", 2, subscribed_topic_regex="")
    assert group.named(answer) == {}
    assert group.machine.group.state.regexes == {}


def test_a_resolved_expression_is_kept_while_a_member_uses_it() -> None:
    group = ConsumerHarness({"orders": 2})
    group.join("m1", subscribed_topic_regex="orders")
    group.join("m2", subscribed_topic_regex="orders")
    kinds = [kind_of(record.key) for record in group.machine.log]
    assert kinds.count(records.CONSUMER_GROUP_REGULAR_EXPRESSION) == 1
    group.beat("m1", -1)
    assert group.machine.group.state.regexes == {"orders": {"orders"}}
    group.beat("m2", -1)
    assert group.machine.group.state.regexes == {}
    assert not group.machine.group.subscribes_to("orders")


def test_members_with_names_and_members_with_expressions_share_topics() -> None:
    group = ConsumerHarness({"orders": 4})
    group.join("m1", "orders")
    group.join("m2", subscribed_topic_regex="ord.*")
    group.settle("m1", "m2")
    assert len(group.assigned("m1")["orders"]) == len(group.assigned("m2")["orders"]) == 2


# -- topics


def test_a_topic_that_grows_gives_members_more() -> None:
    group = ConsumerHarness({"a": 1})
    group.join("m1", "a")
    group.set_topics(a=3)
    answer = group.beat("m1", 1)
    assert (answer.member_epoch, group.named(answer)) == (2, {"a": [0, 1, 2]})


def test_a_topic_that_is_deleted_and_made_again_is_another_one() -> None:
    group = ConsumerHarness({"a": 2})
    group.join("m1", "a")
    (old,) = group.machine.image.topics
    group.set_topics(a=None)
    group.set_topics(a=2)
    response = group.beat("m1", 1)
    assert (response.member_epoch, response.assignment.topic_partitions) == (1, [])
    done = group.beat("m1", 1, {})
    assert done.member_epoch == group.described.group_epoch
    (entry,) = done.assignment.topic_partitions
    assert entry.topic_id != old


def test_topics_without_subscribers_change_nothing() -> None:
    group = ConsumerHarness()
    group.join("m1", "a")
    written = len(group.machine.log)
    group.set_topics(c=3, b=None)
    group.beat("m1", 1)
    assert len(group.machine.log) == written


def test_an_empty_group_does_not_care_about_topics() -> None:
    group = ConsumerHarness()
    group.set_topics(c=1)
    assert group.machine.log == []


def test_a_change_of_topics_that_could_not_be_persisted_is_seen_at_the_next_heartbeat() -> None:
    group = ConsumerHarness({"a": 1})
    group.join("m1", "a")
    group.machine.can_persist = False
    group.set_topics(a=2)
    assert group.described.group_epoch == 1
    group.machine.can_persist = True
    assert group.named(group.beat("m1", 1)) == {"a": [0, 1]}


def test_a_change_of_topics_during_a_restart_is_seen_afterwards() -> None:
    group = ConsumerHarness({"a": 1})
    group.join("m1", "a")
    group.machine.image = image_of(topic_of("a", 2))
    group.machine.restart(group.now_ms)
    assert group.named(group.beat("m1", 1)) == {"a": [0, 1]}


def test_the_hash_changes_with_the_topics_and_with_nothing_else() -> None:
    base = image_of(topic_of("a", 2), topic_of("b", 1), topic_of("c", 1))
    plain = metadata_hash(["a", "b"], base)
    assert plain == metadata_hash(["b", "a", "not there"], base)
    assert plain == metadata_hash(["a", "b"], image_of(topic_of("a", 2), topic_of("b", 1), revision=9))
    others = {
        metadata_hash(["a"], base),
        metadata_hash(["a", "b", "c"], base),
        metadata_hash(["a", "b"], image_of(topic_of("a", 3), topic_of("b", 1))),
        metadata_hash(["a", "b"], image_of(topic_of("a", 2), topic_of("b", 1, incarnation=1))),
        metadata_hash([], base),
    }
    assert len(others | {plain}) == 6
    assert metadata_hash([], base) == metadata_hash(["not there"], base) == 0
    assert all(-(2**63) <= value < 2**63 for value in others)


def test_a_target_from_before_the_subscription_gives_a_member_nothing_that_it_no_longer_wants() -> None:
    group = ConsumerHarness()
    with targets_in_pieces(True):
        group.join("m", "a")
        for _ in range(20):
            group.machine.wake(group.now_ms)
            group.now_ms += 1
        group.settle("m")
        assert group.assigned("m") == {"a": [0, 1, 2, 3]}
        epoch = group.beat("m", 2, {"a": [0, 1, 2, 3]}, subscribed_topic_names=["b"]).member_epoch
        group.beat("m", epoch, {})  # it has given up `a`; the next target is not there yet
        assert group.assigned("m") == {}
