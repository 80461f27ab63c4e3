"""Metadata: returns brokers, topics, partitions and their leaders; may auto-create requested topics."""

import contextlib
from collections.abc import Awaitable, Callable, Mapping
from itertools import islice
from typing import Final

from penstock.broker.broker import Broker
from penstock.broker.call import Call
from penstock.broker.internal_topics import create_internal_topic
from penstock.broker.registry import handles
from penstock.broker.sliced_answers import INLINE_ELEMENTS, make_answer, with_breaks
from penstock.cluster.administration import create_topic
from penstock.cluster.image import NO_LEADER, PartitionState, Topic
from penstock.cluster.topic_changes import NewTopic
from penstock.foundation.acls import CLUSTER_NAME, Operation, ResourceType
from penstock.foundation.codes import ErrorCode
from penstock.foundation.errors import (
    CoordinatorNotAvailable,
    LeaderNotAvailable,
    NotAuthorized,
    PenstockError,
    TopicExists,
    UnknownTopicId,
)
from penstock.foundation.ids import INTERNAL_TOPICS, check_topic_name
from penstock.foundation.steps import Steps
from penstock.foundation.view_names import AD_HOC
from penstock.wire.keys import ApiKey
from penstock.wire.messages.metadata import (
    MetadataRequest,
    MetadataRequestTopic,
    MetadataResponse,
    MetadataResponseBroker,
    MetadataResponsePartition,
    MetadataResponseTopic,
)
from penstock.wire.schema import NIL_UUID

AUTO_CREATED_MAX: Final = 100
"""Maximum number of topics that one request creates; clients repeat the request for the other topics."""
NOT_REQUESTED: Final = -(2**31)
LISTENER_NOT_FOUND_FROM: Final = 6
"""First Metadata version that tells a client if the leader does not have the listener of the request."""
UnreachableLeaders = Mapping[int, tuple[ErrorCode, int]]


@handles(ApiKey.METADATA)
def metadata(request: MetadataRequest, call: Call, broker: Broker) -> MetadataResponse | Awaitable[MetadataResponse]:
    missing = _to_create(request, call, broker)
    if missing:
        return _create_then_describe(request, call, broker, missing)
    return make_answer(broker, _count_elements(request, call, broker), _describe(request, call, broker, {}))


def _to_create(request: MetadataRequest, call: Call, broker: Broker) -> list[str]:
    if not request.topics or not request.allow_auto_topic_creation:
        return []
    known = broker.image.shown_by_name
    missing = (topic.name for topic in request.topics if topic.name and topic.name not in known)
    # Not an ad-hoc view that was dropped because it was unused.
    names = list(islice((name for name in missing if not AD_HOC.fullmatch(name)), AUTO_CREATED_MAX))
    names = [name for name in names if _may_create(name, call)]
    return list(dict.fromkeys(names)) if names and broker.configs["auto.create.topics.enable"] else []


def _may_create(name: str, call: Call) -> bool:
    if not call.allows(Operation.DESCRIBE, ResourceType.TOPIC, name, audited=False):
        return False
    if call.allows_in_cluster(Operation.CREATE, audited=False):
        return True
    return call.allows(Operation.CREATE, ResourceType.TOPIC, name)


async def _create_then_describe(
    request: MetadataRequest, call: Call, broker: Broker, missing: list[str]
) -> MetadataResponse:
    refused: dict[str, PenstockError] = {}
    for name in missing:
        if call.is_disconnected:
            break
        try:
            with contextlib.suppress(TopicExists):  # another client created it a moment ago
                await _create(name, broker)
        except CoordinatorNotAvailable as error:  # for internal topics; Metadata has another retriable code
            refused[name] = LeaderNotAvailable(str(error))
        except PenstockError as error:
            refused[name] = error
    return await broker.slices.run(_describe(request, call, broker, refused))


async def _create(name: str, broker: Broker) -> None:
    if name in INTERNAL_TOPICS:
        await create_internal_topic(name, broker)
        return
    topic_id, wanted = broker.new_topic_id(), NewTopic(name=name)
    await create_topic(broker.metadata, wanted, topic_id, broker.topic_defaults())


def _asks_for_all(request: MetadataRequest, call: Call) -> bool:
    """Whether the request is for all topics: null in place of a topic list, or an empty list in version 0."""
    return request.topics is None or (call.version == 0 and not request.topics)


def _count_elements(request: MetadataRequest, call: Call, broker: Broker) -> int:
    """Returns the number of elements in the response; may stop counting above INLINE_ELEMENTS."""
    image = broker.image
    if _asks_for_all(request, call):
        wanted = image.shown_by_name.values()
        return INLINE_ELEMENTS + 1 if len(wanted) > INLINE_ELEMENTS else sum(len(t.partitions) for t in wanted)
    assert request.topics is not None
    named = [
        image.shown_by_name.get(wanted.name or "") or image.shown.get(wanted.topic_id)
        for wanted in request.topics[:INLINE_ELEMENTS]
    ]
    return len(request.topics) + sum(len(topic.partitions) for topic in named if topic is not None)


