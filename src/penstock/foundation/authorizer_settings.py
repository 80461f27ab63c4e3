"""Settings of authorization by their Kafka names. Pure."""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Final

from penstock.foundation.errors import InvalidConfig
from penstock.foundation.settings import Kind, Setting, switch

AUTHORIZER: Final = "authorizer.class.name"
SUPER_USERS: Final = "super.users"
ALLOW_IF_NONE: Final = "allow.everyone.if.no.acl.found"
AUDIT_EVENTS: Final = "audit.events"
AUDIT_BYTES: Final = "audit.bytes.max"
AUDIT_BYTES_DEFAULT: Final = 160 << 20
STANDARD_AUTHORIZER: Final = "org.apache.kafka.metadata.authorizer.StandardAuthorizer"
_KNOWN_CLASSES: Final = (STANDARD_AUTHORIZER, "kafka.security.authorizer.AclAuthorizer")

AUTHORIZER_SETTINGS: Final = (
    Setting(
        name=AUTHORIZER,
        kind=Kind.STRING,
        default="",
        doc=f"`{STANDARD_AUTHORIZER}`: ACLs decide what clients may do. Empty: they may do everything.",
    ),
    Setting(
        name=SUPER_USERS,
        kind=Kind.STRING,
        default="",
        doc="Principals that may do everything, separated by semicolons: `User:admin;User:broker`. The user of the "
        "brokers must be one of them.",
    ),
    Setting(
        name=AUDIT_EVENTS,
        kind=Kind.LIST,
        default="",
        choices=("denied", "allowed", "logins", "changes", "none"),
        doc="The events that are written to the audit log. Empty: `denied,logins,changes` with an authorizer, "
        "and else none.",
    ),
    Setting(
        name=AUDIT_BYTES,
        kind=Kind.LONG,
        default=str(AUDIT_BYTES_DEFAULT),
        minimum=32 << 20,
        doc="The most bytes of the audit log's files; the oldest are deleted.",
    ),
    switch(ALLOW_IF_NONE, "false", "Whether resources without any ACL are open to all clients."),
)


def audited_kinds(values: Mapping[str, str]) -> frozenset[str]:
    """Returns the kinds of events that are written to the audit log.

    >>> sorted(audited_kinds({AUTHORIZER: STANDARD_AUTHORIZER}))
    ['changes', 'denied', 'logins']
    """
    given = frozenset(each.strip() for each in values.get(AUDIT_EVENTS, "").split(",") if each.strip())
    if not given and values.get(AUTHORIZER, "").strip():
        return frozenset(("denied", "logins", "changes"))
    return given - {"none"}


@dataclass(frozen=True, slots=True, kw_only=True)
class AuthorizerSettings:
    super_users: frozenset[str]
    allow_if_none: bool

    @classmethod
    def parse(cls, values: Mapping[str, str]) -> "AuthorizerSettings | None":
        """Returns the settings of the authorizer, None if there is none. Raises InvalidConfig.

        >>> AuthorizerSettings.parse({AUTHORIZER: STANDARD_AUTHORIZER, SUPER_USERS: "User:ops"}).super_users
        frozenset({'User:ops'})
        """
        name = values.get(AUTHORIZER, "").strip()
        if not name:
            return None
        if name not in _KNOWN_CLASSES:
            raise InvalidConfig(
                f"{AUTHORIZER} is {name!r}; expected {STANDARD_AUTHORIZER}, or nothing for no authorizer"
            )
        return cls(
            super_users=frozenset(_principals(values.get(SUPER_USERS, ""))),
            allow_if_none=values.get(ALLOW_IF_NONE, "false").strip().lower() == "true",
        )


def _principals(text: str) -> list[str]:
    found = [each.strip() for each in text.split(";") if each.strip()]
    for each in found:
        kind, colon, name = each.partition(":")
        if not (kind and colon and name):
            raise InvalidConfig(f"{SUPER_USERS} has {each!r}, which is not TYPE:NAME; expected User:NAME;User:NAME")
    return found
