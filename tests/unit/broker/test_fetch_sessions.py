"""Fetch sessions: the rules of KIP-227."""

from typing import Any

import pytest

from penstock.broker.fetch import sessions as fetch_sessions
from penstock.broker.fetch.sessions import (
    EVICT_AFTER_MS,
    FetchPlan,
    FetchSessions,
    InvalidSessionEpoch,
    Key,
    SessionNotFound,
    SessionTopicIds,
)
from penstock.foundation.codes import ErrorCode
from penstock.wire.messages.fetch import (
    EpochEndOffset,
    FetchPartition,
    FetchRequest,
    FetchTopic,
    ForgottenTopic,
    PartitionData,
)
from penstock.wire.schema import NIL_UUID

ID = b"\1" * 16
CLIENT = "User:orders"


def key(number: int) -> Key:
    return ("orders", NIL_UUID, number)


def request(
    session_id: int = 0, epoch: int = 0, *numbers: int, offset: int = 0, forget: tuple[int, ...] = ()
) -> FetchRequest:
    partitions = [
        FetchPartition(partition=number, fetch_offset=offset, partition_max_bytes=1000) for number in numbers
    ]
    return FetchRequest(
        max_wait_ms=0,
        min_bytes=0,
        session_id=session_id,
        session_epoch=epoch,
        topics=[FetchTopic(topic="orders", partitions=partitions)] if partitions else [],
        forgotten_topics_data=[ForgottenTopic(topic="orders", partitions=forget)] if forget else [],
    )


def data(number: int, **values: Any) -> PartitionData:
    return PartitionData(
        **{
            "partition_index": number,
            "error_code": 0,
            "high_watermark": 10,
            "log_start_offset": 0,
            "aborted_transactions": None,
            "records": b"",
            **values,
        }
    )


def wanted(plan: FetchPlan) -> list[int]:
    return [partition for (_, _, partition), _ in plan.wanted]


def returned(plan: FetchPlan, *answers: PartitionData) -> list[int]:
    """The partitions that the answer names."""
    return [answer.partition_index for answer in answers if plan.must_include(key(answer.partition_index), answer)]


def opened(sessions: FetchSessions, *numbers: int, now_ms: int = 0) -> int:
    """A session whose partitions were returned once."""
    plan = sessions.plan(request(0, 0, *numbers), CLIENT, now_ms)
    returned(plan, *(data(number) for number in numbers))
    return plan.session_id


# -- how sessions begin and end


def test_a_full_request_opens_a_session_and_is_answered_in_full() -> None:
    sessions = FetchSessions(10)
    plan = sessions.plan(request(0, 0, 1, 2), CLIENT, 0)
    assert plan.session_id > 0
    assert wanted(plan) == [1, 2]
    assert returned(plan, data(1), data(2)) == [1, 2]
    assert len(sessions) == 1


def test_a_client_that_wants_no_session_gets_none() -> None:
    sessions = FetchSessions(10)
    plan = sessions.plan(request(0, -1, 1, 2), CLIENT, 0)
    assert plan.session_id == 0
    assert wanted(plan) == [1, 2]
    assert returned(plan, data(1), data(2)) == [1, 2]
    assert len(sessions) == 0


def test_a_full_request_closes_the_session_it_names_and_opens_another() -> None:
    sessions = FetchSessions(10)
    first = opened(sessions, 1)
    second = sessions.plan(request(first, 0, 1, 2), CLIENT, 0).session_id
    assert second not in (0, first)
    assert len(sessions) == 1
    with pytest.raises(SessionNotFound):
        sessions.plan(request(first, 1), CLIENT, 0)


def test_the_last_request_of_a_session_closes_it() -> None:
    sessions = FetchSessions(10)
    session_id = opened(sessions, 1)
    plan = sessions.plan(request(session_id, -1, 1), CLIENT, 0)
    assert (plan.session_id, wanted(plan)) == (0, [1])
    assert len(sessions) == 0


def test_a_session_that_is_not_known_is_refused() -> None:
    for session_id in (0, 12345):
        with pytest.raises(SessionNotFound) as refused:
            FetchSessions(10).plan(request(session_id, 1, 1), CLIENT, 0)
        assert refused.value.code == ErrorCode.FETCH_SESSION_ID_NOT_FOUND


def test_an_empty_full_request_opens_no_session() -> None:
    sessions = FetchSessions(10)
    assert sessions.plan(request(0, 0), CLIENT, 0).session_id == 0
    assert len(sessions) == 0


# -- epochs


