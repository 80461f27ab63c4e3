"""Targets of large groups are computed in pieces while members go on; subscriptions are bounded."""

from collections.abc import Iterator
from random import Random

import pytest

from penstock.foundation.codes import ErrorCode
from penstock.groups.consumer import group as consumer_group
from penstock.groups.consumer.target import is_large
from tests.simulation.group_machines import targets_in_pieces
from tests.unit.groups.consumer_harness import ConsumerHarness
from tests.unit.groups.share_harness import ShareHarness

SHORT_INTERVAL_MS = 200
PIECES_MAX = 1000


@pytest.fixture
def pieces() -> Iterator[None]:
    with targets_in_pieces(True):
        yield


def work(group: ConsumerHarness) -> int:
    """Let time pass until the target is that of the group's epoch; how many pieces that took."""
    for count in range(PIECES_MAX):
        if group.machine.group.state.epoch == group.machine.group.state.target_epoch:
            return count
        group.pass_time(1)
    raise AssertionError("the target is not finished")


@pytest.mark.usefixtures("pieces")
def test_a_large_group_answers_first_and_assigns_soon() -> None:
    group = ConsumerHarness()
    joined = group.join("m1", "a", "b")
    assert (joined.member_epoch, group.named(joined), joined.heartbeat_interval_ms) == (1, {}, SHORT_INTERVAL_MS)
    assert work(group) > 1
    response = group.beat("m1", 1)
    assert group.named(response) == {"a": [0, 1, 2, 3], "b": [0, 1]}
    assert response.member_epoch == 2
    assert response.heartbeat_interval_ms > SHORT_INTERVAL_MS


@pytest.mark.usefixtures("pieces")
def test_a_large_share_group_answers_first_and_assigns_soon() -> None:
    world = ShareHarness({"a": 3, "b": 1})
    joined = world.join("m1", "a", "b")
    assert (joined.member_epoch, world.assignment(joined), joined.heartbeat_interval_ms) == (1, {}, SHORT_INTERVAL_MS)
    for _ in range(PIECES_MAX):
        world.advance(1)
    response = world.beat("m1", 1)
    assert (response.member_epoch, world.assignment(response)) == (2, {"a": [0, 1, 2], "b": [0]})
    assert response.heartbeat_interval_ms > SHORT_INTERVAL_MS


@pytest.mark.usefixtures("pieces")
def test_members_keep_what_they_have_until_there_is_a_new_target() -> None:
    group = ConsumerHarness()
    group.join("m1", "a")
    work(group)
    group.settle("m1")
    joined = group.join("m2", "a")
    assert group.named(joined) == {}
    kept = group.beat("m1", group.member("m1").member_epoch, {"a": [0, 1, 2, 3]})
    assert kept.assignment is None
    work(group)
    group.settle("m1", "m2")
    assert sorted(group.assigned("m1")["a"] + group.assigned("m2")["a"]) == [0, 1, 2, 3]
    assert len(group.assigned("m1")["a"]) == len(group.assigned("m2")["a"]) == 2


@pytest.mark.usefixtures("pieces")
def test_repeated_joins_do_not_keep_a_target_from_being_finished() -> None:
    group = ConsumerHarness()
    group.join("m1", "a", "b")
    for _ in range(100):
        group.join("restless", "a")
        group.pass_time(1)
        group.beat("restless", -1)
        group.pass_time(1)
    assert group.machine.group.state.target_epoch > 1
    assert group.machine.group.state.epoch > group.machine.group.state.target_epoch


@pytest.mark.usefixtures("pieces")
def test_an_outdated_target_computation_is_abandoned() -> None:
    group = ConsumerHarness()
    group.join("m1", "a")
    group.pass_time(1)
    group.beat("m1", -1)
    emptied = group.machine.group.state.target_epoch
    for _ in range(PIECES_MAX):
        group.pass_time(1)
    assert group.machine.group.state.target_epoch == emptied
    assert group.machine.group.state.targets == {}


@pytest.mark.parametrize("seed", range(10))
def test_a_target_in_pieces_is_the_one_that_is_worked_out_at_once(seed: int) -> None:
    def settled(in_pieces: bool) -> list[tuple[str, object]]:
        rng = Random(seed)
        with targets_in_pieces(in_pieces):
            group = ConsumerHarness({name: rng.randint(1, 9) for name in "abcde"})
            for number in range(rng.randint(2, 9)):
                group.join(f"m{number}", *rng.sample("abcde", rng.randint(1, 4)))
                work(group)
            return sorted(group.machine.group.state.targets.items())

    assert settled(True) == settled(False), f"seed {seed}"


def test_a_group_is_large_by_its_members_its_topics_and_their_partitions() -> None:
    alike = ConsumerHarness({"a": 5000})
    for number in range(3):
        alike.join(f"m{number}", "a")
    assert not is_large(alike.machine.group.state, alike.machine.image)
    various = ConsumerHarness({"a": 2500, "b": 10})
    various.join("m1", "a")
    various.join("m2", "a", "b")
    assert is_large(various.machine.group.state, various.machine.image)


def test_a_group_has_so_many_regular_expressions(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(consumer_group, "REGEXES_MAX", 2)
    group = ConsumerHarness()
    for number, text in enumerate(("a", "b", "a")):
        group.join(f"m{number}", subscribed_topic_regex=text)
    refused = group.refused("m3", 0, {}, **group.full(subscribed_topic_regex="a|b"))
    assert refused.code == ErrorCode.INVALID_REGULAR_EXPRESSION
    group.beat("m0", -1)
    group.beat("m2", -1)
    group.join("m3", subscribed_topic_regex="a|b")
    group.beat("m3", group.member("m3").member_epoch, subscribed_topic_regex="a.b")
    refused = group.refused("m4", 0, {}, **group.full(subscribed_topic_regex="c"))
    assert refused.code == ErrorCode.INVALID_REGULAR_EXPRESSION


def test_members_subscribe_to_so_many_topics_by_name_all_together(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(consumer_group, "NAMES_MAX", 3)
    group = ConsumerHarness()
    group.join("m1", "a", "b")
    group.join("m2", "a")
    refused = group.refused("m3", 0, {}, **group.full("a"))
    assert refused.code == ErrorCode.GROUP_MAX_SIZE_REACHED
    group.beat("m1", group.member("m1").member_epoch, subscribed_topic_names=["c"])
    group.beat("m1", group.member("m1").member_epoch, subscribed_topic_names=["a", "c"])
    group.beat("m2", -1)
    group.join("m3", "a")
