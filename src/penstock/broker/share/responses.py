"""Parts common to ShareFetch and ShareAcknowledge: acknowledging, releasing, error codes, leaders (KIP-932)."""

from collections.abc import Callable, Iterable, Mapping, Sequence
from functools import partial
from typing import Any, Final, TypeVar

from penstock.broker.broker import Broker
from penstock.broker.call import Call
from penstock.broker.share.partition import SharePartition, check_acknowledged
from penstock.broker.share.sessions import SessionKey, ShareSession
from penstock.broker.sliced_answers import INLINE_ELEMENTS, run_in_slices, with_breaks
from penstock.cluster.image import NO_LEADER
from penstock.foundation.acls import Operation, ResourceType
from penstock.foundation.codes import ErrorCode
from penstock.foundation.errors import InvalidRequest, PenstockError
from penstock.foundation.ids import TopicIdPartition
from penstock.foundation.steps import Steps, run_steps
from penstock.groups.errors import InvalidGroupId
from penstock.wire.messages.share_fetch import AcknowledgementBatch, LeaderIdAndEpoch, NodeEndpoint

MEMBER_ID_CHARS_MAX: Final = 36
"""Maximum length of a share-group member's id, in characters; clients use a UUID (KIP-1082)."""
NO_EPOCH: Final = -1
_MEMBER_ERRORS: Final = frozenset(
    (
        ErrorCode.UNKNOWN_TOPIC_OR_PARTITION,
        ErrorCode.UNKNOWN_TOPIC_ID,
        ErrorCode.TOPIC_AUTHORIZATION_FAILED,
        ErrorCode.NOT_LEADER_OR_FOLLOWER,
        ErrorCode.INVALID_RECORD_STATE,
        ErrorCode.KAFKA_STORAGE_ERROR,
        ErrorCode.CORRUPT_MESSAGE,
        ErrorCode.INVALID_REQUEST,
    )
)
"""Error codes that are sent to share consumers unchanged; `member_error_code` replaces all other codes."""
_LEADER_CHANGING: Final = frozenset(
    (
        ErrorCode.NOT_COORDINATOR,
        ErrorCode.COORDINATOR_NOT_AVAILABLE,
        ErrorCode.COORDINATOR_LOAD_IN_PROGRESS,
        ErrorCode.OFFSET_NOT_AVAILABLE,
    )
)

Acknowledged = Mapping[TopicIdPartition, Sequence[AcknowledgementBatch]]


T = TypeVar("T")
R = TypeVar("R")


def session_key(group_id: str | None, member_id: str | None) -> SessionKey:
    """Returns the key of a member's share session. Raises InvalidGroupId or InvalidRequest for an invalid id."""
    if not group_id:
        raise InvalidGroupId("the share group id is empty; give the id of the group")
    if not member_id or len(member_id) > MEMBER_ID_CHARS_MAX:
        raise InvalidRequest(f"a member id has 1 to {MEMBER_ID_CHARS_MAX} characters; got {member_id!r}")
    return SessionKey(group_id, member_id)


def check_readable(call: Call, broker: Broker, tp: TopicIdPartition) -> None:
    """Raises TopicAuthorizationFailed if the client may not read a partition that exists."""
    topic = broker.image.shown.get(tp.topic_id) if call.authorizer is not None else None
    if topic is not None:
        call.check(Operation.READ, ResourceType.TOPIC, topic.name)


def acknowledge_all(
    call: Call,
    broker: Broker,
    key: SessionKey,
    acknowledged: Acknowledged,
    *,
    version: int,
    is_renew: bool,
    then: Callable[[dict[TopicIdPartition, PenstockError | None]], None],
) -> None:
    """Acknowledges messages on all partitions; when all have replied, calls `then` with each partition's error or
    None. The request's `version` and `is_renew` decide which acknowledge types are allowed (KIP-1222)."""
    outcome: dict[TopicIdPartition, PenstockError | None] = {}
    missing = len(acknowledged)
    if not missing:
        then(outcome)
        return

    def take(tp: TopicIdPartition, error: PenstockError | None) -> None:
        nonlocal missing
        outcome[tp] = error
        missing -= 1
        if not missing:
            then(outcome)

    def acknowledge(tp: TopicIdPartition) -> None:
        batches = acknowledged[tp]
        try:
            check_acknowledged(batches, version=version, is_renew=is_renew)
            check_readable(call, broker, tp)
            found = SharePartition.find(broker, key.group_id, tp)
        except PenstockError as error:
            take(tp, error)
        else:
            found.acknowledge(key.group_id, key.member_id, batches, partial(take, tp))

    run_in_slices(broker, list(acknowledged), acknowledge)


