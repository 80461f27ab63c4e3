"""ListMessageMoveTasks: lists the recent move tasks of a source queue, newest first."""

from penstock.sqs import checks
from penstock.sqs.call import Call, Result
from penstock.sqs.limits import MOVE_TASKS_MAX, Span
from penstock.sqs.move_tasks import queue_at, shown_task
from penstock.sqs.registry import action


@action("ListMessageMoveTasks")
async def list_message_move_tasks(call: Call) -> Result:
    source = queue_at(call, "SourceArn", checks.text(call.params, "SourceArn"))
    limit = checks.maybe_int(call.params, "MaxResults")
    if limit is None:
        limit = 1
    checks.within("MaxResults", limit, Span(1, MOVE_TASKS_MAX), f"Must be between 1 and {MOVE_TASKS_MAX}.")
    tasks = sorted(await call.service.moves(source), key=lambda task: task.started_ms, reverse=True)
    return {"Results": [shown_task(call, task) for task in tasks[:limit]]} if tasks else {}
