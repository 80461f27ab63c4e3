"""Queue policies: what other accounts may do with a queue, in the AWS policy language. Pure.

Statements are evaluated by Effect, Principal, Action and Resource, where `*` and `?` are wildcards. Any other element
(Condition, NotPrincipal, NotAction, NotResource, variables, principals that are users or roles) is treated
restrictively: an Allow with such an element does not apply, but a Deny does. One Deny outweighs every Allow.
https://docs.aws.amazon.com/IAM/latest/UserGuide/reference_policies_evaluation-logic.html
"""

import json
import re
from collections.abc import Iterator
from fnmatch import translate
from functools import lru_cache
from typing import Any, Final, NamedTuple

POLICY_CHARS_MAX: Final = 8192
"""Maximum number of characters of a policy, as in AWS. A longer policy is not evaluated and allows nothing."""
POLICIES_KEPT: Final = 1000
ALLOW: Final = "Allow"
DENY: Final = "Deny"
_ACCOUNT: Final = re.compile(r"[0-9]{12}")
_PRINCIPAL_ARN: Final = re.compile(r"arn:[a-z-]+:(?:iam|sts)::([0-9]{12}):(.+)", re.DOTALL)
_NOT_EVALUATED: Final = ("NotPrincipal", "NotAction", "NotResource")
_ARN_PARTS: Final = 6
_ARN_REGION: Final = 3


class Request(NamedTuple):
    """A request to a queue that is signed with an access key of another account."""

    account: str
    action: str
    """Name of the SQS action, for example `SendMessage`."""
    resource: str
    """The ARN of the queue."""


class _Statement(NamedTuple):
    is_deny: bool
    is_evaluated: bool
    """Whether all elements of the statement are supported; if not, an Allow never applies, a Deny always does."""
    principals: tuple[str, ...]
    """Account ids, or `*` for all accounts; in a Deny, users and roles are replaced by their account ids."""
    actions: tuple[re.Pattern[str], ...]
    resources: tuple[re.Pattern[str], ...]

    def applies(self, request: Request) -> bool:
        if not self.is_evaluated:
            return self.is_deny
        if request.account not in self.principals and "*" not in self.principals:
            return False
        action, resource = request.action.lower(), _without_region(request.resource)
        return any(each.fullmatch(action) for each in self.actions) and any(
            each.fullmatch(resource) for each in self.resources
        )


def allows(policy: str, request: Request) -> bool:
    """Returns whether a policy allows a request from another account. A malformed policy allows nothing."""
    statements = _statements(policy) if len(policy) <= POLICY_CHARS_MAX else ()
    if any(each.is_deny and each.applies(request) for each in statements):
        return False
    return any(not each.is_deny and each.applies(request) for each in statements)


@lru_cache(maxsize=POLICIES_KEPT)
def _statements(policy: str) -> tuple[_Statement, ...]:
    try:
        document = json.loads(policy)
    except (ValueError, RecursionError):
        document = None
    found = document.get("Statement") if isinstance(document, dict) else None
    return tuple(_read(each) for each in ([found] if isinstance(found, dict) else _list(found)))


def _read(statement: Any) -> _Statement:
    if not isinstance(statement, dict) or statement.get("Effect") not in (ALLOW, DENY):
        return _Statement(True, False, (), (), ())  # malformed: treated as a Deny
    is_deny = statement["Effect"] == DENY
    principals = _principals(statement.get("Principal"), is_deny)
    actions = _texts(statement.get("Action"))
    resources = _texts(statement.get("Resource"))
    is_evaluated = (
        not statement.get("Condition")
        and not any(name in statement for name in _NOT_EVALUATED)
        and principals is not None
        and bool(actions)
        and bool(resources)
        and not any("${" in resource for resource in resources)
    )
    if not is_evaluated or principals is None:
        return _Statement(is_deny, False, (), (), ())
    return _Statement(
        is_deny,
        True,
        principals,
        tuple(_pattern(_action(each)) for each in actions),
        tuple(_pattern(_without_region(each)) for each in resources),
    )


def _principals(principal: Any, is_deny: bool) -> tuple[str, ...] | None:
    """Returns the account ids that a Principal element names (`*`: all); None if the element is missing or
    malformed. `is_deny`: in a Deny, a user or role counts as its whole account; in an Allow it is left out."""
    if principal == "*":
        return ("*",)
    if not isinstance(principal, dict) or not principal:
        return None
    if is_deny and "CanonicalUser" in principal:
        return ("*",)  # another name of an account: it could be any
    return tuple(_accounts(_texts(principal.get("AWS")), is_deny))


def _accounts(names: list[str], is_deny: bool) -> Iterator[str]:
    for name in names:
        found = _PRINCIPAL_ARN.fullmatch(name)
        if name == "*" or _ACCOUNT.fullmatch(name):
            yield name
        elif found is not None and (is_deny or found[2] == "root"):
            yield found[1]
        elif is_deny and found is None:
            yield "*"  # the unique id of a user, or malformed: it could be any account


def _texts(value: Any) -> list[str]:
    return [each for each in ([value] if isinstance(value, str) else _list(value)) if isinstance(each, str)]


def _list(value: Any) -> list[Any]:
    return value if isinstance(value, list) else []


def _action(name: str) -> str:
    """Returns the action name in lower case without the prefix `sqs:`; empty for actions of another service."""
    name = name.lower()
    return name if name == "*" else name.removeprefix("sqs:") if name.startswith("sqs:") else ""


def _without_region(arn: str) -> str:
    """Removes the region from an ARN or ARN pattern: queues have no region, and clients may sign for any region."""
    parts = arn.split(":", _ARN_PARTS - 1)
    if len(parts) == _ARN_PARTS:
        parts[_ARN_REGION] = ""
    return ":".join(parts)


def _pattern(text: str) -> re.Pattern[str]:
    """Compiles a pattern in which only `*` and `?` are wildcards; matching does not backtrack."""
    return re.compile(translate(text.replace("[", "[[]")))
