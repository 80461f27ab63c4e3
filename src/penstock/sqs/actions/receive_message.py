"""ReceiveMessage: returns up to ten messages, with long polling.

Hashing (MD5) and encoding ten messages of a megabyte takes a tenth of a second, so each message gets its own time
slice. If the client cannot have received the response, the deliveries are undone.
"""

from typing import Any, Final

from penstock.broker.queues.messages import Delivered
from penstock.cluster.queues import Queue
from penstock.foundation.steps import Steps
from penstock.sqs import checks, errors
from penstock.sqs.call import Call, Result
from penstock.sqs.checks import Params
from penstock.sqs.limits import RECEIVED, VISIBILITY_S, WAIT_S, Span
from penstock.sqs.message_attributes import NOTHING, Filter
from penstock.sqs.received_message import AttributeSelection, shown_message, size_of
from penstock.sqs.registry import action

LARGE_BYTES: Final = 1 << 20
"""Total size of the received messages, in bytes, above which each message is encoded in its own time slice."""
_ATTRIBUTE_PARAMETERS: Final = ("AttributeNames", "MessageSystemAttributeNames", "MessageAttributeNames")
_BODIES: Final = AttributeSelection()
_BODIES_IN_XML: Final = AttributeSelection(is_xml=True)


@action("ReceiveMessage", is_eager=True)
async def receive_message(call: Call) -> Result:
    queue, params = call.queue(), call.params
    settings = queue.settings
    count = _read_number(params, "MaxNumberOfMessages", RECEIVED, "between 1 and 10", 1)
    wait_s = _read_number(params, "WaitTimeSeconds", WAIT_S, ">= 0 and <= 20", settings.wait_s)
    visibility_s = _read_number(
        params, "VisibilityTimeout", VISIBILITY_S, ">= 0 and <= 43200", settings.visibility_timeout_s
    )
    attempt_id = checks.maybe_text(params, "ReceiveRequestAttemptId")
    if attempt_id is not None:
        checks.token("ReceiveRequestAttemptId", attempt_id)
        if not settings.is_fifo:
            raise errors.invalid_parameter(
                "ReceiveRequestAttemptId",
                attempt_id,
                "The request include parameter that is not valid for this queue type.",
            )
    selection = _selection(call, queue)
    messages = await call.service.receive(
        queue,
        max_messages=count,
        visibility_ms=1000 * visibility_s,
        wait_ms=1000 * wait_s,
        attempt_id=attempt_id or "",
    )
    call.on_lost = call.service.make_undo(queue, messages)
    if sum(map(size_of, messages)) > LARGE_BYTES:
        return await call.slices.run(_show_steps(call, queue, messages, selection))
    return {"Messages": [shown_message(queue, each, selection) for each in messages]} if messages else {}


def _show_steps(call: Call, queue: Queue, found: list[Delivered], selection: AttributeSelection) -> Steps[Result]:
    messages: list[Any] = []
    for each in found:
        messages.append(call.codec.encode_message(shown_message(queue, each, selection)))
        yield
    return {"Messages": messages}


def _read_number(params: Params, name: str, span: Span, wanted: str, default: int) -> int:
    """Returns an integer parameter, or `default`. Raises an error with the text `wanted` if it is not in `span`."""
    value = checks.maybe_int(params, name)
    return default if value is None else checks.within(name, value, span, f"Must be {wanted}, if provided.")


def _selection(call: Call, queue: Queue) -> AttributeSelection:
    if call.params.keys().isdisjoint(_ATTRIBUTE_PARAMETERS):
        return _BODIES_IN_XML if call.codec.is_xml else _BODIES
    # Most clients still send the older name of the system attributes.
    system = checks.texts(call.params, "AttributeNames") + checks.texts(call.params, "MessageSystemAttributeNames")
    attributes = checks.texts(call.params, "MessageAttributeNames")
    return AttributeSelection(
        Filter.of(system) if system else NOTHING,
        Filter.of(attributes) if attributes else NOTHING,
        call.region if system else "",
        call.endpoint.account,
        call.space_of(queue),
        call.codec.is_xml,
    )
