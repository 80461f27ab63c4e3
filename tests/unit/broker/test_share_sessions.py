"""Share sessions: their partitions, and what happens when their connection is lost."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from penstock.broker.share.sessions import (
    SESSION_PARTITIONS_MAX,
    InvalidShareSessionEpoch,
    SessionKey,
    ShareSession,
    ShareSessionLimitReached,
    ShareSessionNotFound,
    ShareSessions,
)
from penstock.foundation.errors import InvalidRequest

TOPIC = b"t" * 16
M1, M2 = SessionKey("g", "m1"), SessionKey("g", "m2")


def _ignore(session: ShareSession) -> None:
    """Does nothing when a session ends."""


def _place(number: int) -> tuple[bytes, int]:
    return TOPIC, number


def test_a_session_goes_on_from_epoch_to_epoch() -> None:
    sessions = ShareSessions()
    opened = sessions.open(M1, "peer", [_place(0)], _ignore)
    assert sessions.resume(M1, 1, [_place(1)]) is opened
    assert sessions.resume(M1, 2, [_place(2)], [_place(0)]).partitions.keys() == {_place(1), _place(2)}
    with pytest.raises(InvalidShareSessionEpoch):
        sessions.resume(M1, 2)
    assert sessions.resume(M1, 3) is opened


def test_epochs_begin_again_at_one() -> None:
    sessions = ShareSessions()
    opened = sessions.open(M1, "peer", [], _ignore)
    opened.epoch = 2**31 - 1
    sessions.resume(M1, 2**31 - 1)
    assert opened.epoch == 1


def test_a_new_session_replaces_the_one_before() -> None:
    sessions = ShareSessions()
    sessions.open(M1, "peer", [_place(0)], _ignore)
    sessions.resume(M1, 1)
    sessions.open(M1, "other peer", [_place(5)], _ignore)
    assert len(sessions) == 1
    assert sessions.resume(M1, 1).partitions.keys() == {_place(5)}
    sessions.hang_up("peer")
    assert len(sessions) == 1, "it is no longer of that connection"


def test_a_missing_session_raises() -> None:
    sessions = ShareSessions()
    with pytest.raises(ShareSessionNotFound):
        sessions.resume(M1, 1)
    with pytest.raises(ShareSessionNotFound):
        sessions.find(M1)
    assert sessions.close(M1) is None


def test_there_is_a_limit_of_sessions_and_members_keep_theirs() -> None:
    sessions = ShareSessions()
    sessions.limit = 1
    sessions.open(M1, "peer", [], _ignore)
    with pytest.raises(ShareSessionLimitReached):
        sessions.open(M2, "peer", [], _ignore)
    sessions.open(M1, "peer", [], _ignore)
    sessions.close(M1)
    sessions.open(M2, "peer", [], _ignore)


def test_a_session_has_only_so_many_partitions() -> None:
    sessions = ShareSessions()
    sessions.open(M1, "peer", map(_place, range(SESSION_PARTITIONS_MAX)), _ignore)
    sessions.resume(M1, 1, [_place(0)])
    with pytest.raises(InvalidRequest):
        sessions.resume(M1, 2, [_place(SESSION_PARTITIONS_MAX)])
    session = sessions.resume(M1, 2, [_place(SESSION_PARTITIONS_MAX)], [_place(0), _place(1)])
    assert len(session.partitions) == SESSION_PARTITIONS_MAX - 1, "a refused request changes nothing"


def test_the_sessions_of_a_connection_go_with_it_and_their_members_are_missed() -> None:
    sessions = ShareSessions()
    gone: list[SessionKey] = []
    for key, peer in ((M1, "a"), (M2, "b"), (SessionKey("h", "m1"), "a")):
        sessions.open(key, peer, [], lambda session: gone.append(session.key))
    sessions.hang_up("a")
    assert gone == [M1, SessionKey("h", "m1")]
    sessions.hang_up("a")
    sessions.hang_up("missing")
    assert len(gone) == 2
    assert sessions.find(M2)


def test_a_broker_that_stops_releases_nothing() -> None:
    sessions = ShareSessions()
    gone: list[SessionKey] = []
    sessions.open(M1, "a", [], lambda session: gone.append(session.key))
    sessions.drop_all()
    sessions.hang_up("a")
    assert (gone, len(sessions)) == ([], 0)


def test_closing_a_session_does_not_report_a_disconnect() -> None:
    sessions = ShareSessions()
    gone: list[SessionKey] = []
    sessions.open(M1, "a", [], lambda session: gone.append(session.key))
    assert sessions.close(M1)
    sessions.hang_up("a")
    assert gone == []


def test_ending_a_session_does_not_end_a_newer_one() -> None:
    sessions = ShareSessions()
    first = sessions.open(M1, "a", [], _ignore)
    sessions.hang_up("a")
    assert not sessions.end(first)
    second = sessions.open(M1, "b", [], _ignore)
    assert not sessions.end(first)
    assert sessions.find(M1) is second
    assert sessions.end(second)
    assert len(sessions) == 0


@given(count=st.integers(0, 12))
def test_each_partition_comes_first_in_its_turn(count: int) -> None:
    sessions = ShareSessions()
    session = sessions.open(M1, "peer", map(_place, range(count)), _ignore)
    firsts = []
    for epoch in range(1, count + 1):
        order = session.rotated_partitions()
        assert sorted(order) == sorted(session.partitions)
        firsts.append(order[0])
        sessions.resume(M1, epoch)
    assert len(set(firsts)) == count
