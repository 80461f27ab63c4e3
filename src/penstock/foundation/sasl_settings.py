"""SASL settings by Kafka's names: parsed and validated for a listener. Pure."""

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any, Final

from penstock.foundation import tls_settings
from penstock.foundation.errors import InvalidConfig
from penstock.foundation.jaas import LoginModule, parse_jaas
from penstock.foundation.kerberos_settings import (
    EXAMPLE,
    GSSAPI,
    KERBEROS_SETTINGS,
    LOCAL_RULES,
    SERVICE_NAME,
    KerberosKey,
    TicketSource,
)
from penstock.foundation.oauth_settings import OAUTH_SETTINGS, OAUTHBEARER, TOKEN_URL, TokenRules, TokenSource
from penstock.foundation.settings import Kind, Setting, Table, number
from penstock.foundation.tls_settings import listener_prefix

PLAIN: Final = "PLAIN"
SCRAM_SHA_256: Final = "SCRAM-SHA-256"
SCRAM_SHA_512: Final = "SCRAM-SHA-512"
MECHANISMS: Final = (PLAIN, SCRAM_SHA_256, SCRAM_SHA_512, OAUTHBEARER, GSSAPI)
LOGIN_MODULES: Final = {
    PLAIN: "PlainLoginModule",
    SCRAM_SHA_256: "ScramLoginModule",
    SCRAM_SHA_512: "ScramLoginModule",
    OAUTHBEARER: "OAuthBearerLoginModule",
    GSSAPI: "Krb5LoginModule",
}
_PACKAGES: Final = {PLAIN: "plain", OAUTHBEARER: "oauthbearer"}
TOKEN_AUTH: Final = "tokenauth"
"""The option of a login module, and the SCRAM extension, for logins with delegation tokens."""
ENABLED: Final = "sasl.enabled.mechanisms"
INTER_BROKER: Final = "sasl.mechanism.inter.broker.protocol"
JAAS: Final = "sasl.jaas.config"
REAUTH_MS: Final = "connections.max.reauth.ms"
FAILED_DELAY_MS: Final = "connection.failed.authentication.delay.ms"
RECEIVE_BYTES: Final = "sasl.server.max.receive.size"

SASL_SETTINGS: Final = Table(
    [
        Setting(
            name=ENABLED,
            kind=Kind.LIST,
            default=f"{SCRAM_SHA_256},{SCRAM_SHA_512}",
            minimum=1,
            choices=MECHANISMS,
            doc="The SASL mechanisms that clients may use on listeners with SASL.",
        ),
        Setting(
            name=INTER_BROKER,
            kind=Kind.STRING,
            default=SCRAM_SHA_512,
            choices=MECHANISMS,
            doc="The SASL mechanism with which brokers log in to each other, if the inter-broker listener has SASL.",
        ),
        Setting(
            name=JAAS,
            kind=Kind.PASSWORD,
            default="",
            doc="Users of a listener and mechanism, with the prefix `listener.name.NAME.MECHANISM.`: the user as "
            "whom this broker logs in to others and, for PLAIN, users in addition to those in the store. For GSSAPI, "
            "the key of this broker.",
        ),
        number(
            REAUTH_MS,
            0,
            0,
            "After this time, clients must authenticate again on their connections (KIP-368). 0: never.",
            Kind.LONG,
        ),
        number(FAILED_DELAY_MS, 100, 0, "How long the answer to a failed login is delayed."),
        number(RECEIVE_BYTES, 512 << 10, 1024, "The largest request before a client has authenticated."),
        Setting(
            name=TOKEN_URL,
            kind=Kind.STRING,
            default="",
            doc="Where this broker gets the tokens with which it logs in to others by OAUTHBEARER.",
        ),
        *OAUTH_SETTINGS,
        *KERBEROS_SETTINGS,
    ]
)
"""SASL settings of brokers. The prefix `listener.name.NAME.` makes one a setting of that listener."""
_OF_MECHANISM: Final = (JAAS, REAUTH_MS, TOKEN_URL, *(each.name for each in OAUTH_SETTINGS))
_OF_LISTENER: Final = (
    ENABLED,
    REAUTH_MS,
    RECEIVE_BYTES,
    TOKEN_URL,
    *(each.name for each in (*OAUTH_SETTINGS, *KERBEROS_SETTINGS)),
)


