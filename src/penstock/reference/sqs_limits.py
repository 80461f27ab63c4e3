"""Table of the limits of the SQS API, and whether AWS or Penstock sets them."""

from collections.abc import Iterator
from typing import Final

from penstock.network.http_reader import BODY_BYTES_MAX, FRAMING_BYTES_MAX, HEADER_BYTES_MAX, HEADER_OVERHEAD_BYTES
from penstock.queues.settings import IN_FLIGHT_MAX
from penstock.reference.tables import size, table
from penstock.security.sigv4 import PARAMETERS_MAX as SIGNED_PARAMETERS_MAX
from penstock.security.sigv4 import SIGNED_HEADERS_MAX
from penstock.sqs import limits
from penstock.sqs.json_codec import STRINGS_MAX, STRUCTURE_BYTES_MAX, UNCHECKED_BYTES

_AWS: Final = "AWS"
_OURS: Final = "Penstock"


def _of_messages() -> Iterator[tuple[str, str, str]]:
    yield (
        "a message: its body, and names, types and values of its attributes",
        f"{limits.MESSAGE_BYTES.most:,} bytes, or the queue's MaximumMessageSize",
        _AWS,
    )
    yield (
        "a batch",
        f"{limits.BATCH_ENTRIES_MAX} entries, {limits.BATCH_BYTES_MAX:,} bytes, ids of {limits.BATCH_ID_CHARS_MAX} "
        "characters",
        _AWS,
    )
    yield ("a receive", f"{limits.RECEIVED.most} messages, {limits.WAIT_S.most} s", _AWS)
    yield (
        "attributes of a message",
        f"{limits.MESSAGE_ATTRIBUTES_MAX}; names and types of {limits.ATTRIBUTE_NAME_CHARS_MAX} characters, numbers "
        f"of {limits.NUMBER_DIGITS_MAX} digits",
        _AWS,
    )
    yield ("Kafka record headers that are returned as attributes", f"{limits.ATTRIBUTES_SHOWN_MAX:,}", _OURS)
    yield (
        "MessageGroupId, MessageDeduplicationId, ReceiveRequestAttemptId",
        f"{limits.TOKEN_CHARS_MAX} characters",
        _AWS,
    )
    yield ("X-Amzn-Trace-Id that messages get", f"{limits.TRACE_CHARS_MAX:,} characters", _OURS)
    yield (
        "messages in flight",
        f"{IN_FLIGHT_MAX:,} per queue: then `OverLimit`, or no more messages from a FIFO queue",
        _AWS,
    )
    yield ("receipt handles", f"{limits.RECEIPT_CHARS_MAX:,} characters", _AWS)


def _of_queues() -> Iterator[tuple[str, str, str]]:
    yield (
        "the name of a queue",
        f"{limits.QUEUE_NAME_CHARS_MAX} characters, with `.fifo`; {limits.FULL_NAME_CHARS_MAX} with its account and "
        "region",
        _AWS,
    )
    yield (
        "tags",
        f"{limits.TAGS_MAX}; keys of {limits.TAG_KEY_CHARS_MAX} characters, values of {limits.TAG_VALUE_CHARS_MAX}",
        _AWS,
    )
    yield ("a page of queues", f"{limits.RESULTS_MAX:,}", _AWS)
    yield (
        "a move task",
        f"{limits.MOVES_PER_S.most} messages a second, one at a time for a queue; the last {limits.MOVE_TASKS_MAX} "
        "are listed",
        _AWS,
    )
    yield (
        "a Policy",
        f"{limits.POLICY_BYTES_MAX:,} bytes; by AddPermission {limits.POLICY_STATEMENTS_MAX} statements, "
        f"{limits.POLICY_PRINCIPALS_MAX} accounts and {limits.ACTIONS_PER_STATEMENT_MAX} actions in each, labels of "
        f"{limits.LABEL_CHARS_MAX} characters",
        _AWS,
    )
    yield ("RedrivePolicy, RedriveAllowPolicy", f"{limits.REDRIVE_POLICY_CHARS_MAX:,} characters", _OURS)
    yield ("text of an attribute that is only stored and returned", f"{limits.OTHER_BYTES_MAX:,} bytes", _OURS)
    yield ("task handles and tokens of pages", f"{limits.HANDLE_CHARS_MAX:,} characters", _OURS)
    yield ("ARNs", f"{limits.ARN_CHARS_MAX} characters", _OURS)


def _of_requests() -> Iterator[tuple[str, str, str]]:
    yield ("a list or a map in a request, unless a lower limit is named here", f"{limits.NAMES_MAX:,} entries", _OURS)
    yield (
        "an HTTP request",
        f"{size(BODY_BYTES_MAX)} of body; {size(HEADER_BYTES_MAX)} of URL, and of headers, counted with "
        f"{HEADER_OVERHEAD_BYTES} extra bytes per header; {size(FRAMING_BYTES_MAX)} of chunk sizes, chunk extensions "
        "and trailers",
        _OURS,
    )
    yield (
        f"a request in JSON of more than {size(UNCHECKED_BYTES)}",
        f"{STRINGS_MAX:,} strings, and {size(STRUCTURE_BYTES_MAX)} besides them",
        _OURS,
    )
    yield (
        "a request of the Query protocol",
        f"{limits.PARAMETERS_MAX:,} parameters in the URL, and {limits.PARAMETERS_MAX:,} in the form; "
        f"{limits.PARAMETER_PARTS_MAX} parts to a name",
        _OURS,
    )
    yield (
        "a signature",
        f"{SIGNED_HEADERS_MAX} signed headers, {SIGNED_PARAMETERS_MAX:,} parameters in the URL",
        _OURS,
    )
    yield (
        "HTTP connections",
        "`http.max.connections`: others get `503`, on which SDKs retry; `/healthz`, `/readyz` and `/metrics` are "
        "answered even then",
        _OURS,
    )


def limit_table() -> str:
    return table(("what", "limit", "set by"), (*_of_messages(), *_of_queues(), *_of_requests()))
