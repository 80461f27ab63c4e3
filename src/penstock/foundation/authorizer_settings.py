"""Settings of authorization by their Kafka names. Pure."""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Final

from penstock.foundation.errors import InvalidConfig
from penstock.foundation.settings import Kind, Setting, switch

AUTHORIZER: Final = "authorizer.class.name"
SUPER_USERS: Final = "super.users"
ALLOW_IF_NONE: Final = "allow.everyone.if.no.acl.found"
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
    switch(ALLOW_IF_NONE, "false", "Whether resources without any ACL are open to all clients."),
)


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