def _describe(
    request: MetadataRequest, call: Call, broker: Broker, refused: dict[str, PenstockError]
) -> Steps[MetadataResponse]:
    image = broker.image
    wants_operations = request.include_topic_authorized_operations

    def operations_of(name: str) -> int:
        return call.operations(ResourceType.TOPIC, name) if wants_operations else NOT_REQUESTED

    unreachable = unreachable_leaders(call, broker)
    topics = []
    if _asks_for_all(request, call):
        for topic in with_breaks(image.listed_by_name().values()):
            if topic is None:
                yield
            elif call.allows(Operation.DESCRIBE, ResourceType.TOPIC, topic.name, audited=False):
                topics.append((yield from _describe_topic(topic, operations_of(topic.name), unreachable)))
    else:
        seen = set()
        for wanted in with_breaks(request.topics or ()):
            if wanted is None:
                yield
            elif (wanted.name, wanted.topic_id) not in seen:  # each is described once, even if named repeatedly
                seen.add((wanted.name, wanted.topic_id))
                described = _describe_requested(wanted, request, call, broker, operations_of, refused, unreachable)
                topics.append((yield from described))
    return MetadataResponse(
        brokers=[
            MetadataResponseBroker(node_id=known.node_id, host=at.host, port=at.port, rack=known.rack)
            for known in image.brokers.values()
            if (at := known.endpoint(call.listener)) is not None
        ],
        cluster_id=image.cluster_id,
        controller_id=broker.controller_id,
        topics=topics,
        cluster_authorized_operations=(
            call.operations(ResourceType.CLUSTER, CLUSTER_NAME)
            if request.include_cluster_authorized_operations
            else NOT_REQUESTED
        ),
    )


def _describe_requested(
    wanted: MetadataRequestTopic,
    request: MetadataRequest,
    call: Call,
    broker: Broker,
    operations_of: Callable[[str], int],
    refused: dict[str, PenstockError],
    unreachable: UnreachableLeaders,
) -> Steps[MetadataResponseTopic]:
    try:
        if wanted.name in refused:
            raise refused[wanted.name]
        if wanted.name:
            call.check(Operation.DESCRIBE, ResourceType.TOPIC, wanted.name)
            if wanted.name not in broker.image.shown_by_name:
                check_topic_name(wanted.name)  # an invalid name is not retriable
                _check_creation(wanted.name, request, call, broker)
        topic = broker.shown_topic(wanted.name, wanted.topic_id)
        if not call.allows(Operation.DESCRIBE, ResourceType.TOPIC, topic.name):
            raise UnknownTopicId("no topic has this id")  # as in Kafka: an id does not tell whether it exists
        if topic.view is not None:
            broker.views.note_read(topic.view)  # keeps the view alive for slow readers
        return (yield from _describe_topic(topic, operations_of(topic.name), unreachable))
    except PenstockError as error:
        return MetadataResponseTopic(
            error_code=error.code,
            name=wanted.name,
            topic_id=wanted.topic_id,
            is_internal=wanted.name in INTERNAL_TOPICS,
            partitions=(),
        )


def _check_creation(name: str, request: MetadataRequest, call: Call, broker: Broker) -> None:
    """Raises TopicAuthorizationFailed if the topic would have been created, had the client the permission."""
    if call.authorizer is None or not request.allow_auto_topic_creation:
        return
    if broker.configs["auto.create.topics.enable"] and not AD_HOC.fullmatch(name) and not _may_create(name, call):
        raise NotAuthorized.of(call.principal, Operation.CREATE, ResourceType.TOPIC, name)


def _describe_topic(topic: Topic, operations: int, unreachable: UnreachableLeaders) -> Steps[MetadataResponseTopic]:
    partitions = []
    for found in with_breaks(topic.partitions.items()):
        if found is None:
            yield
        else:
            partitions.append(_partition(*found, unreachable))
    return MetadataResponseTopic(
        error_code=0,
        name=topic.name,
        topic_id=topic.topic_id or NIL_UUID,
        is_internal=topic.is_internal,
        partitions=partitions,
        topic_authorized_operations=operations,
    )


def _partition(number: int, state: PartitionState, unreachable: UnreachableLeaders) -> MetadataResponsePartition:
    error, leader = unreachable.get(state.leader, (ErrorCode.NONE, state.leader))
    return MetadataResponsePartition(
        error_code=error,
        partition_index=number,
        leader_id=leader,
        leader_epoch=state.leader_epoch,
        replica_nodes=state.replicas,
        isr_nodes=state.isr,
    )


def unreachable_leaders(call: Call, broker: Broker) -> UnreachableLeaders:
    """Returns the error code and the leader to answer for leaders that clients of the call's listener cannot connect
    to: NO_LEADER, and brokers that do not advertise the listener."""
    error = (
        ErrorCode.LISTENER_NOT_FOUND
        if call.api_key != ApiKey.METADATA or call.version >= LISTENER_NOT_FOUND_FROM
        else ErrorCode.LEADER_NOT_AVAILABLE
    )
    found = {
        known.node_id: (error, NO_LEADER)
        for known in broker.image.brokers.values()
        if known.endpoint(call.listener) is None
    }
    return {NO_LEADER: (ErrorCode.LEADER_NOT_AVAILABLE, NO_LEADER), **found}
