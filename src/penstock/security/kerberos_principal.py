"""Users of Kerberos principals: Kafka's rules from principal to user name. Pure."""

from collections.abc import Callable, Sequence
from typing import Any, Final

import re2

from penstock.foundation.errors import InvalidConfig
from penstock.foundation.kerberos_settings import LOCAL_RULES
from penstock.security.errors import PrincipalRefused

NAME_CHARS_MAX: Final = 1024
ANONYMOUS: Final = ("WELLKNOWN", "ANONYMOUS")
"""The client of a ticket that proves no identity (RFC 8062)."""
LocalNameOf = Callable[[str], str]
"""A function that returns the user of a principal. Raises PrincipalRefused."""
_Rule = Callable[[Sequence[str]], str | None]
"""A function that returns the user of a realm and the components of a name; None if the rule does not apply."""

_NAME: Final = re2.compile(r"([^/@]+)(?:/([^/@]*))?@([^/@]+)")
_RULE: Final = re2.compile(
    r"(DEFAULT)|RULE:\[([0-9]+):([^\]]*)\](?:\(([^)]*)\))?(?:s/([^/]*)/([^/]*)/(g)?)?/?([LU])?"
)
_FORMAT: Final = re2.compile(r"([^$]*)(?:\$([0-9]*))?")
_REPLACEMENT: Final = re2.compile(r"([^$\\]+)|\\((?s:.))|\$([0-9]+)|\$\{([a-zA-Z][a-zA-Z0-9]*)\}")
_EXPECTED: Final = "expected DEFAULT or RULE:[NUMBER:FORMAT](PATTERN)s/PATTERN/REPLACEMENT/g/L"


def local_names(rules: Sequence[str], default_realm: str) -> LocalNameOf:
    """Returns the function that maps principals to users. Raises InvalidConfig for rules that are wrong.

    >>> user_of = local_names(["RULE:[2:$1](app-.*)s/app-//", "DEFAULT"], "EXAMPLE.ORG")
    >>> user_of("app-orders/queue-1@EXAMPLE.ORG"), user_of("eve@EXAMPLE.ORG")
    ('orders', 'eve')
    """
    parsed = [_parse(rule, default_realm) for rule in rules]

    def local_name(principal: str) -> str:
        params = _split(principal)
        for rule in parsed:
            found = rule(params)
            if found is not None:
                if not found:
                    raise PrincipalRefused(f"a rule of {LOCAL_RULES} makes an empty name of {principal}")
                return found
        raise PrincipalRefused(f"no rule of {LOCAL_RULES} applies to {principal}")

    return local_name


def _split(principal: str) -> tuple[str, ...]:
    """Returns the realm and the components of a principal. Raises PrincipalRefused.

    Kerberos writes a backslash before a slash or an @ within a component. No name with a backslash is accepted: a
    rule could take a part of it for another name.
    """
    found = _NAME.fullmatch(principal) if len(principal) <= NAME_CHARS_MAX and principal.isprintable() else None
    if found is None or "\\" in principal:
        raise PrincipalRefused(f"the principal {principal[:NAME_CHARS_MAX]!r} is not NAME@REALM or NAME/HOST@REALM")
    name, host, realm = found.groups()
    if (name, host) == ANONYMOUS:
        raise PrincipalRefused("the client is anonymous")
    return (realm, name) if host is None else (realm, name, host)


def _parse(text: str, default_realm: str) -> _Rule:
    found = _RULE.fullmatch(text)
    if found is None:
        raise InvalidConfig(f"{LOCAL_RULES} has {text!r}; {_EXPECTED}")
    is_default, count, form, pattern, old, new, is_global, case = found.groups()
    if is_default:
        return lambda params: params[1] if default_realm and params[0] == default_realm else None
    base_of = _format(text, form, int(count))
    matcher = None if pattern is None else _compile(text, pattern)
    replace = str if old is None else _replacement(text, _compile(text, old), new, once=not is_global)

    def apply(params: Sequence[str]) -> str | None:
        if len(params) - 1 != int(count):
            return None
        base = base_of(params)
        if matcher is not None and matcher.fullmatch(base) is None:
            return None
        name = replace(base)
        if "/" in name or "@" in name:  # like Kafka, the rules after this one are not tried
            raise PrincipalRefused(f"the rule {text} makes {name!r}, which is not a simple name")
        return name.lower() if case == "L" else name.upper() if case == "U" else name

    return apply


def _format(rule: str, form: str, count: int) -> Callable[[Sequence[str]], str]:
    """Returns the function that fills the realm ($0) and components ($1, $2) of a name into a format."""
    parts: list[str | int] = []
    for match in _FORMAT.finditer(form):
        text, number = match.groups()
        parts.append(text)
        if number is None:
            continue
        if not number or int(number) > count:
            raise InvalidConfig(
                f"{LOCAL_RULES} has {rule!r}, whose format has ${number}; names of this rule have $0 to ${count}"
            )
        parts.append(int(number))
    return lambda params: "".join(part if isinstance(part, str) else params[part] for part in parts)


def _replacement(rule: str, old: Any, new: str, *, once: bool) -> Callable[[str], str]:
    """Returns the function that replaces a pattern. `new` has references to groups as in Java: $1 or ${name}."""
    parts: list[str | int] = []
    at = 0
    while at < len(new):
        match = _REPLACEMENT.match(new, at)
        if match is None:
            raise InvalidConfig(rf"{LOCAL_RULES} has {rule!r}, whose replacement has {new[at:]!r}; write \ before it")
        at = match.end()
        text, escaped, digits, name = match.groups()
        if digits is not None:
            group = int(digits[0])
            used = 1
            # Like Java: further digits count if there is such a group, and else are text.
            while used < len(digits) and group * 10 + int(digits[used]) <= old.groups:
                group = group * 10 + int(digits[used])
                used += 1
            parts += [group, digits[used:]]
        elif name is not None:
            parts.append(old.groupindex.get(name, -1))
        else:
            parts.append(text if text is not None else escaped)
        if any(isinstance(part, int) and not 0 <= part <= old.groups for part in parts):
            raise InvalidConfig(f"{LOCAL_RULES} has {rule!r}, whose replacement names a group that the pattern lacks")

    def expand(found: Any) -> str:
        return "".join(part if isinstance(part, str) else found.group(part) or "" for part in parts)

    def replace(text: str) -> str:
        replaced: str = old.sub(expand, text, 1 if once else 0)
        return replaced

    return replace


def _compile(rule: str, pattern: str) -> Any:
    try:
        return re2.compile(pattern)
    except re2.error as error:
        raise InvalidConfig(f"{LOCAL_RULES} has {rule!r}, whose pattern {pattern!r} is not valid: {error}") from None
