"""Queue attributes: converts AWS's attribute names and text values to QueueSettings and back."""

import json
from collections.abc import Callable, Mapping
from dataclasses import replace
from typing import Any, Final

from penstock.cluster.queues import (
    ALLOW_ALL,
    BY_QUEUE,
    DENY_ALL,
    PER_GROUP,
    PER_QUEUE,
    SCOPE_GROUP,
    SCOPE_QUEUE,
    QueueSettings,
    Redrive,
    RedriveAllow,
)
from penstock.sqs import errors, limits
from penstock.sqs.errors import INVALID_ATTRIBUTE_NAME, INVALID_ATTRIBUTE_VALUE, SqsError
from penstock.sqs.limits import Span
from penstock.sqs.permissions import POLICY, check_policy
from penstock.sqs.queue_names import name_in_arn

FullName = Callable[[str], str | None]
FIFO_QUEUE: Final = "FifoQueue"
ALL: Final = "All"
COUNTS: Final = (
    "ApproximateNumberOfMessages",
    "ApproximateNumberOfMessagesNotVisible",
    "ApproximateNumberOfMessagesDelayed",
)
SHOWN_ONLY: Final = {*COUNTS, "CreatedTimestamp", "LastModifiedTimestamp", "QueueArn"}
FIFO_ONLY: Final = {"ContentBasedDeduplication", "DeduplicationScope", "FifoThroughputLimit"}
KMS_KEY: Final = "KmsMasterKeyId"
KMS_REUSE: Final = "KmsDataKeyReusePeriodSeconds"
KMS_REUSE_DEFAULT: Final = "300"
MANAGED_SSE: Final = "SqsManagedSseEnabled"
PARTITIONS: Final = "PenstockPartitions"
RETENTION: Final = "PenstockRetentionPeriod"

INTEGERS: Final[dict[str, tuple[str, Span]]] = {
    "VisibilityTimeout": ("visibility_timeout_s", limits.VISIBILITY_S),
    "DelaySeconds": ("delay_s", limits.DELAY_S),
    "ReceiveMessageWaitTimeSeconds": ("wait_s", limits.WAIT_S),
    "MaximumMessageSize": ("message_bytes_max", limits.MESSAGE_BYTES),
    "MessageRetentionPeriod": ("retention_s", limits.RETENTION_S),
    RETENTION: ("retention_s", limits.LONG_RETENTION_S),
    PARTITIONS: ("partitions", limits.PARTITIONS),
}
CHOICES: Final[dict[str, tuple[str, tuple[str, ...]]]] = {
    "DeduplicationScope": ("deduplication_scope", (SCOPE_QUEUE, SCOPE_GROUP)),
    "FifoThroughputLimit": ("fifo_throughput_limit", (PER_QUEUE, PER_GROUP)),
}
_OTHERS: Final = {POLICY, KMS_KEY, KMS_REUSE, MANAGED_SSE}
"""Attributes whose values are stored and returned but, except the policy, have no effect."""
POLICIES: Final = {"RedrivePolicy", "RedriveAllowPolicy"}
KNOWN: Final = {*INTEGERS, *_OTHERS, *POLICIES, *SHOWN_ONLY, *FIFO_ONLY, FIFO_QUEUE}


def new_settings(attributes: Mapping[str, str], full_name: FullName = name_in_arn) -> QueueSettings:
    """Returns the settings of a new queue: these attributes, and defaults for all others. `full_name`: function
    that converts a queue's ARN to its name in the cluster: with a prefix if account or region is not the default."""
    is_fifo = FIFO_QUEUE in attributes
    if is_fifo and attributes[FIFO_QUEUE].lower() != "true":  # AWS accepts only true
        raise unknown(FIFO_QUEUE)
    settings = QueueSettings(is_fifo=is_fifo)
    others = {name: value for name, value in attributes.items() if name != FIFO_QUEUE}
    return changed(settings, others, full_name, is_new=True)


