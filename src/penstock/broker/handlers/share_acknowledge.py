"""ShareAcknowledge: acknowledges messages that a share-group member has acquired (KIP-932, KIP-1222)."""

from functools import partial

from penstock.broker.broker import Broker
from penstock.broker.call import Call
from penstock.broker.registry import handles
from penstock.broker.share.responses import (
    Acknowledged,
    acknowledge_all,
    endpoints,
    leader_of,
    member_error_code,
    release,
    session_key,
)
from penstock.broker.share.sessions import (
    FINAL_EPOCH,
    INITIAL_EPOCH,
    InvalidShareSessionEpoch,
    SessionKey,
    ShareSession,
)
from penstock.broker.sliced_answers import INLINE_ELEMENTS, with_breaks
from penstock.foundation.errors import PenstockError
from penstock.foundation.ids import TopicIdPartition
from penstock.foundation.steps import Steps, run_steps
from penstock.wire.keys import ApiKey
from penstock.wire.messages.share_acknowledge import (
    LeaderIdAndEpoch,
    NodeEndpoint,
    PartitionData,
    ShareAcknowledgeRequest,
    ShareAcknowledgeResponse,
    ShareAcknowledgeTopicResponse,
)


@handles(ApiKey.SHARE_ACKNOWLEDGE)
def share_acknowledge(
    request: ShareAcknowledgeRequest, call: Call, broker: Broker
) -> ShareAcknowledgeResponse | None:
    try:
        key = session_key(request.group_id, request.member_id)
        session = _session(request, key, broker)
    except PenstockError as error:
        return _refused(error)
    acknowledged: Acknowledged = {
        TopicIdPartition(topic.topic_id, entry.partition_index): entry.acknowledgement_batches
        for topic in request.topics
        for entry in topic.partitions
    }
    acknowledge_all(
        broker,
        key,
        acknowledged,
        version=call.version,
        is_renew=request.is_renew_ack,
        then=partial(_on_acknowledged, request, session, call, broker),
    )
    return None


def _session(request: ShareAcknowledgeRequest, key: SessionKey, broker: Broker) -> ShareSession:
    """Returns the member's share session. Raises ShareSessionNotFound or InvalidShareSessionEpoch."""
    epoch = request.share_session_epoch
    if epoch == INITIAL_EPOCH:
        raise InvalidShareSessionEpoch("a share session must be opened with ShareFetch, not ShareAcknowledge")
    if epoch == FINAL_EPOCH:
        return broker.share_sessions.find(key)
    return broker.share_sessions.resume(key, epoch)


def _on_acknowledged(
    request: ShareAcknowledgeRequest,
    session: ShareSession,
    call: Call,
    broker: Broker,
    outcome: dict[TopicIdPartition, PenstockError | None],
) -> None:
    # If the connection closed meanwhile, all was released, and the member may have a new session.
    if request.share_session_epoch == FINAL_EPOCH and broker.share_sessions.end(session):
        release(broker, session, is_undone=True)
    steps = _response(session, broker, outcome)
    if len(outcome) <= INLINE_ELEMENTS:
        call.answer(run_steps(steps))
    else:
        broker.run(broker.slices.run(steps), call.answer)


def _response(
    session: ShareSession, broker: Broker, outcome: dict[TopicIdPartition, PenstockError | None]
) -> Steps[ShareAcknowledgeResponse]:
    topics: dict[bytes, list[PartitionData]] = {}
    leaders = []
    for known in with_breaks(outcome.items()):
        if known is None:
            yield
            continue
        tp, error = known
        leader, epoch = leader_of(broker, tp, error)
        leaders.append(leader)
        topics.setdefault(tp[0], []).append(
            PartitionData(
                partition_index=tp[1],
                error_code=member_error_code(error),
                error_message=error.message if error else None,
                current_leader=LeaderIdAndEpoch(leader_id=leader, leader_epoch=epoch),
            )
        )
    return ShareAcknowledgeResponse(
        throttle_time_ms=0,
        error_code=0,
        acquisition_lock_timeout_ms=broker.share_terms.lock_ms(session.key.group_id),
        responses=[
            ShareAcknowledgeTopicResponse(topic_id=topic_id, partitions=partitions)
            for topic_id, partitions in topics.items()
        ],
        node_endpoints=[
            NodeEndpoint(node_id=node, host=host, port=port, rack=rack)
            for node, host, port, rack in endpoints(broker, leaders)
        ],
    )


def _refused(error: PenstockError) -> ShareAcknowledgeResponse:
    return ShareAcknowledgeResponse(
        throttle_time_ms=0,
        error_code=error.code,
        error_message=error.message,
        acquisition_lock_timeout_ms=0,
        responses=(),
        node_endpoints=(),
    )
