"""Settings of GSSAPI (Kerberos) by Kafka's names: the key of a broker, and where a client gets its tickets. Pure."""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Final

from penstock.foundation.errors import InvalidConfig
from penstock.foundation.jaas import LoginModule
from penstock.foundation.settings import Kind, Setting

GSSAPI: Final = "GSSAPI"
SERVICE_NAME: Final = "sasl.kerberos.service.name"
LOCAL_RULES: Final = "sasl.kerberos.principal.to.local.rules"
KEYTAB: Final = "sasl.kerberos.keytab"
PRINCIPAL: Final = "sasl.kerberos.principal"
"""librdkafka's names for what Java clients have in `sasl.jaas.config`; so is KEYTAB."""
_RELOGIN_MS: Final = "sasl.kerberos.min.time.before.relogin"
KERBEROS_PROPERTIES: Final = frozenset([SERVICE_NAME, KEYTAB, PRINCIPAL])
"""The names of properties of clients."""
EXAMPLE: Final = (
    "com.sun.security.auth.module.Krb5LoginModule required useKeyTab=true storeKey=true "
    'keyTab="/etc/penstock/kafka.keytab" principal="kafka/HOST@REALM";'
)

KERBEROS_SETTINGS: Final = (
    Setting(
        name=SERVICE_NAME,
        kind=Kind.STRING,
        default="",
        doc="The first part of the brokers' Kerberos principals, usually `kafka`: with GSSAPI, this broker logs in "
        "to others as a client of the service SERVICE/HOST.",
    ),
    Setting(
        name=LOCAL_RULES,
        kind=Kind.LIST,
        default="DEFAULT",
        minimum=1,
        doc="Rules that map Kerberos principals to users. The first one that matches decides: `DEFAULT` takes the "
        "first part of principals of the default realm, `RULE:[2:$1](PATTERN)s/PATTERN/REPLACEMENT/` others.",
    ),
)
"""Settings of brokers."""


@dataclass(frozen=True, slots=True, kw_only=True)
class KerberosKey:
    """The key of a broker, and as whom it knows its clients."""

    principal: str
    keytab: str
    """The file with the key."""
    rules: tuple[str, ...]
    """Rules that map principals of clients to users."""

    @classmethod
    def parse(cls, setting: str, module: LoginModule | None, rules: tuple[str, ...]) -> "KerberosKey":
        """Returns the key that a login module names. Raises InvalidConfig.

        >>> options = {"useKeyTab": "true", "keyTab": "/k", "principal": "kafka/queue-1@EXAMPLE.ORG"}
        >>> KerberosKey.parse("sasl.jaas.config", LoginModule(name="Krb5LoginModule", options=options), ()).keytab
        '/k'
        """
        if module is None:
            raise InvalidConfig(f"{GSSAPI} needs the key of this broker; set {setting} to '{EXAMPLE}'")
        options = module.options
        if not (_is_true(options, "useKeyTab") and options.get("keyTab") and options.get("principal")):
            raise InvalidConfig(f"{setting} must have useKeyTab=true, keyTab and principal, as in '{EXAMPLE}'")
        return cls(principal=options["principal"], keytab=options["keyTab"], rules=rules)


@dataclass(frozen=True, slots=True, kw_only=True)
class TicketSource:
    """How a client gets its Kerberos tickets: with a key of a keytab, or from the ticket cache of kinit."""

    service: str
    """The first part of the brokers' principals."""
    principal: str = ""
    """The client; empty for that of the ticket cache."""
    keytab: str = ""
    """Empty to use a ticket cache."""
    cache: str = ""
    """The ticket cache; empty for the one that `KRB5CCNAME` or krb5.conf name."""

    @classmethod
    def parse(cls, properties: Mapping[str, str], module: LoginModule | None) -> "TicketSource":
        """Returns the source that properties and a login module define. Raises InvalidConfig.

        >>> TicketSource.parse({SERVICE_NAME: "kafka", KEYTAB: "/k", PRINCIPAL: "orders"}, None).principal
        'orders'
        """
        options = {} if module is None else module.options
        service = _service(properties.get(SERVICE_NAME, "").strip(), options.get("serviceName", ""))
        if module is None:
            keytab, principal = properties.get(KEYTAB, "").strip(), properties.get(PRINCIPAL, "").strip()
            if keytab and not principal:
                raise InvalidConfig(f"{KEYTAB} is set, but {PRINCIPAL} is not; set it to the client of the keytab")
            return cls(service=service, principal=principal, keytab=keytab)
        principal = options.get("principal", "")
        if _is_true(options, "useKeyTab"):
            if not (options.get("keyTab") and principal):
                raise InvalidConfig(
                    "sasl.jaas.config has useKeyTab=true, which needs keyTab and principal; add "
                    'keyTab="FILE" principal="NAME@REALM"'
                )
            return cls(service=service, principal=principal, keytab=options["keyTab"])
        if not _is_true(options, "useTicketCache"):
            raise InvalidConfig(
                'sasl.jaas.config has no tickets; add useKeyTab=true keyTab="FILE" principal="NAME@REALM" or '
                "useTicketCache=true to it"
            )
        return cls(service=service, principal=principal, cache=options.get("ticketCache", ""))


def librdkafka_tickets(source: TicketSource) -> dict[str, str]:
    """Returns librdkafka's options for a source of tickets. Raises InvalidConfig for what it does not have."""
    if source.cache:
        raise InvalidConfig(
            "sasl.jaas.config has ticketCache, but confluent-kafka uses the one of the environment; remove it, and "
            f"set KRB5CCNAME={source.cache}"
        )
    if not source.keytab:
        return {SERVICE_NAME: source.service, _RELOGIN_MS: "0"}  # it does not run kinit then
    return {SERVICE_NAME: source.service, KEYTAB: source.keytab, PRINCIPAL: source.principal}


def _service(of_property: str, of_module: str) -> str:
    if of_property and of_module and of_property != of_module:
        raise InvalidConfig(
            f"{SERVICE_NAME}={of_property} differs from serviceName={of_module} in sasl.jaas.config; remove one"
        )
    if not (of_property or of_module):
        raise InvalidConfig(
            f"{GSSAPI} needs {SERVICE_NAME}, the first part of the brokers' principals; set it, usually to kafka"
        )
    return of_property or of_module


def _is_true(options: Mapping[str, str], name: str) -> bool:
    return options.get(name, "").lower() == "true"
