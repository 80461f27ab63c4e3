"""OffsetFetch: returns the committed offsets of groups, each from its coordinator."""

from collections.abc import Awaitable
from functools import partial
from typing import Any

from penstock.broker.broker import Broker
from penstock.broker.call import Call
from penstock.broker.coordinator_requests import ask, ask_each
from penstock.broker.registry import handles
from penstock.foundation.codes import ErrorCode
from penstock.foundation.errors import CoordinatorNotAvailable, PenstockError
from penstock.wire.keys import ApiKey
from penstock.wire.messages.offset_fetch import (
    OffsetFetchRequest,
    OffsetFetchRequestTopic,
    OffsetFetchResponse,
    OffsetFetchResponseGroup,
    OffsetFetchResponsePartition,
    OffsetFetchResponseTopic,
)


@handles(ApiKey.OFFSET_FETCH)
def offset_fetch(request: OffsetFetchRequest, call: Call, broker: Broker) -> Awaitable[None] | None:
    if call.version < 8:
        on_error = partial(_error_response, request, call.version)
        ask(broker.groups, request.group_id, request, call, on_error)
        return None
    parts = [
        (group.group_id, OffsetFetchRequest(groups=(group,), require_stable=request.require_stable))
        for group in distinct_groups(request).groups
    ]
    return ask_each(broker, broker.groups, parts, call, _group_error_response, _merge)


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


def _merge(answers: list[Any]) -> OffsetFetchResponse:
    return OffsetFetchResponse(groups=[group for answer in answers for group in answer.groups])


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
