"""DelayedMessages: lists or cancels delayed messages on a partition led by this broker. Penstock's own API."""

import asyncio
from typing import Any

from penstock.broker.broker import Broker
from penstock.broker.call import Call
from penstock.broker.delays.partition import DelayPartition
from penstock.broker.registry import handles
from penstock.delays.entries import Rank
from penstock.foundation.acls import Operation, ResourceType
from penstock.foundation.errors import CoordinatorLoadInProgress, InvalidRequest, PenstockError
from penstock.log.setting_table import DELAYED_MESSAGES
from penstock.records.delayed import read_raw
from penstock.wire.keys import ApiKey
from penstock.wire.messages.delayed_messages import (
    CANCEL,
    CANCEL_KEY,
    LIST,
    OFFSETS_MAX,
    PAGE_MAX,
    CancelledMessage,
    DelayedMessagesRequest,
    DelayedMessagesResponse,
    WaitingMessage,
)


@handles(ApiKey.DELAYED_MESSAGES)
async def delayed_messages(request: DelayedMessagesRequest, call: Call, broker: Broker) -> DelayedMessagesResponse:
    try:
        operation = Operation.READ if request.action == LIST else Operation.WRITE
        call.check(operation, ResourceType.TOPIC, request.topic)
        found = _find(request, broker)
        if request.action == LIST:
            return await _list(request, found)
        return await _cancel(request, found)
    except PenstockError as error:
        return DelayedMessagesResponse(error_code=error.code, error_message=error.message)


def _find(request: DelayedMessagesRequest, broker: Broker) -> DelayPartition:
    partition = broker.partition(request.topic, b"", request.partition)
    if not partition.log.settings.delayed:
        raise InvalidRequest(
            f"topic {request.topic!r} has no delayed messages; set {DELAYED_MESSAGES}=true on it to enable them"
        )
    found = broker.delays.find(partition.topic_id, request.partition) if broker.delays is not None else None
    if found is None or not found.is_ready:
        raise CoordinatorLoadInProgress(f"delayed messages of {partition.name} are being loaded; try again")
    return found


async def _list(request: DelayedMessagesRequest, found: DelayPartition) -> DelayedMessagesResponse:
    count_max = min(max(0, request.count_max), PAGE_MAX)
    messages = []
    for entry in found.machine.pending.page(Rank(request.after_due_ms, request.after_offset), count_max):
        stored = (await found.read(entry)).stored
        key, value, _ = read_raw(stored.raw)
        messages.append(
            WaitingMessage(
                offset=entry.offset,
                due_ms=entry.due_ms,
                timestamp_ms=stored.timestamp_ms,
                key=key,
                value_bytes=-1 if value is None else len(value),
            )
        )
    return DelayedMessagesResponse(pending=found.machine.pending_count, messages=messages)


async def _cancel(request: DelayedMessagesRequest, found: DelayPartition) -> DelayedMessagesResponse:
    if request.action == CANCEL_KEY:
        if request.key is None:
            raise InvalidRequest("messages without a key can only be cancelled by offset")
        offsets = await found.find_key(bytes(request.key))
    elif request.action == CANCEL:
        offsets = list(request.offsets)
        if not 0 < len(offsets) <= OFFSETS_MAX:
            raise InvalidRequest(f"{len(offsets)} offsets to cancel; a request takes 1 to {OFFSETS_MAX}")
    else:
        raise InvalidRequest(f"DelayedMessages has no action {request.action}")
    done: dict[int, bool] = {}
    for start in range(0, len(offsets), OFFSETS_MAX):
        some = offsets[start : start + OFFSETS_MAX]
        done.update(await _cancel_offsets(found, some))
    return DelayedMessagesResponse(
        pending=found.machine.pending_count,
        cancelled=[CancelledMessage(offset=offset, was_pending=pending) for offset, pending in done.items()],
    )


async def _cancel_offsets(found: DelayPartition, offsets: list[int]) -> dict[int, bool]:
    outcome: asyncio.Future[Any] = asyncio.get_running_loop().create_future()

    def take(reply: Any) -> None:
        if not outcome.done():
            outcome.set_result(reply)

    found.cancel(offsets, take)
    reply = await outcome
    if isinstance(reply, PenstockError):
        raise reply
    return dict(reply)
