"""StartMessageMoveTask: redrives dead letters to their source queues, or to a given queue."""

from penstock.cluster.queue_changes import sources_of
from penstock.sqs import checks, errors
from penstock.sqs.call import Call, Result
from penstock.sqs.limits import MOVES_PER_S
from penstock.sqs.move_tasks import handle_of, queue_at
from penstock.sqs.registry import action
from penstock.sqs.topic_rights import check_writes


@action("StartMessageMoveTask")
async def start_message_move_task(call: Call) -> Result:
    source = queue_at(call, "SourceArn", checks.text(call.params, "SourceArn"))
    sources = sources_of(call.service.image, source.name)
    if not sources:
        raise errors.invalid_value("Source queue must be configured as a Dead Letter Queue.")
    arn = checks.maybe_text(call.params, "DestinationArn")
    destination = queue_at(call, "DestinationArn", arn) if arn else None
    if destination is not None and destination.name == source.name:
        raise errors.invalid_value("Source queue arn and destination queue arn cannot be the same.")
    if destination is not None and destination.settings.is_fifo != source.settings.is_fifo:
        raise errors.invalid_value("Source queue and destination queue must be of the same type.")
    check_writes(call, sources if destination is None else [destination])
    per_second = checks.maybe_int(call.params, "MaxNumberOfMessagesPerSecond")
    if per_second is not None:
        reason = f"Must be between {MOVES_PER_S.least} and {MOVES_PER_S.most}."
        checks.within("MaxNumberOfMessagesPerSecond", per_second, MOVES_PER_S, reason)
    task = await call.service.start_move(source, destination, per_second or 0)
    return {"TaskHandle": handle_of(call, task)}