@dataclass(frozen=True, slots=True, kw_only=True)
class SaslSettings:
    """Parsed SASL settings of one listener. Passwords are left out of its text form."""

    enabled: tuple[str, ...]
    users: Mapping[str, str] = field(repr=False)
    """Passwords of the users that the JAAS configuration of PLAIN defines, by name."""
    reauth_ms: Mapping[str, int]
    """Lifetime of a session by mechanism, in milliseconds; 0 for no limit."""
    tokens: TokenRules | None
    """Which tokens OAUTHBEARER accepts; None if it is not enabled."""
    kerberos: KerberosKey | None
    """With which key GSSAPI accepts tickets; None if it is not enabled."""
    failed_delay_s: float
    receive_bytes_max: int

    @classmethod
    def parse(cls, given: Mapping[str, str], listener: str) -> "SaslSettings":
        """Parses the settings of the listener with this name. Raises InvalidConfig.

        >>> SaslSettings.parse({"listener.name.b.sasl.enabled.mechanisms": "PLAIN"}, "B").enabled
        ('PLAIN',)
        """
        prefix = listener_prefix(listener)
        enabled = _value(given, ENABLED, prefix)
        plain = _login_module(given, prefix, PLAIN) if PLAIN in enabled else None
        return cls(
            enabled=tuple(dict.fromkeys(enabled)),
            users={} if plain is None else plain.users,
            reauth_ms={each: _value(given, REAUTH_MS, f"{prefix}{each.lower()}.", prefix) for each in enabled},
            tokens=_token_rules(given, listener, prefix) if OAUTHBEARER in enabled else None,
            kerberos=_kerberos_key(given, prefix) if GSSAPI in enabled else None,
            failed_delay_s=_value(given, FAILED_DELAY_MS) / 1000,
            receive_bytes_max=_value(given, RECEIVE_BYTES, prefix),
        )


@dataclass(frozen=True, slots=True, kw_only=True)
class SaslLogin:
    """As whom a client logs in, and how."""

    mechanism: str
    username: str = ""
    password: str = field(default="", repr=False)
    has_token: bool = False
    """Whether the user is the id of a delegation token, and the password its HMAC (KIP-48)."""
    tokens: TokenSource | None = None
    """Where the client gets tokens for OAUTHBEARER; None for other mechanisms."""
    tickets: TicketSource | None = None
    """Where the client gets tickets for GSSAPI; None for other mechanisms."""


def inter_broker_login(given: Mapping[str, str], listener: str) -> SaslLogin:
    """Returns as whom this broker logs in to others on the inter-broker listener. Raises InvalidConfig."""
    mechanism = _value(given, INTER_BROKER)
    prefix = listener_prefix(listener)
    enabled = _value(given, ENABLED, prefix)
    if mechanism not in enabled:
        raise InvalidConfig(
            f"{INTER_BROKER}={mechanism} is not enabled on listener {listener}, which has {', '.join(enabled)}; add "
            f"it to {ENABLED}, or set {INTER_BROKER} to one of these"
        )
    name = f"{prefix}{mechanism.lower()}.{JAAS}"
    module = _login_module(given, prefix, mechanism)
    if mechanism == OAUTHBEARER:
        url = _value(given, TOKEN_URL, f"{prefix}{mechanism.lower()}.", prefix)
        options = {} if module is None else module.options
        return SaslLogin(mechanism=mechanism, tokens=TokenSource.parse({TOKEN_URL: url}, options))
    if mechanism == GSSAPI:
        service = _value(given, SERVICE_NAME, prefix)
        if module is None:
            raise InvalidConfig(f"{GSSAPI} needs the key of this broker; set {name} to '{EXAMPLE}'")
        return SaslLogin(mechanism=mechanism, tickets=TicketSource.parse({SERVICE_NAME: service}, module))
    if module is None:
        raise InvalidConfig(
            f"brokers log in to each other on listener {listener}, but this one has no user for it; set {name} to "
            f"'org.apache.kafka.common.security.{_PACKAGES.get(mechanism, 'scram')}.{LOGIN_MODULES[mechanism]} "
            'required username="NAME" password="PASSWORD";\', and create the user with `penstock user create`'
        )
    return login_of(name, mechanism, module)