def test_epochs_count_the_requests_of_a_session() -> None:
    sessions = FetchSessions(10)
    session_id = opened(sessions, 1)
    for epoch in (1, 2, 3):
        assert sessions.plan(request(session_id, epoch), CLIENT, 0).session_id == session_id
    for epoch in (3, 5, 1):
        with pytest.raises(InvalidSessionEpoch) as refused:
            sessions.plan(request(session_id, epoch), CLIENT, 0)
        assert refused.value.code == ErrorCode.INVALID_FETCH_SESSION_EPOCH
    assert sessions.plan(request(session_id, 4), CLIENT, 0).session_id == session_id


def test_epochs_begin_again_at_one_after_the_largest() -> None:
    sessions = FetchSessions(10)
    session_id = opened(sessions, 1)
    plan = sessions.plan(request(session_id, 1), CLIENT, 0)
    assert plan.session is not None
    plan.session.epoch = 2**31 - 1
    sessions.plan(request(session_id, 2**31 - 1), CLIENT, 0)
    assert sessions.plan(request(session_id, 1), CLIENT, 0).session_id == session_id


# -- what is asked for


def test_an_incremental_request_names_only_what_is_new() -> None:
    sessions = FetchSessions(10)
    session_id = opened(sessions, 1, 2)
    assert wanted(sessions.plan(request(session_id, 1), CLIENT, 0)) == [1, 2]
    assert wanted(sessions.plan(request(session_id, 2, 3), CLIENT, 0)) == [1, 2, 3]
    assert wanted(sessions.plan(request(session_id, 3, forget=(2,)), CLIENT, 0)) == [1, 3]
    assert wanted(sessions.plan(request(session_id, 4, 2, forget=(1,)), CLIENT, 0)) == [3, 2]


def test_an_incremental_request_moves_the_offsets_it_names() -> None:
    sessions = FetchSessions(10)
    session_id = opened(sessions, 1, 2)
    plan = sessions.plan(request(session_id, 1, 2, offset=50), CLIENT, 0)
    assert {partition: asked.fetch_offset for (_, _, partition), asked in plan.wanted} == {1: 0, 2: 50}
    plan = sessions.plan(request(session_id, 2), CLIENT, 0)
    assert {partition: asked.fetch_offset for (_, _, partition), asked in plan.wanted} == {1: 0, 2: 50}


def test_forgetting_what_is_not_there_does_nothing() -> None:
    sessions = FetchSessions(10)
    session_id = opened(sessions, 1)
    assert wanted(sessions.plan(request(session_id, 1, forget=(7,)), CLIENT, 0)) == [1]


def test_topics_by_id_and_by_name_are_different_partitions() -> None:
    by_id = FetchRequest(
        max_wait_ms=0,
        min_bytes=0,
        session_id=0,
        session_epoch=0,
        topics=[
            FetchTopic(topic_id=ID, partitions=[FetchPartition(partition=1, fetch_offset=0, partition_max_bytes=1)])
        ],
    )
    plan = FetchSessions(10).plan(by_id, CLIENT, 0)
    assert [found for found, _ in plan.wanted] == [("", ID, 1)]


# -- what is answered


NEWS = [
    ({}, False),
    ({"records": b"batch"}, True),
    ({"high_watermark": 11}, True),
    ({"log_start_offset": 1}, True),
    ({"error_code": 6}, True),
    ({"diverging_epoch": EpochEndOffset(epoch=1, end_offset=2)}, True),
]


@pytest.mark.parametrize(("values", "is_news"), NEWS)
def test_an_incremental_answer_names_only_what_is_news(values: dict[str, Any], is_news: bool) -> None:
    sessions = FetchSessions(10)
    session_id = opened(sessions, 1, 2)
    plan = sessions.plan(request(session_id, 1), CLIENT, 0)
    assert returned(plan, data(1, **values), data(2)) == ([1] if is_news else [])


def test_a_change_is_returned_once() -> None:
    sessions = FetchSessions(10)
    session_id = opened(sessions, 1)
    for epoch, high_watermark, names in ((1, 11, [1]), (2, 11, []), (3, 12, [1]), (4, 12, [])):
        plan = sessions.plan(request(session_id, epoch), CLIENT, 0)
        assert returned(plan, data(1, high_watermark=high_watermark)) == names


