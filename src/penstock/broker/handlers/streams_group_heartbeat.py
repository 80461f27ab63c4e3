"""StreamsGroupHeartbeat: a member joins, stays in or leaves a streams group (KIP-1071)."""

from penstock.broker.broker import Broker
from penstock.broker.call import Call
from penstock.broker.coordinator_requests import ask, error_response
from penstock.broker.permissions import READ_GROUP, hidden_topic
from penstock.broker.registry import handles
from penstock.foundation.acls import Operation, ResourceType
from penstock.foundation.errors import NotAuthorized
from penstock.wire.keys import ApiKey
from penstock.wire.messages.streams_group_heartbeat import (
    StreamsGroupHeartbeatRequest,
    StreamsGroupHeartbeatResponse,
    Topology,
)


@handles(ApiKey.STREAMS_GROUP_HEARTBEAT, READ_GROUP)
def streams_group_heartbeat(request: StreamsGroupHeartbeatRequest, call: Call, broker: Broker) -> None:
    on_error = error_response(StreamsGroupHeartbeatResponse, member_id="", member_epoch=0, heartbeat_interval_ms=0)
    denied = _denied(request.topology, call, broker)
    if denied is not None:
        call.answer(on_error(denied))
        return
    ask(broker.groups, request.group_id, request, call, on_error)


def _denied(topology: Topology | None, call: Call, broker: Broker) -> NotAuthorized | None:
    """Returns the error if the client may not know a topic of the topology, or not create one that is missing."""
    if topology is None or call.authorizer is None:
        return None
    internal = [
        topic.name
        for part in topology.subtopologies
        for topic in (*part.repartition_source_topics, *part.state_changelog_topics)
    ]
    sources = [
        name for part in topology.subtopologies for name in (*part.source_topics, *part.repartition_sink_topics)
    ]
    hidden = hidden_topic((*sources, *internal), call)
    if hidden is not None or call.allows_in_cluster(Operation.CREATE, audited=False):
        return hidden
    for name in internal:
        if name not in broker.image.by_name and not call.allows(Operation.CREATE, ResourceType.TOPIC, name):
            return NotAuthorized.of(call.principal, Operation.CREATE, ResourceType.TOPIC, name)
    return None
