"""Reconciliation of one member: from its current to its target assignment."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from penstock.foundation.codes import ErrorCode
from penstock.foundation.ids import TopicIdPartition
from penstock.groups.errors import FencedMemberEpoch
from penstock.groups.modern.members import CurrentAssignment, MemberState
from penstock.groups.modern.reconciliation import ReconciliationContext, reconcile
from tests.examples import examples

TOPIC, OTHER = b"T" * 16, b"O" * 16
STABLE, UNREVOKED, UNRELEASED, UNKNOWN = (
    MemberState.STABLE,
    MemberState.UNREVOKED_PARTITIONS,
    MemberState.UNRELEASED_PARTITIONS,
    MemberState.UNKNOWN,
)


def places(*numbers: int, topic: bytes = TOPIC) -> frozenset[TopicIdPartition]:
    return frozenset(TopicIdPartition(topic, number) for number in numbers)


def held(*numbers: int, since: int = 5, topic: bytes = TOPIC) -> dict[TopicIdPartition, int]:
    return dict.fromkeys(places(*numbers, topic=topic), since)


def member(
    state: MemberState = STABLE, epoch: int = 5, *assigned: int, revoking: tuple[int, ...] = ()
) -> CurrentAssignment[TopicIdPartition]:
    return CurrentAssignment(
        epoch=epoch,
        previous_epoch=epoch - 1,
        state=state,
        assigned=held(*assigned),
        revoking=held(*revoking),
    )


def course(
    epoch: int,
    *target: int,
    owned: frozenset[TopicIdPartition] | None = None,
    taken: tuple[int, ...] = (),
    changed: bool = False,
) -> ReconciliationContext[TopicIdPartition]:
    return ReconciliationContext(
        epoch=epoch,
        target=places(*target),
        is_free=lambda place: place.partition not in taken,
        owned=owned,
        is_unsubscribed=(lambda place: place.topic_id != TOPIC) if changed else None,
    )


def test_a_member_in_the_newest_epoch_stays_as_it_is() -> None:
    known = member(STABLE, 5, 0, 1)
    assert reconcile(known, course(5, 0, 1)) is known


@pytest.mark.parametrize("owned", [None, places(), places(0, 2)])
@pytest.mark.parametrize(("state", "revoking"), [(UNRELEASED, ()), (UNREVOKED, (3,))])
def test_a_member_in_the_epoch_of_the_target_keeps_what_it_has(
    state: MemberState, revoking: tuple[int, ...], owned: frozenset[TopicIdPartition] | None
) -> None:
    """The target of the next epoch may be partly written, and what the member says it owns may be out of date."""
    known = member(state, 5, 0, 1, revoking=revoking)
    moved = reconcile(known, course(5, 0, 2, owned=owned))
    assert moved.epoch == 5
    assert moved.assigned.keys() >= places(0, 1)


def test_a_member_in_the_epoch_of_the_target_gives_up_what_it_no_longer_subscribes_to() -> None:
    known = member(UNRELEASED, 5, 0)
    known = known._replace(assigned={**known.assigned, **held(0, topic=OTHER)})
    moved = reconcile(known, course(5, 0, 1, changed=True))
    assert (moved.state, moved.assigned, moved.revoking) == (UNREVOKED, held(0), held(0, topic=OTHER))


def test_a_member_that_lacks_free_partitions_gets_them_with_the_new_epoch() -> None:
    moved = reconcile(member(STABLE, 5, 0), course(6, 0, 1))
    assert (moved.epoch, moved.previous_epoch, moved.state) == (6, 5, STABLE)
    assert moved.assigned == {**held(0, since=5), **held(1, since=6)}


def test_a_member_that_has_what_it_should_only_changes_its_epoch() -> None:
    moved = reconcile(member(STABLE, 5, 0, 1), course(7, 0, 1))
    assert (moved.epoch, moved.state, moved.assigned) == (7, STABLE, held(0, 1))


def test_a_member_with_too_many_partitions_stays_in_its_epoch_until_it_has_revoked() -> None:
    waits = reconcile(member(STABLE, 5, 0, 1), course(6, 0, 2))
    assert (waits.epoch, waits.state) == (5, UNREVOKED)
    assert (waits.assigned, waits.revoking) == (held(0), held(1))
    assert reconcile(waits, course(6, 0, 2)) is waits
    assert reconcile(waits, course(6, 0, 2, owned=places(0, 1))) is waits
    done = reconcile(waits, course(6, 0, 2, owned=places(0)))
    assert (done.epoch, done.state, done.revoking) == (6, STABLE, {})
    assert done.assigned == {**held(0), **held(2, since=6)}


def test_a_request_of_the_previous_epoch_does_not_acknowledge_a_revocation() -> None:
    assert reconcile(member(STABLE, 5, 0, 1), course(6, 0)).previous_epoch == 5


def test_a_member_that_says_it_does_not_own_them_need_not_be_asked_to_give_them_up() -> None:
    moved = reconcile(member(STABLE, 5, 0, 1), course(6, 0, owned=places(0)))
    assert (moved.epoch, moved.state, moved.assigned, moved.revoking) == (6, STABLE, held(0), {})


def test_a_member_waits_for_partitions_that_others_hold_in_the_newest_epoch() -> None:
    waits = reconcile(member(STABLE, 5, 0), course(6, 0, 1, 2, taken=(1, 2)))
    assert (waits.epoch, waits.state, waits.assigned) == (6, UNRELEASED, held(0))
    some = reconcile(waits, course(6, 0, 1, 2, taken=(2,)))
    assert (some.epoch, some.state) == (6, UNRELEASED)
    assert some.assigned == {**held(0), **held(1, since=6)}
    every = reconcile(some, course(6, 0, 1, 2))
    assert (every.epoch, every.state) == (6, STABLE)
    assert set(every.assigned) == places(0, 1, 2)


def test_a_member_that_waits_in_vain_is_not_written_again() -> None:
    waits = reconcile(member(STABLE, 5, 0), course(6, 0, 1, taken=(1,)))
    assert reconcile(waits, course(6, 0, 1, taken=(1,))) is waits


def test_a_member_that_waits_follows_a_newer_target() -> None:
    waits = reconcile(member(STABLE, 5, 0), course(6, 0, 1, taken=(1,)))
    revokes = reconcile(waits, course(7, 2, taken=(1,)))
    assert (revokes.epoch, revokes.state, revokes.revoking) == (6, UNREVOKED, held(0))


def test_a_member_that_has_revoked_may_have_to_revoke_more() -> None:
    waits = reconcile(member(STABLE, 5, 0, 1, 2), course(6, 0, 1))
    more = reconcile(waits, course(8, 0, owned=places(0, 1)))
    assert (more.epoch, more.state) == (5, UNREVOKED)
    assert (more.assigned, more.revoking) == (held(0), held(1))


def test_a_partition_that_is_revoked_and_assigned_again_starts_anew() -> None:
    waits = reconcile(member(STABLE, 5, 0, 1), course(6, 0))
    again = reconcile(waits, course(7, 0, 1, owned=places(0)))
    assert again.assigned == {**held(0), **held(1, since=7)}


@pytest.mark.parametrize("state", [STABLE, UNREVOKED])
def test_a_new_subscription_takes_away_at_once_what_it_no_longer_covers(state: MemberState) -> None:
    known = member(state, 5, 0)._replace(assigned={**held(0), **held(0, topic=OTHER)})
    if state is UNREVOKED:
        known = known._replace(revoking=held(3))
    context = course(5, 0, changed=True)
    narrowed = reconcile(known, context)
    assert (narrowed.epoch, narrowed.state, narrowed.assigned) == (5, UNREVOKED, held(0))
    assert narrowed.revoking == {**known.revoking, **held(0, topic=OTHER)}


def test_a_new_subscription_that_covers_all_changes_nothing() -> None:
    known = member(STABLE, 5, 0)
    assert reconcile(known, course(5, 0, changed=True)) is known
    revokes = member(UNREVOKED, 5, 0, revoking=(1,))
    assert reconcile(revokes, course(6, 0, changed=True, owned=places(0, 1))) is revokes


def test_unsubscribed_partitions_that_are_not_owned_need_not_be_revoked() -> None:
    known = member(STABLE, 5, 0)._replace(assigned={**held(0), **held(0, topic=OTHER)})
    narrowed = reconcile(known, course(5, 0, changed=True, owned=places(0)))
    assert (narrowed.epoch, narrowed.state, narrowed.assigned, narrowed.revoking) == (5, STABLE, held(0), {})


@pytest.mark.parametrize("owned", [None, places(0)])
def test_a_member_in_an_unknown_state_is_fenced_unless_it_starts_over(
    owned: frozenset[TopicIdPartition] | None,
) -> None:
    with pytest.raises(FencedMemberEpoch, match="join again") as refused:
        reconcile(member(UNKNOWN, 5, 0), course(6, 0, 1, owned=owned))
    assert refused.value.code == ErrorCode.FENCED_MEMBER_EPOCH


def test_a_member_in_an_unknown_state_that_owns_nothing_goes_on() -> None:
    moved = reconcile(member(UNKNOWN, 5, 0), course(6, 0, 1, owned=places()))
    assert (moved.epoch, moved.state, set(moved.assigned)) == (6, STABLE, places(0, 1))


numbers = st.frozensets(st.integers(0, 7))


@given(
    state=st.sampled_from([STABLE, UNREVOKED, UNRELEASED]),
    assigned=numbers,
    revoking=numbers,
    target=numbers,
    owned=st.none() | numbers,
    taken=numbers,
    epoch=st.integers(5, 7),
)
@examples(deadline=None)
def test_no_step_takes_partitions_of_others_or_drops_owned_ones(
    state: MemberState,
    assigned: frozenset[int],
    revoking: frozenset[int],
    target: frozenset[int],
    owned: frozenset[int] | None,
    taken: frozenset[int],
    epoch: int,
) -> None:
    revoking = revoking - assigned if state is UNREVOKED else frozenset()
    mine = assigned | revoking
    said = None if owned is None else places(*owned)
    known = member(state, 5, *assigned, revoking=tuple(revoking))
    moved = reconcile(known, course(epoch, *target, owned=said, taken=tuple(taken - mine)))
    has = {place.partition for place in moved.assigned}
    may_own = has | {place.partition for place in moved.revoking}
    assert not has & (taken - mine), "OneOwnerPerPartition: it was given what another holds"
    if owned is None or owned & mine:
        kept = mine if owned is None else owned & mine
        assert kept <= may_own, "OneOwnerPerPartition: what it may own is free for others"
    assert moved.epoch in (5, epoch)
    if moved.epoch != known.epoch or moved.state is not UNREVOKED:
        assert not moved.revoking, "it went on before it had let go"
    if moved.state is not UNREVOKED and moved is not known:
        assert has <= (target if epoch != known.epoch else target | assigned)


@given(assigned=numbers, target=numbers)
@examples(deadline=None)
def test_a_member_that_follows_its_assignment_reaches_its_target_in_two_steps(
    assigned: frozenset[int], target: frozenset[int]
) -> None:
    revoking = reconcile(member(STABLE, 5, *assigned), course(6, *target))
    done = reconcile(revoking, course(6, *target, owned=frozenset(revoking.assigned)))
    assert (done.epoch, done.state) == (6, STABLE)
    assert set(done.assigned) == places(*target)