def test_a_partition_that_failed_is_named_until_it_is_well_again() -> None:
    sessions = FetchSessions(10)
    session_id = opened(sessions, 1)
    for epoch, error_code, names in ((1, 6, [1]), (2, 6, [1]), (3, 0, [1]), (4, 0, [])):
        plan = sessions.plan(request(session_id, epoch), CLIENT, 0)
        assert returned(plan, data(1, error_code=error_code)) == names


def test_a_partition_that_is_new_to_the_session_is_named() -> None:
    sessions = FetchSessions(10)
    session_id = opened(sessions, 1)
    plan = sessions.plan(request(session_id, 1, 2), CLIENT, 0)
    assert returned(plan, data(1), data(2)) == [2]


def test_a_partition_that_had_records_goes_to_the_end_of_the_line() -> None:
    sessions = FetchSessions(10)
    session_id = opened(sessions, 1, 2, 3)
    plan = sessions.plan(request(session_id, 1), CLIENT, 0)
    returned(plan, data(1, records=b"batch"), data(2), data(3))
    assert wanted(sessions.plan(request(session_id, 2), CLIENT, 0)) == [2, 3, 1]


# -- bounds


def test_there_are_only_so_many_sessions() -> None:
    sessions = FetchSessions(2)
    assert [opened(sessions, 1) > 0 for _ in range(4)] == [True, True, False, False]
    assert len(sessions) == 2
    plan = sessions.plan(request(0, 0, 1, 2), CLIENT, 0)
    assert wanted(plan) == [1, 2], "without a session the request is answered all the same"


def test_no_slots_are_no_sessions() -> None:
    assert opened(FetchSessions(0), 1) == 0


def test_a_session_that_was_not_used_for_long_makes_room() -> None:
    sessions = FetchSessions(2)
    first, second = opened(sessions, 1, now_ms=0), opened(sessions, 1, now_ms=10)
    sessions.plan(request(first, 1), CLIENT, EVICT_AFTER_MS)
    assert opened(sessions, 1, now_ms=EVICT_AFTER_MS) == 0
    assert opened(sessions, 1, now_ms=EVICT_AFTER_MS + 10) > 0
    with pytest.raises(SessionNotFound):
        sessions.plan(request(second, 1), CLIENT, 0)
    assert sessions.plan(request(first, 2), CLIENT, 0).session_id == first


def test_a_session_has_only_so_many_partitions(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(fetch_sessions, "SESSION_PARTITIONS_MAX", 3)
    sessions = FetchSessions(10)
    assert opened(sessions, 1, 2, 3, 4) == 0
    session_id = opened(sessions, 1, 2, 3)
    with pytest.raises(SessionNotFound, match="at most 3 partitions"):
        sessions.plan(request(session_id, 1, 4), CLIENT, 0)
    assert len(sessions) == 0, "the client has to send a full request, and then gets everything"
    assert wanted(sessions.plan(request(session_id, 0, 1, 2, 3, 4), CLIENT, 0)) == [1, 2, 3, 4]


def test_partitions_may_take_the_place_of_others_in_a_full_session(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(fetch_sessions, "SESSION_PARTITIONS_MAX", 2)
    sessions = FetchSessions(10)
    session_id = opened(sessions, 1, 2)
    assert wanted(sessions.plan(request(session_id, 1, 3, forget=(1,)), CLIENT, 0)) == [2, 3]


def test_session_ids_start_at_the_given_one_and_wrap_after_the_largest() -> None:
    sessions = FetchSessions(10, first_id=2**31 - 2)
    assert [opened(sessions, 1) for _ in range(3)] == [2**31 - 2, 2**31 - 1, 1]


def test_an_id_that_is_in_use_is_not_given_again() -> None:
    sessions = FetchSessions(10, first_id=2**31 - 1)
    assert opened(sessions, 1) == 2**31 - 1
    assert opened(sessions, 1) == 1
    sessions._last_id = 2**31 - 2
    assert opened(sessions, 1) == 2


@pytest.mark.parametrize("by_id", [False, True])
def test_a_session_keeps_to_names_or_to_ids(by_id: bool) -> None:
    """As in Kafka: the epoch stays, and so does the session, until the client begins another."""
    sessions = FetchSessions(10)
    session_id = sessions.plan(request(0, 0, 1), CLIENT, 0, by_id=by_id).session_id
    with pytest.raises(SessionTopicIds) as refused:
        sessions.plan(request(session_id, 1), CLIENT, 0, by_id=not by_id)
    assert refused.value.code is ErrorCode.FETCH_SESSION_TOPIC_ID_ERROR
    assert sessions.plan(request(session_id, 1), CLIENT, 0, by_id=by_id).session_id == session_id