def release(broker: Broker, session: ShareSession, *, is_undone: bool) -> None:
    """Releases the messages that a member has acquired when its share session ends.

    `is_undone`: the member closed the session, and the delivery is not counted. A member that disconnects may have
    failed because of the message: its delivery counts, so that a poison message reaches the dead-letter queue in the
    end.
    """
    key = session.key

    def release_at(tp: TopicIdPartition) -> None:
        try:
            found = SharePartition.find(broker, key.group_id, tp)
        except PenstockError:
            return  # another broker leads it: the acquisition locks expire there
        found.release_member(key.group_id, key.member_id, is_undone=is_undone)

    run_in_slices(broker, list(session.partitions), release_at)


def member_error_code(error: PenstockError | None) -> ErrorCode:
    """Returns the error code to send to a share consumer; NOT_LEADER_OR_FOLLOWER, which makes the consumer look up
    the leader again, while delivery state is being loaded."""
    if error is None:
        return ErrorCode.NONE
    if error.code in _LEADER_CHANGING:
        return ErrorCode.NOT_LEADER_OR_FOLLOWER
    return error.code if error.code in _MEMBER_ERRORS else ErrorCode.UNKNOWN_SERVER_ERROR


def leader_of(broker: Broker, tp: TopicIdPartition, error: PenstockError | None) -> LeaderIdAndEpoch:
    """Returns the leader of a partition if `error` means that another broker leads it; else (NO_LEADER, NO_EPOCH)."""
    topic = broker.image.topics.get(tp.topic_id)
    state = topic.partitions.get(tp.partition) if topic is not None else None
    if member_error_code(error) != ErrorCode.NOT_LEADER_OR_FOLLOWER or state is None:
        return LeaderIdAndEpoch(leader_id=NO_LEADER, leader_epoch=NO_EPOCH)
    return LeaderIdAndEpoch(leader_id=state.leader, leader_epoch=state.leader_epoch)


def error_response(response: Callable[..., T], error: PenstockError) -> T:
    """Returns the ShareFetch or ShareAcknowledge response to a request that failed as a whole."""
    return response(
        throttle_time_ms=0,
        error_code=error.code,
        error_message=error.message,
        acquisition_lock_timeout_ms=0,
        responses=(),
        node_endpoints=(),
    )


def answer_call(
    call: Call,
    broker: Broker,
    group_id: str,
    response: Callable[..., Any],
    topic_response: Callable[..., Any],
    results: Mapping[TopicIdPartition, R],
    partition_data: Callable[[TopicIdPartition, R], Any],
) -> None:
    """Answers a ShareFetch or ShareAcknowledge with the results of all partitions; in time slices if there are many.

    `response`, `topic_response`: message classes. `partition_data` converts a result to its part of the response.
    """

    def build() -> Steps[Any]:
        topics: dict[bytes, list[Any]] = {}
        for known in with_breaks(results.items()):
            if known is None:
                yield
                continue
            tp, result = known
            topics.setdefault(tp.topic_id, []).append(partition_data(tp, result))
        leaders = {data.current_leader.leader_id for partitions in topics.values() for data in partitions}
        return response(
            throttle_time_ms=0,
            error_code=0,
            acquisition_lock_timeout_ms=broker.share_terms.lock_ms(group_id),
            responses=[
                topic_response(topic_id=topic_id, partitions=partitions) for topic_id, partitions in topics.items()
            ],
            node_endpoints=_endpoints(call, broker, leaders),
        )

    if len(results) <= INLINE_ELEMENTS:
        call.answer(run_steps(build()))
    else:
        broker.run(broker.slices.run(build()), call.answer)


def _endpoints(call: Call, broker: Broker, leaders: Iterable[int]) -> list[NodeEndpoint]:
    known = broker.image.brokers
    found = [known[node] for node in sorted(leaders) if node in known]
    return [
        NodeEndpoint(node_id=each.node_id, host=at.host, port=at.port, rack=each.rack or None)
        for each in found
        if (at := each.endpoint(call.listener)) is not None
    ]
