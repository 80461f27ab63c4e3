"""Message move tasks in the SQS API: task handles, source and destination ARNs, and task descriptions."""

import json
from base64 import urlsafe_b64decode, urlsafe_b64encode
from typing import Any

from penstock.broker.queues.messages import MoveStatus, MoveTask
from penstock.cluster.queues import Queue
from penstock.sqs import errors
from penstock.sqs.call import Call
from penstock.sqs.errors import RESOURCE_NOT_FOUND
from penstock.sqs.limits import HANDLE_CHARS_MAX
from penstock.sqs.queue_names import parts_of_arn


def queue_at(call: Call, parameter: str, arn: str) -> Queue:
    """Returns the queue that an ARN names. Raises ResourceNotFoundException if the caller has no such queue."""
    parts = parts_of_arn(arn)
    if parts is None:
        raise errors.invalid_value(
            f"You must use this format to specify the {parameter}: "
            "arn:<partition>:<service>:<region>:<account-id>:<resource-id>"
        )
    call.check_access(parts.name)
    space = call.space_in_arn(parts)
    # Messages can be moved only within one account, with its own keys.
    queue = call.find(parts.name, space) if call.caller is None or space == call.space else None
    if queue is None:
        message = f"The resource that you specified for the {parameter} parameter doesn't exist."
        raise errors.UnknownQueue(space.full(parts.name), RESOURCE_NOT_FOUND, message)
    call.check_denied(queue, parts.name, space)
    return queue


def handle_of(call: Call, task: MoveTask) -> str:
    """Returns the TaskHandle of a move task; it contains the source queue's ARN, to check access when it is used."""
    content = {"taskId": task.handle, "sourceArn": call.arn(task.source)}
    return urlsafe_b64encode(json.dumps(content).encode()).decode()


def read_handle(handle: str) -> tuple[str, str]:
    """Parses a TaskHandle; returns the task's internal handle and the ARN of its source queue."""
    try:
        content = json.loads(urlsafe_b64decode(handle) if len(handle) <= HANDLE_CHARS_MAX else "")
        task, arn = content["taskId"], content["sourceArn"]
    except (ValueError, KeyError, TypeError, RecursionError):
        task = arn = None
    if not isinstance(task, str) or not isinstance(arn, str):
        raise errors.invalid_value("Value for parameter TaskHandle is invalid.")
    return task, arn


def shown_task(call: Call, task: MoveTask) -> dict[str, Any]:
    """Returns a move task in the form of ListMessageMoveTasks; with a TaskHandle only while the task is running."""
    found: dict[str, Any] = {
        "Status": task.status.value,
        "SourceArn": call.arn(task.source),
        "ApproximateNumberOfMessagesMoved": task.moved,
        "ApproximateNumberOfMessagesToMove": task.to_move,
        "StartedTimestamp": task.started_ms,
    }
    if task.status is MoveStatus.RUNNING:
        found["TaskHandle"] = handle_of(call, task)
    if task.destination:
        found["DestinationArn"] = call.arn(task.destination)
    if task.per_second:
        found["MaxNumberOfMessagesPerSecond"] = task.per_second
    if task.status is MoveStatus.FAILED:
        found["FailureReason"] = task.failure
    return found
