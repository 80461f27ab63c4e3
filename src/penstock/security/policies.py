"""Queue policies in the AWS policy language. Pure.

Statements are evaluated by Effect, Principal, Action, Resource, their opposites (NotPrincipal, NotAction and
NotResource) and Condition; `*` and `?` are wildcards. What is not known (variables, principals that are users or
roles, unknown condition keys and operators) is treated restrictively: an Allow with it does not apply, but a Deny for
another account does. One Deny outweighs every Allow.
https://docs.aws.amazon.com/IAM/latest/UserGuide/reference_policies_evaluation-logic.html
"""

import json
import re
from collections.abc import Callable, Iterator, Mapping
from fnmatch import translate
from functools import lru_cache
from typing import Any, Final, NamedTuple

from penstock.security.policy_conditions import Condition, Facts, read_conditions

POLICY_CHARS_MAX: Final = 8192
"""Maximum number of characters of a policy, as in AWS. A longer policy is not evaluated and allows nothing."""
POLICIES_KEPT: Final = 1000
ALLOW: Final = "Allow"
DENY: Final = "Deny"
_ACCOUNT: Final = re.compile(r"[0-9]{12}")
_PRINCIPAL_ARN: Final = re.compile(r"arn:[a-z-]+:(?:iam|sts)::([0-9]{12}):(.+)", re.DOTALL)
_ARN_PARTS: Final = 6
_ARN_REGION: Final = 3


class Request(NamedTuple):
    """A request to a queue that is signed with an access key."""

    account: str
    action: str
    """Name of the SQS action, for example `SendMessage`."""
    resource: str
    """The ARN of the queue."""
    facts: Callable[[], Facts] = dict
    """Returns what conditions may ask for; called once if there are conditions."""


class _Names(NamedTuple):
    """Patterns of one element, for example of Action; or of its opposite, which matches all others."""

    patterns: tuple[re.Pattern[str], ...]
    is_opposite: bool

    def has(self, text: str) -> bool:
        return any(each.fullmatch(text) for each in self.patterns) is not self.is_opposite


class _Statement(NamedTuple):
    is_deny: bool
    is_evaluated: bool
    """Whether all elements of the statement are supported; if not, an Allow never applies, a Deny to others does."""
    principals: tuple[str, ...]
    """Account ids, or `*` for all accounts; in a Deny, users and roles are replaced by their account ids."""
    has_others: bool
    """Whether `principals` are those to which the statement does not apply (NotPrincipal)."""
    actions: _Names
    resources: _Names
    conditions: tuple[Condition, ...]

    def applies(self, request: Request) -> bool:
        """Whether the statement applies to a request. Only if it is evaluated."""
        is_named = request.account in self.principals or "*" in self.principals
        if is_named is self.has_others or not self.actions.has(request.action.lower()):
            return False
        if not self.resources.has(_without_region(request.resource)):
            return False
        if not self.conditions:
            return True
        facts = request.facts()
        return all(condition(facts) for condition in self.conditions)


def allows(policy: str, request: Request) -> bool:
    """Returns whether a policy allows a request from another account. A malformed policy allows nothing."""
    statements = _statements(policy) if len(policy) <= POLICY_CHARS_MAX else ()
    if any(each.is_deny and (not each.is_evaluated or each.applies(request)) for each in statements):
        return False
    return any(not each.is_deny and each.is_evaluated and each.applies(request) for each in statements)


def denies(policy: str, request: Request) -> bool:
    """Returns whether a policy denies a request from the account of the queue, which needs no Allow of it."""
    statements = _statements(policy) if len(policy) <= POLICY_CHARS_MAX else ()
    return any(each.is_deny and each.is_evaluated and each.applies(request) for each in statements)


@lru_cache(maxsize=POLICIES_KEPT)
def _statements(policy: str) -> tuple[_Statement, ...]:
    try:
        document = json.loads(policy)
    except (ValueError, RecursionError):
        document = None
    found = document.get("Statement") if isinstance(document, dict) else None
    return tuple(_read(each) for each in ([found] if isinstance(found, dict) else _list(found)))


_UNKNOWN: Final = _Names((), False)


def _read(statement: Any) -> _Statement:
    malformed = _Statement(True, False, (), False, _UNKNOWN, _UNKNOWN, ())  # treated as a Deny
    if not isinstance(statement, dict) or statement.get("Effect") not in (ALLOW, DENY):
        return malformed
    is_deny = statement["Effect"] == DENY
    has_others = "NotPrincipal" in statement
    # With NotPrincipal, a Deny must not leave out too many, and an Allow not too few.
    principals = _principals(statement.get("NotPrincipal" if has_others else "Principal"), is_deny is not has_others)
    actions = _names(statement, "Action", _action)
    resources = _names(statement, "Resource", _without_region)
    conditions = read_conditions(statement.get("Condition") or {})
    has_both = has_others and "Principal" in statement
    if principals is None or has_both or actions is None or resources is None or conditions is None:
        return malformed._replace(is_deny=is_deny)
    return _Statement(is_deny, True, principals, has_others, actions, resources, conditions)


def _names(statement: Mapping[str, Any], element: str, clean: Callable[[str], str]) -> _Names | None:
    """Returns the patterns of an element or of its opposite; None if they are missing or have variables."""
    opposite = f"Not{element}"
    if (element in statement) is (opposite in statement):
        return None
    texts = _texts(statement.get(element, statement.get(opposite)))
    if not texts or any("${" in text for text in texts):
        return None
    return _Names(tuple(_pattern(clean(text)) for text in texts), opposite in statement)


def _principals(principal: Any, is_wide: bool) -> tuple[str, ...] | None:
    """Returns the account ids that a Principal element names (`*`: all); None if the element is missing or
    malformed. `is_wide`: a user or role counts as its whole account, as in a Deny; otherwise it is left out."""
    if principal == "*":
        return ("*",)
    if not isinstance(principal, dict) or not principal:
        return None
    if is_wide and "CanonicalUser" in principal:
        return ("*",)  # another name of an account: it could be any
    return tuple(_accounts(_texts(principal.get("AWS")), is_wide))


def _accounts(names: list[str], is_wide: bool) -> Iterator[str]:
    for name in names:
        found = _PRINCIPAL_ARN.fullmatch(name)
        if name == "*" or _ACCOUNT.fullmatch(name):
            yield name
        elif found is not None and (is_wide or found[2] == "root"):
            yield found[1]
        elif is_wide and found is None:
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
