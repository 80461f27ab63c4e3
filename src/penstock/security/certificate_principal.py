"""Principals of clients that show a certificate: Kafka's mapping rules from subject to user name (KIP-371). Pure."""

from collections.abc import Callable, Mapping
from typing import Any, Final

import re2

from penstock.foundation.errors import InvalidConfig
from penstock.foundation.tls_settings import MAPPING_RULES

ANONYMOUS: Final = "User:ANONYMOUS"
NO_RULE: Final = f"no rule of {MAPPING_RULES} matches the subject of the client's certificate; add a rule, or DEFAULT"
PrincipalOf = Callable[[Mapping[str, Any] | None], str | None]
"""A function that returns the principal of a client's certificate, as `ssl` describes it; None if no rule matches."""
_SHORT_NAMES: Final = {
    "commonName": "CN",
    "countryName": "C",
    "domainComponent": "DC",
    "localityName": "L",
    "organizationName": "O",
    "organizationalUnitName": "OU",
    "stateOrProvinceName": "ST",
    "streetAddress": "STREET",
    "userId": "UID",
}
_RULES: Final = re2.compile(r"\s*(?:(DEFAULT)|RULE:((?:\\.|[^\\/])*)/((?:\\.|[^\\/])*)/([LU]?))\s*(,|$)")
_GROUP: Final = re2.compile(r"\$([0-9])|\\(.)")
_ESCAPED: Final = frozenset('",+;<>\\')


def no_certificate(certificate: Mapping[str, Any] | None) -> str | None:
    """Returns the principal of clients of a listener that does not ask for certificates."""
    return ANONYMOUS


def principal_mapper(rules: str) -> PrincipalOf:
    """Returns the function that maps certificates to principals. Raises InvalidConfig for rules that are wrong.

    >>> principal_of = principal_mapper("RULE:^CN=([^,]+),.*$/$1/L, DEFAULT")
    >>> principal_of({"subject": ((("organizationName", "Shop"),), (("commonName", "Orders"),))})
    'User:orders'
    """
    parsed = _parse(rules)

    def principal_of(certificate: Mapping[str, Any] | None) -> str | None:
        if not certificate:
            return ANONYMOUS
        name = distinguished_name(certificate["subject"])
        for rule in parsed:
            found = rule(name)
            if found is not None:
                return f"User:{found}"
        return None

    return principal_of


def _parse(rules: str) -> list[Callable[[str], str | None]]:
    text = rules.strip() or "DEFAULT"
    found: list[Callable[[str], str | None]] = []
    at = 0
    while at < len(text):
        match = _RULES.match(text, at)
        if match is None:
            raise InvalidConfig(
                f"{MAPPING_RULES} has {text[at:]!r}; expected DEFAULT or RULE:PATTERN/REPLACEMENT/ with L or U at "
                "the end for lower or upper case"
            )
        is_default, pattern, replacement, case, _ = match.groups()
        found.append(str if is_default else _rule(pattern, replacement, case))
        at = match.end()
    return found


def _rule(pattern: str, replacement: str, case: str) -> Callable[[str], str | None]:
    """Returns the function of one rule: it returns None for a name that does not match the pattern as a whole."""
    try:
        compiled = re2.compile(pattern)
    except re2.error as error:
        raise InvalidConfig(f"{MAPPING_RULES} has the pattern {pattern!r}, which is not valid: {error}") from None

    def apply(name: str) -> str | None:
        match = compiled.fullmatch(name)
        if match is None:
            return None

        def expand(reference: Any) -> str:
            number, escaped = reference.groups()
            if escaped is not None:
                return str(escaped)
            # Like Kafka: a reference to a group that the pattern does not have is a text.
            return (match.group(int(number)) or "") if int(number) <= compiled.groups else f"${number}"

        result: str = _GROUP.sub(expand, replacement)
        return result.lower() if case == "L" else result.upper() if case == "U" else result

    return apply


def distinguished_name(subject: tuple[tuple[tuple[str, str], ...], ...]) -> str:
    """Returns the subject of a certificate in the form of RFC 2253, which starts with the most specific part. Names
    of attributes that this form does not define stay as OpenSSL writes them, such as emailAddress.

    >>> distinguished_name(((("countryName", "DE"),), (("commonName", "Orders, Inc."),)))
    'CN=Orders\\\\, Inc.,C=DE'
    """
    return ",".join(
        "+".join(f"{_SHORT_NAMES.get(name, name)}={_escape(value)}" for name, value in part)
        for part in reversed(subject)
    )


def _escape(value: str) -> str:
    escaped = "".join(f"\\{char}" if char in _ESCAPED else char for char in value)
    if escaped[:1] in ("#", " "):
        escaped = f"\\{escaped}"
    return f"{escaped[:-1]}\\ " if escaped.endswith(" ") and len(value) > 1 else escaped
