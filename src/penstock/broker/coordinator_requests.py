"""Submits client requests to group and transaction coordinators, and answers with the coordinators' replies."""

import asyncio
from collections.abc import Awaitable, Callable, Sequence
from functools import partial
from typing import Any, Final

from penstock.broker.broker import Broker
from penstock.broker.call import Call
from penstock.foundation.acls import Operation, ResourceType
from penstock.foundation.decision import ClientRequest
from penstock.foundation.errors import NotAuthorized, PenstockError, TopicAuthorizationFailed
from penstock.foundation.steps import Steps, run_steps
from penstock.groups.commands import ClientDisconnected
from penstock.groups.errors import InvalidGroupId
from penstock.groups.modern.group import ModernGroup
from penstock.replication.runtime import Answer, StateRuntime
from penstock.replication.runtimes import StateRuntimes
from penstock.security.authorizer import Authorizer
from penstock.wire.schema import with_field

NOT_REQUESTED: Final = -(2**31)
"""Value of `authorized_operations` in a response if the request did not ask for them."""
ToErrorResponse = Callable[[PenstockError], Any]
"""Type of functions that build the response for an error."""


def error_response(response: Callable[..., Any], **fields: Any) -> ToErrorResponse:
    """Returns a function that builds, for an error, a response of this class with the error's code and message."""
    return lambda error: response(throttle_time_ms=0, error_code=error.code, error_message=error.message, **fields)


def command(request: Any, call: Call) -> ClientRequest:
    """Returns the request as a ClientRequest: with what the call tells of the client."""
    return ClientRequest(
        body=request,
        version=call.version,
        client_id=call.client_id or "",
        client_host=call.host,
        sees=None if call.authorizer is None else partial(_sees, call.authorizer, call.principal, call.host),
    )


def _sees(authorizer: Authorizer, principal: str, host: str, topic: str) -> bool:
    return authorizer.allows(principal, host, Operation.DESCRIBE, ResourceType.TOPIC, topic)


def ask(runtimes: StateRuntimes, key: str, request: Any, call: Call, to_error: ToErrorResponse) -> None:
    """Submits a request to the coordinator of a group or transactional id (`key`); its reply answers the call."""
    submit(runtimes, key, command(request, call), call, to_error)


def submit(runtimes: StateRuntimes, key: str, wanted: Any, call: Call, to_error: ToErrorResponse) -> None:
    """Like `ask`, but submits the coordinator command `wanted` rather than a client request."""
    runtimes.submit(key, wanted, _reply_receiver(call.answer, to_error))


def ask_cancellable(
    runtimes: StateRuntimes, group_id: str, request: Any, call: Call, to_error: ToErrorResponse
) -> None:
    """Like `ask`, for requests that may wait long: if the client disconnects, the group coordinator is notified."""
    receiver = _reply_receiver(call.answer, to_error)
    try:
        runtime = runtimes.find(group_id)
    except PenstockError as error:
        receiver(error)
        return
    ticket = runtime.submit(command(request, call), receiver)
    if not call.is_answered:
        call.on_disconnect = lambda: runtime.forget(ticket, ClientDisconnected(group_id=group_id, ticket=ticket))


def ask_each(
    broker: Broker,
    runtimes: StateRuntimes,
    parts: Sequence[tuple[str, Any]],
    operation: Operation,
    call: Call,
    to_error: Callable[[Any, PenstockError], Any],
    merge: Callable[[list[Any]], Any],
) -> Awaitable[None] | None:
    """Submits each part of a request to the coordinator of its key, if the client may do the `operation` with the
    group or transactional id; answers the call with the merged replies.

    Several parts are submitted in time slices: then the result must be awaited. A single part is submitted at once.
    """
    gatherer = ResponseGatherer(call, len(parts), merge)
    resource_type = ResourceType.GROUP if runtimes is broker.groups else ResourceType.TRANSACTIONAL_ID

    def submit() -> Steps[None]:
        for number, (key, part) in enumerate(parts):
            receive = gatherer.receiver(number, partial(to_error, part))
            if call.allows(operation, resource_type, key):
                runtimes.submit(key, command(part, call), receive)
            else:
                receive(NotAuthorized.of(call.principal, operation, resource_type, key))
            yield

    return broker.slices.run(submit()) if len(parts) > 1 else run_steps(submit())


