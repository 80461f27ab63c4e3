"""OffsetFetch: returns the committed offsets of groups, each from its coordinator."""

from collections.abc import Awaitable, Iterable, Sequence
from functools import partial
from typing import Any, TypeVar

from penstock.broker.broker import Broker
from penstock.broker.call import Call
from penstock.broker.coordinator_requests import ask, ask_each
from penstock.broker.permissions import split_topics
from penstock.broker.registry import handles
from penstock.foundation.acls import Operation, ResourceType
from penstock.foundation.codes import ErrorCode
from penstock.foundation.errors import CoordinatorNotAvailable, NotAuthorized, PenstockError
from penstock.wire.keys import ApiKey
from penstock.wire.messages.offset_fetch import (
    OffsetFetchRequest,
    OffsetFetchRequestGroup,
    OffsetFetchRequestTopic,
    OffsetFetchResponse,
    OffsetFetchResponseGroup,
    OffsetFetchResponsePartition,
    OffsetFetchResponsePartitions,
    OffsetFetchResponseTopic,
    OffsetFetchResponseTopics,
)
from penstock.wire.schema import with_field

T = TypeVar("T")


@handles(ApiKey.OFFSET_FETCH)
def offset_fetch(request: OffsetFetchRequest, call: Call, broker: Broker) -> Awaitable[None] | None:
    if call.version < 8:
        _fetch_for_one(request, call, broker)
        return None
    groups = distinct_groups(request).groups
    allowed = [_allowed(group, call, broker) for group in groups]
    parts = [
        (group.group_id, OffsetFetchRequest(groups=(group,), require_stable=request.require_stable))
        for group in allowed
    ]
    merge = partial(_merge, groups, call, broker)
    return ask_each(broker, broker.groups, parts, Operation.DESCRIBE, call, _group_error_response, merge)


def _fetch_for_one(request: OffsetFetchRequest, call: Call, broker: Broker) -> None:
    """Answers a request of an older version, which is for one group."""
    on_error = partial(_error_response, request, call.version)
    try:
        call.check(Operation.DESCRIBE, ResourceType.GROUP, request.group_id)
    except NotAuthorized as error:
        call.answer(on_error(error))
        return
    if request.topics is None:
        call.amend = lambda response: with_field(response, "topics", _shown(response.topics, call, broker))
    else:
        allowed, denied = split_topics(request.topics, Operation.DESCRIBE, call, broker)
        if denied:
            refused = [_error_topic(topic, ErrorCode.TOPIC_AUTHORIZATION_FAILED) for topic in denied]
            call.amend = lambda response: with_field(response, "topics", [*response.topics, *refused])
            request = with_field(request, "topics", allowed)
    ask(broker.groups, request.group_id, request, call, on_error)


def _allowed(group: OffsetFetchRequestGroup, call: Call, broker: Broker) -> OffsetFetchRequestGroup:
    """Returns the part of a request for one group without topics that the client may not know."""
    if call.authorizer is None or group.topics is None:
        return group
    return with_field(group, "topics", split_topics(group.topics, Operation.DESCRIBE, call, broker)[0])


def _shown(topics: Iterable[T], call: Call, broker: Broker) -> list[T]:
    return split_topics(topics, Operation.DESCRIBE, call, broker, audited=False)[0]


def distinct_groups(request: OffsetFetchRequest) -> OffsetFetchRequest:
    """Drops repeated groups of which all offsets are requested (topics is null), as each response may be large."""
    whole = [group.group_id for group in request.groups if group.topics is None]
    if len(whole) == len(set(whole)):
        return request
    first = {group.group_id: group for group in reversed(request.groups) if group.topics is None}
    groups = [group for group in request.groups if group.topics is not None or first[group.group_id] is group]
    return OffsetFetchRequest(groups=groups, require_stable=request.require_stable)


def _code(error: PenstockError) -> int:
    """Returns the error's code; NOT_COORDINATOR for CoordinatorNotAvailable, as consumers before 3.9 need."""
    return ErrorCode.NOT_COORDINATOR if isinstance(error, CoordinatorNotAvailable) else error.code


def _group_error_response(part: OffsetFetchRequest, error: PenstockError) -> OffsetFetchResponse:
    (group,) = part.groups
    failed = OffsetFetchResponseGroup(group_id=group.group_id, topics=(), error_code=_code(error))
    return OffsetFetchResponse(groups=(failed,))


def _merge(
    asked: Sequence[OffsetFetchRequestGroup], call: Call, broker: Broker, answers: list[Any]
) -> OffsetFetchResponse:
    groups = [group for answer in answers for group in answer.groups]
    if call.authorizer is not None:
        groups = [_with_denied(*both, call, broker) for both in zip(asked, groups, strict=True)]
    return OffsetFetchResponse(groups=groups)


def _with_denied(
    asked: OffsetFetchRequestGroup, answer: OffsetFetchResponseGroup, call: Call, broker: Broker
) -> OffsetFetchResponseGroup:
    """Returns the response for a group with an error for each topic that the client has named and may not know."""
    if answer.error_code:
        return answer
    if asked.topics is None:
        return with_field(answer, "topics", _shown(answer.topics, call, broker))
    refused = [
        OffsetFetchResponseTopics(
            name=topic.name,
            topic_id=topic.topic_id,
            partitions=[
                OffsetFetchResponsePartitions(
                    partition_index=number,
                    committed_offset=-1,
                    metadata="",
                    error_code=ErrorCode.TOPIC_AUTHORIZATION_FAILED,
                )
                for number in topic.partition_indexes
            ],
        )
        for topic in split_topics(asked.topics, Operation.DESCRIBE, call, broker)[1]
    ]
    return with_field(answer, "topics", [*answer.topics, *refused]) if refused else answer


def _error_response(request: OffsetFetchRequest, version: int, error: PenstockError) -> OffsetFetchResponse:
    if version >= 2:
        return OffsetFetchResponse(error_code=_code(error))
    # Version 1 has error fields only in partitions.
    return OffsetFetchResponse(topics=[_error_topic(topic, _code(error)) for topic in request.topics or ()])


def _error_topic(topic: OffsetFetchRequestTopic, code: int) -> OffsetFetchResponseTopic:
    answers = [
        OffsetFetchResponsePartition(partition_index=number, committed_offset=-1, metadata="", error_code=code)
        for number in topic.partition_indexes
    ]
    return OffsetFetchResponseTopic(name=topic.name, partitions=answers)
