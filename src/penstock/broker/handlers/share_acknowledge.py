"""ShareAcknowledge: acknowledges messages that a share-group member has acquired (KIP-932, KIP-1222)."""

from functools import partial

from penstock.broker.broker import Broker
from penstock.broker.call import Call
from penstock.broker.permissions import READ_GROUP
from penstock.broker.registry import handles
from penstock.broker.share.responses import (
    Acknowledged,
    acknowledge_all,
    answer_call,
    error_response,
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
from penstock.foundation.errors import PenstockError
from penstock.foundation.ids import TopicIdPartition
from penstock.wire.keys import ApiKey
from penstock.wire.messages.share_acknowledge import (
    PartitionData,
    ShareAcknowledgeRequest,
    ShareAcknowledgeResponse,
    ShareAcknowledgeTopicResponse,
)


@handles(ApiKey.SHARE_ACKNOWLEDGE, READ_GROUP)
def share_acknowledge(
    request: ShareAcknowledgeRequest, call: Call, broker: Broker
) -> ShareAcknowledgeResponse | None:
    try:
        key = session_key(request.group_id, request.member_id)
        session = _session(request, key, broker)
    except PenstockError as error:
        return error_response(ShareAcknowledgeResponse, error)
    acknowledged: Acknowledged = {
        TopicIdPartition(topic.topic_id, entry.partition_index): entry.acknowledgement_batches
        for topic in request.topics
        for entry in topic.partitions
    }
    acknowledge_all(
        call,
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
    group_id, partition_data = session.key.group_id, partial(_partition_data, broker)
    answer_call(
        call, broker, group_id, ShareAcknowledgeResponse, ShareAcknowledgeTopicResponse, outcome, partition_data
    )


def _partition_data(broker: Broker, tp: TopicIdPartition, error: PenstockError | None) -> PartitionData:
    return PartitionData(
        partition_index=tp.partition,
        error_code=member_error_code(error),
        error_message=error.message if error else None,
        current_leader=leader_of(broker, tp, error),
    )
