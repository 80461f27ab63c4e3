"""The roster of a classic group: the protocols of its members, and the one they choose."""

from hypothesis import given
from hypothesis import strategies as st

from penstock.groups.classic.members import Member, Protocols, Roster
from penstock.groups.records import MemberMetadata


def _member(member_id: str, names: tuple[str, ...] = ("range",), instance_id: str | None = None) -> Member:
    return Member(
        member_id=member_id,
        instance_id=instance_id,
        client_id="c",
        client_host="h",
        rebalance_timeout_ms=1000,
        session_timeout_ms=500,
        protocols=tuple((name, name.encode()) for name in names),
    )


NAMES = st.permutations(["range", "sticky", "own", "old"]).flatmap(
    lambda names: st.integers(1, 4).map(lambda count: tuple(names[:count]))
)


@given(st.lists(NAMES, min_size=1, max_size=8))
def test_the_protocol_that_is_chosen_is_known_to_all_and_liked_best_by_most(offers: list[tuple[str, ...]]) -> None:
    roster = Roster()
    for number, names in enumerate(offers):
        if not roster or roster.supports_any(names):
            roster.put(_member(str(number), names))
    chosen = roster.choose_protocol()
    shared = set.intersection(*({name for name, _ in member.protocols} for member in roster))
    likes = [next(name for name, _ in member.protocols if name in shared) for member in roster]
    assert chosen in shared
    assert all(likes.count(chosen) >= likes.count(name) for name in shared)


@given(st.lists(st.tuples(st.sampled_from("abcd"), NAMES, st.booleans()), max_size=30))
def test_a_roster_counts_protocols_as_if_it_looked_at_all_members(
    steps: list[tuple[str, tuple[str, ...], bool]],
) -> None:
    roster = Roster()
    for member_id, names, stays in steps:
        if stays:
            roster.put(_member(member_id, names))
        else:
            roster.remove(member_id)
        for name in ("range", "sticky", "own", "old"):
            known = all(name in dict(member.protocols) for member in roster)
            assert not roster or roster.supports_any([name]) == known


def test_a_static_member_that_is_replaced_leaves_no_trace() -> None:
    roster = Roster([_member("a-1", instance_id="a"), _member("b-1", instance_id="b")])
    roster.replace("a-1", _member("a-2", instance_id="a"))
    assert roster.by_instance == {"a": "a-2", "b": "b-1"}
    assert set(roster.ids) == {"a-2", "b-1"}
    roster.remove("a-2")
    assert roster.by_instance == {"b": "b-1"}


@given(metadata=st.binary(max_size=20), assignment=st.binary(max_size=20), instance_id=st.none() | st.just("a"))
def test_a_member_is_read_back_as_it_was_written(metadata: bytes, assignment: bytes, instance_id: str | None) -> None:
    protocols: Protocols = (("range", metadata),)
    member = Member(
        member_id="m",
        instance_id=instance_id,
        client_id="c",
        client_host="h",
        rebalance_timeout_ms=1000,
        session_timeout_ms=500,
        protocols=protocols,
        assignment=assignment,
    )
    assert Member.from_record(member.to_record("range", assignment), protocols) == member


def test_a_member_of_an_old_record_waits_as_long_as_its_session() -> None:
    record = MemberMetadata(
        member_id="m", client_id="c", client_host="h", session_timeout=500, subscription=b"", assignment=b""
    )
    assert Member.from_record(record, ()).rebalance_timeout_ms == 500