def login_of(setting: str, mechanism: str, module: LoginModule) -> SaslLogin:
    """Returns the user of a login module. Raises InvalidConfig if the module has none, or is of another mechanism."""
    check_module(setting, mechanism, module)
    for option in ("username", "password"):
        if not module.options.get(option):
            raise InvalidConfig(f'{setting} has no {option}; add {option}="…" to it')
    return SaslLogin(
        mechanism=mechanism,
        username=module.options["username"],
        password=module.options["password"],
        has_token=is_token_login(module) and mechanism in (SCRAM_SHA_256, SCRAM_SHA_512),
    )


def check_module(setting: str, mechanism: str, module: LoginModule) -> None:
    """Raises InvalidConfig if a login module is of another mechanism."""
    if module.simple_name != LOGIN_MODULES[mechanism]:
        raise InvalidConfig(
            f"{setting} has the login module {module.simple_name}; {mechanism} needs {LOGIN_MODULES[mechanism]}"
        )


def is_token_login(module: LoginModule) -> bool:
    """Whether a login module logs in with a delegation token.

    >>> is_token_login(LoginModule(name="ScramLoginModule", options={"tokenauth": "true"}))
    True
    """
    return module.options.get(TOKEN_AUTH, "").lower() == "true"


def _token_rules(given: Mapping[str, str], listener: str, prefix: str) -> TokenRules:
    own = f"{prefix}{OAUTHBEARER.lower()}."
    value = {each.name: _value(given, each.name, own, prefix) for each in OAUTH_SETTINGS}
    return TokenRules.parse(value, _login_module(given, prefix, OAUTHBEARER), listener)


def _kerberos_key(given: Mapping[str, str], prefix: str) -> KerberosKey:
    module = _login_module(given, prefix, GSSAPI)
    return KerberosKey.parse(f"{prefix}{GSSAPI.lower()}.{JAAS}", module, _value(given, LOCAL_RULES, prefix))


def listener_setting(name: str) -> Setting | None:
    """Returns the setting that `listener.name.NAME.SETTING` overrides; None if `name` is not of that form.

    >>> listener_setting("listener.name.external.scram-sha-256.sasl.jaas.config").name
    'sasl.jaas.config'
    """
    found = tls_settings.listener_setting(name)
    if found is not None or not name.startswith("listener.name."):
        return found
    for own in _OF_MECHANISM:
        rest, dot, mechanism = name.removesuffix(f".{own}").rpartition(".")
        if name.endswith(f".{own}") and dot and mechanism.upper() in MECHANISMS and rest != "listener.name":
            return SASL_SETTINGS.by_name[own]
    return next((SASL_SETTINGS.by_name[own] for own in _OF_LISTENER if name.endswith(f".{own}")), None)


def _login_module(given: Mapping[str, str], prefix: str, mechanism: str) -> LoginModule | None:
    name = f"{prefix}{mechanism.lower()}.{JAAS}"
    text = given.get(name, "").strip()
    if not text:
        return None
    module = parse_jaas(name, text)
    check_module(name, mechanism, module)
    return module


def _value(given: Mapping[str, str], name: str, *prefixes: str) -> Any:
    """Returns the parsed value of a setting, with the first of the prefixes under which it is given."""
    own = next((f"{prefix}{name}" for prefix in prefixes if f"{prefix}{name}" in given), name)
    setting = SASL_SETTINGS.by_name[name]
    return setting.parse(given.get(own, setting.default))
