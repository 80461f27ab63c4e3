"""Settings of OAUTHBEARER by Kafka's names: which tokens a listener accepts, and how a client gets one. Pure."""

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any, Final

from penstock.foundation.errors import InvalidConfig
from penstock.foundation.jaas import LoginModule
from penstock.foundation.settings import Kind, Setting, number

OAUTHBEARER: Final = "OAUTHBEARER"
KEYS_URL: Final = "sasl.oauthbearer.jwks.endpoint.url"
KEYS_REFRESH_MS: Final = "sasl.oauthbearer.jwks.endpoint.refresh.ms"
KEYS_BACKOFF_MS: Final = "sasl.oauthbearer.jwks.endpoint.retry.backoff.ms"
KEYS_BACKOFF_MAX_MS: Final = "sasl.oauthbearer.jwks.endpoint.retry.backoff.max.ms"
AUDIENCE: Final = "sasl.oauthbearer.expected.audience"
ISSUER: Final = "sasl.oauthbearer.expected.issuer"
SKEW_S: Final = "sasl.oauthbearer.clock.skew.seconds"
SUBJECT_CLAIM: Final = "sasl.oauthbearer.sub.claim.name"
ALGORITHMS: Final = "sasl.oauthbearer.algorithms"
SERVER_HANDLER: Final = "sasl.server.callback.handler.class"
KNOWN_ALGORITHMS: Final = (
    "RS256",
    "RS384",
    "RS512",
    "PS256",
    "PS384",
    "PS512",
    "ES256",
    "ES384",
    "ES512",
    "EdDSA",
)
"""All of them have public keys: with a symmetric one, each broker could issue tokens."""
_HANDLERS: Final = (
    "",
    "org.apache.kafka.common.security.oauthbearer.OAuthBearerValidatorCallbackHandler",
    "org.apache.kafka.common.security.oauthbearer.secured.OAuthBearerValidatorCallbackHandler",
)
TOKEN_URL: Final = "sasl.oauthbearer.token.endpoint.url"
CLIENT_ID: Final = "sasl.oauthbearer.client.credentials.client.id"
CLIENT_SECRET: Final = "sasl.oauthbearer.client.credentials.client.secret"
SCOPE: Final = "sasl.oauthbearer.scope"
AUTHORITIES: Final = "https.ca.location"
"""librdkafka's name of a PEM file with the authorities that HTTPS servers are trusted by."""
_EXTENSION: Final = "extension_"
_NAMES: Final[Mapping[str, tuple[str, ...]]] = {
    CLIENT_ID: ("sasl.oauthbearer.client.id", "clientId"),
    CLIENT_SECRET: ("sasl.oauthbearer.client.secret", "clientSecret"),
    SCOPE: ("scope",),
    AUTHORITIES: ("ssl.truststore.location",),
}
"""Other names of properties of clients: of librdkafka, and as options of a JAAS configuration."""
OAUTH_PROPERTIES: Final = frozenset([TOKEN_URL, CLIENT_ID, CLIENT_SECRET, SCOPE, AUTHORITIES]) | {
    name for names in _NAMES.values() for name in names if name.startswith("sasl.")
}

_URL = r"|https://\S+|file:///\S+"
_MODULE: Final = "org.apache.kafka.common.security.oauthbearer.OAuthBearerLoginModule required"

OAUTH_SETTINGS: Final = (
    Setting(
        name=KEYS_URL,
        kind=Kind.STRING,
        default="",
        pattern=_URL,
        form="https://… or file:///…",
        doc="Where the public keys of the issuer of tokens are: a JSON Web Key Set.",
    ),
    number(KEYS_REFRESH_MS, 3_600_000, 1000, "How often the keys are read again.", Kind.LONG),
    number(KEYS_BACKOFF_MS, 100, 1, "The pause after a failed attempt to read the keys; twice as long each time."),
    number(KEYS_BACKOFF_MAX_MS, 10_000, 1, "The longest pause after a failed attempt to read the keys."),
    Setting(
        name=AUDIENCE,
        kind=Kind.LIST,
        default="",
        doc="Tokens must be for one of these audiences (claim `aud`). Required for OAUTHBEARER.",
    ),
    Setting(
        name=ISSUER,
        kind=Kind.STRING,
        default="",
        doc="Tokens must be of this issuer (claim `iss`). Required for OAUTHBEARER.",
    ),
    number(SKEW_S, 30, 0, "By how much the clocks of the issuer and of this broker may differ."),
    Setting(name=SUBJECT_CLAIM, kind=Kind.STRING, default="sub", doc="The claim of a token that is the user's name."),
    Setting(
        name=ALGORITHMS,
        kind=Kind.LIST,
        default=",".join(KNOWN_ALGORITHMS),
        minimum=1,
        choices=KNOWN_ALGORITHMS,
        doc="The algorithms with which tokens may be signed.",
    ),
    Setting(
        name=SERVER_HANDLER,
        kind=Kind.STRING,
        default="",
        choices=_HANDLERS,
        doc="Kafka's class that checks tokens by the settings `sasl.oauthbearer.…`, as Penstock always does.",
    ),
)


