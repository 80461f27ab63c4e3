"""Conditions of policy statements, as in AWS: operators over what is known about a request. Pure.

https://docs.aws.amazon.com/IAM/latest/UserGuide/reference_policies_elements_condition_operators.html
"""

import re
from collections.abc import Callable, Mapping
from datetime import UTC, datetime
from fnmatch import translate
from ipaddress import ip_address, ip_network
from typing import Any, Final

Facts = Mapping[str, str]
"""What is known about a request: values by condition key, in lower case. A key that is missing has no value."""
Condition = Callable[[Facts], bool]
Compare = Callable[[str, str], bool]
"""Compares a value of the request with a value of the policy. Raises ValueError if one of them is malformed."""

SOURCE_IP: Final = "aws:sourceip"
SECURE_TRANSPORT: Final = "aws:securetransport"
PRINCIPAL_ACCOUNT: Final = "aws:principalaccount"
CURRENT_TIME: Final = "aws:currenttime"
EPOCH_TIME: Final = "aws:epochtime"
USER_AGENT: Final = "aws:useragent"
REQUESTED_REGION: Final = "aws:requestedregion"
KNOWN_KEYS: Final = frozenset(
    (SOURCE_IP, SECURE_TRANSPORT, PRINCIPAL_ACCOUNT, CURRENT_TIME, EPOCH_TIME, USER_AGENT, REQUESTED_REGION)
)
ABSENT_KEYS: Final = frozenset(
    (
        "aws:calledvia",
        "aws:calledviafirst",
        "aws:calledvialast",
        "aws:multifactorauthage",
        "aws:multifactorauthpresent",
        "aws:principalorgid",
        "aws:principalorgpaths",
        "aws:principalservicename",
        "aws:referer",
        "aws:sourceaccount",
        "aws:sourcearn",
        "aws:sourceorgid",
        "aws:sourcevpc",
        "aws:sourcevpce",
        "aws:vpcsourceip",
    )
)
"""Keys that requests of AWS may lack, and that requests here always lack: there are no services, VPCs and logins by
a second factor. Any other key makes a condition unknown."""
CONDITIONS_MAX: Final = 100
"""Maximum number of values in the conditions of a statement."""
_IF_EXISTS: Final = "ifexists"


def read_conditions(element: Any) -> tuple[Condition, ...] | None:
    """Parses the Condition element of a statement, all of which must hold. None if a part of it is not known."""
    if not isinstance(element, dict):
        return None
    found = []
    count = 0
    for operator, keys in element.items():
        if not isinstance(keys, dict) or not keys:
            return None
        for key, given in keys.items():
            values = [_text(each) for each in (given if isinstance(given, list) else [given])]
            count += len(values)
            condition = _condition(operator.lower(), key.lower(), values) if count <= CONDITIONS_MAX else None
            if condition is None:
                return None
            found.append(condition)
    return tuple(found)


def _text(value: Any) -> str | None:
    if isinstance(value, bool):
        return str(value).lower()
    return str(value) if isinstance(value, str | int | float) else None


def _condition(operator: str, key: str, values: list[str | None]) -> Condition | None:
    texts = [each for each in values if each is not None and "${" not in each]
    if key not in KNOWN_KEYS | ABSENT_KEYS or not texts or len(texts) != len(values):
        return None
    if operator == "null":
        wanted = {text.lower() for text in texts}
        return (lambda facts: str(key not in facts).lower() in wanted) if wanted <= {"true", "false"} else None
    is_optional = operator.endswith(_IF_EXISTS)
    name = operator.removesuffix(_IF_EXISTS)
    negative = _NEGATIVE.get(name)
    compare = _OPERATORS.get(negative or name)
    if compare is None:
        return None
    is_negative = negative is not None

    def holds(facts: Facts) -> bool:
        value = facts.get(key)
        if value is None:
            return is_optional or is_negative
        return any(_matches(compare, value, text) for text in texts) is not is_negative

    return holds


def _matches(compare: Compare, value: str, text: str) -> bool:
    try:
        return compare(value, text)
    except ValueError:
        return False


def _like(value: str, text: str) -> bool:
    return re.fullmatch(translate(text.replace("[", "[[]")), value) is not None


def _arn_like(value: str, text: str) -> bool:
    ours, theirs = value.split(":", 5), text.split(":", 5)
    return len(ours) == len(theirs) and all(map(_like, ours, theirs))


def _in_network(value: str, text: str) -> bool:
    return ip_address(value) in ip_network(text, strict=False)


def _number(compare: Callable[[float, float], bool]) -> Compare:
    return lambda value, text: compare(float(value), float(text))


def _time(text: str) -> float:
    """Returns seconds since the epoch of an ISO 8601 time, or of a number that has them already."""
    if text.replace(".", "", 1).isdigit():
        return float(text)
    found = datetime.fromisoformat(text)
    return (found if found.tzinfo is not None else found.replace(tzinfo=UTC)).timestamp()


def _date(compare: Callable[[float, float], bool]) -> Compare:
    return lambda value, text: compare(_time(value), _time(text))


_OPERATORS: Final[Mapping[str, Compare]] = {
    "stringequals": lambda value, text: value == text,
    "stringequalsignorecase": lambda value, text: value.lower() == text.lower(),
    "stringlike": _like,
    "arnequals": _arn_like,
    "arnlike": _arn_like,
    "ipaddress": _in_network,
    "bool": lambda value, text: value.lower() == text.lower(),
    "numericequals": _number(lambda value, number: value == number),
    "numericlessthan": _number(lambda value, number: value < number),
    "numericlessthanequals": _number(lambda value, number: value <= number),
    "numericgreaterthan": _number(lambda value, number: value > number),
    "numericgreaterthanequals": _number(lambda value, number: value >= number),
    "dateequals": _date(lambda value, time: value == time),
    "datelessthan": _date(lambda value, time: value < time),
    "datelessthanequals": _date(lambda value, time: value <= time),
    "dategreaterthan": _date(lambda value, time: value > time),
    "dategreaterthanequals": _date(lambda value, time: value >= time),
}
_NEGATIVE: Final[Mapping[str, str]] = {
    "stringnotequals": "stringequals",
    "stringnotequalsignorecase": "stringequalsignorecase",
    "stringnotlike": "stringlike",
    "arnnotequals": "arnequals",
    "arnnotlike": "arnlike",
    "notipaddress": "ipaddress",
    "numericnotequals": "numericequals",
    "datenotequals": "dateequals",
}
"""Operators that hold unless the other one does, also without a value."""
