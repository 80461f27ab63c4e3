"""ReceiveMessage: up to ten messages, now or as soon as there are some."""

from penstock.broker.queues.messages import Delivered
from penstock.sqs import checks, errors
from penstock.sqs.call import Call, Outcome, Result, then
from penstock.sqs.limits import RECEIVED, VISIBILITY_S, WAIT_S
from penstock.sqs.message_attributes import NOTHING, Filter
from penstock.sqs.receiving import Wish, shown_message
from penstock.sqs.registry import action


@action("ReceiveMessage")
def receive_message(call: Call) -> Outcome:
    queue, params = call.queue(), call.params
    settings = queue.settings
    count = _whole(call, "MaxNumberOfMessages", 1)
    checks.within("MaxNumberOfMessages", count, RECEIVED, "Must be between 1 and 10, if provided.")
    wait_s = _whole(call, "WaitTimeSeconds", settings.wait_s)
    checks.within("WaitTimeSeconds", wait_s, WAIT_S, "Must be >= 0 and <= 20, if provided.")
    visibility_s = _whole(call, "VisibilityTimeout", settings.visibility_timeout_s)
    checks.within("VisibilityTimeout", visibility_s, VISIBILITY_S, "Must be >= 0 and <= 43200, if provided.")
    attempt_id = checks.maybe_text(params, "ReceiveRequestAttemptId")
    if attempt_id is not None:
        checks.token("ReceiveRequestAttemptId", attempt_id)
        if not settings.is_fifo:
            raise errors.invalid_parameter(
                "ReceiveRequestAttemptId",
                attempt_id,
                "The request include parameter that is not valid for this queue type.",
            )
    wish = _wish(call)

    def finish(found: list[Delivered]) -> Result:
        return {"Messages": [shown_message(queue, each, wish) for each in found]} if found else {}

    found = call.service.receive(
        queue,
        max_messages=count,
        visibility_ms=1000 * visibility_s,
        wait_ms=1000 * wait_s,
        attempt_id=attempt_id or "",
    )
    return then(found, finish)


def _whole(call: Call, name: str, default: int) -> int:
    value = call.params.get(name)
    if type(value) is int:
        return value
    found = checks.maybe_whole(call.params, name)
    return default if found is None else found


def _wish(call: Call) -> Wish:
    # The older name of the system attributes is still sent by most clients.
    system = checks.texts(call.params, "AttributeNames") + checks.texts(call.params, "MessageSystemAttributeNames")
    attributes = checks.texts(call.params, "MessageAttributeNames")
    return Wish(
        Filter.of(system) if system else NOTHING,
        Filter.of(attributes) if attributes else NOTHING,
        call.region if system else "",
        call.is_query,
    )