def changed(
    settings: QueueSettings, attributes: Mapping[str, str], full_name: FullName = name_in_arn, *, is_new: bool = False
) -> QueueSettings:
    """Returns the settings with these attributes changed; `is_new` if the queue is being created. `full_name`:
    function that converts a queue's ARN to its name in the cluster, which may have account and region as prefix; it
    returns None if its argument is not the ARN of a queue."""
    if attributes.get(KMS_KEY) and attributes.get(MANAGED_SSE, "").lower() == "true":
        raise SqsError(
            INVALID_ATTRIBUTE_NAME,
            "You can use one type of server-side encryption (SSE) at one time. You can either enable KMS SSE or SQS "
            "SSE.",
        )
    for name, value in attributes.items():
        if name in SHOWN_ONLY or name not in KNOWN or (name == FIFO_QUEUE and not settings.is_fifo):
            raise unknown(name)
        if name == FIFO_QUEUE:
            if value.lower() != "true":
                raise invalid_value(FIFO_QUEUE, "Modifying queue type is not supported.")
            continue
        if name in FIFO_ONLY and not settings.is_fifo:
            raise _for_fifo(name)
        if name == PARTITIONS and not is_new and value != str(settings.partitions):
            raise invalid_value(PARTITIONS, "It is fixed once the queue exists; add partitions to its topic instead.")
        settings = _set(settings, name, value, full_name)
    if settings.fifo_throughput_limit == PER_GROUP and settings.deduplication_scope != SCOPE_GROUP:
        raise invalid_value("FifoThroughputLimit", f"{PER_GROUP} needs a DeduplicationScope of {SCOPE_GROUP}.")
    return settings


def _for_fifo(name: str) -> SqsError:
    if name == "ContentBasedDeduplication":
        return unknown(name)
    return SqsError(INVALID_ATTRIBUTE_NAME, f"You can specify the {name} only when FifoQueue is set to true.")


def _set(settings: QueueSettings, name: str, value: str, full_name: FullName) -> QueueSettings:
    if name in INTEGERS:
        field, span = INTEGERS[name]
        numbers: dict[str, Any] = {field: _parse_int(name, value, span)}
        return replace(settings, **numbers)
    if name in CHOICES:
        field, choices = CHOICES[name]
        if value not in choices:
            raise invalid_value(name, f"Must be one of {', '.join(choices)}.")
        chosen: dict[str, Any] = {field: value}
        return replace(settings, **chosen)
    if name == "ContentBasedDeduplication":
        return replace(settings, content_based_deduplication=_parse_bool(name, value))
    if name == "RedrivePolicy":
        return replace(settings, redrive=_redrive(value, full_name))
    if name == "RedriveAllowPolicy":
        return replace(settings, redrive_allow=_redrive_allow(value, full_name))
    return replace(settings, others=_others(settings.others, name, value))


def _others(others: Mapping[str, str], name: str, value: str) -> dict[str, str]:
    if len(value.encode()) > limits.OTHER_BYTES_MAX:
        raise invalid_value(name, f"At most {limits.OTHER_BYTES_MAX} bytes are kept.")
    if name == POLICY and value:
        check_policy(value)
    elif name == KMS_REUSE:
        _parse_int(name, value, limits.DATA_KEY_REUSE_S)
    elif name == MANAGED_SSE:
        value = "true" if _parse_bool(name, value) else "false"
    stored = {**others, name: value}
    # A queue has one kind of encryption: the one set last.
    if name == KMS_KEY and value:
        stored[MANAGED_SSE] = "false"
    elif name == MANAGED_SSE and value == "true":
        stored[KMS_KEY] = ""
    return {each: stored[each] for each in stored if stored[each]}


def _parse_int(name: str, value: str, span: Span) -> int:
    if not (value.isascii() and value.isdigit() and len(value) < 19 and int(value) in span):
        raise invalid_value(name, f"Must be an integer from {span.least} to {span.most}.")
    return int(value)


def _parse_bool(name: str, value: str) -> bool:
    if value.lower() not in ("true", "false"):
        raise invalid_value(name, "Must be true or false.")
    return value.lower() == "true"


def _policy(name: str, value: str) -> dict[str, Any]:
    limit = limits.REDRIVE_POLICY_CHARS_MAX
    try:
        found = json.loads(value) if len(value) <= limit else None
    except (ValueError, RecursionError):
        found = None
    if not isinstance(found, dict):
        reason = f"{name} is not a valid JSON map of at most {limit} characters."
        raise errors.invalid_parameter(name, value[:1000], reason)
    return found