def describe_each(
    broker: Broker, of: type[ModernGroup[Any, Any, Any]], request: Any, call: Call
) -> Awaitable[None] | None:
    """Answers ConsumerGroupDescribe, ShareGroupDescribe or StreamsGroupDescribe with descriptions from the groups'
    coordinators. `of`: the class of the groups to describe."""
    named = dict.fromkeys(filter(None, request.group_ids))
    nameless = InvalidGroupId("the group id is empty")
    errors = [of.describe_error(group_id, nameless) for group_id in request.group_ids if not group_id]

    def respond(groups: list[Any]) -> Any:
        return of.describe_response(throttle_time_ms=0, groups=groups)

    return ask_each(
        broker,
        broker.groups,
        [(group_id, with_field(request, "group_ids", (group_id,))) for group_id in named],
        Operation.DESCRIBE,
        call,
        lambda part, error: respond([of.describe_error(part.group_ids[0], error)]),
        lambda answers: respond(errors + [_shown(of, group, call) for answer in answers for group in answer.groups]),
    )


def _shown(of: type[ModernGroup[Any, Any, Any]], group: Any, call: Call) -> Any:
    """Returns the description of a group, or an error if the group reads a topic that the client may not know."""
    if call.authorizer is None or group.error_code:
        return group
    if group.authorized_operations != NOT_REQUESTED:
        group = with_field(group, "authorized_operations", call.operations(ResourceType.GROUP, group.group_id))
    if all(call.allows(Operation.DESCRIBE, ResourceType.TOPIC, name, audited=False) for name in _topics_in(group)):
        return group
    denied = TopicAuthorizationFailed(
        "The group has described topic(s) that the client is not authorized to describe."
    )
    return of.describe_error(group.group_id, denied)


def _topics_in(group: Any) -> set[str]:
    """Returns the topics that are named in the description of a group: they are assigned to its members or, for a
    streams group, in its topology."""
    topology = getattr(group, "topology", None)
    if topology is not None:
        return {
            name
            for part in topology.subtopologies or ()
            for name in (
                *part.source_topics,
                *part.repartition_sink_topics,
                *(topic.name for topic in (*part.repartition_source_topics, *part.state_changelog_topics)),
            )
        }
    assignments = (
        getattr(member, name)
        for member in group.members
        for name in ("assignment", "target_assignment")
        if hasattr(member, name)
    )
    return {topic.topic_name for assignment in assignments for topic in getattr(assignment, "topic_partitions", ())}


async def ask_all(
    broker: Broker,
    runtimes: Sequence[StateRuntime],
    request: Any,
    call: Call,
    to_error: ToErrorResponse,
    merge: Callable[[list[Any]], Any],
) -> None:
    """Submits a request to all given coordinators, in time slices; answers the call with the merged replies."""
    gatherer = ResponseGatherer(call, len(runtimes), merge)

    def submit() -> Steps[None]:
        for number, runtime in enumerate(runtimes):
            runtime.submit(command(request, call), gatherer.receiver(number, to_error))
            yield

    await broker.slices.run(submit())


async def reply_of(submit: Callable[[Answer], None]) -> Any:
    """Calls `submit` with a callback; returns the reply passed to the callback, which may be a PenstockError."""
    replied: asyncio.Future[Any] = asyncio.get_running_loop().create_future()

    def answer(reply: Any) -> None:
        if not replied.done():
            replied.set_result(reply)

    submit(answer)
    return await replied


async def ask_share_coordinator(broker: Broker, group_id: str, command: Any) -> Any:
    """Submits a command to a share group's coordinator and returns the reply; raises it if it is an error."""
    if not group_id:
        raise InvalidGroupId("the share group id is empty; give the id of the group")
    reply = await reply_of(partial(broker.groups.submit, group_id, command))
    if isinstance(reply, PenstockError):
        raise reply
    return reply


class ResponseGatherer:
    """Collects the parts of a response; when all have arrived, merges them in order and answers the call."""

    def __init__(self, call: Call, count: int, merge: Callable[[list[Any]], Any]) -> None:
        self._call = call
        self._merge = merge
        self._parts: list[Any] = [None] * count
        self._missing = count
        if not count:
            call.answer(merge([]))

    def receiver(self, number: int, to_error: ToErrorResponse) -> Answer:
        """Returns the callback for the part with index `number`; if an error arrives, `to_error` builds the part."""

        def take(part: Any) -> None:
            self._parts[number] = part
            self._missing -= 1
            if not self._missing:
                self._call.answer(self._merge(self._parts))

        return _reply_receiver(take, to_error)


def _reply_receiver(take: Callable[[Any], None], to_error: ToErrorResponse) -> Answer:
    """Returns a callback that passes a reply to `take`; if the reply is an error, passes `to_error(error)`."""

    def answer(reply: Any) -> None:
        take(to_error(reply) if isinstance(reply, PenstockError) else reply)

    return answer