@dataclass(frozen=True, slots=True, kw_only=True)
class TokenRules:
    """Which tokens a listener accepts."""

    keys_url: str
    authorities: str
    """A PEM file with the authorities that the server of the keys is trusted by; empty for those of the system."""
    refresh_s: float
    backoff_s: float
    backoff_max_s: float
    audiences: tuple[str, ...]
    issuer: str
    skew_s: int
    subject_claim: str
    algorithms: tuple[str, ...]

    @classmethod
    def parse(cls, value: Mapping[str, Any], module: LoginModule | None, listener: str) -> "TokenRules":
        """Returns the rules of a listener. `value`: its parsed settings. Raises InvalidConfig."""
        for name in (KEYS_URL, ISSUER, AUDIENCE):
            if not value[name]:
                raise InvalidConfig(
                    f"listener {listener} has {OAUTHBEARER}, but {name} is not set; set {KEYS_URL}, {ISSUER} and "
                    f"{AUDIENCE}: without them, tokens for other services would be accepted"
                )
        options = {} if module is None else module.options
        if unsecured := next((name for name in options if name.startswith("unsecured")), None):
            raise InvalidConfig(f"{unsecured} is not supported: tokens without a signature are never accepted")
        return cls(
            keys_url=value[KEYS_URL],
            authorities=options.get("ssl.truststore.location", ""),
            refresh_s=value[KEYS_REFRESH_MS] / 1000,
            backoff_s=value[KEYS_BACKOFF_MS] / 1000,
            backoff_max_s=value[KEYS_BACKOFF_MAX_MS] / 1000,
            audiences=value[AUDIENCE],
            issuer=value[ISSUER],
            skew_s=value[SKEW_S],
            subject_claim=value[SUBJECT_CLAIM],
            algorithms=value[ALGORITHMS],
        )


@dataclass(frozen=True, slots=True, kw_only=True)
class TokenSource:
    """Where a client gets its tokens: from an issuer with the grant "client credentials", or from a file."""

    url: str
    client_id: str = ""
    client_secret: str = field(default="", repr=False)
    scope: str = ""
    authorities: str = ""
    extensions: tuple[tuple[str, str], ...] = ()
    """Names and values that the client sends with the token (KIP-342)."""

    @classmethod
    def parse(cls, properties: Mapping[str, str], options: Mapping[str, str]) -> "TokenSource":
        """Returns the source that properties and options of a JAAS configuration define. Raises InvalidConfig.

        >>> TokenSource.parse({TOKEN_URL: "file:///run/token"}, {}).url
        'file:///run/token'
        """

        def find(name: str) -> str:
            names = (name, *_NAMES.get(name, ()))
            return next((text for each in names if (text := properties.get(each) or options.get(each))), "")

        url = properties.get(TOKEN_URL, "").strip()
        if not url.startswith(("https://", "file:///")):
            given = f"it is {url}" if url else "it is not set"
            raise InvalidConfig(f"{OAUTHBEARER} needs {TOKEN_URL}, https://… or file:///…; {given}")
        source = cls(
            url=url,
            client_id=find(CLIENT_ID),
            client_secret=find(CLIENT_SECRET),
            scope=find(SCOPE),
            authorities=properties.get(AUTHORITIES) or options.get("ssl.truststore.location", ""),
            extensions=tuple(
                (name.removeprefix(_EXTENSION), text) for name, text in options.items() if name.startswith(_EXTENSION)
            ),
        )
        if url.startswith("https://") and not (source.client_id and source.client_secret):
            raise InvalidConfig(
                f"{TOKEN_URL}={url} needs {CLIENT_ID} and {CLIENT_SECRET}, or sasl.jaas.config='{_MODULE} "
                'clientId="…" clientSecret="…";\''
            )
        return source


def librdkafka_tokens(source: TokenSource) -> dict[str, str]:
    """Returns librdkafka's options for a source of tokens. Raises InvalidConfig for a file, which it cannot read."""
    if not source.url.startswith("https://"):
        raise InvalidConfig(
            f"{TOKEN_URL}={source.url} cannot be used here: confluent-kafka reads tokens from https://… only"
        )
    options = {
        "sasl.oauthbearer.method": "oidc",
        TOKEN_URL: source.url,
        "sasl.oauthbearer.client.id": source.client_id,
        "sasl.oauthbearer.client.secret": source.client_secret,
        SCOPE: source.scope,
        AUTHORITIES: source.authorities,
        "sasl.oauthbearer.extensions": ",".join(f"{name}={text}" for name, text in source.extensions),
    }
    return {name: text for name, text in options.items() if text}
