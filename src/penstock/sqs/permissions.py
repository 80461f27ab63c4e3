"""Queue permissions: AddPermission and RemovePermission as labelled statements of the Policy attribute. Pure.

As on AWS, a client that sets the Policy attribute replaces all statements.
https://docs.aws.amazon.com/AWSSimpleQueueService/latest/APIReference/API_AddPermission.html
"""

import json
import re
from collections.abc import Sequence
from typing import Any, Final

from penstock.sqs import errors
from penstock.sqs.errors import INVALID_ATTRIBUTE_VALUE, OVER_LIMIT, SqsError
from penstock.sqs.limits import (
    ACTIONS_PER_STATEMENT_MAX,
    LABEL_CHARS_MAX,
    POLICY_BYTES_MAX,
    POLICY_PRINCIPALS_MAX,
    POLICY_STATEMENTS_MAX,
)

POLICY: Final = "Policy"
"""Name of the queue attribute that contains the permissions."""
VERSION: Final = "2008-10-17"
SHARED_ACTIONS: Final = frozenset(
    (
        "ChangeMessageVisibility",
        "DeleteMessage",
        "GetQueueAttributes",
        "GetQueueUrl",
        "ListDeadLetterSourceQueues",
        "PurgeQueue",
        "ReceiveMessage",
        "SendMessage",
    )
)
"""Actions that a policy can allow to other accounts; each also allows its batch action."""
_LABEL: Final = re.compile(rf"[A-Za-z0-9_-]{{1,{LABEL_CHARS_MAX}}}")
_ACCOUNT: Final = re.compile(r"[0-9]{12}")


def check_policy(policy: str) -> None:
    """Raises InvalidAttributeValue unless the policy is a JSON document with statements, and not too long."""
    if not _statements(_read(policy)):
        raise _unreadable()


def check_label(label: str) -> str:
    if not _LABEL.fullmatch(label):
        raise errors.invalid_parameter(
            "Label",
            label[: 4 * LABEL_CHARS_MAX],
            f"Can only include alphanumeric characters, hyphens, or underscores. 1 to {LABEL_CHARS_MAX} in length.",
        )
    return label


def check_actions(actions: Sequence[str], known: Sequence[str]) -> None:
    """Raises unless a policy can allow all `actions` to other accounts. `known`: names of all SQS actions."""
    if not actions:
        raise errors.missing("Actions")
    if len(actions) > ACTIONS_PER_STATEMENT_MAX:
        raise SqsError(
            OVER_LIMIT, f"{len(actions)} Actions were found, maximum allowed is {ACTIONS_PER_STATEMENT_MAX}."
        )
    for name in actions:
        if name != "*" and name not in SHARED_ACTIONS:
            reason = (
                "Only the queue owner is allowed to invoke this action."
                if name in known and name.removesuffix("Batch") not in SHARED_ACTIONS
                else "Please refer to the appropriate WSDL for a list of valid actions."
            )
            raise errors.invalid_parameter("ActionName", f"SQS:{name[:100]}", reason)


def principals_of(accounts: Sequence[str]) -> list[str]:
    """Returns the account ids as ARNs; skips invalid ids. Raises if all ids are invalid or there are too many."""
    if len(accounts) > POLICY_PRINCIPALS_MAX:
        raise SqsError(
            OVER_LIMIT, f"{len(accounts)} Principals were found, maximum allowed is {POLICY_PRINCIPALS_MAX}."
        )
    found = [f"arn:aws:iam::{account}:root" for account in dict.fromkeys(accounts) if _ACCOUNT.fullmatch(account)]
    if not found:
        shown = ", ".join(account[:20] for account in accounts)
        raise errors.invalid_parameter("PrincipalId", f"[{shown}]", "Unable to verify.")
    return found


def with_statement(policy: str, arn: str, label: str, principals: Sequence[str], actions: Sequence[str]) -> str:
    """Returns the policy with one more statement. Raises InvalidParameterValue if the label exists, and OverLimit
    if the policy becomes too large."""
    document = _read(policy) if policy else {"Version": VERSION, "Id": f"{arn}/SQSDefaultPolicy", "Statement": []}
    statements = _statements(document)
    if any(statement.get("Sid") == label for statement in statements):
        raise errors.invalid_parameter("Label", label, "Already exists.")
    if len(statements) >= POLICY_STATEMENTS_MAX:
        raise SqsError(OVER_LIMIT, f"A policy has at most {POLICY_STATEMENTS_MAX} statements.")
    added = {
        "Sid": label,
        "Effect": "Allow",
        "Principal": {"AWS": _one_or_list(principals)},
        "Action": _one_or_list([f"SQS:{name}" for name in actions]),
        "Resource": arn,
    }
    text = _dump({**document, "Statement": [*statements, added]})
    if len(text.encode()) > POLICY_BYTES_MAX:
        raise SqsError(OVER_LIMIT, f"A policy has at most {POLICY_BYTES_MAX} bytes.")
    return text


def without_statement(policy: str, label: str) -> str:
    """Returns the policy without the statement labelled `label`; an empty string if no statement is left."""
    document = _read(policy) if policy else {}
    statements = _statements(document) if policy else []
    left = [statement for statement in statements if statement.get("Sid") != label]
    if len(left) == len(statements):
        raise errors.invalid_parameter("Label", label, "can't find label.")
    return _dump({**document, "Statement": left}) if left else ""


def _read(policy: str) -> dict[str, Any]:
    try:
        found = json.loads(policy) if len(policy.encode()) <= POLICY_BYTES_MAX else None
    except (ValueError, RecursionError):
        found = None
    if not isinstance(found, dict):
        raise _unreadable()
    return found


def _statements(document: dict[str, Any]) -> list[dict[str, Any]]:
    """Returns the statements of a policy as a list; in the document, a single statement need not be in a list."""
    found = document.get("Statement")
    statements = [found] if isinstance(found, dict) else found
    if not isinstance(statements, list) or not all(isinstance(each, dict) for each in statements):
        raise _unreadable()
    return statements


def _unreadable() -> SqsError:
    return SqsError(
        INVALID_ATTRIBUTE_VALUE,
        "Invalid value for the parameter Policy. Reason: It must be a JSON document with at least one statement, of "
        f"at most {POLICY_BYTES_MAX} bytes.",
    )


def _one_or_list(values: Sequence[str]) -> str | list[str]:
    return values[0] if len(values) == 1 else list(values)


def _dump(document: dict[str, Any]) -> str:
    return json.dumps(document, separators=(",", ":"))