def _redrive(value: str, full_name: FullName) -> Redrive | None:
    """Returns the parsed RedrivePolicy; None if `value` is empty, which removes the policy."""
    if not value:
        return None
    found = _policy("RedrivePolicy", value)
    if not found:
        return None
    for name in ("deadLetterTargetArn", "maxReceiveCount"):
        if name not in found:
            raise _redrive_error(value, f"Redrive policy does not contain mandatory attribute: {name}.")
    if set(found) - {"deadLetterTargetArn", "maxReceiveCount"}:
        raise _redrive_error(
            value, "Only following attributes are supported: [deadLetterTargetArn, maxReceiveCount]."
        )
    arn, count = found["deadLetterTargetArn"], found["maxReceiveCount"]
    target = full_name(arn) if isinstance(arn, str) else None
    if target is None:
        raise _redrive_error(value, "Invalid value for deadLetterTargetArn.")
    # Also as a string, as in many templates.
    number = (
        int(count) if isinstance(count, str) and count.isascii() and count.isdigit() and len(count) < 9 else count
    )
    if type(number) is not int or number not in limits.RECEIVE_COUNT:
        span = limits.RECEIVE_COUNT
        raise _redrive_error(
            value,
            f"Invalid value for maxReceiveCount: {count}, valid values are from {span.least} to {span.most} "
            "both inclusive.",
        )
    return Redrive(queue=target, max_receive_count=number)


def _redrive_error(value: str, reason: str) -> SqsError:
    return errors.invalid_parameter("RedrivePolicy", value[:1000], reason)


def _redrive_allow(value: str, full_name: FullName) -> RedriveAllow:
    """Returns the parsed RedriveAllowPolicy; if `value` is empty, the default, which allows all source queues."""
    found = _policy("RedriveAllowPolicy", value) if value else {}
    if not found:
        return RedriveAllow()

    def fail(reason: str) -> SqsError:
        return errors.invalid_parameter("RedriveAllowPolicy", value[:1000], reason)

    permission, arns = found.get("redrivePermission"), found.get("sourceQueueArns", [])
    if permission not in (ALLOW_ALL, DENY_ALL, BY_QUEUE) or set(found) - {"redrivePermission", "sourceQueueArns"}:
        raise fail(f"redrivePermission must be one of {ALLOW_ALL}, {DENY_ALL} and {BY_QUEUE}.")
    if not isinstance(arns, list) or (permission == BY_QUEUE) != bool(arns):
        raise fail(f"sourceQueueArns are given with {BY_QUEUE}, and only then.")
    if len(arns) > limits.REDRIVE_SOURCES_MAX:
        raise fail(f"At most {limits.REDRIVE_SOURCES_MAX} sourceQueueArns can be given; use {ALLOW_ALL} instead.")
    names = [full_name(arn) if isinstance(arn, str) else None for arn in arns]
    if not all(names):
        raise fail("sourceQueueArns must be ARNs of queues.")
    return RedriveAllow(permission=permission, queues=tuple(name for name in names if name))


def unknown(name: str) -> SqsError:
    return SqsError(INVALID_ATTRIBUTE_NAME, f"Unknown Attribute {name[:256]}.")


def invalid_value(name: str, reason: str) -> SqsError:
    return SqsError(INVALID_ATTRIBUTE_VALUE, f"Invalid value for the parameter {name}. Reason: {reason}")


def shown(settings: QueueSettings, arn: Callable[[str], str]) -> dict[str, str]:
    """Returns the settings as queue attributes. `arn`: function that returns a queue's ARN, given its name in the
    cluster, which may have account and region as prefix."""
    found = {name: str(getattr(settings, field)) for name, (field, _) in INTEGERS.items()}
    if settings.retention_s in limits.RETENTION_S:
        found.pop(RETENTION)
    if not settings.partitions:
        found.pop(PARTITIONS)
    found |= _shown_others(settings.others)
    if settings.redrive is not None:
        target, count = arn(settings.redrive.queue), settings.redrive.max_receive_count
        found["RedrivePolicy"] = _dump({"deadLetterTargetArn": target, "maxReceiveCount": count})
    allow = settings.redrive_allow
    if allow != RedriveAllow():
        policy: dict[str, Any] = {"redrivePermission": allow.permission}
        if allow.queues:
            policy["sourceQueueArns"] = [arn(name) for name in allow.queues]
        found["RedriveAllowPolicy"] = _dump(policy)
    if settings.is_fifo:
        found[FIFO_QUEUE] = "true"
        found["ContentBasedDeduplication"] = "true" if settings.content_based_deduplication else "false"
        found["DeduplicationScope"] = settings.deduplication_scope
        found["FifoThroughputLimit"] = settings.fifo_throughput_limit
    return found


def _shown_others(others: Mapping[str, str]) -> dict[str, str]:
    """Returns the policy and encryption attributes: those in `others`, and AWS's defaults for encryption."""
    if KMS_KEY in others:
        return {KMS_REUSE: KMS_REUSE_DEFAULT, MANAGED_SSE: "false", **others}
    return {MANAGED_SSE: "true", **{name: value for name, value in others.items() if name != KMS_REUSE}}


def _dump(value: dict[str, Any]) -> str:
    return json.dumps(value, separators=(",", ":"))
